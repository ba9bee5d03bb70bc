"""Compare the lengths of the passages that systems retrieve, as in BEIR's appendix H (figures 4 and 5).

Each system on a split has a line with the lengths in words of its top ten passages for each query, next to those of the
relevant passages and of the whole corpus. BEIR uses this to show that the dot product prefers longer passages than
cosine similarity.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.dataset.beir import BeirDataset
from airgen.display.study import Study, Table, columns, shown
from airgen.evaluation.result import Result
from airgen.evaluation.run import read_own_run
from airgen.text.words import count_words

DEPTH = 10
_PERCENTILES = (5, 25, 50, 75, 95)
_CURVE_BINS = 40  # bins of a curve
_RELEVANT, _CORPUS = "relevant passages", "corpus"

Lengths = NDArray[np.int64]


def top_lengths(
    runs: Mapping[str, Mapping[str, Sequence[str]]],
    qrels: Mapping[str, Mapping[str, float]],
    words: Mapping[str, int],
) -> dict[str, Lengths]:
    """Return {name: lengths in words, one per passage and query}, followed by the relevant passages and the corpus.

    `runs` is {system: {query: passages, best first}}, and `words` is {passage: length}. The queries are those in the
    qrels.
    """
    lengths = {
        name: [words[passage] for query in qrels for passage in run.get(query, ()) if passage in words]
        for name, run in runs.items()
    }
    labelled = ((passage, label) for row in qrels.values() for passage, label in row.items())
    lengths[_RELEVANT] = [words[passage] for passage, label in labelled if label > 0 and passage in words]
    lengths[_CORPUS] = list(words.values())
    return {name: np.array(lengths, np.int64) for name, lengths in lengths.items()}


def length_table(lengths: Mapping[str, Lengths], scores: Mapping[str, float], headline: str) -> str:
    """Return the main score, if any, and the mean and quantiles of the lengths."""
    rows = []
    for name, words in lengths.items():
        numbers = [float(words.mean()), *np.percentile(words, _PERCENTILES)] if len(words) else [None] * 6
        rows.append([name, shown(scores.get(name), ".4f", ""), f"{len(words):,}", *numbers])
    titles = ("", headline, "passages", "mean", *(f"{share} %" for share in _PERCENTILES))
    return Table(rows, columns(*titles, form=".0f", missing="")).markdown()


def write_lengths(dataset: BeirDataset, results: Sequence[Result], folder: Path) -> str:
    """Write `lengths.md` and `lengths.svg` for the systems on one split next to their results, and return the table."""
    language = str(dataset.info.get("language") or "en")
    words = {p.id: count_words(f"{p.title} {p.text}" if p.title else p.text, language) for p in dataset.passages()}
    runs = {}
    for result in results:
        ranked = read_own_run(result.paths.run).ranked()
        runs[result.name] = {query: [passage for passage, _ in hits[:DEPTH]] for query, hits in ranked.items()}
    lengths = top_lengths(runs, dataset.qrels(results[0].split).labels, words)
    table = length_table(lengths, {result.name: result.score for result in results}, results[0].headline)
    title = f"{dataset.name}: words of the best {DEPTH} passages of each query"
    Study(title, [table, "![](lengths.svg)"]).write(folder / "lengths.md")
    from airgen.evaluation.charts import save_svg

    save_svg(_chart(lengths, title), folder / "lengths.svg")
    return table


def curves(lengths: Mapping[str, Lengths]) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """Return the middles of the bins in words, and {name: share of its passages in each bin}. The last bin contains the
    longest one percent.

    All curves have the same bins and sum to 1, so that distributions of different sizes can be compared.
    """
    every_length = np.concatenate([words for words in lengths.values() if len(words)] or [np.zeros(1, np.int64)])
    top = max(float(np.percentile(every_length, 99)), 1.0)
    edges = np.linspace(0, top, _CURVE_BINS + 1)
    clipped = {name: np.clip(words, 0, top) for name, words in lengths.items() if len(words)}
    shares = {name: np.histogram(words, edges)[0] / len(words) for name, words in clipped.items()}
    return (edges[1:] + edges[:-1]) / 2, shares


def _chart(lengths: Mapping[str, Lengths], title: str) -> Any:
    import altair as alt

    from airgen.evaluation.charts import chart_names, lines_chart

    middles, shares = curves(lengths)
    shown = dict(zip(shares, chart_names(list(shares)), strict=True))
    rows = [
        {"name": shown[name], "words": round(float(middle), 3), "share": round(float(value), 6)}
        for name, share in shares.items()
        for middle, value in zip(middles, share, strict=True)
    ]
    x = alt.X("words:Q", axis=alt.Axis(title="words"))
    y = alt.Y("share:Q", axis=alt.Axis(title="share of the passages", format="%"))
    return lines_chart(rows, list(shown.values()), x, y, title=title, size=(640, 300))
