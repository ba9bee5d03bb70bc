"""What people wrote is never lost: their files are read back, merged, and copied before they are replaced."""

import csv
import io
import json
import multiprocessing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from beir_folder import read_rows
from command_line import call
from job_maker import Run

from airgen.audit.answers import add_answer, answers_of, read_answers, saved_answers
from airgen.audit.holes import Ledger
from airgen.audit.labels import audited_items, draw_labels, score_labels
from airgen.audit.sample import (
    AuditItem,
    AuditSample,
    earlier_samples,
    four_levels,
    load_sample,
    write_sample,
    yes_or_no,
)
from airgen.dataset.verify import verify
from airgen.errors import DatasetError
from airgen.evaluation import run_from_dict, write_run
from airgen.job import Job
from airgen.storage.whole_files import keep_copy

ITEMS = tuple(AuditItem(f"q{n}", f"d{n}", "positive", 3, True, f"query {n}", "", f"text {n}") for n in range(1, 7))


def sample(*numbers: int, dataset: str = "toy") -> AuditSample:
    return AuditSample(dataset, 2, tuple(ITEMS[n - 1] for n in numbers), {"positive, level 3": 30})


def fill(path: Path, levels: Mapping[int, int | str]) -> None:
    """Fill in the table as a spreadsheet does."""
    rows = list(csv.DictReader(io.StringIO(path.read_text("utf-8-sig"))))
    for row in rows:
        row["level"] = str(levels.get(int(row["number"]), row["level"]))
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def test_a_copy_is_kept_once_for_each_content(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    assert keep_copy(path, "new") is None
    for text, copy in (("one", "a.1.csv"), ("two", "a.2.csv"), ("one", "a.1.csv")):
        path.write_text(text)
        assert keep_copy(path, text) is None
        assert keep_copy(path, "new") == tmp_path / copy and (tmp_path / copy).read_text() == text
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.1.csv", "a.2.csv", "a.csv"]


def test_a_table_that_is_filled_in_stays_when_the_sample_is_drawn_again(tmp_path: Path) -> None:
    write_sample(sample(1, 2, 3), tmp_path)
    fill(tmp_path / "audit.csv", {1: 3, 3: 0})
    write_sample(sample(1, 2, 3), tmp_path)  # the same pairs
    assert read_answers(tmp_path / "audit.csv", sample(1, 2, 3).key, 3).answers == {1: 3, 3: 0}
    first = sample(1, 2, 3)
    write_sample(sample(3, 4, 1), tmp_path)  # others
    assert (tmp_path / "audit.csv").read_bytes().startswith(b"\xef\xbb\xbfnumber,")  # as Excel wants it
    with pytest.raises(DatasetError, match="no answer"):
        read_answers(tmp_path / "audit.csv", sample(3, 4, 1).key, 3)
    earlier = earlier_samples(tmp_path)
    assert set(earlier) == {first.key}
    old = tmp_path / "earlier" / first.key
    assert {one.name for one in old.iterdir()} == {"audit.csv", "audit.html", "sample.json"}
    # Its numbers are those of the earlier sample, so it is not read as answers to the new one; its pairs are.
    with pytest.raises(DatasetError, match="answers to another sample"):
        read_answers(old / "audit.csv", sample(3, 4, 1).key, 3)
    found, elsewhere = answers_of(old / "audit.csv", sample(3, 4, 1), earlier)
    assert (found.answers, elsewhere) == ({1: 0, 3: 3}, 0)
    found, elsewhere = answers_of(old / "audit.csv", sample(4, 5, 1), earlier)
    assert (found.answers, elsewhere) == ({3: 3}, 1)


def test_a_table_that_is_no_table_any_more_is_copied(tmp_path: Path) -> None:
    write_sample(sample(1, 2), tmp_path)
    for text in ("my notes", "\x00\xff", ""):
        (tmp_path / "audit.csv").write_bytes(text.encode("latin-1"))
        write_sample(sample(1, 2), tmp_path)
        copies = [one.read_bytes().decode("latin-1") for one in tmp_path.glob("audit.[0-9].csv")]
        assert (text in copies) == bool(text)


def test_answers_to_another_sample_are_copied_before_the_table_is_written(tmp_path: Path) -> None:
    write_sample(sample(1, 2), tmp_path / "other")
    fill(tmp_path / "other" / "audit.csv", {1: 3})
    write_sample(sample(3, 4), tmp_path / "audit")
    answered = (tmp_path / "other" / "audit.csv").read_bytes()
    (tmp_path / "audit" / "audit.csv").write_bytes(answered)
    write_sample(sample(3, 4), tmp_path / "audit")
    assert (tmp_path / "audit" / "audit.1.csv").read_bytes() == answered


def _answer(path: str, which: int) -> None:
    for number in range(1, 7):
        if number % 2 == which:
            add_answer(Path(path), sample(1, 2, 3, 4, 5, 6), {"number": number, "level": number % 4})
            add_answer(Path(path), sample(1, 2, 3, 4, 5, 6),
                       {"query": f"x{which}{number}", "document": "d", "level": 1, "seen": True})  # fmt: skip


def test_two_servers_on_one_audit_lose_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "audit-answers.json"
    context = multiprocessing.get_context("fork")
    for _ in range(5):
        path.unlink(missing_ok=True)
        servers = [context.Process(target=_answer, args=(str(path), which)) for which in (0, 1)]
        for one in servers:
            one.start()
        for one in servers:
            one.join()
        found = saved_answers(path, sample(1, 2, 3, 4, 5, 6))
        assert found.answers == {n: n % 4 for n in range(1, 7)} and len(found.others) == 6


def test_answers_stay_valid_where_their_pairs_exist(run: Run, done: Run, folder: Path) -> None:
    """After pairs are gone, or decided otherwise, the other answers count; a live report's are carried along."""
    path, runs = folder / "job.yaml", folder / "runs"
    dataset = done("runs").directory / "dataset"
    job = Job(path, runs)
    drawn = draw_labels(job, 20, job.directory / "audit")
    live = job.directory / "audit" / "audit-answers.json"
    for number in range(1, 21):
        add_answer(live, drawn, {"number": number, "level": 3 if drawn.items[number - 1].relevant else 0})
    whole = score_labels(job, [live], job.directory / "audit")
    assert (whole.overall.share, whole.gone, whole.unanswered) == (pytest.approx(1.0), 0, 0)
    # A copy of the card that a person edited is kept with the dataset.
    card = dataset / "README.md"
    card.write_text(card.read_text("utf-8") + "\nOur own words.\n", encoding="utf-8")
    score_labels(job, [live], job.directory / "audit")
    assert "Our own words." in (job.directory / "README.1.md").read_text("utf-8")
    assert not [one for one in verify(dataset) if one.severity == "error"]
    # Another sample: the answers to pairs of both are there already, and the old file still scores.
    copied = folder / "downloaded.json"
    copied.write_bytes(live.read_bytes())
    again = draw_labels(job, 25, job.directory / "audit", seed=1)
    both = {(one.query, one.document) for one in drawn.items} & {(one.query, one.document) for one in again.items}
    assert len(saved_answers(live, again).answers) == len(both) > 0
    found = score_labels(job, [copied], job.directory / "audit")
    assert (found.unanswered, found.of_other_pairs) == (25 - len(both), 20 - len(both))
    # Fewer queries: some pairs of the sample have no label any more.
    smaller = run("runs", {"target: 4": "target: 2"})
    assert smaller.manifest is not None
    job = Job(folder / "job.yaml", runs)
    gone = {(one.query, one.document) for one in again.items} - {
        (one.query, one.document) for one in audited_items(job)
    }
    said = call("audit", "score", folder / "job.yaml", live, "--runs", runs)
    assert (f"{len(gone)} pairs of the sample are no longer in the dataset" in said) == bool(gone)


def test_a_card_that_was_edited_is_kept_when_the_dataset_is_exported_again(run: Run, done: Run, folder: Path) -> None:
    result = done("runs")
    card = result.directory / "dataset" / "README.md"
    card.write_text("my own card\n", encoding="utf-8")
    run("runs", {"target: 4": "target: 5"})
    assert card.read_text("utf-8") != "my own card\n"
    assert (result.directory / "README.1.md").read_text("utf-8") == "my own card\n"


def test_init_keeps_what_it_replaces_and_labelling_keeps_a_file_that_says_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (folder / "docs").mkdir()
    for number in range(5):
        (folder / "docs" / f"{number}.txt").write_text(
            f"Bees of kind {number} find flowers by colour and by scent. " * 9
        )
    call("init", "docs", "--out", "here")
    mine = (folder / "here" / "pipeline.yaml").read_text() + "# my own words\n"
    (folder / "here" / "pipeline.yaml").write_text(mine)
    said = call("init", "docs", "--out", "here", "--force")
    assert "the previous versions are kept as here/pipeline.1.yaml" in said
    assert (folder / "here" / "pipeline.1.yaml").read_text() == mine


# -- holes -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def holes(dataset: Path, tmp_path: Path) -> Any:
    """`airgen audit holes` of a run, with JSON."""
    path = tmp_path / "a.run"
    hits = {"q1": {"p3": 3.0, "p1": 2.0, "p5": 1.0}, "q2": {"p4": 2.0, "p1": 1.0, "p5": 0.5}}
    write_run(path, run_from_dict(hits), "t")

    def go(*words: object) -> dict[str, Any]:
        said = call("audit", "holes", dataset, "--run", path, "--out", tmp_path / "out", "--json", *words)
        return dict(json.loads(said))

    return go


def test_labels_that_people_wrote_into_the_file_count_and_stay(holes: Any, tmp_path: Path) -> None:
    path = tmp_path / "out" / "holes.jsonl"
    first = holes()
    rows = read_rows(path)
    assert (first["judged"], len(rows)) == (0, first["holes"]) and all(row["score"] is None for row in rows)
    before = path.read_bytes()
    assert holes() == first and path.read_bytes() == before
    rows[0] |= {"score": "1", "why": "it names the bee"}
    rows[1] |= {"score": 0}
    rows[2] |= {"why": "ask Ann"}
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")  # without the last end of line
    second = holes()
    assert (second["judged"], second["by_people"], second["relevant"]) == (2, 2, 1)
    assert second["systems"][0]["after"] != first["systems"][0]["after"]  # the table is printed again
    kept = {(row["query-id"], row["corpus-id"]): row for row in read_rows(path)}
    assert len(kept) == len(rows)
    assert kept[rows[0]["query-id"], rows[0]["corpus-id"]]["why"] == "it names the bee"
    assert kept[rows[2]["query-id"], rows[2]["corpus-id"]]["why"] == "ask Ann"
    assert holes() == second and len(read_rows(tmp_path / "out" / "judgments.jsonl")) == 2
    # Another depth wants other pairs: what is labelled stays in the file, a remark on another pair in a copy.
    holes("--depth", 1)
    assert len([row for row in read_rows(path) if row["score"] is not None]) == 2
    copies = "".join(one.read_text() for one in path.parent.glob("holes.[0-9].jsonl"))
    assert "ask Ann" in copies + path.read_text()


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"query-id": "q1"}',
        '{"query-id": "q", "corpus-id": "p", "score": "yes"}',
        '{"query-id": "q", "corpus-id": "p", "score": 1e999}',
    ],
)
def test_a_line_that_cannot_be_read_changes_nothing(holes: Any, tmp_path: Path, line: str) -> None:
    holes()
    path = tmp_path / "out" / "holes.jsonl"
    text = path.read_text().replace('"score":null', '"score":1', 1).replace('"score": null', '"score": 1', 1)
    path.write_text(text + line + "\n")
    with pytest.raises(DatasetError, match=rf"holes\.jsonl:{text.count(chr(10)) + 1}: not a pair with a score"):
        holes()
    assert path.read_text() == text + line + "\n"


