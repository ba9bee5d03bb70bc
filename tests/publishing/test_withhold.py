"""What is public and what is private of a dataset: the files of each part, and what their manifests may tell."""

import dataclasses
import tempfile
from pathlib import Path

import pytest
import yaml
from dataset_maker import INFO, make_content

from airgen.dataset.content import FunnelStep
from airgen.dataset.manifest import FileEntry, Manifest, SplitStatistics, data_digest, load_manifest, manifest_text
from airgen.dataset.secret import Secret
from airgen.dataset.verify import verify
from airgen.dataset.write import write_dataset
from airgen.errors import DatasetError
from airgen.keys import file_sha256
from airgen.publishing.withhold import PAIR, is_labels_of, labels_part, pair_of, public_part

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


# -- the public part -----------------------------------------------------------------------------------------------


def test_the_public_part_has_these_files_and_no_others(dataset: Path, tmp_path: Path) -> None:
    before = contents(dataset)
    sealed = public_part(dataset, tmp_path / "p", ["test"])
    found = contents(tmp_path / "p")
    assert set(found) == {*CARD, "manifest.json", "corpus.jsonl", "queries.jsonl", "pipeline.yaml", *labels_of("dev")}
    assert all(found[name] == before[name] for name in found if name not in (*CARD, "manifest.json"))
    assert contents(dataset) == before, "the dataset itself stays as it was"
    assert verify(tmp_path / "p") == []
    assert sealed == load_manifest(tmp_path / "p")
    assert list(sealed.files) == sorted(set(found) - {"manifest.json"})
    assert (sealed.part, sealed.withheld, sealed.labelled_splits) == ("public", ("test",), ("dev",))


def test_several_splits_can_be_withheld(dataset: Path, tmp_path: Path) -> None:
    sealed = public_part(dataset, tmp_path / "p", ["test", "dev"])
    assert sealed.withheld == ("dev", "test")
    assert not any("qrels" in name for name in contents(tmp_path / "p"))


def test_splits_whose_names_contain_each_other(tmp_path: Path) -> None:
    rows = make_content().queries
    queries = [dataclasses.replace(row, split="test_b" if row.split == "dev" else row.split) for row in rows]
    write_dataset(tmp_path / "d", make_content(queries=queries))
    sealed = public_part(tmp_path / "d", tmp_path / "p", ["test"])
    assert {name for name in sealed.files if "qrels" in name} == labels_of("test_b")
    assert verify(tmp_path / "p") == []


def test_with_nothing_withheld_all_labels_and_their_numbers_are_public(dataset: Path, tmp_path: Path) -> None:
    whole = changed(dataset, notes={"made from": "0123"})
    sealed = public_part(dataset, tmp_path / "p", [])
    assert labels_of("dev") | labels_of("test") <= set(sealed.files)
    assert not any(name.startswith("private/") for name in contents(tmp_path / "p"))
    assert sealed.statistics == whole.statistics and sealed.funnel == whole.funnel
    assert sealed.notes == {"made from": "0123"}
    assert (sealed.part, sealed.withheld) == ("public", ())
    assert verify(tmp_path / "p") == []


def test_the_numbers_of_withheld_labels_are_not_told(dataset: Path, tmp_path: Path) -> None:
    whole = load_manifest(dataset)
    sealed = public_part(dataset, tmp_path / "p", ["test"])
    assert sealed.statistics.splits["dev"] == whole.statistics.splits["dev"] == SplitStatistics(2, 9.0, 4, 2)
    assert sealed.statistics.splits["test"] == SplitStatistics(4, 9.0, None, None)


def test_the_funnel_tells_no_counts_of_labels_and_no_rare_reasons(tmp_path: Path) -> None:
    funnel = [
        FunnelStep("query", 100, 80, {"too long": 11, "copies": 5, "odd": 4}),
        FunnelStep("hard negatives", 80, 70, {"too easy": 10}),
        FunnelStep("decision", 80, 69, {"not relevant": 2, "no answer": 4, "other": 5}),
        FunnelStep("positives", 69, 69),
        FunnelStep("export", 69, 64, {"duplicate": 5}),
    ]
    write_dataset(tmp_path / "d", make_content(funnel=funnel))
    sealed = public_part(tmp_path / "d", tmp_path / "p", ["test"])
    assert sealed.funnel == (
        FunnelStep("query", 100, 80, {"too long": 11, "copies": 5, "rare reasons": 4}),
        FunnelStep("decision", 80, 69, {"other": 5, "rare reasons": 6}),
        FunnelStep("export", 69, 64, {"duplicate": 5}),
    )


