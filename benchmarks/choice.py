"""Which of several drafts of a query is good? Read some, fit the choice, and see what it is worth on other collections.

    airgen agree COLLECTION --pipeline P.yaml ...                    # with `generation.candidates: 5`
    python benchmarks/choice.py list P.yaml COLLECTION... --count 200 > drafts.tsv
    python benchmarks/choice.py fit P.yaml COLLECTION... --read drafts.tsv [--save airgen/pipeline/choice/weights.json]

`list` draws all drafts of some samples, in a shuffled order that does not say which draft was kept. A reader writes
good, weak or wrong into the first column. `fit` fits "good" by a logistic regression over the features, on all
collections but one, and tries it on that one: the area under the ROC curve, and the share of good queries among those
that the first draft, a random one and the chosen one would give, where several drafts of a sample were read; and among
the chosen ones of all samples, and of the two thirds of them with the greatest scores (`generation.min_score`).
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from airgen.keys import text_key
from airgen.pipeline.choice.chooser import Chooser
from airgen.pipeline.choice.query_features import FEATURES
from airgen.pipeline.load_lineages import load_lineages
from airgen.pipeline.progress import Display
from airgen.pipeline.stage import Lineage
from airgen.quality.agreement.scored_sides import agree_job
from airgen.quality.judge.logistic import fit, predict
from airgen.records import Candidate, Sample, Scenario
from airgen.text.display import markdown_table

LABELS = ("good", "weak", "wrong")
LEFT_OUT = ("borrowed", "title", "copied")
"""Readers like queries that say what the document says. Chosen by that, a benchmark would test word matching alone."""


@dataclass(frozen=True)
class Draft:
    """One usable draft, and what is known of it. `sample` is the same for the drafts of one query."""

    id: str
    collection: str
    sample: str
    ordinal: int
    text: str
    source: str
    features: tuple[float, ...]


def drafts_of(pipeline: Path, collection: Path, runs: Path) -> list[Draft]:
    """All usable drafts of a job, with features as they are computed today."""
    job = agree_job(collection, pipeline, runs)
    display = Display(job.directory / "choice.json", Console(stderr=True, quiet=True))
    with job.open_store() as store:
        samples = store.made(Sample, job.fingerprints["sample"])
        lineages = load_lineages(store, samples, job.flow.every, job.fingerprints)
        made: dict[str, list[Candidate]] = {}
        for row in store.rows(Candidate):
            made.setdefault(f"{row.parent} {row.fingerprint}", []).append(row)
        chooser = Chooser(store, job.pipeline, job.fingerprints, job.folder, job.directory / "embeddings", display)
        return [
            draft
            for lineage in lineages
            if lineage.every(Scenario)
            for name, rows in made.items()
            if name.startswith(lineage.one(Scenario).key)
            for draft in asyncio.run(scored(chooser, lineage, rows, collection.name))
        ]


async def scored(chooser: Chooser, lineage: Lineage, rows: list[Candidate], collection: str) -> list[Draft]:
    """The usable drafts of one sample by one prompt."""
    usable = sorted((row for row in rows if not row.problem), key=lambda row: row.ordinal)
    known = await chooser(lineage, [row.text for row in usable]) if usable else []
    return [
        Draft(
            text_key(row.key)[:10], collection, f"{row.parent} {row.fingerprint}", row.ordinal, row.text,
            " ".join(lineage.document.split()), one.features,
        )
        for row, one in zip(usable, known, strict=True)
    ]  # fmt: skip


def listed(drafts: Sequence[Draft], count: int, letters: int) -> None:
    """All drafts of some samples of each collection, about `count`, for a reader."""
    names = sorted({draft.collection for draft in drafts})
    chosen: list[Draft] = []
    for name in names:
        own = [one for one in drafts if one.collection == name]
        samples = sorted({one.sample for one in own}, key=lambda sample: text_key(f"read {sample}"))
        some = list[Draft]()
        for sample in samples:
            if len(some) < count / len(names):
                some += [one for one in own if one.sample == sample]
        chosen += some
    random.Random(7).shuffle(chosen)
    out = csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
    out.writerow(["label", "id", "query", "source"])
    for draft in chosen:
        out.writerow(["", draft.id, draft.text, draft.source[:letters]])


def area(scores: NDArray[np.float64], good: NDArray[np.bool_]) -> float:
    """The area under the ROC curve."""
    above = scores[good][:, None] - scores[~good][None, :]
    return float(((above > 0) + 0.5 * (above == 0)).mean()) if above.size else float("nan")


def fitted(drafts: Sequence[Draft], read: Path, save: Path | None, ridge: float) -> None:
    """The table of held-out figures, and the weights of all labels together."""
    with read.open(encoding="utf-8", newline="") as file:
        labels = {row["id"]: row["label"] for row in csv.DictReader(file, delimiter="\t") if row["label"]}
    if unknown := set(labels.values()) - set(LABELS):
        raise SystemExit(f"{read}: labels are {', '.join(LABELS)}, not {', '.join(sorted(unknown))}")
    have = [draft for draft in drafts if draft.id in labels]
    x = np.array([draft.features for draft in have], np.float64)
    everything = x.copy()
    x[:, [FEATURES.index(name) for name in LEFT_OUT]] = 0  # so their weights are 0
    good = np.array([labels[draft.id] == "good" for draft in have])
    names = sorted({draft.collection for draft in have})
    place = np.array([names.index(draft.collection) for draft in have])
    rows = []
    for number, name in enumerate(names):
        out = place == number
        scores = predict(fit(x[~out], good[~out], ridge=ridge), x[out])
        right = ((scores >= 0.5) == good[out]).mean()
        rows.append([name, int(out.sum()), *shares(have, labels, out), right, area(scores, good[out])])
        rows[-1] += picked([one for one, keep in zip(have, out, strict=True) if keep], scores, labels)
    head = ["collection", "read", *LABELS, "accuracy", "AUC", "first good", "any good", "chosen good", "groups",
            "all chosen good", "best 2/3 good", "wrong", "samples"]  # fmt: skip
    print(markdown_table(head, [[f"{v:.2f}" if isinstance(v, float) else str(v) for v in row] for row in rows]))
    weights = fit(x, good, ridge=ridge)
    print(json.dumps({name: round(float(w), 3) for name, w in zip((*FEATURES, "intercept"), weights, strict=True)}))
    alone = {name: round(area(everything[:, at], good), 3) for at, name in enumerate(FEATURES)}
    print("AUC of each feature alone:", json.dumps(alone))
    if save:
        value = {
            "fitted_on": f"{len(have)} drafts of {', '.join(names)} that were read; benchmarks/choice.py",
            "weights": {n: round(float(w), 4) for n, w in zip((*FEATURES, "intercept"), weights, strict=True)},
        }
        save.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def shares(have: Sequence[Draft], labels: dict[str, str], out: NDArray[np.bool_]) -> list[float]:
    """The share of each label."""
    own = [labels[draft.id] for draft, keep in zip(have, out, strict=True) if keep]
    return [own.count(label) / len(own) for label in LABELS]


def picked(have: Sequence[Draft], scores: NDArray[np.float64], labels: dict[str, str]) -> list[float | int]:
    """The share of good ones among the first, all and the chosen drafts of samples of which two or more were read."""
    groups: dict[str, list[int]] = {}
    for at, draft in enumerate(have):
        groups.setdefault(draft.sample, []).append(at)
    several = [group for group in groups.values() if len(group) > 1]
    every = [max(group, key=lambda at: (scores[at], -have[at].ordinal)) for group in groups.values()]
    best = sorted(every, key=lambda at: -scores[at])[: max(1, len(every) * 2 // 3)]

    def share(of: Sequence[int]) -> float:
        return float(np.mean([labels[have[at].id] == "good" for at in of])) if of else float("nan")

    first = [min(group, key=lambda at: have[at].ordinal) for group in several]
    chosen = [max(group, key=lambda at: (scores[at], -have[at].ordinal)) for group in several]
    wrong = float(np.mean([labels[have[at].id] == "wrong" for at in best]))
    return [share(first), share([at for group in several for at in group]), share(chosen), len(several),
            share(every), share(best), wrong, len(every)]  # fmt: skip


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["list", "fit"])
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("collections", type=Path, nargs="+")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--letters", type=int, default=700, help="of each source that the reader sees")
    parser.add_argument("--read", type=Path)
    parser.add_argument("--ridge", type=float, default=1.0)
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    drafts = [one for name in given.collections for one in drafts_of(given.pipeline, name, given.runs)]
    if given.what == "list":
        listed(drafts, given.count, given.letters)
    else:
        fitted(drafts, given.read, given.save, given.ridge)


if __name__ == "__main__":
    main()
