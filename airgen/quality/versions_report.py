"""What `airgen suite compare` and `airgen suite contamination` print."""

from __future__ import annotations

from collections.abc import Sequence

from airgen.evaluation.rank_correlation import average_ranks
from airgen.quality.contamination import Contamination
from airgen.quality.judge.agreement_figures import Interval
from airgen.quality.versions import Ranking, VersionComparison
from airgen.text.display import figure, p_value, terminal_table

_EXAMPLES = 3


def versions_text(found: VersionComparison) -> str:
    """What was carried over, how the anchors rank, and which pairs turned."""
    import numpy as np

    rows = [["dataset", "", "old", "new", "same", "other id", "changed", "added", "gone"]]
    for one in found.carried:
        counts = (one.old, one.new, one.same, one.renamed, one.changed, one.added, one.gone)
        rows.append([one.dataset, one.kind, *(f"{count:,}" for count in counts)])
    text = [f"split {found.split}", terminal_table(rows)]
    for where, keys in (("old", found.only_old), ("new", found.only_new)):
        if keys:
            text.append(f"only in the {where} version: {', '.join(keys)}")
    if not found.rankings:
        return "\n".join(text)
    rows = [
        ["ranking", "queries", "Spearman", "95 %", "Kendall", "95 %", "best third", "pairs", "turned", "for certain"]
    ]
    for ranking in found.rankings:
        certain = sum(pair.significant() == "both" for pair in ranking.turned)
        queries = f"{ranking.old_queries:,} -> {ranking.new_queries:,}"
        correlations = [*_shown(ranking.spearman), *_shown(ranking.kendall)]
        turned = [str(ranking.pairs), str(len(ranking.turned)), str(certain)]
        best = figure(ranking.top.value) if ranking.top else "–"
        rows.append([ranking.name, queries, *correlations, best, *turned])
    text += ["", terminal_table(rows)]
    whole = found.rankings[-1]
    ranks = [average_ranks(-np.array(means)) for means in (whole.old_means, whole.new_means)]
    rows = [[whole.name, f"{whole.measure} old", "new", "rank old", "new"]]
    for place in np.argsort(ranks[1], kind="stable").tolist():
        scores = [figure(means[place], ".4f") for means in (whole.old_means, whole.new_means)]
        rows.append([whole.systems[place], *scores, *(f"{rank[place]:g}" for rank in ranks)])
    return "\n".join([*text, "", terminal_table(rows), *_pairs(found.rankings)])


def _pairs(rankings: Sequence[Ranking]) -> list[str]:
    lines = []
    for ranking in rankings:
        for pair in ranking.turned:
            where = {"both": "significant in both versions", "neither": "significant in neither version"}
            told = where.get(pair.significant(), f"significant in the {pair.significant()} version only")
            lines.append(
                f"{ranking.name}: {pair.first} > {pair.second} turned: {pair.old_difference:+.4f} ("
                f"{p_value(pair.old_p)}) -> {pair.new_difference:+.4f} ({p_value(pair.new_p)}), {told}"
            )
    return lines


def _shown(interval: Interval) -> list[str]:
    return [figure(interval.value), f"{figure(interval.low)} to {figure(interval.high)}"]


def contamination_text(found: Sequence[Contamination]) -> str:
    """Counts for each collection, and the first matches."""
    rows = [["dataset", "collection", "queries", "exact", "near", "passages", "exact", "near"]]
    examples = []
    for one in found:
        counts = [(part.texts, part.exact, part.near) for part in (one.queries, one.passages)]
        rows.append([one.dataset, one.collection, *(f"{count:,}" for part in counts for count in part)])
        for kind, part in (("query", one.queries), ("passage", one.passages)):
            for match in part.matches[:_EXAMPLES]:
                how = "word for word" if match.exact else f"similarity {match.similarity:.2f}"
                examples.append(f"{one.dataset}: {kind} {match.id} is {match.other} of {one.collection}, {how}")
    return "\n".join([terminal_table(rows), *examples])
