"""What is public and what is private of a dataset: the files of each part, and what can be told from them."""

import dataclasses
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dataset_maker import INFO, make_content

from airgen.components.keys import file_sha256, text_key
from airgen.dataset.content import CorpusRow, FunnelStep
from airgen.dataset.manifest import FileEntry, Manifest, SplitStatistics, data_digest, load_manifest, manifest_text
from airgen.dataset.secret import Secret
from airgen.dataset.verify import verify
from airgen.dataset.write import write_dataset
from airgen.errors import DatasetError
from airgen.publishing import withhold
from airgen.publishing.withhold import (
    DOCUMENTS,
    PAIR,
    is_labels_of,
    labels_part,
    marks_of_generated,
    pair_of,
    public_part,
    secrecy_problems,
)

VARIANTS = ("qrels", "qrels-graded", "qrels-positives", "qrels-soft")
CARD = ("README.md", "croissant.json")


def labels_of(split: str) -> set[str]:
    return {f"{folder}/{split}.{end}" for folder in VARIANTS for end in ("jsonl", "tsv")}


def contents(directory: Path) -> dict[str, bytes]:
    return {p.relative_to(directory).as_posix(): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def changed(directory: Path, **changes: object) -> Manifest:
    """The dataset with another manifest."""
    manifest = dataclasses.replace(load_manifest(directory), **changes)  # type: ignore[arg-type]
    (directory / "manifest.json").write_text(manifest_text(manifest))
    return manifest


def with_file(directory: Path, name: str, text: str = "x") -> None:
    """The dataset with another file, which its manifest lists."""
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    files = {**load_manifest(directory).files, name: FileEntry(path.stat().st_size, file_sha256(path))}
    changed(directory, files=files, digest=data_digest(files))


def written(out: Path, **changes: Any) -> Path:
    write_dataset(out, make_content(**changes))
    return out


# -- the two parts -------------------------------------------------------------------------------------------------


def test_each_part_has_these_files_and_no_others(dataset: Path, tmp_path: Path) -> None:
    before, whole = contents(dataset), changed(dataset, notes={"made from": "0123", "passages before trimming": 40})
    public = public_part(dataset, tmp_path / "p", ["test"], permission="Jane Doe: yes")
    labels = labels_part(dataset, tmp_path / "l", ["test"])
    private = {"private/lineage.jsonl", "private/secret.key", DOCUMENTS, "queries.jsonl", *labels_of("test")}
    for home, sealed, own, described in (
        ("p", public, {"corpus.jsonl", "queries.jsonl", "pipeline.yaml", *labels_of("dev")}, CARD),
        ("l", labels, private, CARD[:1]),
    ):
        found = contents(tmp_path / home)
        assert set(found) == {*own, *described, "manifest.json"}
        same = own - {DOCUMENTS, "queries.jsonl" if home == "p" else "", "pipeline.yaml"}
        assert all(found[name] == before[name] for name in same)
        assert sealed == load_manifest(tmp_path / home)
        assert list(sealed.files) == sorted(set(found) - {"manifest.json"})
        assert verify(tmp_path / home) == []
    assert (public.part, public.withheld, public.labelled_splits) == ("public", ("test",), ("dev",))
    assert (labels.part, labels.withheld, labels.labelled_splits) == ("labels", ("dev",), ("test",))
    assert contents(tmp_path / "l")["README.md"].decode() == (
        "---\nviewer: false\n---\n\n# Private labels of weather-notes\n\nVersion 26.11, splits test. "
        "Keep this repository private: who has seen labels cannot be measured by them.\n"
    )
    after = contents(dataset)
    assert all(after[name] == before[name] for name in before if name != "manifest.json")  # it stays as it was
    # The numbers of withheld labels and the sources of the dataset are not revealed; the permission is.
    assert public.statistics.splits["dev"] == whole.statistics.splits["dev"] == SplitStatistics(2, 9.0, 4, 2)
    assert public.statistics.splits["test"] == SplitStatistics(4, 9.0, None, None)
    permission = "permission to publish the corpus"
    assert set(public.notes) == {"passages before trimming", PAIR, permission}
    assert public.notes[permission] == "Jane Doe: yes" and b"Jane Doe: yes" in contents(tmp_path / "p")["README.md"]
    # Both hold a name that depends on the secret.
    expected = Secret(bytes(range(32))).text("pair", whole.digest)[:32]
    assert pair_of(dataset, whole) == pair_of(tmp_path / "p", public) == pair_of(tmp_path / "l", labels) == expected
    assert public.notes[PAIR] == labels.notes[PAIR] == expected
    other = written(tmp_path / "other", n_documents=13)
    assert pair_of(other, load_manifest(other)) not in ("", expected)


def test_the_splits_that_are_withheld(dataset: Path, tmp_path: Path) -> None:
    both = public_part(dataset, tmp_path / "both", ["test", "dev"])
    assert both.withheld == ("dev", "test") and not any("qrels" in name for name in contents(tmp_path / "both"))
    rows = [
        dataclasses.replace(row, split="test_b" if row.split == "dev" else row.split) for row in make_content().queries
    ]
    within = public_part(written(tmp_path / "d", queries=rows), tmp_path / "within", ["test"])  # a name in another
    assert {name for name in within.files if "qrels" in name} == labels_of("test_b")
    assert verify(tmp_path / "within") == []
    whole = changed(dataset, notes={"made from": "0123"})
    none = public_part(dataset, tmp_path / "none", [])
    assert labels_of("dev") | labels_of("test") <= set(none.files)
    assert not any(name.startswith("private/") for name in contents(tmp_path / "none"))
    assert none.statistics == whole.statistics and none.funnel == whole.funnel
    assert none.notes == {"made from": "0123"} and (none.part, none.withheld) == ("public", ())
    assert verify(tmp_path / "none") == []


def test_what_follows_from_labels_is_on_no_list(tmp_path: Path) -> None:
    """Only listed metadata, notes and figures are public; everything else of a dataset stays where its labels are."""
    rows = [dataclasses.replace(row, metadata={"type": "claim", "judged": 7, "hops": 2, "hint": "x", "count": 3})
            for row in make_content().queries]  # fmt: skip
    audit = {"people": 2, "confirmed, positive": "0.900, 9 of 10", "unheard of": 1}
    notes = {"made from": "0123", "refreshed": {"digest of it": "4567"}, "passages before trimming": 40, "mine": "x"}
    funnel = [FunnelStep("query", 100, 80), FunnelStep("positives", 69, 120)]
    home = written(tmp_path / "d", queries=rows, funnel=funnel, audit=audit, notes=notes)
    sealed = public_part(home, tmp_path / "p", ["test"])
    lines = [json.loads(line) for line in (tmp_path / "p" / "queries.jsonl").read_text().split("\n")[:-1]]
    assert {tuple(row["metadata"]) for row in lines} == {("split", "count", "type")}
    assert sealed.query_fields == {"split": "string", "count": "int64", "type": "string"}
    assert (sealed.funnel, sealed.audit) == ((), {"people": 2}) and verify(tmp_path / "p") == []
    assert set(sealed.notes) == {"passages before trimming", PAIR}
    card = (tmp_path / "p" / "README.md").read_text()
    assert "hops" not in card and "Funnel" not in card and "how many were judged" not in card
    whole = public_part(home, tmp_path / "all", [])  # where every label is public
    assert len(whole.funnel) == 2 and whole.audit == audit and "judged" in whole.query_fields
    assert [one.kind for one in withhold.warnings_of(home, ["test"])] == ["fields"]
    assert "metadata.hint is left out" in str(withhold.warnings_of(home, ["test"])[0])


@pytest.mark.parametrize(("filters", "kept"), [({}, None), ({"filter.area": "snow"}, {"area": "snow"})])
def test_metadata_of_documents_stay_beside_the_labels(
    tmp_path: Path, filters: dict[str, str], kept: dict[str, str] | None
) -> None:
    metadata = {"area": "snow", "author": "Ann"}
    corpus = [dataclasses.replace(row, metadata=metadata) for row in make_content().corpus]
    queries = [dataclasses.replace(row, metadata={"type": "claim", **filters}) for row in make_content().queries]
    home = written(tmp_path / "d", corpus=corpus, queries=queries)
    public_part(home, tmp_path / "p", ["test"])
    lines = [json.loads(line) for line in (tmp_path / "p" / "corpus.jsonl").read_text().split("\n")[:-1]]
    assert [row.get("metadata") for row in lines] == [kept] * 12 and lines[0]["text"]
    assert verify(tmp_path / "p") == []
    assert "metadata of documents is left out" in " ".join(map(str, withhold.warnings_of(home, ["test"])))
    public_part(home, tmp_path / "all", [])
    assert "Ann" in (tmp_path / "all" / "corpus.jsonl").read_text()


def test_that_nothing_answers_a_query_is_a_label(tmp_path: Path) -> None:
    content, nothing = make_content(), ("q-01", "q-02")
    rows = [dataclasses.replace(row, metadata={"answered": row.id not in nothing}) for row in content.queries]
    qrels = [row for row in content.qrels if row.query not in nothing]
    home = written(tmp_path / "d", queries=rows, qrels=qrels)
    for withheld, q01 in ((["test"], None), ([], False)):
        public_part(home, out := tmp_path / f"p{len(withheld)}", withheld)
        lines = [json.loads(line) for line in (out / "queries.jsonl").read_text().split("\n")[:-1]]
        told = {row["_id"]: row["metadata"]["answered"] for row in lines}
        assert (told["q-01"], told["q-02"], told["q-05"]) == (q01, False, True) and verify(out) == []


def test_other_files_of_a_dataset(dataset: Path, tmp_path: Path) -> None:
    with_file(dataset, "notes/by/ann.txt", "q-00 is answered by doc000")
    with_file(dataset, "extra/qrels_test.txt", "q-00 doc000 1")
    row = '{"query-id": "%s", "corpus-id": "%s", "start": 0, "end": 7, "quote": "Passage"}\n'
    with_file(dataset, "answers/test.jsonl", row % ("q-00", "doc000"))
    with_file(dataset, "answers/dev.jsonl", row % ("q-02", "doc002"))
    public, private = public_part(dataset, tmp_path / "p", ["test"]), labels_part(dataset, tmp_path / "l", ["test"])
    assert not {"notes", "extra"} & {path.name for path in (tmp_path / "p").iterdir()}
    assert "answers/dev.jsonl" in public.files and "answers/test.jsonl" not in public.files
    assert "answers/test.jsonl" in private.files and "answers/dev.jsonl" not in private.files


def test_on_another_file_system_files_are_copied(dataset: Path) -> None:
    """A link from one file system to another is not possible."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == dataset.stat().st_dev:
        pytest.skip("this system has one file system only")
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        public_part(dataset, Path(folder) / "p", ["test"])
        assert verify(Path(folder) / "p") == []
        assert contents(Path(folder) / "p")["corpus.jsonl"] == contents(dataset)["corpus.jsonl"]


@pytest.mark.parametrize(
    ("name", "withheld", "may"),
    [
        ("qrels/test.tsv", ["test"], True),
        ("qrels/test.tsv", ["dev", "test"], True),
        ("qrels/dev.tsv", ["test"], False),
        ("qrels/dev.tsv", [], False),
        ("qrels-soft/test.jsonl", ["test"], True),
        ("a/b/old_qrels/my-test-2.txt", ["test"], True),
        ("a/test_qrels.jsonl", ["test"], True),
        ("a/test_queries.jsonl", ["test"], False),
        ("old_answers/test.jsonl", ["test"], True),
        ("answers/dev.jsonl", ["test"], False),
        ("test/qrels/dev.tsv", ["test"], False),  # the file's own name decides
    ],
)
def test_which_files_may_hold_labels(name: str, withheld: list[str], may: bool) -> None:
    assert is_labels_of(name, withheld) is may


# -- the seed ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("name: a # mine\nseed: 42\ntask: qa\n", "name: a\ntask: qa\n"),
        ("name: a\nseed : 42   # lucky\n", "name: a\n"),
        ("seed:  42\nname: a", "name: a\n"),
        ("name: a\nseed: 42", "name: a\n"),
        ("# the seed\nname: a\nnote: the seed is none\n", "name: a\n"),
        ("name: a\ngeneration:\n  seed: 42\n", None),  # another setting
        ("name: a\nnote: |\n  seed: 42\n", "name: a\n"),
        ("- seed\n", ""),
        ("seed", ""),
        ("name: ä # mine\nseed:\n  42\n", "name: ä\n"),
        ("name: ä\nseed: >-\n  42\ntask: qa\n", "name: ä\ntask: qa\n"),
        ("task: qa\n'seed': 42\nname: ä\n", "task: qa\nname: ä\n"),
        ("{task: qa, seed: 42, name: ä}\n", "task: qa\nname: ä\n"),
    ],
)
def test_the_published_pipeline_has_no_seed(text: str, public: str | None, tmp_path: Path) -> None:
    info = dataclasses.replace(INFO, seed=42)
    sealed = public_part(written(tmp_path / "d", pipeline_yaml=text, info=info), tmp_path / "p", ["test"])
    expected = text if public is None else public
    file = tmp_path / "p" / "pipeline.yaml"
    assert (file.read_text() if expected else "") == sealed.pipeline_yaml == expected and file.exists() == bool(
        expected
    )
    assert sealed.info == INFO, "the seed is not in the manifest, either"
    if public is not None:
        assert "42" not in (tmp_path / "p" / "README.md").read_text()
    assert verify(tmp_path / "p") == []


def test_a_dataset_without_a_pipeline_and_one_that_is_not_yaml(tmp_path: Path) -> None:
    sealed = public_part(written(tmp_path / "d", pipeline_yaml="", secret=None), tmp_path / "p", ["test"])
    assert "pipeline.yaml" not in sealed.files and not (tmp_path / "p" / "pipeline.yaml").exists()
    assert verify(tmp_path / "p") == []
    # Without a secret the two parts have no common name, either.
    assert PAIR not in sealed.notes
    assert pair_of(tmp_path / "d", load_manifest(tmp_path / "d")) == pair_of(tmp_path / "p", sealed) == ""
    with pytest.raises(DatasetError, match=r"^the pipeline in the manifest.*its seed cannot be taken out, so nothing"):
        public_part(written(tmp_path / "bad", pipeline_yaml="{seed: 42"), tmp_path / "q", ["test"])
    assert not (tmp_path / "q").exists()


# -- what connects a query with a document -------------------------------------------------------------------------


def test_metadata_that_name_a_labelled_document_are_refused(tmp_path: Path) -> None:
    """Query q-03 (test) has the labels doc003, doc004, doc005; q-02 is in dev, so its labels are public anyway."""

    def named(query: str, document: object) -> Path:
        rows = [
            dataclasses.replace(row, metadata={"type": "question", "style": document if row.id == query else "none"})
            for row in make_content().queries
        ]
        return written(tmp_path / f"{query}-{document}", queries=rows)

    for document in ("doc003", "doc004", "doc005"):
        with pytest.raises(DatasetError) as stopped:
            public_part(named("q-03", document), tmp_path / "p", ["test"])
        assert str(stopped.value) == (
            f"not published: the metadata of query 'q-03' names the document '{document}', which is labelled for it"
        )
    assert not (tmp_path / "p").exists()
    public_part(named("q-03", "doc006"), tmp_path / "p1", ["test"])
    public_part(named("q-02", "doc002"), tmp_path / "p2", ["test"])
    corpus = [dataclasses.replace(row, text=f"{row.text} q-01") for row in make_content().corpus]
    public_part(written(tmp_path / "d", corpus=corpus), tmp_path / "p3", ["test"])  # a document may hold any words


@pytest.mark.parametrize("around", ["see q-01", '"q-01"', "(q-01)", "q-01,q-05", "doc004|q-01", "<q-01>", "a:q-01;"])
def test_a_file_that_names_a_withheld_query_is_refused(tmp_path: Path, around: str) -> None:
    dataset = written(tmp_path / "d", pipeline_yaml=json.dumps({"name": "a", "domain": around}))
    with pytest.raises(
        DatasetError, match=r"^not published: (README\.md|pipeline\.yaml) mentions the query 'q-01', whose labels must"
    ):
        public_part(dataset, tmp_path / "p", ["test"])


def test_an_unknown_split_and_a_part_are_refused(dataset: Path, tmp_path: Path) -> None:
    for divide in (public_part, labels_part):
        with pytest.raises(DatasetError) as stopped:
            divide(dataset, tmp_path / "x", ["train"])
        assert str(stopped.value) == (
            f"{dataset} has no split 'train' whose labels could be private (it has: dev, test)"
        )
    public_part(dataset, tmp_path / "p", ["test"])
    labels_part(dataset, tmp_path / "l", ["test"])
    for part, name in (("p", "public"), ("l", "labels")):
        with pytest.raises(DatasetError, match=f"is already the {name} part of a dataset: publish the whole dataset"):
            public_part(tmp_path / part, tmp_path / "x", ["dev"])


# -- what can be told from the files -------------------------------------------------------------------------------

PLAIN = {"_id": "d0a", "title": "A plain title", "text": "Plain words end here."}


@pytest.mark.parametrize(
    ("changes", "marks"),
    [
        ({}, ""),
        ({"title": ""}, "have no title"),
        ({"title": "A plain title."}, "have a title that ends in a sentence mark"),
        ({"title": "A Plain Title"}, "have a title with capitals"),
        ({"title": "Title"}, ""),
        ({"title": "Plain words"}, "begin with their title"),
        ({"text": "Plain words\nend here."}, "have line breaks"),
        ({"text": "Plain words\n\nend here."}, "have line breaks, have blank lines"),
        ({"text": "Plain words  end here."}, "have double spaces"),
        ({"text": " Plain words end here."}, "have spaces at an end"),
        ({"text": "Plain “words” end here."}, "have typographic double quotes"),
        ({"text": 'Plain "words" end here.'}, "have plain double quotes"),
        ({"text": "Plain word’s end here."}, "have typographic apostrophes"),
        ({"text": "Plain word's end here."}, "have plain apostrophes"),
        ({"text": "Plain words — end here."}, "have long dashes"),
        ({"text": "Plain words… end here."}, "have an ellipsis as one character"),
        ({"text": "Plain `words` end here."}, "have Markdown"),
        ({"text": "Plain words\n- end here."}, "have line breaks, have bullets or numbers at the beginning of a line"),
        ({"text": "12) Plain words end here."}, "have bullets or numbers at the beginning of a line"),
        ({"text": "Plain\u00a0words end here."}, "have odd spaces or invisible characters"),
        ({"text": "Plain words ended here"}, "end without a sentence mark"),
        ({"text": "(Plain words end here.)"}, ""),
        ({"text": "plain words end here."}, "begin with a small letter"),
        ({"text": "Plain words end h...."}, ""),
        ({"text": "Plain words end her."}, "have a length that 10 divides"),
        ({"_id": "x-1"}, "have an id with other characters"),
        ({"more": 1}, "have other fields"),
    ],
)  # fmt: skip
def test_the_marks_of_a_passage(changes: dict[str, Any], marks: str) -> None:
    assert ", ".join(name for name, has in withhold.MARKS.items() if has({**PLAIN, **changes})) == marks


@pytest.mark.parametrize(
    ("generated", "marked", "others", "also", "told"),
    [
        (20, 16, 20, 0, "16 of 20 have no title, 0 of 20 other"),  # .8 > 5 standard errors, .775
        (20, 15, 20, 0, ""),  # .75 < .766
        (20, 12, 100, 10, "12 of 20 have no title, 10 of 100 other"),  # .5 > .474
        (20, 11, 100, 10, ""),  # .45 < .465
        (19, 19, 20, 0, ""),
        (20, 20, 19, 0, ""),  # too few of a kind
        (4000, 400, 4000, 0, ""),  # certain, but not more than a tenth
        (4000, 401, 4000, 0, "401 of 4,000 have no title, 0 of 4,000 other"),
    ],
)
def test_a_mark_is_told_beyond_chance(generated: int, marked: int, others: int, also: int, told: str) -> None:
    untitled = {*range(marked), *range(generated, generated + also)}
    rows = [{**PLAIN, "_id": f"d{place}", "title": "" if place in untitled else "A title"}
            for place in range(generated + others)]  # fmt: skip
    found = list(map(str, marks_of_generated(rows, {f"d{place}" for place in range(generated)})))
    assert found == [f"generated passages can be recognised: {told} passages do"] * bool(told)


def lineage(**row: object) -> Callable[[Path], Path]:
    return lambda out: written(out, lineage=[{"query": "q-00", **row}])


def rewritten(name: str, change: Callable[[list[dict[str, Any]]], object]) -> Callable[[Path], Path]:
    """A dataset of whose rows of a file some were changed by hand."""

    def make(out: Path) -> Path:
        rows = [json.loads(line) for line in (written(out) / name).read_text().split("\n")[:-1]]
        change(rows)
        (out / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return out

    return make


def with_text(name: str, text: str) -> Callable[[Path], Path]:
    def make(out: Path) -> Path:
        (written(out) / name).write_text(text)
        return out

    return make


def without_secret(out: Path) -> Path:
    (written(out) / "private" / "secret.key").unlink()
    return out


def habits(out: Path) -> Path:
    rows = [CorpusRow(f"doc{i:03d}", "" if i < 20 else "A title", "Some words.") for i in range(40)]
    return written(out, corpus=rows, lineage=[{"query": "q-00", "negatives": [row.id for row in rows[:20]]}])


SECRET_HEX = bytes(range(32)).hex()


@pytest.mark.parametrize(
    ("make", "kind", "file", "severity", "words"),
    [
        (written, "", "", "", ""),
        (lambda out: written(out, secret=None), "not-secret", "manifest.json", "warning", "its labels: remove `secret"),
        (without_secret, "lost-secret", "private/secret.key", "error", "is missing: restore secret.key of the job"),
        (with_text("private/secret.key", "00" * 32 + "\n"), "lost-secret", "private/secret.key", "error",
         "is not the secret that this"),
        (with_text("README.md", f"# A\n{SECRET_HEX.upper()}\n"), "leak", "README.md", "error", "holds the secret"),
        (lineage(source="a1", positive="a1"), "ids", "corpus.jsonl", "warning", "the id 'a1' follows from the"),
        (lineage(source="a1", positive="d" + text_key("weather-notes\x1fa1")[:15]), "ids", "corpus.jsonl", "warning",
         "follows from the original id 'a1': export with"),
        (lineage(source="a1", positive="doc000"), "", "", "", ""),
        (lineage(positive="a1"), "", "", "", ""),
        (rewritten("corpus.jsonl", lambda rows: rows.reverse()), "order", "corpus.jsonl", "warning", "'doc010'"),
        (rewritten("corpus.jsonl", lambda rows: rows[3].update(a=1)), "order", "corpus.jsonl", "warning", "'doc003'"),
        (rewritten("queries.jsonl", lambda rows: rows[2]["metadata"].pop("type")), "order", "queries.jsonl", "warning",
         "'q-02' is out of order or has other fields"),
        (rewritten("corpus.jsonl", lambda rows: rows[3].pop("_id")), "unreadable", "manifest.json", "error", "form"),
        (habits, "habits", "corpus.jsonl", "warning", "20 of 20 have no title, 0 of 20 other passages do"),
    ],
)  # fmt: skip
def test_what_makes_labels_no_secret(
    make: Callable[[Path], Path], kind: str, file: str, severity: str, words: str, tmp_path: Path
) -> None:
    found = secrecy_problems(make(tmp_path / "d"))
    assert [(one.kind, one.file, one.severity) for one in found] == [(kind, file, severity)] * bool(kind)
    assert not kind or words in found[0].message


def test_the_parts_are_as_secret_as_the_whole(dataset: Path, tmp_path: Path) -> None:
    public_part(dataset, tmp_path / "p", ["test"])
    labels_part(dataset, tmp_path / "l", ["test"])
    assert secrecy_problems(tmp_path / "p") == secrecy_problems(tmp_path / "l") == []
    assert SECRET_HEX not in repr(Secret(bytes(range(32))))
