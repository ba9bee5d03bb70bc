"""Own queries: their files, labels that exist already, and a whole job with the scripted model."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from beir_folder import data_files
from child import kill_at_line
from command_line import call, invoke
from http_double import answering
from job_maker import CORPUS, COUNTED, changed, job_of, make_corpus, run_quietly
from refusals import refused
from report_reader import choices, column, lives, read_report

from airgen.audit.labels import audited_items
from airgen.control.query_set import Control
from airgen.dataset.beir import BeirDataset
from airgen.dataset.human_labels import NOTE, PersonsLabel, pair_mark, write_labels
from airgen.dataset.manifest import load_manifest
from airgen.dataset.verify import verify
from airgen.errors import AirgenError, DatasetError, SettingsError, UsageError
from airgen.evaluation.dataset_split import DatasetSplit
from airgen.job import Job
from airgen.job.label_pipeline import label_pipeline
from airgen.job.user_queries import read_labels
from airgen.job.user_query_files import Line, read_queries
from airgen.report.report import make_report
from airgen.retrievers.lexical.bm25 import BM25Reranker
from airgen.settings import LabelFile, QueriesSettings, load_pipeline

LOG = """query,count
bridges are measured near the coast,12
Bridges are measured near the COAST?,3
near the coast bridges are measured,1
yeast were described in northern valleys,5
 ,4
