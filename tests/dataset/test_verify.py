"""`verify` names each kind of damage; an untouched directory has no problem."""

import dataclasses
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from dataset_maker import make_content

from airgen.components.keys import file_sha256
from airgen.dataset.content import CorpusRow, QrelRow
from airgen.dataset.manifest import FileEntry, data_digest, load_manifest, manifest_text
from airgen.dataset.verify import damaged_file, secrets_in, verify
from airgen.dataset.write import write_dataset
from airgen.errors import DatasetError
from airgen.publishing.withhold import labels_part


def edit(path: Path, change: Callable[[str], str]) -> None:
    path.write_bytes(change(path.read_bytes().decode()).encode())


def rehash(directory: Path) -> None:
    """A careful forger: the manifest's hashes are those of the edited files."""
    manifest = load_manifest(directory)
    files = {
        name: FileEntry((directory / name).stat().st_size, file_sha256(directory / name))
        for name in manifest.files
        if (directory / name).exists()
    }
    manifest = dataclasses.replace(manifest, files=files, digest=data_digest(files))
    (directory / "manifest.json").write_text(manifest_text(manifest))


def kinds(directory: Path) -> set[tuple[str, str]]:
    return {(problem.kind, problem.file) for problem in verify(directory)}


def add_line(row: dict[str, Any]) -> Callable[[str], str]:
    return lambda text: text + json.dumps(row) + "\n"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"pipeline.yaml"', '"../../secrets"', "'../../secrets' lies outside the dataset"),
        ('"pipeline.yaml"', '"/etc/hostname"', "'/etc/hostname' lies outside the dataset"),
        ('"pipeline.yaml"', '"a\\u0000b"', "lies outside the dataset"),
        ('"dev": {', '"../dev": {', "split '../dev' cannot be a part"),
        ('"name": "weather-notes"', '"name": "../weather"', "dataset name '../weather' cannot be used"),
        ('"graded"', '"../graded"', "variant '../graded' cannot be a part"),
        ('"task": "qa"', '"task": "chat"', "task 'chat' is unknown"),
    ],
)
def test_manifests_of_strangers_do_not_leave_the_directory(dataset: Path, old: str, new: str, words: str) -> None:
    edit(dataset / "manifest.json", lambda text: text.replace(old, new))
    with pytest.raises(DatasetError, match=words):
        load_manifest(dataset)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
        ('{"format": 2}', "has format 2, this airgen reads 1: read it with the airgen that wrote it"),
        ('{"format": "x"}', "export the dataset again"),
        ('{"format": 1}', "edited by hand"),
    ],
)
def test_manifests_that_cannot_be_read(dataset: Path, text: str, words: str) -> None:
    (dataset / "manifest.json").write_text(text)
    with pytest.raises(DatasetError, match=words):
        load_manifest(dataset)
    (problem,) = said(dataset)
    assert problem.startswith("error: manifest.json: ") and problem.endswith(" [manifest]")
    (dataset / "manifest.json").unlink()
    with pytest.raises(DatasetError, match="not a finished dataset"):
        load_manifest(dataset)


# -- each problem in its words -------------------------------------------------------------------------------------
# The dataset: documents doc000 to doc011. Query q-0i has the labels 1 for doc00i and the next, 0 for the one after it.
# q-02 and q-05 are in dev, the others in test: 2 and 4 queries.


def said(directory: Path) -> list[str]:
    return [str(problem) for problem in verify(directory)]


def rewrite(directory: Path, file: str, change: Callable[[str], str]) -> None:
    edit(directory / file, change)
    rehash(directory)


def without_labels_files(directory: Path, keep: str = "qrels/") -> None:
    """Only `qrels/SPLIT.jsonl` remain, so that a change of labels there is one problem and not six."""
    for path in directory.glob("qrels*/*"):
        if not path.match(f"{keep}*.jsonl"):
            path.unlink()
    set_manifest(directory, variants=())
    rehash(directory)


def set_manifest(directory: Path, **changes: Any) -> None:
    manifest = dataclasses.replace(load_manifest(directory), **changes)
    (directory / "manifest.json").write_text(manifest_text(manifest))


