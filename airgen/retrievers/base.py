"""What retrievers, embedders and re-rankers share: protocols, the base of the components, checks of output, the k best.

    load_embedder("BAAI/bge-m3")            a name of the catalogue or the Hub, or {kind: ..., settings}
    load_retriever("my_package.retrieval:MyRetriever")         a class of yours, a subclass of `Component`

    retriever.index(corpus)                 once
    retriever.search(queries, k) -> Hits    integer positions into the corpus, best first
    reranker.score(pairs) -> float32 (n,)   one score for each (query, passage) pair; higher is better
    embedder.encode(texts, kind) -> float32 (n, dim), unit length

The k best are found by keys: a score and its position in one uint64, whose order is (score descending, position
ascending).

>>> keys = pack(np.array([0.5, -1.0, 0.5], np.float32), 0)
>>> unpack(np.sort(keys)[::-1])[0].tolist()
[0, 2, 1]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import ModelWrapValidatorHandler, ValidationError, model_validator

from airgen import models
from airgen.dataset.beir import BeirPassage
from airgen.errors import CorpusError, ModelError, UsageError
from airgen.guard import under_guard
from airgen.own_code import code_of
from airgen.records import flat_text
from airgen.registry import resolve
from airgen.sequences import Indexed
from airgen.settings.base import Settings as BaseSettings
from airgen.settings.base import Written, moved
from airgen.settings.needs import located
from airgen.settings.spec import Spec, as_mapping, build, is_written, part_fields, problems

T = TypeVar("T")

_SIGN = np.uint32(0x80000000)
_LOW = np.uint64(0xFFFFFFFF)


def pack(scores: NDArray[np.float32], positions: NDArray[np.int64] | int) -> NDArray[np.uint64]:
    """Keys of finite scores; `positions` are their positions, or that of the first of consecutive scores."""
    bits = (scores + np.float32(0)).view(np.uint32)  # + 0: -0.0 and 0.0 are one score
    ordered = np.where(bits & _SIGN, ~bits, bits | _SIGN).astype(np.uint64)
    places = positions + np.arange(len(scores)) if isinstance(positions, int) else positions
    return (ordered << np.uint64(32)) | (_LOW - places.astype(np.uint64))


def unpack(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Positions and scores of keys, shape kept."""
    ordered = (keys >> np.uint64(32)).astype(np.uint32)
    bits = np.where(ordered & _SIGN, ordered & ~_SIGN, ~ordered).astype(np.uint32)
    return (_LOW - (keys & _LOW)).astype(np.int32), bits.view(np.float32)