def test_the_page_and_the_table_of_holes_are_read_back(holes: Any, tmp_path: Path) -> None:
    holes()
    out = tmp_path / "out"
    drawn = load_sample(out / "sample.json")
    assert "Systems retrieved these documents" in (out / "audit.html").read_text("utf-8")
    assert drawn.levels == {0: "no", 2: "yes"}  # as this dataset's labels
    fill(out / "audit.csv", {1: "Yes"})
    saved = tmp_path / "audit-answers.json"
    saved.write_text(json.dumps({"key": drawn.key, "answers": {"2": 0, "3": None}}))
    found = holes("--answers", saved)
    assert (found["judged"], found["by_people"], found["relevant"]) == (2, 2, 1)
    judged = Ledger(out / "judgments.jsonl").judged
    one, two = ((item.query, item.document) for item in drawn.items[:2])
    assert (judged[one].label, judged[one].level, judged[one].by) == (1.0, 2, "people")
    assert (judged[two].label, judged[two].level) == (0.0, 0)
    # Answers are to pairs: they count after the page was drawn for others.
    holes("--depth", 1)
    more = tmp_path / "more.json"
    more.write_text(json.dumps({"key": drawn.key, "answers": {"3": 2}}))
    assert holes("--answers", more)["judged"] == 3


