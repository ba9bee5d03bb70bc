"""`manifest.json`: what a dataset directory holds. It is written last: a directory without it is not a dataset.

It lists every file with its size and SHA-256, and has all facts of the card. It holds no time and no path, so equal
content gives equal bytes. Only `made_with` tells the machine: on another one, equal vectors and answers give equal
files, and the last digits of an encoder may differ.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

from threadpoolctl import threadpool_info

from airgen.dataset.content import SHORT_NAME, DatasetInfo, FunnelStep, ModelUse, check_info
from airgen.errors import DatasetError
from airgen.text.display import json_text

FORMAT = 1
MANIFEST = "manifest.json"
_DERIVED = ("README.md", "croissant.json", MANIFEST)
_PRIVATE = "private/"
_COMPUTING = ("airgen-bench", "numpy", "onnxruntime", "tokenizers", "torch", "sentence-transformers", "xllamacpp")


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file's size in bytes and its SHA-256 in hex."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class SplitStatistics:
    """One split: its queries, their mean length in tokens, and its labels 1 (positives) and 0 (hard negatives).

    The public part does not tell the numbers of labels of a withheld split: they are None.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    queries: int
    mean_tokens: float
    positives: int | None
    hard_negatives: int | None


@dataclass(frozen=True, slots=True)
class Statistics:
    """Passages, their mean length in tokens (title and text), and each split."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    passages: int
    mean_tokens: float
    splits: Mapping[str, SplitStatistics]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of `manifest.json`. `digest` identifies the data (see `data_digest`).

    `query_fields` are the names and types (string, int64, float64, bool) of the queries' metadata. `variants` are the
    label directories beside `qrels`. `withheld` are the splits whose labels are not in this directory. `part` is whole,
    public (without the withheld labels and the lineage) or labels (only what the public part lacks). `secret` is the
    public name of the secret that ids and splits depend on, empty where there is none. `notes` describes what was done
    to the dataset after its export, such as trimming. `made_with`: see the function of this name.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    info: DatasetInfo
    statistics: Statistics
    files: Mapping[str, FileEntry]
    digest: str
    part: str = "whole"
    query_fields: Mapping[str, str] = field(default_factory=dict)
    variants: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    secret: str = ""
    provenance: tuple[ModelUse, ...] = ()
    funnel: tuple[FunnelStep, ...] = ()
    pipeline_yaml: str = ""
    audit: Mapping[str, Any] | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    made_with: Mapping[str, str] = field(default_factory=dict)

    @property
    def labelled_splits(self) -> tuple[str, ...]:
        """The splits whose labels are in this directory, sorted."""
        return tuple(sorted(set(self.statistics.splits) - set(self.withheld)))


def made_with() -> dict[str, str]:
    """Versions of what computes vectors and scores, and the kernel of numpy's BLAS on this processor."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for package in _COMPUTING:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    for one in threadpool_info():
        if one["user_api"] == "blas" and "numpy" in one["filepath"]:
            found["blas"] = f"{one['internal_api']} {one['version']} {one.get('architecture', '')}".strip()
    return found


def data_digest(files: Mapping[str, FileEntry]) -> str:
    """SHA-256 of the names and hashes of corpus, queries and labels, without card and lineage."""
    total = hashlib.sha256()
    for name in sorted(files):
        if name not in _DERIVED and not name.startswith(_PRIVATE) and name != "pipeline.yaml":
            total.update(f"{name}\0{files[name].sha256}\n".encode())
    return total.hexdigest()


def manifest_text(manifest: Manifest) -> str:
    """The text of manifest.json: `format`, the fields of `DatasetInfo` and the others, all at the top level."""
    value = dataclasses.asdict(manifest)
    info = value.pop("info")
    value = {"format": FORMAT, **info, **value}
    return json_text(value, allow_nan=False, indent=1, sort_keys=True) + "\n"


def load_manifest(directory: Path) -> Manifest:
    """Read and validate `manifest.json`. Raises DatasetError."""
    path = directory / MANIFEST
    if not directory.is_dir():
        raise DatasetError(f"{directory} is not a directory")
    if not path.is_file():
        raise DatasetError(f"{directory} has no {MANIFEST}: it is not a finished dataset, export it again")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path} is not JSON ({error}): export the dataset again") from error
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror}") from error
    if not isinstance(value, dict):
        raise DatasetError(f"{path} is not a JSON object: export the dataset again")
    version = value.pop("format", None)
    if version != FORMAT:
        advice = "read it with the airgen that wrote it, or export the dataset again"
        raise DatasetError(f"{path} has format {version!r}, this airgen reads {FORMAT}: {advice}")
    names = {item.name for item in dataclasses.fields(DatasetInfo)}
    nested: dict[str, Any] = {key: item for key, item in value.items() if key not in names}
    nested["info"] = {key: item for key, item in value.items() if key in names}
    manifest = _parse(nested, path)
    _check_names(manifest, path)
    return manifest


def _check_names(manifest: Manifest, path: Path) -> None:
    """Check names that become paths, because a manifest can come from anyone."""
    check_info(manifest.info)
    for kind, names in (("split", [*manifest.statistics.splits, *manifest.withheld]), ("variant", manifest.variants)):
        for name in names:
            if not SHORT_NAME.fullmatch(name):
                raise DatasetError(f"{path}: {kind} {name!r} cannot be a part of a file's name")
    for name in manifest.files:
        parts = name.split("/")
        if any(part in ("", ".", "..") for part in parts) or any(char in name for char in "\\\0"):
            raise DatasetError(f"{path}: the file {name!r} lies outside the dataset")


def _parse(value: dict[str, Any], path: Path) -> Manifest:
    import pydantic  # slow to import, and needed here only

    try:
        return pydantic.TypeAdapter(Manifest).validate_python(value)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        advice = "it may have been edited by hand; export the dataset again"
        raise DatasetError(f"{path}: {place}: {first['msg']}{more}: {advice}") from error
