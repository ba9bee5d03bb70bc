"""Packages that only some tests use: a test is skipped without them, and collecting the tests imports none of them."""

import importlib
import importlib.util
from typing import Any

import pytest


class _Package:
    """A package that is imported when a test first uses it."""

    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest looks for such names in everything that a module of tests holds
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)

    def __setattr__(self, name: str, value: object) -> None:
        raise TypeError(f"patch it by its name: monkeypatch.setattr('{self._name}.{name}', ...)")


def package(name: str) -> Any:
    """Return a package, or a module of one; skip the test, or the whole module of tests, if it is not installed."""
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        pytest.skip(f"{name} is not installed", allow_module_level=True)
    return _Package(name)
