"""A random BERT of a few thousand weights, and a dataset that it can learn in seconds."""

import gc
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from beir_folder import write_beir
from small_models import WORDS, make_bert


@pytest.fixture(autouse=True, scope="module")
def without_collections() -> Iterator[None]:
    """Accelerate collects garbage before and after each training: most of the time of one that has few steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "collect", lambda *_: 0)
        yield


def make_dataset(
    folder: Path,
    *,
    passages: int = 40,
    splits: dict[str, int] | None = None,
    seed: int = 1,
    paraphrased: bool = False,
) -> Path:
    """A BEIR directory: each query is three words of the one passage that is relevant to it.

    `paraphrased`: passages take the first half of the words, and queries say each by its counterpart in the other.
    """
    draw = random.Random(seed)
    half = len(WORDS) // 2
    texts = [" ".join(draw.sample(WORDS[:half] if paraphrased else WORDS, 6)) for _ in range(passages)]
    said = {word: WORDS[place + half] if paraphrased else word for place, word in enumerate(WORDS[:half])}
    rows = [{"_id": f"p{number}", "title": "", "text": text} for number, text in enumerate(texts)]
    queries: list[dict[str, str]] = []
    labels: dict[str, list[tuple[str, str, int]]] = {}
    for split, count in (splits or {"train": 24, "dev": 8, "test": 8}).items():
        for _ in range(count):
            place, name = draw.randrange(passages), f"q{len(queries)}"
            words = draw.sample(texts[place].split(), 3)
            queries.append({"_id": name, "text": " ".join(said.get(word, word) for word in words)})
            labels.setdefault(split, []).append((name, f"p{place}", 1))
    return write_beir(folder, rows, queries, labels)


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT with its masked-language-model head, 32 dimensions."""
    pytest.importorskip("sentence_transformers")
    return make_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 train, 8 dev and 8 test queries over 40 passages."""
    return make_dataset(tmp_path_factory.mktemp("data") / "toy")


@pytest.fixture
def new_dataset(tmp_path: Path) -> Callable[..., Path]:
    """`make_dataset` into a folder of the test."""
    return lambda name="made", **settings: make_dataset(tmp_path / name, **settings)


@pytest.fixture
def new_bert(tmp_path: Path) -> Callable[..., Path]:
    """`make_bert` into a folder of the test."""
    return lambda name="made-bert", **settings: make_bert(tmp_path / name, **settings)
