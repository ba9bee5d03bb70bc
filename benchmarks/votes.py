"""Find the cutoff of the votes that ranks systems like human labels, for the tables in docs/notes/control.md, "Votes as
labels".

    airgen study agree COLLECTION --pipeline pipelines/agree.yaml --systems pipelines/systems-agree.yaml   # for each
    python benchmarks/votes.py COLLECTION... [--runs runs] [--queries 30] [--work runs/votes] [--third]

Labels are made again, by several rules, on the generated queries of `airgen study agree` and on people's queries. One
relevant passage of each of these plays the source (means of eight draws). Printed: Spearman of 28 systems with the
ranking by people's queries and labels (nDCG@10), positives a query, and queries that are left. The pool of a query is
the top 50 of bge-small, the top 20 of five systems, and, of people's queries, their relevant passages. e5 and SPLADE
are left out for their time. Scores and runs are kept in the folder of --work.
"""

from __future__ import annotations

import argparse
import json
import pickle
import random
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from airgen.dataset.beir import BeirDataset
from airgen.evaluation.experiment import EvaluationOptions, evaluate
from airgen.evaluation.run import Run, read_run
from airgen.evaluation.systems import load_systems
from airgen.job.job import Job
from airgen.retrievers import Passages, load_embedder, load_reranker
from airgen.retrievers.protocols import show_corpus
from airgen.settings.base import find_yaml
from airgen.steps.votes import first, shares
from airgen.storage.records import Prelabel, flat_text
from airgen.studies.agree.study import agree_job
from airgen.studies.judge.simulate import as_labels, relevant_passages, system_means

MODELS = {"ce": "ms-marco-minilm-l12-int8", "bge": "bge-small-en-int8"}
OTHERS: dict[str, Any] = {  # with --third
    "colbert": "answerai-colbert-small-int8",
    "bm25": "bm25",
    "grams": {"kind": "bm25", "analyser": {"ngram": 4}},
}
Rule = Callable[[dict[str, Prelabel], str], "list[str] | None"]


def of(rows: dict[str, Prelabel], name: str, source: str) -> list[float]:
    """Return the scores of a voter. Similarity, whose `scores` cover all pairs of the pool, is relative to the
    source."""
    row = rows[name]
    if name != "like":
        return list(row.scores)
    size, at = len(row.ids), row.ids.index(source)
    return list(row.scores[at * size : (at + 1) * size])


def way(names: tuple[str, ...], cut: float, mean: bool = False, need_first: bool = False) -> Rule:
    """Return passages at least `cut` of the way to the source for every voter, or by their mean; None if the query is
    dropped."""

    def labels(rows: dict[str, Prelabel], source: str) -> list[str] | None:
        found = [shares(of(rows, name, source), rows[name].ids, [source]) for name in names]
        if not all(found) or (need_first and not first([rows[name] for name in BOTH], [source])):
            return None
        join = statistics.fmean if mean else min
        return [id_ for id_ in found[0] if join(one[id_] for one in found) >= cut]

    return labels


def few(most: int, rule: Rule) -> Rule:
    """Return the passages that a rule finds besides the source if there are at most `most`, and otherwise the source
    alone."""

    def labels(rows: dict[str, Prelabel], source: str) -> list[str] | None:
        found = rule(rows, source)
        return found if found is None or len({*found} - {source}) <= most else [source]

    return labels


def below(margins: Mapping[str, float]) -> Rule:
    """Return passages whose score is within a margin of the source's for every voter."""

    def labels(rows: dict[str, Prelabel], source: str) -> list[str]:
        by = {name: dict(zip(rows[name].ids, rows[name].scores, strict=True)) for name in margins}
        return [
            id_ for id_ in rows["ce"].ids if all(by[n][id_] >= by[n][source] - margin for n, margin in margins.items())
        ]

    return labels


def above_zero(rows: dict[str, Prelabel], source: str) -> list[str]:
    return [id_ for id_, score in zip(rows["ce"].ids, rows["ce"].scores, strict=True) if score >= 0]


