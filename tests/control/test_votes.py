"""Votes of re-rankers as labels: the rule by hand, and whole jobs that ask no judge."""

import math
from pathlib import Path

import pytest
from beir_folder import label_rows, read_rows, write_rows
from hypothesis import given
from hypothesis import strategies as st
from job_maker import LEXICAL, Run

from airgen.dataset.beir import BeirDataset
from airgen.dataset.verify import verify
from airgen.errors import SettingsError
from airgen.evaluation.measures import parse_measures, score
from airgen.evaluation.run import run_from_dict
from airgen.job import Job, RunResult
from airgen.job.preflight import advice
from airgen.settings import Pipeline
from airgen.steps import votes
from airgen.steps.votes import WAY, first, lead, least_share, relevant, round_trip_parts, shares, source_label, voted
from airgen.storage.records import Decision, Prelabel

JOB = LEXICAL
VOTES = {"top_k: 20}": "top_k: 300}\n  judge: {kind: votes}"}
NOT_FIRST = "a re-ranker puts another passage before its document"
IDS = ["s", "a", "b", "c", "d"]
SCORES = [9.0, 1.0, 5.0, 0.0, 1.0]


def prelabel(scores: list[float]) -> Prelabel:
    return Prelabel("k", "q", "f", 0, "m", IDS, scores)


def test_the_way_from_the_typical_candidate_to_the_source() -> None:
    assert shares(SCORES, IDS, ["s"]) == {"s": 1.0, "a": 0.0, "b": 0.5, "c": -0.125, "d": 0.0}
    # Two sources, as of a query about two passages: their median is the end of the way.
    assert shares(SCORES, IDS, ["s", "b"])["b"] == pytest.approx(4 / 6)
    # A source that was not recalled, or that is no better than the rest, says nothing about other passages.
    assert shares(SCORES, IDS, ["elsewhere"]) == {} == shares([1.0, *SCORES[1:]], IDS, ["s"])


def test_a_source_that_is_not_first() -> None:
    rows, ahead = [prelabel(SCORES), prelabel([1.0, 0.9, 0.2, 0.0, 1.0])], prelabel([1.0, 1.1, 0.0, 0.0, 0.0])
    assert first(rows, ["s"]) and not first(rows[:1], ["a"]) and not first(rows, ["elsewhere"])
    assert first([*rows, ahead], ["s"]) is False and first([ahead], ["s", "a"])
    # A negative that was written for the query and answers it leaves the corpus; the query stays.
    assert first([ahead], ["s"], ["a"])


@pytest.mark.parametrize(
    ("scores", "sources", "ahead"),
    [
        (SCORES, ["s"], 4 / 9),  # of the range, 0 to 9
        (SCORES, ["b"], -4 / 9),
        ([9.0, 1.0, 5.0, -1.0, 1.0], ["s"], 0.4),
        ([9.0, 1.0, 10.0, 0.0, 1.0], ["s"], -0.1),
        (SCORES, ["s", "b"], 4 / 9),  # the worse of the two
        ([1.0] * 5, ["s"], 0.0),  # equal scores: as `first`, it is found
        (SCORES, ["elsewhere"], -1.0),
        (SCORES, IDS, 1.0),
    ],
)
def test_how_far_a_source_is_ahead(scores: list[float], sources: list[str], ahead: float) -> None:
    assert lead(scores, IDS, sources) == pytest.approx(ahead)


def test_scores_that_do_not_fit_the_passages_are_a_defect() -> None:
    row = Prelabel("k", "q", "f", 0, "m", ["s", "a"], [1.0])
    for work in (
        lambda: shares([1.0], ["s", "a"], "s"),
        lambda: first([row], "s"),
        lambda: lead([1.0], ["s", "a"], "s"),
    ):
        with pytest.raises(ValueError, match="zip"):
            work()


@pytest.mark.parametrize("pools_only", [False, True])
def test_a_fingerprint_holds_what_finds_a_source(pools_only: bool) -> None:
    control = {"recall": {"pools_only": pools_only}, "rerankers": ["bm25"], "pools": ["bm25"]}
    values = {"name": "p", "task": "qa", "corpus": "c", "target": 1, "llm": {"backend": "scripted"}, "control": control}
    own = Pipeline.model_validate(values)
    recall = None if pools_only else own.control.recall.model.written
    assert round_trip_parts(own) == {"depths": [50, 20], "recall": recall, "rerankers": ["bm25"]}


def test_every_reranker_must_agree() -> None:
    rows = [prelabel([10.0, 6.0, 9.0, 0.0, 0.0]), prelabel([1.0, 0.9, 0.2, 0.0, 0.1])]
    assert voted(rows, ["s"]) == pytest.approx({"s": 1.0, "a": 0.0, "b": 0.0, "c": -1.5, "d": -1.5})
    assert voted([*rows, prelabel([0.0, 1.0, 1.0, 1.0, 1.0])], ["s"]) == {}


