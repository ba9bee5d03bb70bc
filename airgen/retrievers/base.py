"""Shared by retrievers, embedders and re-rankers: protocols, base class, checks of their output, and top-k.

    load_embedder("BAAI/bge-m3")            a name in the catalogue or on the Hub, or {kind: ..., settings}
    load_retriever("my_package.retrieval:MyRetriever")         your own subclass of `Component`

    retriever.index(corpus)                 once
    retriever.search(queries, k) -> Hits    integer positions into the corpus, best first
    reranker.score(pairs) -> float32 (n,)   a score per (query, passage) pair; higher is better
    embedder.encode(texts, kind) -> float32 (n, dim), unit length

The top k are selected by keys, which hold a score and its position in one uint64 and sort by descending score, then
ascending position.

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
    """Return the keys of finite scores, given their positions or the position of the first of consecutive scores."""
    bits = (scores + np.float32(0)).view(np.uint32)  # + 0: -0.0 equals 0.0
    ordered = np.where(bits & _SIGN, ~bits, bits | _SIGN).astype(np.uint64)
    places = positions + np.arange(len(scores)) if isinstance(positions, int) else positions
    return (ordered << np.uint64(32)) | (_LOW - places.astype(np.uint64))


def unpack(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the positions and scores of keys, with the shape of the keys."""
    ordered = (keys >> np.uint64(32)).astype(np.uint32)
    bits = np.where(ordered & _SIGN, ordered & ~_SIGN, ~ordered).astype(np.uint32)
    return (_LOW - (keys & _LOW)).astype(np.int32), bits.view(np.float32)


