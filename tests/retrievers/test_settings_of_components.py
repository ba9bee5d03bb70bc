"""Each field of each component's settings either changes the description, or says that it is about speed.

The description is what caches, fingerprints and the record of a run see. A field that changes the results and not the
description would give stale ones.
"""

import json
import types
import typing
from pathlib import Path
from typing import Any

import pytest

from airgen.components.keys import canonical_json
from airgen.components.registry import REGISTRY, resolve
from airgen.retrievers import Passages
from airgen.retrievers.protocols import show_corpus
from airgen.settings.base import Mark
from airgen.settings.spec import Part, part_fields

PARTS = ["retriever", "reranker", "embedder", "token-embedder", "sparse-embedder", "sparta-encoder", "term-weigher"]
KINDS = [(part, kind) for part in PARTS for kind in REGISTRY[part]]
# Another value for a field whose type does not suggest one.
OTHER = {
    "index_parts": 2,
    "bias": 0.5,
    "similarity": "dot",
    "dimensions": 8,
    "embedder": "multilingual-e5-small-q4",
    "weights": [1.0, 2.0],
    "device": "cuda",
    "revision": "v2",
    "model_class": "encoder-only-base",
    "b": 0.7,
    "original_weight": 0.3,
}


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """Folders that stand for trained models."""
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"name": name}))
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"_id": "a", "queries": [name]}))
    return tmp_path


def marks(model: type, name: str) -> set[str]:
    return {item.name for item in model.model_fields[name].metadata if isinstance(item, Mark)}  # type: ignore[attr-defined]


def required(part: str, kind: str, name: str = "one") -> dict[str, Any]:
    """The least settings of a kind."""
    model = resolve(part, kind).Settings
    found: dict[str, Any] = {}
    for field, about in model.model_fields.items():
        if field == "expansions" or (kind == "e5-packed" and field == "model"):
            found[field] = f"{name}.jsonl"
        elif "model" in marks(model, field) or field == "path":
            found[field] = name
        elif about.is_required():
            held = dict(part_fields(model)).get(field)
            usual = {"first": "bm25", "reranker": "bm25", "systems": ["bm25", "lsa"], "train": "deepct"}
            found[field] = usual.get(field, name if held or field != "url" else "http://localhost:1")
    return found


def other(model: type, name: str, value: Any) -> Any:
    """A value of the field that is not the given one."""
    annotation = model.model_fields[name].annotation  # type: ignore[attr-defined]
    union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    choices = typing.get_args(annotation) if union else [annotation]
    kind = next(one for one in choices if one is not type(None))
    if "model" in marks(model, name) or name in ("path", "expansions"):
        return str(value).replace("one", "two")
    if held := dict(part_fields(model)).get(name):
        return other_part(held, name)
    if name in OTHER:
        return OTHER[name]
    if typing.get_origin(kind) is typing.Literal:
        return next(choice for choice in typing.get_args(kind) if choice != value)
    if name == "index":  # of faiss
        return "HNSW8"
    if name == "analyser":
        return {"stem": False}
    if kind is bool:
        return not value
    if isinstance(value, dict):
        return {"search": {"efSearch": 32}, "build": {"efConstruction": 50}}.get(name, {"key": 1})
    return (value or 5) - 1 if kind is int else (value or 0.5) / 2 if kind is float else "else"


def other_part(held: Part, name: str) -> Any:
    if held.kind in ("retriever", "reranker"):
        return ["bm25", {"kind": "bm25", "k1": 2.0}] if name == "systems" else {"kind": "bm25", "k1": 2.0}
    return OTHER["embedder"] if held.kind == "embedder" else "two"


def described(part: str, kind: str, settings: dict[str, Any], folder: Path) -> str:
    made = resolve(part, kind)(folder=folder, **settings)
    show_corpus(made, Passages(["a", "b"], ["one text", "another"]))
    return canonical_json(dict(made.describe()))


@pytest.mark.parametrize(("part", "kind"), KINDS)
def test_each_field_changes_the_description_or_is_about_speed(part: str, kind: str, world: Path) -> None:
    if kind == "augment":
        pytest.skip("needs a trained model; see tests/training/test_augment.py")
    model = resolve(part, kind).Settings
    base = required(part, kind)
    if kind == "late":
        base["index"] = "compressed"  # otherwise, its settings have no part
    if kind == "dense" and part == "retriever":
        base["index"] = "HNSW4"  # otherwise, its settings have no part
    before = described(part, kind, base, world)
    checked = model.model_validate(base, context={"folder": world})
    silent = []
    for name in model.model_fields:
        if "speed" in marks(model, name) or name == "normalisation":  # of method sum; see below
            continue
        changed = base | {name: other(model, name, getattr(checked, name))}
        if described(part, kind, changed, world) == before:
            silent.append(name)
    assert not silent, f"{part} {kind}: {', '.join(silent)}"


def test_facts_come_from_the_models(minilm: str, splade: str) -> None:
    onnx = resolve("embedder", "onnx")(minilm)
    onnx.threads = 3
    assert (onnx.facts.parameters, onnx.facts.device, onnx.facts.threads) == (22_713_216, "cpu", 3)
    both = resolve("retriever", "fuse")([{"kind": "dense", "embedder": onnx}, {"kind": "sparse", "model": splade}])
    assert both.facts.parameters == 22_713_216 + 4_416_698


def test_the_normalisation_of_a_sum_is_described(tmp_path: Path) -> None:
    base = {"systems": ["bm25", "lsa"], "method": "sum"}
    found = {described("retriever", "fuse", base | {"normalisation": one}, tmp_path) for one in ("min-max", "none")}
    assert len(found) == 2