@pytest.mark.parametrize(
    ("near", "relevance", "voters", "expected"),
    [
        ("ab", "answer", 2, "sab"),
        ("abc", "answer", 2, "s"),  # vague: no passage answers it as its source does
        ("abc", "subject", 2, "sabc"),  # many passages are about a subject
        ("a", "answer", 1, "s"),  # one re-ranker is no majority
        ("", "answer", 3, "s"),
    ],
)
def test_more_than_a_few_answers_are_none(near: str, relevance: str, voters: int, expected: str) -> None:
    found = {"s": 1.0, **{id_: 0.5 if id_ in near else 0.1 for id_ in "abcd"}}
    assert relevant(found, ["s"], relevance, voters) == set(expected)


def test_the_sources_do_not_count_as_a_few_others() -> None:
    found = dict.fromkeys("stab", 0.9)
    assert relevant(found, ["s", "t"], "answer", 2) == set("stab")
    assert relevant({}, ["s"], "answer", 2) == relevant({"a": 0.1}, ["s"], "subject", 2) == set()


def test_a_wrong_answer_by_votes_costs_half() -> None:
    """Two systems of two passages each, by hand: the one finds the source first, the other what votes have added."""
    runs = {name: run_from_dict({"q": {name[0]: 2.0, name[1]: 1.0}}) for name in ("sv", "vs", "sx", "vx")}

    def ndcg(name: str, labels: dict[str, float]) -> float:
        return score(runs[name], {"q": labels}, parse_measures("nDCG@10")).of("nDCG@10").item()

    second = 1 / math.log2(3)
    ideal = 2 + second
    expected = {"sv": 1.0, "vs": (1 + 2 * second) / ideal, "sx": 2 / ideal, "vx": 1 / ideal}
    assert {name: ndcg(name, {"s": 2.0, "v": 1.0}) for name in runs} == pytest.approx(expected, abs=1e-6)
    # Equal labels say nothing between the two; by the source alone the second of them finds nothing.
    assert ndcg("sx", {"s": 1.0, "v": 1.0}) == ndcg("vx", {"s": 1.0, "v": 1.0})
    assert (ndcg("sx", {"s": 1.0}), ndcg("vx", {"s": 1.0})) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({}, 2),
        ({"relevance": "subject"}, 1),  # a source says no more about its subject than other passages
        ({"control": {"rerankers": ["bm25"], "judge": {"kind": "votes"}}}, 1),  # one re-ranker adds nothing
        ({"control": {"rerankers": ["bm25", "dense"], "judge": {"kind": "levels"}}}, 1),  # an LLM has read the others
        ({"queries": {"file": "own.jsonl", "labels": [{"file": "known.tsv"}]}}, 1),  # no source, but known positives
    ],
)
def test_whose_sources_count_twice(changes: dict[str, object], label: int) -> None:
    control = {"rerankers": ["bm25", "dense"], "judge": {"kind": "votes"}}
    values = {"name": "p", "task": "qa", "corpus": "c", "llm": {"backend": "scripted"}, "control": control, **changes}
    if "queries" not in values:
        values["target"] = 1
    assert source_label(Pipeline.model_validate(values)) == label


def test_how_far_a_passage_must_be() -> None:
    of = [least_share(relevance, voters) for relevance in ("answer", "subject") for voters in (1, 2, 3)]
    assert (of, votes.PEOPLES) == ([math.inf, 0.5, 0.5, 0.2, 0.2, 0.2], 0.5)
    assert votes.NOT_FOUND == {"answer": NOT_FIRST, "subject": "its document was not found by the re-rankers"}
    assert (votes.NOT_FIRST, votes.DEPTH, votes.DRAFT_DEPTH) == (NOT_FIRST, 50, 20)


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


# -- jobs -------------------------------------------------------------------------------------------------------------


def decisions(result: RunResult) -> list[Decision]:
    job = Job(result.directory.parents[1] / "job.yaml", result.directory.parent)
    with job.open_store(read_only=True) as store:
        return store.rows_of(Decision, job.plan(store)["decision"])


def positives(result: RunResult) -> set[tuple[str, str]]:
    """Without generated negatives: one that passes for some query leaves the corpus."""
    found = [row for row in decisions(result) if row.action in ("keep_query", "add_positive")]
    return {(row.parent, row.id) for row in found if not row.id.startswith("neg-")}


