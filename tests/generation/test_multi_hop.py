"""Kinds of queries and negatives: two passages, several drafts, queries without an answer, mined negatives."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from beir_folder import data_files, label_rows, read_rows, write_rows
from hypothesis import given
from hypothesis import strategies as st
from job_maker import LEXICAL, Run

from airgen.components.keys import text_key
from airgen.dataset.beir import BeirDataset
from airgen.dataset.verify import verify
from airgen.errors import SettingsError, UsageError
from airgen.generation.sample import NEAR
from airgen.job import Job
from airgen.job.estimate import estimate
from airgen.job.export import export_dataset
from airgen.job.preflight import preflight
from airgen.job.show import find_lineage, life, life_study
from airgen.job.unanswerable import HeldOut, hold_out
from airgen.llms.base import Reply, Request
from airgen.publishing.withhold import public_part
from airgen.storage.records import Candidate, Query

JOB = LEXICAL
HOPS = {"target: 4": "target: 6\ngeneration: {multi_hop: 0.5}", "task: qa": "task: long-doc"}


@pytest.fixture
def book(folder: Path) -> Path:
    """One long document, whose sentences all differ, in place of the folder's corpus."""
    text = " ".join(row["text"] for row in read_rows(folder / "small.jsonl"))
    write_rows(folder / "small.jsonl", [{"id": "book", "title": "The book", "text": text}])
    path = folder / "small.yaml"
    path.write_text(path.read_text() + "long_doc: {chunk_size: 60, chunk_overlap: 0}\n")
    return folder


def test_both_passages_are_positive_and_the_query_says_how_many_it_needs(run: Run, book: Path) -> None:
    answered = {**HOPS, "target: 4": "target: 6\ngeneration: {multi_hop: 0.5, answers: true}"}
    dataset = run("runs", answered).directory / "dataset"
    assert verify(dataset) == []
    queries = {row["_id"]: row for row in read_rows(dataset / "queries.jsonl")}
    lineage = {row["query"]: row for row in read_rows(dataset / "private" / "lineage.jsonl")}
    positives: dict[str, set[str]] = {}
    for row in label_rows(dataset):
        if row["score"]:
            positives.setdefault(row["query-id"], set()).add(row["corpus-id"])
    assert {row["metadata"]["hops"] for row in queries.values()} == {1, 2}
    sources = {query: {row["positive"], row.get("second", row["positive"])} for query, row in lineage.items()}
    for query, own in sources.items():
        assert len(own) == queries[query]["metadata"]["hops"] == 1 + ("second" in lineage[query])
        assert own <= positives[query]
    quotes = [row for path in (dataset / "answers").glob("*.jsonl") for row in read_rows(path)]
    assert quotes and all(row["corpus-id"] in sources[row["query-id"]] for row in quotes)
    job = Job(book / "job.yaml", book / "runs")
    two = next(query for query, own in sources.items() if len(own) == 2)
    with job.open_store() as store:
        shown = life_study(life(store, job, *find_lineage(job.accepted(store), two, job.ids))).text()
    assert shown.count("\ndocument   ") == 2
    # A larger target keeps the first queries.
    larger = run("runs", {**HOPS, "target: 4": "target: 9\ngeneration: {multi_hop: 0.5}"}).directory / "dataset"
    assert {row["text"] for row in queries.values()} < {row["text"] for row in read_rows(larger / "queries.jsonl")}


