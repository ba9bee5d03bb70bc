"""Embedders of small models without torch: multilingual e5 in 4 bits, and static vectors."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from airgen.errors import ModelError
from airgen.retrievers.dense.bert_graph import bert
from airgen.retrievers.dense.small_embedders import _NAMES, PackedE5, StaticEmbedder

WIDTH, LAYERS, HEADS, INNER, POSITIONS = 64, 2, 4, 96, 40
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁cat", "▁ca", "t", "a", "c", "s", "▁dog", "q", ":"]
SCORES = [0.0, 0.0, 0.0, 0.0, -3.0, -1.0, -2.0, -2.5, -2.0, -4.0, -1.5, -1.0, -3.0, -3.0]


def quantised(values: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Q4 blocks of an array, and the array that they stand for."""
    blocks = values.reshape(-1, 32)
    scales = (np.abs(blocks).max(axis=1) / 7).astype(np.float16)
    levels = np.clip(np.round(blocks / scales.astype(np.float32)[:, None]), -8, 7).astype(int) + 8
    packed = (levels[:, :16] | (levels[:, 16:] << 4)).astype(np.uint8)
    data = b"".join(scale.tobytes() + row.tobytes() for scale, row in zip(scales, packed, strict=True))
    meant = (levels - 8) * scales.astype(np.float32)[:, None]
    return data, meant.reshape(values.shape).astype(np.float32)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray]]:
    """A random model in the packed form, and its weights by their short names."""
    rng = np.random.default_rng(0)
    shapes = {"emb.word": (len(PIECES), WIDTH), "emb.pos": (POSITIONS, WIDTH), "emb.type": (2, WIDTH)}
    shapes |= {"emb.ln.w": (WIDTH,), "emb.ln.b": (WIDTH,)}
    for layer in range(LAYERS):
        for name in ("q", "k", "v", "ao"):
            shapes |= {f"l{layer}.{name}.w": (WIDTH, WIDTH), f"l{layer}.{name}.b": (WIDTH,)}
        shapes |= {f"l{layer}.fi.w": (INNER, WIDTH), f"l{layer}.fi.b": (INNER,)}
        shapes |= {f"l{layer}.fo.w": (WIDTH, INNER), f"l{layer}.fo.b": (WIDTH,)}
        shapes |= {f"l{layer}.{name}.{part}": (WIDTH,) for name in ("aln", "oln") for part in "wb"}
    weights, tensors = {}, {}
    for name, shape in shapes.items():
        values = rng.normal(0, 0.3, shape).astype(np.float32) + (1 if name.endswith("ln.w") else 0)
        if len(shape) == 2 and name not in ("emb.pos", "emb.type"):
            tensors[name], weights[name] = quantised(values)
        else:
            tensors[name], weights[name] = values.tobytes(), values
    head = struct.pack("<4sI7ifi", b"E5S1", 1, WIDTH, LAYERS, HEADS, INNER, len(PIECES), POSITIONS, 2, 1e-12, 32)
    blob = [piece.encode() for piece in PIECES]
    head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, sum(map(len, blob)))
    head += np.cumsum([0, *map(len, blob)]).astype("<u4").tobytes() + np.array(SCORES, "<f4").tobytes()
    head += b"".join(blob)
    replaced = struct.pack("<IB2I", ord("Ǆ"), 2, ord("c"), ord("a")) + struct.pack("<IBI", ord("\n"), 1, 32)
    head += struct.pack("<iI", 2, len(replaced)) + replaced
    at = len(head) + 4 + sum(2 + len(name) + 21 for name in tensors)
    directory = struct.pack("<i", len(tensors))
    for name, data in tensors.items():
        directory += struct.pack("<H", len(name)) + name.encode()
        directory += struct.pack("<BIQQ", 0, int(np.prod(shapes[name])), at, len(data))
        at += len(data)
    path = tmp_path_factory.mktemp("packed") / "model.bin"
    path.write_bytes(head + directory + b"".join(tensors.values()))
    return path, weights


def test_tokens(packed: tuple[Path, dict[str, np.ndarray]]) -> None:
    model = PackedE5(str(packed[0]), max_length=8)
    found = [
        [PIECES[piece] for piece in ids] for ids in model._ids(["cats", "Ǆt", "dog  cat", "dog\ncat", "", "s" * 30])
    ]
    assert found == [
        ["<s>", "▁cat", "s", "</s>"],
        ["<s>", "▁cat", "</s>"],  # a replaced character
        ["<s>", "▁dog", "▁cat", "</s>"],  # two spaces are one
        ["<s>", "▁dog", "▁cat", "</s>"],
        ["<s>", "</s>"],
        ["<s>", "▁", *"sssss", "</s>"],  # cut to 8
    ]


