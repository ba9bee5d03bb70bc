"""Make unanswerable queries, by leaving all relevant passages of some accepted queries out of the dataset.

Such a query was written for a real document, so it looks like any other. No model is called, so the share can be
changed in a finished job. A query is held out only if no other query was written for its relevant passages.

The owner of the original corpus can see which passages are missing, and so which queries are unanswerable. With a
secret, which also determines the sampling of queries, some queries with another relevant passage therefore lose their
own document too: up to `DECOYS` of them for each held-out query.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from airgen.components.keys import row_key
from airgen.steps.lineage import Lineage
from airgen.storage.records import Decision

DECOYS = 2
"""The number of answerable queries that lose their own document per unanswerable query."""

_RELEVANT = ("keep_query", "add_positive")


@dataclass(frozen=True)
class HeldOut:
    """The held-out items: the keys of the unanswerable final `queries`, and the ids of the `passages` left out of the
    corpus, of which `decoys` belong to answerable queries."""

    queries: frozenset[str] = frozenset()
    passages: frozenset[str] = frozenset()
    decoys: int = 0


def hold_out(
    lineages: Sequence[Lineage],
    decisions: Mapping[str, Sequence[Decision]],
    share: float,
    others: Sequence[Lineage] = (),
    place: Callable[[str], str] = lambda key: row_key("unanswerable", key, ""),
    decoys: int = 0,
) -> HeldOut:
    """Choose a `share` of the queries, fewer if too many have passages in common, ordered by the `place` of their keys.

    Args:
        lineages: The queries of the dataset.
        decisions: The labels by the key of the final query.
        share: The share of the queries to make unanswerable.
        others: Queries of the job that are not in the dataset. Their documents stay, since an ablation can restore the
            queries.
        place: The position for the key of a query. If it depends on a secret, it cannot be computed from the public
            part.
        decoys: The number of answerable queries, per chosen query, that lose their own document and all other relevant
            passages but one. Without decoys, a missing document would tell the owner of the original corpus which query
            has no answer.
    """
    wanted = int(share * len(lineages))
    sources = Counter(source.id for lineage in (*lineages, *others) for source in lineage.sources)
    relevant_of = {
        lineage.final.key: {source.id for source in lineage.sources}
        | {row.id for row in decisions.get(lineage.final.key, ()) if row.action in _RELEVANT}
        for lineage in lineages
    }
    ordered = sorted(lineages, key=lambda lineage: place(lineage.final.key))
    queries: set[str] = set()
    passages: set[str] = set()
    for lineage in ordered:
        if len(queries) == wanted:
            break
        own, relevant = {source.id for source in lineage.sources}, relevant_of[lineage.final.key]
        if all(sources[id_] - (id_ in own) == 0 for id_ in relevant):
            queries.add(lineage.final.key)
            passages |= relevant
            sources.subtract(own)
    left = {key: relevant - passages for key, relevant in relevant_of.items() if key not in queries}
    candidates = [lineage for lineage in reversed(ordered) if lineage.final.key in left and len(lineage.sources) == 1]
    more = _decoys(candidates, left, sources=sources, place=place, wanted=decoys * len(queries))
    return HeldOut(frozenset(queries), frozenset(passages | more), len(more))


def _decoys(
    candidates: Iterable[Lineage],
    left: dict[str, set[str]],
    sources: Counter[str],
    place: Callable[[str], str],
    wanted: int,
) -> set[str]:
    """Choose passages of answerable queries to remove: for each query, its own document and all other relevant passages
    but one.

    `left` are the relevant passages by query; every query keeps one of them. No query loses its own document because of
    another query.
    """
    askers: dict[str, set[str]] = {}
    for key, relevant in left.items():
        for id_ in relevant:
            askers.setdefault(id_, set()).add(key)
    gone: set[str] = set()
    for lineage in candidates:
        if wanted == 0:
            break
        key, own = lineage.final.key, lineage.passage.id
        further = sorted(left[key] - {own}, key=lambda id_, key=key: place(f"{key} {id_}"))  # type: ignore[misc]
        if own not in left[key] or not further or sources[own] > 1:
            continue
        if any(left[other] == {own} for other in askers[own] - {key}):
            continue
        for id_ in (own, *further[1:]):
            if id_ != own and (sources[id_] or any(len(left[other]) == 1 for other in askers[id_])):
                continue  # another query's own document, or the last document that answers a query
            for other in askers[id_]:
                left[other].discard(id_)
            gone.add(id_)
        wanted -= 1
    return gone
