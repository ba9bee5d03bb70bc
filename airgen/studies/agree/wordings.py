"""How agreement with human labels depends on the wording of generated queries (`generation.method: needs`).

    worded = Worded(human.names, needs, wordings, overlaps, scores)
    worded.side("plain")                                   # the scores of one wording of each need
    worded.matched(human, shares, draws=100)               # what ten real queries buy

Each need has several wordings, with the same labels. A benchmark has one of them per need: always the same, or the one
whose overlap with its passages is nearest to that of real queries (`airgen.generation.wording`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from airgen.evaluation.breakdown import OVERLAP_BINS, overlap_class
from airgen.evaluation.intervals import Interval
from airgen.generation.wording import nearest
from airgen.settings.generation import WORDINGS
from airgen.studies.agree.rankings import Correlation, Matrix, Side, correlate
from airgen.studies.rank_correlation import spearman

TEN = 10
"""The number of human queries whose mean overlap is matched."""


@dataclass(frozen=True)
class Worded:
    """The systems' scores for every wording of every need.

    Attributes:
        names: The systems.
        needs, wordings, overlaps: The need, the name and the overlap (NaN if unknown) of each wording.
        scores: Float64 (systems, wordings).
    """

    names: tuple[str, ...]
    needs: Sequence[str]
    wordings: Sequence[str]
    overlaps: NDArray[np.float64]
    scores: Matrix

    @cached_property
    def by_need(self) -> dict[str, dict[str, int]]:
        """Return the positions of each need's wordings by name."""
        places: dict[str, dict[str, int]] = {}
        for place, (need, wording) in enumerate(zip(self.needs, self.wordings, strict=True)):
            places.setdefault(need, {})[wording] = place
        return places

    def at(self, places: Sequence[int]) -> Side:
        """Return the scores of some wordings."""
        return Side(self.names, self.scores[:, list(places)])

    def side(self, wording: str) -> Side:
        """Return the scores of one wording. A need without it has its query."""
        return self.at([of.get(wording, of[WORDINGS[0]]) for of in self.by_need.values()])

    def overlap(self, places: Sequence[int]) -> float:
        """Return the mean overlap of some wordings."""
        known = self.overlaps[list(places)]
        known = known[~np.isnan(known)]
        return float(known.mean()) if len(known) else math.nan

    def nearest_to(self, target: float) -> list[int]:
        """Return the position of each need's wording whose overlap is nearest to a target."""
        places = []
        for of in self.by_need.values():
            known = {
                name: None if math.isnan(self.overlaps[at]) else float(self.overlaps[at]) for name, at in of.items()
            }
            places.append(of[nearest(known, target)])
        return places


@dataclass(frozen=True, slots=True)
class WordingAgreement:
    """The agreement of one choice of wordings with the human side, and its mean overlap.

    `worded` is the number of needs that have the chosen wording; the others are in plain words. None if each need has a
    wording of the choice.
    """

    choice: str
    queries: int
    overlap: float
    correlation: Correlation | Interval
    worded: int | None = None

    @property
    def spearman(self) -> Interval:
        """Return Spearman's rho with its interval."""
        return self.correlation if isinstance(self.correlation, Interval) else self.correlation.spearman


def matched(
    worded: Worded, human: Side, shares: NDArray[np.float64], how: str = "", draws: int = 100, size: int = TEN
) -> WordingAgreement:
    """Match the mean overlap of ten human queries, drawn repeatedly, and compare with the ranking by the others.

    Args:
        worded: The generated side.
        human: The human side.
        shares: The overlap of each human query with the passages that answer it, NaN if unknown.
        how: Words that say where the overlaps come from, for the table.
        draws: Number of draws.
        size: Human queries per draw.

    Returns:
        The median over the draws, and the range of the middle 95%.
    """
    random, rhos, overlaps = np.random.default_rng(0), list[float](), list[float]()
    known = np.flatnonzero(~np.isnan(shares))
    size = min(size, len(known) // 2)
    if size < 1:
        return WordingAgreement("matched", 0, math.nan, Interval(math.nan, math.nan, math.nan))
    for _ in range(draws):
        drawn = random.choice(known, size, replace=False)
        places = worded.nearest_to(float(shares[drawn].mean()))
        others = np.delete(human.scores, drawn, axis=1).mean(axis=1)
        rhos.append(float(spearman(others, worded.at(places).means)))
        overlaps.append(worded.overlap(places))
    name = f"matched to the mean of {size} human queries{how} ({draws} draws)"
    interval = Interval.of(float(np.median(rhos)), np.array(rhos))
    return WordingAgreement(name, len(worded.by_need), float(np.mean(overlaps)), interval)


def agreements(
    worded: Worded, human: Side, shares: NDArray[np.float64], estimated: NDArray[np.float64]
) -> list[WordingAgreement]:
    """Return the agreement of each wording alone, and of wordings matched to ten human queries.

    Args:
        worded: The generated side.
        human: The human side.
        shares: The overlap of each human query by its labels, NaN if unknown.
        estimated: The same without labels, as it is estimated for a log.
    """
    rows = []
    for name in (name for name in WORDINGS if name in worded.wordings):
        places = [of.get(name, of[WORDINGS[0]]) for of in worded.by_need.values()]
        side = worded.at(places)
        own = sum(name in of for of in worded.by_need.values())
        rows.append(WordingAgreement(name, side.queries, worded.overlap(places), correlate(human, side), own))
    return [*rows, matched(worded, human, shares), matched(worded, human, estimated, " without their labels")]


def by_overlap(worded: Worded, human: Side) -> list[WordingAgreement]:
    """Return the agreement of all wordings whose overlap is in a class, for classes with at least five of them."""
    rows = []
    for low, high in pairwise(OVERLAP_BINS):
        label = f"{low:.1f}-{high:.1f}"
        places = [
            at
            for at, value in enumerate(worded.overlaps.tolist())
            if not math.isnan(value) and overlap_class(value) == label
        ]
        if len(places) >= _FEWEST:
            side = worded.at(places)
            rows.append(WordingAgreement(label, len(places), worded.overlap(places), correlate(human, side)))
    return rows


_FEWEST = 5


def shares_of(overlaps: Mapping[str, float | None], queries: Sequence[str]) -> NDArray[np.float64]:
    """Return the overlap of each query in order, NaN if unknown."""
    return np.array([math.nan if overlaps.get(key) is None else overlaps[key] for key in queries], np.float64)
