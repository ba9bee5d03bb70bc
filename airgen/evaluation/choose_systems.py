"""Which systems of a file a command means: some of them by name, or two models without a file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from airgen.errors import UsageError
from airgen.evaluation.systems import SystemSettings, load_systems
from airgen.registry import closest
from airgen.settings.parts import problems


def chosen_systems(systems: Sequence[SystemSettings], only: Sequence[str] | None) -> list[SystemSettings]:
    """The systems of these names and those that they build on, in order; all without a name.

    Raises UsageError for a name that is not there.
    """
    if not only:
        return list(systems)
    by_name = {system.name: system for system in systems}
    if unknown := next((name for name in only if name not in by_name), None):
        raise UsageError(f"no system {unknown!r} in the file{closest(unknown, list(by_name))}")
    wanted = set(only)
    for system in reversed(systems):  # those that build on others come after them
        if system.name in wanted:
            wanted.update(system.uses)
    return [system for system in systems if system.name in wanted]


def before_and_after(before: str, after: str, file: Path | None) -> tuple[list[SystemSettings], Path]:
    """Two systems, the last two of a list in which those that they build on come first, and the folder of their paths.

    They are systems of the file, or without a file dense systems of these embedding models. Raises UsageError where
    both are the same, and what loading them raises.
    """
    if before == after:
        raise UsageError("--before and --after are the same")
    if file is not None:
        systems = chosen_systems(load_systems(file), [before, after])
        pair = [next(system for system in systems if system.name == name) for name in (before, after)]
        return [*(system for system in systems if system not in pair), *pair], file.resolve().parent
    try:
        return [
            SystemSettings.model_validate({"name": name, "kind": "dense", "embedder": model})
            for name, model in zip(_model_names(before, after), (before, after), strict=True)
        ], Path.cwd()
    except ValidationError as error:
        raise UsageError("; ".join(problems(error))) from error


def _model_names(*models_: str) -> list[str]:
    """A name for each model: its last part, or with what stands before it where these are alike."""
    for parts in (1, 2, 9):
        found = [re.sub(r"[^A-Za-z0-9._+-]+", "-", "-".join(Path(one).parts[-parts:])).strip("-._+") for one in models_]
        if len(set(found)) == len(found) and all(found):
            return [one[:100] for one in found]
    return ["before", "after"]
