"""Which human-labelled (query, passage) pairs a judge is tried on.

    pairs = select_pairs(labels, pools, 60)          # 30 relevant, 30 that are not, from as many queries as possible

`pools` are what retrieval brings to the top: pairs that a judge meets in quality control, not a random passage that
anyone can tell apart. Three kinds: relevant by the labels, judged not relevant, and unjudged. The last are the
hard ones, and nearly all of them are not relevant where the labels are plentiful.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from airgen.keys import text_key

__all__ = ["KINDS", "Kind", "LabelledPair", "halves", "select_pairs"]

Kind = Literal["relevant", "judged", "unjudged"]
KINDS: tuple[Kind, ...] = ("relevant", "judged", "unjudged")


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """One pair; `label` is the human one, None where nobody judged it."""

    query: str
    id: str
    kind: Kind
    label: float | None

    @property
    def relevant(self) -> bool:
        """What the judge should find."""
        return self.kind == "relevant"


def select_pairs(
    labels: Mapping[str, Mapping[str, float]],
    pools: Mapping[str, Sequence[str]],
    count: int,
    *,
    relevant_from: float = 1,
    ignore: Collection[float] = (),
    seed: int = 0,
) -> list[LabelledPair]:
    """At most `count` pairs out of the pools, half of them relevant, sorted by query and passage.

    The other half is shared equally by judged and unjudged ones; where one kind has too few, the other fills up, and
    both sides stay equal. Every query gives a pair of a kind before any gives a second; which ones is drawn by the
    seed. Labels from `relevant_from` on are relevant; pairs with a label in `ignore` are left out (some collections
    mark something else by it: cranfield's 0 is a query's own source paper).
    """
    found: dict[Kind, dict[str, list[LabelledPair]]] = {kind: {} for kind in KINDS}
    for query, pool in pools.items():
        known = labels.get(query, {})
        for id_ in dict.fromkeys(pool):
            label = known.get(id_)
            if label is not None and label in ignore:
                continue
            kind: Kind = "unjudged" if label is None else "relevant" if label >= relevant_from else "judged"
            found[kind].setdefault(query, []).append(LabelledPair(query, id_, kind, label))
    order = {kind: _in_turn(by_query, f"{seed}") for kind, by_query in found.items()}
    side = min(count // 2, len(order["relevant"]), len(order["judged"]) + len(order["unjudged"]))
    judged = min(len(order["judged"]), max(side // 2, side - len(order["unjudged"])))
    chosen = order["relevant"][:side] + order["judged"][:judged] + order["unjudged"][: side - judged]
    return sorted(chosen, key=lambda pair: (pair.query, pair.id))


def _in_turn(by_query: Mapping[str, list[LabelledPair]], seed: str) -> list[LabelledPair]:
    """One pair of each query, then a second of each, ...; both orders drawn."""

    def drawn(pair: LabelledPair) -> str:
        return text_key(f"{seed}\x1f{pair.query}\x1f{pair.id}")

    placed = [
        (turn, text_key(f"{seed}\x1f{query}"), pair)
        for query, pairs in by_query.items()
        for turn, pair in enumerate(sorted(pairs, key=drawn))
    ]
    return [pair for _, _, pair in sorted(placed, key=lambda item: (item[0], item[1]))]


def halves(queries: Sequence[str], seed: int = 0) -> list[int]:
    """0 or 1 for each entry: equal queries share a half, and the halves differ by one query at most."""
    drawn = sorted(set(queries), key=lambda query: text_key(f"half\x1f{seed}\x1f{query}"))
    place = {query: at % 2 for at, query in enumerate(drawn)}
    return [place[query] for query in queries]
