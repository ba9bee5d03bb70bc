"""The implementation of `airgen study agree`: run the job, score the systems on both sides, and compare the rankings.

    study = AgreementStudy(job, Path("scifact"), systems, display)
    study.report().write(job.directory / "agreement")

The collection's corpus becomes the pipeline's corpus, and queries are generated from its human positives (paper,
section 4.1). The job is an ordinary job, so it can be stopped at any point. Systems are run once on each set of
queries; variants that differ only in their labels (graded, soft, without control) are scored from the same runs.
"""

import math
import re
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from airgen.components.keys import text_key
from airgen.corpus.settings import CleanSettings, CorpusSettings
from airgen.dataset.beir import BeirDataset, read_qrels
from airgen.dataset.content import OVERLAP, WORDING
from airgen.dataset.manifest import load_manifest
from airgen.errors import DatasetError, SettingsError, UsageError
from airgen.evaluation.experiment import EvaluationOptions, evaluate
from airgen.evaluation.measures import parse_measure, score
from airgen.evaluation.result import Result
from airgen.evaluation.run import read_own_run
from airgen.evaluation.systems import SystemSettings, labelling_models, made_labels, missing_needs
from airgen.evaluation.wordings import wordings_of
from airgen.job.export import export_dataset
from airgen.job.job import Job
from airgen.job.preflight import ensure_ready, rehearse
from airgen.job.real_queries import overlaps_by_rerankers
from airgen.job.run_job import run_job
from airgen.retrievers import Retriever
from airgen.retrievers.encoding_cache import shared_encodings
from airgen.settings.spec import read_spec
from airgen.steps.progress import Display
from airgen.studies.agree import rankings
from airgen.studies.agree.rankings import Side
from airgen.studies.agree.report import AgreementReport, Variant
from airgen.studies.agree.wordings import Worded, agreements, by_overlap, shares_of
from airgen.studies.rank_correlation import refuse_few
from airgen.text.overlap import overlap

Sources = Literal["positives", "any"]
Labels = Mapping[str, Mapping[str, float]]

COMPLETE = "complete"
ABLATIONS = {
    "control": "no quality control",
    "correction": "no correction of labels",
    "negatives": "no hard negatives",
    "rewrite": "no rewriting",
}
GAINS = {"graded": "graded labels", "soft": "soft gains"}

_KEEP_ALL = CleanSettings(
    min_tokens=0,
    max_tokens=None,
    language="off",
    boilerplate="off",
    personal_data="off",
    offensive_share=None,
    exact_duplicates="off",
    near_duplicates=None,
)


def collection_corpus(dataset: BeirDataset, language: str, domain: str) -> CorpusSettings:
    """Return the settings for reading the collection's corpus. Nothing is cleaned, because human labels may name any
    passage.
    """
    info, folder = dataset.info, dataset.file("corpus").resolve().parent
    fields = {"fields": {"id": "id"}} if dataset.air_bench is not None else {}
    reader = read_spec("reader", {"kind": "beir", "path": folder.name, **fields}, folder.parent)
    return CorpusSettings(
        name=re.sub(r"[^a-z0-9._-]+", "-", dataset.name.lower()).strip("-._")[:60] or "collection",
        language=str(info.get("language") or language),
        domain=str(info.get("domain") or domain),
        licence=str(info.get("source_licence") or "unknown"),
        source=dataset.name,
        reader=reader,
        clean=_KEEP_ALL,
    )


def agree_job(
    collection: Path,
    job: Job,
    *,
    sources: Sources = "positives",
    split: str = "test",
    target: int | None = None,
) -> Job:
    """Return the job, changed to generate from the collection, and named after both.

    `sources` determines from which documents queries are generated: those with a positive human label, as in section
    4.1 of the paper, or any. Raises DatasetError if the collection has no positives, and UsageError if the job's task
    is not qa.
    """
    dataset = BeirDataset.open(collection)
    labels = dataset.qrels(split).labels
    positives = frozenset(id_ for judged in labels.values() for id_, label in judged.items() if label > 0)
    if not positives:
        raise DatasetError(
            f"{dataset.path}: no label of the split {split!r} is above 0, so no system can be ranked; use another split"
        )
    settings = job.written
    if settings.task != "qa":
        raise UsageError(
            f"{job.path}: the task is {settings.task!r}, but the documents of a collection are passages: it must be qa"
        )
    corpus = collection_corpus(dataset, settings.language, settings.domain)
    changes = {"name": f"{settings.name}-{corpus.name}"[:100], "language": corpus.language, "domain": corpus.domain}
    # Labels are compared by id, so the export must keep the collection's ids. A study publishes nothing, so it needs no
    # secret; without one, the same seed draws the same documents on every machine.
    export = settings.export.model_copy(update={"ids": "original", "secret": False})
    settings = settings.model_copy(update={**changes, "export": export})
    frame = positives if sources == "positives" else None
    return job.changed(target=target, pipeline=settings, corpus=corpus, frame=frame)