def test_notes_name_no_dataset_that_it_was_made_from(dataset: Path, tmp_path: Path) -> None:
    changed(dataset, notes={"made from": "0123", "passages before trimming": 40})
    sealed = public_part(dataset, tmp_path / "p", ["test"])
    assert set(sealed.notes) == {"passages before trimming", PAIR}
    assert sealed.notes["passages before trimming"] == 40


def test_the_permission_to_publish_is_in_the_card(dataset: Path, tmp_path: Path) -> None:
    sealed = public_part(dataset, tmp_path / "p", ["test"], permission="Jane Doe: yes")
    assert sealed.notes["permission to publish the corpus"] == "Jane Doe: yes"
    assert "Jane Doe: yes" in (tmp_path / "p" / "README.md").read_text()


def test_files_in_folders_are_copied_and_files_that_may_hold_labels_are_refused(dataset: Path, tmp_path: Path) -> None:
    with_file(dataset, "notes/by/ann.txt", "a note")
    public_part(dataset, tmp_path / "p", ["test"])
    assert (tmp_path / "p" / "notes/by/ann.txt").read_text() == "a note"
    with_file(dataset, "extra/qrels_test.txt")
    with pytest.raises(DatasetError, match=r"^not published: extra/qrels_test\.txt looks like labels that must stay"):
        public_part(dataset, tmp_path / "q", ["test"])
    assert not (tmp_path / "q").exists()
    public_part(dataset, tmp_path / "q", ["dev"])


def test_reference_answers_go_with_the_labels(dataset: Path, tmp_path: Path) -> None:
    row = '{"query-id": "%s", "corpus-id": "%s", "start": 0, "end": 7, "quote": "Passage"}\n'
    with_file(dataset, "answers/test.jsonl", row % ("q-00", "doc000"))
    with_file(dataset, "answers/dev.jsonl", row % ("q-02", "doc002"))
    public, private = public_part(dataset, tmp_path / "p", ["test"]), labels_part(dataset, tmp_path / "l", ["test"])
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
        ("name: a # mine\nseed: 42\ntask: qa\n", "name: a # mine\ntask: qa\n"),
        ("name: a\nseed : 42   # lucky\n", "name: a\n"),
        ("seed:  42\nname: a", "name: a"),
        ("name: a\nseed: 42", "name: a\n"),
        ("# the seed\nname: a\nnote: the seed is none\n", None),
        ("name: a\ngeneration:\n  seed: 42\n", None),  # another setting
        ("name: a\nnote: |\n  seed: 42\n", None),
        ("- seed\n", None),
        ("seed", None),
        # more than one line of its own: written again
        ("name: ä # mine\nseed:\n  42\n", "name: ä\n"),
        ("name: ä\nseed: >-\n  42\ntask: qa\n", "name: ä\ntask: qa\n"),
        ("task: qa\n'seed': 42\nname: ä\n", "task: qa\nname: ä\n"),
        ("{task: qa, seed: 42, name: ä}\n", "task: qa\nname: ä\n"),
    ],
)
def test_the_published_pipeline_has_no_seed(text: str, public: str | None, tmp_path: Path) -> None:
    info = dataclasses.replace(INFO, seed=42)
    write_dataset(tmp_path / "d", make_content(pipeline_yaml=text, info=info))
    before = contents(tmp_path / "d")
    sealed = public_part(tmp_path / "d", tmp_path / "p", ["test"])
    assert contents(tmp_path / "d") == before
    expected = text if public is None else public
    assert (tmp_path / "p" / "pipeline.yaml").read_text() == sealed.pipeline_yaml == expected
    assert sealed.info == INFO, "the seed is not in the manifest, either"
    if public is not None:
        assert "42" not in (tmp_path / "p" / "README.md").read_text()
        assert yaml.safe_load(expected) == {k: v for k, v in yaml.safe_load(text).items() if k != "seed"}
    assert verify(tmp_path / "p") == []


def test_a_pipeline_that_is_not_yaml_is_not_published(tmp_path: Path) -> None:
    write_dataset(tmp_path / "d", make_content(pipeline_yaml="{seed: 42"))
    with pytest.raises(DatasetError, match=r"^the pipeline in the manifest.*its seed cannot be taken out, so nothing"):
        public_part(tmp_path / "d", tmp_path / "p", ["test"])
    assert not (tmp_path / "p").exists()


def test_a_dataset_without_a_pipeline_is_published_without_one(tmp_path: Path) -> None:
    write_dataset(tmp_path / "d", make_content(pipeline_yaml=""))
    sealed = public_part(tmp_path / "d", tmp_path / "p", ["test"])
    assert "pipeline.yaml" not in sealed.files and not (tmp_path / "p" / "pipeline.yaml").exists()
    assert verify(tmp_path / "p") == []


