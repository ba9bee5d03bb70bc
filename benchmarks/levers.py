"""Measure how much each part of quality control contributes to the agreement with human labels, on the queries of a
finished `airgen study agree`, without any LLM calls.

    airgen study agree COLLECTION --pipeline P.yaml --systems pipelines/systems-agree.yaml --target 30
    python benchmarks/levers.py COLLECTION --pipeline P.yaml --target 30

The pipeline's judge must be `kind: rerankers`, its calibration one that has not seen the collection. Every row labels
the same queries anew, with other voters, another depth or another cut, and ranks the same runs by those labels.
Spearman with the human ranking: of all systems; without those weakened on purpose; of those with no MiniLM inside,
which its votes cannot have flattered (the pooled recall, with BM25, RM3 and LSA in it, still counts for a part of a
score). Intervals: 95 %, queries of both sides resampled.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from airgen.dataset.beir import BeirDataset
from airgen.evaluation.result import Paths, load_result
from airgen.evaluation.systems import SystemSettings, load_systems, models_of
from airgen.job.export import export_dataset
from airgen.job.job import Job
from airgen.job.run_job import run_job
from airgen.safety.escaping import markdown_table
from airgen.settings import ControlSettings
from airgen.steps.progress import Display
from airgen.studies.agree.rankings import Side, agree
from airgen.studies.agree.study import Labels, agree_job, scored, variant_labels

MINILM = "all-minilm-l6-v2-int8"
DEEP = {"thresholds": {"other": 50}}
WAYS: dict[str, dict[str, Any]] = {
    "MaxSim, SPLADE, BM25 within 10": {"rerankers": ["maxsim", "splade", "bm25"], "thresholds": {"other": 10}},
    "the same within 50": {"rerankers": ["maxsim", "splade", "bm25"], **DEEP},
    "MaxSim, SPLADE, MiniLM within 50": {"rerankers": ["maxsim", "splade", MINILM], **DEEP},
    "MaxSim, MiniLM within 50": {"rerankers": ["maxsim", MINILM], **DEEP},
    "the same, relevant from .25": {"rerankers": ["maxsim", MINILM], **DEEP, "judge": {"threshold": 0.25}},
}


def side(folder: Path, systems: list[SystemSettings], labels: Labels) -> Side:
    """Score the systems' finished runs in a folder by these labels."""
    results = [load_result(Paths.of(folder, one.name)) for one in systems]
    return scored([result for result in results if result is not None], labels, "nDCG@10")


def labelled(base: Job, change: Mapping[str, Any], out: Path) -> dict[str, Labels]:
    """Label the same queries with a different quality control: binary labels, and the judge's probabilities."""
    control = base.pipeline.control
    judge = control.judge.model_dump(exclude_unset=True, exclude={"threshold"})
    values = {**control.model_dump(), **change, "judge": {**judge, **change.get("judge", {})}}
    pipeline = base.pipeline.model_copy(update={"control": ControlSettings.model_validate(values)})
    job = Job(base.path, base.directory.parent, pipeline=pipeline, corpus=base.corpus, frame=base.frame)
    run_job(job, Display(out.with_suffix(".json"), Console(quiet=True)), until="judgment")
    with job.open_store() as store:
        export_dataset(job, store, job.accepted(store), out)
    return {"binary": BeirDataset.open(out).qrels("all").labels, "soft": variant_labels(out, "soft") or {}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path)
    parser.add_argument("--pipeline", type=Path, default=Path("pipelines/agree.yaml"))
    parser.add_argument("--systems", type=Path, default=Path("pipelines/systems-agree.yaml"))
    parser.add_argument("--target", type=int)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    asked = parser.parse_args()
    systems = load_systems(asked.systems)
    base = agree_job(asked.collection, Job(asked.pipeline, asked.runs), target=asked.target)
    human_data = BeirDataset.open(asked.collection)
    (human_runs,) = (asked.runs / "collections" / human_data.name).glob("*/test")
    human = side(human_runs, systems, human_data.qrels("test").labels)
    # Without quality control, there are also the queries that it drops; if it drops none, nothing was run again.
    kept = base.directory / "agreement"
    (runs,) = (*kept.glob("without-control/*/all"),) or kept.glob("generated/*/all")
    models = models_of(systems)
    strong = [one.name for one in systems if not one.weakened]
    free = [name for name in human.names if MINILM not in models[name]]

    def row(way: str, kind: str, labels: Labels) -> list[str]:
        made = side(runs, systems, labels)
        positives = sum(sum(gain > 0 for gain in of.values()) for of in labels.values()) / len(labels)
        values = []
        for names in (human.names, strong, free):
            found = agree(human.of(names), made.of(names), []).all.spearman
            values.append(f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]")
        return [way, kind, str(len(labels)), f"{positives:.1f}", *values]

    naive = BeirDataset.open(base.directory / "agreement" / "datasets" / "without-control").qrels("all").labels
    rows = [row("the source alone", "binary", naive)]
    with tempfile.TemporaryDirectory() as folder:
        for place, (way, change) in enumerate(WAYS.items()):
            for kind, labels in labelled(base, change, Path(folder) / str(place)).items():
                rows.append(row(way, kind, labels))
    base.run(Display(base.directory / "status.json", Console(quiet=True)), until="judgment")  # its own plan again
    print(markdown_table(["voters", "labels", "queries", "positives", "all", "not weakened", "without MiniLM"], rows))


if __name__ == "__main__":
    main()
