"""Token vectors in a few bits: the codes hold their bounds, and the search finds what brute force over them finds."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from airgen.errors import ModelError
from airgen.retrievers import Passages
from airgen.retrievers.late.compressed_index import (
    CompressedIndex,
    ResidualCodec,
    build_index,
    k_means,
    nearest,
    usual_centroids,
)
from airgen.retrievers.late.maxsim import LateInteraction, maxsims


class Drawn:
    """Unit token vectors near one of 20 topics; a text is its own seed, and its first word says how many."""

    name = "drawn"

    def __init__(self, dim: int = 24) -> None:
        self.asked: list[str] = []
        self.topics = np.random.default_rng(0).standard_normal((20, dim))

    def token_vectors(self, texts: Sequence[str], kind: str) -> list[np.ndarray]:
        self.asked += texts
        return [self._vectors(text) for text in texts]

    def _vectors(self, text: str) -> np.ndarray:
        draw = np.random.default_rng(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big"))
        count = int(text.split()[0])
        found = self.topics[draw.integers(0, 20, count)] + 0.5 * draw.standard_normal((count, self.topics.shape[1]))
        return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)

    def describe(self) -> Mapping[str, object]:
        return {"model": self.name}


def corpus_of(count: int) -> Passages:
    texts = [f"{1 + place % 7} tokens of passage {place}" for place in range(count)]
    return Passages([str(place) for place in range(count)], texts)


def built(folder: Path, model: Drawn, texts: Sequence[str], bits: int = 2, centroids: int | None = None) -> Path:
    def encode(batches: Iterable[Sequence[str]]) -> Iterator[list[np.ndarray] | None]:
        return (model.token_vectors(batch, "passage") if batch else None for batch in batches)

    build_index(folder / "index", texts, encode, bits=bits, centroids=centroids)
    return folder / "index"


@given(
    seed=st.integers(0, 1000),
    bits=st.sampled_from([1, 2, 4]),
    dim=st.integers(1, 20),
    count=st.integers(1, 60),
    centroids=st.integers(1, 20),
)
@settings(max_examples=60, deadline=None)
def test_codes_decode_within_their_bound(seed: int, bits: int, dim: int, count: int, centroids: int) -> None:
    draw = np.random.default_rng(seed)
    vectors = (draw.standard_normal((count, dim)) * draw.uniform(0.1, 5, (count, 1))).astype(np.float32)
    vectors[-1] = 0  # a text of punctuation alone
    codec = ResidualCodec.train(vectors, centroids, bits)
    coded = codec.encode(vectors)
    assert coded.codes.shape == (count, -(-dim * bits // 8))
    distance = ((vectors[:, None] - codec.centroids) ** 2).sum(axis=2)
    chosen = distance[np.arange(count), coded.cells]
    assert chosen == pytest.approx(distance.min(axis=1), abs=1e-4)  # the nearest centroid
    wanted = (vectors - codec.centroids[coded.cells]) / codec.spread
    found = codec.rest(coded.codes)
    gaps = np.abs(wanted[..., None] - codec.levels)
    assert np.abs(found - wanted) == pytest.approx(gaps.min(axis=2), abs=1e-3)  # the nearest level
    # The decoded vector has the length of the original one, to what fp16 can tell.
    lengths = np.linalg.norm(codec.decode(coded), axis=1)
    assert lengths == pytest.approx(np.linalg.norm(vectors, axis=1), rel=2e-3, abs=1e-3)


def test_more_bits_and_more_centroids_decode_better() -> None:
    model = Drawn()
    vectors = np.concatenate(model.token_vectors([f"50 {place}" for place in range(60)], "passage"))

    def similarity(centroids: int, bits: int) -> float:
        codec = ResidualCodec.train(vectors, centroids, bits)
        return float((codec.decode(codec.encode(vectors)) * vectors).sum(axis=1).mean())

    by_bits = [similarity(20, bits) for bits in (1, 2, 4)]
    assert by_bits == sorted(by_bits) and by_bits[0] > 0.9 and by_bits[2] > 0.995
    assert similarity(5, 1) < similarity(20, 1) < similarity(200, 1)


def test_levels_by_hand() -> None:
    """Residuals of one centroid are -3, -1, 1, 3 (in units of their spread): four levels hold them exactly."""
    vectors = np.array([[-3.0], [-1.0], [1.0], [3.0]], np.float32)
    codec = ResidualCodec.train(vectors, 1, 2)
    assert codec.centroids.tolist() == [[0.0]]
    assert codec.levels * codec.spread == pytest.approx([-3, -1, 1, 3])
    coded = codec.encode(vectors)
    assert coded.codes.tolist() == [[0], [1], [2], [3]] and coded.scales.tolist() == [1, 1, 1, 1]
    assert codec.decode(coded) == pytest.approx(vectors)


def test_k_means_finds_clusters_that_are_far_apart() -> None:
    draw = np.random.default_rng(1)
    middles = np.array([[0, 0], [100, 0], [0, 100]], np.float32)
    sample = np.repeat(middles, 40, axis=0) + draw.standard_normal((120, 2)).astype(np.float32)
    found = k_means(sample, 12)
    assert np.abs(sample - found[nearest(sample, found)]).max() < 4  # no vector is far from its centroid
    same = np.ones((5, 2), np.float32)  # fewer different vectors than centroids
    assert nearest(same, k_means(same, 3)).tolist() == [0] * 5


@given(seed=st.integers(0, 1000), length=st.sampled_from([0.01, 1.0, 4.0]), step=st.sampled_from([2**-12, 2**-9, 1.0]))
@settings(max_examples=60, deadline=None)
def test_the_nearest_centroid_is_that_of_float64_even_if_others_are_as_near(
    seed: int, length: float, step: float
) -> None:
    draw = np.random.default_rng(seed)
    middle = draw.standard_normal(96)
    near = middle * length / np.linalg.norm(middle) + step * draw.integers(-1, 2, (160, 96)) * (draw.random(96) < 0.1)
    vectors, centroids = (
        near[:100].astype(np.float16).astype(np.float32),
        near[60:].astype(np.float16).astype(np.float32),
    )
    centroids[50:] = centroids[:50]  # the first of equal ones
    exact = vectors.astype(np.float64) @ centroids.T.astype(np.float64) - (centroids.astype(np.float64) ** 2).sum(1) / 2
    assert nearest(vectors, centroids).tolist() == exact.argmax(axis=1).tolist()


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_with_all_probes_and_candidates_it_is_brute_force_over_the_decoded_vectors(bits: int, tmp_path: Path) -> None:
    model, texts = Drawn(), corpus_of(500).texts
    index = CompressedIndex.open(built(tmp_path, model, texts, bits, 32))
    decoded = index.codec.decode(index.tokens)
    queries = model.token_vectors(["4 one", "9 two", "1 three", "17 four"], "query")
    for probes, candidates in ((32, 500), (10**6, 10**6)):
        hits = index.search(queries, 500, probes=probes, candidates=candidates)
        for row, query in enumerate(queries):
            (wanted,) = maxsims([query.astype(np.float16).astype(np.float32)], decoded, index.starts[:-1])
            assert hits.scores[row] == pytest.approx(wanted[hits.positions[row]], abs=1e-4)
            assert np.all(np.diff(wanted[hits.positions[row]]) < 1e-4)  # descending, but for rounding
            assert sorted(hits.positions[row]) == list(range(500))


def test_the_first_step_is_maxsim_over_cells_where_all_are_looked_at(tmp_path: Path) -> None:
    model, texts = Drawn(), corpus_of(300).texts
    index = CompressedIndex.open(built(tmp_path, model, texts, 2, 16))
    query = model.token_vectors(["5 query"], "query")[0]
    cells = index.codec.centroids @ query.T
    of_passage = np.array(
        [cells[index.tokens.cells[index.starts[p] : index.starts[p + 1]]].max(axis=0) for p in range(300)]
    )
    assert index._approximate_scores(cells, 16) == pytest.approx(of_passage.sum(axis=1), abs=1e-5)
    # With two probes, a token's score is that of its best cell among the two, or the third best centroid's.
    third = np.sort(cells, axis=0)[-3]
    assert index._approximate_scores(cells, 2) == pytest.approx(np.maximum(of_passage, third).sum(axis=1), abs=1e-5)


def test_few_candidates_find_most_of_what_is_exact(tmp_path: Path) -> None:
    model, corpus = Drawn(), corpus_of(1000)
    exact, compressed = LateInteraction(model), LateInteraction(model, index="compressed", bits=4)
    compressed.candidates = 50
    for system in (exact, compressed):
        system.index(corpus)
    queries = [f"8 query {place}" for place in range(20)]
    wanted, found = exact.search(queries, 10), compressed.search(queries, 10)
    same = [len({*one} & {*two}) for one, two in zip(wanted.positions, found.positions, strict=True)]
    assert np.mean(same) >= 8.5
    assert exact.index_bytes and compressed.index_bytes and compressed.index_bytes < exact.index_bytes


def test_each_passage_is_encoded_once_and_the_cache_serves_it_again(tmp_path: Path) -> None:
    corpus, told = corpus_of(300), []
    first = LateInteraction(Drawn(), index="compressed", cache=tmp_path)
    first.progress = lambda done, total: told.append((done, total))
    first.index(corpus)
    assert sorted(first.model.asked) == sorted(corpus.texts)  # type: ignore[attr-defined]
    assert told[-1] == (300, 300) and [done for done, _ in told] == sorted(done for done, _ in told)
    again = LateInteraction(Drawn(), index="compressed", cache=tmp_path)
    again.index(corpus)
    assert not again.model.asked  # type: ignore[attr-defined]
    other = LateInteraction(Drawn(), index="compressed", cache=tmp_path)
    other.index(corpus_of(299))  # another corpus is another index
    assert len(other.model.asked) == 299  # type: ignore[attr-defined]


def test_a_damaged_index_is_named(tmp_path: Path) -> None:
    folder = built(tmp_path, Drawn(), corpus_of(50).texts)
    data = bytearray((folder / "codes.bin").read_bytes())
    data[-1] ^= 1
    (folder / "codes.bin").write_bytes(data)
    with pytest.raises(ModelError, match=r"codes.bin damaged: delete this folder"):
        CompressedIndex.open(folder)
    (folder / "meta.json").write_text("[]")
    with pytest.raises(ModelError, match="is not an index of token vectors"):
        CompressedIndex.open(folder)


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    class Broken(Drawn):
        def token_vectors(self, texts: Sequence[str], kind: str) -> list[np.ndarray]:
            raise ModelError("no more")

    with pytest.raises(ModelError, match="no more"):
        built(tmp_path, Broken(), corpus_of(5).texts)
    assert list(tmp_path.iterdir()) == []


def test_same_bytes_for_any_number_of_threads(tmp_path: Path) -> None:
    model, found = Drawn(64), []
    for threads in (1, 3):
        (tmp_path / str(threads)).mkdir()
        with threadpool_limits(threads, "blas"):
            folder = built(tmp_path / str(threads), model, corpus_of(800).texts, 2, 100)
            asked = model.token_vectors(["9 a", "33 b"], "query")
            hits = CompressedIndex.open(folder).search(asked, 50, probes=4, candidates=200)
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
        found.append((files, hits.positions.tobytes(), hits.scores.tobytes()))
    assert found[0] == found[1]


def test_the_usual_number_of_centroids_grows_with_the_root() -> None:
    assert [usual_centroids(tokens) for tokens in (1, 10_000, 1_000_000, 120_000_000)] == [4, 256, 2048, 32768]
