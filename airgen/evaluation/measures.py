"""Parse measures, and score runs with vectorised operations on integer ids.

    scores = score(run, qrels, parse_measures("nDCG@10 R_cap@100 Hole@10"))
    scores.means()["nDCG@10"]

Results equal those of trec_eval: linear gains, ties broken by descending passage id, float32 scores, and a gain of 0
for negative labels. R_cap and Hole are defined in BEIR (sections 3 and 6). There is one deliberate difference: means
are over all queries in the qrels, so a query without results scores zero. The number of such queries is reported.
Labels may be floats, which nDCG uses as gains.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.components.registry import closest, is_known, names, resolve, target_of, unknown_name
from airgen.components.user_code import own_code
from airgen.compute.exact_arithmetic import log2
from airgen.errors import DatasetError, UsageError
from airgen.evaluation.run import Run
from airgen.safety.guard import guarded

_NAMES = ("nDCG", "AP", "RR", "P", "Recall", "R_cap", "Success", "Hole", "Judged")
_ALIASES = {name.lower(): name for name in _NAMES} | {
    "ndcg_cut": "nDCG",
    "map": "AP",
    "map_cut": "AP",
    "mrr": "RR",
    "recip_rank": "RR",
    "precision": "P",
    "r": "Recall",
    "recall_cap": "R_cap",
    "rcap": "R_cap",
}
_OPEN = {"nDCG", "AP", "RR"}  # measures that need no cutoff
_GRAMMAR = re.compile(r"([a-z_]+)(?:\(rel=(\d+(?:\.\d+)?)\))?(?:@(\d+))?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Measure:
    """An evaluation measure.

    Args:
        name: Name: nDCG, AP, RR, P, Recall, R_cap, Success, Hole or Judged, or that of an installed package's measure.
        cutoff: Number of top hits to consider. None for the whole ranking.
        relevant_from: Lowest label that counts as relevant. None for any label above zero. nDCG ignores it and uses
            every positive label as a gain.
    """

    name: str
    cutoff: int | None = None
    relevant_from: float | None = None

    def __str__(self) -> str:
        relevant = "" if self.relevant_from is None else f"(rel={self.relevant_from:g})"
        return f"{self.name}{relevant}" + ("" if self.cutoff is None else f"@{self.cutoff}")


@dataclass(frozen=True, slots=True)
class Judged:
    """The judged hits of a run, and all judged pairs. Rows are indices into `query_ids`.

    Attributes:
        query_ids: Ids of the queries in the qrels.
        row: Row of each judged hit, (hits,).
        rank: Rank of each judged hit from 1, (hits,).
        label: Label of each judged hit, (hits,).
        pair_row: Row of each judged pair, retrieved or not, (pairs,).
        pair_label: Label of each judged pair, (pairs,).
        hole_row: Row of each hit, down to the requested depth, that has no label for any query, (holes,).
        hole_rank: Rank of each such hit from 1, (holes,).
        missing: Number of queries in the qrels without results.
        unjudged: Number of queries in the run that are not in the qrels.
    """

    query_ids: list[str]
    row: NDArray[np.int64]
    rank: NDArray[np.int64]
    label: NDArray[np.float64]
    pair_row: NDArray[np.int64]
    pair_label: NDArray[np.float64]
    hole_row: NDArray[np.int64]
    hole_rank: NDArray[np.int64]
    missing: int
    unjudged: int


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of a run.

    Attributes:
        query_ids: Ids of the queries in the qrels.
        measures: The measures.
        values: Scores, float64 (measures, queries).
        missing: Number of queries in the qrels without results; they score zero.
        unjudged: Number of queries in the run that are not in the qrels; they are ignored.
        without_relevant: Number of queries without a relevant passage; they score zero, as in trec_eval.
    """

    query_ids: list[str]
    measures: tuple[Measure, ...]
    values: NDArray[np.float64]
    missing: int
    unjudged: int
    without_relevant: int

    def means(self) -> dict[str, float]:
        """Return {measure: mean over all queries in the qrels}."""
        return {str(measure): float(row.mean()) for measure, row in zip(self.measures, self.values, strict=True)}

    def of(self, measure: str | Measure) -> NDArray[np.float64]:
        """Return the scores by a measure, float64 (queries,). Raises UsageError if it was not computed."""
        wanted = parse_measure(measure) if isinstance(measure, str) else measure
        if wanted not in self.measures:
            raise UsageError(f"{wanted} was not computed{closest(str(wanted), [str(m) for m in self.measures])}")
        row: NDArray[np.float64] = self.values[self.measures.index(wanted)]
        return row


