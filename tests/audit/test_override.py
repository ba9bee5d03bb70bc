"""People's answers as labels: by hand, a job's next version, a dataset without its job, what stays private."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from beir_folder import label_rows, read_rows, write_rows
from command_line import call
from hypothesis import given
from hypothesis import strategies as st
from job_maker import WORDS, Run

from airgen.audit.labels import apply_answers, draw_labels, score_labels
from airgen.audit.sample import AuditItem, AuditSample
from airgen.dataset.content import ANSWERED, QrelRow, QueryRow
from airgen.dataset.human_labels import CONFIRMED, NOTE, PersonsLabel, note_text, override, read_labels, write_labels
from airgen.dataset.manifest import load_manifest
from airgen.dataset.verify import verify
from airgen.errors import DatasetError
from airgen.evaluation.verdict import labels_of, whole_verdict
from airgen.job import Job
from airgen.publishing.withhold import labels_part, public_part


def queries(*ids: str, **metadata: bool) -> list[QueryRow]:
    return [QueryRow(id_, f"query {id_}", "test", {"split": "test", **metadata}) for id_ in ids]


def test_what_people_change_by_hand() -> None:
    rows = [QrelRow("q1", "a", 1, 3), QrelRow("q1", "b", 0, 1), QrelRow("q2", "c", 1, 2), QrelRow("q3", "d", 1, 3)]
    people = [
        PersonsLabel("q1", "a", 3), PersonsLabel("q1", "b", 2), PersonsLabel("q1", "new", 0),
        PersonsLabel("q2", "c", 1), PersonsLabel("gone", "a", 3), PersonsLabel("q3", "nowhere", 3),
    ]  # fmt: skip
    found, left, change = override(rows, queries("q1", "q2", "q3"), people, 2, absent={"nowhere"})
    assert [(row.query, row.document, row.score, row.level, row.by) for row in found] == [
        ("q1", "a", 1, 3, "people"), ("q1", "b", 1, 2, "people"), ("q3", "d", 1, 3, ""), ("q1", "new", 0, 0, "people"),
    ]  # fmt: skip
    assert [row.id for row in left] == ["q1", "q3"]  # q2 has lost its only relevant passage
    assert (change.confirmed, change.now_relevant, change.now_not_relevant, change.new) == (1, 1, 1, 1)
    assert change.fallen == ("q2",) and change.labels == 4 and change.new_relevant == 0
    assert note_text(change.as_note()) == (
        "4 labels are people's: 1 confirmed, 1 now relevant, 1 now not relevant, 1 of pairs without a label "
        "(0 relevant); 1 queries have no relevant passage any more"
    )
    # Where queries are marked with whether anything answers them, the mark changes, and the query stays.
    found, left, _ = override(rows[2:3], queries("q2", answered=True), people, 2)
    assert (found, left[0].metadata[ANSWERED]) == ([], False)
    found, left, _ = override([], queries("q1", answered=False), people[1:2], 2)
    assert (found[0].score, left[0].metadata[ANSWERED]) == (1, True)
    _, _, change = override([], queries("q1", answered=False), people[1:2], 2)
    assert (change.risen, change.new_relevant) == (("q1",), 1)
    assert note_text(change.as_note()).endswith("; 1 queries have one for the first time")


def test_what_people_find_relevant_is_as_certain_as_a_source() -> None:
    """Votes say 1 of what answers a query, and 2 of its source."""
    rows = [QrelRow("q", "source", 2, 2), QrelRow("q", "voted", 1, 2), QrelRow("q", "other", 1, 2)]
    people = [PersonsLabel("q", "source", 3), PersonsLabel("q", "voted", 2), PersonsLabel("q", "new", 3)]
    found, _, change = override(rows, queries("q"), people, 2)
    assert {row.document: row.score for row in found} == {"source": 2, "voted": 2, "other": 1, "new": 2}
    assert (change.confirmed, change.new) == (2, 1)
    found, _, change = override(rows, queries("q"), [PersonsLabel("q", "source", 0)], 2)
    assert {row.document: row.score for row in found} == {"source": 0, "voted": 1, "other": 1}
    assert change.now_not_relevant == 1


@given(
    st.dictionaries(st.tuples(st.sampled_from("pqr"), st.sampled_from("abcd")), st.integers(0, 1), min_size=1),
    st.dictionaries(st.tuples(st.sampled_from("pqrs"), st.sampled_from("abcde")), st.integers(0, 3)),
)
def test_every_persons_label_is_in_force_and_no_other_changes(
    labels: dict[tuple[str, str], int], people: dict[tuple[str, str], int]
) -> None:
    rows = [QrelRow(*pair, score) for pair, score in labels.items()]
    asked = queries(*sorted({query for (query, _), score in labels.items() if score}))
    rows = [row for row in rows if row.query in {one.id for one in asked}]
    found, left, change = override(rows, asked, [PersonsLabel(*pair, level) for pair, level in people.items()], 2)
    by_pair, known = {(row.query, row.document): row for row in found}, {row.id for row in left}
    assert {row.query for row in found} <= known == {row.query for row in found if row.score}
    for row in found:
        wanted = people.get((row.query, row.document))
        assert row.by == ("people" if wanted is not None else "")
        assert row.score == (labels[row.query, row.document] if wanted is None else int(wanted >= 2))
    assert set(change.fallen) == {one.id for one in asked} - known
    assert {pair for pair in {(row.query, row.document) for row in rows} if pair[0] in known} <= by_pair.keys()


def test_a_file_of_labels_that_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "people.jsonl"
    assert read_labels(path) == []
    labels = [PersonsLabel("q", "d\u2028", 3, "because\nit says so", "m"), PersonsLabel("a", "b", 0)]
    write_labels(path, labels)
    assert read_labels(path) == labels[::-1]
    for line in ("[]", "{", '{"query": "q", "document": "d", "level": 4}', '{"query": 1, "document": "d", "level": 1}'):
        path.write_text(line, encoding="utf-8")
        with pytest.raises(DatasetError, match=r"people\.jsonl:1: not a person's label"):
            read_labels(path)
    path.write_text("17\n", encoding="utf-8")
    with pytest.raises(DatasetError, match=r":1: not a person's label \(an object is needed\): "):
        read_labels(path)


def test_labels_on_a_disk_that_is_away_are_not_taken_for_none(done: Run, folder: Path) -> None:
    done()
    labels = folder / "runs" / "job" / "people.jsonl"
    labels.symlink_to(folder / "unmounted" / "people.jsonl")
    with pytest.raises(DatasetError, match=r"people\.jsonl: is not a file, so people's labels cannot be read"):
        call("export", folder / "job.yaml")
    labels.unlink()
    labels.mkdir()
    with pytest.raises(DatasetError, match="put the file back, or remove it"):
        call("export", folder / "job.yaml")
    labels.rmdir()
    call("export", folder / "job.yaml")


def answer(job: Job, sample: AuditSample, wrong: int, folder: Path) -> Path:
    """A person who confirms the labels but for the first `wrong` positives, and says why."""
    lost = [n for n, one in enumerate(sample.items, 1) if one.relevant and one.kind == "positive"][:wrong]
    answers = {str(n): 0 if n in lost or not one.relevant else 3 for n, one in enumerate(sample.items, 1)}
    path = folder / "answers.json"
    reasons = {str(n): "it is about something else" for n in lost}
    path.write_text(json.dumps({"key": sample.key, "answers": answers, "reasons": reasons}), encoding="utf-8")
    return path


def answered(sample: AuditSample, answers: Path) -> Iterable[tuple[AuditItem, int]]:
    return zip(sample.items, json.loads(answers.read_text())["answers"].values(), strict=True)


def labels_by_pair(dataset: Path, folder: str = "qrels") -> dict[tuple[str, str], int]:
    paths = sorted((dataset / folder).glob("*.jsonl"))
    return {(row["query-id"], row["corpus-id"]): row["score"] for path in paths for row in read_rows(path)}


def test_a_job_takes_peoples_answers_into_its_next_version(run: Run, done: Run, folder: Path) -> None:
    path, runs, settings = folder / "job.yaml", folder / "runs", {**WORDS, "target: 4": "target: 11\nseed: 3"}
    dataset = done("runs", settings).directory / "dataset"
    job, before = Job(path, runs), labels_by_pair(dataset)
    sample = draw_labels(job, 30, job.directory / "audit")
    answers = answer(job, sample, 2, folder)
    said = call("audit", "score", path, answers, "--runs", runs)
    assert "add --apply" in said and labels_by_pair(dataset) == before
    said = call("audit", "score", path, answers, "--runs", runs, "--apply")
    assert "version 0.1 -> 0.2" in said and "2 now not relevant" in said and "airgen run" in said
    manifest = load_manifest(dataset)
    people = labels_by_pair(dataset, "qrels-people")
    after = labels_by_pair(dataset)
    assert [one for one in verify(dataset) if one.severity == "error"] == []
    # People's labels are in force, and all others are as they were; the earlier version is kept.
    here, corpus = ({row["_id"] for row in read_rows(dataset / name)} for name in ("queries.jsonl", "corpus.jsonl"))
    for item, level in answered(sample, answers):
        if item.query in here and item.document in corpus:  # a generated negative that was removed is in no dataset
            assert people[item.query, item.document] == level
            assert after[item.query, item.document] == int(level >= 2)
    others = after.keys() - people.keys()
    assert {pair: after[pair] for pair in others} == {pair: before[pair] for pair in others}
    assert labels_by_pair(dataset.parent / "versions" / "0.1") == before
    assert (
        manifest.notes[NOTE]["labels"] == len(people) and "labels are people's" in (dataset / "README.md").read_text()
    )
    assert manifest.audit is not None and CONFIRMED in manifest.audit
    # The corpus is the same, so it does not reveal the answers.
    assert (dataset / "corpus.jsonl").read_bytes() == (
        dataset.parent / "versions" / "0.1" / "corpus.jsonl"
    ).read_bytes()
    # The job is finished, and goes on with people's labels in force.
    assert run("runs", settings).already_done
    more = run("runs", {**WORDS, "target: 4": "target: 12\nseed: 3"})
    assert more.manifest is not None and labels_by_pair(dataset, "qrels-people") == people
    assert more.manifest.info.version == "0.2"
    # The audit still measures the model, whose labels they were.
    found = score_labels(Job(path, runs), [answers], job.directory / "audit")
    assert found.overall.agreed == found.overall.count - 2


def test_answers_to_texts_that_have_changed_count_no_more(run: Run, folder: Path) -> None:
    original = {**WORDS, "control:": "export: {ids: original}\ncontrol:"}
    corpus = folder / "small.yaml"
    corpus.write_text(corpus.read_text().replace("path: small.jsonl", "path: small.jsonl, fields: {id: id}"))
    run("runs", original)
    path, runs = folder / "job.yaml", folder / "runs"
    job = Job(path, runs)
    sample = draw_labels(job, 40, job.directory / "audit")
    answers = answer(job, sample, 1, folder)
    apply_answers(job, [answers], job.directory / "audit")
    people = labels_by_pair(job.dataset, "qrels-people")
    changed = next(document for _, document in people if document.startswith("doc-"))
    rows = read_rows(folder / "small.jsonl")
    write_rows(folder / "small.jsonl", [
        {**row, "text": row["text"] + " A sentence that nobody has read."} if row["id"] == changed else row
        for row in rows
    ])  # fmt: skip
    run("runs", original)
    now = labels_by_pair(job.dataset, "qrels-people")
    # A generated negative returns with its answer if the query that had removed it has fallen.
    asked = {(item.query, item.document): level for item, level in answered(sample, answers)}
    assert now and all(document != changed for _, document in now) and now.items() <= asked.items()
    found = score_labels(Job(path, runs), [answers], job.directory / "audit")
    assert found.gone >= 1 and found.overall.count + found.gone + found.unanswered >= 40 - 1


def test_private_labels_stay_private(done: Run, folder: Path, tmp_path: Path) -> None:
    secret = {**WORDS, "target: 4": "target: 12", "control:": "export: {splits: {dev: 1, test: 1}}\ncontrol:"}
    dataset = done("runs", secret).directory / "dataset"
    job = Job(folder / "job.yaml", folder / "runs")
    sample = draw_labels(job, 40, job.directory / "audit")
    apply_answers(job, [answer(job, sample, 2, folder)], job.directory / "audit")
    public_part(dataset, tmp_path / "public", ["test"])
    labels_part(dataset, tmp_path / "private", ["test"])
    files = {one.relative_to(tmp_path / "public").as_posix() for one in (tmp_path / "public").rglob("*")}
    assert not [name for name in files if name.startswith("qrels") and "test" in name]
    assert (tmp_path / "private" / "qrels-people" / "test.tsv").is_file()
    assert NOTE not in load_manifest(tmp_path / "public").notes
    text = "".join(one.read_text("utf-8") for one in (tmp_path / "public").rglob("*") if one.suffix in (".json", ".md"))
    assert "it is about something else" not in text
    assert [one for one in verify(tmp_path / "public") if one.severity == "error"] == []
    whole = "".join(one.read_text("utf-8") for one in dataset.rglob("*.*") if one.is_file())
    assert "it is about something else" not in whole  # a person's words are no part of any dataset


def test_a_dataset_without_its_job(done: Run, folder: Path, tmp_path: Path) -> None:
    dataset = done("runs", WORDS).directory / "dataset"
    before, audit = labels_by_pair(dataset), tmp_path / "audit"
    sample = draw_labels(dataset, 12, audit)
    assert sample.levels == {0: "not relevant", 1: "superficially relevant, but actually not",
                             2: "somewhat relevant", 3: "relevant"}  # fmt: skip
    lost = next(n for n, one in enumerate(sample.items, 1) if one.relevant)
    answers = {str(n): 0 if n == lost else 3 if one.relevant else 0 for n, one in enumerate(sample.items, 1)}
    path = tmp_path / "answers.json"
    path.write_text(json.dumps({"key": sample.key, "answers": answers}), encoding="utf-8")
    found = apply_answers(dataset, [path], audit)
    assert (found.before, found.version, labels_by_pair(dataset)) == ("0.1", "0.2", before)
    assert [one for one in verify(found.dataset) if one.severity == "error"] == []
    after, item = labels_by_pair(found.dataset), sample.items[lost - 1]
    assert after.get((item.query, item.document), 0) == 0
    rest = {pair: score for pair, score in before.items() if pair[0] != item.query}
    assert {pair: after[pair] for pair in rest} == rest
    assert len(label_rows(found.dataset)) <= len(label_rows(dataset))
    with pytest.raises(DatasetError, match="no answer has a level"):
        path.write_text(json.dumps({"key": sample.key, "answers": {"1": None}}), encoding="utf-8")
        apply_answers(dataset, [path], audit)


@pytest.mark.parametrize(
    ("figures", "bad", "words"),
    [
        ("0.601 (0.359–0.801), 16 of 30", True, "16 of 30 labels, so 36% to 80% of all are right: correct the labels"),
        ("0.967 (0.830–0.990), 29 of 30", False, "29 of 30 labels, so 83% to 99% of all are right"),
        ("0.900 (0.700–0.960), 27 of 30", False, "have more labels checked for a narrower interval"),
    ],
)
def test_the_verdict_sounds_as_the_labels_are(figures: str, bad: bool, words: str) -> None:
    text, mend = labels_of({CONFIRMED: figures})
    assert words in text and mend == bad
    whole = whole_verdict("a is the best, if the labels are right", {CONFIRMED: figures}, ". No person")
    assert whole.startswith("do not rely on these scores yet") == bad and "No person" not in whole
    assert whole_verdict("a is the best", None, ". No person") == "a is the best. No person"
