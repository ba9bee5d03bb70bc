"""One need for each passage, in several wordings: the rows, what is refused, and what it costs."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from beir_folder import read_rows
from job_maker import LEXICAL, Run

from airgen.job import Job
from airgen.llms.base import Reply, Request
from airgen.settings.generation import WORDINGS
from airgen.storage.records import Candidate, Character, Need, Query, Rewrite, Scenario, Skip

JOB = LEXICAL
NEEDS = "generation: {method: needs, one_call: true, hard_negatives: [0, 0]"
AT_ONCE = {"target: 4": f"target: 4\n{NEEDS}}}"}
IN_TURN = {"target: 4": f"target: 4\n{NEEDS.replace('true', 'false')}}}"}
GOOD = {
    "unsuitable": "", "character": "an old hand", "scenario": "Work stands still.",
    "need": "How a specimen declines.", "plain": "how does a specimen decline",
    "terms": "specimen decline mechanism", "lay": "why do old specimen things get worse",
    "described": "what makes such a thing fade away",
}  # fmt: skip


def says(verdicts: dict[str, str] | None = None, **changed: str) -> Callable[[Request], Reply | None]:
    """A model that gives this answer about every document, told apart by its number, and judges wordings so."""

    def answer(request: Request) -> Reply | None:
        if request.stage not in ("character", "scenario", "need", "query", "rewrite"):
            return None
        properties = (request.schema or {})["properties"]
        if "unsuitable" not in properties and "plain" in properties and "enum" in properties["plain"]:
            value: dict[str, Any] = {name: (verdicts or {}).get(name, "same") for name in properties}
        else:
            number = request.messages[-1].content.partition("Specimen ")[2].partition(" ")[0]
            texts = {**GOOD, **changed}
            many = {"characters": [texts["character"]], "scenarios": [texts["scenario"]]}
            value = {name: many.get(name) or texts[name] for name in properties}
            for name in set(value) & {*WORDINGS, "need"}:
                value[name] = value[name].replace("specimen", f"specimen {number}")
        return Reply(json.dumps(value), prompt_tokens=1, completion_tokens=1)

    return answer


def rows(folder: Path, kind: type[Any], name: str = "job") -> list[Any]:
    job = Job(folder / "job.yaml", folder / "runs")
    with job.open_store(read_only=True) as store:
        if kind is Skip:
            return store.rows(Skip)
        return [row for lineage in job.accepted(store).lineages for row in lineage.every(kind)]


@pytest.mark.parametrize("changes", [AT_ONCE, IN_TURN], ids=["one call", "step by step"])
def test_the_rows_are_those_of_the_papers_steps(
    changes: dict[str, str], run: Run, folder: Path, model_says: Callable[..., None]
) -> None:
    model_says(says())
    result = run(changes=changes)
    for kind in (Character, Scenario, Need, Query):
        assert len(rows(folder, kind)) == 4
    styles = Counter(row.style for row in rows(folder, Rewrite))
    assert styles == {"terms": 4, "lay": 4, "described": 4}
    calls = {stage: usage["calls"] for stage, usage in result.usage.items() if stage != "judgment"}
    samples = calls["need"]
    if changes is AT_ONCE:  # an answer, and whether its wordings are the same need
        assert calls == {"need": samples, "rewrite": samples}
    else:
        assert calls == {"character": samples, "scenario": samples, "need": samples, "rewrite": 2 * samples}
    assert not run(changes=changes).usage


def test_the_dataset_has_all_wordings_and_what_they_share(
    run: Run, folder: Path, model_says: Callable[..., None]
) -> None:
    model_says(says())
    dataset = run(changes=AT_ONCE).directory / "dataset"
    queries = {row["_id"]: row for row in read_rows(dataset / "queries.jsonl")}
    wordings = read_rows(dataset / "wordings.jsonl")
    assert Counter(row["metadata"]["wording"] for row in wordings) == dict.fromkeys(WORDINGS, 4)
    assert {row["query-id"] for row in wordings} == queries.keys()
    for row in wordings:
        if row["metadata"]["wording"] == "plain":
            query = queries[row["query-id"]]
            assert (query["text"], query["metadata"]["wording"]) == (row["text"], "plain")
            assert query["metadata"]["overlap"] == row["metadata"]["overlap"]
            shares = [query["metadata"][f"overlap{part}"] for part in ("_names", "_title", "_mean", "")]
            assert min(shares) >= 0 and max(shares) == query["metadata"]["overlap"] <= 1
    lineage = read_rows(dataset / "private" / "lineage.jsonl")
    assert all(
        len(row["rewrites"]) == 3 and row["original"] in {q["text"] for q in queries.values()} for row in lineage
    )


def test_another_wording_changes_the_texts_and_nothing_is_asked_again(
    run: Run, folder: Path, model_says: Callable[..., None]
) -> None:
    model_says(says())
    first = run(changes=AT_ONCE).directory / "dataset"
    before = {row["_id"]: row["text"] for row in read_rows(first / "queries.jsonl")}
    labels = (first / "qrels" / "test.tsv").read_bytes()
    lay = {"target: 4": f"target: 4\n{NEEDS}, wording: {{plain: 0, lay: 1}}}}"}
    again = run(changes=lay)
    assert not again.usage
    after = {row["_id"]: row for row in read_rows(again.directory / "dataset" / "queries.jsonl")}
    assert after.keys() == before.keys()
    assert all(row["text"].startswith("why do old") for row in after.values())
    assert all(row["metadata"]["wording"] == "lay" for row in after.values())
    assert (again.directory / "dataset" / "qrels" / "test.tsv").read_bytes() == labels


def test_a_passage_that_nobody_would_search_for_is_counted(
    run: Run, folder: Path, model_says: Callable[..., None]
) -> None:
    def half(request: Request) -> Reply | None:
        number = request.messages[-1].content.partition("Specimen ")[2].partition(" ")[0]
        odd = number.isdigit() and int(number) % 2 == 1
        empty = {name: "" for name in GOOD if name != "unsuitable"}
        return says(unsuitable="references", **empty)(request) if odd else says()(request)

    model_says(half)
    result = run(changes={"target: 4": f"target: 5\n{NEEDS}}}"})
    assert result.manifest is not None
    reasons = {reason: count for step in result.manifest.funnel for reason, count in step.reasons.items()}
    assert reasons["nobody would search for it: it is a list of references, links or names"] >= 1
    assert len(rows(folder, Query)) == 5


@pytest.mark.parametrize(
    ("answer", "left", "reason"),
    [
        (says({"lay": "broader"}), {"terms", "described"}, "lay: asks for something broader"),
        (says({"terms": "other"}), {"lay", "described"}, "terms: asks for something else"),
        (says(lay="Wie verfallen alte Dinge mit der Zeit"), {"terms", "described"}, "lay: wrong language"),
        (says(described="how does a specimen decline"), {"terms", "lay"}, "described: repeats another wording"),
        (says(lay="what this document says of it"), {"terms", "described"}, "lay: refers to the document"),
    ],
)
def test_a_wording_that_is_not_the_need_is_left_out(
    answer: Callable[[Request], Reply | None],
    left: set[str],
    reason: str,
    run: Run,
    folder: Path,
    model_says: Callable[..., None],
) -> None:
    model_says(answer)
    run(changes=AT_ONCE)
    assert {row.style for row in rows(folder, Rewrite)} == left
    assert {row.problem for row in rows(folder, Candidate)} == {reason}


def test_a_wording_that_nobody_would_use_is_left_empty(run: Run, folder: Path, model_says: Callable[..., None]) -> None:
    model_says(says(described=""))
    run(changes=AT_ONCE)
    assert {row.style for row in rows(folder, Rewrite)} == {"terms", "lay"}
    assert not rows(folder, Candidate)


def test_a_query_that_does_not_ask_for_its_need_has_no_other_wordings(
    run: Run, folder: Path, model_says: Callable[..., None]
) -> None:
    model_says(says({"plain": "narrower"}))
    run(changes=AT_ONCE)
    assert len(rows(folder, Query)) == 4 and not rows(folder, Rewrite)
    assert {row.reason for row in rows(folder, Skip) if row.stage == "rewrite"} == {
        "its query asks for something narrower than its need"
    }


def test_a_claim_is_true_or_false_by_its_key(run: Run, folder: Path) -> None:
    claims = f"target: 4\n{NEEDS}, types: {{claim: 1}}}}"
    run(changes={"target: 4": claims})
    truths = Counter(row.truth for row in rows(folder, Need))
    assert set(truths) == {"true", "false"} and truths.total() == 4


def test_the_bytes_do_not_depend_on_concurrency(run: Run, folder: Path) -> None:
    one = run("one", {**AT_ONCE, "concurrency: 32": "concurrency: 1"}).directory / "dataset"
    other = run("other", AT_ONCE).directory / "dataset"
    for name in ("queries.jsonl", "wordings.jsonl", "qrels/test.tsv"):
        assert (one / name).read_bytes() == (other / name).read_bytes()