"mail ann@example.org about the tides, please",2
violins need repair at high pressure,1
wie werden die Brücken an der Küste gemessen und warum,7
quantum chromodynamics lattice fermions,1
"""
BASE: dict[str, Any] = {
    "name": "own", "task": "qa", "corpus": "small.yaml", "queries": {"file": "log.csv"},
    "llm": {"backend": "scripted", "concurrency": 4},
    "control": {"recall": {"pools_only": True, "top_k": 20}, "pools": ["bm25"], "rerankers": ["bm25"],
                "thresholds": {"other": 14}},
    "export": {"ids": "original", "secret": False, "splits": {"test": 1}},
}  # fmt: skip
Go = Callable[..., Job]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    make_corpus(tmp_path / "small.jsonl", 30)
    corpus = CORPUS.replace('personal_data: "off"', "personal_data: mask").replace(
        "kind: jsonl", "kind: jsonl, fields: {id: id}"
    )
    (tmp_path / "small.yaml").write_text(corpus, encoding="utf-8")
    (tmp_path / "log.csv").write_text(LOG, encoding="utf-8")
    return tmp_path


@pytest.fixture
def go(home: Path) -> Go:
    """Run the job with some settings changed: {"queries.labels": [...]}."""

    def run(changes: dict[str, Any] | None = None, *, runs: str = "runs", **options: Any) -> Job:
        job = job_of(home / "own.yaml", changed(BASE, changes or {}), home / runs)
        run_quietly(job, **options)
        return job

    return run


@pytest.fixture
def asked(model_says: Callable[..., None]) -> list[str]:
    """The prompts that the model is asked, while it answers as always."""
    prompts: list[str] = []
    model_says(lambda request: prompts.append(request.messages[-1].content))
    return prompts


def funnel(job: Job) -> dict[str, tuple[int, int, dict[str, int]]]:
    steps = json.loads((job.dataset / "manifest.json").read_text())["funnel"]
    return {step["stage"]: (step["entered"], step["left"], step["reasons"]) for step in steps}


# -- files of queries ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("q.txt", b"\xef\xbb\xbfone\r\n\r\ntwo\n", [Line(1, "one"), Line(2, ""), Line(3, "two")]),
        ("q.csv", b"id,Query,Count\n7,one,3\n8,\"two, or\",1\n", [Line(2, "one", "7", 3), Line(3, "two, or", "8", 1)]),
        ("q.csv", b"sep=;\nSuchbegriff;Anzahl\nM\xfcller;1.234\n", [Line(3, "Müller", "", 1234)]),
        ("q.csv", "query\tcount\nзапрос\t2\n".encode("utf-16"), [Line(2, "запрос", "", 2)]),
        ("q.csv", b"one\ntwo, three\n", [Line(1, "one"), Line(2, "two, three")]),
        ("q.csv", b"one two\nthree\n", [Line(1, "one two"), Line(2, "three")]),
        ("q.tsv", b"qid\tquery\na\tone\n", [Line(2, "one", "a")]),
        ("q.jsonl", b'"one"\n\n"two"\n', [Line(1, "one"), Line(3, "two")]),
        ("q.jsonl", b'{"_id": "a", "text": "one", "metadata": {}}\n', [Line(1, "one", "a")]),
    ],
)  # fmt: skip
def test_files_of_queries(tmp_path: Path, name: str, content: bytes, found: list[Line]) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    settings = QueriesSettings(file=name)
    assert read_queries(settings, path, "de" if name == "q.csv" else "en").lines == found


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("q.csv", b"a,b\n1,2\n", "which column is the query's text .queries.column.. It has 'a', 'b'"),
        ("q.csv", b"query,count\none,-3\n", "q.csv:2: the count '-3' is not a whole number of 0 or more"),
        ("q.csv", b"query,count\none,1e400\n", "q.csv:2: the count '1e400'"),
        ("q.csv", b"id,query\na,one\na,two\n", "q.csv:3: the id 'a' is that of line 2, too"),
        ("q.csv", b"id,query\na b,one\n", "q.csv:2: query id 'a b' is empty or contains whitespace"),
        ("q.jsonl", b'{"query": ["a"]}\n', "q.jsonl:1: query is list where text was expected"),
        ("q.jsonl", b'{"query": \n', "q.jsonl:1: not JSON"),
        ("q.txt", b"PK\x03\x04\x00\x00", "is a ZIP archive .*save it as CSV"),
        ("q.csv", b"", "contains no query"),
        ("labels.csv", b"query,docid,rating\nq,d,good\n", "labels.csv:2: the rating 'good' is not a number"),
        ("labels.csv", b"query,rating\nq,1\n", "which column is the document's id"),
        ("labels.json", b'{"name": "x"}', "which column is the document's id"),
        ("labels.json", b'[{"query": "q", "ratings": [{"docId": "d"}]}]', "judgment 0: needs query and ratings"),
        ("labels.json", b"{", "not JSON"),
    ],
)
def test_bad_files_of_queries_and_labels_say_where(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(AirgenError, match=words):
        if name.startswith("q."):
            read_queries(QueriesSettings(file=name), path, "en")
        else:
            list(read_labels(LabelFile(file=name), path, "en"))


def test_a_named_column_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("query,frage\na,b\n")
    assert read_queries(QueriesSettings(file="q.csv", column="frage"), tmp_path / "q.csv", "de").lines[0].text == "b"
    with refused(UsageError, "unknown_column", "query", "frage", where="q.csv"):
        read_queries(QueriesSettings(file="q.csv", column="fragen"), tmp_path / "q.csv", "de")


# -- labels -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("q.trec", "q1 0 d1 2\nq1 0 d2 0\n"),
        ("test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\n"),
        ("test.jsonl", '{"query-id": "q1", "corpus-id": "d1", "score": 2}\n'
                       '{"query-id": "q1", "corpus-id": "d2", "score": 0}\n'),
        ("quepid.csv", "query,docid,rating\nq1,d1,2\nq1,d2,0\nq1,d3,\n"),
        ("os.json", '{"judgmentRatings": [{"query": "q1", "ratings": [{"docId": "d1", "rating": "2.000"}, '
                    '{"docId": "d2", "rating": "0.0"}]}]}'),
        ("os.json", '[{"query": "q1", "ratings": {"d1": 2, "d2": 0}}]'),
    ],
)  # fmt: skip
def test_labels_of_every_kind(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    found = [(one.query, one.document, one.level) for one in read_labels(LabelFile(file=name), path, "en")]
    assert found == [("q1", "d1", 3), ("q1", "d2", 0)]
    mapped = LabelFile(file=name, levels={0: 0, 2: 1})
    assert [one.level for one in read_labels(mapped, path, "en")] == [1, 0]
    strict = LabelFile(file=name, relevant_from=3)
    assert [one.level for one in read_labels(strict, path, "en")] == [0, 0]
    with refused(DatasetError, "unknown_rating", "2"):
        list(read_labels(LabelFile(file=name, levels={0: 0}), path, "en"))


# -- the job ------------------------------------------------------------------------------------------------


def test_a_log_becomes_a_dataset(go: Go) -> None:
    job = go()
    assert verify(job.dataset) == []
    steps = funnel(job)
    assert steps["lines of the file"] == (9, 5, {"repeat another query": 2, "empty": 1, "other language": 1})
    assert steps["queries drawn"] == (5, 5, {})
    dataset = BeirDataset.open(job.dataset)
    queries = {row.text: (key, row.metadata) for key, row in dataset.queries().items()}
    assert queries["bridges are measured near the coast"][1]["count"] == 16  # 12, 3 and 1
    assert "mail <EMAIL> about the tides, please" in queries
    key, alien = queries["quantum chromodynamics lattice fermions"]
    assert (alien["answered"], steps["queries with an answer"][2]["nothing answers them"]) == (False, 1)
    labels = dataset.qrels("test").labels
    assert key not in labels and set(labels) == {key for key, facts in queries.values() if facts["answered"]}
    assert {score for of in labels.values() for score in of.values()} == {0, 1}  # what was judged not relevant, too
    assert set(DatasetSplit(dataset, "test", "en").queries) == set(labels)  # no average counts the rest
    items = audited_items(job)
    assert len(items) == sum(facts["judged"] for _, facts in queries.values())  # people can check all of them
    assert {item.relevant for item in items} == {True, False}
    assert "Its queries were not generated" in (job.dataset / "README.md").read_text()
    assert run_quietly(job).already_done


def test_the_run_says_in_how_many_queries_personal_data_is_masked(home: Path) -> None:
    job_of(home / "own.yaml", BASE, home / "runs")
    said = invoke("run", home / "own.yaml", "--runs", home / "runs", "--until", "corpus").output
    assert "queries of log.csv: personal data is masked in 1" in said


def test_columns_of_a_log_break_down_scores_and_filter_the_report(home: Path, go: Go) -> None:
    areas = {"bridges": "Roads", "yeast": "ann@example.org", "violins": "Music", "quantum": "Music"}
    rows = [line.split(",") for line in LOG.splitlines()[1:] if not line.startswith(('"', " "))]
    lines = [f"{text},{count},{areas.get(text.split()[0], 'Roads')}" for text, count in rows]
    (home / "log.csv").write_text("\n".join(["query,count,area", *lines]) + "\n", encoding="utf-8")
    job = go({"queries.duplicates": "near"})
    queries = BeirDataset.open(job.dataset).queries()
    areas_of = {row.text.split()[0]: row.metadata["area"] for row in queries.values()}
    assert areas_of == {"bridges": "Roads", "yeast": "<EMAIL>", "violins": "Music", "quantum": "Music"}
    (home / "systems.yaml").write_text("systems: [{name: bm25, kind: bm25}]\n")
    words = ("evaluate", job.dataset, "--systems", home / "systems.yaml", "--split", "test", "--by", "area")
    said = call(*words, "--out", home / "results")
    assert "Roads" in said and "<EMAIL>" in said
    report = read_report(make_report([job], home / "page"))
    table = report["d0/queries"]["table"]
    searches = column(table, "Searches")
    assert sorted(searches["texts"]) == ["1", "1", "16", "5"] and searches["number"]
    assert "line 2, and 2 more with the same words; searched for 16 times" in {
        life["log"] for life in lives(report).values()
    }
    assert all(life["more"] == {} for life in lives(report).values())
    assert set(choices(table, "area")) == {"<EMAIL>", "Music", "Roads"}
    assert table["columns"][0]["below"][0].startswith("searches ")  # on a phone


def test_a_query_without_an_answer_shows_why_and_every_systems_hits(home: Path, go: Go) -> None:
    job = go()
    queries = {row.text.split()[0]: key for key, row in BeirDataset.open(job.dataset).queries().items()}
    lines = [f"{key} Q0 doc-00{rank} {rank} {9 - rank} theirs" for key in queries.values() for rank in (1, 2)]
    (home / "theirs.run").write_text("\n".join(lines) + "\n")
    (home / "systems.yaml").write_text("systems: [{name: theirs, kind: run, path: theirs.run}]\n")
    call("evaluate", job.dataset, "--systems", home / "systems.yaml", "--out", job.directory / "evaluation")
    report = lives(read_report(make_report([job], home / "page")))
    life = report[queries["quantum"]]
    assert life["why"] == "Nothing answers it: no passage was judged, as the re-rankers rank none among their first"
    assert [len(system["top"]) for system in life["ranked"]] == [2] and life["systems"]["size"] == 1


def test_labels_are_withheld_later_without_other_queries_ids_or_answers(go: Go, asked: list[str]) -> None:
    job = go({"target": 4, "export": {"secret": False, "splits": {"test": 1}}})
    before = BeirDataset.open(job.dataset)
    items, calls = audited_items(job), len(asked)
    level = {item.document: 0 if item.relevant else 3 for item in items[:2]}
    marked = [PersonsLabel(item.query, item.document, level[item.document], "", item.texts) for item in items[:2]]
    write_labels(job.directory / "people.jsonl", marked)
    (job.directory / "secret.key").unlink(missing_ok=True)
    job = go({"target": 4, "export": {"splits": {"dev": 1, "test": 1}}})
    after = BeirDataset.open(job.dataset)
    assert len(asked) == calls and load_manifest(job.dataset).secret
    assert {row.text: key for key, row in after.queries().items()} == {
        row.text: key for key, row in before.queries().items()
    }
    note = load_manifest(job.dataset).notes[NOTE]
    # The passages have other public ids now, so the texts say which pair a person has answered.
    assert not {item.document for item in audited_items(job)} & set(level) and note["labels"] == 2
    assert "of other texts, left out" not in note


def test_a_team_can_read_a_job_whose_secret_is_somebody_elses(
    home: Path, go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = go({"export": {"ids": "original", "splits": {"test": 1}}})
    assert load_manifest(job.dataset).secret and (job.directory / "secret.key").is_file()

    def refused(path: Path) -> None:
        raise DatasetError(f"{path} cannot be read: Permission denied")

    monkeypatch.setattr("airgen.job.job.load_secret", refused)
    monkeypatch.setattr("airgen.job.job.secret_of", refused)
    assert "4" in call("show", home / "own.yaml", "--runs", home / "runs")
    assert len(lives(read_report(make_report([home / "own.yaml"], home / "page", runs=home / "runs")))) > 1


def test_answers_to_texts_that_are_gone_are_counted(go: Go) -> None:
    job = go()
    item = audited_items(job)[0]
    other = pair_mark(item.query_text, item.title, "another text")
    kept = PersonsLabel(item.query, item.document, 3, "", item.texts)
    write_labels(job.directory / "people.jsonl", [kept, PersonsLabel("q-gone", "d-gone", 3, "", other)])
    said = run_quietly(go()).study().text()
    assert "1 are of texts that are gone or changed, and do not count" in said


def test_labels_that_exist_count_whatever_the_judge_says(go: Go, home: Path, asked: list[str]) -> None:
    whole = go(runs="whole")
    judged, text = len(asked), "yeast were described in northern valleys"
    asked.clear()
    rows = {row.text: key for key, row in BeirDataset.open(whole.dataset).queries().items()}
    before = BeirDataset.open(whole.dataset).qrels("test").labels[rows[text]]
    first, *_ = (passage for passage, score in before.items() if score)
    (home / "quepid.csv").write_text(f"query,docid,rating\n{text.upper()},{first},0\n{text},doc-029,3\n")
    job = go({"queries.labels": [{"file": "quepid.csv"}]})
    after = BeirDataset.open(job.dataset).qrels("test").labels[rows[text]]
    assert (before[first], after[first], after["doc-029"]) == (1, 0, 1)
    assert len(asked) == judged + ("doc-029" not in before)  # a few labelled pairs are judged for the agreement alone
    note = load_manifest(job.dataset).notes["agreement with the labels given"]
    assert note["judge"] == "judge" and (note["not relevant"], note["not relevant, confirmed"]) == (1, 0)
    assert funnel(job)["labels brought"] == (2, 2, {})
    words = ("show", home / "own.yaml", rows[text], "--runs", home / "runs")
    reasons = {row["id"]: row["reason"] for row in json.loads(call(*words, "--json"))["labels"]}
    assert reasons["doc-029"] == "labels of quepid.csv: 3" and reasons[first] == "labels of quepid.csv: 0"
    assert text in call(*words)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ("bridges are measured near the coast,doc-900,1", "1 of 2 labels are of unknown passages: 'doc-900'.*doc-0"),
        ("never asked,doc-001,1", "1 of 2 labels are of unknown queries: 'never asked'"),
    ],
)
def test_labels_of_what_is_unknown(go: Go, home: Path, labels: str, words: str) -> None:
    (home / "l.csv").write_text(f"query,docid,rating\n{labels}\nviolins need repair at high pressure,doc-003,1\n")
    with pytest.raises(DatasetError, match=words):
        go({"queries.labels": [{"file": "l.csv"}]})
    job = go({"queries.labels": [{"file": "l.csv", "unknown": "skip"}]})
    entered, left, reasons = funnel(job)["labels brought"]
    assert (entered, left, sum(reasons.values())) == (2, 1, 1)
    (home / "l.csv").write_text(f"query,docid,rating\n{labels}\n")
    with pytest.raises(DatasetError, match="1 of 1 labels"):  # none fits: they are of another dataset
        go({"queries.labels": [{"file": "l.csv", "unknown": "skip"}]}, runs="other")


@pytest.fixture
def chunked(home: Path) -> Path:
    """The corpus, of which each document has two passages or more."""
    corpus = (home / "small.yaml").read_text()
    (home / "small.yaml").write_text(f"{corpus}\ntokenizer: words\nchunk: {{size: 30, overlap: 0}}\n")
    return home


LABELS = """query,page,rating
bridges are measured near the coast,https://help.example.org/doc-000.html,1
yeast were described in northern valleys,doc-014,1
violins need repair at high pressure,doc-003,0
"""


def labelled(job: Job) -> dict[str, dict[str, float]]:
    """The labels of each query of the file, by its text."""
    dataset = BeirDataset.open(job.dataset)
    with job.open_store(read_only=True) as store:
        rows = store.query(
            "SELECT DISTINCT q.text, d.id, d.action FROM decision d JOIN own_query q ON q.parent = d.parent"
        )
    assert dataset.queries()
    found: dict[str, dict[str, float]] = {}
    for text, id_, action in rows:
        found.setdefault(text.casefold(), {})[id_] = float(action == "add_positive")
    return found


def test_labels_may_name_pages_of_passages(go: Go, chunked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (chunked / "pages.csv").write_text(LABELS)
    bridges, yeast, violins = (line.split(",")[0] for line in LABELS.splitlines()[1:])
    job = go({"queries.labels": [{"file": "pages.csv"}]})
    found = labelled(job)
    for query, page in ((bridges, "doc-000"), (yeast, "doc-014")):
        assert any(label and id_.startswith(f"{page}#chunk=") for id_, label in found[query].items())
    assert any(id_.startswith("doc-003#chunk=") for id_ in found[violins])
    assert not any(label for id_, label in found[violins].items() if id_.startswith("doc-003#chunk="))
    assert funnel(job)["labels brought"] == (3, 3, {})
    as_said = go({"queries.labels": [{"file": "pages.csv", "level": "document"}]}, runs="said")
    assert labelled(as_said) == found
    with pytest.raises(DatasetError, match=r"3 of 3 labels are of unknown passages: .* set level: document"):
        go({"queries.labels": [{"file": "pages.csv", "level": "passage", "unknown": "skip"}]}, runs="passages")


def test_a_page_that_the_search_does_not_find_is_still_an_answer(go: Go, chunked: Path) -> None:
    (chunked / "pages.csv").write_text("query,page\nviolins need repair at high pressure,doc-021\n")
    job = go({"queries.labels": [{"file": "pages.csv"}], "control.recall.top_k": 1})
    (found,) = (ids for text, ids in labelled(job).items() if text.startswith("violins"))
    assert [id_ for id_, label in found.items() if label and id_.startswith("doc-021#chunk=")]


def test_labels_of_pages_decide_votes(go: Go, chunked: Path) -> None:
    (chunked / "pages.csv").write_text(LABELS)
    votes = {"queries.labels": [{"file": "pages.csv"}], "control.judge": {"kind": "votes"}}
    found = labelled(go(votes))["bridges are measured near the coast"]
    assert any(label and id_.startswith("doc-000#chunk=") for id_, label in found.items())


def test_voters_read_only_queries_with_a_known_passage_that_is_recalled(
    go: Go, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    score = BM25Reranker.score
    monkeypatch.setattr(
        BM25Reranker, "score", lambda self, pairs: read.extend(query for query, _ in pairs) or score(self, pairs)
    )
    bridges, yeast, violins = (line.split(",")[0] for line in LABELS.splitlines()[1:])
    labels = f"query,docid,rating\n{bridges},doc-015,1\n{violins},doc-003,0\n{violins},doc-019,1\n"
    (home / "l.csv").write_text(labels)
    votes = {"queries.labels": [{"file": "l.csv"}], "control.judge": {"kind": "votes"}, "control.recall.top_k": 8}
    few = data_files(go(votes).dataset)
    assert set(read) == {bridges}
    (home / "l.csv").write_text(f"{labels}{yeast},doc-016,1\n")
    read.clear()
    more = data_files(go(votes).dataset)
    assert set(read) == {yeast}  # the other one's scores are those of before
    monkeypatch.setattr(Control, "unread", frozenset())
    assert data_files(go(votes, runs="all").dataset) == more
    assert set(read) > {bridges, yeast, violins}
    (home / "l.csv").write_text(labels)
    assert data_files(go(votes, runs="few").dataset) == few


def test_labels_name_documents_by_their_address(go: Go, home: Path) -> None:
    (home / "ids.csv").write_text(LABELS.replace("https://help.example.org/doc-000.html", "doc-000"))
    (home / "pages.csv").write_text(LABELS)
    found = labelled(go({"queries.labels": [{"file": "ids.csv"}]}, runs="ids"))
    for settings in ({}, {"level": "document"}):
        job = go({"queries.labels": [{"file": "pages.csv", **settings}]}, runs=f"pages{len(settings)}")
        assert labelled(job) == found


def test_a_larger_sample_and_a_longer_log_ask_about_what_is_new(go: Go, home: Path, asked: list[str]) -> None:
    def texts(job: Job) -> set[str]:
        return {row.text for row in BeirDataset.open(job.dataset).queries().values()}

    two = texts(go({"target": 2}))
    first = len(asked)
    four = texts(go({"target": 4}))
    assert len(two) == 2 and two < four and len(asked) - first > 0
    asked_again = set(asked[:first]) & set(asked[first:])
    assert not asked_again
    everything = texts(go())
    done = len(asked)
    (home / "log.csv").write_text(LOG + "harbours grow in winter under dry conditions,2\n")
    longer = go()
    new = asked[done:]
    assert new and all("harbours grow in winter" in prompt for prompt in new)
    assert texts(longer) - everything == {"harbours grow in winter under dry conditions"}
    fresh = go(runs="fresh")
    assert data_files(fresh.dataset) == data_files(longer.dataset)


def test_queries_are_drawn_by_how_often_they_were_asked(go: Go, home: Path) -> None:
    rows = [f"number {place} of {place * 7919} things,{1000 if place < 5 else 1}" for place in range(200)]
    (home / "log.csv").write_text("query,count\n" + "\n".join(rows) + "\n")
    frequent = {f"number {place} of {place * 7919} things" for place in range(5)}

    def drawn(by: str) -> set[str]:
        values = {"target": 5, "queries.draw_by": by, "queries.duplicates": "exact"}
        with pytest.raises(DatasetError, match="none of the 5 queries has a relevant passage"):
            go(values, runs=by)
        job = Job(home / "own.yaml", home / by)
        with job.open_store(read_only=True) as store:
            return {lineage.final.text for lineage in job.accepted(store).lineages}

    assert len(drawn("count") & frequent) >= 4 and len(drawn("equal") & frequent) <= 1


def test_settings_of_queries(go: Go, home: Path) -> None:
    kept = go({"queries.duplicates": "keep", "queries.other_language": "keep", "queries.max_length": 50})
    assert funnel(kept)["lines of the file"] == (9, 7, {"empty": 1, "too long": 1})
    with pytest.raises(SettingsError, match=r"levels: cannot be combined with relevant_from"):
        go({"queries.labels": [{"file": "x.csv", "levels": {1: 1}, "relevant_from": 2}]})
    with refused(DatasetError, "no_file", where="gone.csv"):
        go({"queries.file": "gone.csv"})
    text = "yeast were described in northern valleys"  # equal texts with their own ids are kept apart
    (home / "log.csv").write_text(f"id,query\na,{text}\nb,{text}\n")
    job = go({"queries.duplicates": "keep"})
    assert set(BeirDataset.open(job.dataset).queries()) == {"a", "b"} and verify(job.dataset) == []


def test_sigkill_and_resume_give_the_same_bytes(go: Go, home: Path) -> None:
    whole = data_files(go(runs="whole").dataset)
    text = (home / "own.yaml").read_text().replace("concurrency: 4", "concurrency: 4\n  latency: 0.02")
    (home / "slow.yaml").write_text(text)
    kill_at_line(13, COUNTED, "run", home / "slow.yaml", "--runs", home / "killed", "--quiet")
    assert data_files(go(runs="killed").dataset) == whole


# -- the user's own systems ---------------------------------------------------------------------------------


def test_what_the_users_systems_find_is_judged(go: Go, home: Path, asked: list[str]) -> None:
    (home / "log.csv").write_text("id,query\na,yeast were described in northern valleys\n")
    narrow = {"control.recall.top_k": 3, "control.thresholds.other": 9}
    alone = go(narrow, runs="alone")
    before = BeirDataset.open(alone.dataset).qrels("test").labels["a"]
    missing = [f"doc-{number:03}" for number in range(30) if f"doc-{number:03}" not in before]
    found = next(name for name in missing if name != "doc-017")
    (home / "mine.run").write_text(f"a Q0 {found} 1 9.5 mine\n")
    with answering(lambda _: (200, {"hits": [{"id": "doc-017", "score": 2.0}]})) as url:
        systems = [{"name": "mine", "kind": "run", "path": "mine.run"}, {"name": "web", "kind": "http", "url": url}]
        (home / "systems.yaml").write_text(yaml.safe_dump({"systems": systems}))
        job = go({**narrow, "control.systems": "systems.yaml"})
    labels = BeirDataset.open(job.dataset).qrels("test").labels["a"]
    assert {found, "doc-017"} <= set(labels) and set(before) <= set(labels)
    uses = json.loads((job.dataset / "manifest.json").read_text())["provenance"]
    assert [use["model"] for use in uses if "user's" in use["role"]] == ["mine", "web"]
    (home / "mine.run").write_text("a Q0 doc-999 1 9.5 mine\n")
    with pytest.raises(DatasetError, match="doc-999"):
        go({**narrow, "control.systems": "systems.yaml"}, runs="wrong")


# -- the command --------------------------------------------------------------------------------------------

PIPELINE = {**{key: value for key, value in BASE.items() if key != "queries"}, "target": 3,
            "generation": {"prompts": "small", "rewrites": 0}}  # fmt: skip


def test_the_command_writes_a_pipeline_and_runs_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    (home / "base.yaml").write_text(yaml.safe_dump(PIPELINE))
    words = ("log.csv", "--pipeline", "base.yaml")
    assert "5 queries of your own" in call("label", *words, "--check")
    first = json.loads(call("label", *words, "--sample", "3", "--quiet", "--json"))
    assert first["directory"] == "runs/log"
    written = yaml.safe_load((home / "log.yaml").read_text())
    assert written["queries"] == {"file": "log.csv"} and written["generation"] == {"prompts": "small"}
    call("label", *words, "--quiet")  # without a sample: all
    manifest = load_manifest(home / "runs" / "log" / "dataset")
    assert manifest.statistics.splits["test"].queries == 5
    assert "finished" in call("show", "log.yaml") and "lines of the file" in call("run", "log.yaml")
    (home / "folder").mkdir()
    for said, *wrong in (
        ("log.yaml: already exists with other settings (queries)", "label", *words, "--keep-languages"),
        ("no corpus is given: use --corpus", "label", "log.csv", "--name", "other"),
        ("airgen run has no option --queries: to label your own queries, use `airgen label QUERIES --corpus",
         "run", "base.yaml", "--queries", "log.csv"),
        ("airgen run has no option --corpus", "run", "base.yaml", "--corpus=folder"),
        ("airgen run has no option --check: to learn the cost, use `airgen check`", "run", "base.yaml", "--check"),
        ("gone.csv: no such file", "label", "gone.csv", "--pipeline", "base.yaml"),
        ("folder: is a folder of documents: `airgen init folder` writes",
         "label", *words, "--corpus", "folder", "--name", "new"),
    ):  # fmt: skip
        with pytest.raises(AirgenError, match=re.escape(said)):
            call(*wrong)
    assert not (home / "new.yaml").exists()  # a second try must not stumble over the first


def test_other_settings_replace_those_of_a_job_that_has_not_begun(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a wrong key in the pipeline, its correction counts: nothing was asked yet."""
    monkeypatch.chdir(home)
    for model in ("first", "second"):
        llm = {**PIPELINE["llm"], "model": model}
        (home / "base.yaml").write_text(yaml.safe_dump({**PIPELINE, "llm": llm}))
        call("label", "log.csv", "--pipeline", "base.yaml", "--check")
        assert yaml.safe_load((home / "log.yaml").read_text())["llm"]["model"] == model
    assert yaml.safe_load((home / "log.1.yaml").read_text())["llm"]["model"] == "first"


