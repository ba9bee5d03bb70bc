"""From rows back to lineages: what was made from each sample so far, in bulk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from airgen.pipeline.stage import Lineage
from airgen.records import Character, HardNegative, Judgment, Passage, Query, Rewrite, Row, Sample, Scenario, Skip
from airgen.store import Store

__all__ = ["load_lineages", "load_passages"]

R = TypeVar("R", bound=Row)


def load_passages(store: Store, keys: Iterable[str]) -> dict[str, Passage]:
    """Passages by key."""
    found = store.rows(Passage, "passage", "t.key IN (SELECT unnest(?))", [list(keys)])
    return {passage.key: passage for passage in found}


def load_lineages(store: Store, samples: Sequence[Sample]) -> list[Lineage]:
    """The lineages of these samples, in their order, with every current row that they have."""
    passages = load_passages(store, {sample.parent for sample in samples})
    characters = _by_parent(store, Character, "current_character")
    scenarios = _by_parent(store, Scenario, "current_scenario")
    queries = _by_parent(store, Query, "current_query")
    rewrites = _by_parent(store, Rewrite, "current_rewrite")
    judgments = _by_parent(store, Judgment, "current_judgment")
    negatives = _by_parent(store, HardNegative, "current_hard_negative")
    skips = _by_parent(store, Skip, "current_skip")
    lineages = []
    for sample in samples:
        passage = passages[sample.parent]
        rows: list[Any] = [*skips.get(sample.key, ())]
        for character in characters.get(sample.key, ()):
            rows += [character, *skips.get(character.key, ())]
            for scenario in scenarios.get(character.key, ()):
                rows += [scenario, *skips.get(scenario.key, ())]
                for query in queries.get(scenario.key, ()):
                    rounds = rewrites.get(query.key, [])
                    final = rounds[-1].key if rounds else query.key
                    rows += [query, *rounds, *skips.get(query.key, ())]
                    if rounds:
                        rows += skips.get(final, ())
                    rows += [judged for judged in judgments.get(final, ()) if judged.id == passage.id]
                    rows += negatives.get(final, ())
        lineages.append(Lineage(passage, sample).extended(rows))
    return lineages


def _by_parent(store: Store, kind: type[R], view: str) -> dict[str, list[R]]:
    found: dict[str, list[R]] = {}
    for row in store.rows(kind, view, order="t.ordinal, t.key"):
        found.setdefault(row.parent, []).append(row)
    return found
