"""From two sides to the report of `airgen agree`: statistics, competitors, leave-one-out, and what must be said.

report = agreement_report(job, collection, systems, Path("pipelines"), display)
report.write(job.directory / "agreement")
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from airgen.dataset.beir import BeirDataset
from airgen.evaluation.systems import SystemSettings
from airgen.pipeline.job import Job
from airgen.pipeline.progress import Display
from airgen.quality.agreement.bias import (
    circularity,
    lexical_overlap,
    model_name,
    models_of,
    rank_gains,
    saturation,
)
from airgen.quality.agreement.rankings import (
    Side,
    agree,
    average_ranks,
    correlate,
    resamplings,
    same_size_ceiling,
    split_half,
)
from airgen.quality.agreement.report import AgreementReport, Competitor, LeaveOneOut, Variant
from airgen.quality.agreement.two_sides import GeneratedSide, Labels, generated_sides, run_systems, scored
from airgen.retrievers.base import Corpus
from airgen.settings import ControlSettings

__all__ = ["agreement_report", "control_without"]

FEW = 30  # queries below which a ranking is mostly noise


def agreement_report(
    job: Job,
    collection: Path,
    systems: Sequence[SystemSettings],
    folder: Path,
    display: Display,
    *,
    split: str = "test",
    sources: str = "positives",
    measure: str = "nDCG@10",
    beside: Sequence[Path] = (),
    leave_one_out: bool = False,
    budget_usd: float | None = None,
) -> AgreementReport:
    """Run the job to its end, run the systems on both sides, and compare. All that was done before is kept.

    folder: where relative paths of the systems file start. beside: collections whose human rankings are the trivial
    competitors. Raises what a job and an evaluation raise, UsageError for fewer than three systems; Stopped is
    resumable.
    """
    language, kept = job.pipeline.language, job.directory.parent / "collections"

    def human_side(path: Path) -> tuple[Side, BeirDataset, Labels]:
        dataset = BeirDataset.open(path)
        labels = dataset.qrels(split).labels
        results = run_systems(path, systems, kept / dataset.name, split, folder, language, display)
        return scored(results, labels, measure), dataset, labels

    human, dataset, labels = human_side(collection)
    others = [(path, human_side(path)[0]) for path in beside]
    result = job.run(display, budget_usd=budget_usd)
    assert result.manifest is not None
    sides = generated_sides(job, systems, folder, measure, display)
    first = sides[0]
    weakened = [system.name for system in systems if system.weakened]
    families = {system.name: system.family or system.kind for system in systems}
    gains = rank_gains(human, first.side, families)
    models, control = models_of(systems), job.pipeline.control
    circular = circularity(gains, models, [control.recall.model, *control.pools, *control.rerankers])
    alone = []
    if leave_one_out:
        alone = _left_out(job, systems, human, first, models, circular.involved, folder, measure, display)
    queries = {"human": dataset.queries(), "generated": BeirDataset.open(job.dataset).queries()}
    corpora = {"human": _corpus(dataset, language), "generated": _corpus(BeirDataset.open(job.dataset), language)}
    of_side = {"human": (human, labels), "generated": (first.side, first.labels)}
    return AgreementReport(
        collection=dataset.name, pipeline=job.pipeline.name, sources=sources, measure=measure,
        human=human, generated=first.side, weakened=weakened, families=families,
        variants=[Variant(one.name, agree(human, one.side, weakened), one.positives) for one in sides],
        reliability={name: split_half(side) for name, (side, _) in of_side.items()},
        ceiling=same_size_ceiling(human, first.side.queries),
        resamplings=resamplings(human, first.side.of(human.names)),
        competitors=[Competitor(BeirDataset.open(path).name, correlate(human, other)) for path, other in others],
        gains=gains,
        saturation={name: saturation(side) for name, (side, _) in of_side.items()},
        overlap={name: lexical_overlap(queries[name], of, corpora[name]) for name, (_, of) in of_side.items()},
        circularity=circular, leave_one_out=alone,
        notes=_notes(job, human, first, circular.involved, corpora),
    )  # fmt: skip


def control_without(control: ControlSettings, models: frozenset[str]) -> ControlSettings | None:
    """Quality control without the recall, pools and re-rankers that run these models; None where nothing is left."""
    pools = [spec for spec in control.pools if model_name(spec) not in models]
    rerankers = [spec for spec in control.rerankers if model_name(spec) not in models]
    recall_goes = model_name(control.recall.model) in models
    if not rerankers or (recall_goes and not pools):
        return None
    recall = control.recall.model_copy(update={"pools_only": recall_goes or control.recall.pools_only})
    return control.model_copy(update={"recall": recall, "pools": pools, "rerankers": rerankers})


def _left_out(
    job: Job,
    systems: Sequence[SystemSettings],
    human: Side,
    complete: GeneratedSide,
    models: dict[str, frozenset[str]],
    involved: object,
    folder: Path,
    measure: str,
    display: Display,
) -> list[LeaveOneOut]:
    """Each involved system's rank on labels that were made without its models; equal sets of models run once."""
    assert isinstance(involved, dict)
    results = run_systems(
        job.dataset, systems, job.directory / "agreement" / "generated", "all", folder, job.pipeline.language, display
    )
    ranks = {side: average_ranks(-of.means) for side, of in (("human", human), ("generated", complete.side))}
    found, done = [], {}
    for name in (system.name for system in systems if system.name in involved):
        shared = tuple(involved[name])
        if shared not in done:
            done[shared] = _labels_without(job, frozenset(shared), display)
        labels = done[shared]
        if labels is None:
            continue
        alone = average_ranks(-scored(results, labels, measure).means)
        place, at = human.names.index(name), complete.side.names.index(name)
        values = (float(ranks["human"][place]), float(ranks["generated"][at]), float(alone[at]))
        found.append(LeaveOneOut(name, shared, *values))
    return found


