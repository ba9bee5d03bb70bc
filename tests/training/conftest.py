"""A random BERT of a few thousand weights, and a dataset that it can learn in seconds."""

import gc
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from beir_folder import write_beir

_LINE = (
    "amber bridge candle desert engine falcon garden harbour island jungle kettle lantern mirror needle orchard pepper "
    "quarry ribbon saddle temple urchin valley window yonder zephyr anchor basket copper dragon ember"
)
WORDS = _LINE.split()


@pytest.fixture(autouse=True, scope="module")
def without_collections() -> Iterator[None]:
    """Accelerate collects garbage before and after each training: most of the time of one that has few steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "collect", lambda *_: 0)
        yield


def make_bert(folder: Path, *, masked_lm: bool = True, hidden: int = 32, seed: int = 0) -> Path:
    """A folder with a random BERT (with its masked-language-model head) and a WordPiece tokenizer over `WORDS`."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*special, *letters, *(f"##{letter}" for letter in letters), ":", *WORDS, "query", "passage"]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=64, model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    ).save_pretrained(folder)  # fmt: skip
    torch.manual_seed(seed)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=hidden, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=2 * hidden, max_position_embeddings=64, pad_token_id=0,
    )  # fmt: skip
    kind = transformers.BertForMaskedLM if masked_lm else transformers.BertModel
    kind(config).save_pretrained(folder)
    return folder


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
