"""Which word for `relevance` fits: by hand, a whole job of votes, and what goes wrong."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from beir_folder import read_rows, write_rows
from command_line import call
from job_maker import ANSWERED, JUDGE, PIPELINE, WORDS, Run

from airgen.audit.answers import Proportion
from airgen.audit.relevance import (
    BOTH,
    NEITHER,
    WIDER,
    draw_relevance,
    kinds,
    pick_passages,
    population,
    say,
    score_relevance,
    set_relevance,
)
from airgen.audit.sample import AuditItem, AuditSample, load_sample
from airgen.errors import DatasetError, SettingsError, StoreError, UsageError
from airgen.job import Job
from airgen.llms.base import Reply, Request
from airgen.steps.judge import scripted_judge
from airgen.steps.votes import WAY
from airgen.storage.json_values import plain
from airgen.storage.records import Judgment, Prelabel


def prelabel(scores: list[float]) -> Prelabel:
    return Prelabel("k", "q", "f", 0, "m", ["s", "a", "b", "c", "d", "e", "f"], scores)


def test_the_kinds_of_passages() -> None:
    rows = [prelabel([10, 5, 2, 0, 0, -1, -2]), prelabel([1.0, 0.7, 0.5, 0.5, 0.0, -1.0, -2.0])]
    # Shares: a .5 and .4 (the second one's median is .5), b .2 and 0.
    alike = {"a": BOTH, "b": WIDER, "c": NEITHER, "d": NEITHER, "e": NEITHER, "f": NEITHER}
    assert kinds(rows[:1] * 2, ["s"]) == alike
    assert kinds(rows[:1], ["s"]) == {**alike, "a": WIDER}  # one voter is no majority
    assert kinds(rows, ["s"])["a"] == WIDER and kinds(rows, ["s"])["b"] == NEITHER
    # A source that is not found, or is no better than the typical candidate, gives no cutoff.
    assert kinds(rows, ["f"]) == {} and kinds(rows[:1], ["elsewhere"]) == {}


def test_five_passages_mostly_where_the_words_differ() -> None:
    found = {f"{kind} {n}": kind for kind, count in ((BOTH, 4), (WIDER, 9), (NEITHER, 30)) for n in range(count)}
    chosen = pick_passages("q", found)
    assert sorted(found[id_] for id_ in chosen) == [BOTH, NEITHER, *[WIDER] * 3]
    assert chosen == pick_passages("q", found) != pick_passages("q", found, seed=1)
    # Where one kind has too few, others fill up.
    few = {id_: kind for id_, kind in found.items() if kind != WIDER}
    assert sorted(few[id_] for id_ in pick_passages("q", few)) == [*[BOTH] * 4, NEITHER]
    assert pick_passages("q", {"a": BOTH}) == ["a"] and pick_passages("q", {}) == []


def sample_of(rows: list[tuple[str, str, str]], counts: dict[str, int]) -> AuditSample:
    items = tuple(AuditItem(query, id_, kind, None, False, query, "", id_) for query, id_, kind in rows)
    return AuditSample("toy", 2, items, counts)


def test_figures_by_hand() -> None:
    rows = [("q1", "a", BOTH), ("q1", "b", WIDER), ("q1", "c", WIDER), ("q1", "d", WIDER), ("q1", "e", NEITHER)]
    rows += [("q2", "a", BOTH), ("q2", "b", WIDER), ("q2", "c", WIDER), ("q2", "d", NEITHER)]
    counts = {("q1", BOTH): 2, ("q1", WIDER): 6, ("q1", NEITHER): 20}
    counts |= {("q2", BOTH): 1, ("q2", WIDER): 2, ("q2", NEITHER): 30}
    sample = sample_of(rows, {population(*name): count for name, count in counts.items()})
    found = say(sample, [{1: 3, 2: 2, 3: 2, 4: 1, 5: 0, 6: 3, 7: 2, 8: None, 9: 2}])
    # Weights: q1 2, then 6/3 each, then 20; q2 1, 2/1 (one cannot be said), 30.
    share = {word: {name: one.share for name, one in of.items()} for word, of in found.figures.items()}
    assert share["answer"] == pytest.approx({"precision": 1, "recall": 3 / 39, "agreement": 25 / 61})
    assert share["subject"] == pytest.approx({"precision": 9 / 11, "recall": 9 / 39, "agreement": 29 / 61})
    assert found.differ == Proportion.of([(True, 2.0)] * 3 + [(False, 2.0)], 1.644854)
    recall = found.figures["subject"]["recall"]
    assert (recall.agreed, recall.count) == (5, 6)
    assert (found.word, found.queries, found.people, found.unanswered) == ("subject", 2, 1, 1)
    # F1 of `answer` with both sources: 2 + 3 labelled, all relevant, of 5 + 6 that are: 2 * 5 / (5 + 11).
    assert found.cut == pytest.approx(5 / 16)
    said = found.as_text()
    assert "`subject` fits: more than 0.31" in said and "confirm 0.75 (0.36–0.94) (90 %), by 4 answers" in said


@pytest.mark.parametrize(("relevant", "word"), [(30, "subject"), (0, "answer"), (12, None)])
def test_which_word_fits(relevant: int, word: str | None) -> None:
    sample = sample_of([(f"q{n % 10}", f"d{n}", WIDER) for n in range(30)], {f"q{n}: {WIDER}": 3 for n in range(10)})
    found = say(sample, [{n + 1: 3 if n < relevant else 0 for n in range(30)}])
    assert found.word == word and (f"`{word}` fits" if word else "are inconclusive") in found.as_text()
    # No passage asked about is relevant by both words, so the labels of `answer` have no precision to show.
    assert plain(found)["figures"]["answer"]["precision"]["share"] is None


def answer(folder: Path, good: set[str]) -> Path:
    """A person who finds passages of these kinds relevant."""
    sample = load_sample(folder / "runs" / "job" / "audit-relevance" / "sample.json")
    answers = {number: 3 if item.kind in good else 0 for number, item in enumerate(sample.items, 1)}
    path = folder / "answers.json"
    path.write_text(json.dumps({"key": sample.key, "answers": answers}), encoding="utf-8")
    return path


def fewer(folder: Path, count: int) -> None:
    """The first passages of the corpus alone, and a few words of each, half of which the next one has, too."""
    rows = read_rows(folder / "small.jsonl")[:count]
    texts = [row["text"].split()[:26] for row in rows]
    few = [{**row, "text": " ".join(text[:6] + text[20:]) + "."} for row, text in zip(rows, texts, strict=True)]
    write_rows(folder / "small.jsonl", few)


def test_a_job_from_the_page_to_labels_made_again(
    run: Run, folder: Path, distinct: None, monkeypatch: pytest.MonkeyPatch, asked: list[Request]
) -> None:
    monkeypatch.setitem(WAY, "subject", 0.01)  # the queries of the scripted model are near nothing but their source
    fewer(folder, 30)
    run("runs", {**ANSWERED, "target: 4": "target: 14\ngeneration: {hard_negatives: [0, 0]}"})
    runs, path = ("--runs", folder / "runs"), folder / "job.yaml"
    said = json.loads(call("audit", "relevance", path, *runs, "--json"))
    audit = folder / "runs" / "job" / "audit-relevance"
    assert said["folder"] == str(audit) and said["queries"] == 10 and said["pairs"] == 50
    drawn = load_sample(audit / "sample.json")
    assert {item.kind for item in drawn.items} >= {WIDER, NEITHER}
    page = (audit / "audit.html").read_text(encoding="utf-8")
    assert "should a search find this document?" in page and "by subject alone" not in page
    assert "passages of 10 queries: open" in call("audit", "relevance", path, *runs)
    text = path.read_text(encoding="utf-8") + "# a comment\n"
    path.write_text(text, encoding="utf-8")
    before = len(asked)
    answers = answer(folder, {BOTH, WIDER})
    assert "`subject` fits" in call("audit", "relevance", path, *runs, "--answers", answers)
    assert path.read_text(encoding="utf-8") == text
    said = call("audit", "relevance", path, *runs, "--answers", answers, "--set")
    assert "says subject now; labels are made again" in said
    assert path.read_text(encoding="utf-8") == text.replace("task: qa", "task: qa\nrelevance: subject")
    narrow = (folder / "runs" / "job" / "dataset" / "qrels" / "test.jsonl").read_bytes()
    call("run", path, *runs, "--no-report")
    assert len(asked) == before
    assert (folder / "runs" / "job" / "dataset" / "qrels" / "test.jsonl").read_bytes() != narrow
    # The same answers count for the labels that were made again.
    again = json.loads(call("audit", "relevance", path, *runs, "--answers", answers, "--json"))
    assert (again["word"], again["now"]) == ("subject", "subject")
    assert json.loads((audit / "result.json").read_text(encoding="utf-8")) == again
    # Where the votes are others by now, the answers count for what they say today.
    monkeypatch.setitem(WAY, "subject", 1.0)
    other = score_relevance(Job(path, folder / "runs"), [answers], audit)
    assert (other.gone, other.people) == (0, 1) and other.differ.count < again["differ"]["count"]
    lost = json.loads((audit / "sample.json").read_text(encoding="utf-8"))
    lost["items"][0]["document"] = "gone"
    (audit / "sample.json").write_text(json.dumps(lost), encoding="utf-8")
    answers.write_text(answers.read_text(encoding="utf-8").replace(drawn.key, load_sample(audit / "sample.json").key))
    assert score_relevance(Job(path, folder / "runs"), [answers], audit).gone == 1


def test_few_queries_and_answers_that_do_not_tell(run: Run, folder: Path, distinct: None) -> None:
    fewer(folder, 20)
    run("runs", {**ANSWERED, "target: 4": "target: 5"})
    path, runs = folder / "job.yaml", ("--runs", folder / "runs")
    said = call("audit", "relevance", path, *runs)
    assert "queries (not 10: the other queries do not retrieve their sources)" in said
    with pytest.raises(UsageError, match="--set needs --answers"):
        call("audit", "relevance", path, *runs, "--set")
    before, answers = path.read_bytes(), folder / "answers.json"
    sample = load_sample(folder / "runs" / "job" / "audit-relevance" / "sample.json")
    one = next(n for n, item in enumerate(sample.items, 1) if item.kind == NEITHER)
    answers.write_text(json.dumps({"key": sample.key, "answers": {str(one): 0}}), encoding="utf-8")
    with pytest.raises(UsageError, match="nothing was set, because the answers are inconclusive"):
        call("audit", "relevance", path, *runs, "--answers", answers, "--set")
    assert path.read_bytes() == before


def test_a_job_with_an_llm_judge(run: Run, folder: Path, model_says: Callable[..., None]) -> None:
    """Levels are two cuts of one judge: what it calls superficially relevant is what only `subject` takes."""

    def strict(request: Request) -> Reply | None:  # the scripted judge, which finds less in a passage with few words
        level = scripted_judge(request) if request.stage == "judgment" else ""
        return Reply({"0": "1", "1": "1", "2": "1", "3": "3"}[level]) if level else None

    model_says(strict)
    run("runs", {**WORDS, "target: 4": "target: 12"})
    path, runs = folder / "job.yaml", ("--runs", folder / "runs")
    job, audit = Job(path, folder / "runs"), folder / "runs" / "job" / "audit-relevance"
    said = json.loads(call("audit", "relevance", path, *runs, "--json"))
    assert said["queries"] == 10
    drawn = load_sample(audit / "sample.json")
    assert (drawn.levels, {one.kind for one in drawn.items}) == ({0: "no", 2: "yes"}, {BOTH, WIDER, NEITHER})
    with job.open_store(read_only=True) as store:
        lineages = {job.ids.query(one): one for one in job.accepted(store).lineages}
        for item in drawn.items:
            rows = store.rows_of(Judgment, job.plan(store)["judgment"], [lineages[item.query].final.key])
            level = {job.ids.document(row.id): row.level for row in rows}.get(item.document, 0)
            assert item.kind == (BOTH if level >= 2 else WIDER if level == 1 else NEITHER)
    found = score_relevance(job, [answer(folder, {BOTH, WIDER})], audit)
    assert (found.word, found.figures["subject"]["precision"].share) == ("subject", pytest.approx(1.0))
    said = call("audit", "relevance", path, *runs, "--answers", folder / "answers.json", "--set")
    assert "says subject now; labels are made again, without an LLM" in said


def test_a_judge_that_says_yes_or_no_is_asked_again(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WAY, "subject", -9.0)  # the re-rankers put everything near enough to the source
    run("runs", {**WORDS, "pools: [bm25]": "pools: [bm25]\n  judge: {kind: yes-no}"})
    path, runs = folder / "job.yaml", ("--runs", folder / "runs")
    call("audit", "relevance", path, *runs)
    drawn = load_sample(folder / "runs" / "job" / "audit-relevance" / "sample.json")
    assert WIDER in {one.kind for one in drawn.items}
    answer(folder, {BOTH, WIDER})
    said = call("audit", "relevance", path, *runs, "--answers", folder / "answers.json", "--set")
    assert "with the judge's other prompt" in said


def test_wrong_jobs(run: Run, folder: Path) -> None:
    path, out = folder / "job.yaml", folder / "audit"
    with pytest.raises(StoreError, match="airgen run"):
        draw_relevance(Job(path, folder / "runs"), out)
    run("unfinished", JUDGE, until="corpus")
    with pytest.raises(DatasetError, match="is not finished: run it to its end"):
        draw_relevance(Job(path, folder / "unfinished"), out)
    with pytest.raises(DatasetError, match="no sample: draw one with `airgen audit relevance`"):
        score_relevance(Job(path, folder / "unfinished"), [folder / "answers.json"], out)
    assert not out.exists()


INIT = (
    "relevance: answer               # relevant: documents that answer the query, but not documents that are only "
    "about the same subject"
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("task: qa\r\n", "task: qa\r\nrelevance: subject\r\n"),
        ("task: qa\nrelevance: 'answer' # why\n", "task: qa\nrelevance: subject # why\n"),
        (
            f"task: qa\n{INIT} (or subject)\n",
            "task: qa\nrelevance: subject               # relevant: documents about the query's subject, whether "
            "or not they answer the query (or answer)\n",
        ),
    ],
)
def test_one_line_of_the_file_changes(before: str, after: str, folder: Path) -> None:
    path = folder / "job.yaml"
    text = "# relevance: a comment stays\n" + path.read_text(encoding="utf-8")
    path.write_bytes(text.replace("task: qa\n", before).encode())
    set_relevance(path, "subject")
    assert path.read_bytes() == text.replace("task: qa\n", after).encode()


def test_files_that_are_not_changed(folder: Path) -> None:
    for name in (folder / "suite.yaml#one", Job(Path("agree"), folder).path):
        with pytest.raises(UsageError, match="is not your own pipeline file"):
            set_relevance(name, "subject")
    path = folder / "job.yaml"
    path.write_text("name: [", encoding="utf-8")
    with pytest.raises(SettingsError, match="not YAML"):
        set_relevance(path, "subject")
    path.write_text("{task: qa, " + ", ".join(PIPELINE.split("\n")[1:2] + PIPELINE.split("\n")[3:6]) + "}\n")
    with pytest.raises(SettingsError, match="is not on a line of its own: set relevance: subject yourself"):
        set_relevance(path, "subject")