def scored(results: Sequence[Result], labels: Labels, measure: str) -> Side:
    """Score the systems' runs with these labels. A query without results counts as zero."""
    wanted = [parse_measure(measure)]
    rows = [score(read_own_run(result.paths.run), labels, wanted).of(measure) for result in results]
    return Side(tuple(result.name for result in results), np.array(rows))


def variant_labels(dataset: Path, kind: str) -> Labels:
    """Return the labels of all splits in another variant of the export (graded, soft); none if it has no such
    variant."""
    files = sorted((dataset / f"qrels-{kind}").glob("*.tsv"))
    return {query: row for path in files for query, row in read_qrels(path).labels.items()}


FEW = 30  # number of queries below which a ranking is mostly noise
ONE_ANSWER = 1.5  # relevant passages per query below which most queries have one
ESTIMATED = 30
"""Number of human queries whose overlap is also estimated without labels, as re-ranking takes long."""
BREADTH = 2.0  # ratio of positives per query on the two sides


@dataclass(frozen=True)
class AgreementStudy:
    """The study of one collection.

    `job` is made by `agree_job` from the collection. `beside` are collections whose human rankings serve as baselines.
    `draws` is the number of draws of generated queries (Figure 3), of `drawn` queries each; by default, the paper's
    share, 2,000 of 6,319.
    """

    job: Job
    collection: Path
    systems: Sequence[SystemSettings]
    display: Display
    split: str = "test"
    sources: str = "positives"
    measure: str = "nDCG@10"
    beside: Sequence[Path] = ()
    budget_usd: float | None = None
    draws: int = 30
    drawn: int | None = None

    def report(self) -> AgreementReport:
        """Run the job to its end, run the systems on both sides, and compare. Existing results are reused.

        Raises the errors of a job and an evaluation, and UsageError if there are fewer than three systems. After
        Stopped, the same call continues.
        """
        # Both sides have the same passages, and the recall, voters and systems often use the same model.
        with shared_encodings(self.job.embeddings):
            return self._report()

    def _report(self) -> AgreementReport:
        job = self.job
        self._check()
        human, labels = self._human_side(self.collection)
        others = {BeirDataset.open(path).name: self._human_side(path)[0] for path in self.beside}
        run_job(job, self.display, budget_usd=self.budget_usd)
        sides = self._generated_sides()
        weakened = [system.name for system in self.systems if system.weakened]
        complete, generated = sides[COMPLETE]
        aligned = complete.of(human.names)
        families = {system.name: system.family or system.kind for system in self.systems}
        gains = rankings.rank_gains(human, aligned, families)
        makers = labelling_models(job.pipeline.control)
        shared = made_labels(self.systems, makers)
        both = {"human": human, "generated": aligned}
        worded, shares = self._worded(human.names), self._people_overlaps(labels)
        estimated = np.array([]) if worded is None else self._estimated_overlaps(labels)
        variants = [
            Variant(name, rankings.agree(human, side, weakened), _positives(labels_of, name == GAINS["soft"]))
            for name, (side, labels_of) in sides.items()
        ]
        return AgreementReport(
            collection=BeirDataset.open(self.collection).name,
            pipeline=job.pipeline.name,
            sources=self.sources,
            measure=self.measure,
            human=human,
            generated=aligned,
            weakened=weakened,
            families=families,
            variants=variants,
            reliability={name: rankings.split_half(side) for name, side in both.items()},
            ceiling=rankings.same_size_ceiling(human, aligned.queries),
            resamplings=rankings.resamplings(human, aligned, queries=self.drawn, rounds=self.draws),
            competitors={name: rankings.correlate(human, other) for name, other in others.items()},
            gains=gains,
            ablated={
                name: sides[name][0].by_name for name in (ABLATIONS["negatives"], ABLATIONS["control"]) if name in sides
            },
            circularity=rankings.circularity(gains, shared),
            wordings=() if worded is None else agreements(worded, human, shares, estimated),
            classes=() if worded is None else by_overlap(worded, human),
            people_overlap=_mean(shares),
            estimated_overlap=_mean(estimated),
            estimated_people_overlap=math.nan if worded is None else _mean(shares[~np.isnan(estimated)]),
            notes=[
                *_notes(
                    job.pipeline.target, both, involved=bool(shared), collection=self.collection, dataset=job.dataset
                ),
                *breadth_note(labels, _positives(generated)),
            ],
        )

    def _check(self) -> None:
        """Check everything that the study needs before its first system runs. Raises an error if anything is
        missing."""
        for path in (self.collection, *self.beside):
            BeirDataset.open(path).qrels(self.split)
        if missing := missing_needs(self.systems):
            raise SettingsError(missing)
        if not self.job.finished():
            ensure_ready(self.job, evaluate=False, budget_usd=self.budget_usd)
            rehearse(self.job, self.display, evaluate=False)

    def _run(
        self,
        dataset: Path,
        out: Path,
        split: str,
        *,
        report: bool = True,
        indexes: MutableMapping[str, Retriever] | None = None,
    ) -> list[Result]:
        """Evaluate every system on one dataset, reusing earlier results. Raises UsageError if there are too few
        systems.

        `report` says whether to write the tables and tests of all pairs next to the results.
        """
        refuse_few(len(self.systems))
        with self.display.stage(f"systems on {out.name}", len(self.systems)) as bar:
            options = EvaluationOptions(
                split,
                ["nDCG@10", "Recall@10", "Recall@100"],
                language=self.job.pipeline.language,
                report=report,
            )
            return evaluate(
                dataset,
                self.systems,
                out,
                options,
                indexes=indexes,
                progress=lambda line: bar.advance(note=line.split(": ", 1)[-1]),
            )

    def _human_side(self, path: Path) -> tuple[Side, Labels]:
        """Run the systems on a human-labelled collection, and return their scores and the labels."""
        dataset = BeirDataset.open(path)
        labels = dataset.qrels(self.split).labels
        results = self._run(path, self.job.directory.parent / "collections" / dataset.name, self.split)
        return scored(results, labels, self.measure), labels

    def _worded(self, names: Sequence[str]) -> Worded | None:
        """Return the systems' scores on every wording of the finished dataset, or None if it has one wording."""
        dataset = BeirDataset.open(self.job.dataset)
        rows = dataset.wordings()
        results = self._run(self.job.dataset, self.job.directory / "agreement" / "generated", "all")
        beside = {result.name: wordings_of(result) for result in results}
        if not rows or None in beside.values():
            return None
        labels = dataset.qrels("all").labels
        rows = [(need, wording) for need, wording in rows if need in labels]
        of_wordings = {wording.id: labels[need] for need, wording in rows}
        side = scored([result for result in beside.values() if result is not None], of_wordings, self.measure)
        order = sorted(of_wordings)
        place = {id_: at for at, id_ in enumerate(order)}
        overlaps = [wording.metadata.get(OVERLAP) for _, wording in rows]
        return Worded(
            tuple(names),
            [need for need, _ in rows],
            [str(wording.metadata.get(WORDING)) for _, wording in rows],
            np.array([math.nan if value is None else value for value in overlaps], np.float64),
            side.of(names).scores[:, [place[wording.id] for _, wording in rows]],
        )

    def _people_overlaps(self, labels: Labels) -> NDArray[np.float64]:
        """Return the mean overlap of each human query with the passages that people called relevant, in the order of
        the scores."""
        dataset, language = BeirDataset.open(self.collection), self.job.pipeline.language
        queries = dataset.queries(self.split)
        relevant = {query: {id_ for id_, label in row.items() if label > 0} for query, row in labels.items()}
        wanted = {id_ for ids in relevant.values() for id_ in ids}
        texts = {row.id: (row.title, row.text) for row in dataset.passages() if row.id in wanted}
        values = []
        for query in relevant:
            passages = [texts[id_] for id_ in sorted(relevant[query]) if id_ in texts]
            measured = overlap(queries[query].text, passages, language) if query in queries else None
            values.append(math.nan if measured is None else measured.mean)
        return np.array(values, np.float64)

    def _estimated_overlaps(self, labels: Labels) -> NDArray[np.float64]:
        """Return what `airgen run --like` would take for the overlap of some human queries, which does not see their
        labels; NaN for the others."""
        job = self.job
        texts = BeirDataset.open(self.collection).queries(self.split)
        drawn = sorted((query for query in labels if query in texts), key=text_key)[:ESTIMATED]
        with job.open_store() as store:
            plan = job.plan(store)
            found = overlaps_by_rerankers(job, store, plan, {key: texts[key].text for key in drawn}, self.display)
        return shares_of({key: value.mean for key, value in found.items() if value is not None}, list(labels))

    def _generated_sides(self) -> dict[str, tuple[Side, Labels]]:
        """Return all systems' scores and the labels by name: the finished job's dataset, its other labels and its
        ablations.

        Systems run again only if the corpus or the queries of an ablation differ from the complete dataset's.
        """
        job, out, generation = self.job, self.job.directory / "agreement", self.job.pipeline.generation
        files = load_manifest(job.dataset).files
        texts = [files[name].sha256 for name in ("corpus.jsonl", "queries.jsonl")]
        indexes: dict[str, Retriever] = {}  # most ablations change the queries but not the corpus
        results = self._run(job.dataset, out / "generated", "all", indexes=indexes)
        variants: dict[str, tuple[Labels, list[Result]]] = {
            COMPLETE: (BeirDataset.open(job.dataset).qrels("all").labels, results),
            **{name: (variant_labels(job.dataset, kind), results) for kind, name in GAINS.items()},
        }
        rewritten = generation.method == "paper" and generation.rewrites  # a need's other wordings are no rewrites
        absent = {"negatives": not generation.hard_negatives[1], "rewrite": not rewritten}
        for left_out, name in ABLATIONS.items():
            if absent.get(left_out):
                continue
            directory = out / "datasets" / f"without-{left_out}"
            with job.open_store() as store:
                manifest = export_dataset(job, store, accepted=job.accepted(store), out=directory, without=[left_out])
            own = results
            if [manifest.files[file].sha256 for file in ("corpus.jsonl", "queries.jsonl")] != texts:
                # The study's own report has the figures for an ablation.
                own = self._run(directory, out / directory.name, "all", indexes=indexes, report=False)
            variants[name] = BeirDataset.open(directory).qrels("all").labels, own
        return {
            name: (scored(runs, labels, self.measure), labels) for name, (labels, runs) in variants.items() if labels
        }