def test_the_forward_pass_is_that_of_transformers(packed: tuple[Path, dict[str, np.ndarray]]) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    path, weights = packed
    config = transformers.BertConfig(
        vocab_size=len(PIECES), hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=INNER, max_position_embeddings=POSITIONS,
    )  # fmt: skip
    theirs = transformers.BertModel(config, add_pooling_layer=False).eval()
    state = {
        "embeddings.word_embeddings.weight": weights["emb.word"],
        "embeddings.position_embeddings.weight": weights["emb.pos"],
        "embeddings.token_type_embeddings.weight": weights["emb.type"],
        "embeddings.LayerNorm.weight": weights["emb.ln.w"],
        "embeddings.LayerNorm.bias": weights["emb.ln.b"],
    }
    for name, values in weights.items():
        layer, _, rest = name.partition(".")
        if layer[1:].isdigit():
            short, _, part = rest.partition(".")
            state[f"encoder.layer.{layer[1:]}.{_NAMES[short]}.{'weight' if part == 'w' else 'bias'}"] = values
    missing = theirs.load_state_dict({name: torch.from_numpy(values) for name, values in state.items()}, strict=False)
    assert not missing.unexpected_keys
    assert all("position_ids" in key or "token_type_ids" in key for key in missing.missing_keys)
    ours = PackedE5(str(path), max_length=30)
    texts = ["cats", "dog cat dog cats", "", "a q c t s " * 20]
    narrow = ours.encode(texts, "query")
    ours._bert = bert(ours._file.weights(), LAYERS, HEADS, 1e-12)
    vectors = ours.encode(texts, "query")
    assert (narrow * vectors).sum(axis=1).min() > 0.995  # 7 bits
    assert (narrow != vectors).any()
    for text, vector, ids in zip(texts, vectors, ours._ids(["query: " + text for text in texts]), strict=True):
        with torch.inference_mode():
            states = theirs(torch.from_numpy(ids)[None]).last_hidden_state[0].numpy()
        mean = states.mean(axis=0)
        assert vector == pytest.approx(mean / np.linalg.norm(mean), abs=1e-5), text


def test_files_that_are_something_else(tmp_path: Path) -> None:
    for data in (b"", b"GGUF" + bytes(100), b"E5S1\x01\0\0\0" + bytes(30)):
        (tmp_path / "model.bin").write_bytes(data)
        with pytest.raises(ModelError, match="not a packed e5 model"):
            PackedE5(str(tmp_path / "model.bin")).encode(["a"], "query")


def test_meaning_across_languages(multilingual: str) -> None:
    model = PackedE5(multilingual)
    passages = [
        "The mitochondrion makes most of the cell's supply of energy.",
        "The French Revolution began in 1789 with the storming of the Bastille.",
        "Insulin senkt den Blutzuckerspiegel.",
    ]
    queries = [
        "Wie bekommen Zellen Energie?",
        "Quand a commencé la Révolution française ?",
        "which hormone controls blood sugar",
    ]
    scores = model.encode(queries, "query") @ model.encode(passages, "passage").T
    assert scores.argmax(axis=1).tolist() == [0, 1, 2]


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


TWO = np.eye(2, dtype=np.float32)
SHARED = {"weights": np.array([1, 1, 3, 4, 0.5], np.float32), "mapping": np.array([0, 0, 0, 1, 1], np.int64)}


@pytest.mark.parametrize(
    ("tensors", "settings", "texts", "expected"),
    [
        ({}, {}, ["Cats sit", "cats zebra", "zebra", "", "cats run"], [[1, 1], [1, 0], [0, 0], [0, 0], [1, 3]]),
        ({}, {"query_prefix": "cats ", "max_length": 2}, ["cats sit sit"], [[1, 0]]),
        ({}, {"passage_prefix": "cats ", "max_length": 2}, ["sit sit cats"], [[0, 1]]),
        ({"embeddings": TWO, **SHARED}, {}, ["cats sit", "run"], [[3, 4], [0, 1]]),  # as model2vec has them
    ],
)
def test_a_text_is_the_mean_of_its_known_tokens(
    tmp_path: Path, tensors: Any, settings: Any, texts: list[str], expected: list[list[float]]
) -> None:
    model = StaticEmbedder(str(make(tmp_path, **tensors)), **settings)
    found, wanted = model.encode(texts, "query"), np.array(expected, np.float32)
    assert model.dim == 2 and found.dtype == np.float32
    np.testing.assert_allclose(found, wanted / np.maximum(1, np.linalg.norm(wanted, axis=1))[:, None], rtol=1e-6)


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"embedding.weight": TABLE[:3]}, "vectors for 3 tokens, and tokenizer.json has 5"),
        ({"a": TABLE, "b": TABLE}, r"holds a \[5, 2\], b \[5, 2\]"),
        ({"a": TABLE[:, 0].copy()}, r"holds a \[5\]"),
        ({"a": TABLE, "mapping": np.array([0, 1, 2, 3, 5])}, "`mapping` points outside the 5 vectors"),
        ({"a": np.full((5, 2), np.nan, np.float32)}, "NaN or infinity"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, tensors: dict[str, np.ndarray], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        StaticEmbedder(str(make(tmp_path, **tensors))).encode(["cats"], "query")


def test_a_damaged_file(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"not tensors")
    with pytest.raises(ModelError, match=r"model\.safetensors cannot be read"):
        StaticEmbedder(str(tmp_path)).encode(["cats"], "query")