BOTH = ("ce", "bge")
MORE: dict[str, Rule] = {
    f"{'+'.join(names)}, {cut:g}{', first' * one}": way(names, cut, need_first=one)
    for names in (
        (*BOTH, "colbert"),
        ("ce", "colbert"),
        (*BOTH, "bm25"),
        (*BOTH, "grams"),
        ("ce", "grams"),
        (*BOTH, "like"),
        ("like",),
    )
    for cut, one in ((0.2, False), (0.3, False), (0.5, True))
}
RULES: dict[str, Rule] = {
    "the source alone": lambda rows, source: [source],
    "the source alone, first": way(BOTH, 9e9, need_first=True),
    **{f"both, {cut:g} of the way": way(BOTH, cut) for cut in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.9)},
    "both, 0.5, first (answer)": way(BOTH, 0.5, need_first=True),
    **{f"the same, at most {most}": few(most, way(BOTH, 0.5, need_first=True)) for most in (1, 2, 3, 5)},
    "mean, 0.3": way(BOTH, 0.3, mean=True),
    "bi-encoder, 0.3": way(("bge",), 0.3),
    "cross-encoder, 0.5": way(("ce",), 0.5),
    "cross-encoder, logit of 0": above_zero,
    "source - 1 and - .02": below({"ce": 1.0, "bge": 0.02}),
}


