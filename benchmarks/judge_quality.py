"""What a better judge buys: systems ranked by labels of judges that are right, and of judges with errors.

    python benchmarks/judge_quality.py COLLECTION... [--queries 30] [--draws 20] [--work runs/votes]

People's labels play the LLM judge, with errors drawn for each pair, on people's queries with the evidence of
`benchmarks/votes.py`. One relevant passage of each query plays its source. A passage that nobody judged counts as not
relevant. Printed: Spearman of 28 systems with people's ranking by the same queries (nDCG@10, means of the draws), by
the quality of the judge and by what quality control does:

    source          the source alone is the label; no judge is asked
    drops           the judge sees the source alone, and drops the query where it finds it not relevant
    one, votes      recall by the embedder; the judge sees what Table 2's votes choose (both re-rankers' ten best)
    one, votes 20   the same, with their twenty best
    one, all        the same recall; the judge sees every recalled passage
    five, votes     recall by the embedder and five systems, and Table 2's votes
    five, all       the same recall; the judge sees every recalled passage
    adds            as `five, votes`, but no query is dropped for its source
    corpus          the judge sees every passage of the corpus that a system has in its top ten

No confusion of a published judge is used: the errors are symmetric ("10 % wrong"), or go one way ("generous" finds
20 % of the passages that are not relevant relevant, "strict" misses 20 % of the relevant ones).
"""

from __future__ import annotations

import argparse
import random
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr
from votes import evidence, read, side_of

from airgen.control.table2 import pairs_to_judge
from airgen.evaluation.run import Run, run_from_dict
from airgen.records import Prelabel
from airgen.settings import Thresholds

# How often a passage that people call relevant is missed, and how often another one is called relevant.
JUDGES = {
    "right": (0.0, 0.0),
    "10 % wrong": (0.1, 0.1),
    "20 % wrong": (0.2, 0.2),
    "30 % wrong": (0.3, 0.3),
    "generous": (0.0, 0.2),
    "strict": (0.2, 0.0),
}
WAYS = ("source", "drops", "one, votes", "one, votes 20", "one, all", "five, votes", "five, all", "adds", "corpus")
FIVE = ("bm25", "minilm", "lsa-100", "rm3", "minilm-maxsim")
DEPTH = 50  # of the embedder's recall
TOP = 20  # of each of the five
Hits = dict[str, list[str]]  # of one system, best first, by query


class Query:
    """One query: which passages each recall has, which of them the votes choose, and what people say."""

    def __init__(self, rows: dict[str, Prelabel], key: str, hits: dict[str, Hits], relevant: set[str]) -> None:
        self.rows, self.key, self.relevant = rows, key, relevant
        near = sorted(zip(rows["bge"].ids, rows["bge"].scores, strict=True), key=lambda one: -one[1])
        one = [id_ for id_, _ in near[:DEPTH]]
        five = [id_ for name in FIVE for id_ in hits[name][key][:TOP]]
        every = [id_ for of in hits.values() for id_ in of[key][:10]]
        self.recall = {"one": one, "five": [*dict.fromkeys([*one, *five])], "corpus": [*dict.fromkeys(every)]}

    def asked(self, way: str, source: str) -> list[str]:
        """The passages besides the source that the judge sees."""
        if way in ("source", "drops"):
            return []
        recall, _, what = ("five, votes" if way == "adds" else way).partition(", ")
        pool = self.recall[recall]
        if what == "all" or not what:
            return [id_ for id_ in pool if id_ != source]
        among = set(pool)
        kept = [
            replace(
                row,
                ids=[id_ for id_ in row.ids if id_ in among],
                scores=[score for id_, score in zip(row.ids, row.scores, strict=True) if id_ in among],
            )
            for row in self.rows.values()
        ]
        return [
            pair.id
            for pair in pairs_to_judge(self.key, source, [], kept, Thresholds(other=20 if what == "votes 20" else 10))
        ]


def finds(query: Query, id_: str, judge: str, seed: int) -> bool:
    """What a judge says of a pair: the same in every column."""
    missed, made = JUDGES[judge]
    truth = id_ in query.relevant
    return truth != (random.Random(f"{seed}/{query.key}/{id_}").random() < (missed if truth else made))


def labels(queries: list[Query], sources: dict[str, str], way: str, judge: str, seed: int) -> dict[str, Any]:
    """The positives of the queries that are left."""
    made = {}
    for one in queries:
        source = sources[one.key]
        if way not in ("source", "adds") and not finds(one, source, judge, seed):
            continue
        good = [id_ for id_ in one.asked(way, source) if finds(one, id_, judge, seed)]
        made[one.key] = dict.fromkeys([source, *good], 1.0)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", type=Path)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--queries", type=int, default=30)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--work", type=Path, default=Path("runs/votes"))
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    for folder in args.collections:
        found = evidence(folder, "people", args)
        known, keys = found["labels"], set(found["rows"])
        whole, hits, runs = read(found), dict[str, Hits](), dict[str, Run]()
        for name, run in whole.items():
            ranked = {key: dict(of) for key, of in run.ranked().items() if key in keys}
            hits[name] = {key: list(ranked.get(key, ())) for key in keys}
            runs[name] = run_from_dict({key: dict([*of.items()][:10]) for key, of in ranked.items()})
        same = {key: known[key] for key in keys}
        right, every = side_of(runs, same), side_of(whole, known)
        all_queries = float(spearmanr(right, every).statistic)
        queries = [Query(rows, key, hits, set(known[key])) for key, rows in found["rows"].items()]
        print(f"\n{folder.name}: {len(keys)} queries, {statistics.fmean(map(len, same.values())):.1f} positives each; "
              f"with the ranking by all {len(known)} queries {all_queries:.2f}\n")  # fmt: skip
        print(f"| judge | {' | '.join(WAYS)} |\n|---|{'---:|' * len(WAYS)}")
        for judge in JUDGES:
            cells = []
            for way in WAYS:
                rhos = []
                for seed in range(args.draws):
                    draw = random.Random(seed)
                    sources = {one.key: draw.choice(sorted(one.relevant)) for one in queries}
                    made = labels(queries, sources, way, judge, seed)
                    if made:
                        rhos.append(float(spearmanr(right, side_of(runs, made)).statistic))
                cells.append(f"{statistics.fmean(rhos):.2f}" if rhos else "–")
            print(f"| {judge} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
