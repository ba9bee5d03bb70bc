import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from airgen.errors import ModelError
from airgen.retrievers.dense.retriever import Dense
from airgen.retrievers.encoding_cache import EncodingStore
from airgen.retrievers.model_facts import model_identity
from airgen.retrievers.passages import Passages


class HashEmbedder:
    """Vectors from a text's hash; remembers what it was asked to embed."""

    def __init__(self, dim: int = 8, model: str = "hash") -> None:
        self.name, self.dim, self.asked = model, dim, list[str]()

    def encode(self, texts: Sequence[str], kind: str) -> np.ndarray:
        self.asked += texts
        rows = [
            np.frombuffer(
                hashlib.blake2b(f"{kind} {text}".encode("utf-8", "replace"), digest_size=self.dim).digest(), np.uint8
            )
            for text in texts
        ]
        found = np.array(rows, np.float32).reshape(len(texts), self.dim) + 1
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    def describe(self) -> Mapping[str, object]:
        return {"model": self.name, "pooling": "none"}


def rows_of(root: Path, embedder: HashEmbedder, texts: Sequence[str]) -> np.ndarray:
    """The rows of a dense index."""
    dense = Dense(embedder, cache=root)
    dense.index(Passages([str(place) for place in range(len(texts))], texts))
    assert dense._matrix is not None
    return np.array(dense._matrix if dense._rows is None else dense._matrix[dense._rows])


def file_of(root: Path, name: str) -> Path:
    return EncodingStore(root, model_identity(HashEmbedder()), "vectors", "passage").folder / name


def test_only_new_texts_are_embedded(tmp_path: Path) -> None:
    embedder = HashEmbedder()
    first = rows_of(tmp_path, embedder, ["a", "b", "a"])
    assert embedder.asked == ["a", "b"]
    assert np.array_equal(first[0], first[2])
    assert np.array_equal(first, HashEmbedder().encode(["a", "b", "a"], "passage"))
    again = HashEmbedder()
    grown = rows_of(tmp_path, again, ["c", "a", "b", "d"])
    assert again.asked == ["c", "d"]
    assert np.array_equal(grown, HashEmbedder().encode(["c", "a", "b", "d"], "passage"))
    assert file_of(tmp_path, "data.bin").stat().st_size == 4 * 8 * 4


def test_a_lone_surrogate_and_an_empty_text_have_rows(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, HashEmbedder(), ["\ud800", "", "\ud800"])
    assert file_of(tmp_path, "data.bin").stat().st_size == 2 * 32
    assert np.array_equal(rows[0], rows[2]) and not np.array_equal(rows[0], rows[1])


@pytest.mark.parametrize("lost_rows", [0, 1, 31, 32, 80])
@pytest.mark.parametrize("lost_keys", [0, 1, 35, 36, 80])
def test_a_torn_append_is_repaired(tmp_path: Path, lost_rows: int, lost_keys: int) -> None:
    texts = [f"text {number}" for number in range(10)]
    rows_of(tmp_path, HashEmbedder(), texts)
    for name, lost in (("data.bin", lost_rows), ("keys.bin", lost_keys)):
        data = file_of(tmp_path, name).read_bytes()
        file_of(tmp_path, name).write_bytes(data[: len(data) - lost])
    embedder = HashEmbedder()
    found = rows_of(tmp_path, embedder, texts)
    assert np.array_equal(found, HashEmbedder().encode(texts, "passage"))
    kept = 10 - max(-(-lost_rows // 32), -(-lost_keys // 36))
    assert embedder.asked == texts[kept:]


@pytest.mark.parametrize("place", range(0, 320, 13))
@pytest.mark.parametrize(("name", "size"), [("data.bin", 32), ("keys.bin", 36)])
def test_a_flipped_byte_is_found_wherever_it_is(tmp_path: Path, name: str, size: int, place: int) -> None:
    texts = [f"text {number}" for number in range(10)]
    right = rows_of(tmp_path, HashEmbedder(), texts)
    data = bytearray(file_of(tmp_path, name).read_bytes())
    data[place] ^= 0x40
    file_of(tmp_path, name).write_bytes(data)
    first, second = HashEmbedder(), HashEmbedder()
    assert np.array_equal(rows_of(tmp_path, first, texts), right)
    assert first.asked == [texts[place // size]]
    assert np.array_equal(rows_of(tmp_path, second, texts), right)
    assert second.asked == []


def test_what_was_embedded_before_a_failure_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airgen.retrievers.dense.retriever._BATCH_TEXTS", 2)

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


def test_a_changed_dimension_and_nan_are_errors(tmp_path: Path) -> None:
    class Changing(HashEmbedder):
        def encode(self, texts: Sequence[str], kind: str) -> np.ndarray:
            found = super().encode(texts, kind)
            if "nan" in texts:
                found[0, 0] = np.nan
            return found[:, :5] if "narrow" in texts else found

    rows_of(tmp_path, Changing(), ["a"])
    with pytest.raises(ModelError, match=r"\(1, 5\)"):
        rows_of(tmp_path, Changing(), ["narrow"])
    with pytest.raises(ModelError, match="NaN"):
        rows_of(tmp_path, Changing(), ["nan"])
    assert file_of(tmp_path, "data.bin").stat().st_size == 32


def test_a_model_whose_dimension_changed_is_asked_again(tmp_path: Path) -> None:
    rows_of(tmp_path, HashEmbedder(), ["a", "b", "c"])
    wider = HashEmbedder(dim=9)
    found = rows_of(tmp_path, wider, ["a", "b"])
    assert wider.asked == ["a", "b"]
    assert np.array_equal(found, wider.encode(["a", "b"], "passage"))
