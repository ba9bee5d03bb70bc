"""airgen: turn a real corpus into a retrieval benchmark, after AIR-Bench, and evaluate retrievers on it, after BEIR.

The functions of `airgen.api` are also available as `airgen.run`, `airgen.evaluate`, and so on. They are imported on
first use, so that `import airgen` and `airgen --version` are fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airgen.api import *  # noqa: F403

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    from airgen.python import VALUES

    if name in VALUES:
        return getattr(importlib.import_module(VALUES[name]), name)
    from airgen.commands import COMMANDS

    # `report` is a package, so the api must not look for a submodule that is not imported yet.
    if name != "report" and name.partition("_")[0] in COMMANDS:
        from airgen import api

        if name in api.__all__:
            return getattr(api, name)
    raise AttributeError(f"module 'airgen' has no attribute {name!r}")


def __dir__() -> list[str]:
    from airgen import api

    return sorted({"__version__", *api.__all__} - {"report"})
