"""Make unanswerable queries, by leaving all relevant passages of some accepted queries out of the dataset.

Such a query was written for a real document, so it looks like any other. No model is called, so the share can be
changed in a finished job. A query is held out only if no earlier query was written for its relevant passages.

Queries are decided one after the other, in the order in which they were accepted, and later ones change nothing: what
has an answer keeps it, and a passage that is left out stays out. A larger target therefore keeps the earlier decisions,
unless quality control finds other passages relevant to the earlier queries.

The owner of the original corpus can see which passages are missing, and so which queries are unanswerable. With a
secret, which also determines the sampling of queries, some queries with another relevant passage therefore lose their
own document too: up to `DECOYS` of them for each held-out query.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from airgen.components.keys import row_key
from airgen.steps.lineage import Lineage
from airgen.storage.records import Decision

DECOYS = 2
"""The number of answerable queries that lose their own document per unanswerable query."""

_RELEVANT = ("keep_query", "add_positive")
_DIGITS = 15  # hex digits of a place that decide


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
    dropped: Collection[str] = (),
    place: Callable[[str], str] = lambda key: row_key("unanswerable", key, ""),
    decoys: int = 0,
) -> HeldOut:
    """Choose one query of each block of 1 / `share` queries, and as many more as earlier blocks could not give.

    A query is not chosen if an earlier one needs its passages. If an earlier choice took out all relevant passages of a
    query, that query is unanswerable, too, and counts as chosen.

    Args:
        lineages: The queries in the order of acceptance, to which a larger target only appends.
        decisions: The labels by the key of the final query.
        share: The share of the queries to make unanswerable.
        dropped: Keys of queries that are not in the dataset. They are not chosen and their documents stay, since an
            ablation can restore the queries.
        place: Function that returns a hash of a key in hex, which decides instead of chance. If it depends on a secret,
            it cannot be computed from the public part.
        decoys: The number of answerable queries, per chosen query, that lose their own document and all other relevant
            passages but one. Without decoys, a missing document would tell the owner of the original corpus which query
            has no answer.
    """
    if not share or not lineages:
        return HeldOut()
    blocks = [int(at * share) for at in range(len(lineages) + math.ceil(1 / share))]  # more, for a whole last one
    open_ = Counter(blocks)
    queries: set[str] = set()
    gone: set[str] = set()
    relevant: set[str] = set()  # of the chosen queries
    kept: set[str] = set()  # passages on which an earlier query depends
    wanted = lost = 0
    for at, lineage in enumerate(lineages):
        block, key, own = blocks[at], lineage.final.key, {source.id for source in lineage.sources}
        wanted += at == 0 or block > blocks[at - 1]
        chosen = int(place(key)[:_DIGITS], 16) * open_[block] < wanted * 16**_DIGITS
        open_[block] -= 1
        if key in dropped:
            kept |= own
            continue
        every = own | {row.id for row in decisions.get(key, ()) if row.action in _RELEVANT}
        left = every - gone
        if not left or (chosen and left.isdisjoint(kept)):
            wanted -= 1
            queries.add(key)
            relevant |= every
            gone |= left
            continue
        further = sorted(left - own, key=lambda id_, key=key: place(f"{key} {id_}"))  # type: ignore[misc]
        decoy = len(own) == 1 and own <= left - kept and further and lost < decoys * len(queries)
        answers = set(further[:1]) if decoy else own & left or set(further[:1])
        kept |= answers
        if decoy:
            gone |= left - kept
            lost += 1
    return HeldOut(frozenset(queries), frozenset(gone), len(gone - relevant))
