"""Queries without an answer: of a share of the accepted queries, all relevant passages are left out of the dataset.

    held = hold_out(lineages, decisions, 0.1)
    held.queries, held.passages

Quality control has judged the passages nearest to such a query, and those that it found relevant are the ones that go:
none that is left was found relevant. The query was written for a real document, so it looks like any other; only its
answer is missing. This asks the model nothing, so the share can be changed on a finished job. What nobody judged,
because neither recall nor re-rankers put it near the query, may still answer it in part, as for any other label.

A query is held out only if no other query was written for one of its relevant passages. So all others keep the document
that they were written for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airgen.keys import row_key
from airgen.pipeline.stage import Lineage
from airgen.records import Decision

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
    """Choose `share` of the queries, in the order of a hash of their keys.

    Fewer are chosen where too many share their passages. `others` are queries of the job that are not in the dataset;
    the documents that they were written for stay as well, because an ablation can bring them back.
    """
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
