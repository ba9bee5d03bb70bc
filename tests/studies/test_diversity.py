"""The diversity report and generated beside real queries, against figures worked out by hand."""

import json
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from beir_folder import read_rows, write_beir, write_rows
from command_line import call, invoke
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from airgen.dataset.beir import BeirDataset, BeirQuery
from airgen.errors import DatasetError, UsageError
from airgen.studies.diversity import measure
from airgen.studies.diversity.likeness import likeness, likeness_table
from airgen.studies.diversity.measure import NO_SPLIT, Vocabulary, VocabularySize, profile_dataset, profile_datasets
from airgen.studies.diversity.report import jaccard_matrix, weighted_jaccard, write_diversity

CORPUS = [
    {"_id": "d1", "title": "Bees", "text": "Bees make honey from the nectar of flowers."},
    {"_id": "d2", "title": "", "text": "Wasps build nests of paper."},
    {"_id": "d3", "title": "", "text": "Wasps build nests of paper."},
    {"_id": "d4", "title": "Ants", "text": "Ants farm aphids."},
]
QUERIES = [
    # bee, make, sweet, food: two of the four occur in d1
    {"_id": "q1", "text": "how bees make sweet food", "metadata": {"type": "question", "style": "casual"}},
    # wasp, paper: both in d2
    {"_id": "q2", "text": "wasps and paper", "metadata": {"type": "claim", "style": "concise"}},
    # the same words again, in another order
    {"_id": "q3", "text": "Paper and WASPS?", "metadata": {"type": "claim", "style": ""}},
    {"_id": "q4", "text": "nobody judged this one"},
]
QRELS = {"dev": [("q1", "d1", 1), ("q1", "d2", 0)], "test": [("q2", "d2", 2), ("q3", "d3", 1), ("q3", "d1", 1)]}


def write(folder: Path, **manifest: object) -> Path:
    return write_beir(folder, CORPUS, QUERIES, QRELS, **manifest)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "insects", name="insects", task="qa", language="en")


def test_shares_by_split_and_their_labels(folder: Path) -> None:
    labels = {"q1": {"type": "how"}, "q2": {"type": "claim", "style": "concise"}}
    profile = profile_dataset(BeirDataset.open(folder), labels=labels)
    assert profile.splits == {NO_SPLIT: 1, "dev": 1, "test": 2}
    assert profile.shares == {
        "type": {"dev": {"question": 1}, "test": {"claim": 2}},
        "style": {"dev": {"casual": 1}, "test": {"concise": 1}},
        "labelled type": {"dev": {"how": 1}, "test": {"claim": 1}},
        "labelled style": {"test": {"concise": 1}},
    }
    assert profile.queries == 4 and profile.passages == 4


def test_figures_by_hand(folder: Path) -> None:
    profile = profile_dataset(BeirDataset.open(folder))
    overlap = profile.overlap
    # q1: bee, make, sweet, food: 2 of 4 in d1. q2: 2 of 2 in d2. q3: 2 of 2 in d3 and 0 of 2 in d1: a half.
    assert (overlap.queries, overlap.positives) == (3, pytest.approx((2 / 4 + 1 + 1 / 2) / 3))
    # The next query's passage: of q1 d2 (nothing shared), of q2 d3 (both words), of q3 again d2 (both words).
    assert overlap.others == pytest.approx((0 + 1 + 1) / 3)
    assert (overlap.pairs, overlap.original, overlap.rewritten) == (0, None, None)
    assert profile.query_words.mean == pytest.approx((5 + 3 + 3 + 4) / 4)
    assert profile.query_words.median == 3.5
    assert profile.length_classes == {"00-04": 3, "05-09": 1}
    assert profile.duplicates.exact == 0.0  # q3 has q2's words in another order
    assert profile.duplicates.near == profile.duplicates.passages == 1 / 4
    assert profile.query_vocabulary == VocabularySize(15, 12)  # wasps, and, paper twice


