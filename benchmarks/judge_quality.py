"""Measure the value of a better judge for several kinds of quality control, extending `airgen study judge --simulate`.

    python benchmarks/judge_quality.py COLLECTION... [--queries 30] [--draws 20] [--work runs/votes]

The judges are those of `airgen.studies.judge.simulate`, on people's queries with the evidence of `benchmarks/votes.py`.
Printed: Spearman of 28 systems with people's ranking by the same queries (nDCG@10, means of the draws), by the quality
of the judge and by what quality control does:

    source          the source alone is the label; no judge is asked
    drops           the judge sees the source alone, and drops the query where it finds it not relevant
    one, votes      recall by the embedder; the judge sees what Table 2's votes choose (both re-rankers' ten best)
    one, votes 20   the same, with their twenty best
    one, all        the same recall; the judge sees every recalled passage
    five, votes     recall by the embedder and five systems, and Table 2's votes
    five, all       the same recall; the judge sees every recalled passage
    adds            as `five, votes`, but no query is dropped for its source
    corpus          the judge sees every passage of the corpus that a system has in its top ten
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from votes import evidence, read

from airgen.control.table2 import pairs_to_judge
from airgen.settings import Thresholds
from airgen.storage.records import Prelabel
from airgen.studies.judge.simulate import (
    JUDGES,
    agreement,
    as_labels,
    chance,
    draw_sources,
    first_hits,
    judged_labels,
    system_means,
)

WAYS = ("source", "drops", "one, votes", "one, votes 20", "one, all", "five, votes", "five, all", "adds", "corpus")
FIVE = ("bm25", "minilm", "lsa-100", "rm3", "minilm-maxsim")
DEPTH = 50  # of the embedder's recall
TOP = 20  # of each of the five
Hits = dict[str, list[str]]  # of one system, best first, by query


def ways(key: str, rows: dict[str, Prelabel], hits: dict[str, Hits]) -> dict[str, list[str]]:
    """Return the passages of a query that the judge sees, by method."""
    near = sorted(zip(rows["bge"].ids, rows["bge"].scores, strict=True), key=lambda pair: -pair[1])
    one = [id_ for id_, _ in near[:DEPTH]]
    five = [*dict.fromkeys([*one, *(id_ for name in FIVE for id_ in hits[name][key][:TOP])])]
    corpus = [*dict.fromkeys(id_ for of in hits.values() for id_ in of[key][:10])]
    votes = {
        "one, votes": voted(key, rows, one, 10),
        "one, votes 20": voted(key, rows, one, 20),
        "five, votes": voted(key, rows, five, 10),
    }
    return {"source": [], "drops": [], **votes, "one, all": one, "five, all": five, "adds": votes["five, votes"],
            "corpus": corpus}  # fmt: skip


def voted(key: str, rows: dict[str, Prelabel], pool: list[str], top: int) -> list[str]:
    """Return the passages in a pool that Table 2's votes choose."""
    among = set(pool)
    kept = [
        replace(
            row,
            ids=[id_ for id_ in row.ids if id_ in among],
            scores=[score for id_, score in zip(row.ids, row.scores, strict=True) if id_ in among],
        )
        for row in rows.values()
    ]
    return [pair.id for pair in pairs_to_judge(key, "", [], kept, Thresholds(other=top))]


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
        known, rows = found["labels"], found["rows"]
        relevant = {key: set(known[key]) for key in rows}
        whole, hits = read(found), dict[str, Hits]()
        for name, run in whole.items():
            ranked = {key: [id_ for id_, _ in of] for key, of in run.ranked().items() if key in rows}
            hits[name] = {key: ranked.get(key, []) for key in rows}
        runs = {name: first_hits(run, relevant) for name, run in whole.items()}
        people = system_means(runs, as_labels(relevant))
        all_queries = agreement(whole, as_labels(relevant), system_means(whole, known))
        seen = {key: ways(key, of, hits) for key, of in rows.items()}
        print(f"\n{folder.name}: {len(rows)} queries, {statistics.fmean(map(len, relevant.values())):.1f} positives "
              f"each; with the ranking by all {len(known)} queries {all_queries:.2f}\n")  # fmt: skip
        print(f"| judge | {' | '.join(WAYS)} |\n|---|{'---:|' * len(WAYS)}")
        draws = [(draw_sources(relevant, 0, draw), cache(partial(chance, 0, draw))) for draw in range(args.draws)]
        for judge in JUDGES:
            cells = []
            for way in WAYS:
                sees = {key: of[way] for key, of in seen.items()}
                drop = way not in ("source", "adds")
                rhos = []
                for sources, luck in draws:
                    if labels := judged_labels(judge, sees, sources, relevant, luck, drop=drop):
                        rhos.append(agreement(runs, labels, people))
                cells.append(f"{statistics.fmean(rhos):.2f}" if rhos else "–")
            print(f"| {judge.name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
