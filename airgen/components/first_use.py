"""Import the names that a package offers when they are first used, so that its other modules can be imported alone."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def names_on_first_use(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package.

    Args:
        package: Its `__name__`.
        modules: The module that defines each name: `airgen.job.job`, or `.job` for one of the package.
    """

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules[name], package), name)

    return find
