"""BAAI's models with their own library, FlagEmbedding: bge-m3 with its three outputs, bge embedders and re-rankers.

    {kind: dense, embedder: BAAI/bge-m3}            one vector for each text
    {kind: sparse, model: BAAI/bge-m3}              weights of the text's own tokens
    {kind: late, model: BAAI/bge-m3}                a vector for each token
    {kind: rerank, first: bm25, reranker: BAAI/bge-reranker-v2-gemma}

One pass of bge-m3 computes all three outputs. Components in a process that run the same model share its weights and its
latest passes. If encodings are saved on disk (`cache`, or the folder of a job), a pass also saves the outputs that
other components need, so that a second system with the same model encodes nothing.
"""

import inspect
import json
import sys
import threading
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from weakref import WeakSet, WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airgen.components import devices
from airgen.components.registry import load_extra
from airgen.errors import ModelError
from airgen.retrievers.dense.embedders import (
    TorchModel,
    loaded,
    quiet_transformers,
    revision_of,
    tokens_of,
    torch_facts,
)
from airgen.retrievers.encoding_cache import Arrays
from airgen.retrievers.late.compressed_index import token_rows
from airgen.retrievers.model_facts import ModelFacts, ModelSetup
from airgen.retrievers.model_output import checked_scores, finite, unit_rows
from airgen.retrievers.model_progress import counted_rows
from airgen.retrievers.model_prompts import known_prompts
from airgen.retrievers.protocols import TextKind
from airgen.settings.base import MODEL, SPEED

_HEADS = ("colbert_linear.pt", "sparse_linear.pt")
_IGNORED = ["onnx/*", "*.onnx", "*.onnx_data", "*.msgpack", "*.ot", "*.h5", "imgs/*", "*.jpg"]
_MEMORY_BYTES = 1 << 27  # bytes of the most recent passes


def _library(feature: str) -> Any:
    """Import the package with its progress bars off. Raises MissingExtra or AirgenError."""
    library = load_extra("FlagEmbedding", feature)
    for name, module in list(sys.modules.items()):
        if name.startswith(("FlagEmbedding.inference", "FlagEmbedding.abc.inference")) and hasattr(module, "trange"):
            vars(module).update(tqdm=lambda items, **_: items, trange=lambda *bounds, **_: range(*bounds))
    return library


def _device(library: Any, wanted: str | None) -> str:
    """Return a single device, since the library would start a process for each of several devices."""
    return wanted or str(library.abc.inference.AbsEmbedder.get_target_devices(None)[0])


def _quietly() -> AbstractContextManager[Any]:
    """Hide transformers' deprecation warnings caused by the library."""
    return warnings.catch_warnings(action="ignore", category=FutureWarning)


