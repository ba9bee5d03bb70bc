"""What all settings share."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

__all__ = ["Model", "Settings"]

Model = str | dict[str, Any]  # a name, or {kind: ..., settings of that kind}


class Settings(BaseModel):
    """Base: unknown keys are errors, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())
