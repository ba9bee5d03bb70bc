"""Votes of re-rankers as labels: the rule by hand, and a whole job that asks no judge."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_maker import ANSWERED, JUDGE, Run

from airgen.dataset.verify import verify
from airgen.errors import SettingsError
from airgen.pipeline import Job, RunResult
from airgen.pipeline.control.votes import NOT_FIRST, WAY, first, lead, shares, voted
from airgen.pipeline.preflight import advice
from airgen.records import Decision, Prelabel

IDS = ["s", "a", "b", "c", "d"]


def prelabel(scores: list[float], ids: list[str] = IDS) -> Prelabel:
    return Prelabel("k", "q", "f", 0, "m", list(ids), scores)


def test_the_way_from_the_typical_candidate_to_the_source() -> None:
    assert shares([9.0, 1.0, 5.0, 0.0, 1.0], IDS, ["s"]) == {"s": 1.0, "a": 0.0, "b": 0.5, "c": -0.125, "d": 0.0}
    # Two sources, as of a query about two passages: their median is the end of the way.
    assert shares([9.0, 1.0, 5.0, 0.0, 1.0], IDS, ["s", "b"])["b"] == pytest.approx(4 / 6)
    # A source that was not recalled, or that is no better than the rest, says nothing about other passages.
    assert shares([9.0, 1.0, 5.0, 0.0, 1.0], IDS, ["elsewhere"]) == {}
    assert shares([1.0, 1.0, 5.0, 0.0, 1.0], IDS, ["s"]) == {}


def test_a_source_that_is_not_first() -> None:
    rows = [prelabel([9.0, 1.0, 5.0, 0.0, 1.0]), prelabel([1.0, 0.9, 0.2, 0.0, 1.0])]
    assert first(rows, ["s"]) and not first(rows[:1], ["a"])
    assert not first([*rows, prelabel([1.0, 1.1, 0.0, 0.0, 0.0])], ["s"])
    assert first([prelabel([1.0, 1.1, 0.0, 0.0, 0.0])], ["s", "a"]) and not first(rows, ["elsewhere"])
    # A negative that was written for the query and answers it leaves the corpus; the query stays.
    assert first([prelabel([1.0, 1.1, 0.0, 0.0, 0.0])], ["s"], ["a"])


def test_how_far_a_source_is_ahead() -> None:
    scores = [9.0, 1.0, 5.0, 0.0, 1.0]
    assert lead(scores, IDS, ["s"]) == pytest.approx(4 / 9)  # of the range, 0 to 9
    assert lead(scores, IDS, ["b"]) == pytest.approx(-4 / 9)
    assert lead([9.0, 1.0, 10.0, 0.0, 1.0], IDS, ["s"]) == pytest.approx(-0.1)
    assert lead(scores, IDS, ["s", "b"]) == pytest.approx(4 / 9)  # the worse of the two
    assert lead([1.0, 1.0], ["s", "a"], ["s"]) == 0.0  # equal scores: as `first`, it is found
    assert lead(scores, IDS, ["elsewhere"]) == -1.0
    assert lead([3.0], ["s"], ["s"]) == 1.0


def test_every_reranker_must_agree() -> None:
    rows = [prelabel([10.0, 6.0, 9.0, 0.0, 0.0]), prelabel([1.0, 0.9, 0.2, 0.0, 0.1])]
    assert voted(rows, ["s"]) == pytest.approx({"s": 1.0, "a": 0.0, "b": 0.0, "c": -1.5, "d": -1.5}, abs=9)
    found = voted(rows, ["s"])
    assert found["a"] == min(shares(row.scores, row.ids, ["s"])["a"] for row in rows)
    assert voted([*rows, prelabel([0.0, 1.0, 1.0, 1.0, 1.0])], ["s"]) == {}


@given(
    st.lists(st.floats(-20, 20).map(lambda one: round(one, 3)), min_size=2, max_size=30),
    st.floats(0.1, 50), st.floats(-100, 100),
)  # fmt: skip
def test_property_a_rerankers_scale_does_not_matter(scores: list[float], factor: float, shift: float) -> None:
    ids = [f"d{place}" for place in range(len(scores))]
    before = shares(scores, ids, ["d0"])
    after = shares([score * factor + shift for score in scores], ids, ["d0"])
    if before and after:
        assert after == pytest.approx(before, rel=1e-6, abs=1e-6)
        assert before["d0"] == 1.0


def decisions(result: RunResult) -> list[Decision]:
    folder = result.directory.parents[1]
    job = Job(folder / "job.yaml", result.directory.parent)
    with job.open_store(read_only=True) as store:
        return sorted(store.made(Decision, job.plan(store)["decision"]), key=lambda row: row.key)


def positives(result: RunResult) -> set[tuple[str, str]]:
    """Without generated negatives: one that passes for some query leaves the corpus."""
    found = [row for row in decisions(result) if row.action in ("keep_query", "add_positive")]
    return {(row.parent, row.id) for row in found if not row.id.startswith("neg-")}


def test_a_job_whose_labels_are_votes(run: Run, distinct: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WAY, "subject", 0.01)  # the queries of the scripted model are near nothing but their source
    result = run("runs", ANSWERED)
    assert result.manifest is not None and "judgment" not in result.usage
    dataset = result.directory / "dataset"
    assert verify(dataset) == []
    card = (dataset / "README.md").read_text(encoding="utf-8")
    assert "every re-ranker puts it near the source" in card and "judge (" not in card
    # Queries that do not find their source were not accepted; others took their places.
    (own,) = [step for step in result.manifest.funnel if step.stage == "judgment of the own document"]
    assert own.left == 12 < own.entered and own.reasons == {f"judgment: {NOT_FIRST}": own.entered - 12}
    narrow = positives(result)
    assert len(narrow) == len(
        {query for query, _ in narrow}
    )  # one voter is no majority: nothing but the sources answers these queries
    said = advice(Job(result.directory.parents[1] / "job.yaml", result.directory.parent))
    assert any("control.rerankers: one voter is no majority" in line for line in said)
    # What it is to be relevant changes the labels, and nobody is asked anything for it.
    wider = run("runs", {**ANSWERED, "task: qa": "task: qa\nrelevance: subject"})
    assert not wider.already_done and sum(stage["calls"] for stage in wider.usage.values()) == 0
    assert narrow < positives(wider)
    for row in decisions(wider):
        if row.action == "ignore" and not row.id.startswith("neg-"):
            assert row.level == 0


def test_a_query_falls_whose_own_document_is_not_found(run: Run, distinct: None) -> None:
    result = run("runs", ANSWERED)
    fallen = [row for row in decisions(result) if row.action == "drop_query"]
    assert fallen and {row.reason for row in fallen} == {"a re-ranker puts another passage before its document"}
    assert result.manifest is not None
    (step,) = [step for step in result.manifest.funnel if step.stage == "queries"]
    assert step.entered - step.left == len(fallen)
    assert step.reasons == {"a re-ranker puts another passage before its document": len(fallen)}


def test_wrong_use(run: Run, folder: Path) -> None:
    with pytest.raises(SettingsError, match="panel: the kind votes asks no LLM"):
        run("runs", {"top_k: 30}": "top_k: 30}\n  judge: {panel: [{kind: votes}, {kind: levels}]}"})
    with pytest.raises(SettingsError, match=r"relevance: input should be 'answer' or 'subject', not 'both'"):
        run("runs", {"task: qa": "task: qa\nrelevance: both"})


OWN = "task: qa\nqueries: {file: own.jsonl, labels: [{file: known.tsv}]}\nexport: {ids: original}"


def test_peoples_queries_are_measured_by_their_known_positive(run: Run, folder: Path) -> None:
    """A query without one gets no label from the votes."""
    rows = [json.loads(line) for line in (folder / "small.jsonl").read_text(encoding="utf-8").splitlines()]
    asked = [" ".join(row["text"].split()[:14]) for row in rows[:5]]
    own = "".join(json.dumps({"_id": f"q{place}", "text": text}) + "\n" for place, text in enumerate(asked))
    corpus = (folder / "small.yaml").read_text(encoding="utf-8")
    (folder / "small.yaml").write_text(
        corpus.replace("path: small.jsonl", "path: small.jsonl, fields: {id: id}"), encoding="utf-8"
    )
    (folder / "own.jsonl").write_text(own, encoding="utf-8")
    known = "query-id\tcorpus-id\tscore\n" + "".join(f"q{place}\t{rows[place]['id']}\t3\n" for place in range(4))
    (folder / "known.tsv").write_text(known, encoding="utf-8")
    (folder / "small.jsonl").write_text(
        (folder / "small.jsonl").read_text(encoding="utf-8")
        + json.dumps({**rows[0], "id": "twin", "text": rows[0]["text"] + " Again."}) + "\n", encoding="utf-8"
    )  # fmt: skip
    result = run("runs", {**JUDGE, "task: qa": OWN, "target: 12\n": ""})
    assert len((result.directory / "dataset" / "queries.jsonl").read_text(encoding="utf-8").splitlines()) == 5
    labels = {
        (row["query-id"], row["corpus-id"]): row["score"]
        for path in (result.directory / "dataset" / "qrels").glob("*.jsonl")
        for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())
    }
    assert {(f"q{place}", rows[place]["id"]) for place in range(4)} <= {pair for pair, score in labels.items() if score}
    assert labels["q0", "twin"] == 1
    assert not [pair for pair, score in labels.items() if pair[0] == "q4" and score]
    with pytest.raises(SettingsError, match=r"your queries have none: name a file of labels \(queries.labels\)"):
        run("runs", {**JUDGE, "task: qa": OWN.replace(", labels: [{file: known.tsv}]", ""), "target: 12\n": ""})