def without_metadata(text: str) -> str:
    rows = [{**json.loads(line), "metadata": None} for line in text.split("\n")[:-1]]
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("queries.jsonl", without_metadata),  # its split is not known
        ("qrels/dev.jsonl", lambda text: text.replace('"score": 1', '"score": 0.5')),
        ("qrels/dev.tsv", lambda text: text + "\n"),
    ],
)
def test_what_is_no_problem(dataset: Path, file: str, change: Callable[[str], str]) -> None:
    if file == "qrels/dev.jsonl":
        without_labels_files(dataset)
    rewrite(dataset, file, change)
    assert said(dataset) == []


@pytest.mark.parametrize("extra", [20, 21])
def test_twenty_problems_of_a_kind_are_listed_and_the_others_counted(dataset: Path, extra: int) -> None:
    rows = "".join(json.dumps({"_id": f"2024-01-{i:02d}", "text": ""}) + "\n" for i in range(1, extra + 1))
    rewrite(dataset, "corpus.jsonl", lambda text: text + rows)
    problems = verify(dataset)
    listed = min(extra, 20)
    for kind, severity in (("empty", "error"), ("date", "warning")):
        mine = [problem for problem in problems if problem.kind == kind]
        assert {problem.severity for problem in mine} == {severity}
        assert len(mine) == listed + (extra > 20)
        assert [p.message for p in mine[listed:]] == ([f"and {extra - 20} more"] if extra > 20 else [])
    assert problems[0].message == "line 13: document '2024-01-01' has no text"
    count = next(problem for problem in problems if problem.kind == "count")
    assert str(count) == f"error: corpus.jsonl: contains {12 + extra} documents, but the manifest says 12 [count]"


def test_what_the_system_cannot_read_is_a_problem(dataset: Path) -> None:
    name = "x" * 300
    set_manifest(dataset, files={**load_manifest(dataset).files, name: FileEntry(1, "0")})
    assert said(dataset) == [f"error: {dataset / name}: cannot be read: File name too long [unreadable]"]
    assert damaged_file(dataset) == "manifest.json"


def test_the_first_damaged_file(dataset: Path) -> None:
    assert damaged_file(dataset) is None
    edit(dataset / "README.md", lambda text: text + "by hand")
    assert damaged_file(dataset) is None, "a card may be edited"
    edit(dataset / "queries.jsonl", lambda text: text.replace("about", "tuoba", 1))
    assert damaged_file(dataset) == "queries.jsonl", "of the same size"
    edit(dataset / "corpus.jsonl", lambda text: text[:-1])
    assert damaged_file(dataset) == "corpus.jsonl"
    (dataset / "README.md").unlink()
    assert damaged_file(dataset) == "README.md"
    write_dataset(dataset, make_content())
    files = dict(load_manifest(dataset).files)
    set_manifest(dataset, files=files | {"corpus.jsonl": dataclasses.replace(files["corpus.jsonl"], bytes=1)})
    assert damaged_file(dataset) == "corpus.jsonl" and kinds(dataset) == {("hash", "corpus.jsonl")}
    (dataset / "manifest.json").unlink()
    assert damaged_file(dataset) == "manifest.json"


def test_problems_of_files_and_their_words(dataset: Path) -> None:
    (dataset / "qrels/dev.tsv").unlink()
    (dataset / "qrels/test.tsv").unlink()
    (dataset / "qrels/test.tsv").symlink_to("/etc/hostname")
    edit(dataset / "pipeline.yaml", lambda text: text + "# more\n")
    (dataset / "notes").mkdir()
    (dataset / "notes" / "a.txt").write_text("x")
    (dataset / "b.txt").symlink_to(dataset / "corpus.jsonl")
    set_manifest(dataset, digest="0" * 64)
    assert said(dataset) == [
        "error: pipeline.yaml: its size or SHA-256 differs from the manifest: it was changed after the export [hash]",
        "error: qrels/dev.tsv: is in the manifest but not in the directory [missing]",
        "error: qrels/test.tsv: is a link to a place outside the dataset [path]",
        "error: b.txt: is not in the manifest [extra]",
        "error: notes/a.txt: is not in the manifest [extra]",
        "error: manifest.json: its digest does not match its files: it was edited [hash]",
        "error: qrels/test.tsv: its labels differ from those of the JSONL file of the same name [variant]",
    ]


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl"])
def test_a_file_that_is_missing_is_not_an_unreadable_one(dataset: Path, name: str) -> None:
    (dataset / name).unlink()
    found = {problem.kind for problem in verify(dataset)}
    assert found == {"missing", "count", "dangling"}
    assert said(dataset)[0] == f"error: {name}: is in the manifest but not in the directory [missing]"