class FlagModel(TorchModel):
    """Base class of FlagEmbedding models. Code that comes with a model is never run."""

    class Settings(TorchModel.Settings):
        """Settings of a FlagEmbedding model.

        Attributes:
            revision: A revision on the Hub.
            dtype: Type of the weights on a GPU; the library uses fp32 on a CPU.
        """

        packages: ClassVar[tuple[str, ...]] = ("FlagEmbedding",)
        device: Annotated[str | None, SPEED] = None
        revision: str | None = None

    settings: Settings

    @cached_property
    def _files(self) -> Path:
        """Return the model's folder, or the folder of its copy from the Hub. Raises ModelError if neither is
        available."""
        place = self.place(self.name)
        if Path(place).exists():
            return Path(place)
        fetch = load_extra("huggingface_hub", f"the model {self.name!r}").snapshot_download
        ask = {"repo_id": place, "revision": self.settings.revision, "ignore_patterns": _IGNORED}
        return Path(loaded("the model", self.name, fetch, **ask))

    def _config(self) -> Mapping[str, Any]:
        path = self._files / "config.json"
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ModelError(f"{self.name} is not a model of transformers: {path} cannot be read") from error
        return config if isinstance(config, dict) else {}

    @property
    def _half(self) -> dict[str, bool]:
        """Return the dtype as the library's argument. By default, it is that of the files."""
        dtype = self.precision.get("dtype") or devices.own_dtype(self._config())
        return {"use_fp16": dtype == "fp16", "use_bf16": dtype == "bf16"}

    def _limit(self, model: Any) -> None:
        """Let an embedder read as many tokens as the model supports, or as the settings say if that is less."""
        own = int(model.tokenizer.model_max_length)
        positions = int(self._config().get("max_position_embeddings", own))
        if self._config().get("model_type") in ("roberta", "xlm-roberta", "camembert"):
            positions -= 2  # whose positions begin at 2
        most = min(own, positions, getattr(self.settings, "max_length", None) or own)
        model.query_max_length = model.passage_max_length = most

    def _made(self, make: Any, **settings: Any) -> Any:
        with quiet_transformers(), _quietly():
            return loaded("the model", self.name, make, model_name_or_path=str(self._files), **settings)

    @property
    def facts(self) -> ModelFacts:
        return torch_facts(self.model.model)

    def prompt(self, kind: TextKind) -> str:
        """Return what the library puts before texts of a kind."""
        model = self.model
        wanted = getattr(model, "query_instruction_for_retrieval", None) if kind == "query" else None
        return str(model.get_detailed_instruct(model.query_instruction_format, wanted, "")) if wanted else ""

    def setup(self) -> ModelSetup:
        """Return how the library runs the model."""
        query, by_hand = self.prompt("query"), getattr(self.settings, "instruction", None) is not None
        origin = "the settings" if by_hand else "its model card"
        return ModelSetup(
            self.name,
            query,
            "",
            prompts_from=origin if query else "",
            max_length=self.most_tokens("passage"),
            dim=int(self._config().get("hidden_size", 0)) or None,
            dtype=self.facts.dtype or "",
            similarity=self.similarity,
            revision=revision_of(self.place(self.name), self.settings.revision),
        )

    similarity = "cosine"

    def most_tokens(self, kind: TextKind) -> int | None:
        """Return the number of tokens of an embedder, which is that of a passage, or of a re-ranker's pair."""
        most = getattr(self.model, "passage_max_length", None) or getattr(self.model, "max_length", None)
        return None if most is None else int(most)

    def token_counts(self, texts: Sequence[str], kind: TextKind) -> list[int] | None:
        """Return the numbers of tokens according to the model's own tokenizer."""
        return tokens_of(self.model.tokenizer, [self.prompt(kind) + text for text in texts])