# -- what connects a query with a document -------------------------------------------------------------------------


def test_metadata_that_name_a_labelled_document_are_refused(tmp_path: Path) -> None:
    """Query q-03 (test) has the labels doc003, doc004, doc005; q-02 is in dev, so its labels are public anyway."""

    def named(query: str, document: object) -> Path:
        rows = [
            dataclasses.replace(row, metadata={"type": "question", "hint": document if row.id == query else "none"})
            for row in make_content().queries
        ]
        out = tmp_path / f"{query}-{document}"
        write_dataset(out, make_content(queries=rows))
        return out

    for document in ("doc003", "doc004", "doc005"):
        with pytest.raises(DatasetError) as stopped:
            public_part(named("q-03", document), tmp_path / "p", ["test"])
        assert str(stopped.value) == (
            f"not published: the metadata of query 'q-03' names the document '{document}', which is labelled for it"
        )
    assert not (tmp_path / "p").exists()
    public_part(named("q-03", "doc006"), tmp_path / "p1", ["test"])
    public_part(named("q-02", "doc002"), tmp_path / "p2", ["test"])


@pytest.mark.parametrize("around", ["see q-01", '"q-01"', "(q-01)", "q-01,q-05", "doc004|q-01", "<q-01>", "a:q-01;"])
def test_a_file_that_names_a_withheld_query_is_refused(dataset: Path, tmp_path: Path, around: str) -> None:
    with_file(dataset, "notes.txt", around)
    with pytest.raises(DatasetError, match=r"^not published: notes\.txt mentions the query 'q-01', whose labels must"):
        public_part(dataset, tmp_path / "p", ["test"])


def test_queries_of_public_splits_and_longer_words_may_be_named(dataset: Path, tmp_path: Path) -> None:
    with_file(dataset, "notes.txt", "q-02 faq-01 q-011")
    public_part(dataset, tmp_path / "p", ["test"])


def test_a_document_may_hold_any_words(tmp_path: Path) -> None:
    corpus = [dataclasses.replace(row, text=f"{row.text} q-01") for row in make_content().corpus]
    write_dataset(tmp_path / "d", make_content(corpus=corpus))
    public_part(tmp_path / "d", tmp_path / "p", ["test"])


# -- the private part ----------------------------------------------------------------------------------------------


def test_the_private_part_has_the_other_files_and_a_card_of_its_own(dataset: Path, tmp_path: Path) -> None:
    before = contents(dataset)
    labels = labels_part(dataset, tmp_path / "l", ["test"])
    found = contents(tmp_path / "l")
    private = {"private/lineage.jsonl", "private/secret.key", *labels_of("test")}
    assert set(found) == {"README.md", "manifest.json", *private}
    assert all(found[name] == before[name] for name in private)
    assert contents(dataset) == before, "the dataset itself stays as it was"
    assert labels == load_manifest(tmp_path / "l")
    assert list(labels.files) == sorted({"README.md", *private})
    assert (labels.part, labels.withheld, labels.labelled_splits) == ("labels", ("dev",), ("test",))
    assert found["README.md"].decode() == (
        "---\nviewer: false\n---\n\n# Private labels of weather-notes\n\nVersion 26.11, splits test. "
        "Keep this repository private: who has seen labels cannot be measured by them.\n"
    )
    assert verify(tmp_path / "l") == []


# -- the two parts recognise each other ----------------------------------------------------------------------------


def test_both_parts_hold_a_name_that_depends_on_the_secret(dataset: Path, tmp_path: Path) -> None:
    whole = changed(dataset, notes={"passages before trimming": 40})
    public = public_part(dataset, tmp_path / "p", ["test"])
    labels = labels_part(dataset, tmp_path / "l", ["test"])
    expected = Secret(bytes(range(32))).text("pair", whole.digest)[:32]
    assert pair_of(dataset, whole) == pair_of(tmp_path / "p", public) == pair_of(tmp_path / "l", labels) == expected
    assert public.notes == labels.notes == {"passages before trimming": 40, PAIR: expected}
    write_dataset(tmp_path / "other", make_content(n_documents=13))
    assert pair_of(tmp_path / "other", load_manifest(tmp_path / "other")) not in ("", expected)


def test_without_a_secret_there_is_no_such_name(tmp_path: Path) -> None:
    write_dataset(tmp_path / "d", make_content(secret=None))
    public = public_part(tmp_path / "d", tmp_path / "p", ["test"])
    assert PAIR not in public.notes
    assert pair_of(tmp_path / "d", load_manifest(tmp_path / "d")) == pair_of(tmp_path / "p", public) == ""


# -- what cannot be divided ----------------------------------------------------------------------------------------


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