def parse_measure(text: str) -> Measure:
    """Parse a measure such as `nDCG@10`, `AP`, `MRR@10` or `Recall(rel=2)@100`. Raises UsageError if unknown."""
    match = _GRAMMAR.fullmatch(text.strip())
    name = _ALIASES.get(match[1].lower()) if match else None
    foreign = match is not None and name is None and is_known("measure", match[1])
    if match is None or (name is None and not foreign):
        word = re.split(r"[@(]", text.strip())[0]
        raise unknown_name("measure", word, [*_NAMES, *names("measure")], given=text)
    name, cutoff = name or match[1], int(match[3]) if match[3] else None
    if cutoff == 0 or (cutoff is None and name not in _OPEN and not foreign):
        raise UsageError(f"measure {text!r} needs a cutoff of 1 or more, as in {name}@10")
    if match[2] and name in {"nDCG", "Hole", "Judged"}:
        raise UsageError(f"measure {text!r}: {name} takes no rel=")
    return Measure(name, cutoff, float(match[2]) if match[2] else None)


def parse_measures(text: str | Iterable[str]) -> tuple[Measure, ...]:
    """Parse measures separated by spaces or commas, dropping duplicates. Raises UsageError if one is unknown."""
    words = re.split(r"[\s,]+", text.strip()) if isinstance(text, str) else list(text)
    if not [word for word in words if word]:
        raise UsageError("no measure is given: give one, such as nDCG@10")
    return tuple(dict.fromkeys(parse_measure(word) for word in words if word))


AIR_BENCH = tuple(
    parse_measure(f"{name}@{cutoff}")
    for name in ("nDCG", "AP", "Recall", "P", "RR")
    for cutoff in (1, 3, 5, 10, 50, 100, 1000)
)
"""All measures of AIR-Bench at all its cutoffs."""


def measures_code(measures: Iterable[Measure]) -> dict[str, str]:
    """Return {module:function: digest of its code} of the measures of installed packages, as `own_code` does.

    Raises UsageError for a measure that cannot be imported.
    """
    foreign = [measure.name for measure in measures if measure.name not in _NAMES]
    for name in foreign:
        resolve("measure", name)  # only code that was imported is found in an installed package
    return own_code([target_of("measure", name) for name in foreign])


def score(
    run: Run,
    qrels: Mapping[str, Mapping[str, float]],
    measures: Sequence[Measure] | str,
    *,
    ignore_identical_ids: bool = False,
) -> Scores:
    """Score a run against relevance labels.

    Args:
        run: The run.
        qrels: Labels as {query id: {passage id: label}}.
        measures: Measures, or their names separated by spaces.
        ignore_identical_ids: Ignore hits whose id equals the query's id.

    Returns:
        The scores of each query in the qrels by each measure.

    Raises:
        UsageError: The qrels are empty, or a measure is unknown.
    """
    wanted = parse_measures(measures) if isinstance(measures, str) else tuple(measures)
    if not qrels:
        raise UsageError("the qrels are empty: there is nothing to score against")
    depth = max((measure.cutoff or 0 for measure in wanted if measure.name == "Hole"), default=0)
    hits = judged_hits(run.without_identical_ids() if ignore_identical_ids else run, qrels, hole_depth=depth)
    relevant = np.bincount(hits.pair_row[hits.pair_label > 0], minlength=len(hits.query_ids))
    return Scores(
        query_ids=hits.query_ids,
        measures=wanted,
        values=np.stack([_values(hits, measure) for measure in wanted]),
        missing=hits.missing,
        unjudged=hits.unjudged,
        without_relevant=int(np.count_nonzero(relevant == 0)),
    )


LEAST_COMMON = 0.9
"""The minimum share of the queries that a run must have for a comparison."""