class _Encoder:
    """A bge-m3 model in memory, with its latest passes."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self._lock = threading.Lock()
        self._latest: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._bytes = 0

    def outputs(self, name: str, texts: Sequence[str], forms: frozenset[str], batch: int) -> list[dict[str, Any]]:
        """Return the outputs of each text in these forms, with one pass for texts that are not among the latest."""
        with self._lock:
            outputs = {text: self._latest[text] for text in texts if forms <= self._latest.get(text, {}).keys()}
            new = list(dict.fromkeys(text for text in texts if text not in outputs))
            if new:
                outputs |= dict(zip(new, self._passed(name, new, forms, batch), strict=True))
            for text in new:
                self._bytes += _size(outputs[text]) - _size(self._latest.pop(text, {}))
                self._latest[text] = outputs[text]
            while self._bytes > _MEMORY_BYTES and self._latest:
                self._bytes -= _size(self._latest.popitem(last=False)[1])
        return [outputs[text] for text in texts]

    def _passed(self, name: str, texts: list[str], forms: frozenset[str], batch: int) -> Iterator[dict[str, Any]]:
        with _quietly():
            encoded = self.model.encode(
                texts,
                batch_size=batch,
                return_dense="vectors" in forms,
                return_sparse="rows" in forms,
                return_colbert_vecs="tokens" in forms,
            )
        names = {"vectors": "dense_vecs", "rows": "lexical_weights", "tokens": "colbert_vecs"}
        columns = {form: encoded[names[form]] for form in forms}
        for place in range(len(texts)):
            output: dict[str, Any] = {}
            for form, values in columns.items():
                output[form] = _row(values[place]) if form == "rows" else np.asarray(values[place], np.float32)
                finite(output[form][1] if form == "rows" else output[form], name)
            yield output


def _size(output: Mapping[str, Any]) -> int:
    return sum(array.nbytes for value in output.values() for array in (value if isinstance(value, tuple) else (value,)))


def _row(weights: Mapping[str, float]) -> Arrays:
    """Return ascending token ids and their weights."""
    terms = np.array([int(term) for term in weights], np.int32)
    order = np.argsort(terms)
    return terms[order], np.array(list(weights.values()), np.float32)[order]


_ENCODERS: WeakValueDictionary[tuple[object, ...], _Encoder] = WeakValueDictionary()
_LIVE: "WeakSet[BgeM3]" = WeakSet()


class BgeM3(FlagModel):
    """Base class of models with bge-m3's architecture. A subclass returns one of the outputs."""

    class Settings(FlagModel.Settings):
        """Settings of bge-m3.

        Attributes:
            max_length: Maximum number of tokens. Default: what the model supports, which is 8,192 for bge-m3.
            keep: Other outputs that each pass saves in the cache, for systems with the same model that run later.
                Vectors and sparse rows are small, but token vectors take 2 KB per token.
        """

        model: Annotated[str, MODEL] = "BAAI/bge-m3"
        max_length: int | None = Field(default=None, ge=3, le=8192)
        batch_size: Annotated[int, SPEED] = Field(default=32, ge=1)
        keep: Annotated[tuple[Literal["vectors", "rows", "tokens"], ...], SPEED] = ("vectors", "rows")

    settings: Settings
    form: ClassVar[str]
    _held = ("model", "_encoder")

    def set_up(self) -> None:
        super().set_up()
        _LIVE.add(self)

    @property
    def _key(self) -> tuple[object, ...]:
        chosen = self.settings
        return self.place(self.name), chosen.revision, chosen.device, chosen.dtype, chosen.max_length

    @cached_property
    def _encoder(self) -> _Encoder:
        """Return the encoder. Raises ModelError if the model lacks the weights of a sparse or token output."""
        if self.form != "vectors":
            self._need_heads()
        encoder = _ENCODERS.get(self._key)
        if encoder is None:
            library = _library(f"the model {self.name!r}")
            settings = {**self._half, "devices": _device(library, self.settings.device)}
            encoder = _Encoder(self._made(library.BGEM3FlagModel, **settings))
            self._limit(encoder.model)
            _ENCODERS[self._key] = encoder
        return encoder

    def _need_heads(self) -> None:
        if missing := [name for name in _HEADS if not (self._files / name).is_file()]:
            raise ModelError(
                f"{self.name} has no {' and no '.join(missing)}, so it only returns one vector per text: use "
                f"BAAI/bge-m3 or a model trained from it"
            )

    @cached_property
    def model(self) -> Any:
        """Return FlagEmbedding's `BGEM3FlagModel`."""
        return self._encoder.model

    @cached_property
    def dim(self) -> int:
        """Return the length of a vector or a token vector."""
        return int(self._config()["hidden_size"])

    @property
    def beside(self) -> frozenset[str]:
        """Return the other outputs that a pass should save: those that other components need, and those in `keep`."""
        wanted = {*self.settings.keep, *(other.form for other in list(_LIVE) if other._key == self._key)}
        if not all((self._files / name).is_file() for name in _HEADS):
            wanted &= {"vectors"}
        return frozenset(wanted - {self.form})

    def outputs(self, texts: Sequence[str], kind: TextKind, beside: Sequence[str]) -> dict[str, Any]:
        """Return this output and those in `beside` for every text, from one pass."""
        wanted = frozenset([self.form, *beside])
        passes = self._encoder.outputs(self.name, texts, wanted, self.settings.batch_size)
        outputs: dict[str, Any] = {form: [output[form] for output in passes] for form in sorted(wanted)}
        if "vectors" in outputs:
            outputs["vectors"] = np.stack(outputs["vectors"]) if texts else np.zeros((0, self.dim), np.float32)
        return outputs

    def kept(self, form: str, value: Any) -> Arrays:
        """Return an output in the form in which it is stored on disk."""
        if form == "rows":
            terms, weights = value
            return terms, weights
        return (value,) if form == "vectors" else (token_rows(value),)

    def _own(self, texts: Sequence[str], kind: TextKind) -> Any:
        live = {other.form for other in list(_LIVE) if other._key == self._key} if kind == "query" else ()
        return self.outputs(texts, kind, sorted(live))[self.form]

    def describe(self) -> Mapping[str, object]:
        """Return the model, revision, maximum length, precision, and the hash of a local model's files."""
        return {**self.described("bge-m3", "model", "revision", "max_length"), "sha256": self._hash, **self.precision}


