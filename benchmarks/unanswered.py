"""Attack: find the queries without an answer of a published dataset, knowing the original corpus.

    python benchmarks/unanswered.py runs/un runs/deux              # finished jobs with generation.unanswerable

The attacker has the public part, as `airgen publish --private-qrels` makes it, and the original corpus. Each way ranks
the queries by one figure, and most figures are of BM25: a query without an answer has lost all of its relevant
passages, so the best passage that is still public falls below the best of all. Printed for each way are how many of the
first guesses are right, in all jobs together, and the area under the ROC curve.

`tests/publishing/test_unanswered.py` runs this attack on a small job, and compares it with SECURITY.md.
"""

import argparse
import math
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from airgen.dataset.beir import BeirDataset, BeirQuery
from airgen.publishing.withhold import public_part
from airgen.storage.store import Store
from airgen.text.words import words

NEAR = 5  # passages that are looked at around the best one


class Bm25:
    """BM25 (k1 0.9, b 0.4) over the original corpus."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.keys = list(texts)
        self.counts = [Counter(words(text, "en")) for text in texts.values()]
        self.found_in = Counter(term for counts in self.counts for term in counts)
        mean = float(np.mean([counts.total() for counts in self.counts]))
        self.norms = [0.9 * (0.6 + 0.4 * counts.total() / mean) for counts in self.counts]

    def scores(self, query: str) -> np.ndarray:
        """Return the score of each passage."""
        size = len(self.counts)
        terms = {
            term: math.log(1 + (size - self.found_in[term] + 0.5) / (self.found_in[term] + 0.5))
            for term in words(query, "en")
        }
        return np.array(
            [
                sum(weight * counts[term] * 1.9 / (counts[term] + norm) for term, weight in terms.items())
                for counts, norm in zip(self.counts, self.norms, strict=True)
            ]
        )


@dataclass(frozen=True)
class Target:
    """A query as the attacker sees it.

    `scores` are of all passages of the original corpus, of which `public` marks those that the public part still has.
    `alike` returns the scores of all passages for the text of one of them.
    """

    query: BeirQuery
    texts: tuple[str, ...]
    scores: np.ndarray
    public: np.ndarray
    alike: Callable[[int], np.ndarray]

    @property
    def best(self) -> float:
        """The score of the best passage."""
        return max(float(self.scores.max()), 1e-9)

    @property
    def left(self) -> float:
        """The score of the best passage that is still public."""
        return float(self.scores[self.public].max())


def _fall(target: Target) -> float:
    return 1 - target.left / target.best


def _low(target: Target) -> float:
    return -target.left


def _missing_nearby(target: Target) -> float:
    order = np.argsort(-target.scores, kind="stable")[:NEAR]
    return float(target.scores[order] @ ~target.public[order]) / max(float(target.scores[order].sum()), 1e-9)


def _near_duplicates(target: Target) -> float:
    """Of the best missing passage: a relevant passage is gone together with its near duplicates."""
    best = int(np.argmax(np.where(target.public, -1.0, target.scores)))
    alike = target.alike(best)
    return float(target.scores[best]) / target.best * (1 - alike[target.public].max() / max(float(alike[best]), 1e-9))


def _compressed(target: Target) -> float:
    """Return how many bytes the query adds at least to a compressed public passage."""
    order = np.argsort(-np.where(target.public, target.scores, -1.0), kind="stable")[:NEAR]
    return min(
        len(zlib.compress(f"{target.texts[at]}\n{target.query.text}".encode(), 9))
        - len(zlib.compress(target.texts[at].encode(), 9))
        for at in order
    ) / max(len(target.query.text), 1)


WAYS: dict[str, Callable[[Target], float]] = {
    "fall of the best passage": _fall,
    "public part alone": _low,
    "missing among the first five": _missing_nearby,
    "near duplicates of the best missing passage": _near_duplicates,
    "bytes that the query adds to a compressed passage": _compressed,
}
"""Each gives a higher figure to a query that is likelier to have no answer."""

MARKS: dict[str, Callable[[BeirQuery], float]] = {
    "id": lambda query: int(query.id[1:], 16),
    "length": lambda query: len(query.text),
    "words": lambda query: len(query.text.split()),
    "compressed length": lambda query: len(zlib.compress(query.text.encode(), 9)),
    "compressed length of the metadata": lambda query: len(zlib.compress(repr(query.metadata).encode(), 9)),
    "rewritten": lambda query: float(query.metadata["rewritten"] is True),
    "type": lambda query: zlib.crc32(str(query.metadata["type"]).encode()),
    "style": lambda query: zlib.crc32(str(query.metadata["style"]).encode()),
}
"""What a published query shows besides its words; none may tell whether it has an answer."""


@dataclass(frozen=True)
class Guesses:
    """The figures of each way and mark for the queries of a split, and the truth: which have no answer."""

    ways: Mapping[str, np.ndarray]
    marks: Mapping[str, np.ndarray]
    truth: np.ndarray


def attack(dataset: Path, original: Mapping[str, str], split: str = "test") -> Guesses:
    """Publish a dataset, and attack its public part.

    Args:
        dataset: The whole dataset.
        original: The texts of the corpus that the attacker has, by id, as `title`, a line end and `text`.
        split: The split whose labels are withheld.
    """
    private = BeirDataset.open(dataset)
    answered = {
        query.id: query.metadata.get("answered")
        for query in private.each_query(split)
        if query.metadata.get("split", split) == split
    }
    with tempfile.TemporaryDirectory() as folder:
        public_part(private.path, Path(folder) / "public", [split])
        published = BeirDataset.open(Path(folder) / "public")
        queries = [query for query in published.each_query(split) if query.id in answered]
        still = {text_of(row.title, row.text) for row in published.passages()}
    index, texts = Bm25(original), tuple(original.values())
    public = np.array([text in still for text in texts])
    targets = [
        Target(query, texts, index.scores(query.text), public, lambda at: index.scores(texts[at])) for query in queries
    ]
    return Guesses(
        {name: np.array([way(target) for target in targets]) for name, way in WAYS.items()},
        {name: np.array([mark(query) for query in queries], dtype=float) for name, mark in MARKS.items()},
        np.array([answered[query.id] is False for query in queries]),
    )


def text_of(title: str, text: str) -> str:
    """Return a passage as one text."""
    return f"{title}\n{text}".strip()


def original_of(job: Path) -> dict[str, str]:
    """Return the texts of a job's corpus by id."""
    with Store.open(job / "work.duckdb", read_only=True) as store:
        rows = store.query("SELECT id, title, text FROM passage ORDER BY id")
    return {key: text_of(title, text) for key, title, text in rows}