def test_the_passage_of_another_query_is_looked_for_among_few() -> None:
    class Terms(dict[str, frozenset[str]]):
        looked_up = 0

        def __contains__(self, key: object) -> bool:
            Terms.looked_up += 1
            return super().__contains__(key)

    positives = {f"q{number}": [f"p{number}"] for number in range(200)}
    queries = {key: BeirQuery(key, f"query {key}") for key in positives}
    terms = Terms({row[0]: frozenset(("query", key)) for key, row in positives.items()})
    found = measure._overlap(queries, positives, {}, terms, "en")
    assert found.queries == 200 and found.others is not None and Terms.looked_up <= 5 * 200


def test_overlap_before_and_after_rewriting(folder: Path) -> None:
    rows = [
        {"query": "q1", "positive": "d1", "original": "bees make honey of nectar", "rewrites": ["how bees make ..."]},
        {"query": "q2", "positive": "d2", "original": "wasps and paper", "rewrites": []},  # never rewritten
        {"query": "gone", "positive": "d2", "original": "x", "rewrites": ["y"]},
    ]
    (folder / "private").mkdir()
    path = folder / "private" / "lineage.jsonl"
    write_rows(path, rows)
    overlap = profile_dataset(BeirDataset.open(folder)).overlap
    assert (overlap.pairs, overlap.original, overlap.rewritten) == (1, 1.0, pytest.approx(2 / 4))
    path.write_text('{"query": "q1"}\n', "utf-8")
    with pytest.raises(DatasetError, match=r"lineage\.jsonl:1"):
        profile_dataset(BeirDataset.open(folder))


def test_words_of_languages_without_spaces(tmp_path: Path) -> None:
    rows = [[{"_id": "d", "text": "蜜蜂用花蜜酿造蜂蜜"}], [{"_id": "q", "text": "蜜蜂怎样酿造蜂蜜"}]]
    profile = profile_dataset(BeirDataset.open(write_beir(tmp_path, *rows, {"test": [("q", "d", 1)]})), language="zh")
    assert profile.query_words.mean == 4  # 蜜蜂 怎样 酿造 蜂蜜
    assert 0.5 < profile.overlap.positives < 1


WORDS = st.lists(st.sampled_from(["ant", "bee", "cat", "dog", "eel"]), max_size=30)


@settings(deadline=None)  # a busy machine is no failure
@given(WORDS, WORDS)
def test_weighted_jaccard_is_the_sum_of_smaller_over_larger_shares(left: list[str], right: list[str]) -> None:
    one, other = Vocabulary("en"), Vocabulary("en")
    one.add([" ".join(left)])
    other.add([" ".join(right)])
    first, second = Counter(left), Counter(right)
    shares = [(first[w] / max(1, len(left)), second[w] / max(1, len(right))) for w in {*left, *right}]
    larger = sum(max(pair) for pair in shares)
    expected = sum(min(pair) for pair in shares) / larger if larger and left and right else 0.0
    assert weighted_jaccard(one, other) == pytest.approx(expected, abs=1e-12)
    assert weighted_jaccard(other, one) == weighted_jaccard(one, other)


def test_weighted_jaccard_by_hand() -> None:
    one, other = Vocabulary("en"), Vocabulary("en")
    one.add(["bee bee"])
    one.add(["cat dog"])  # .5 .25 .25
    other.add(["bee cat cat eel"])  # .25 .5 .25
    # smaller: .25 + .25; larger: .5 + .5 + .25 + .25
    assert jaccard_matrix([one, other]).tolist() == [[1.0, pytest.approx(1 / 3)], [pytest.approx(1 / 3), 1.0]]


def test_the_report_is_whole_and_the_same_twice(folder: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", name="in|sects<b>", task="qa", language="en")
    profiles, _ = profile_datasets([folder, other, folder], tmp_path)
    for out in ("one", "two"):
        write_diversity(tmp_path / out, profiles)
    files = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "two").iterdir()}
    assert set(files) == {"diversity.md", "diversity.json", "jaccard.svg"}
    text = files["diversity.md"].decode()
    for name, content in files.items():
        if name.endswith(".svg"):
            ElementTree.fromstring(content)
            assert f"({name})" in text
    assert "<b>" not in text
    value = json.loads(files["diversity.json"])
    assert value["weighted_jaccard"]["datasets"] == ["insects", "in|sects<b>", "insects (2)"]
    assert value["weighted_jaccard"]["matrix"] == [[1.0] * 3] * 3
    assert value["datasets"][0]["shares"]["type"]["test"] == {"claim": 2}
    # Datasets of one task: the table has the task's own columns, as the paper's.
    assert "all qa test" in text and "6 (100.0%)" in text


