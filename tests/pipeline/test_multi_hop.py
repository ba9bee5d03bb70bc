"""Multi-hop queries: two passages of one document, both positive."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from job_maker import make_corpus

from airgen.dataset.verify import verify
from airgen.errors import SettingsError, UsageError
from airgen.pipeline import Job, RunResult
from airgen.pipeline.generate import NEAR
from airgen.pipeline.preflight import preflight
from airgen.pipeline.show import find_lineage, life, render_life

Run = Callable[..., RunResult]
HOPS = {"target: 12": "target: 12\ngeneration: {multi_hop: 0.5}", "task: qa": "task: long-doc"}


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def book(folder: Path) -> Path:
    """One long document, whose sentences all differ, in place of the folder's corpus."""
    text = " ".join(json.loads(line)["text"] for line in (folder / "small.jsonl").read_text().splitlines())
    (folder / "small.jsonl").write_text(json.dumps({"id": "book", "title": "The book", "text": text}) + "\n")
    path = folder / "small.yaml"
    path.write_text(path.read_text() + "long_doc: {chunk_size: 60, chunk_overlap: 0}\n")
    return folder


def test_both_passages_are_positive_and_the_query_says_how_many_it_needs(run: Run, book: Path) -> None:
    result = run("runs", HOPS)
    dataset = result.directory / "dataset"
    assert verify(dataset) == []
    queries = {row["_id"]: row for row in rows(dataset / "queries.jsonl")}
    lineage = {row["query"]: row for row in rows(dataset / "private" / "lineage.jsonl")}
    positives: dict[str, set[str]] = {}
    for path in (dataset / "qrels").glob("*.jsonl"):
        for row in rows(path):
            if row["score"]:
                positives.setdefault(row["query-id"], set()).add(row["corpus-id"])
    hops = [row["metadata"]["hops"] for row in queries.values()]
    assert sorted(set(hops)) == [1, 2]
    for query, row in lineage.items():
        assert ("second" in row) == (queries[query]["metadata"]["hops"] == 2)
        assert {row["positive"], row.get("second", row["positive"])} <= positives[query]
        assert row["positive"] != row.get("second")
    again = run("again", HOPS).directory / "dataset"
    assert (again / "private" / "lineage.jsonl").read_bytes() != b""
    texts = [sorted(row["text"] for row in rows(path / "queries.jsonl")) for path in (dataset, again)]
    assert texts[0] == texts[1]
    job = Job(book / "job.yaml", book / "runs")
    two = next(query for query, row in lineage.items() if "second" in row)
    with job.open_store() as store:
        shown = render_life(life(store, job, *find_lineage(job.accepted(store), two, job.ids)))
    assert shown.count("\ndocument   ") == 2


def test_the_prompt_shows_both_parts_and_a_query_that_one_part_answers_is_dropped(run: Run, book: Path) -> None:
    result = run("runs", {**HOPS, "multi_hop: 0.5": "multi_hop: 1.0"})
    assert result.manifest is not None
    (own,) = [step for step in result.manifest.funnel if step.stage == "judgment of the own document"]
    # The scripted judge counts shared words, so some queries are answered by one of their passages.
    assert own.reasons.get("one of its two passages answers it alone", 0) > 0
    assert {row["metadata"]["hops"] for row in rows(result.directory / "dataset" / "queries.jsonl")} == {2}


def test_the_second_passage_stands_near_the_first(run: Run, book: Path) -> None:
    result = run("runs", {**HOPS, "multi_hop: 0.5": "multi_hop: 1.0"})
    job = Job(book / "job.yaml", book / "runs")
    with job.open_store(read_only=True) as store:
        order = [key for (key,) in store.query("SELECT key FROM passage ORDER BY start")]
        pairs = store.query("SELECT s.parent, p.passage FROM partner p JOIN sample s ON s.key = p.parent")
    apart = [abs(order.index(first) - order.index(second)) for first, second in pairs]
    # Three on each side; at the ends of the document, all six on one.
    inner = [far for far, (first, _) in zip(apart, pairs, strict=True) if 3 <= order.index(first) < len(order) - 3]
    assert result.manifest is not None and len(order) > 20
    assert min(apart) >= 1 and max(apart) <= NEAR and inner and max(inner) <= NEAR // 2 and len(set(apart)) > 1


def test_a_larger_target_keeps_the_first_queries(run: Run, book: Path) -> None:
    first = {row["text"] for row in rows(run("runs", HOPS).directory / "dataset" / "queries.jsonl")}
    larger = run("runs", {**HOPS, "target: 12": "target: 16\ngeneration: {multi_hop: 0.5}"})
    assert first < {row["text"] for row in rows(larger.directory / "dataset" / "queries.jsonl")}


def test_documents_of_one_passage_are_an_error_that_says_what_to_do(run: Run, folder: Path) -> None:
    make_corpus(folder / "small.jsonl", 60)
    with pytest.raises(UsageError, match="set `chunk` in the corpus"):
        run("runs", {"target: 12": "target: 12\ngeneration: {multi_hop: 1.0}"})
    said = "generation.multi_hop: each document of this corpus is one passage: set `chunk`"
    assert [line for line in preflight(Job(folder / "job.yaml", folder / "runs")) if said in line]
    with pytest.raises(SettingsError, match="multi_hop needs query_from: document"):
        run("other", {"target: 12": "target: 12\ngeneration: {multi_hop: 0.2, query_from: need}"})


def test_answers_of_multi_hop_queries_quote_one_of_the_two(run: Run, book: Path) -> None:
    wanted = {**HOPS, "multi_hop: 0.5": "multi_hop: 1.0, answers: true"}
    dataset = run("runs", wanted).directory / "dataset"
    assert verify(dataset) == []
    lineage = {row["query"]: row for row in rows(dataset / "private" / "lineage.jsonl")}
    found = [row for path in (dataset / "answers").glob("*.jsonl") for row in rows(path)]
    assert found
    assert all(
        row["corpus-id"] in (lineage[row["query-id"]]["positive"], lineage[row["query-id"]]["second"]) for row in found
    )
