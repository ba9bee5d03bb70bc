from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from airgen.errors import ModelError
from airgen.retrievers.dense.retriever import EmbeddingCache


class HashEmbedder:
    """Vectors from a text's hash; remembers what it was asked to embed."""

    def __init__(self, dim: int = 8, model: str = "hash") -> None:
        self.name, self.dim, self.asked = model, dim, list[str]()

    def encode(self, texts: Sequence[str], kind: str) -> np.ndarray:
        self.asked += texts
        rows = [
            np.frombuffer(hashlib.blake2b(f"{kind} {text}".encode(), digest_size=self.dim).digest(), np.uint8)
            for text in texts
        ]
        found = np.array(rows, np.float32).reshape(len(texts), self.dim) + 1
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    def describe(self) -> Mapping[str, object]:
        return {"model": self.name, "pooling": "none"}


def rows_of(folder: Path, embedder: HashEmbedder, texts: list[str]) -> np.ndarray:
    with EmbeddingCache(folder, embedder, "passage") as cache:
        return np.array(cache.matrix()[:0]) if not texts else np.array(_gather(cache, texts))


def _gather(cache: EmbeddingCache, texts: list[str]) -> np.ndarray:
    places = cache.rows(texts)
    return cache.matrix()[places]


def test_only_new_texts_are_embedded(tmp_path: Path) -> None:
    embedder = HashEmbedder()
    first = rows_of(tmp_path, embedder, ["a", "b", "a"])
    assert embedder.asked == ["a", "b"]
    assert np.array_equal(first[0], first[2])
    assert np.array_equal(first, HashEmbedder().encode(["a", "b", "a"], "passage").astype(np.float16))
    again = HashEmbedder()
    grown = rows_of(tmp_path, again, ["c", "a", "b", "d"])
    assert again.asked == ["c", "d"]
    assert np.array_equal(grown, HashEmbedder().encode(["c", "a", "b", "d"], "passage").astype(np.float16))
    assert (tmp_path / "rows.f16").stat().st_size == 4 * 8 * 2


def test_a_number_that_fp16_cannot_hold_is_no_infinity(tmp_path: Path) -> None:
    class Long(HashEmbedder):
        def encode(self, texts: Sequence[str], kind: str) -> np.ndarray:
            return super().encode(texts, kind) * 1e6

    with pytest.raises(ModelError, match=r"rows on disk \(fp16\) hold 65,504 at most: leave `cache` out"):
        rows_of(tmp_path, Long(), ["a"])
    assert (tmp_path / "rows.f16").stat().st_size == 0


def test_a_lone_surrogate_and_an_empty_text_have_places(tmp_path: Path) -> None:
    with EmbeddingCache(tmp_path, HashEmbedderIgnoring(), "passage") as cache:
        assert cache.rows(["\ud800", "", "\ud800"]).tolist() == [0, 1, 0]


class HashEmbedderIgnoring(HashEmbedder):
    def encode(self, texts: Sequence[str], kind: str) -> np.ndarray:
        return super().encode([text.encode("utf-8", "replace").decode() for text in texts], kind)