def top_k(scores: NDArray[np.float32], k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Positions and scores of the k best of one row of finite scores; fewer where the row is shorter."""
    keys = pack(scores, 0)
    if len(keys) > k > 0:
        keys = np.partition(keys, len(keys) - k)[len(keys) - k :]
    return unpack(np.sort(keys)[::-1][:k])


def finite(vectors: NDArray[np.float32], model: str) -> NDArray[np.float32]:
    """The vectors themselves. Raises ModelError where one holds NaN or infinity, with its position in the batch."""
    good = np.isfinite(vectors).all(axis=-1)
    if not good.all():
        raise ModelError(f"{model} gave NaN or infinity for text {int(np.flatnonzero(~good)[0])} of its batch")
    return vectors


def half(vectors: NDArray[Any], model: str) -> NDArray[np.float16]:
    """Vectors as they are kept and searched. Raises ModelError for a number that fp16 cannot hold."""
    with np.errstate(over="ignore"):
        found = vectors.astype(np.float16)
    if not np.isfinite(found).all():
        raise ModelError(
            f"{model} gave a number of {np.abs(vectors).max():,.0f}, and vectors are kept in fp16, which holds 65,504 "
            "at most: set `similarity: cosine` beside it"
        )
    return found


def unit_rows(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows scaled to length 1; a row of zeros stays as it is."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, np.float32(1e-12)), np.float32)


def checked_scores(scores: Any, count: int, model: str) -> NDArray[np.float32]:
    """Scores as float32 (count,). Raises ModelError for another number of them, texts, NaN or infinity."""
    try:
        with np.errstate(over="ignore"):
            array = np.asarray(scores, np.float32).reshape(-1)
    except (TypeError, ValueError, OverflowError) as error:
        raise ModelError(f"{model} gave scores that are no numbers ({str(error)[:100]})") from None
    if len(array) != count:
        raise ModelError(f"{model} gave {len(array)} scores for {count} pairs")
    if not np.isfinite(array).all():
        bad = int(np.flatnonzero(~np.isfinite(array))[0])
        raise ModelError(f"{model} gave {array[bad]} as the score of pair {bad}: a score must be a finite number")
    return array


def non_empty(corpus: Corpus) -> Corpus:
    """The corpus itself. Raises CorpusError for one without passages or with sequences of unequal length."""
    if not len(corpus):
        raise CorpusError("the corpus has no passages")
    if len(corpus.texts) != len(corpus.ids) or len(corpus.titles) not in (0, len(corpus.ids)):
        raise CorpusError(
            f"the corpus has {len(corpus.ids)} ids, {len(corpus.texts)} texts and {len(corpus.titles)} titles"
        )
    return corpus


TextKind = Literal["query", "passage"]
IndexProgress = Callable[[int, int], None]
"""Takes the number of passages done and of all passages."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Parallel sequences of passages. `titles` and `metadata` are empty or as long as `texts`."""

    ids: Sequence[str]
    texts: Sequence[str]
    titles: Sequence[str] = ()
    language: str = "en"
    metadata: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def from_passages(cls, passages: Iterable[BeirPassage], language: str) -> Corpus:
        """The passages of a BEIR directory, in memory; `titles` stays empty where no passage has a title."""
        every = list(passages)
        titles = [passage.title for passage in every]
        texts = [passage.text for passage in every]
        metadata = [passage.metadata for passage in every]
        ids = [passage.id for passage in every]
        return cls(ids, texts, titles if any(titles) else (), language, metadata if any(metadata) else ())

    def __len__(self) -> int:
        return len(self.ids)

    def full_text(self, position: int) -> str:
        """Title and text joined by a space, as BEIR gives them to a model."""
        return flat_text(self.titles[position] if self.titles else "", self.texts[position])

    @property
    def full_texts(self) -> Sequence[str]:
        """`full_text` of every passage, each made when it is asked for: the texts need not be in memory."""
        return _FullTexts(self)


class _FullTexts(Indexed[str]):
    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus

    def __len__(self) -> int:
        return len(self._corpus)

    def __iter__(self) -> Iterator[str]:
        corpus = self._corpus
        return map(flat_text, corpus.titles, corpus.texts) if corpus.titles else iter(corpus.texts)

    def _item(self, place: int) -> str:
        return self._corpus.full_text(place)


@dataclass(frozen=True, slots=True)
class Hits:
    """The result of a search over n queries; ties are in the order of position.

    positions: int32 (n, k), places in the corpus, best first, -1 after the last hit. scores: float32 (n, k), then -inf.
    """

    positions: NDArray[np.int32]
    scores: NDArray[np.float32]

    @classmethod
    def none(cls, queries: int, k: int) -> Hits:
        """Room for k hits of each query, all empty."""
        return cls(np.full((queries, k), -1, np.int32), np.full((queries, k), -np.inf, np.float32))

    def put(self, row: int, positions: NDArray[np.int32], scores: NDArray[np.float32]) -> None:
        """Set the hits of one query, at most k."""
        self.positions[row, : len(positions)], self.scores[row, : len(scores)] = positions, scores


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a component says of the models that it runs; None where it cannot be known."""

    parameters: int | None = None
    device: str | None = "cpu"
    threads: int | None = None
    dtype: str | None = None

    def __add__(self, other: ModelFacts) -> ModelFacts:
        """The facts of two components that work together."""

        def both(one: str | None, two: str | None) -> str | None:
            return " + ".join(dict.fromkeys(part for part in (one, two) if part is not None)) or None

        return ModelFacts(
            sum(filter(None, (self.parameters, other.parameters))) or None,
            both(self.device, other.device),
            max((count for count in (self.threads, other.threads) if count is not None), default=None),
            both(self.dtype, other.dtype),
        )


@runtime_checkable
class Embedder(Protocol):
    """Texts to vectors whose inner product is the similarity: of length 1, unless a model was trained without that."""

    name: str

    @property
    def dim(self) -> int:
        """Length of a vector."""

    def encode(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """Shape (len(texts), dim)."""

    def describe(self) -> Mapping[str, object]:
        """Every setting that changes the vectors: model, hash, prefixes, pooling, maximum length."""


@runtime_checkable
class Reranker(Protocol):
    """Scores (query, passage) pairs; only the order of the scores within one query has a meaning."""

    name: str

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Shape (len(pairs),), in the order of the pairs."""

    def describe(self) -> Mapping[str, object]:
        """Every setting that changes the scores."""


@runtime_checkable
class CorpusReranker(Reranker, Protocol):
    """A re-ranker that weighs words by their frequency in the corpus, so it must see the corpus first."""

    def fit(self, corpus: Corpus) -> object:
        """Take statistics from the corpus; must be called before `score`."""


@runtime_checkable
class Retriever(Protocol):
    """A first-stage or combined system."""

    name: str

    def index(self, corpus: Corpus) -> None:
        """Read the corpus once; must be called before `search`."""

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """The k best passages of each query."""

    def describe(self) -> Mapping[str, object]:
        """Every setting that changes the result, for the record of a run."""


def show_corpus(reranker: Reranker, corpus: Corpus) -> bool:
    """Let a re-ranker see the corpus if it must; whether it must."""
    if isinstance(reranker, CorpusReranker):
        reranker.fit(corpus)
        return True
    return False


def watch(part: Any, progress: IndexProgress) -> None:
    """Let a component, and those that it is made of, tell how many passages are encoded."""
    if isinstance(part, Component):
        part.progress = progress
        for held in part.components():
            watch(held, progress)


def load_embedder(spec: Spec | Written, folder: Path | None = None) -> Embedder:
    """An embedder from a model's name, or from `{kind: ..., settings}`."""
    embedder: Embedder = build("embedder", spec, folder)
    return embedder


def load_reranker(spec: Spec | Written, folder: Path | None = None) -> Reranker:
    """A re-ranker from a kind (maxsim, splade, dense, bm25), a model's name, or `{kind: ..., settings}`."""
    reranker: Reranker = build("reranker", spec, folder)
    return reranker


def load_retriever(spec: Spec | Written, folder: Path | None = None) -> Retriever:
    """A retriever from a kind with its defaults, or from `{kind: ..., settings}`."""
    retriever: Retriever = build("retriever", spec, folder)
    return retriever


def model_identity(model: Any) -> dict[str, object]:
    """What the encodings of a model depend on: its description, and its code where that is the user's own."""
    return {**model.describe(), **code_of(model)}


def model_place(model: str, folder: Path | None = None) -> str:
    """Where a model is: the folder of one of the catalogue, a folder of the user's, else the Hub's name as it is.

    A relative path starts at `folder`. Raises ModelError for a model of the catalogue that was not fetched.
    """
    if model in models.catalogue():
        return str(models.path(model))
    place = located(model, folder)
    return str(place) if place.exists() else model


def _made(kind: str, folder: Path | None, settings: Mapping[str, Any]) -> Any:
    return resolve("embedder", kind, folder)(folder=folder, **settings)


_WORK = ("fit", "index", "search", "encode", "token_vectors", "weights", "score", "describe", "ann_recall")


class Component:
    """The base of retrievers, re-rankers, embedders and encoders. Their work is called under the guard.

    A subclass declares its settings in a nested class `Settings`, and prepares itself in `set_up`. A field that is
    marked as a part becomes an attribute of the same name: the component that the settings describe. The constructor
    takes the settings as keywords, or without them, the `positional` and the required ones first; or as one checked
    value of `Settings`.
    """

    class Settings(BaseSettings):
        """No settings."""

    name: str
    settings: Settings
    positional: ClassVar[tuple[str, ...]] = ()
    travels: ClassVar[bool] = False  # its settings are all that it is: a worker elsewhere can make the same one
    progress: IndexProgress | None = None  # is told, where it is set, how many passages are encoded

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in _WORK:
            if callable(method := vars(cls).get(name)):
                setattr(cls, name, under_guard(method, _named))

    def __init__(self, *values: Any, folder: Path | None = None, **settings: Any) -> None:
        checked = len(values) == 1 and not settings and isinstance(values[0], self.Settings)
        self.settings = values[0] if checked else self._validated(values, settings, folder)
        self.folder = folder
        for name, part in part_fields(type(self.settings)):
            value = getattr(self.settings, name)
            items = value if isinstance(value, list | tuple) else [value]
            built = [build(part.kind, item, folder) for item in items]
            setattr(self, name, built if items is value else built[0])
        self.set_up()

    def _validated(self, values: Sequence[Any], settings: Mapping[str, Any], folder: Path | None) -> Settings:
        fields = self.Settings.model_fields
        order = dict.fromkeys([*self.positional, *(name for name in fields if fields[name].is_required()), *fields])
        given = dict(zip(list(order)[: len(values)], values, strict=True))
        try:
            return self.Settings.model_validate({**given, **settings}, context={"folder": folder})
        except ValidationError as error:
            lines = (f"{type(self).__name__}: {line}" for line in problems(error))
            raise UsageError("\n".join(lines)) from None

    def set_up(self) -> None:
        """Prepare for work; heavy models are loaded at their first use."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Where it is unpickled it is made again from its class and settings, so one that has learnt must not be."""
        given = {name: getattr(self.settings, name) for name in self.settings.model_fields_set}
        folder = None if self.folder is None else self.folder.absolute()
        return _made, (f"{type(self).__module__}:{type(self).__qualname__}", folder, given)

    def indexed(self, index: T | None) -> T:
        """The index itself. Raises UsageError where there is none yet."""
        if index is None:
            raise UsageError(f"{self.name}: the corpus comes first: call index(corpus)")
        return index

    def components(self) -> list[Any]:
        """The components that it is made of."""
        held = [getattr(self, name) for name, _ in part_fields(type(self.settings))]
        return [part for value in held for part in (value if isinstance(value, list) else [value])]

    @property
    def gpu(self) -> bool:
        """Whether its own model runs on a GPU."""
        return False

    @property
    def texts_at_once(self) -> int | None:
        """How many texts or pairs it is best given at once; None: as few as is usual."""
        return None

    def release(self) -> None:
        """Give back the memory of the models that it runs; the next use loads them again."""
        for part in self.components():
            if isinstance(part, Component):
                part.release()

    def place(self, model: str) -> str:
        """See `model_place`."""
        return model_place(model, self.folder)

    def described(self, family: str, *names: str) -> dict[str, object]:
        """The family and the settings of these names, for `describe`."""
        return {"family": family, **self.settings.model_dump(include=set(names))}

    @property
    def facts(self) -> ModelFacts:
        """Parameters, device and threads of the models that it runs; by default those of its parts together."""
        known = [part.facts for part in self.components() if isinstance(part, Component)]
        return reduce(add, known) if known else ModelFacts()

    def ann_recall(self, queries: Sequence[str], hits: Hits) -> float | None:
        """The share of the nearest passages by exact search that these hits have; None where the search is exact."""
        return None

    @property
    def index_bytes(self) -> int | None:
        """Bytes of the index, None where there is none; by default those of its parts together."""
        return sum(part.index_bytes or 0 for part in self.components() if isinstance(part, Component)) or None


def _named(component: Component) -> str:
    """What a message calls a component; a class of the user's may have no name."""
    return str(getattr(component, "name", "") or f"{type(component).__module__}:{type(component).__qualname__}")


class SettingsWithModel(Component.Settings):
    """Settings whose `model` is a part: the model's own settings may also stand beside it.

    {kind: late, model: NAME, batch_size: 8} means {kind: late, model: {kind: ..., model: NAME, batch_size: 8}}.
    """

    @model_validator(mode="wrap")
    @classmethod
    def _settings_of_the_model(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(value, Mapping):
            return handler(value)
        beside = {name: setting for name, setting in value.items() if name not in cls.model_fields}
        model: Any = value.get("model", cls.model_fields["model"].get_default())
        model = model.written if isinstance(model, Spec) else model
        if not beside or not is_written(model):
            return handler(value)
        own = {name: setting for name, setting in value.items() if name not in beside}
        written = as_mapping(dict(part_fields(cls))["model"].kind, model)
        try:
            return handler({**own, "model": {**written, **beside}})
        except ValidationError as error:
            raise moved(error, lambda place: place[1:] if place[1:2] and place[1] in beside else place) from None
