"""Choose which wording of each need becomes its query.

    choose([{"plain": .6, "terms": .9, "lay": .3}], WordingSettings(overlap=0.4), ["key"])      # ["lay"]

By a ratio, the wording is drawn by the query's key. By an overlap, it is the wording whose overlap with its passages is
nearest. Real queries determine that overlap (`airgen.job.real_queries`): the order of systems depends on it, and
was nearest to people's where generated queries had the mean overlap of people's (docs/notes/agreement.md).
"""

from collections.abc import Mapping, Sequence

from airgen.generation.attributes import draw
from airgen.settings.generation import WORDINGS, WordingSettings


def choose(
    overlaps: Sequence[Mapping[str, float | None]],
    settings: WordingSettings,
    keys: Sequence[str],
    target: float | None = None,
) -> list[str]:
    """Return the name of the chosen wording of each need.

    Args:
        overlaps: The overlap of each wording of a need by name, None where it cannot be measured.
        settings: A ratio, an overlap, or real queries.
        keys: The key of each need's query, by which a wording is drawn.
        target: The overlap of the real queries, in place of `settings.overlap`.
    """
    wanted = settings.overlap if target is None else target
    if wanted is not None:
        return [nearest(of, wanted) for of in overlaps]
    chosen = []
    for of, key in zip(overlaps, keys, strict=True):
        left = {name: ratio for name, ratio in settings.ratios.items() if name in of}
        # A need without the drawn wordings keeps its query.
        chosen.append(draw(left, key, "wording") if any(left.values()) else WORDINGS[0])
    return chosen


def nearest(overlaps: Mapping[str, float | None], target: float) -> str:
    """Return the wording whose overlap is nearest to the target, the first of several; an unknown overlap is never
    nearest."""
    known = {name: value for name in WORDINGS if (value := overlaps.get(name)) is not None}
    return min(known, key=lambda name: abs(known[name] - target)) if known else WORDINGS[0]