def test_the_command_labels_with_the_scripted_model_and_pays_once(folder: Path, tmp_path: Path) -> None:
    pipeline, out = tmp_path / "p.yaml", tmp_path / "out"

    def label(out: Path, faults: str, *words: object) -> Any:
        llm = f"llm: {{backend: scripted, faults: {{{faults}}}}}"
        pipeline.write_text(f"name: p\ntask: qa\ncorpus: none.yaml\ntarget: 1\n{llm}\n")
        return invoke("study", "diversity", folder, "--out", out, "--label-with", pipeline, *words, raises=True)

    value = json.loads(label(out, "", "--json").stdout)
    assert sum(value["datasets"][0]["shares"]["labelled type"]["test"].values()) == 2
    labels = read_rows(out / "labels.jsonl")
    assert [row["query"] for row in labels] == ["q1", "q2", "q3", "q4"]
    assert {"what", "how", "claim", "others"} >= {row["type"] for row in labels}
    files = {name: (out / name).read_bytes() for name in ("labels.jsonl", "diversity.md")}
    # A model that would now refuse everything is not asked again.
    label(out, "refuse: 1.0")
    assert files == {name: (out / name).read_bytes() for name in files}
    # Labels that could not be read are counted.
    assert "4 queries have no label: malformed" in label(tmp_path / "other", "prose: 1.0").stderr


REAL = [f"{word} prices" for word in ("tea", "salt", "rope", "wool", "tin", "oats", "flax", "hemp", "rye", "peat")]


class Letters:
    """Texts as vectors of their letters."""

    def encode(self, texts: list[str], kind: object) -> NDArray[np.float32]:
        rows = np.array([[text.count(chr(97 + place)) for place in range(26)] for text in texts], np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_likeness_by_hand() -> None:
    generated = ["how is rope made?", "how is wool made?", "tea prices", "Wool PRICES!"]
    found = likeness("mine", generated, [*REAL, REAL[0]], "en", Letters())
    figures = dict(found.figures)
    assert (found.generated, found.real, found.copies) == (4, 10, 2)  # copies of "tea prices" and "wool prices"
    assert figures["words, mean"] == (3.0, 2.0)
    assert figures["distance of lengths"] == (0.5, 0.0)  # half of the generated ones are longer
    assert [figures[f"share of {form}"][0] for form in ("question", "keywords", "sentence")] == [0.5, 0.5, 0.0]
    assert figures["distance of forms"] == (0.5, 0.0)
    stems, real = figures["real stems known"]
    assert stems is not None and 0.5 <= stems <= 1.0 and real == 0.5  # "price" is known, the goods are not
    (near, near_real), (covered, by_real) = figures["cosine of the nearest"], figures["real queries covered"]
    assert near is not None and near_real is not None and near_real > near
    assert covered is not None and by_real is not None and covered <= by_real and by_real >= 0.75
    table = likeness_table([found])
    assert [column.title for column in table.columns] == ["", "mine", "real"]
    assert ["copies of real ones", "2", ""] in table.cells()


def test_meanings_need_an_embedder_and_figures_need_ten_queries() -> None:
    found = likeness("mine", ["tea prices"], REAL, "en")
    assert found.figures["real queries covered"] == (None, None) and likeness_table([found]).cells()
    with pytest.raises(UsageError, match="9 real queries are too few"):
        likeness("mine", ["tea prices"], REAL[:9], "en")


def test_the_command_compares_a_dataset_with_a_log(shared: Path, tmp_path: Path) -> None:
    """Medline's own queries are like themselves, and each is a copy."""
    medline = shared / "collections" / "medline"
    out = call("study", "diversity", medline, "--real", medline, "--out", tmp_path / "out", "--language", "en")
    assert "copies of real ones" in out and "likeness.md" in out
    (row,) = json.loads((tmp_path / "out" / "likeness.json").read_text())["datasets"]
    distances = [row["figures"][f"distance of {what}"][0] for what in ("lengths", "forms")]
    assert (row["copies"], distances) == (30, [0, 0])