def test_what_a_download_from_the_hub_brings_is_no_error(dataset: Path, tmp_path: Path) -> None:
    (dataset / ".gitattributes").write_text("*.bin filter=lfs\n")
    (dataset / ".cache" / "huggingface").mkdir(parents=True)
    (dataset / ".cache" / "huggingface" / "CACHEDIR.TAG").touch()
    assert said(dataset) == []
    cached = tmp_path / "snapshots" / "0123"
    cached.mkdir(parents=True)
    for path in [path for path in dataset.rglob("*") if path.is_file()]:
        (cached / path.relative_to(dataset)).parent.mkdir(parents=True, exist_ok=True)
        (cached / path.relative_to(dataset)).symlink_to(path)
    assert "outside the dataset, as in the Hub's cache: download it into a folder (local_dir)" in said(cached)[0]


def test_links_inside_the_dataset_are_allowed_and_loops_are_missing_files(dataset: Path) -> None:
    (dataset / "corpus.jsonl").rename(dataset / "notes.txt")
    (dataset / "corpus.jsonl").symlink_to("notes.txt")
    assert said(dataset) == ["error: notes.txt: is not in the manifest [extra]"]
    (dataset / "README.md").unlink()
    (dataset / "README.md").symlink_to("README.md")
    assert ("missing", "README.md") in kinds(dataset)


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl"])
def test_corpus_and_queries_must_be_in_the_manifest(dataset: Path, name: str) -> None:
    files = {file: entry for file, entry in load_manifest(dataset).files.items() if file != name}
    set_manifest(dataset, files=files, digest=data_digest(files))
    assert said(dataset) == [
        f"error: {name}: is not in the manifest [extra]",
        f"error: {name}: is not in the manifest [missing]",
    ]


def test_a_part_with_labels_alone_is_whole(dataset: Path, tmp_path: Path) -> None:
    labels_part(dataset, tmp_path / "l", ["test"])
    assert said(tmp_path / "l") == []
    rewrite(tmp_path / "l", "README.md", lambda text: text + "token: 0123456789abcdef\n")
    assert [problem.kind for problem in verify(tmp_path / "l")] == ["secret"]


def test_what_a_public_part_must_not_hold(dataset: Path) -> None:
    without_labels_files(dataset)
    said_whole = said(dataset)
    set_manifest(dataset, withheld=("test",))
    leak = (
        "error: qrels/test.jsonl: the manifest says that the labels of test are withheld, "
        "but they are in the dataset [leak]"
    )
    assert said_whole == [] and said(dataset) == [leak], "the lineage may be in a whole dataset"
    set_manifest(dataset, part="public")
    assert said(dataset) == [
        leak,
        "error: private/: the lineage is in the dataset although labels are withheld, and reveals them [leak]",
    ]
    shutil.rmtree(dataset / "private")
    with_answers(dataset, ANSWER)
    assert said(dataset) == [leak.replace("qrels", "answers", 1), leak]
    shutil.rmtree(dataset / "answers")
    (dataset / "qrels/test.jsonl").unlink()
    rehash(dataset)
    assert said(dataset) == []


NO_OBJECT, NO_ID = "is not a JSON object [line]", "is empty or contains whitespace: TREC files cannot contain it [id]"
LACKS = "line 7 lacks query-id, corpus-id or a number as score [line]"
LABEL = {"query-id": "q-02", "corpus-id": "doc011", "score": 1}