def test_the_second_passage_is_near_and_a_query_that_one_part_answers_is_dropped(
    run: Run, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airgen.llms.health.FALSE_STOP", 1e-300)  # most queries are dropped
    result = run("runs", {**HOPS, "multi_hop: 0.5": "multi_hop: 1.0", "target: 6": "target: 15"})
    assert result.manifest is not None
    (own,) = [step for step in result.manifest.funnel if step.stage == "judgment of the own document"]
    # The scripted judge counts shared words, so some queries are answered by one of their passages.
    assert own.reasons.get("one of its two passages answers it alone", 0) > 0
    assert {row["metadata"]["hops"] for row in read_rows(result.directory / "dataset" / "queries.jsonl")} == {2}
    with Job(book / "job.yaml", book / "runs").open_store(read_only=True) as store:
        order = [key for (key,) in store.query("SELECT key FROM passage ORDER BY start")]
        pairs = store.query("SELECT parent, second FROM sample WHERE second <> ''")
    apart = [abs(order.index(first) - order.index(second)) for first, second in pairs]
    # Three on each side; at the ends of the document, all six on one.
    inner = [far for far, (first, _) in zip(apart, pairs, strict=True) if 3 <= order.index(first) < len(order) - 3]
    assert len(order) > 20 and min(apart) >= 1 and max(apart) <= NEAR and len(set(apart)) > 1
    assert inner and max(inner) <= NEAR // 2


def test_documents_of_one_passage_are_an_error_that_says_what_to_do(run: Run, folder: Path) -> None:
    with pytest.raises(UsageError, match="set `chunk` in the corpus"):
        run("runs", {"target: 4": "target: 4\ngeneration: {multi_hop: 1.0}"})
    said = "generation.multi_hop: each document of this corpus is one passage: set `chunk`"
    assert [line for line in preflight(Job(folder / "job.yaml", folder / "runs")) if said in line]


@pytest.mark.parametrize(
    ("generation", "more", "words"),
    [
        ("unanswerable: 0.6", {}, "unanswerable"),
        ("negatives: mined", {"top_k: 20": "top_k: 9"}, "top_k is smaller"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    run: Run, generation: str, more: dict[str, str], words: str
) -> None:
    with pytest.raises(SettingsError, match=words):
        run("runs", {"target: 4": f"target: 4\ngeneration: {{{generation}}}", **more})


# -- candidates -------------------------------------------------------------------------------------------------------


FIVE = {"target: 4": "target: 6\ngeneration: {candidates: 5, rewrites: 0, hard_negatives: [0, 0]}"}


def kept(folder: Path, runs: str = "runs") -> tuple[dict[str, list[Candidate]], dict[str, Query]]:
    """The drafts and the query of each scenario."""
    job = Job(folder / "job.yaml", folder / runs)
    with job.open_store(read_only=True) as store:
        fingerprint = job.fingerprints["query"]
        drafts: dict[str, list[Candidate]] = {}
        for row in store.rows_of(Candidate, fingerprint):
            drafts.setdefault(row.parent, []).append(row)
        return drafts, {row.parent: row for row in store.rows_of(Query, fingerprint)}


def test_the_draft_that_finds_its_source_best_becomes_the_query(run: Run, folder: Path, asked: list[Request]) -> None:
    run(changes=FIVE)
    drafts, queries = kept(folder)
    assert queries and set(queries) <= set(drafts)
    chosen = 0
    for parent, query in queries.items():
        rows = sorted(drafts[parent], key=lambda row: row.ordinal)
        assert [row.ordinal for row in rows] == [0, 1, 2, 3, 4]
        usable = [row for row in rows if not row.problem]
        if not usable:
            continue  # the model was asked once more, with the reason
        chosen += 1
        best = max(row.score for row in usable)
        assert query.text == next(row.text for row in usable if row.score == best)
        assert all(-1 <= row.score <= 1 for row in usable)
    assert chosen * 2 > len(queries)
    scores = {row.score for rows in drafts.values() for row in rows if not row.problem}
    assert len(scores) > 3  # drafts are distinguished
    first = {request.key: request for request in asked if request.stage == "query" and len(request.messages) < 3}
    assert sorted({request.sample for request in first.values()}) == [0, 1, 2, 3, 4]
    job = Job(folder / "job.yaml", folder / "runs")
    with job.open_store(read_only=True) as store:
        accepted = job.accepted(store)
        lineage, _ = find_lineage(accepted, job.ids.query(accepted.lineages[0]), job.ids)
        shown = life(store, job, lineage, "")
    assert len(shown["query"]["drafts"]) == 5
    # More drafts ask only for the new ones.
    before = len(asked)
    run(changes={"target: 4": FIVE["target: 4"].replace("candidates: 5", "candidates: 6")})
    old = {tuple(request.messages) for request in asked[:before] if request.stage == "query"}
    new = [request for request in asked[before:] if tuple(request.messages) in old]
    assert new and {request.sample for request in new} == {5}
    assert len({request.key for request in asked}) == len(asked)


def test_where_every_draft_is_refused_the_model_is_told_why(
    run: Run, folder: Path, model_says: Callable[..., None]
) -> None:
    told = list[str]()

    def vague(request: Request) -> Reply | None:
        if request.stage != "query":
            return None
        if any("cannot be used" in message.content for message in request.messages):
            told.append(request.key)
            return None
        return Reply(json.dumps({"query": "what does the document say"}), prompt_tokens=1, completion_tokens=1)

    model_says(vague)
    run(changes=FIVE)
    drafts, queries = kept(folder)
    assert told and queries
    assert all(row.problem for rows in drafts.values() for row in rows)
    assert all(query.attempts > 1 for query in queries.values())


def test_the_bill_counts_every_draft(run: Run, folder: Path) -> None:
    text = (folder / "job.yaml").read_text()
    calls = {}
    for count in (1, 5):
        given = text.replace("target: 4", f"target: 4\ngeneration: {{candidates: {count}}}")
        (folder / f"bill-{count}.yaml").write_text(given)
        stages = estimate(Job(folder / f"bill-{count}.yaml", folder / "none")).stages
        calls[count] = next(stage.calls for stage in stages if stage.stage == "query")
    assert calls[5] == pytest.approx(5 * calls[1], abs=3)


# -- unanswerable -----------------------------------------------------------------------------------------------------


def lineage(key: str, source: str) -> Any:
    passage = SimpleNamespace(id=source)
    return SimpleNamespace(final=SimpleNamespace(key=key), passage=passage, sources=[passage])


def decisions(relevant: dict[str, list[str]]) -> Any:
    return {
        key: [SimpleNamespace(id=one, action="add_positive") for one in ids]
        + [SimpleNamespace(id="n", action="keep_negative")]
        for key, ids in relevant.items()
    }


def placed(*chosen: str) -> Callable[[str], str]:
    """A place that chooses these queries first, and others at the end of their block."""
    return lambda key: ("0" if key in chosen else "f") * 32


def test_a_query_whose_passages_serve_an_earlier_query_is_not_held_out() -> None:
    lineages = [lineage("a", "d1"), lineage("b", "d2"), lineage("c", "d3")]
    # What answers `b` is what `a` was written for, so `c` goes in its place, with its second passage.
    held = hold_out(lineages, decisions({"a": ["d2"], "b": ["d1"], "c": ["d9"]}), 0.5, place=placed("b"))
    assert (held.queries, held.passages) == ({"c"}, {"d3", "d9"})
    assert hold_out(lineages, {}, 0.0).queries == set()
    # A query that only an ablation has keeps its document, too, and is not chosen itself.
    held = hold_out([lineage("x", "d1"), lineage("a", "d1"), lineage("b", "d2")], {}, 1.0, dropped={"x"})
    assert held.queries == {"b"}


def test_a_later_query_whose_passages_are_gone_has_no_answer() -> None:
    lineages = [lineage("a", "d1"), lineage("b", "d1"), lineage("c", "d3"), lineage("d", "d4")]
    held = hold_out(lineages, decisions({"b": ["d1"]}), 0.5, place=placed("a", "c"))
    assert (held.queries, held.passages) == ({"a", "b"}, {"d1"})  # `b` takes the turn of the next block
    # With another passage it has an answer, which no later query may take.
    held = hold_out(lineages, decisions({"b": ["d2"], "c": ["d2"]}), 0.5, place=placed("a", "c"))
    assert (held.queries, held.passages) == ({"a", "d"}, {"d1", "d4"})


LABELLED = st.lists(
    st.tuples(st.integers(0, 12), st.lists(st.integers(0, 20), max_size=5), st.booleans()), min_size=1, max_size=12
)
SHARES = st.sampled_from([0.1, 0.3, 0.5])


def held_of(
    made: list[tuple[int, list[int], bool]], share: float, decoys: int = 0, salt: str = ""
) -> tuple[HeldOut, set[str], dict[str, set[str]]]:
    """What is held out, the keys of dropped queries, and the relevant passages of each query."""
    lineages = [lineage(f"q{at}", f"d{source}") for at, (source, *_) in enumerate(made)]
    relevant = {f"q{at}": [f"d{one}" for one in more] for at, (_, more, _) in enumerate(made)}
    dropped = {f"q{at}" for at, (*_, drop) in enumerate(made) if drop}
    every = {f"q{at}": {f"d{source}", *relevant[f"q{at}"]} for at, (source, *_) in enumerate(made)}
    held = hold_out(
        lineages, decisions(relevant), share, dropped, place=lambda key: text_key(salt + key), decoys=decoys
    )
    return held, dropped, every


@given(LABELLED, SHARES, st.integers(0, 3), st.text(max_size=3))
def test_a_query_has_no_answer_if_and_only_if_its_passages_are_gone(
    made: list[tuple[int, list[int], bool]], share: float, decoys: int, salt: str
) -> None:
    held, dropped, relevant = held_of(made, share, decoys, salt)
    assert not held.queries & dropped
    for key in relevant.keys() - dropped:
        assert (relevant[key] <= held.passages) == (key in held.queries)


@given(LABELLED, SHARES, st.integers(0, 3), st.text(max_size=3))
def test_later_queries_change_nothing(
    made: list[tuple[int, list[int], bool]], share: float, decoys: int, salt: str
) -> None:
    """A larger target, or the next version of a dataset, keeps which queries have an answer and what is missing."""
    after, *_ = held_of(made, share, decoys, salt)
    for count in range(1, len(made)):
        before, *_ = held_of(made[:count], share, decoys, salt)
        assert before.queries == {key for key in after.queries if int(key[1:]) < count}
        assert before.passages <= after.passages


@given(st.integers(1, 60), st.sampled_from([0.03, 0.1, 0.3, 0.5]), st.text(max_size=3))
def test_the_share_is_held_out(count: int, share: float, salt: str) -> None:
    made: list[tuple[int, list[int], bool]] = [(at, [], False) for at in range(count)]
    held, *_ = held_of(made, share, salt=salt)
    assert abs(len(held.queries) - share * count) < 1


def test_any_query_of_a_block_may_be_chosen() -> None:
    made: list[tuple[int, list[int], bool]] = [(at, [], False) for at in range(4)]
    chosen = Counter(key for salt in range(400) for key in held_of(made, 0.25, salt=str(salt))[0].queries)
    assert chosen.total() == 400 and all(70 <= chosen[f"q{at}"] <= 130 for at in range(4))  # 100, deviation 9


@given(LABELLED, SHARES, st.integers(1, 3), st.text(max_size=3))
def test_other_queries_lose_their_document_too(
    made: list[tuple[int, list[int], bool]], share: float, decoys: int, salt: str
) -> None:
    """Who sees which documents are missing cannot tell by it which queries nothing answers."""
    held, dropped, relevant = held_of(made, share, decoys, salt)
    plain, *_ = held_of(made, share, 0, salt)
    unanswered = {one for key in held.queries for one in relevant[key]}
    assert plain.decoys == 0 and held.decoys == len(held.passages - unanswered)
    lost = [key for key in relevant.keys() - dropped - held.queries if f"d{made[int(key[1:])][0]}" in held.passages]
    assert held.decoys == 0 or lost


def test_as_many_queries_lose_their_document_as_there_are() -> None:
    made = [lineage(f"q{at}", f"d{at}") for at in range(20)]
    relevant = {f"q{at}": [f"e{at}", f"f{at}"] for at in range(20) if at % 4}  # each fourth has one answer alone
    held = hold_out(made, decisions(relevant), 0.2, decoys=2, place=placed("q0", "q6", "q10", "q17"))
    answered = [one for one in range(20) if f"q{one}" not in held.queries]
    lost = [one for one in answered if f"d{one}" in held.passages]
    assert len(held.queries) == 4 and len(lost) == 8 and all(one % 4 for one in lost)
    assert all(len({f"e{one}", f"f{one}"} - held.passages) == 1 for one in lost)
    for one in made:
        one.sources.append(SimpleNamespace(id=f"e{one.final.key[1:]}"))  # it needs both passages, so it loses neither
    assert hold_out(made, decisions(relevant), 0.2, decoys=2).decoys == 0


def by_id(path: Path) -> dict[str, Any]:
    return {row["_id"]: row for row in read_rows(path)}


def test_a_finished_job_holds_queries_out_without_asking_again(run: Run, asked: list[Request], tmp_path: Path) -> None:
    before = run(changes={"target: 4\n": "target: 4\nexport: {ids: original}\n"}).directory / "dataset"
    old = {name: by_id(before / f"{name}.jsonl") for name in ("corpus", "queries")}
    labels = BeirDataset.open(before).qrels("all").labels
    calls = len(asked)
    result = run(changes={"target: 4\n": "target: 4\nexport: {ids: original}\ngeneration: {unanswerable: 0.25}\n"})
    assert len(asked) == calls
    folder = result.directory / "dataset"
    assert not [one for one in verify(folder) if one.severity == "error"]
    corpus, queries = by_id(folder / "corpus.jsonl"), by_id(folder / "queries.jsonl")
    marked = {key for key, row in queries.items() if row["metadata"]["answered"] is False}
    assert 1 <= len(marked) <= 3 and set(queries) == set(old["queries"])
    gone = set(old["corpus"]) - set(corpus)
    answers = {one for key in marked for one, label in labels[key].items() if label > 0}
    assert answers <= gone  # the others are of queries that something else answers: see `hold_out`
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
    lineage_of = [row["query"] for row in read_rows(folder / "private" / "lineage.jsonl")]
    assert set(lineage_of) == set(queries) - marked
    assert all(any(one in corpus for one, label in new[key].items() if label > 0) for key in new)
    assert "answered: false" in (folder / "README.md").read_text("utf-8")
    assert result.manifest.notes["passages taken out"] == (
        f"{len(answers)} that answer {len(marked)} queries; {len(gone - answers)} of queries that others answer, so "
        "that a gap tells nothing"
    )

    # Which withheld queries have no answer is a label: the public part does not tell it, the whole dataset still does.
    public_part(folder, tmp_path / "public", ["test"])
    public = by_id(tmp_path / "public" / "queries.jsonl").values()
    of_test = {row["metadata"]["answered"] for row in public if row["metadata"]["split"] == "test"}
    assert of_test == {None}
    assert not [one for one in verify(tmp_path / "public") if one.severity == "error"]
    assert by_id(folder / "queries.jsonl") == queries


# -- mining -----------------------------------------------------------------------------------------------------------


MINED = {"target: 4": "target: 4\ngeneration: {negatives: mined, hard_negatives: [3, 5]}"}


def test_mined_negatives_are_passages_cost_nothing_and_are_shown(done: Run, folder: Path) -> None:
    result = done("runs", MINED)
    dataset = result.directory / "dataset"
    assert verify(dataset) == []
    assert "hard_negative" not in result.usage
    assert len(read_rows(dataset / "corpus.jsonl")) == 60  # nothing was added
    lineage = {row["query"]: row for row in read_rows(dataset / "private" / "lineage.jsonl")}
    zeros: dict[str, set[str]] = {}
    ones: dict[str, set[str]] = {}
    for row in label_rows(dataset):
        (ones if row["score"] else zeros).setdefault(row["query-id"], set()).add(row["corpus-id"])
    assert zeros.keys() <= ones.keys() == lineage.keys()
    for query, row in lineage.items():
        assert row["negatives"] == []
        assert set(row["mined"]) == zeros.get(query, set())
        assert len(row["mined"]) <= 5 and not ones[query] & set(row["mined"])
    assert sum(map(len, zeros.values())) >= 4
    assert result.manifest is not None
    (step,) = [step for step in result.manifest.funnel if step.stage == "queries with all mined negatives"]
    assert step.entered == 4 and step.entered - step.left == sum(step.reasons.values())
    job = Job(folder / "job.yaml", folder / "runs")
    one = next(row for row in lineage.values() if row["mined"])
    with job.open_store() as store:
        for without in ("control", "negatives"):
            export_dataset(job, store, job.accepted(store), folder / without, [without])
            assert all(row["score"] == 1 for row in label_rows(folder / without))
        value = life(store, job, *find_lineage(job.accepted(store), one["query"], job.ids))
    assert [row["origin"] for row in value["hard_negatives"]] == ["mined"] * len(one["mined"])
    assert sum(label["kind"] == "mined" for label in value["labels"]) == len(one["mined"])
    assert f"\nmined      {value['hard_negatives'][0]['id']}" in life_study(value).text()


def test_both_add_to_the_generated_ones_and_leave_them_as_they_are(run: Run, done: Run) -> None:
    both = {"target: 4": "target: 4\ngeneration: {negatives: both}"}
    alone, both_kinds = (result.directory / "dataset" for result in (done("alone"), run("both", both)))
    before, after = ({tuple(row.items()) for row in label_rows(dataset)} for dataset in (alone, both_kinds))
    assert before < after
    assert (alone / "corpus.jsonl").read_bytes() == (both_kinds / "corpus.jsonl").read_bytes()


def test_a_detour_changes_nothing_of_what_is_mined(run: Run, done: Run) -> None:
    straight = data_files(done("straight", MINED).directory / "dataset")
    before = data_files(done("detour").directory / "dataset")
    detour = data_files(run("detour", MINED).directory / "dataset")
    assert detour == straight != before
    # And back: a pipeline that asks for generated ones reads no mined ones of an earlier plan.
    assert data_files(run("detour").directory / "dataset") == before