@pytest.mark.parametrize("lost_rows", [0, 1, 15, 16, 40])
@pytest.mark.parametrize("lost_keys", [0, 1, 19, 20, 45])
def test_a_torn_append_is_repaired(tmp_path: Path, lost_rows: int, lost_keys: int) -> None:
    texts = [f"text {number}" for number in range(10)]
    rows_of(tmp_path, HashEmbedder(), texts)
    for name, lost in (("rows.f16", lost_rows), ("keys.bin", lost_keys)):
        data = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(data[: len(data) - lost])
    embedder = HashEmbedder()
    found = rows_of(tmp_path, embedder, texts)
    assert np.array_equal(found, HashEmbedder().encode(texts, "passage").astype(np.float16))
    kept = 10 - max(-(-lost_rows // 16), -(-lost_keys // 20))
    assert embedder.asked == texts[kept:]


def test_a_row_that_never_reached_the_disk_is_found_by_its_checksum(tmp_path: Path) -> None:
    texts = [f"text {number}" for number in range(10)]
    rows_of(tmp_path, HashEmbedder(), texts)
    data = bytearray((tmp_path / "rows.f16").read_bytes())
    data[8 * 16 : 9 * 16] = bytes(16)  # a block of zeros, as file systems leave after a power cut
    (tmp_path / "rows.f16").write_bytes(data)
    embedder = HashEmbedder()
    found = rows_of(tmp_path, embedder, texts)
    assert embedder.asked == texts[8:]
    assert np.array_equal(found, HashEmbedder().encode(texts, "passage").astype(np.float16))


@pytest.mark.parametrize("place", range(0, 160, 7))
@pytest.mark.parametrize(("name", "size"), [("rows.f16", 16), ("keys.bin", 20)])
def test_a_flipped_byte_is_found_wherever_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, size: int, place: int
) -> None:
    monkeypatch.setattr("airgen.retrievers.dense.retriever._TAIL", 2)
    texts = [f"text {number}" for number in range(10)]
    right = rows_of(tmp_path, HashEmbedder(), texts)
    data = bytearray((tmp_path / name).read_bytes())
    data[place] ^= 0x40
    (tmp_path / name).write_bytes(data)
    first, second = HashEmbedder(), HashEmbedder()
    row, at = divmod(place, size)
    assert np.array_equal(rows_of(tmp_path, first, texts), right)
    # Of the last rows one that is damaged takes those after it along, as after a crash; a damaged key is a lost one.
    assert first.asked == (texts[row:] if row >= 8 and at < 16 == size else [texts[row]])
    assert np.array_equal(rows_of(tmp_path, second, texts), right)
    assert second.asked == []


def test_what_was_embedded_before_a_failure_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airgen.retrievers.dense.retriever._BATCH", 2)

    class Failing(HashEmbedder):
        def encode(self, texts: Sequence[str], kind: str) -> np.ndarray:
            if len(self.asked) >= 4:
                raise ModelError("gone")
            return super().encode(texts, kind)

    with pytest.raises(ModelError, match="gone"):
        rows_of(tmp_path, Failing(), list("abcdef"))
    embedder = HashEmbedder()
    rows_of(tmp_path, embedder, list("abcdef"))
    assert embedder.asked == ["e", "f"]


def test_another_models_cache_is_refused(tmp_path: Path) -> None:
    rows_of(tmp_path, HashEmbedder(), ["a"])
    with pytest.raises(ModelError, match=r"holds embeddings of hash .* not of other"):
        EmbeddingCache(tmp_path, HashEmbedder(model="other"), "passage")
    with pytest.raises(ModelError, match="choose another folder"):
        EmbeddingCache(tmp_path, HashEmbedder(dim=9), "passage")
    with pytest.raises(ModelError, match="choose another folder"):
        EmbeddingCache(tmp_path, HashEmbedder(), "query")
    rows_of(tmp_path, HashEmbedder(), ["a"])  # a refusal leaves it usable and unlocked


def test_a_changed_dimension_and_nan_are_errors(tmp_path: Path) -> None:
    class Changing(HashEmbedder):
        def encode(self, texts: Sequence[str], kind: str) -> np.ndarray:
            found = super().encode(texts, kind)
            if "nan" in texts:
                found[0, 0] = np.nan
            return found[:, :5] if "narrow" in texts else found

    with EmbeddingCache(tmp_path, Changing(), "passage") as cache:
        cache.rows(["a"])
        with pytest.raises(ModelError, match=r"\(1, 5\)"):
            cache.rows(["narrow"])
        with pytest.raises(ModelError, match="NaN"):
            cache.rows(["nan"])
        assert len(cache) == 1


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with (
        EmbeddingCache(tmp_path, HashEmbedder(), "passage"),
        pytest.raises(ModelError, match="another process"),
    ):
        EmbeddingCache(tmp_path, HashEmbedder(), "passage")
    EmbeddingCache(tmp_path, HashEmbedder(), "passage").close()


def test_a_damaged_meta_file(tmp_path: Path) -> None:
    rows_of(tmp_path, HashEmbedder(), ["a"])
    (tmp_path / "meta.json").write_text("{")
    with pytest.raises(ModelError, match="not JSON"):
        EmbeddingCache(tmp_path, HashEmbedder(), "passage")
