"""Queries without an answer: of a share of the accepted queries, the dataset leaves out all relevant passages.

Such a query was written for a real document, so it looks like any other. No model is asked, so the share can be changed
on a finished job. A query is held out only if no other was written for one of these passages.

Who has the original corpus sees which passages are missing, and a query whose own document is missing would be one
that nothing answers. So with a secret, which also draws the queries, other queries lose their own document, too, where
another passage answers them: `DECOYS` of them for each held-out query, as far as there are so many.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from airgen.keys import row_key
from airgen.records import Decision
from airgen.steps.lineage import Lineage

DECOYS = 2
"""Answered queries that lose their own document, for each query that nothing answers."""

_RELEVANT = ("keep_query", "add_positive")


@dataclass(frozen=True)
class HeldOut:
    """queries: keys of the unanswerable final queries. passages: ids that are left out of the corpus, `decoys` of
    them of queries that something else answers."""

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
    """Choose `share` of the queries, fewer where too many share their passages, in the order of `place` of their keys.

    Args:
        lineages: The queries of the dataset.
        decisions: Their labels by the key of the final query.
        share: The share of them that is made unanswerable.
        others: Queries of the job that are not in the dataset; an ablation can bring them back, so their documents
            stay.
        place: Of the key of a query; one that depends on a secret cannot be computed from the public part.
        decoys: For each chosen query, so many answered ones lose their own document and all relevant ones but one.
            Without these, a missing document would tell the owner of the original corpus which query has no answer.
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
    """Passages of answered queries that go, too: of each query its own and all relevant ones but one.

    `left` are the relevant passages by query, of which every query keeps one. No query loses its own document for
    another's sake.
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
