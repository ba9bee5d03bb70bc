"""Measure how often fifty answers choose the value of `relevance` whose labels rank systems better.

    python benchmarks/audit_relevance.py COLLECTION... [--draws 200] [--wrong 0.1] [--asked 10] [--work runs/votes]

A simulation of `airgen audit relevance` on people's queries, with the evidence of `benchmarks/votes.py`. In each draw
one relevant passage of each query plays its source, ten queries are asked about, and people's labels answer, of which a
share is wrong. Passages that nobody judged count as not relevant.

Printed for each collection: Spearman of the systems by the labels of either word with people's ranking (nDCG@10, means
of eight draws), how often each word is said to fit, how often the answers do not tell, the share of relevant passages
among those on which the words differ, and how often the intervals of precision and recall hold what all labels of the
asked queries say (with --wrong 0, it should be 95 % of the draws).
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr
from votes import evidence, read

from airgen.audit.relevance import RelevanceAudit, kinds, pick_passages, population, say
from airgen.audit.sample import AuditItem, AuditSample
from airgen.steps.votes import WAY, first, voted
from airgen.storage.records import Prelabel
from airgen.studies.judge.simulate import system_means

Rows = dict[str, list[Prelabel]]


def simulated(
    rows: Rows, sources: dict[str, str], labels: Any, wrong: float, seed: int, most: int
) -> list[RelevanceAudit]:
    """Return the estimates from the answers, and from error-free answers to all passages of the same queries."""
    chance = random.Random(seed)
    found = {key: kinds(rows[key], [sources[key]]) for key in chance.sample(sorted(rows), len(rows))}
    asked = sorted((key for key in found if found[key]), key=lambda key: not first(rows[key], [sources[key]]))[:most]
    counts = Counter(population(key, kind) for key in asked for kind in found[key].values())
    said = []
    for share, chosen in (
        (wrong, lambda key: pick_passages(key, found[key], seed)),
        (0.0, lambda key: list(found[key])),
    ):
        items = tuple(AuditItem(key, id_, found[key][id_], None, False) for key in asked for id_ in chosen(key))
        answers = {
            number: 3 * ((item.document in labels[item.query]) != (chance.random() < share))
            for number, item in enumerate(items, 1)
        }
        said.append(say(AuditSample("", 2, items, counts), [answers]))
    return said


def agreement(rows: Rows, sources: dict[str, str], runs: Any, right: Any) -> dict[str, float]:
    """Return Spearman's correlation with people's ranking for the labels of each value."""
    rhos = {}
    for word, cut in WAY.items():
        made = {
            key: {**{id_: 1.0 for id_, share in found.items() if share >= cut}, sources[key]: 1.0}
            for key, of in rows.items()
            if (found := voted(of, [sources[key]])) and (word == "subject" or first(of, [sources[key]]))
        }
        if made:
            rhos[word] = float(spearmanr(right, system_means(runs, made)).statistic)
    return rhos


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", type=Path)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--wrong", type=float, default=0.1)
    parser.add_argument("--asked", type=int, default=10)
    parser.add_argument("--queries", type=int, default=30)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--work", type=Path, default=Path("runs/votes"))
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    print("| collection | answer | subject | `answer` fits | `subject` fits | open | differ | answers | intervals |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for folder in args.collections:
        found = evidence(folder, "people", args)
        runs, labels = read(found), found["labels"]
        rows = {key: list(of.values()) for key, of in found["rows"].items()}
        right, rhos, words, held, differ, given = system_means(runs, labels), [], Counter[str](), [], [], []
        for seed in range(args.draws):
            draw = random.Random(seed)
            sources = {key: draw.choice(sorted(labels[key])) for key in rows}
            if seed < 8:
                rhos.append(agreement(rows, sources, runs, right))
            one, every = simulated(rows, sources, labels, args.wrong, seed, args.asked)
            words[str(one.word)] += 1
            if one.differ.count:
                differ.append(one.differ.share)
            given.append(one.differ.count)
            held += [
                part.low - 1e-9 <= every.figures[word][name].share <= part.high + 1e-9
                for word, of in one.figures.items()
                for name, part in of.items()
                if name != "agreement" and every.figures[word][name].count
            ]
        cells = [f"{statistics.fmean(one[word] for one in rhos if word in one):.2f}" for word in WAY]
        cells += [f"{words[word] / args.draws:.0%}" for word in ("answer", "subject", "None")]
        cells += [f"{statistics.fmean(differ):.2f}" if differ else "–", f"{statistics.fmean(given):.0f}"]
        print(f"| {folder.name} | {' | '.join(cells)} | {statistics.fmean(held):.0%} |", flush=True)


if __name__ == "__main__":
    main()