@pytest.mark.parametrize(
    ("file", "line", "expected"),
    [
        ("corpus.jsonl", "[1]", f"line 13 {NO_OBJECT}"),
        ("corpus.jsonl", "", f"line 13 {NO_OBJECT}"),
        ("corpus.jsonl", "[" * 100_000, f"line 13 {NO_OBJECT}"),
        ("queries.jsonl", "{", f"line 7 {NO_OBJECT}"),
        ("qrels/dev.jsonl", "\udcff", f"line 7 {NO_OBJECT}"),
        ("corpus.jsonl", {"_id": "a b", "text": "x"}, f"line 13: document id 'a b' {NO_ID}"),
        ("corpus.jsonl", {"_id": 7, "text": "x"}, f"line 13: document id '' {NO_ID}"),
        ("queries.jsonl", {"text": "x"}, f"line 7: query id '' {NO_ID}"),
        ("qrels/dev.jsonl", {}, LACKS),
        ("qrels/dev.jsonl", LABEL | {"query-id": 2}, LACKS),
        ("qrels/dev.jsonl", LABEL | {"corpus-id": 11}, LACKS),
        ("qrels/dev.jsonl", LABEL | {"score": "1"}, LACKS),
        ("qrels/dev.jsonl", LABEL | {"score": True}, LACKS),
        ("qrels/dev.jsonl", LABEL | {"corpus-id": "doc002"},
         "line 7: query 'q-02' and document 'doc002' appear twice [duplicate]"),
        ("queries.jsonl", {"_id": "q-02", "text": "again", "metadata": {"split": "dev"}},
         "line 7: query id 'q-02' appears twice [duplicate]"),
        ("corpus.jsonl", {"_id": "doc011", "text": "x"}, "line 13: document id 'doc011' appears twice [duplicate]"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_the_only_problem(dataset: Path, file: str, line: Any, expected: str) -> None:
    without_labels_files(dataset)
    path, text = dataset / file, line if isinstance(line, str) else json.dumps(line)
    path.write_bytes(path.read_bytes() + text.encode(errors="surrogateescape") + b"\n")
    assert ("hash", file) in kinds(dataset)
    rehash(dataset)
    assert said(dataset) == [f"error: {file}: {expected}"]


def test_texts_that_are_missing_or_empty(dataset: Path) -> None:
    def emptied(text: str) -> str:
        rows = [json.loads(line) for line in text.split("\n")[:-1]]
        rows[0]["text"], rows[1]["text"] = " \n", None
        del rows[2]["text"]
        return "".join(json.dumps(row) + "\n" for row in rows)

    rewrite(dataset, "queries.jsonl", emptied)
    rewrite(dataset, "corpus.jsonl", emptied)
    assert said(dataset) == [
        f"error: {file}.jsonl: line {number}: {what} {name!r} has no text [empty]"
        for file, what, names in (
            ("queries", "query", ("q-00", "q-01", "q-02")),
            ("corpus", "document", ("doc000", "doc001", "doc002")),
        )
        for number, name in enumerate(names, 1)
    ]


COUNT = "its numbers of queries and labels differ from the manifest's [count]"


@pytest.mark.parametrize(
    ("file", "pairs", "expected"),
    [
        ("qrels/dev.jsonl", [("q-77", "doc000"), ("q-02", "doc077")],
         ["query 'q-77' is not in queries.jsonl [dangling]",
          "document 'doc077' is not in the corpus [dangling]", COUNT]),
        ("qrels/test.jsonl", [("q-02", "doc000")],
         ["query 'q-02' belongs to 'dev' according to queries.jsonl [split]",
          "query 'q-02' is also in 'dev': splits overlap [split]", COUNT]),
    ],
)  # fmt: skip
def test_labels_of_what_is_not_there(
    dataset: Path, file: str, pairs: list[tuple[str, str]], expected: list[str]
) -> None:
    without_labels_files(dataset)
    lines = [json.dumps({"query-id": q, "corpus-id": d, "score": 1}) + "\n" for q, d in pairs]
    rewrite(dataset, file, lambda text: text + "".join(lines))
    assert said(dataset) == [f"error: {file}: {line}" for line in expected]


def test_a_query_that_nothing_answers_has_no_labels(dataset: Path) -> None:
    without_labels_files(dataset)
    rewrite(
        dataset, "queries.jsonl", lambda text: text.replace('"split": "dev"', '"split": "dev", "answered": false', 1)
    )
    assert said(dataset) == [
        "error: qrels/dev.jsonl: query 'q-02' has labels, but is marked as answered: false [positive]",
        f"error: qrels/dev.jsonl: {COUNT}",
    ]


def test_queries_without_a_label_or_a_positive(dataset: Path) -> None:
    """Only q-05 has a positive then; q-02 has one score below 0, which is not one."""
    without_labels_files(dataset)

    def change(text: str) -> str:
        rows = [json.loads(line) for line in text.split("\n")[:-1]]
        for row in rows:
            if row["query-id"] == "q-02":
                row["score"] = min(0, row["score"] - 1)
        return "".join(json.dumps(row) + "\n" for row in rows)

    rewrite(dataset, "qrels/dev.jsonl", change)
    rewrite(dataset, "qrels/test.jsonl", lambda text: "".join(text.splitlines(keepends=True)[3:]))
    assert said(dataset) == [
        "error: qrels/dev.jsonl: query 'q-02' has no relevant document [positive]",
        "error: queries.jsonl: query 'q-00' has no labels [positive]",
        f"error: qrels/dev.jsonl: {COUNT}",
        f"error: qrels/test.jsonl: {COUNT}",
    ]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text + "q-02\tdoc011\t1\n",
        lambda text: text.replace("q-05\tdoc006\t1\n", ""),
        lambda text: text.replace("doc002\t1", "doc002\t0"),
        lambda text: text.replace("q-02\tdoc002\t1", "q-02 doc002 1"),
        lambda text: text.partition("\n")[2],  # no header: the first label is taken for it
        lambda text: text + "\udcff",
    ],
)
@pytest.mark.parametrize("file", ["qrels/dev.tsv", "qrels-graded/dev.tsv"])
def test_a_tsv_that_differs_from_its_jsonl(dataset: Path, file: str, change: Callable[[str], str]) -> None:
    path = dataset / file
    text = path.read_bytes().decode()
    if "graded" in file:
        text = text.replace("doc002\t3", "doc002\t1")
        assert "doc002\t1" in text
    path.write_bytes(change(text).encode(errors="surrogateescape"))
    rehash(dataset)
    assert said(dataset) == [
        f"error: {file}: its labels differ from those of the JSONL file of the same name [variant]"
    ]


@pytest.mark.parametrize(
    ("variant", "row"),
    [
        ("positives", {"query-id": "q-02", "corpus-id": "doc004", "score": 1}),  # labelled 0 in qrels
        ("graded", {"query-id": "q-02", "corpus-id": "doc011", "score": 1}),
    ],
)
def test_a_variant_labels_the_same_pairs(dataset: Path, variant: str, row: dict[str, Any]) -> None:
    for path in dataset.glob("qrels*/*.tsv"):
        path.unlink()
    rehash(dataset)
    assert said(dataset) == []
    rewrite(dataset, f"qrels-{variant}/dev.jsonl", add_line(row))
    assert said(dataset) == [f"error: qrels-{variant}/dev.jsonl: does not label the same pairs as qrels [variant]"]
    rewrite(dataset, f"qrels-{variant}/dev.jsonl", lambda text: "".join(text.splitlines(keepends=True)[1:-1]))
    assert said(dataset) == [f"error: qrels-{variant}/dev.jsonl: does not label the same pairs as qrels [variant]"]


def with_answers(dataset: Path, *rows: dict[str, Any] | str) -> None:
    """`answers/test.jsonl`, which the manifest lists. doc000 begins with "Passage 0"."""
    (dataset / "answers").mkdir(exist_ok=True)
    text = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    (dataset / "answers/test.jsonl").write_text(text)
    set_manifest(dataset, files={**load_manifest(dataset).files, "answers/test.jsonl": FileEntry(0, "")})
    rehash(dataset)


ANSWER = {"query-id": "q-00", "corpus-id": "doc000", "start": 0, "end": 7, "quote": "Passage"}


def test_reference_answers_are_quotes_of_documents(dataset: Path) -> None:
    with_answers(dataset, ANSWER)
    assert said(dataset) == []
    wrong = [{**ANSWER, "end": 8}, {**ANSWER, "query-id": "q-77"}, {**ANSWER, "corpus-id": "doc077"}]
    with_answers(dataset, *wrong)
    assert said(dataset) == [
        "error: answers/test.jsonl: query 'q-77' is not in queries.jsonl [answer]",
        "error: answers/test.jsonl: query 'q-00': its quote is not at [start, end) of its document [answer]",
        "error: answers/test.jsonl: document 'doc077' is not in the corpus [answer]",
    ]
    with_answers(dataset, "[" * 100_000)
    (problem,) = verify(dataset)
    assert str(problem) == "error: answers/test.jsonl: line 1 is not a JSON object [line]"


@pytest.mark.parametrize(
    "row", [{}, {**ANSWER, "query-id": ["q"]}, {**ANSWER, "corpus-id": {}}, {**ANSWER, "end": "7"}]
)
def test_odd_answers_and_documents_are_problems(dataset: Path, row: dict[str, Any]) -> None:
    with_answers(dataset, ANSWER, row)
    edit(dataset / "corpus.jsonl", lambda text: text + '{"text": "x"}\n{"_id": "doc099"}\n')
    rehash(dataset)
    assert {("answer", "answers/test.jsonl"), ("id", "corpus.jsonl")} <= kinds(dataset)


def test_ids_that_look_like_dates_are_warnings(dataset: Path) -> None:
    names = ["2024-01-31", "2024-01-31T12", "2024-01-31 12:30", "2024-01-31T12:30:59Z", "2024-1-31", "x2024-01-31"]
    rows = "".join(json.dumps({"_id": name, "text": "x"}) + "\n" for name in names if " " not in name)
    rewrite(dataset, "corpus.jsonl", lambda text: text + rows)
    assert said(dataset) == [
        *(
            f"warning: corpus.jsonl: document id {name!r} looks like a date, so `datasets` rewrites it [date]"
            for name in ("2024-01-31", "2024-01-31T12", "2024-01-31T12:30:59Z")
        ),
        "error: corpus.jsonl: contains 17 documents, but the manifest says 12 [count]",
    ]


def test_the_numbers_of_the_manifest(dataset: Path) -> None:
    """dev: 2 queries with 4 positives and 2 negatives."""
    statistics = load_manifest(dataset).statistics

    def told(**changes: int) -> list[str]:
        dev = dataclasses.replace(statistics.splits["dev"], **changes)
        changed = dataclasses.replace(statistics, splits={**statistics.splits, "dev": dev})
        set_manifest(dataset, statistics=changed)
        return said(dataset)

    labels = f"error: qrels/dev.jsonl: {COUNT}"
    assert told(positives=4, hard_negatives=2) == []
    assert told(positives=5) == told(hard_negatives=3) == told(positives=2, hard_negatives=4) == [labels]
    assert told(queries=3) == ["error: queries.jsonl: contains 6 queries, but the manifest says 7 [count]", labels]


# -- what tells the negatives --------------------------------------------------------------------------------------


def with_negatives(folder: Path, rows: list[CorpusRow], others: Sequence[CorpusRow] = ()) -> list[str]:
    """What is said of a dataset with these documents, labelled 0 for q-00, and other documents without labels."""
    content = make_content()
    labels = [QrelRow("q-00", row.id, 0) for row in rows]
    corpus = [*content.corpus, *rows, *others]
    write_dataset(folder, make_content(corpus=corpus, qrels=[*content.qrels, *labels]))
    return said(folder)


def named(form: str, count: int, title: str = "") -> list[CorpusRow]:
    return [CorpusRow(form % i, title, "made up") for i in range(count)]


@pytest.mark.parametrize(
    ("form", "title", "shape"),
    [
        ("Neg-%d", "", "an id like 'neg-#', no title"),
        ("gen-0%dfaceb", "Title", "an id like 'gen-#', a title"),
        ("a" + "x" * 38 + "zz%d", "", f"an id like 'a{'x' * 38}z', no title"),
        ("gen-%dface", "", "an id like 'gen-#face', no title"),
    ],
)
def test_five_negatives_of_one_form_reveal_their_label(tmp_path: Path, form: str, title: str, shape: str) -> None:
    assert with_negatives(tmp_path / "four", named(form, 4, title)) == []
    for count in (5, 6):
        assert with_negatives(tmp_path / f"{count}", named(form, count, title)) == [
            f"warning: corpus.jsonl: {count} documents labelled 0, and no others, have {shape}: "
            "this reveals their label [mark]"
        ]


def test_a_form_that_other_documents_have_reveals_nothing(tmp_path: Path) -> None:
    assert with_negatives(tmp_path / "a", named("n%d", 6), named("n1%d", 1)) == []
    assert with_negatives(tmp_path / "b", named("n%d", 6), named("n1%d", 1, "Title")) != []
    assert with_negatives(tmp_path / "c", [], named("n%d", 6)) == []


def test_a_negative_of_one_query_that_another_needs_is_no_mark(tmp_path: Path) -> None:
    content, extra = make_content(), named("n%d", 6)
    labels = [QrelRow("q-00", row.id, 0) for row in extra] + [QrelRow("q-01", row.id, 1) for row in extra[:2]]
    write_dataset(tmp_path / "d", make_content(corpus=[*content.corpus, *extra], qrels=[*content.qrels, *labels]))
    assert said(tmp_path / "d") == [], "two of the six are relevant for q-01"


# -- secrets -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "hints"),
    [
        ("sk-" + "a1" * 8, ["sk-a1a..."]),
        ("(pk-" + "a_-1" * 4 + ")", ["pk-a_-..."]),
        ("rk-" + "a" * 15, []),
        ("risk-" + "a" * 16, []),
        ("hf_" + "B2" * 8, ["hf_B2B..."]),
        ("hf_" + "B" * 15, []),
        ("ghp_" + "a" * 16, ["ghp_aa..."]),
        ("gho_" + "a" * 16, ["gho_aa..."]),
        ("github_pat_" + "a" * 16, ["github..."]),
        ("AKIA" + "0" * 16, ["AKIA00..."]),
        ("AKIA" + "0" * 17, []),
        ("AIza" + "b" * 30, ["AIzabb..."]),
        ("AIza" + "b" * 29, []),
        ("api_key = '" + "c" * 16, ["api_ke..."]),
        ("API-KEY: " + "c" * 16, ["API-KE..."]),
        ("Password=" + "c/+-_0" * 3, ["Passwo..."]),
        ("token: " + "c" * 15, []),
        ("http://me:pass@host", ["http:/..."]),
        ("https://me:pass@host https://me:other@host", ["https:..."]),
        ("https://host:8000/a@b", []),
        ("sk-" + "a" * 16 + " hf_" + "b" * 16, ["hf_bbb...", "sk-aaa..."]),
        ("llm: {api_key_env: OPENAI_API_KEY}\nbase_url: http://localhost:8000/v1\ntokens: 12", []),
    ],
)
def test_what_looks_like_a_secret(text: str, hints: list[str]) -> None:
    assert secrets_in(text) == hints


@pytest.mark.parametrize("name", ["README.md", "pipeline.yaml", "manifest.json"])
def test_secrets_in_the_files_for_readers(dataset: Path, name: str) -> None:
    if name == "manifest.json":
        set_manifest(dataset, notes={"by": "token: 0123456789abcdef"})
    else:
        (dataset / name).write_bytes((dataset / name).read_bytes() + b"\xff\n# token: 0123456789abcdef\n")
        rehash(dataset)
    hint = "contains something that looks like a key or password (token:...): remove it and export again [secret]"
    assert said(dataset) == [f"error: {name}: {hint}"]
