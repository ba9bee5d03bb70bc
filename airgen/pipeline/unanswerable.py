"""Queries without an answer: of a share of the accepted queries, the dataset leaves out all relevant passages.

Such a query was written for a real document, so it looks like any other. No model is asked, so the share can be changed
on a finished job. A query is held out only if no other was written for one of these passages.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airgen.keys import row_key
from airgen.records import Decision
from airgen.steps.lineage import Lineage

_RELEVANT = ("keep_query", "add_positive")


@dataclass(frozen=True)
class HeldOut:
    """queries: keys of final queries that nothing answers. passages: ids of what is left out of the corpus."""

    queries: frozenset[str] = frozenset()
    passages: frozenset[str] = frozenset()


def hold_out(
    lineages: Sequence[Lineage],
    decisions: Mapping[str, Sequence[Decision]],
    share: float,
    others: Sequence[Lineage] = (),
) -> HeldOut:
    """Choose `share` of the queries, fewer where too many share their passages, in the order of a hash of their keys.
    The documents of `others`, queries of the job that are not in the dataset, stay: an ablation can bring them back."""
    wanted = int(share * len(lineages))
    sources = Counter(one.id for lineage in (*lineages, *others) for one in lineage.sources)
    queries: set[str] = set()
    passages: set[str] = set()
    for lineage in sorted(lineages, key=lambda one: row_key("unanswerable", one.final.key, "")):
        if len(queries) == wanted:
            break
        own = {one.id for one in lineage.sources}
        relevant = own | {row.id for row in decisions.get(lineage.final.key, ()) if row.action in _RELEVANT}
        if all(sources[one] - (one in own) == 0 for one in relevant):
            queries.add(lineage.final.key)
            passages |= relevant
            sources.subtract(own)
    return HeldOut(frozenset(queries), frozenset(passages))
