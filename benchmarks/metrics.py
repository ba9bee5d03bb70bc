"""Measures on integer ids against pytrec_eval, alternating in one process: `python benchmarks/metrics.py`.

10,000 queries x 1,000 hits of 200,000 passages, 20 judged pairs a query, scores in no order. What is timed is scoring
alone: pytrec_eval is handed finished dicts, airgen a finished `Run`; converting to either form is shown apart. The
ratio is the median over rounds of (pytrec_eval's seconds / airgen's), and the largest difference of any score is
printed with it.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import pytrec_eval

from airgen.evaluation.measures import parse_measures, score
from airgen.evaluation.run import run_from_dict

NAMES = {"nDCG@10": "ndcg_cut_10", "AP": "map", "RR": "recip_rank", "Recall@100": "recall_100", "P@10": "P_10"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--hits", type=int, default=1_000)
    parser.add_argument("--passages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    sizes = parser.parse_args()

    random = np.random.default_rng(0)
    ids = [f"doc{number}" for number in range(sizes.passages)]
    results: dict[str, dict[str, float]] = {}
    qrels: dict[str, dict[str, int]] = {}
    for number in range(sizes.queries):
        hits = random.integers(0, sizes.passages, sizes.hits)
        scores = random.random(sizes.hits, dtype=np.float32).tolist()
        results[f"q{number}"] = dict(zip((ids[hit] for hit in hits), scores, strict=True))
        judged = np.concatenate([hits[:10], random.integers(0, sizes.passages, 10)])
        labels = random.integers(0, 4, 20).tolist()
        qrels[f"q{number}"] = dict(zip((ids[passage] for passage in judged), labels, strict=True))

    start = time.perf_counter()
    run = run_from_dict(results)
    print(f"dicts to a Run: {time.perf_counter() - start:.1f} s (not counted below)")
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "map", "recip_rank", "recall.100", "P.10"})
    measures = parse_measures(" ".join(NAMES))
    theirs, ours = [], []
    for _ in range(sizes.rounds):
        start = time.process_time()
        expected = evaluator.evaluate(results)
        theirs.append(time.process_time() - start)
        start = time.process_time()
        scores = score(run, qrels, measures)
        ours.append(time.process_time() - start)
    worst = max(
        abs(value - expected[query][NAMES[str(measure)]])
        for measure, row in zip(measures, scores.values, strict=True)
        for query, value in zip(scores.query_ids, row.tolist(), strict=True)
    )
    ratio = statistics.median(one / other for one, other in zip(theirs, ours, strict=True))
    print(f"pytrec_eval {statistics.median(theirs):.2f} s CPU, airgen {statistics.median(ours):.2f} s CPU")
    print(f"ratio {ratio:.1f}; largest difference of any of {scores.values.size} scores {worst:.1e}")


if __name__ == "__main__":
    main()
