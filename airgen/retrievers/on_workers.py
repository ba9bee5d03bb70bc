"""Components on workers: encode many batches of texts, or score many batches of pairs, wherever that is to run.

    for vectors in encoded(embedder.encode, batched(texts, 256), "passage"): ...
    for scores in scored(reranker, batches_of_pairs): ...

A component travels as its class and its settings, and the worker makes it there, so its class must say that its
settings are all that it is (`travels`). One that has also seen a corpus puts what it knows of it beside each batch, in
a `parcel`. Any other component works here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from airgen.compute import Here, Work, current
from airgen.registry import resolve
from airgen.retrievers.base import Component, Reranker, TextKind
from airgen.text.analysis import Analyser


@dataclass(frozen=True)
class _Recipe:
    """How a worker makes a component: its class, the folder of its paths, and the settings that were given."""

    name: str  # module:Class
    folder: Path | None
    settings: Mapping[str, Any]

    def make(self) -> Any:
        """The component; the parts that it was given are made first."""
        given = {name: value.make() if isinstance(value, _Recipe) else value for name, value in self.settings.items()}
        return resolve("embedder", self.name, self.folder)(folder=self.folder, **given)


@runtime_checkable
class _WithParcels(Protocol):
    """A re-ranker that knows more than its settings: a parcel holds pairs, and what must be known to score them."""

    def parcel(self, pairs: Sequence[tuple[str, str]]) -> Any: ...

    def score_parcel(self, parcel: Any) -> Any: ...


def travels(component: Any) -> bool:
    """Whether a worker can make the same component."""
    return _recipe(component) is not None


def _recipe(component: Any) -> _Recipe | None:
    kind = type(component)
    if not isinstance(component, Component) or not kind.travels or "." in kind.__qualname__:
        return None
    given: dict[str, Any] = {}
    for name in component.settings.model_fields_set:
        value = getattr(component.settings, name)
        if isinstance(value, Component):
            value = _recipe(value)
            if value is None:
                return None
        elif isinstance(value, Analyser):  # made in Python, from settings that are not known
            return None
        given[name] = value
    folder = None if component.folder is None else component.folder.absolute()
    return _Recipe(f"{kind.__module__}:{kind.__qualname__}", folder, given)


def _method(recipe: _Recipe, name: str, rest: tuple[Any, ...]) -> Callable[[Any], Any]:
    method = getattr(recipe.make(), name)
    return lambda batch: method(batch, *rest)


def _each(method: Callable[..., Any], batches: Iterable[Sequence[Any]], *rest: Any) -> Iterator[Any]:
    """A bound method's result of each batch, in their order; None for an empty batch, which is not sent."""
    owner, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
    recipe = _recipe(owner)
    work: Work[Any, Any] = Work(
        f"{name} of {getattr(owner, 'name', type(owner).__name__)}",
        lambda batch: method(batch, *rest),
        None if recipe is None else partial(_method, recipe, name, rest),
    )
    sent: deque[bool] = deque()

    def full() -> Iterator[tuple[str, Sequence[Any]]]:
        for number, batch in enumerate(batches):
            sent.append(bool(batch))
            if batch:
                yield f"batch {number}", batch

    for _, found in current().map(work, full()):
        while not sent.popleft():
            yield None
        yield found
    yield from (None for _ in sent)


def encoded(encode: Callable[..., Any], batches: Iterable[Sequence[str]], kind: TextKind) -> Iterator[Any]:
    """What `encode`, a method of an embedder, gives for each batch of texts, in their order; None for no texts."""
    return _each(encode, batches, kind)


def scored(reranker: Reranker, batches: Iterable[Sequence[tuple[str, str]]]) -> Iterator[Any]:
    """The scores of each batch of pairs, in their order; None for no pairs."""
    if isinstance(reranker, _WithParcels) and not isinstance(current(), Here):
        parcel = reranker.parcel
        return _each(reranker.score_parcel, (parcel(batch) if batch else () for batch in batches))
    return _each(reranker.score, batches)