class BgeM3Embedder(BgeM3):
    """The dense output: one unit vector per text (an `Embedder`)."""

    form = "vectors"

    def encode(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """Encode texts to unit vectors, float32 (n, dim)."""
        vectors: NDArray[np.float32] = self._own(texts, kind)
        return vectors


class BgeM3Sparse(BgeM3):
    """The sparse output: the text's own tokens, each with its maximum weight in the text."""

    form = "rows"
    similarity = "dot"

    def encode(self, texts: Sequence[str], kind: TextKind) -> list[Arrays]:
        """Return ascending token ids (int32) and their positive weights (float32) for each text."""
        rows: list[Arrays] = self._own(texts, kind)
        return rows


class BgeM3Tokens(BgeM3):
    """The token output: a unit vector for each token except the first, for MaxSim."""

    form = "tokens"
    similarity = "maxsim"

    def token_vectors(self, texts: Sequence[str], kind: TextKind) -> list[NDArray[np.float32]]:
        """Return the token vectors of each text, (tokens, dim)."""
        vectors: list[NDArray[np.float32]] = self._own(texts, kind)
        return vectors


class FlagEmbedder(FlagModel):
    """A bge embedder other than bge-m3, with the library's pooling and instruction format for it."""

    class Settings(FlagModel.Settings):
        """Settings of a bge embedder.

        Attributes:
            model_class: Class of a model that the library does not know by name.
            pooling: Pooling of a model that the library does not know by name.
            max_length: Maximum number of tokens. Default: what the model supports.
            instruction: Instruction for queries, in the format with which the model was trained. Default: the one in
                the model card.
        """

        max_length: int | None = Field(default=None, ge=1)
        batch_size: Annotated[int, SPEED] = Field(default=32, ge=1)
        instruction: str | None = None
        model_class: Literal["encoder-only-base", "decoder-only-base", "decoder-only-icl"] | None = None
        pooling: Literal["cls", "mean", "last_token"] | None = None

    settings: Settings

    @cached_property
    def model(self) -> Any:
        library, chosen = _library(f"the model {self.name!r}"), self.settings
        known = library.inference.auto_embedder.AUTO_EMBEDDER_MAPPING.get(Path(self.name).name)
        settings: dict[str, Any] = {
            "model_class": chosen.model_class,
            "pooling_method": chosen.pooling,
            **self._half,
            "devices": _device(library, chosen.device),
            "query_instruction_for_retrieval": chosen.instruction,
            "trust_remote_code": False,
            "batch_size": chosen.batch_size,
        }
        if known is not None:
            settings["model_class"] = chosen.model_class or _class_name(known.model_class)
            settings["pooling_method"] = chosen.pooling or known.pooling_method.value
            settings["query_instruction_format"] = known.query_instruction_format
        elif chosen.model_class is None:
            raise ModelError(
                f"{self.name} is not a name that FlagEmbedding knows: set `model_class` and `pooling`, or `kind: "
                f"sentence-transformers`"
            )
        else:  # without a format, the library would join the instruction and the query without a space
            parameter = inspect.signature(_classes()[chosen.model_class]).parameters["query_instruction_format"]
            settings["query_instruction_format"] = parameter.default
        card = known_prompts(self.name)
        if chosen.instruction is None and card is not None and card.query:  # which includes the format
            settings |= {"query_instruction_for_retrieval": card.query, "query_instruction_format": "{}{}"}
        model = self._made(library.FlagAutoModel.from_finetuned, **settings)
        self._limit(model)
        return model

    @cached_property
    def dim(self) -> int:
        """Length of a vector."""
        return int(self._config()["hidden_size"])

    def encode(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """Encode texts to unit vectors, float32 (n, dim)."""
        if not texts:
            return np.zeros((0, self.dim), np.float32)
        model = self.model
        with _quietly():
            vectors = (model.encode_queries if kind == "query" else model.encode_corpus)(list(texts))
        if isinstance(vectors, dict):  # of a bge-m3, which has further outputs
            vectors = vectors["dense_vecs"]
        return unit_rows(finite(np.asarray(vectors, np.float32).reshape(len(texts), -1), self.name))

    def describe(self) -> Mapping[str, object]:
        """Return the model, revision, maximum length, precision, instruction, class, pooling, and the hash of local
        files."""
        names = ("model", "revision", "max_length", "instruction", "model_class", "pooling")
        return {**self.described("flag-embedding", *names), "sha256": self._hash, **self.precision}


def _classes() -> dict[str, type]:
    """Return the library's embedder classes by their names."""
    mapping = load_extra("FlagEmbedding.inference.embedder.model_mapping", "FlagEmbedding").EMBEDDER_CLASS_MAPPING
    return {str(name.value): kind for name, kind in mapping.items()}


def _class_name(kind: type) -> str:
    """Return the library's own name for an embedder class."""
    return next(name for name, known in _classes().items() if known is kind)


RerankerClass = Literal["encoder-only-base", "decoder-only-base", "decoder-only-layerwise"]
_CPU_BATCH, _GPU_BATCH = 8, 128


class FlagReranker(FlagModel):
    """A FlagEmbedding re-ranker: a cross-encoder, an LLM that answers Yes, or a layer-wise LLM. Scores are raw
    logits."""

    class Settings(FlagModel.Settings):
        """Settings of a bge re-ranker.

        Attributes:
            model_class: The model's scoring method. Default: according to its name or config.json.
            max_length: Maximum number of tokens per pair. Default: the library's, which is 512.
            query_max_length: Maximum number of tokens of the query. Default: three quarters of `max_length`.
            cutoff_layer: Layer whose score is used, for a layer-wise model. Default: the last.
            prompt: The prompt for an LLM. Default: the prompt with which it was trained.
        """

        model: Annotated[str, MODEL] = "BAAI/bge-reranker-large"
        model_class: RerankerClass | None = None
        max_length: int | None = Field(default=None, ge=4)
        query_max_length: int | None = Field(default=None, ge=1)
        batch_size: Annotated[int | None, SPEED] = Field(default=None, ge=1)
        cutoff_layer: int | None = Field(default=None, ge=1)
        prompt: str | None = None

    settings: Settings

    def _class(self) -> str:
        """Return the class of the model. Raises ModelError if it is not a re-ranker, or cannot run with this
        library."""
        if self.settings.model_class is not None:
            return self.settings.model_class
        names = [str(name) for name in self._config().get("architectures") or ()]
        for ending, kind in (
            ("ForSequenceClassification", "encoder-only-base"),
            ("LayerWiseMiniCPMForCausalLM", "decoder-only-layerwise"),
            ("CostWiseGemmaForCausalLM", "decoder-only-lightweight"),
            ("ForCausalLM", "decoder-only-base"),
        ):
            if any(name.endswith(ending) for name in names):
                if kind == "decoder-only-lightweight":
                    raise ModelError(f"{self.name}: FlagEmbedding runs this kind of model only with transformers 4.46")
                return kind
        reason = f"its config.json names {', '.join(names) or 'no architecture'}"
        raise ModelError(f"{self.name} is not a re-ranker ({reason}): name another model, or set `model_class`")

    @cached_property
    def model(self) -> Any:
        """Return FlagEmbedding's re-ranker."""
        kind, chosen = self._class(), self.settings
        library = _library(f"the re-ranker {self.name!r}")
        device = _device(library, chosen.device)
        half = self._half
        if kind == "encoder-only-base":  # which the library runs in fp16 or fp32 only
            half = {"use_fp16": any(half.values()), "use_bf16": False}
        settings: dict[str, Any] = {
            "model_class": kind,
            **half,
            "devices": device,
            "trust_remote_code": False,
            "batch_size": chosen.batch_size or (_CPU_BATCH if device == "cpu" else _GPU_BATCH),
            **({} if chosen.max_length is None else {"max_length": chosen.max_length}),
            "query_max_length": chosen.query_max_length,
        }
        if kind != "encoder-only-base":
            settings["prompt"] = chosen.prompt
        if kind != "decoder-only-layerwise":
            return self._made(library.FlagAutoReranker.from_finetuned, **settings)
        settings["use_fp16"] = True  # the library requires it, but uses single precision on a CPU
        if chosen.cutoff_layer is not None:
            settings["cutoff_layers"] = [chosen.cutoff_layer]
        with _layerwise_code() as repair:
            return repair(self._made(library.FlagAutoReranker.from_finetuned, **settings))

    @property
    def tokens_of_pair(self) -> int:
        """Return how many special tokens a pair has."""
        return int(self.model.tokenizer.num_special_tokens_to_add(pair=True))

    def setup(self) -> ModelSetup:
        """Return how the library runs the model."""
        return replace(super().setup(), query_prompt=self.settings.prompt, passage_prompt=None, dim=None, similarity="")

    def token_counts(self, texts: Sequence[str], kind: TextKind) -> list[int] | None:
        """Return the numbers of tokens, without the special tokens and the prompt of a pair."""
        return tokens_of(self.model.tokenizer, texts, special=False)

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Return one logit per pair, shape (n,). Raises ModelError for NaN or a wrong number of scores."""
        if not pairs:
            return np.zeros(0, np.float32)
        model = self.model
        with _quietly(), counted_rows(getattr(model, "model", None), len(pairs), self.progress):
            scores = model.compute_score([list(pair) for pair in pairs])
        return checked_scores(scores, len(pairs), self.name)

    def describe(self) -> Mapping[str, object]:
        """Return the model and class, revision, lengths, precision, layer, prompt, and the hash of local files."""
        names = ("model", "revision", "model_class", "max_length", "query_max_length", "cutoff_layer", "prompt")
        return {**self.described("flag-reranker", *names), "sha256": self._hash, **self.precision}


@contextmanager
def _layerwise_code() -> Iterator[Any]:
    """Patch FlagEmbedding's code of layer-wise MiniCPM so that it runs with transformers 5.

    transformers 5 gives every config a `rope_scaling`, expects tied weights as a mapping, no longer has
    `use_return_dict` and the cache that this code uses, and does not initialise unsaved buffers, which are therefore
    recreated after loading. The scores are those of transformers 4.57 (tests/retrievers/test_flag_embedding.py).
    """
    code = load_extra("FlagEmbedding.inference.reranker.decoder_only.models.modeling_minicpm_reranker", "FlagEmbedding")
    attention, usual = code.MiniCPMAttention, code.MiniCPMAttention._init_rope

    def rope(layer: Any) -> None:
        if "type" in (layer.config.rope_scaling or ()):
            usual(layer)
        else:
            size, longest, base = layer.head_dim, layer.max_position_embeddings, layer.rope_theta
            layer.rotary_emb = code.MiniCPMRotaryEmbedding(size, max_position_embeddings=longest, base=base)

    def repaired(reranker: Any) -> Any:
        reranker.model.config.use_cache = False
        for layer in reranker.model.modules():
            if isinstance(layer, attention):
                rope(layer)
        return reranker

    attention._init_rope = rope
    code.LayerWiseMiniCPMForCausalLM._tied_weights_keys = None
    code.LayerWiseMiniCPMConfig.use_return_dict = True
    try:
        yield repaired
    finally:
        attention._init_rope = usual