def _mean(values: NDArray[np.float64]) -> float:
    """Return the mean of the known values, NaN if there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan


def _positives(labels: Labels, soft: bool = False) -> float:
    """Return the mean number of positives per query or, for soft labels, the mean sum of gains."""
    positives = [label for row in labels.values() for label in row.values() if label > 0]
    return (sum(positives) if soft else len(positives)) / max(1, len(labels))


def _notes(target: int, both: Mapping[str, Side], involved: bool, collection: Path, dataset: Path) -> list[str]:
    """Return caveats about the figures."""
    notes = []
    if involved:
        notes.append(
            "Models of quality control are among the systems under test, or inside them: see Circularity before "
            "believing their ranks."
        )
    for name, side in both.items():
        if side.queries < FEW:
            notes.append(f"There are only {side.queries} {name} queries: a ranking by so few is mostly noise.")
        if len(set(side.means.round(12).tolist())) == 1:
            notes.append(f"All systems score alike on the {name} queries, so no correlation is defined.")
    count = both["generated"].queries
    if count < target:
        notes.append(f"{count} of {target} queries were generated; the other documents were used up or dropped.")
    ids = [{row.id for row in BeirDataset.open(path).passages()} for path in (collection, dataset)]
    if missing := len(ids[0] - ids[1]):
        notes.append(f"{missing} documents of the collection have no text for a passage.")
    if any(math.isnan(rankings.split_half(side)) for side in both.values()):
        notes.append("A split-half reliability needs at least two queries per side whose rankings are not constant.")
    return notes


def breadth_note(human: Labels, generated: float) -> list[str]:
    """Return a note if generated queries have more than twice or less than half as many relevant passages as human
    queries.

    `generated` is the mean of the generated side. Rankings agree less if there are many wrong positives, or only one of
    many correct ones (docs/notes/agreement.md).
    """
    counts = [count for row in human.values() if (count := sum(label > 0 for label in row.values()))]
    human_mean = sum(counts) / len(counts) if counts else 0.0
    if not human_mean or not generated or 1 / BREADTH <= generated / human_mean <= BREADTH:
        return []
    cut = "a stricter" if generated > human_mean else "a lower"
    source = ". Where one passage answers a query, its document alone ranks best (airgen export --without correction)"
    return [
        f"Human queries have {human_mean:.1f} relevant passages each, generated ones {generated:.1f}: {cut} cut of "
        "the judge (relevance: answer or subject; control.judge: threshold) brings them nearer to each other"
        f"{source if human_mean < ONE_ANSWER and generated > human_mean else ''}."
    ]