def check_common(
    name: str, run: Run, queries: Collection[str], *, least: float = LEAST_COMMON, passages: Collection[str] = ()
) -> None:
    """Check that a run belongs to the labels, because any comparison of other queries is meaningless.

    A query that is missing in the run scores zero, so two runs on other queries would have equal scores.

    Args:
        name: What to call the run.
        run: The run.
        queries: The queries that are compared, such as those with labels.
        least: Minimum share of `queries` that the run must have. With 0, one is enough.
        passages: The passages with labels, of which the run must have one. If empty, they are not checked.

    Raises:
        DatasetError: The run lacks too many queries, or has no labelled passage.
    """
    common = len(set(run.query_ids).intersection(queries))
    if not common:
        ids = [next(iter(sorted(each)), "none")[:100] for each in (run.query_ids, queries)]
        raise DatasetError(
            f"{name}: the run and the labels have no query in common (for example {ids[0]!r} and {ids[1]!r}): give the "
            "labels of the dataset on which the run was made"
        )
    if common < least * len(queries):
        lacking = next(key for key in sorted(queries) if key not in set(run.query_ids))
        raise DatasetError(
            f"{name}: has {common:,} of the {len(queries):,} queries, and lacks {lacking[:100]!r} and others: a "
            f"comparison needs {least:.0%}: give the run of the same dataset and split, or labels of these queries only"
        )
    if passages and run.passage_ids and set(passages).isdisjoint(run.passage_ids):
        raise DatasetError(
            f"{name}: none of its passages, such as {run.passage_ids[0][:100]!r}, has a label (for example "
            f"{min(passages)[:100]!r}), so every score would be 0: check that the labels are "
            "for the same corpus and that the columns are in the right order"
        )


def labelled_passages(labels: Mapping[str, Mapping[str, float]]) -> set[str]:
    """Return the passages that have a label for any query."""
    return {passage for row in labels.values() for passage in row}


