"""The embedded models where they have been fetched, and a few passages."""

import re
from pathlib import Path

import numpy as np
import pytest
from encode_once import encoder_as_it_is

from airgen import models
from airgen.retrievers import Hits, Passages

__all__ = ["encoder_as_it_is"]

TEXTS = [
    "The mitochondrion makes most of the cell's supply of energy.",
    "A list comprehension builds a list from an iterable in Python.",
    "The French Revolution began in 1789 with the storming of the Bastille.",
    "Insulin lowers the level of glucose in the blood.",
    "Bread dough rises because yeast gives off carbon dioxide.",
    "The try statement specifies handlers for exceptions that a group of statements may raise.",
    "",
    "Saturn's rings are mostly particles of ice.",
]
QUERIES = {
    "how do cells get energy": 0,
    "catching errors in a program": 5,
    "which hormone controls blood sugar": 3,
    "what are the rings of a planet made of": 7,
}


def assert_same(one: Hits, other: Hits) -> None:
    """The same passages with the same scores, to the last bit."""
    np.testing.assert_array_equal(one.positions, other.positions)
    np.testing.assert_array_equal(one.scores, other.scores)


def _fetched(name: str) -> str:
    if not models.fetched(name):
        pytest.skip(f"airgen fetch {name}")
    return name


@pytest.fixture(scope="session")
def minilm() -> str:
    return _fetched("all-minilm-l6-v2-int8")


@pytest.fixture(scope="session")
def splade() -> str:
    return _fetched("splade-bert-tiny")


@pytest.fixture(scope="session")
def multilingual() -> str:
    return _fetched("multilingual-e5-small-q4")


@pytest.fixture
def corpus() -> Passages:
    return Passages([f"d{place}" for place in range(len(TEXTS))], TEXTS)


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A WordPiece tokenizer of the words above, as transformers saves it."""
    transformers = pytest.importorskip("transformers")
    words = sorted({word for text in [*TEXTS, *QUERIES] for word in re.findall(r"\w+|[^\w\s]", text.lower())})
    letters = [*map(chr, range(97, 123)), *(f"##{chr(letter)}" for letter in range(97, 123))]
    folder = tmp_path_factory.mktemp("tokenizer")
    vocabulary = dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *words])
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def _tiny(kind: str, tokenizer_folder: Path, folder: Path, **settings: object) -> Path:
    """A random two-layer BERT of some kind, with that tokenizer."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tokenizer_folder)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
        initializer_range=0.3,  # so that scores differ
        **settings,
    )
    model = getattr(transformers, kind)(config).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_mlm(tokenizer_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _tiny("BertForMaskedLM", tokenizer_folder, tmp_path_factory.mktemp("mlm"))


@pytest.fixture(scope="session")
def tiny_bert(tokenizer_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _tiny("BertModel", tokenizer_folder, tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="session")
def tiny_cross_encoder(tokenizer_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _tiny("BertForSequenceClassification", tokenizer_folder, tmp_path_factory.mktemp("cross"), num_labels=1)
