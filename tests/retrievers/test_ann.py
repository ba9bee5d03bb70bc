"""Indexes of faiss as systems: what is lost, what is kept on disk, parts, and what is refused before any encoding."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from little_dataset import dataset as dataset
from packages import package

from airgen.compute import computing
from airgen.errors import ModelError, UsageError
from airgen.evaluation import EvaluationOptions, evaluate, load_systems
from airgen.retrievers import Passages, load_retriever
from airgen.retrievers.dense import ann_index
from airgen.retrievers.dense.ann_index import AnnSpec, build_ann, near_share
from airgen.retrievers.dense.retriever import Dense
from airgen.retrievers.hits import Hits
from airgen.settings.compute import ComputeSettings

faiss = package("faiss")

DIM, PASSAGES = 16, 3000
CORPUS = Passages([str(place) for place in range(PASSAGES)], [f"passage {place}" for place in range(PASSAGES)])
QUERIES = [f"query {place}" for place in range(40)]


class Clusters:
    """Vectors around a hundred centres: passage i is near centre i % 100, and so is query i."""

    name = "clusters"
    dim = DIM

    def __init__(self) -> None:
        self.encoded = 0

    def encode(self, texts: Sequence[str], kind: str) -> np.ndarray:
        self.encoded += len(texts)
        centres = np.random.default_rng(0).standard_normal((100, DIM))
        numbers = [int(text.split()[1]) for text in texts]
        noise = [np.random.default_rng([number, kind == "query"]).standard_normal(DIM) for number in numbers]
        vectors = centres[[number % 100 for number in numbers]] + 0.4 * np.array(noise)
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    def describe(self) -> Mapping[str, object]:
        return {"model": self.name}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads of faiss wait for each other on a busy machine, and a graph has a fixed order with one."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="module")
def exact() -> Hits:
    system = Dense(Clusters())
    system.index(CORPUS)
    return system.search(QUERIES, 10)


def made(**settings: Any) -> Dense:
    system = Dense(Clusters(), **settings)
    system.index(CORPUS)
    return system


def test_flat_is_exact_search(exact: Hits) -> None:
    system = made(index="Flat")
    hits = system.search(QUERIES, 10)
    np.testing.assert_array_equal(hits.positions, exact.positions)
    np.testing.assert_allclose(hits.scores, exact.scores, atol=1e-6)
    assert system.ann_recall(QUERIES, hits) == 1
    assert system.index_bytes == pytest.approx(4 * DIM * PASSAGES, rel=0.01)


@pytest.mark.parametrize(
    ("index", "poor", "rich", "sizes"),
    [
        ("HNSW8", {"efSearch": 1}, {"efSearch": 400}, (1, 3)),
        ("IVF64,Flat", {"nprobe": 1}, {"nprobe": 64}, (1, 1.3)),
        ("IVF16,PQ4x4", {"nprobe": 1}, {"nprobe": 16}, (0.02, 0.4)),
        ("HNSW8_SQ8", {"efSearch": 1}, {"efSearch": 400}, (0.25, 2.5)),
    ],
)
def test_recall_grows_with_the_search_and_is_that_of_the_hits(
    index: str, poor: dict[str, float], rich: dict[str, float], sizes: tuple[float, float], exact: Hits
) -> None:
    shares = []
    for search in (poor, rich):
        system = made(index=index, search=search, build={"efConstruction": 100} if "HNSW" in index else {})
        hits = system.search(QUERIES, 10)
        counted = [
            len({*row.tolist()} & {*near.tolist()}) / 10
            for row, near in zip(hits.positions, exact.positions, strict=True)
        ]
        shares.append(system.ann_recall(QUERIES, hits))
        assert shares[-1] == pytest.approx(np.mean(counted))
        assert sizes[0] < (system.index_bytes or 0) / (4 * DIM * PASSAGES) < sizes[1]
    assert shares[0] < shares[1]
    assert shares[1] > (0.97 if "PQ" not in index else 0.3)


def test_near_share_by_hand() -> None:
    hits = Hits(np.array([[5, 1, -1], [7, 8, 9]], np.int32), np.zeros((2, 3), np.float32))
    assert near_share(np.array([[1, 2], [7, 8]], np.int32), hits) == 0.75


def test_an_index_is_made_once_and_mapped_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = made(index="IVF32,Flat", search={"nprobe": 4}, cache=tmp_path)
    wanted = first.search(QUERIES, 10)
    monkeypatch.setattr(ann_index._PartFill, "fill", None)  # no index can be made any more
    again = made(index="IVF32,Flat", search={"nprobe": 4}, cache=tmp_path)
    assert again.embedder.encoded == 0  # type: ignore[attr-defined]
    hits = again.search(QUERIES, 10)
    np.testing.assert_array_equal(hits.positions, wanted.positions)
    assert made(index="IVF32,Flat", search={"nprobe": 32}, cache=tmp_path).settings.search  # another search, not index
    with pytest.raises(ModelError, match="not callable"):
        made(index="IVF16,Flat", cache=tmp_path)
    assert sum(path.is_dir() and path.suffix != ".new" for path in tmp_path.glob("faiss-*")) == 1


def test_a_stopped_build_leaves_no_index_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*given: Any, **_: Any) -> None:
        (given[0] / "part-0000.faiss").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("airgen.retrievers.dense.retriever.build_ann", stopped)
    with pytest.raises(KeyboardInterrupt):
        made(index="HNSW8", cache=tmp_path)
    monkeypatch.undo()
    system = made(index="HNSW8", cache=tmp_path)
    assert system.ann_recall(QUERIES, system.search(QUERIES, 10)) > 0.5


def test_the_same_vectors_give_the_same_bytes(tmp_path: Path) -> None:
    files = []
    for run in "ab":
        made(index="IVF32,PQ4x4", cache=tmp_path / run)
        (path,) = (tmp_path / run).glob("faiss-*/part-0000.faiss")
        files.append(path.read_bytes())
    assert files[0] == files[1]


def test_parts_of_an_inverted_file_find_what_one_part_finds(exact: Hits) -> None:
    """They share one training, so each query looks into the same lists."""
    whole = made(index="IVF32,Flat", search={"nprobe": 4}).search(QUERIES, 10)
    parts = made(index="IVF32,Flat", search={"nprobe": 4}, index_parts=5).search(QUERIES, 10)
    np.testing.assert_array_equal(parts.positions, whole.positions)
    np.testing.assert_allclose(parts.scores, whole.scores, atol=1e-6)


@pytest.mark.parametrize("order", ["file", "mixed"])
def test_workers_make_and_search_the_same_index(order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ann_index, "_LOCAL_PRODUCTS", 0)
    embedder = Clusters()
    matrix = embedder.encode(CORPUS.texts, "passage")
    matrix.tofile(tmp_path / "rows.f32")
    rows = np.random.default_rng(1).permutation(PASSAGES)[:2000] if order == "mixed" else None
    queries = embedder.encode(QUERIES, "query")
    spec = AnnSpec("IVF32,Flat", search=(("nprobe", 4.0),), parts=3)
    hits = []
    for workers, file in ((1, None), (2, tmp_path / "rows.f32"), (2, tmp_path / "elsewhere.f32")):
        folder = tmp_path / f"index-{workers}-{file and file.stem}"
        folder.mkdir()
        with computing(ComputeSettings(workers=workers)) as compute:
            build_ann(folder, spec, matrix, rows=rows, file=file and (file, 0))
            hits.append(ann_index.AnnIndex(folder, spec).search(queries, 10))
            assert workers == 1 or compute.describe()["batches"] >= 6
        assert [path.name for path in sorted(folder.iterdir())] == [f"part-000{part}.faiss" for part in range(3)]
    for other in hits[1:]:
        assert other.positions.tobytes() == hits[0].positions.tobytes()
        assert other.scores.tobytes() == hits[0].scores.tobytes()


def test_fewer_hits_than_asked_for() -> None:
    few = Passages(["a", "b", "c"], ["passage 1", "passage 2", "passage 3"])
    system = Dense(Clusters(), index="HNSW8")
    system.index(few)
    hits = system.search(QUERIES[:2], 5)
    assert (hits.positions[:, :3] >= 0).all() and (hits.positions[:, 3:] == -1).all()
    assert (hits.scores[:, 3:] == -np.inf).all()
    assert system.ann_recall(QUERIES[:2], hits) == 1
    narrow = made(index="IVF64,Flat", search={"nprobe": 1}).search(QUERIES, 200)  # one list does not hold 200
    assert (narrow.positions[:, -1] == -1).any()
    assert system.search([], 5).positions.shape == (0, 5)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"index": "HNWS32"}, r"index 'HNWS32' is refused by faiss \(could not parse index string HNWS32\)"),
        ({"index": "HNSW32", "search": {"nprobe": 4}}, r"index 'HNSW32': nprobe: 4 is refused by faiss \(.*nprobe\)"),
        ({"index": "IVF8,Flat", "search": {"nprobes": 4}}, "index 'IVF8,Flat': nprobes: 4 is refused"),
        ({"search": {"nprobe": 4}}, "`search` and `build` belong to an `index`"),
        ({"index": "HNSW32", "search": {"efSearch": "many"}}, "search.efSearch: input should be a valid number"),
    ],
)
def test_a_wrong_index_is_refused_where_it_is_written(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as at:
        Dense(Clusters(), **settings)
    assert "\n" not in str(at.value) and "/project/" not in str(at.value)


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ("PQ7", "index 'PQ7' is refused by faiss .*multiple of the number of subquantizers"),
        ("IVF4000,Flat", "learns 4,000 centroids, but the corpus has only 3,000 passages: choose a smaller one"),
        ("IVF64,PQ4x12", "learns 4,096 centroids"),
    ],
)
def test_an_index_that_does_not_fit_is_refused_before_anything_is_encoded(index: str, words: str) -> None:
    embedder = Clusters()
    system = Dense(embedder, index=index)
    with pytest.raises(ModelError, match=words):
        system.index(CORPUS)
    assert embedder.encoded == 0


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from airgen.settings.requirements import needs
    from airgen.settings.spec import Spec

    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None)
    settings = Dense.Settings(embedder=Clusters(), index="HNSW32")

    def missing(settings: Dense.Settings) -> list[str]:
        return needs(Spec("retriever", "dense", settings, None, "dense"))

    assert missing(settings) == ["Dense needs the package faiss-cpu: pip install 'airgen-bench[ann]'"]
    assert missing(Dense.Settings(embedder=Clusters())) == []


def test_hits_of_another_search_have_no_recall() -> None:
    system = made(index="Flat")
    hits = system.search(QUERIES, 10)
    system.search(QUERIES[:3], 10)
    with pytest.raises(UsageError, match="hits of the latest search"):
        system.ann_recall(QUERIES, hits)


def test_the_table_of_costs_has_recall_and_bytes(dataset: Path, tmp_path: Path, minilm: str) -> None:
    file = tmp_path / "systems.yaml"
    file.write_text(
        f"systems:\n- {{name: exact, kind: dense, embedder: {minilm}}}\n"
        f"- {{name: hnsw, kind: dense, embedder: {minilm}, index: HNSW8, search: {{efSearch: 64}}}}\n"
    )
    results = evaluate(dataset, load_systems(file), tmp_path / "results", EvaluationOptions(split="test"))
    costs = {result.name: result.costs for result in results}
    assert costs["exact"].ann_recall is None and 0.9 < (costs["hnsw"].ann_recall or 0) <= 1
    assert (costs["hnsw"].index_bytes or 0) > 0
    assert load_retriever({"kind": "dense", "embedder": minilm, "index": "HNSW8"}).describe()["index"] == "HNSW8"


def test_queries_with_filters_leave_the_recall_that_of_the_whole_search(
    dataset: Path, tmp_path: Path, minilm: str
) -> None:
    """The deeper search within a filter asks some queries again, and comes after the figures."""
    folder = tmp_path / "filtered"
    shutil.copytree(dataset, folder)
    for name, key in (("corpus", "version"), ("queries", "filter.version")):
        path = next(folder.glob(f"{name}.jsonl"))
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        for place, row in enumerate(rows):
            if name == "corpus" or place < 2:
                row["metadata"] = {**row.get("metadata", {}), key: place % 2}
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (folder / "manifest.json").unlink(missing_ok=True)
    file = tmp_path / "systems.yaml"
    file.write_text(
        f"systems:\n- {{name: hnsw, kind: dense, embedder: {minilm}, index: HNSW8, search: {{efSearch: 64}}}}\n"
    )
    options = EvaluationOptions(split="test", top=2)
    whole, filtered = (evaluate(one, load_systems(file), tmp_path / one.name, options) for one in (dataset, folder))
    assert filtered[0].costs.ann_recall == whole[0].costs.ann_recall is not None
