"""What the probe found of each LLM, kept in the job's folder: `models.json`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from airgen.errors import disk_error
from airgen.keys import content_key
from airgen.llms.probe import ModelProfile
from airgen.settings import LlmSettings
from airgen.settings.base import marked

__all__ = ["read_profiles", "save_profile"]

_FILE = "models.json"
_LARGEST = 1 << 20  # bytes
_OF_THE_KEY = {"base_url", "query"}  # settings that change no answer, but may lead to another server


def read_profiles(folder: Path, llms: Iterable[LlmSettings]) -> dict[tuple[str, str], ModelProfile]:
    """The profiles of those LLMs that were probed with these settings, by endpoint and model."""
    kept = _read(folder / _FILE)
    found = {}
    for llm in llms:
        try:
            found[llm.endpoint, llm.model] = ModelProfile.of(kept[_key(llm)])
        except (KeyError, ValueError, TypeError, AttributeError):
            continue  # not probed, or not a file of this version: the model is probed again
    return found


def save_profile(folder: Path, llm: LlmSettings, profile: ModelProfile) -> None:
    """Keep a profile. Raises AirgenError where the disk does not take it."""
    path = folder / _FILE
    text = json.dumps({**_read(path), _key(llm): profile.as_dict()}, indent=1)
    beside = path.with_suffix(".tmp")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise disk_error(error) from error


def _key(llm: LlmSettings) -> str:
    speed = {name for name, _ in marked(type(llm), "speed")} - _OF_THE_KEY
    return content_key(llm.model_dump(mode="json", exclude=speed | {"temperature", "max_tokens"}))


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            value = json.loads(file.read(_LARGEST))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