def test_a_person_overrules_a_model_and_not_the_other_way(
    holes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "judge_of_all.py").write_text("def judge(query, passage):\n    return 1\n")
    monkeypatch.chdir(tmp_path)
    first = holes("--judge", "judge_of_all:judge")
    assert first["judged"] == first["relevant"] > 0
    row = read_rows(tmp_path / "out" / "judgments.jsonl")[0]
    with (tmp_path / "out" / "holes.jsonl").open("a") as file:
        file.write(json.dumps({"query-id": row["query-id"], "corpus-id": row["corpus-id"], "score": 0}) + "\n")
    second = holes("--judge", "judge_of_all:judge")
    assert (second["relevant"], second["by_people"]) == (first["relevant"] - 1, 1)


def test_the_last_line_of_an_editor_without_its_end_is_a_judgment(tmp_path: Path) -> None:
    path = tmp_path / "judgments.jsonl"
    path.write_text(
        '{"query-id": "q", "corpus-id": "p", "score": 1}\n\n{"query-id": "q", "corpus-id": "r", "score": 0}'
    )
    assert len(Ledger(path).judged) == 2 and path.read_text().endswith("0}\n")


TABLE = [
    ["number", "query", "title", "text", "level", "why", "sample"],
    ["1", 'the "Über" mode', "Größe", "one\nline; and, another", "2", "nennt es; genau", sample(1, 2, 3).key],
    ["2", "b", "", "text", "", "", sample(1, 2, 3).key],
    ["3", "c", "", "text", "0", "", sample(1, 2, 3).key],
]


