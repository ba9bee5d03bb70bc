"""Which model answers; and the one place that reads keys."""

from __future__ import annotations

import os
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from airgen.errors import SettingsError
from airgen.settings.base import Settings

__all__ = ["LlmSettings", "answer_parts", "secret"]


class LlmSettings(Settings):
    """Which model answers, and how fast, how often and how dearly it may be asked.

    Only `model`, `endpoint`, `temperature`, `top_p` and `max_tokens` can change an answer; the rest may be changed
    at any time without anything being asked again.
    """

    backend: Literal["openai", "embedded", "scripted"] = "openai"
    model: str
    base_url: str | None = None
    api_key_env: str | None = None
    endpoint: str = "default"
    temperature: float = Field(default=1.0, ge=0, le=2)  # secondary source on the paper's generation
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int = Field(default=1024, ge=1)
    mode: Literal["live", "batch"] = "live"
    batch_poll_seconds: float = Field(default=30.0, gt=0)  # mode batch: between two looks at a batch that is out
    concurrency: int = Field(default=64, ge=1, le=4096)
    budget_usd: float | None = Field(default=None, ge=0)
    requests_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_minute: int | None = Field(default=None, ge=1)
    timeout_seconds: float = Field(default=120.0, gt=0)
    retries: int = Field(default=6, ge=0)
    max_failures: float = Field(default=0.2, ge=0)  # below 1 a fraction of the calls, else a count
    prices: dict[str, dict[str, float]] = Field(default_factory=dict)  # model: {input, output, cached} USD a million
    threads: int | None = Field(default=None, ge=1)  # embedded only
    faults: dict[str, float] = Field(default_factory=dict)  # scripted only: fault -> share of the calls
    latency: float = Field(default=0.0, ge=0)  # scripted only: seconds a call

    @model_validator(mode="before")
    @classmethod
    def _offline_defaults(cls, value: Any) -> Any:
        models = {"embedded": "qwen2.5-coder-1.5b", "scripted": "scripted"}
        if isinstance(value, dict) and value.get("backend") in models:
            # One call at a time, and no hurry: a time-out would count the wait for the call before.
            few = {"concurrency": 1, "timeout_seconds": 3600.0} if value["backend"] == "embedded" else {}
            return {"model": models[str(value["backend"])], **few, **value}
        return value

    @field_validator("api_key_env")
    @classmethod
    def _a_name_not_a_key(cls, value: str | None) -> str | None:
        if value is not None and not value.replace("_", "").isalnum():
            raise ValueError("must be the name of an environment variable, not the key itself")
        return value


def secret(name: str | None) -> str | None:
    """The key in an environment variable, stripped, or None where it is not set. The only reader of keys.

    Raises SettingsError, which never shows the value, where it is not one line of ASCII and could not be a header.
    """
    key = os.environ.get(name, "").strip() if name else ""
    if key and not (key.isascii() and key.isprintable()):
        raise SettingsError([f"the value of the environment variable {name} is not one line of ASCII"])
    return key or None


def answer_parts(llm: LlmSettings) -> dict[str, Any]:
    """What of an LLM's settings can change an answer."""
    return {
        "backend": llm.backend if llm.backend == "scripted" else "",
        "model": llm.model,
        "endpoint": llm.endpoint,
        "temperature": llm.temperature,
        "top_p": llm.top_p,
        "max_tokens": llm.max_tokens,
        "faults": llm.faults,
    }
