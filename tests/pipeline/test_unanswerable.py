"""Queries without an answer: what is left out, that nothing else changes, and that nobody is asked again."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_maker import Run

from airgen.dataset.beir import BeirDataset
from airgen.dataset.verify import verify
from airgen.llms.base import Request
from airgen.pipeline.export_rules import hold_out
from airgen.publishing.withhold import public_part


def lineage(key: str, source: str) -> Any:
    return SimpleNamespace(final=SimpleNamespace(key=key), sources=[SimpleNamespace(id=source)])


def decisions(relevant: dict[str, list[str]]) -> Any:
    return {
        key: [SimpleNamespace(id=one, action="add_positive") for one in ids]
        + [SimpleNamespace(id="n", action="keep_negative")]
        for key, ids in relevant.items()
    }


def test_a_query_whose_passages_serve_another_query_is_not_held_out() -> None:
    lineages = [lineage("a", "d1"), lineage("b", "d2"), lineage("c", "d3")]
    # What answers `a` is what `b` was written for, so only `c` can go; its second passage goes with it.
    held = hold_out(lineages, decisions({"a": ["d2"], "b": ["d1"], "c": ["d9"]}), 0.5)
    assert (held.queries, held.passages) == ({"c"}, {"d3", "d9"})
    assert hold_out(lineages, {}, 0.0).queries == set()
    assert hold_out([lineage("a", "d1"), lineage("b", "d1")], {}, 0.5).queries == set()
    # A query that only an ablation has keeps its document, too.
    assert hold_out([lineage("a", "d1"), lineage("b", "d2")], {}, 1.0, [lineage("x", "d1")]).queries == {"b"}


@given(
    st.lists(st.tuples(st.integers(0, 12), st.lists(st.integers(0, 12), max_size=4)), min_size=1, max_size=10),
    st.sampled_from([0.1, 0.3, 0.5]),
)
def test_every_other_query_keeps_its_document(made: list[tuple[int, list[int]]], share: float) -> None:
    lineages = [lineage(f"q{at}", f"d{source}") for at, (source, _) in enumerate(made)]
    relevant = {f"q{at}": [f"d{one}" for one in more] for at, (_, more) in enumerate(made)}
    held = hold_out(lineages, decisions(relevant), share)
    assert len(held.queries) <= share * len(made)
    for at, (source, more) in enumerate(made):
        inside = {f"d{one}" for one in (source, *more)} & held.passages
        assert (
            inside == {f"d{one}" for one in (source, *more)}
            if f"q{at}" in held.queries
            else (f"d{source}" not in held.passages)
        )


def rows(path: Path) -> dict[str, Any]:
    return {row["_id"]: row for row in map(json.loads, path.read_text("utf-8").splitlines())}


def test_a_finished_job_holds_queries_out_without_asking_again(run: Run, asked: list[Request], tmp_path: Path) -> None:
    before = run(changes={"target: 12\n": "target: 12\nexport: {ids: original}\n"}).directory / "dataset"
    old = {name: rows(before / f"{name}.jsonl") for name in ("corpus", "queries")}
    labels = BeirDataset.open(before).qrels("all").labels
    calls = len(asked)
    result = run(changes={"target: 12\n": "target: 12\nexport: {ids: original}\ngeneration: {unanswerable: 0.25}\n"})
    assert len(asked) == calls
    folder = result.directory / "dataset"
    assert not [one for one in verify(folder) if one.severity == "error"]
    corpus, queries = rows(folder / "corpus.jsonl"), rows(folder / "queries.jsonl")
    marked = {key for key, row in queries.items() if row["metadata"]["answered"] is False}
    assert 1 <= len(marked) <= 3 and set(queries) == set(old["queries"])
    gone = {one for key in marked for one, label in labels[key].items() if label > 0}
    assert set(old["corpus"]) - set(corpus) == gone
    assert all(corpus[key] == old["corpus"][key] for key in corpus)
    new = BeirDataset.open(folder).qrels("all").labels
    assert new == {
        key: {one: label for one, label in row.items() if one not in gone}
        for key, row in labels.items()
        if key not in marked
    }
    assert result.manifest is not None
    step = result.manifest.funnel[-1]
    assert (step.stage, step.entered - step.left) == ("queries with an answer", len(marked))
    lineage_of = [json.loads(line)["query"] for line in (folder / "private" / "lineage.jsonl").read_text().splitlines()]
    assert set(lineage_of) == set(queries) - marked
    assert "answered: false" in (folder / "README.md").read_text("utf-8")

    # Which withheld queries have no answer is a label: the public part does not tell it, the whole dataset still does.
    public_part(folder, tmp_path / "public", ["test"])
    public = rows(tmp_path / "public" / "queries.jsonl").values()
    of_test = {row["metadata"]["answered"] for row in public if row["metadata"]["split"] == "test"}
    assert of_test == {None}
    assert not [one for one in verify(tmp_path / "public") if one.severity == "error"]
    assert rows(folder / "queries.jsonl") == queries


@pytest.mark.parametrize("value", ["0.6", "-0.1"])
def test_the_share_is_bounded(run: Run, value: str) -> None:
    from airgen.errors import SettingsError

    with pytest.raises(SettingsError, match="unanswerable"):
        run(changes={"target: 12\n": f"target: 12\ngeneration: {{unanswerable: {value}}}\n"})