def first_right(figures: np.ndarray, truth: np.ndarray, count: int) -> int:
    """Return how many of the first `count` guesses are right."""
    return int(truth[np.argsort(-figures, kind="stable")[:count]].sum())


def auc(figures: np.ndarray, truth: np.ndarray) -> float:
    """Return the area under the ROC curve."""
    above = figures[truth][:, None] - figures[~truth][None]
    return float(np.mean((above > 0) + 0.5 * (above == 0)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", type=Path, nargs="+", help="work directories of jobs")
    parser.add_argument("--split", default="test")
    args = parser.parse_args()
    every = [attack(job / "dataset", original_of(job), args.split) for job in args.jobs]
    total, unanswered = sum(len(each.truth) for each in every), sum(int(each.truth.sum()) for each in every)
    print(f"{total} queries, {unanswered} without an answer (chance: {unanswered / total:.2f} of the guesses)")
    for name in WAYS:
        guesses = {
            count * len(every): sum(first_right(each.ways[name], each.truth, count) for each in every)
            for count in (5, 10, 20)
        }
        right = ", ".join(f"first {count}: {number} right" for count, number in guesses.items())
        print(f"{name}: {right}; AUC {np.mean([auc(each.ways[name], each.truth) for each in every]):.3f}")
    for name in MARKS:
        print(f"{name}: AUC {np.mean([auc(each.marks[name], each.truth) for each in every]):.3f}")


if __name__ == "__main__":
    main()