def evidence(folder: Path, side: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return the runs of the systems and the scores of the voters, saved in the --work folder."""
    collection = BeirDataset.open(folder)
    kept = args.work / f"{collection.name}-{side}.pickle"
    if kept.is_file():
        return dict(pickle.loads(kept.read_bytes()))
    passages = {one.id: flat_text(one.title, one.text) for one in collection.passages()}
    labels = collection.qrels("test").labels
    if side == "people":
        labels = as_labels(relevant_passages(labels))
        queries = {key: one.text for key, one in collection.queries().items() if key in labels}
        chosen = random.Random(0).sample(sorted(queries), min(args.queries, len(queries)))
    else:
        job = agree_job(folder, Job(args.pipeline, args.runs))
        with job.open_store(read_only=True) as store:
            lineages = job.accepted(store).lineages[: args.queries]
        queries = {one.final.key: one.final.text for one in lineages}
        labels, chosen = {one.final.key: {one.passage.id: 1.0} for one in lineages}, list(queries)
    data = args.work / "data" / f"{collection.name}-{side}"
    (data / "qrels").mkdir(parents=True, exist_ok=True)
    write(data / "corpus.jsonl", [{"_id": key, "text": text} for key, text in passages.items()])
    write(data / "queries.jsonl", [{"_id": key, "text": text} for key, text in queries.items()])
    lines = [f"{key}\t{id_}\t1\n" for key, row in labels.items() if key in queries for id_ in row]
    (data / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines), encoding="utf-8")
    path = find_yaml("pipelines", Path("systems-agree.yaml"))
    systems = [one for one in load_systems(path) if "e5" not in one.name and "splade" not in one.name]
    out = args.work / "results" / data.name
    options = EvaluationOptions("test", ["nDCG@10"], language="en", folder=path.parent, report=False)
    results = evaluate(data, systems, out, options)
    runs = {one.name: str(one.paths.run) for one in results}
    pools = {key: dict.fromkeys(labels[key]) for key in chosen}
    for name in ("bm25", "minilm", "lsa-100", "rm3", "minilm-maxsim"):
        for key, hits in read_run(runs[name]).items():
            if key in pools:
                pools[key] |= dict.fromkeys(id_ for id_, _ in sorted(hits, key=lambda one: -one[1])[:20])
    embedder, ids = load_embedder(MODELS["bge"]), list(passages)
    matrix = embedder.encode([passages[id_] for id_ in ids], "passage")
    asked = embedder.encode([queries[key] for key in chosen], "query")
    rows: dict[str, dict[str, Prelabel]] = {}
    reranker, place = load_reranker(MODELS["ce"]), {id_: at for at, id_ in enumerate(ids)}
    for vector, key in zip(asked, chosen, strict=True):
        near = matrix @ vector
        pool = [*(pools[key] | dict.fromkeys(ids[at] for at in np.argsort(-near, kind="stable")[:50]))]
        scores = {
            "ce": reranker.score([(queries[key], passages[id_]) for id_ in pool]).tolist(),
            "bge": [float(near[place[id_]]) for id_ in pool],
        }
        rows[key] = {name: Prelabel("", key, "", 0, name, pool, list(of)) for name, of in scores.items()}
    found = {"runs": runs, "labels": labels, "rows": rows}
    kept.write_bytes(pickle.dumps(found))
    return found


def more(folder: Path, side: str, args: argparse.Namespace, found: dict[str, Any]) -> None:
    """Add the scores of further re-rankers, and the similarities between the passages of a pool."""
    collection = BeirDataset.open(folder)
    kept = args.work / f"{collection.name}-{side}-more.pickle"
    if not kept.is_file():
        passages = {one.id: flat_text(one.title, one.text) for one in collection.passages()}
        data = BeirDataset.open(args.work / "data" / f"{collection.name}-{side}")
        queries, made = {key: one.text for key, one in data.queries().items()}, {}
        others, embedder = {name: load_reranker(spec) for name, spec in OTHERS.items()}, load_embedder(MODELS["bge"])
        for one in others.values():
            show_corpus(one, Passages([*passages], [*passages.values()], (), "en"))
        for key, rows in found["rows"].items():
            ids = rows["ce"].ids
            vectors = embedder.encode([passages[id_] for id_ in ids], "passage")
            pairs = [(queries[key], passages[id_]) for id_ in ids]
            made[key] = {name: one.score(pairs).tolist() for name, one in others.items()}
            made[key]["like"] = (vectors @ vectors.T).ravel().tolist()
        kept.write_bytes(pickle.dumps(made))
    for key, scores in pickle.loads(kept.read_bytes()).items():
        ids = found["rows"][key]["ce"].ids
        found["rows"][key] |= {name: Prelabel("", key, "", 0, name, ids, one) for name, one in scores.items()}


def write(path: Path, rows: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def read(found: Mapping[str, Any]) -> dict[str, Run]:
    return {name: read_run(path) for name, path in found["runs"].items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--work", type=Path, default=Path("runs/votes"))
    parser.add_argument("--queries", type=int, default=30)
    parser.add_argument("--pipeline", type=Path, default=Path("agree.yaml"))
    parser.add_argument("--third", action="store_true", help="try further re-rankers, and likeness to the source")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    for folder in args.collections:
        people = evidence(folder, "people", args)
        right = system_means(read(people), people["labels"])
        for side in ("generated", "people"):
            found = people if side == "people" else evidence(folder, side, args)
            if args.third:
                more(folder, side, args, found)
            runs = read(found)
            print(f"\n{folder.name}, {side} queries")
            for name, rule in (RULES | MORE if args.third else RULES).items():
                cells = []
                for seed in range(8 if side == "people" else 1):
                    draw, made = random.Random(seed), {}
                    for key, rows in found["rows"].items():
                        source = draw.choice(sorted(found["labels"][key]))
                        if (ids := rule(rows, source)) is not None:
                            made[key] = {**dict.fromkeys(ids, 1.0), source: 1.0}
                    if made:
                        rho = float(spearmanr(right, system_means(runs, made)).statistic)
                        cells.append((rho, statistics.fmean(map(len, made.values())), len(made)))
                if cells:
                    rho, positives, left = (statistics.fmean(column) for column in zip(*cells, strict=True))
                    print(f"  {name:28}{rho:6.2f}  {positives:5.1f} positives  {left:.0f} queries")


if __name__ == "__main__":
    main()
