"""Why two rankings differ: over-rated systems, saturation, words copied into queries, and circularity.

gains = rank_gains(human, generated, family_of)      # positive: the generated side ranks the system higher
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from airgen.dataset.beir import BeirQuery
from airgen.evaluation.rank_correlation import average_ranks
from airgen.quality.agreement.rankings import Side
from airgen.retrievers.base import Corpus
from airgen.text.overlap import borrowed

PERFECT = 1 - 1e-9


@dataclass(frozen=True, slots=True)
class RankGain:
    """One system's ranks on both sides, 1 the best, ties shared; `gain` is human rank minus generated rank."""

    system: str
    family: str
    human: float
    generated: float

    @property
    def gain(self) -> float:
        """Positive: the generated side ranks the system higher than people do."""
        return self.human - self.generated


@dataclass(frozen=True, slots=True)
class Saturation:
    """How little room for improvement is left.

    median: mean score of the median system. solved: share of queries on which more than half of the systems have the
    perfect score. failed: share of queries on which every system scores 0.
    """

    median: float
    solved: float
    failed: float


@dataclass(frozen=True, slots=True)
class LexicalOverlap:
    """How many of the queries' words their positives contain.

    queries: how many have a stem and a positive with text. mean: mean share of a query's stems that a positive
    contains. whole: share of queries that have all stems in one positive.
    """

    queries: int
    mean: float
    whole: float


@dataclass(frozen=True, slots=True)
class Circularity:
    """Systems that share a model with quality control, against the others.

    involved: {system: the shared models}. gain and others: mean rank gains of the two groups. p: share of random
    groups of that size whose difference is at least as large, one-sided; NaN if one group is empty.
    """

    involved: Mapping[str, tuple[str, ...]]
    gain: float
    others: float
    p: float


def rank_gains(human: Side, generated: Side, families: Mapping[str, str]) -> list[RankGain]:
    """Every system's ranks on both sides, the best on the human side first."""
    ranks = [average_ranks(-side.means) for side in (human, generated.of(human.names))]
    found = [
        RankGain(name, families.get(name, ""), float(one), float(other))
        for name, one, other in zip(human.names, *ranks, strict=True)
    ]
    return sorted(found, key=lambda gain: (gain.human, gain.system))


def family_gains(gains: Iterable[RankGain]) -> dict[str, tuple[int, float]]:
    """{family: (systems, mean rank gain)}, the most over-rated first."""
    members: dict[str, list[float]] = {}
    for gain in gains:
        members.setdefault(gain.family, []).append(gain.gain)
    found = {family: (len(values), float(np.mean(values))) for family, values in members.items()}
    return dict(sorted(found.items(), key=lambda item: (-item[1][1], item[0])))


def saturation(side: Side) -> Saturation:
    """How little room for improvement the scores of one side leave."""
    perfect = (side.scores >= PERFECT).mean(axis=0)
    return Saturation(
        float(np.median(side.means)), float((perfect > 0.5).mean()), float((side.scores <= 0).all(axis=0).mean())
    )


def lexical_overlap(
    queries: Mapping[str, BeirQuery], labels: Mapping[str, Mapping[str, float]], corpus: Corpus
) -> LexicalOverlap:
    """The overlap of the labelled queries; for a query with several positives, `mean` takes the mean over them."""
    places = {id_: place for place, id_ in enumerate(corpus.ids)}
    shares, whole = [], []
    for key, judged in labels.items():
        positives = [places[id_] for id_, label in judged.items() if label > 0 and id_ in places]
        if key not in queries or not positives:
            continue
        found = [borrowed(queries[key].text, corpus.full_text(place), corpus.language)[0] for place in positives]
        shares.append(float(np.mean(found)))
        whole.append(max(found) >= PERFECT)
    if not shares:
        return LexicalOverlap(0, math.nan, math.nan)
    return LexicalOverlap(len(shares), float(np.mean(shares)), float(np.mean(whole)))


def circularity(
    gains: Sequence[RankGain],
    models: Mapping[str, frozenset[str]],
    used: Collection[str],
    *,
    samples: int = 10_000,
    seed: int = 0,
) -> Circularity:
    """Do systems that share a model with quality control rank higher? `used`: the models that recalled and voted."""
    involved = {
        gain.system: tuple(sorted(models.get(gain.system, frozenset()).intersection(used)))
        for gain in gains
        if models.get(gain.system, frozenset()).intersection(used)
    }
    values = np.array([gain.gain for gain in gains])
    inside = np.array([gain.system in involved for gain in gains], dtype=bool)
    if not inside.any() or inside.all():
        mean = float(values.mean()) if len(values) else math.nan
        return Circularity(involved, mean if inside.any() else math.nan, math.nan if inside.any() else mean, math.nan)
    observed = float(values[inside].mean() - values[~inside].mean())
    random = np.random.default_rng(seed)
    shuffled = np.array([random.permutation(values) for _ in range(samples)])
    count = int(inside.sum())
    drawn = shuffled[:, :count].mean(axis=1) - shuffled[:, count:].mean(axis=1)
    p = float((1 + (drawn >= observed - 1e-12).sum()) / (1 + samples))
    return Circularity(involved, float(values[inside].mean()), float(values[~inside].mean()), p)