def test_columns_of_labels_can_be_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two raters' columns of a spreadsheet whose names say nothing."""
    monkeypatch.chdir(home)
    (home / "base.yaml").write_text(yaml.safe_dump(PIPELINE))
    text = "violins need repair at high pressure"
    (home / "l.csv").write_text(f"query,where,points\n{text},doc-003,1\n{text},doc-004,0\n")
    words = ("label", "log.csv", "--pipeline", "base.yaml", "--labels", "l.csv", "--label-column", "where")
    with refused(UsageError, "unknown_column", "where", "points", where="l.csv"):
        call(*words, "--rating-column", "score", "--quiet")
    call(*words, "--rating-column", "points", "--quiet")
    labels = BeirDataset.open(home / "runs" / "log" / "dataset").qrels("test").labels
    (of_query,) = [row for row in labels.values() if {"doc-003", "doc-004"} <= row.keys()]
    assert (of_query["doc-003"], of_query["doc-004"]) == (1, 0)
    label = {"file": "l.csv", "document_column": "where", "rating_column": "points"}
    assert yaml.safe_load((home / "log.yaml").read_text())["queries"]["labels"] == [label]


def test_stars_need_the_lowest_that_means_relevant(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    (home / "base.yaml").write_text(yaml.safe_dump(PIPELINE))
    text = "violins need repair at high pressure"
    (home / "l.csv").write_text(f"query,page,stars\n{text},doc-003,4\n{text},doc-004,2\n")
    words = ("label", "log.csv", "--pipeline", "base.yaml", "--labels", "l.csv", "--no-judge", "--quiet")
    with pytest.raises(AirgenError, match=r"go from 2 to 4.*\(--relevant-from N; in a pipeline, relevant_from in"):
        call(*words)
    call(*words, "--relevant-from", "4")
    labels = BeirDataset.open(home / "runs" / "log" / "dataset").qrels("test").labels
    assert [dict(row) for row in labels.values()] == [{"doc-003": 1, "doc-004": 0}]


@pytest.mark.parametrize("judge", ["judge", "votes"])
def test_the_agreement_with_the_labels_given_is_printed(go: Go, home: Path, asked: list[str], judge: str) -> None:
    text = "yeast were described in northern valleys"
    labels = [f"{text},doc-{number:03},{int(number < 3)}" for number in range(30)]
    labels += [f"violins need repair at high pressure,doc-{number:03},{number % 2}" for number in range(30)]
    (home / "l.csv").write_text("query,docid,rating\n" + "\n".join(labels))
    votes: dict[str, Any] = {"control.judge": {"kind": "votes"}} if judge == "votes" else {}
    job = go({"queries.labels": [{"file": "l.csv"}], **votes})
    note = load_manifest(job.dataset).notes["agreement with the labels given"]
    pairs = note["relevant"] + note["not relevant"]
    assert note["judge"] == judge
    if judge == "judge":  # of 18 relevant and 42 others, all and as many as make up 50
        assert (note["relevant"], note["not relevant"]) == (18, 32)
        again = len(asked)
        go({"queries.labels": [{"file": "l.csv"}]})
        assert len(asked) == again
    confirmed = note["relevant, confirmed"] + note["not relevant, confirmed"]
    said = f"{judge} agree{'s' if judge == 'judge' else ''} with {confirmed} of {pairs} of your labels: "
    assert 0 < confirmed < pairs
    assert said in call("run", home / "own.yaml", "--runs", home / "runs")
    assert said in (job.dataset / "README.md").read_text()


def test_labels_alone_need_no_model(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is retrieved, re-ranked or judged, so that what is missing for it is not missed."""
    monkeypatch.chdir(home)
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    llm = {"backend": "openai", "model": "m", "base_url": "http://127.0.0.1:9/v1", "api_key_env": "NO_SUCH_KEY"}
    base = {**PIPELINE, "llm": llm, "control": {"rerankers": ["acme/no-such-model"]}}
    (home / "base.yaml").write_text(yaml.safe_dump(base))
    (home / "l.csv").write_text(
        "query,docid,rating\nviolins need repair at high pressure,doc-003,1\n"
        "violins need repair at high pressure,doc-004,0\nyeast were described in northern valleys,doc-005,1\n"
    )
    words = ("label", "log.csv", "--pipeline", "base.yaml", "--no-judge")
    with pytest.raises(AirgenError, match="--no-judge: only labels count, and there are none"):
        call(*words)
    assert "nothing is missing" in call(*words, "--labels", "l.csv", "--check")
    call(*words, "--labels", "l.csv", "--quiet")
    assert yaml.safe_load((home / "log.yaml").read_text())["control"] == {"judge": {"kind": "none"}}
    job = Job(home / "log.yaml", home / "runs")
    rows = BeirDataset.open(job.dataset).qrels("test").labels
    assert sorted(map(dict, rows.values()), key=len) == [{"doc-005": 1}, {"doc-003": 1, "doc-004": 0}]
    entered, left, reasons = funnel(job)["lines of the file"]
    assert (entered, left, reasons["without a label"]) == (9, 2, 5)
    assert "no passage was judged by airgen" in (job.dataset / "README.md").read_text()
    assert not load_manifest(job.dataset).provenance


def test_labels_alone_may_name_pages(go: Go, chunked: Path) -> None:
    text = "violins need repair at high pressure"
    (chunked / "l.csv").write_text(f"query,docid,rating\n{text},doc-003,1\n")
    job = go({"queries.labels": [{"file": "l.csv"}], "control.judge": {"kind": "none"}})
    (labels,) = labelled(job).values()
    assert list(labels.values()) == [1.0] and next(iter(labels)).startswith("doc-003")


@pytest.mark.parametrize("queries", [{}, {"queries": {"file": "log.csv"}}])
def test_no_judge_needs_labels(home: Path, queries: dict[str, Any]) -> None:
    values = {**changed(BASE, {"control.judge": {"kind": "none"}}), "target": 3}
    del values["queries"]
    with pytest.raises(SettingsError, match=r"control.judge: with \{kind: none\}, your own labels are the only ones"):
        job_of(home / "own.yaml", {**values, **queries}, home / "runs")


FAQ = """id,question,answer
F01,Which bridges are near the coast?,Only the old one.
F02,When were yeast cells described?,"In 1837, three times."
F03,Do violins need repair at high pressure?,"Yes, in PDF and Word."
F04,Are the tides measured?,Twice a day.
"""


def test_a_faq_is_labelled_as_init_says(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The printed command runs: short answers stay, no id tells an answer, and no path is that of this machine."""
    monkeypatch.chdir(home)
    (home / "documents").mkdir()
    (home / "documents" / "faq.csv").write_text(FAQ)
    said = call("init", "documents/faq.csv", "--out", "own")
    (line,) = {line.strip().removesuffix(" --check") for line in said.splitlines() if "airgen label" in line}
    pipeline = home / "own" / "pipeline.yaml"
    votes = {"kind": "votes"}
    base = {**PIPELINE, "control": {**BASE["control"], "judge": votes}, "corpus": "corpus.yaml"}
    pipeline.write_text(yaml.safe_dump(base))  # a model on this machine
    program, *words = shlex.split(line)
    printed = call(*words)
    assert program == "airgen" and "labels of faq.csv" not in printed and "No person has checked" not in printed
    written = (home / "own" / "faq.yaml").read_text()
    assert "file: ../documents/faq.csv" in written and str(home) not in written
    dataset = home / "own" / "runs" / "faq" / "dataset"
    queries = {key: row.text for key, row in BeirDataset.open(dataset).queries().items()}
    assert sorted(queries.values()) == sorted(line.split(",")[1] for line in FAQ.splitlines()[1:])
    passages = {one.id: one.text for one in BeirDataset.open(dataset).passages()}
    assert "Only the old one." in passages.values() and not any("F0" in key for key in [*queries, *passages])
    card = (dataset / "README.md").read_text()
    assert "4 labels were given with them, and the others are by re-rankers, by airgen" in card
    assert "made by models" not in card.replace("Labels that were not given were made by models", "")
    assert "synthetic" not in card and "may have been written by a language model" not in card
    assert str(home) not in card


def test_a_beir_folder_brings_corpus_and_labels(home: Path, go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = go().dataset
    (home / "base.yaml").write_text(yaml.safe_dump({**PIPELINE, "name": "base"}))
    monkeypatch.chdir(home)
    result = json.loads(call("label", dataset, "--pipeline", "base.yaml", "--name", "again", "--quiet", "--json"))
    steps = {step["stage"]: step for step in result["funnel"]}
    assert yaml.safe_load((home / "again.yaml").read_text())["queries"]["duplicates"] == "keep"
    labels = BeirDataset.open(dataset).qrels("test")
    assert steps["labels brought"]["left"] == labels.judged and steps["corpus"]["left"] == 30
    again = BeirDataset.open(home / "runs" / "again" / "dataset")
    for query, of in labels.labels.items():
        assert of.items() <= again.qrels("test").labels[query].items()


def test_without_labels_the_llm_judges_in_place_of_votes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.txt").write_text("how are lists sorted\nwhat is a generator\n", encoding="utf-8")
    found = load_pipeline(label_pipeline(Path("log.txt"), Path("quickstart"), corpus="python-reference"))
    assert found.control.judge.kind == "yes-no" and found.relevance == "answer"
    assert "so its LLM judges" in (tmp_path / "log.yaml").read_text(encoding="utf-8")
