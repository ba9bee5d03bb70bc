"""Attack: find the queries without an answer of a published dataset, knowing the original corpus.

    python benchmarks/unanswered.py runs/un                       # a finished job with generation.unanswerable

The attacker has the public part, as `airgen publish --private-qrels` makes it, and the original corpus. For each query,
the score is 1 - (BM25 of the best passage that is still public) / (BM25 of the best of all), because a query without an
answer has lost all of its relevant passages. The queries are ranked by it. Printed are how many of the first guesses
are right, the area under the ROC curve, and both figures from the public part alone (a low best score).
"""

import argparse
import math
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

from airgen.dataset.beir import BeirDataset
from airgen.publishing.withhold import public_part
from airgen.store import Store
from airgen.text.words import words

Docs = dict[str, Counter[str]]


def bm25(query: str, docs: Docs, found_in: Counter[str], mean: float) -> dict[str, float]:
    """Return the BM25 score (k1 0.9, b 0.4) of each document."""
    terms = {
        term: math.log(1 + (len(docs) - found_in[term] + 0.5) / (found_in[term] + 0.5)) for term in words(query, "en")
    }
    scores = {}
    for key, counts in docs.items():
        norm = 0.9 * (0.6 + 0.4 * counts.total() / mean)
        scores[key] = sum(weight * counts[term] * 1.9 / (counts[term] + norm) for term, weight in terms.items())
    return scores


def auc(scores: np.ndarray, truth: np.ndarray) -> float:
    """Return the area under the ROC curve."""
    above = scores[truth][:, None] - scores[~truth][None]
    return float(np.mean((above > 0) + 0.5 * (above == 0)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", type=Path, help="work directory of the job")
    parser.add_argument("--split", default="test")
    args = parser.parse_args()
    private = BeirDataset.open(args.job / "dataset")
    answered = {key: query.metadata.get("answered") for key, query in private.queries(args.split).items()}
    with tempfile.TemporaryDirectory() as folder:
        public_part(private.path, Path(folder) / "public", [args.split])
        public = BeirDataset.open(Path(folder) / "public")
        queries = {key: query.text for key, query in public.queries(args.split).items() if key in answered}
        still = {f"{row.title}\n{row.text}".strip() for row in public.passages()}
    with Store.open(args.job / "work.duckdb", read_only=True) as store:
        rows = store.query("SELECT key, title, text FROM passage")
    texts = {key: f"{title}\n{text}".strip() for key, title, text in rows}
    docs = {key: Counter(words(text, "en")) for key, text in texts.items()}
    found_in = Counter(term for counts in docs.values() for term in counts)
    mean = float(np.mean([counts.total() for counts in docs.values()]))
    truth = np.array([answered[key] is False for key in queries])
    gaps, lows = [], []
    for text in queries.values():
        scores = bm25(text, docs, found_in, mean)
        left = max(score for key, score in scores.items() if texts[key] in still)
        gaps.append(1 - left / max(*scores.values(), 1e-9))
        lows.append(-left)
    print(f"{len(queries)} queries, {truth.sum()} without an answer (chance: {truth.mean():.2f} of the guesses)")
    for name, values in (("with the original corpus", np.array(gaps)), ("public part alone", np.array(lows))):
        order = np.argsort(-values, kind="stable")
        first = ", ".join(f"first {count}: {truth[order[:count]].sum()} right" for count in (10, 20))
        print(f"{name}: {first}; AUC {auc(values, truth):.3f}")


if __name__ == "__main__":
    main()
