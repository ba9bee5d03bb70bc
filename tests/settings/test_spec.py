"""A part is read once; what is read knows its kind, its settings and where its paths start."""

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from airgen.components.registry import REGISTRY
from airgen.errors import UsageError
from airgen.evaluation import EvaluationOptions, evaluate, load_systems
from airgen.retrievers import Component, load_retriever
from airgen.retrievers.lexical.bm25 import BM25
from airgen.settings import ControlSettings
from airgen.settings.spec import Spec, read_spec
from tests.makers.beir_folder import write_beir

NESTED = {
    "kind": "rerank",
    "first": {"kind": "rm3", "first": {"kind": "bm25", "k1": 1.5}},
    "reranker": "bm25",
    "top": 7,
}


def test_a_system_is_validated_once_from_its_yaml_to_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: Counter[str] = Counter()
    validate = BM25.Settings.model_validate.__func__  # type: ignore[attr-defined]

    def counted(kind: type, value: Any, **options: Any) -> Any:
        counts[kind.__name__] += 1
        return validate(kind, value, **options)

    monkeypatch.setattr(BM25.Settings, "model_validate", classmethod(counted))
    (tmp_path / "systems.yaml").write_text("systems: [{name: bm25, kind: bm25, k1: 1.1}]\n", encoding="utf-8")
    systems = load_systems(tmp_path / "systems.yaml")
    rows = [{"_id": "a", "text": "bees make honey"}, {"_id": "b", "text": "tides follow the moon"}]
    queries = [{"_id": "q", "text": "who makes honey"}]
    collection = write_beir(tmp_path / "collection", rows, queries, {"test": [("q", "a", 1)]})
    (result,) = evaluate(collection, systems, tmp_path / "out", EvaluationOptions())
    assert result.score > 0 and counts == {"Settings": 1}


def test_the_parts_of_a_spec_are_read_with_it_and_kept_as_they_were_written() -> None:
    spec = read_spec("retriever", NESTED)
    places = [(place, inner.part, inner.kind) for place, inner in spec.all_parts()]
    assert places == [
        ("", "retriever", "rerank"),
        ("reranker", "reranker", "bm25"),
        ("first", "retriever", "rm3"),
        ("first.first", "retriever", "bm25"),
    ]
    assert spec.settings.model_dump(mode="json", exclude_unset=True) == {k: v for k, v in NESTED.items() if k != "kind"}
    made = load_retriever(spec)
    assert isinstance(made, Component) and made.settings is spec.settings
    assert made.describe() == load_retriever(NESTED).describe()


def test_defaults_are_read_like_what_is_written() -> None:
    control = ControlSettings(rerankers=["bm25"])  # type: ignore[list-item]
    assert isinstance(control.recall.model, Spec) and control.recall.model.model == "BAAI/bge-m3"
    assert control.model_dump(mode="json")["recall"]["model"] == "BAAI/bge-m3"


def test_a_spec_is_read_again_in_another_process(tmp_path: Path) -> None:
    spec = read_spec("retriever", NESTED, tmp_path)
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_problems_name_their_place() -> None:
    with pytest.raises(ValidationError) as caught:
        read_spec("retriever", {"kind": "rm3", "first": {"kind": "bm25", "k2": 1}, "feedback_terms": 0})
    assert [item["loc"] for item in caught.value.errors()] == [("first", "k2"), ("feedback_terms",)]


@pytest.mark.parametrize("part", sorted(REGISTRY))
@pytest.mark.parametrize("written", ["jsonl f.jsonl}", "", "owner/no-such-model", "a\nb", "x" * 300])
def test_an_unknown_name_of_any_part_is_refused_or_a_model(part: str, written: str, tmp_path: Path) -> None:
    try:
        spec = read_spec(part, written, tmp_path)
    except (ValueError, UsageError) as error:
        assert str(error).count("\n") == 0 and len(str(error)) < 3000
    else:
        assert spec.settings.model == written  # of the Hub, looked up when it is loaded