def judged_hits(run: Run, qrels: Mapping[str, Mapping[str, float]], *, hole_depth: int = 0) -> Judged:
    """Rank a run, and join it with relevance labels.

    Args:
        run: The run.
        qrels: Labels as {query id: {passage id: label}}.
        hole_depth: Number of top hits in which to look for passages without labels.

    Returns:
        The judged hits, the judged pairs and the holes.
    """
    run = run.ranked()
    query_ids = list(qrels)
    rows = {key: row for row, key in enumerate(query_ids)}
    row_of_query = np.array([rows.get(key, -1) for key in run.query_ids], dtype=np.int64)
    places = {key: place for place, key in enumerate(run.passage_ids)}
    lengths = np.array([len(labels) for labels in qrels.values()], dtype=np.int64)
    pair_row = np.repeat(np.arange(len(query_ids)), lengths)
    pair_label = np.array([label for labels in qrels.values() for label in labels.values()], dtype=np.float64)
    pair_passage = np.array([places.get(key, -1) for labels in qrels.values() for key in labels], dtype=np.int64)
    starts = np.concatenate(([0], np.cumsum(lengths)))

    # A dense table (query, passage) -> pair + 1 for a few queries at a time. Filling and clearing it touches only the
    # judged pairs, a single gather looks up all hits, and it is allocated only once.
    width = max(1, len(run.passage_ids))
    height = max(1, min(len(run) or 1, (1 << 22) // width))
    table = np.zeros(height * width, dtype=np.int32)
    found_hit: list[NDArray[np.int64]] = []
    found_pair: list[NDArray[np.int64]] = []
    for first in range(0, len(run), height):
        block = row_of_query[first : first + height]
        local = np.flatnonzero(block >= 0)
        counts = lengths[block[local]]
        pairs = np.repeat(starts[block[local]] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        cells = np.repeat(local * width, counts) + pair_passage[pairs]
        known = pair_passage[pairs] >= 0
        table[cells[known]] = pairs[known] + 1
        begin, end = run.offsets[first], run.offsets[min(first + height, len(run))]
        place = run.passages[begin:end]
        if height > 1:
            place = place + np.repeat(np.arange(len(block)) * width, run.lengths[first : first + height])
        pair = table[place]
        at = np.flatnonzero(pair)
        found_hit.append(at + begin)
        found_pair.append(pair[at].astype(np.int64) - 1)
        table[cells[known]] = 0
    hit = np.concatenate(found_hit) if found_hit else np.empty(0, dtype=np.int64)
    pair = np.concatenate(found_pair) if found_pair else np.empty(0, dtype=np.int64)
    query = np.searchsorted(run.offsets, hit, side="right") - 1
    hole_row, hole_rank = _holes(run, row_of_query, pair_passage, hole_depth)
    answered = np.unique(row_of_query[(run.lengths > 0) & (row_of_query >= 0)])
    return Judged(
        query_ids=query_ids,
        row=row_of_query[query],
        rank=hit - run.offsets[query] + 1,
        label=pair_label[pair],
        pair_row=pair_row,
        pair_label=pair_label,
        hole_row=hole_row,
        hole_rank=hole_rank,
        missing=len(query_ids) - len(answered),
        unjudged=int(np.count_nonzero(row_of_query < 0)),
    )


def _holes(
    run: Run, row_of_query: NDArray[np.int64], pair_passage: NDArray[np.int64], depth: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return row and rank of the hits in the top `depth` that have no label for any query (BEIR, section 6)."""
    judged = np.zeros(len(run.passage_ids) + 1, dtype=bool)
    judged[pair_passage] = True  # -1, a passage that is not in the run, refers to the spare last element
    taken = np.where(row_of_query >= 0, np.minimum(run.lengths, depth), 0)
    rank = np.arange(taken.sum()) - np.repeat(np.cumsum(taken) - taken, taken)
    hole = ~judged[run.passages[np.repeat(run.offsets[:-1], taken) + rank]]
    return np.repeat(row_of_query, taken)[hole], rank[hole] + 1


def _values(hits: Judged, measure: Measure) -> NDArray[np.float64]:
    """Return the scores of all queries by a measure, float64 (queries,)."""
    total = len(hits.query_ids)
    if measure.name not in _NAMES:
        return _foreign_values(hits, measure)
    cutoff = measure.cutoff or np.iinfo(np.int64).max
    if measure.name == "Hole":
        return np.bincount(hits.hole_row[hits.hole_rank <= cutoff], minlength=total) / cutoff
    inside = hits.rank <= cutoff
    if measure.name == "Judged":
        return np.bincount(hits.row[inside], minlength=total) / cutoff
    if measure.name == "nDCG":
        gained = _dcg(hits.row[inside], hits.rank[inside], hits.label[inside], total)
        return _ratio(gained, _ideal_dcg(hits, cutoff))
    inside &= _relevant(hits.label, measure)
    row, rank = hits.row[inside], hits.rank[inside]
    retrieved = np.bincount(row, minlength=total)
    if measure.name == "P":
        return retrieved / cutoff
    if measure.name == "Success":
        return (retrieved > 0).astype(np.float64)
    if measure.name == "RR":
        best = np.zeros(total)
        np.maximum.at(best, row, 1.0 / rank)
        return best
    relevant = np.bincount(hits.pair_row[_relevant(hits.pair_label, measure)], minlength=total)
    if measure.name == "Recall":
        return _ratio(retrieved, relevant)
    if measure.name == "R_cap":
        return _ratio(retrieved, np.minimum(relevant, cutoff))
    precision = _ordinal(row) / rank  # AP: hits come by query, then by rank
    return _ratio(np.bincount(row, weights=precision, minlength=total), relevant)


def _foreign_values(hits: Judged, measure: Measure) -> NDArray[np.float64]:
    """Return the scores by the function of an installed package. Raises UsageError if they are not one finite number
    for each query."""
    function = resolve("measure", measure.name)
    with guarded(f"measure {measure.name}", UsageError):
        values = np.asarray(function(hits, measure), np.float64)
        if values.shape != (len(hits.query_ids),) or not np.isfinite(values).all():
            raise UsageError(
                f"measure {measure.name}: must return one finite number for each of the {len(hits.query_ids):,} "
                f"queries, and returned an array of shape {values.shape}"
            )
    return values


def _relevant(label: NDArray[np.float64], measure: Measure) -> NDArray[np.bool_]:
    return label > 0 if measure.relevant_from is None else label >= measure.relevant_from


def _dcg(row: NDArray[np.int64], rank: NDArray[np.int64], gain: NDArray[np.float64], total: int) -> NDArray[np.float64]:
    discounted = np.maximum(gain, 0) / log2(rank + 1)
    return np.bincount(row, weights=discounted, minlength=total).astype(np.float64, copy=False)


def _ideal_dcg(hits: Judged, cutoff: int) -> NDArray[np.float64]:
    order = np.lexsort((-hits.pair_label, hits.pair_row))
    row = hits.pair_row[order]
    rank = _ordinal(row)
    inside = rank <= cutoff
    return _dcg(row[inside], rank[inside], hits.pair_label[order][inside], len(hits.query_ids))


def _ordinal(row: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the position of each entry within its group of equal rows, from 1."""
    place = np.arange(len(row))
    first = np.concatenate(([True], row[1:] != row[:-1]))[: len(row)]
    ordinal: NDArray[np.int64] = place - np.maximum.accumulate(np.where(first, place, 0)) + 1
    return ordinal


def _ratio(part: NDArray[Any], whole: NDArray[Any]) -> NDArray[np.float64]:
    share: NDArray[np.float64] = np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)
    return share