def top_k(scores: NDArray[np.float32], k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the positions and scores of the k best of a row of finite scores, or of all if there are fewer."""
    keys = pack(scores, 0)
    if len(keys) > k > 0:
        keys = np.partition(keys, len(keys) - k)[len(keys) - k :]
    return unpack(np.sort(keys)[::-1][:k])


def finite(vectors: NDArray[np.float32], model: str) -> NDArray[np.float32]:
    """Return the vectors unchanged. Raises ModelError for NaN or infinity, naming the position in the batch."""
    good = np.isfinite(vectors).all(axis=-1)
    if not good.all():
        raise ModelError(f"{model} returned NaN or infinity for text {int(np.flatnonzero(~good)[0])} of its batch")
    return vectors


def half(vectors: NDArray[Any], model: str) -> NDArray[np.float16]:
    """Convert vectors to fp16. Raises ModelError for numbers that exceed its range."""
    with np.errstate(over="ignore"):
        found = vectors.astype(np.float16)
    if not np.isfinite(found).all():
        raise ModelError(
            f"{model} returned a number of {np.abs(vectors).max():,.0f}, and vectors are kept in fp16, which holds "
            "65,504 at most: set `similarity: cosine` beside it"
        )
    return found


def unit_rows(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale rows to length 1. Rows of zeros are unchanged."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, np.float32(1e-12)), np.float32)


def checked_scores(scores: Any, count: int, model: str) -> NDArray[np.float32]:
    """Return scores as float32 (count,). Raises ModelError for a wrong number of scores, text, NaN or infinity."""
    try:
        with np.errstate(over="ignore"):
            array = np.asarray(scores, np.float32).reshape(-1)
    except (TypeError, ValueError, OverflowError) as error:
        raise ModelError(f"{model} returned scores that are not numbers ({str(error)[:100]})") from None
    if len(array) != count:
        raise ModelError(f"{model} returned {len(array)} scores for {count} pairs")
    if not np.isfinite(array).all():
        bad = int(np.flatnonzero(~np.isfinite(array))[0])
        raise ModelError(f"{model} returned {array[bad]} as the score of pair {bad}: a score must be a finite number")
    return array


def non_empty(corpus: Corpus) -> Corpus:
    """Return the corpus unchanged. Raises CorpusError if it is empty or its sequences differ in length."""
    if not len(corpus):
        raise CorpusError("the corpus has no passages")
    if len(corpus.texts) != len(corpus.ids) or len(corpus.titles) not in (0, len(corpus.ids)):
        raise CorpusError(
            f"the corpus has {len(corpus.ids)} ids, {len(corpus.texts)} texts and {len(corpus.titles)} titles"
        )
    return corpus


TextKind = Literal["query", "passage"]
IndexProgress = Callable[[int, int], None]
"""Takes the number of passages done, and the total number."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """The passages to search, as parallel sequences.

    Args:
        ids: Ids of the passages.
        texts: Texts of the passages.
        titles: Titles of the passages. Empty if there are none.
        language: Two-letter code of the language.
        metadata: Metadata of the passages. Empty if there is none.
    """

    ids: Sequence[str]
    texts: Sequence[str]
    titles: Sequence[str] = ()
    language: str = "en"
    metadata: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def from_passages(cls, passages: Iterable[BeirPassage], language: str) -> Corpus:
        """Read passages of a BEIR dataset into memory. `titles` is empty if no passage has a title."""
        every = list(passages)
        titles = [passage.title for passage in every]
        texts = [passage.text for passage in every]
        metadata = [passage.metadata for passage in every]
        ids = [passage.id for passage in every]
        return cls(ids, texts, titles if any(titles) else (), language, metadata if any(metadata) else ())

    def __len__(self) -> int:
        return len(self.ids)

    def full_text(self, position: int) -> str:
        """Return title and text joined by a space, as BEIR passes them to models."""
        return flat_text(self.titles[position] if self.titles else "", self.texts[position])

    @property
    def full_texts(self) -> Sequence[str]:
        """The `full_text` of every passage, built on access, so the texts need not be in memory."""
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
    """The hits of n queries, best first. Ties are in order of position.

    Args:
        positions: Positions in the corpus, int32 (n, k), with -1 after the last hit.
        scores: Scores, float32 (n, k), with -inf after the last hit.
    """

    positions: NDArray[np.int32]
    scores: NDArray[np.float32]

    @classmethod
    def none(cls, queries: int, k: int) -> Hits:
        """Return arrays for k hits per query, without any hits."""
        return cls(np.full((queries, k), -1, np.int32), np.full((queries, k), -np.inf, np.float32))

    def put(self, row: int, positions: NDArray[np.int32], scores: NDArray[np.float32]) -> None:
        """Set the hits of a query, at most k."""
        self.positions[row, : len(positions)], self.scores[row, : len(scores)] = positions, scores


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Facts about the models that a component runs; None if unknown."""

    parameters: int | None = None
    device: str | None = "cpu"
    threads: int | None = None
    dtype: str | None = None

    def __add__(self, other: ModelFacts) -> ModelFacts:
        """Combine the facts of two components."""

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
    """Turns texts into vectors whose inner product is their similarity. The vectors have length 1 for most models."""

    name: str

    @property
    def dim(self) -> int:
        """Number of dimensions of a vector."""

    def encode(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """Return the vectors of texts, float32 (len(texts), dim)."""

    def describe(self) -> Mapping[str, object]:
        """Return every setting that affects the vectors: model, hash, prefixes, pooling, maximum length."""


@runtime_checkable
class Reranker(Protocol):
    """Scores (query, passage) pairs. Only the order of the scores for the same query is meaningful."""

    name: str

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Return the scores of pairs, float32 (len(pairs),)."""

    def describe(self) -> Mapping[str, object]:
        """Return every setting that affects the scores."""


@runtime_checkable
class CorpusReranker(Reranker, Protocol):
    """A re-ranker that uses statistics of the corpus, and must be fitted first."""

    def fit(self, corpus: Corpus) -> object:
        """Compute statistics of the corpus. Must be called before `score`."""


@runtime_checkable
class Retriever(Protocol):
    """A retrieval system: a first stage, or a combination of systems."""

    name: str

    def index(self, corpus: Corpus) -> None:
        """Index the corpus. Must be called before `search`."""

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """Return the k best passages per query, with arrays of shape (len(queries), k)."""

    def describe(self) -> Mapping[str, object]:
        """Return every setting that affects the results, for the record of a run."""


def show_corpus(reranker: Reranker, corpus: Corpus) -> bool:
    """Fit a re-ranker to the corpus if it needs that; return whether it does."""
    if isinstance(reranker, CorpusReranker):
        reranker.fit(corpus)
        return True
    return False


def watch(part: Any, progress: IndexProgress) -> None:
    """Report the number of encoded passages of a component and its parts to `progress`."""
    if isinstance(part, Component):
        part.progress = progress
        for held in part.components():
            watch(held, progress)


def load_embedder(spec: Spec | Written, folder: Path | None = None) -> Embedder:
    """Load an embedder.

    Args:
        spec: A model's name, or `{kind: ..., settings}`.
        folder: Folder where relative paths start.

    Returns:
        The embedder.

    Raises:
        SettingsError: A setting is wrong.
        ModelError: The model has not been downloaded.
    """
    embedder: Embedder = build("embedder", spec, folder)
    return embedder


def load_reranker(spec: Spec | Written, folder: Path | None = None) -> Reranker:
    """Load a re-ranker.

    Args:
        spec: A kind (maxsim, splade, dense, bm25), a model's name, or `{kind: ..., settings}`.
        folder: Folder where relative paths start.

    Returns:
        The re-ranker.

    Raises:
        SettingsError: A setting is wrong.
        ModelError: The model has not been downloaded.
    """
    reranker: Reranker = build("reranker", spec, folder)
    return reranker


def load_retriever(spec: Spec | Written, folder: Path | None = None) -> Retriever:
    """Load a retriever.

    Args:
        spec: A kind, for its default settings, or `{kind: ..., settings}`.
        folder: Folder where relative paths start.

    Returns:
        The retriever.

    Raises:
        SettingsError: A setting is wrong.
        ModelError: A model has not been downloaded.
    """
    retriever: Retriever = build("retriever", spec, folder)
    return retriever


def model_identity(model: Any) -> dict[str, object]:
    """Return what a model's encodings depend on: its description and, for a user's model, its code."""
    return {**model.describe(), **code_of(model)}


def model_place(model: str, folder: Path | None = None) -> str:
    """Return the folder of a model, or its name on the Hub.

    Args:
        model: A name in the catalogue, a folder, or a name on the Hub.
        folder: Folder where relative paths start.

    Raises:
        ModelError: The model is in the catalogue, but has not been downloaded.
    """
    if model in models.catalogue():
        return str(models.path(model))
    place = located(model, folder)
    return str(place) if place.exists() else model


def _made(kind: str, folder: Path | None, settings: Mapping[str, Any]) -> Any:
    return resolve("embedder", kind, folder)(folder=folder, **settings)


_WORK = ("fit", "index", "search", "encode", "token_vectors", "weights", "score", "describe", "ann_recall")


class Component:
    """Base class of retrievers, re-rankers, embedders and encoders.

    Subclasses declare their settings in a nested class `Settings`, and initialise themselves in `set_up`. A setting
    marked as a part becomes an attribute of the same name that holds the component. The constructor takes settings as
    keyword arguments, or positionally: first those in `positional`, then the required ones. It also takes a single
    instance of `Settings`. Exceptions in the methods of a component are reported as errors of airgen.
    """

    class Settings(BaseSettings):
        """No settings."""

    name: str
    settings: Settings
    positional: ClassVar[tuple[str, ...]] = ()
    travels: ClassVar[bool] = False  # defined by its settings alone, so that a worker elsewhere can build it
    progress: IndexProgress | None = None  # if set, called with the number of encoded passages

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
        """Initialise the component. Heavy models are loaded on first use."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the class and the settings only: do not pickle fitted components."""
        given = {name: getattr(self.settings, name) for name in self.settings.model_fields_set}
        folder = None if self.folder is None else self.folder.absolute()
        return _made, (f"{type(self).__module__}:{type(self).__qualname__}", folder, given)

    def indexed(self, index: T | None) -> T:
        """Return the index. Raises UsageError if there is none yet."""
        if index is None:
            raise UsageError(f"{self.name}: there is no index: call index(corpus) first")
        return index

    def components(self) -> list[Any]:
        """Return the parts of the component."""
        held = [getattr(self, name) for name, _ in part_fields(type(self.settings))]
        return [part for value in held for part in (value if isinstance(value, list) else [value])]

    @property
    def gpu(self) -> bool:
        """Whether the component's own model runs on a GPU."""
        return False

    @property
    def texts_at_once(self) -> int | None:
        """Preferred number of texts or pairs per call. None for the default."""
        return None

    def release(self) -> None:
        """Free the memory of the models. They are loaded again on next use."""
        for part in self.components():
            if isinstance(part, Component):
                part.release()

    def place(self, model: str) -> str:
        """Return the folder of a model, or its name on the Hub."""
        return model_place(model, self.folder)

    def described(self, family: str, *names: str) -> dict[str, object]:
        """Return the family and the settings with these names, for `describe`."""
        return {"family": family, **self.settings.model_dump(include=set(names))}

    @property
    def facts(self) -> ModelFacts:
        """Parameters, device and threads of the models. Default: those of the parts, combined."""
        known = [part.facts for part in self.components() if isinstance(part, Component)]
        return reduce(add, known) if known else ModelFacts()

    def ann_recall(self, queries: Sequence[str], hits: Hits) -> float | None:
        """Return the recall of an approximate search, from 0 to 1. None if the search is exact."""
        return None

    @property
    def index_bytes(self) -> int | None:
        """Size of the index in bytes, None if there is no index. Default: that of the parts, summed."""
        return sum(part.index_bytes or 0 for part in self.components() if isinstance(part, Component)) or None


def _named(component: Component) -> str:
    """Return a name for messages, as a user's class may have none."""
    return str(getattr(component, "name", "") or f"{type(component).__module__}:{type(component).__qualname__}")


class SettingsWithModel(Component.Settings):
    """Settings with a part `model`, whose own settings may also be given next to it.

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
