"""airgen: turn a real corpus into a retrieval benchmark, after AIR-Bench, and evaluate retrievers on it, after BEIR.

The functions of `airgen.api` are here, too: `airgen.run_pipeline`, `airgen.evaluate`, ... They are imported when they
are first used, so that `import airgen` and `airgen --version` take no time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airgen.api import Check, check, evaluate, label, open_dataset, run_pipeline, status

__all__ = ["Check", "__version__", "check", "evaluate", "label", "open_dataset", "run_pipeline", "status"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in __all__:
        from airgen import api

        return getattr(api, name)
    raise AttributeError(f"module 'airgen' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
