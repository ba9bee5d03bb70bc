"""The human-labelled (query, passage) pairs on which a judge is assessed.

    pairs = select_pairs(labels, pools, 60)          # 30 relevant, 30 not relevant, from as many queries as possible

`pools` are the top results of retrieval, because these are the pairs that a judge gets in quality control; a random
passage would be too easy. There are three kinds: relevant by the labels, judged not relevant, and unjudged. Unjudged
pairs are the hard ones. If a collection has many labels, nearly all of them are not relevant.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from airgen.keys import text_key

Kind = Literal["relevant", "judged", "unjudged"]
KINDS: tuple[Kind, ...] = ("relevant", "judged", "unjudged")


@dataclass(frozen=True, slots=True)
class CalibrationPair:
    """One pair; `label` is the human one, None if nobody judged the pair."""

    query: str
    id: str
    kind: Kind
    label: float | None

    @property
    def relevant(self) -> bool:
        """The answer that the judge should give."""
        return self.kind == "relevant"


def select_pairs(
    labels: Mapping[str, Mapping[str, float]],
    pools: Mapping[str, Sequence[str]],
    count: int,
    *,
    relevant_from: float = 1,
    ignore: Collection[float] = (),
    seed: int = 0,
) -> list[CalibrationPair]:
    """At most `count` pairs from the pools, half of them relevant, sorted by query and passage.

    The other half is judged and unjudged pairs in equal numbers; if there are too few of one kind, the other fills up.
    Each query gives one pair of a kind before any query gives a second one; the seed decides which. Labels of
    `relevant_from` and above are relevant. Pairs with a label in `ignore` are left out, because some collections use a
    label for something else: cranfield's 0 is a query's own source paper.
    """
    found: dict[Kind, dict[str, list[CalibrationPair]]] = {kind: {} for kind in KINDS}
    for pair in every_pair(labels, pools, relevant_from=relevant_from, ignore=ignore):
        found[pair.kind].setdefault(pair.query, []).append(pair)
    order = {kind: _in_turn(by_query, f"{seed}") for kind, by_query in found.items()}
    side = min(count // 2, len(order["relevant"]), len(order["judged"]) + len(order["unjudged"]))
    judged = min(len(order["judged"]), max(side // 2, side - len(order["unjudged"])))
    chosen = order["relevant"][:side] + order["judged"][:judged] + order["unjudged"][: side - judged]
    return sorted(chosen, key=lambda pair: (pair.query, pair.id))


def every_pair(
    labels: Mapping[str, Mapping[str, float]],
    pools: Mapping[str, Sequence[str]],
    *,
    relevant_from: float = 1,
    ignore: Collection[float] = (),
) -> list[CalibrationPair]:
    """All pairs of the pools, in their order; pairs with a label in `ignore` are left out."""
    found = []
    for query, pool in pools.items():
        known = labels.get(query, {})
        for id_ in dict.fromkeys(pool):
            label = known.get(id_)
            if label is not None and label in ignore:
                continue
            kind: Kind = "unjudged" if label is None else "relevant" if label >= relevant_from else "judged"
            found.append(CalibrationPair(query, id_, kind, label))
    return found


def _in_turn(by_query: Mapping[str, list[CalibrationPair]], seed: str) -> list[CalibrationPair]:
    """One pair of each query, then a second one of each, and so on; the seed decides both orders."""

    def draw_key(pair: CalibrationPair) -> str:
        return text_key(f"{seed}\x1f{pair.query}\x1f{pair.id}")

    placed = [
        (turn, text_key(f"{seed}\x1f{query}"), pair)
        for query, pairs in by_query.items()
        for turn, pair in enumerate(sorted(pairs, key=draw_key))
    ]
    return [pair for _, _, pair in sorted(placed, key=lambda item: (item[0], item[1]))]


def halves(queries: Sequence[str], seed: int = 0) -> list[int]:
    """0 or 1 for each entry: equal queries are in one half, and the halves differ by at most one query."""
    order = sorted(set(queries), key=lambda query: text_key(f"half\x1f{seed}\x1f{query}"))
    half = {query: place % 2 for place, query in enumerate(order)}
    return [half[query] for query in queries]
