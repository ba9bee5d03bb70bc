"""What settings require: files, models, packages and keys.

needs(spec)                  one line for each that is missing
files_of(settings)           the files and models that settings name
located("docs", folder)      a path of a YAML file
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from airgen import models
from airgen.components.registry import meant, missing_extras
from airgen.models.catalogue import catalogue
from airgen.settings.base import marked
from airgen.settings.http import unset_variables
from airgen.settings.spec import Spec


def located(value: str, folder: Path | None) -> Path:
    """Resolve a path in a YAML file. Relative paths start at the file's folder."""
    return (folder or Path()) / Path(value).expanduser()


def elsewhere(value: str, folder: Path | None) -> str:
    """Return a hint for a missing path in a YAML file if it exists relative to the working directory."""
    here = Path.cwd() / value
    if folder is None or folder.resolve() == Path.cwd() or Path(value).is_absolute() or not here.exists():
        return ""
    right = os.path.relpath(here, folder.resolve())
    return f"; paths start at the folder of the YAML file, and {here} exists: write {Path(right).as_posix()}"


def files_of(settings: BaseModel) -> Iterator[tuple[str, str, bool]]:
    """Return (field, value, whether it is a model) for the files and models in these settings, at any depth."""
    speed = {name for name, _ in marked(type(settings), "speed")}
    for mark in ("file", "model"):
        for name, _ in marked(type(settings), mark):
            value = getattr(settings, name)
            if isinstance(value, str | Path) and name not in speed:
                yield name, str(value), mark == "model"
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from ((f"{name}.{inner}", text, is_model) for inner, text, is_model in files_of(value))


def texts_of(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield (location, text) for every text in plain values, at any depth."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from texts_of(item, f"{place}.{name}" if place else str(name))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from texts_of(item, f"{place}.{number}")


def hub_models(spec: Spec) -> list[str]:
    """Return the Hub models that are named directly in a part's settings."""

    def on_hub(value: str) -> bool:
        path_like = value[:1] in "./~" or "{" in value
        return "/" in value and not path_like and value not in catalogue() and not located(value, spec.folder).exists()

    return [value for _, value, is_model in files_of(spec.settings) if is_model and on_hub(value)]


def needs(spec: Spec) -> list[str]:
    """Return a line for each file, model and package that a component lacks, excluding its parts."""
    settings, folder = spec.settings, spec.folder
    missing = missing_extras(settings.required_packages(), _what(spec))
    for name, value, is_model in files_of(settings):
        place = located(value, folder)
        if value in models.catalogue():
            if not models.fetched(value):
                missing.append(f"the model {value} is not on this machine: airgen fetch {value}")
        elif "{" not in value and not place.exists() and (not is_model or value[:1] in "./~"):
            missing.append(f"{name}: {place}: no such file or folder{elsewhere(value, folder)}")
    return missing + settings.missing(folder) + unset_variables(settings)


def _what(spec: Spec) -> str:
    name = spec.model
    if not name:
        return type(spec.settings).__qualname__.split(".")[0]
    return f"the model {name}" + ("" if name in models.catalogue() else meant(name, models.catalogue(), 0.85))