def test_a_job_whose_labels_are_votes(run: Run, distinct: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WAY, "subject", 0.01)  # the queries of the scripted model are near nothing but their source
    by_votes = {**VOTES, "target: 4": "target: 12\nseed: 1"}  # one query falls at the end
    result = run("runs", by_votes)
    assert result.manifest is not None and "judgment" not in result.usage
    dataset, steps = result.directory / "dataset", {step.stage: step for step in result.manifest.funnel}
    assert verify(dataset) == []
    card = (dataset / "README.md").read_text(encoding="utf-8")
    assert "every re-ranker scores it close to the source" in card and "judge (" not in card
    # Queries that do not find their source were not accepted; others took their places.
    own = steps["judgment of the own document"]
    assert own.left == 12 < own.entered and own.reasons == {f"judgment: {NOT_FIRST}": own.entered - 12}
    # When all that was recalled is voted on, each is asked once more.
    fallen = [row for row in decisions(result) if row.action == "drop_query"]
    assert fallen and {row.reason for row in fallen} == {NOT_FIRST}
    assert steps["queries"].entered - steps["queries"].left == len(fallen)
    assert steps["queries"].reasons == {NOT_FIRST: len(fallen)}
    # One voter is no majority: nothing but the sources answers these queries.
    narrow = positives(result)
    assert len(narrow) == len({query for query, _ in narrow})
    said = advice(Job(result.directory.parents[1] / "job.yaml", result.directory.parent))
    assert any("control.rerankers: one voter is no majority" in line for line in said)
    # What may be about the subject of a query is not called irrelevant.
    job, cut = Job(result.directory.parents[1] / "job.yaml", result.directory.parent), WAY["subject"]
    with job.open_store(read_only=True) as store:
        rows = {row.parent: [row] for row in store.rows_of(Prelabel, job.plan(store)["prelabel:0"])}
        sources = {one.final.key: [one.passage.id] for one in job.accepted(store).lineages}
    voted_down = [row for row in decisions(result) if row.action == "ignore"]
    assert voted_down and all(voted(rows[row.parent], sources[row.parent])[row.id] < cut for row in voted_down)
    # Changing the definition of relevance changes the labels without asking anyone.
    wider = run("runs", {**by_votes, "task: qa": "task: qa\nrelevance: subject"})
    assert not wider.already_done and sum(stage["calls"] for stage in wider.usage.values()) == 0
    assert narrow < positives(wider)
    ignored = [row for row in decisions(wider) if row.action == "ignore" and not row.id.startswith("neg-")]
    assert {row.level for row in ignored} <= {0}


def test_sources_have_the_higher_label(run: Run, distinct: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WAY, "answer", 0.01)
    monkeypatch.setattr(votes, "FEW", 99)
    two = {**VOTES, "rerankers: [bm25]": "rerankers: [bm25, {kind: bm25, analyser: {ngram: 4}}]"}
    dataset = run("runs", {**two, "task: qa": "task: qa\nexport: {ids: original}"}).directory / "dataset"
    sources = {row["query"]: row["positive"] for row in read_rows(dataset / "private" / "lineage.jsonl")}
    rows = label_rows(dataset)
    assert {row["query-id"]: row["corpus-id"] for row in rows if row["score"] == 2} == sources
    assert {row["score"] for row in rows} >= {1, 2}
    assert verify(dataset) == [] and "the source has the label 2" in (dataset / "README.md").read_text("utf-8")
    counts = BeirDataset.open(dataset).manifest["statistics"]["splits"].values()
    assert sum(split["positives"] for split in counts) == sum(row["score"] > 0 for row in rows)


OWN = "task: qa\nqueries: {file: own.jsonl, labels: [{file: known.tsv}]}\nexport: {ids: original}"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"top_k: 20}": "top_k: 20}\n  judge: {panel: [{kind: votes}, {kind: levels}]}"}, "`votes` calls no LLM"),
        ({"task: qa": "task: qa\nrelevance: both"}, "input should be 'answer' or 'subject', not 'both'"),
        ({**VOTES, "task: qa": OWN.replace(", labels: [{file: known.tsv}]", ""), "target: 4\n": ""},
         r"your queries have none: name a file of labels \(queries.labels\)"),
    ],
)  # fmt: skip
def test_wrong_use(run: Run, changes: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        run("runs", changes)


def test_peoples_queries_are_measured_by_their_known_positive(run: Run, folder: Path) -> None:
    """A query without one gets no label from the votes."""
    rows = read_rows(folder / "small.jsonl")
    path = folder / "small.yaml"
    path.write_text(path.read_text().replace("path: small.jsonl", "path: small.jsonl, fields: {id: id}"))
    asked = [" ".join(row["text"].split()[:14]) for row in rows[:5]]
    write_rows(folder / "own.jsonl", [{"_id": f"q{place}", "text": text} for place, text in enumerate(asked)])
    known = {(f"q{place}", rows[place]["id"]) for place in range(4)}
    lines = "".join(f"{query}\t{passage}\t3\n" for query, passage in sorted(known))
    (folder / "known.tsv").write_text(f"query-id\tcorpus-id\tscore\n{lines}")
    write_rows(folder / "small.jsonl", [*rows, {**rows[0], "id": "twin", "text": rows[0]["text"] + " Again."}])
    dataset = run("runs", {**VOTES, "task: qa": OWN, "target: 4\n": ""}).directory / "dataset"
    assert len(read_rows(dataset / "queries.jsonl")) == 5
    positive = {(row["query-id"], row["corpus-id"]) for row in label_rows(dataset) if row["score"]}
    assert known | {("q0", "twin")} <= positive and "q4" not in {query for query, _ in positive}