def saved(delimiter: str, number: str = "{}") -> str:
    """The table as a spreadsheet saves it, with its delimiter and its form of whole numbers."""
    stream = io.StringIO()
    rows = [[number.format(cell) if cell.isdigit() and len(cell) == 1 else cell for cell in row] for row in TABLE]
    csv.writer(stream, delimiter=delimiter).writerows(rows)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("answers.csv", saved(",").encode("utf-8-sig")),
        ("answers.csv", saved(";").encode("cp1252")),
        ("answers.csv", ("sep=;\r\n" + saved(";")).encode()),
        ("answers.txt", saved("\t").encode("utf-16")),
        ("ANSWERS.CSV", saved(",").replace("number,", "Number,").replace("level,", "Level,").encode()),
        ("answers.tsv", saved("\t").encode()),
        ("pandas.csv", saved(",", "{}.0").encode()),
        ("german.csv", saved(";", "{},0").encode("utf-8-sig")),
    ],
)
def test_a_table_from_any_spreadsheet(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    person = read_answers(tmp_path / name, sample(1, 2, 3).key, 3)
    assert (person.answers, person.reasons) == ({1: 2, 3: 0}, {1: "nennt es; genau"})
    # What stands in the folder's own table stays when the page is written again.
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "audit.csv").write_bytes(content)
    write_sample(sample(1, 2, 3), tmp_path / "out")
    assert read_answers(tmp_path / "out" / "audit.csv", sample(1, 2, 3).key, 3).answers == {1: 2, 3: 0}


@pytest.mark.parametrize(
    ("word", "graded", "binary"),
    [
        *[("x", None, None), ("?", None, None), ("Yes", "fails", 2), ("n", "fails", 0), ("1", 1, 2), ("3", 3, 3)],
        *[("0", 0, 0), ("\u0662", 2, 2), ("Somewhat relevant", 2, "fails"), ("-1", "fails", "fails")],
        *[
            ("4", "fails", "fails"),
            ("1.5", "fails", "fails"),
            ("9" * 400, "fails", "fails"),
            ("=1+1", "fails", "fails"),
        ],
    ],
)
def test_levels_in_words(word: str, graded: Any, binary: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"number,level\n1,{word}\n2,0\n", encoding="utf-8")
    for levels, expected, advice in ((four_levels(), graded, "0, 1, 2 or 3"), (yes_or_no(2), binary, "yes or no")):
        if expected == "fails":
            with pytest.raises(DatasetError, match=rf"a\.csv:2: level .*: write {advice}, or x if you cannot say"):
                read_answers(path, "key", 2, levels)
        else:
            assert read_answers(path, "key", 2, levels).answers == {1: expected, 2: 0}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04\x00\x00", "is a ZIP archive .*save it as CSV"),
        (b"number,query\n1,a\n", "no column 'level'"),
        (b"number,level\none,2\n", "a.csv:2: 'one' is not the number of a pair"),
        (b"", "no column 'number'"),
    ],
)
def test_a_file_that_is_no_table_of_answers(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(DatasetError, match=message):
        read_answers(tmp_path / "a.csv", "key", 2)
