"""Compare generated queries with real queries by lengths, forms, words and meanings.

    comparison = likeness("python-reference", generated, real, "en", embedder)
    comparison.figures["real queries covered"]    # (.61, .75): by generated ones, and by as many other real ones

Everything is computed from texts only. One half of the real queries represents everything that could be asked. The
other half, and the same number of generated queries, are compared with it.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen import models
from airgen.components.keys import rng
from airgen.dataset.beir import BeirDataset
from airgen.display.study import Study, Table, columns
from airgen.errors import UsageError
from airgen.generation.query_examples import form_of
from airgen.job.starter import ENGLISH, MULTILINGUAL
from airgen.job.user_query_files import read_queries
from airgen.retrievers import load_embedder
from airgen.retrievers.model_output import unit_rows
from airgen.retrievers.protocols import Embedder
from airgen.settings import QueriesSettings
from airgen.storage.json_values import plain, write_json
from airgen.text.analysis import analyser
from airgen.text.near_duplicates import NearDuplicateIndex
from airgen.text.words import count_words

LEAST_REAL_QUERIES = 10
MOST_REAL_QUERIES = 5000  # drawn by their texts
_QUARTILE = 0.25


@dataclass(frozen=True, slots=True)
class Likeness:
    """The figures of one dataset, each with the same figure for one half of the real queries compared with the other.

    The figures are the mean length in words; the distance of lengths, the largest difference between the cumulative
    distributions (Kolmogorov-Smirnov); the share of each form (question, keywords, sentence); the distance of forms,
    half the sum of the differences of shares (total variation); the share of a real query's stems, without stop words,
    that occur in generated queries; the mean cosine similarity of a real query to the nearest generated one, or None
    without an embedder; the share of real queries covered, whose nearest generated query is at least as close as the
    nearest real query is for three quarters of the real queries; and the number of copies, that is, generated queries
    that are near duplicates of a real one.
    """

    dataset: str
    generated: int
    real: int
    copies: int
    figures: Mapping[str, tuple[float | None, float | None]]


def likeness(
    dataset: str, generated: Sequence[str], real: Sequence[str], language: str, embedder: Embedder | None = None
) -> Likeness:
    """Compare two sets of queries. Raises UsageError if there are fewer than ten real queries."""
    real = _some(dict.fromkeys(real), MOST_REAL_QUERIES)
    if len(real) < LEAST_REAL_QUERIES:
        raise UsageError(
            f"{len(real)} real queries are too few to compare with: {LEAST_REAL_QUERIES} or more are needed"
        )
    seen = NearDuplicateIndex(language)
    for text in real:
        seen.add(text)
    copies = sum(seen.find(text) is not None for text in generated)
    yardstick, held_out = real[::2], real[1::2]
    sample = _some(dict.fromkeys(generated), len(yardstick))
    other = yardstick[: len(sample)]  # as many real queries as generated ones
    text_sets: list[Sequence[str]] = [generated, real, yardstick, held_out]
    lengths = [np.array([count_words(text, language) for text in texts]) for texts in text_sets]
    forms = [_forms(texts, language) for texts in text_sets]
    near = near_real = np.zeros(0)
    if embedder is not None and sample:
        vectors = [unit_rows(embedder.encode(texts, "query")) for texts in (held_out, sample, other)]
        near, near_real = ((vectors[0] @ array.T).max(axis=1).astype(np.float64) for array in vectors[1:])
    bound = float(np.quantile(near_real, _QUARTILE)) if near_real.size else 0.0
    return Likeness(
        dataset=dataset,
        generated=len(generated),
        real=len(real),
        copies=copies,
        figures={
            "words, mean": (float(lengths[0].mean()), float(lengths[1].mean())),
            "distance of lengths": (_steps(*lengths[:2]), _steps(*lengths[2:])),
            **{f"share of {form}": (forms[0][form], forms[1][form]) for form in forms[0]},
            "distance of forms": (_variation(*forms[:2]), _variation(*forms[2:])),
            "real stems known": (_stems(held_out, sample, language), _stems(held_out, other, language)),
            "cosine of the nearest": (_mean(near), _mean(near_real)),
            "real queries covered": (_mean(near >= bound), _mean(near_real >= bound)),
        },
    )


def _mean(values: NDArray[Any]) -> float | None:
    return float(values.mean()) if values.size else None


def _some(texts: Mapping[str, None], most: int) -> list[str]:
    """Return at most this many of the texts, in an order that depends only on the texts."""
    ordered = sorted(texts, key=lambda text: (rng("likeness", text).random(), text))
    return ordered[:most]


def _forms(texts: Sequence[str], language: str) -> dict[str, float]:
    counts = Counter(form_of(text, language) for text in texts)
    return {form: counts[form] / max(1, len(texts)) for form in ("question", "keywords", "sentence")}


def _steps(left: NDArray[np.int64], right: NDArray[np.int64]) -> float:
    values = np.unique(np.concatenate((left, right)))
    shares = [np.searchsorted(np.sort(lengths), values, side="right") / len(lengths) for lengths in (left, right)]
    return float(np.abs(shares[0] - shares[1]).max())


def _variation(left: Mapping[str, float], right: Mapping[str, float]) -> float:
    return sum(abs(left[name] - right[name]) for name in left) / 2


def _stems(asked: Sequence[str], others: Sequence[str], language: str) -> float:
    stems = analyser(language)
    known = {stem for text in others for stem in stems(text)}
    shares = [np.mean([stem in known for stem in own]) for text in asked if (own := set(stems(text)))]
    return float(np.mean(shares)) if shares else 0.0


def likeness_table(likenesses: Sequence[Likeness]) -> Table:
    """Return a row for each figure, with the datasets and the real queries among themselves."""
    rows: list[Sequence[object]] = [
        ["queries", *(f"{likeness.generated:,}" for likeness in likenesses), f"{likenesses[0].real:,}"],
        *(
            [name, *[likeness.figures[name][0] for likeness in likenesses], real]
            for name, (_, real) in likenesses[0].figures.items()
        ),
        ["copies of real ones", *(f"{likeness.copies:,}" for likeness in likenesses), ""],
    ]
    return Table(rows, columns("", *(likeness.dataset for likeness in likenesses), "real", form=".2f"))


_ABOUT = (
    "The last column compares one half of the real queries with the other: what could be reached. Distances: 0 is "
    "alike, 1 is wholly different. Real stems known: the share of a real query's stems, without stop words, that some "
    "generated query has. Real queries covered: the share whose nearest generated query is as near (cosine of "
    "embeddings) as the nearest real one is for three quarters of the real queries. Copies: generated queries that are "
    "near duplicates of a real one; more than a few mean that real queries leaked. As many generated as real queries "
    "are compared, at most half of the real ones."
)


def write_likeness(out: Path, likenesses: Sequence[Likeness]) -> dict[str, Any]:
    """Write `likeness.md` and `likeness.json` to `out`, and return the content of the latter."""
    Study("Generated and real queries", [likeness_table(likenesses), _ABOUT]).write(out / "likeness.md")
    value: dict[str, Any] = plain({"datasets": likenesses})
    write_json(out / "likeness.json", value)
    return value


def likeness_to(datasets: Sequence[Path], real: Path, language: str, warn: Callable[[str], None]) -> list[Likeness]:
    """Compare each dataset's queries with real queries, including embeddings if a small embedder is on this machine."""
    texts = [
        line.text for line in read_queries(QueriesSettings(file=str(real)), real, language).lines if line.text.strip()
    ]
    name = ENGLISH[0] if language == "en" else MULTILINGUAL
    embedder = load_embedder(name) if models.fetched(name) else None
    if embedder is None:
        warn(f"meanings are not compared: airgen fetch {name}")
    likenesses = []
    for path in datasets:
        dataset = BeirDataset.open(path)
        queries = [query.text for query in dataset.queries().values()]
        likenesses.append(likeness(dataset.name, queries, real=texts, language=language, embedder=embedder))
    return likenesses