def _labels_without(job: Job, models: frozenset[str], display: Display) -> Labels | None:
    control = control_without(job.pipeline.control, models)
    if control is None:
        return None
    pipeline = job.pipeline.model_copy(update={"control": control})
    other = Job(job.path, job.directory.parent, pipeline=pipeline, corpus=job.corpus, frame=job.frame)
    other.run(display, until="judgment")
    name = "-".join(sorted(models)).replace("/", "-")
    directory = job.directory / "agreement" / "datasets" / f"left-out-{name}"
    with other.open_store() as store:
        other.export(store, other.accepted(store), directory)
    return BeirDataset.open(directory).qrels("all").labels


def _corpus(dataset: BeirDataset, language: str) -> Corpus:
    passages = list(dataset.passages())
    titles = [one.title for one in passages]
    return Corpus(
        [one.id for one in passages], [one.text for one in passages], titles if any(titles) else (), language
    )  # fmt: skip


def _notes(job: Job, human: Side, complete: GeneratedSide, involved: object, corpora: dict[str, Corpus]) -> list[str]:
    """What a reader must know before believing a figure."""
    notes = []
    generated = complete.side
    if involved:
        notes.append(
            "Models of quality control are among the systems under test, or inside them: see Circularity before "
            "believing their ranks."
        )
    for name, side in (("human", human), ("generated", generated)):
        if side.queries < FEW:
            notes.append(
                f"{side.queries} {name} queries: a ranking by so few is mostly noise, whatever the correlation."
            )
        if len(set(side.means.round(12).tolist())) == 1:
            notes.append(f"All systems score alike on the {name} queries, so no correlation is defined.")
    if generated.queries < job.pipeline.target:
        notes.append(
            f"{generated.queries} of {job.pipeline.target} queries: the documents were spent, or were dropped."
        )
    missing = len(set(corpora["human"].ids) - set(corpora["generated"].ids))
    if missing:
        notes.append(f"{missing} documents of the collection have no text that a passage could be made of.")
    if any(math.isnan(value) for value in (split_half(human), split_half(generated))):
        notes.append("A split-half reliability needs at least two queries a side whose rankings are not constant.")
    return notes
