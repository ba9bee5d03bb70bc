"""Write values as JSON and read them back.

    write_json(folder / "result.json", result)
    sample = read_kept(AuditSample, folder / "sample.json", "sample of airgen audit", "draw one with `...`")

airgen wrote these files, but they may be damaged, edited or from another version; a one-line error then says so.
"""

import json
import math
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

from airgen.errors import DatasetError
from airgen.safety.escaping import json_text, one_line
from airgen.storage.whole_files import whole_file

FORMAT = 1
DAMAGE = (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
"""The exceptions that reading a damaged file of airgen can raise."""
T = TypeVar("T")


def plain(value: Any, digits: int | None = None) -> Any:
    """Convert a value to JSON types: dicts, lists, text and numbers. NaN and infinity become null.

    An object with `as_dict` converts itself. `digits` rounds floats.
    """
    if callable(made := getattr(value, "as_dict", None)):
        return plain(made(), digits)
    if callable(made := getattr(value, "model_dump", None)):
        return plain(made(mode="json"), digits)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name), digits) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(item, digits) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, digits) for item in value]
    if isinstance(value, Set):
        return sorted(plain(item, digits) for item in value)
    if callable(made := getattr(value, "tolist", None)):  # of numpy
        return plain(made(), digits)
    if isinstance(value, float):
        return None if not math.isfinite(value) else value if digits is None else round(value, digits)
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def write_json(path: Path, value: object, **options: Any) -> None:
    """Write a value as plain JSON through a temporary file, so that readers never see an incomplete file."""
    text = json_text(plain(value), **{"indent": 1, **options})
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as fresh:
        fresh.write_text(text + "\n", encoding="utf-8", errors="surrogatepass")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object written by `write_json`. Raises one of the errors in `DAMAGE`."""
    value = json.loads(path.read_text("utf-8", "surrogatepass"))
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def kept_of(kind: type[T], value: Mapping[str, Any]) -> T:
    """Build a dataclass from plain values: lists become tuples, and unknown keys are ignored.

    Raises ValueError with a one-line message.
    """
    try:
        if value.get("format", FORMAT) != FORMAT:
            raise ValueError("another version of airgen wrote it")
        instance: T = adapter_of(cast(Any, kind)).validate_python(dict(value))
        return instance
    except ValueError as error:
        first = error.errors()[0] if hasattr(error, "errors") else None  # of pydantic
        text = str(error) if first is None else f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise ValueError(one_line(text, 200)) from error


def read_kept(kind: type[T], path: Path, description: str, advice: str) -> T:
    """Read a dataclass from a file. Raises DatasetError with `advice` if the file is missing or damaged."""
    try:
        return kept_of(kind, read_json(path))
    except FileNotFoundError:
        raise DatasetError(f"{path}: no {description.partition(' ')[0]}: {advice}") from None
    except DAMAGE as error:
        raise DatasetError(f"{path}: not a {description} ({one_line(error, 200)}): {advice}") from error


@lru_cache(maxsize=32)
def adapter_of(kind: type[Any]) -> Any:
    """Return pydantic's validator of a dataclass, which takes longer to make than to use."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
