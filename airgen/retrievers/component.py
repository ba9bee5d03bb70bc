"""The base class of retrievers, re-rankers, embedders and encoders: settings, parts, guard and pickling."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from pydantic import ModelWrapValidatorHandler, ValidationError, model_validator

from airgen.components.registry import resolve
from airgen.errors import ModelError, UsageError
from airgen.retrievers.hits import Hits
from airgen.retrievers.model_facts import ModelFacts, ModelSetup, model_place
from airgen.retrievers.model_output import as_vectors, checked_scores
from airgen.retrievers.protocols import IndexProgress, TextKind
from airgen.safety.guard import under_guard
from airgen.settings.base import Settings as BaseSettings
from airgen.settings.base import moved
from airgen.settings.spec import Spec, as_mapping, build, is_written, part_fields, problems

T = TypeVar("T")

_WORK = ("fit", "index", "search", "encode", "token_vectors", "weights", "score", "describe", "ann_recall")


class Component:
    """Base class of retrievers, re-rankers, embedders and encoders.

    Subclasses declare their settings in a nested class `Settings`, and initialise themselves in `set_up`. A setting
    marked as a part becomes an attribute of the same name that holds the component. The constructor takes settings as
    keyword arguments, or positionally: first those in `positional`, then the required ones. It also takes a single
    instance of `Settings`. Exceptions in the methods of a component are reported as errors of airgen.
    """

    class Settings(BaseSettings):
        """Settings of a component without settings."""

    name: str
    settings: Settings
    positional: ClassVar[tuple[str, ...]] = ()
    travels: ClassVar[bool] = False  # defined only by its settings, so that a worker elsewhere can build it
    alone: ClassVar[bool] = False  # whether a re-ranker's score depends only on its pair, to the last bit
    progress: IndexProgress | None = None  # if set, called with the number of encoded passages or scored pairs

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in _WORK:
            if callable(method := vars(cls).get(name)):
                own = cls.__module__.startswith("airgen.")
                setattr(cls, name, under_guard(method if own else _checked(name, method), _named))

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
        """Pickle only the class and the settings. Do not pickle fitted components."""
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
        """Return whether the component's own model runs on a GPU."""
        return False

    @property
    def texts_at_once(self) -> int | None:
        """Return the preferred number of texts or pairs per call, or None for the default."""
        return None

    def release(self) -> None:
        """Free the memory of the models, which are reloaded on next use."""
        for part in self.components():
            if isinstance(part, Component):
                part.release()

    def place(self, model: str) -> str:
        """Return the folder of a model, or its name on the Hub."""
        return model_place(model, self.folder)

    def described(self, family: str, *names: str) -> dict[str, object]:
        """Return the family and the named settings, for `describe`."""
        rules = {"rules": self.settings.rules} if self.settings.rules else {}
        return {"family": family, **rules, **self.settings.model_dump(include=set(names))}

    @property
    def facts(self) -> ModelFacts:
        """Return the parameters, device and threads of the models. Default: the combined facts of the parts."""
        known = [part.facts for part in self.components() if isinstance(part, Component)]
        return reduce(add, known) if known else ModelFacts()

    def setup(self) -> ModelSetup | None:
        """Return how the component's own model is run, which loads it if necessary; None without a model."""
        return None

    def most_tokens(self, kind: TextKind) -> int | None:
        """Return how many tokens of a text of a kind the model reads, with prompt and special tokens, if known."""
        return None

    def token_counts(self, texts: Sequence[str], kind: TextKind) -> list[int] | None:
        """Return the number of tokens of each text, with prompt and special tokens, before it is cut, if known."""
        return None

    def ann_recall(self, queries: Sequence[str], hits: Hits) -> float | None:
        """Return the recall of an approximate search, from 0 to 1, or None if the search is exact."""
        return None

    @property
    def usd_per_query(self) -> float | None:
        """Return the price of a query in US dollars according to the requests so far, or None if there is none."""
        prices = [part.usd_per_query for part in self.components() if isinstance(part, Component)]
        known = [price for price in prices if price is not None]
        return sum(known) if known else None

    @property
    def index_bytes(self) -> int | None:
        """Return the size of the index in bytes, or None if there is no index. Default: the sum over the parts."""
        return sum(part.index_bytes or 0 for part in self.components() if isinstance(part, Component)) or None


def _made(kind: str, folder: Path | None, settings: Mapping[str, Any]) -> Any:
    return resolve("embedder", kind, folder)(folder=folder, **settings)


def _checked(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a user's method whose scores or vectors are arrays of numbers. Other methods are unchanged."""
    if name not in ("score", "encode"):
        return method

    @functools.wraps(method)
    def checked(component: Component, texts: Sequence[Any], *args: Any, **options: Any) -> Any:
        result, model = method(component, texts, *args, **options), _named(component)
        if inspect.iscoroutine(result):
            result.close()
            raise ModelError(f"{model}: {name} is an async function, but must be a plain one")
        if result is None:
            raise ModelError(f"{model} returned None instead of {'scores' if name == 'score' else 'vectors'}")
        if isinstance(result, Iterator):
            result = list(result)
        return checked_scores(result, len(texts), model) if name == "score" else as_vectors(result, model)

    return checked


def _named(component: Component) -> str:
    """Return a name for messages, since a user's class may have none."""
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


def watch(part: Any, progress: IndexProgress) -> None:
    """Report the number of encoded passages, or scored pairs, of a component and its parts to `progress`."""
    if isinstance(part, Component):
        part.progress = progress
        for held in part.components():
            watch(held, progress)
