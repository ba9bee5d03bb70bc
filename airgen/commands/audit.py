"""`airgen audit`: have people check labels, decide what is relevant, compare systems and fill holes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from airgen.commands.command import command
from airgen.commands.options import (
    Budget,
    Dataset,
    JobName,
    Place,
    Runs,
    Seed,
    Split,
    arg,
    number,
    opt,
    path_or_none,
    paths,
)
from airgen.commands.outcome import Outcome
from airgen.commands.printing import echo, say
from airgen.display.study import Plain, Shown, Study, Table, columns
from airgen.errors import UsageError
from airgen.storage.paths import EVALUATION

if TYPE_CHECKING:
    from airgen.audit.answers import AuditResult
    from airgen.audit.answers_as_examples import ExamplesAudit
    from airgen.audit.differing_systems import SystemAudit
    from airgen.audit.holes import JudgedHoles
    from airgen.audit.relevance import RelevanceAudit
    from airgen.job.estimate import Estimate
    from airgen.job.job import Job

Folder = Annotated[Place | None, opt("Folder of the sample. Default: RUNS/NAME/audit, or audit/NAME for a dataset.")]
JobOrDataset = Annotated[
    Place, arg("JOB|DATASET", "A job, or a dataset directory (for example, of a released dataset).")
]
Answers = Annotated[Sequence[Place], opt("File of answers saved by the page (repeatable).")]


@dataclass(frozen=True)
class Drawn(Shown):
    """A sample drawn for people to judge.

    Attributes:
        folder: The folder that holds audit.html.
        pairs: Number of (query, passage) pairs.
        about: What the sample was drawn from.
    """

    folder: Path
    pairs: int
    about: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"folder": self.folder, "pairs": self.pairs, **self.about}


@command
def audit_sample(
    what: JobOrDataset,
    count: Annotated[int, arg("N", "Number of pairs to draw.", min=1)],
    out: Folder = None,
    seed: Seed = 0,
    split: Split = "test",
    runs: Runs = None,
) -> Outcome[Drawn]:
    """Draw a stratified sample of judged pairs, and write an HTML page and a CSV file for people to label.

    Neither file shows the judge's label. For a dataset without its job, pairs are drawn from the labels of --split.

    Example: airgen audit sample pipelines/quickstart.yaml 40

    Returns:
        The folder of the sample, the number of pairs, and the population of each stratum.

    Raises:
        DatasetError: There are no labels to draw from yet.
    """
    from airgen.audit.labels import draw_labels

    job, folder = _source(what, out, path_or_none(runs))
    drawn = draw_labels(job or Path(what), count, out=folder, seed=seed, split=split)
    of_split = f" --split {split}" if job is None and split != "test" else ""
    lines = [
        f"{len(drawn.items)} pairs of {sum(drawn.populations.values())}: open {folder / 'audit.html'}"
        + f", or fill in the levels of {folder / 'audit.csv'}",
        f"then: airgen audit score {_words(what, job)} audit-answers.json{of_split}"
        + (f" --out {shlex.quote(str(out))}" if out else ""),
    ]
    return Outcome(Drawn(folder, len(drawn.items), {"strata": dict(drawn.populations)}), lines)


@command
def audit_score(
    what: JobOrDataset,
    answers: Annotated[Sequence[Place], arg("ANSWERS", "The JSON file saved by the page, or the filled-in CSV.")],
    out: Folder = None,
    split: Split = "test",
    apply: Annotated[
        bool,
        opt("Replace labels with people's answers in the next version of the dataset; makes no LLM calls.", "--apply"),
    ] = False,
    runs: Runs = None,
) -> Outcome[AuditResult]:
    """Measure how well people's answers agree with the labels, and add the result to the dataset card.

    Agreement is reported by kind of document and by relevance level. With --apply, the answers also replace the labels;
    a query with no relevant passage left is removed.

    Example: airgen audit score pipelines/quickstart.yaml audit-answers.json --apply

    Returns:
        The agreement with its confidence intervals, and what --apply changed.

    Raises:
        DatasetError: The answers cannot be read, or belong to another sample.
    """
    from airgen.audit.labels import apply_answers, score_labels

    (job, folder), files = _source(what, out, path_or_none(runs)), paths(answers)
    applied = apply_answers(job or Path(what), files, folder, split) if apply else None
    result = score_labels(job or Path(what), files, folder, split)
    place = folder / "result.json" if job is None else job.dataset / "README.md"
    card = Table([(name, str(value)) for name, value in result.as_card().items()], columns("", "people's answer"))
    lines = list[str]()
    if by_hand := result.chosen_by_hand["pairs"]:
        lines.append(
            f"not in the estimates: {by_hand} answers to pairs that people chose themselves or whose label they "
            f"had seen; "
            f"{result.chosen_by_hand['confirmed']} confirm the label"
        )
    if result.gone:
        lines.append(f"{result.gone} pairs of the sample are no longer in the dataset and are not counted")
    if result.of_other_pairs:
        lines.append(f"{result.of_other_pairs} answers are to pairs that are not in this sample and are not counted")
    lines.append(f"written to {place}")
    if applied is not None:
        lines.append(f"{applied.dataset}: {applied.as_text()}")
        again = f"airgen run {job.words}" if job is not None else f"airgen evaluate {shlex.quote(str(applied.dataset))}"
        lines.append(f"scores with these labels: {again}")
    elif result.overall.agreed < result.overall.count:
        lines.append("the labels are unchanged: add --apply to replace labels with people's answers")
    return Outcome(replace(result, applied=applied), Study("", [card, *map(Plain, lines)]))


def _words(what: Place, job: Job | None) -> str:
    """Return the words by which a command finds the job or dataset."""
    return shlex.quote(str(what)) if job is None else job.words


def _source(what: Place, out: Place | None, runs: Path | None) -> tuple[Job | None, Path]:
    """Return the job (None for a dataset without one) and the folder of the sample."""
    from airgen.dataset.beir import BeirDataset
    from airgen.evaluation.experiment import results_folder
    from airgen.job.show import find_job, is_job

    path = Path(what)
    if path.is_dir() and not is_job(path):
        return None, Path(out) if out else results_folder("audit", BeirDataset.open(path).name, "")
    job = find_job(path, runs)
    return job, Path(out) if out else job.directory / "audit"


@command
def audit_systems(
    dataset: Dataset,
    systems: Annotated[Sequence[str], arg("A B", "Systems in the results, or run files. Default: all systems.")] = (),
    results: Annotated[Place | None, opt("Folder written by `evaluate`. Default: the job's, or results.")] = None,
    split: Annotated[str | None, opt("Split of the results. Default: test, or the only split.")] = None,
    answers: Answers = (),
    count: Annotated[int, opt("Number of pairs to draw.", min=25)] = 100,
    margin: Annotated[
        float | None, number("Largest difference in DCG@10 that does not matter. Default: 5% of the mean.", min=0)
    ] = None,
    judge: Annotated[
        Place | None, opt("Probabilities of relevance (TSV or JSONL). Default: the labels.", metavar="FILE")
    ] = None,
    out: Annotated[Place | None, opt("Folder of the sample. Default: audit, next to the results.")] = None,
    seed: Seed = 0,
) -> Outcome[Drawn | SystemAudit]:
    """Decide which system is better, from the labels and as few human answers as possible.

    Without --answers, draw pairs on which the systems differ and write the page. With --answers, report that one system
    is better, that they differ by less than the margin, or about how many more answers are needed. You may check the
    verdict after every 25 answers.

    Example: airgen audit systems datasets/scifact bm25 dense --answers audit-answers.json

    Returns:
        The sample that was drawn or, with answers, the estimated difference with its interval and the verdict.

    Raises:
        UsageError: There are fewer than two systems, or a system has no run.
        DatasetError: The answers cannot be read, or belong to another sample.
    """
    from airgen.audit.differing_systems import audit_text, draw_systems, find_runs, groups_of, score_systems
    from airgen.dataset.beir import BeirDataset
    from airgen.evaluation.experiment import results_folder

    dataset, probabilities = Path(dataset), None if judge is None else Path(judge)
    own, name = dataset.parent / EVALUATION, BeirDataset.open(dataset).name
    folder_of = Path(results) if results else own if own.is_dir() else Path("results")
    there = sorted(path.parent.name for path in results_folder(folder_of, name, "").glob("*/*.run.gz"))
    split_of = split or ("test" if "test" in there or not there else there[0])
    if there and split_of not in there and not all(Path(system).is_file() for system in systems):
        known = ", ".join(dict.fromkeys(there))
        raise UsageError(f"--split {split_of}: no results of it in {folder_of}; there are results of: {known}")
    home = results_folder(folder_of, name, split_of)
    runs = find_runs(home, systems)
    folder = Path(out) if out else home / ("audit" if not systems else "audit-" + "-".join(runs))
    if answers:
        audit = score_systems(folder, paths(answers), margin=margin)
        return Outcome(audit, [audit_text(audit), f"written to {folder / 'result.json'}"])
    groups = groups_of(home, runs)
    sample = draw_systems(
        dataset, split_of, runs=runs, count=count, out=folder, groups=groups, judge=probabilities, seed=seed
    )
    extra = [
        word
        for name, value in (("--results", results), ("--split", split), ("--out", out))
        if value
        for word in (name, str(value))
    ]
    drawn = f"{sample.shown} of {len(sample.pairs)} pairs that the systems rank differently"
    again = shlex.join(
        ["airgen", "audit", "systems", str(dataset), *systems, *extra, "--answers", "audit-answers.json"]
    )
    value = Drawn(folder, sample.shown, {"key": sample.key, "differ": len(sample.pairs)})
    return Outcome(value, [f"{drawn}: open {folder / 'audit.html'}", f"then: {again}"])


@command
def audit_relevance(
    pipeline: JobName,
    answers: Answers = (),
    set_it: Annotated[bool, opt("With --answers: write the better setting to the pipeline's YAML.", "--set")] = False,
    queries: Annotated[int, opt("Number of queries, each with five passages.", min=1)] = 10,
    out: Annotated[Place | None, opt("Folder of the sample. Default: RUNS/NAME/audit-relevance.")] = None,
    seed: Seed = 0,
    runs: Runs = None,
) -> Outcome[Drawn | RelevanceAudit]:
    """Decide between `relevance: answer` and `relevance: subject`, from a person's answers about ten queries of a job.

    Without --answers, draw five passages for each query and write the page. With --answers, report the precision and
    recall of the labels under both settings, and which setting fits better. After --set, the next `airgen run` updates
    the labels: without LLM calls if votes or relevance levels decide, otherwise by asking the judge again.

    Example: airgen audit relevance pipelines/agree.yaml --answers audit-answers.json --set

    Returns:
        The sample that was drawn or, with answers, the precision and recall of both settings and the better one.

    Raises:
        UsageError: --set is given without answers, or the answers do not decide.
        DatasetError: The job is not finished, or the answers belong to another sample.
    """
    from airgen.audit.relevance import asks_again, draw_relevance, score_relevance, set_relevance
    from airgen.job.show import find_job

    job = find_job(pipeline, path_or_none(runs))
    folder = Path(out) if out else job.directory / "audit-relevance"
    if answers:
        audit = score_relevance(job, paths(answers), folder)
        lines, error = [audit.as_text()], None
        if set_it and audit.word is None:
            error = UsageError(
                f"{job.path}: nothing was set, because the answers are inconclusive: ask about more queries "
                f"(--queries), or set `relevance`"
            )
        elif set_it and audit.word is not None and audit.word != audit.now:
            set_relevance(job.path, audit.word)
            by_llm = ", with the judge's other prompt" if asks_again(job.pipeline) else ", without an LLM"
            lines.append(f"{job.path} says {audit.word} now; labels are made again{by_llm}: airgen run {job.words}")
        return Outcome(audit, lines, error=error)
    if set_it:
        raise UsageError("--set needs --answers: the file saved by the page")
    sample = draw_relevance(job, folder, queries, seed)
    drawn = len({item.query for item in sample.items})
    few = "" if drawn == queries else f" (not {queries}: the other queries do not retrieve their sources)"
    lines = [
        f"{len(sample.items)} passages of {drawn} queries{few}: open {folder / 'audit.html'}",
        f"then: airgen audit relevance {job.words}{f' --out {shlex.quote(str(out))}' if out else ''} "
        "--answers audit-answers.json",
    ]
    return Outcome(Drawn(folder, len(sample.items), {"key": sample.key, "queries": drawn}), lines)


@command
def audit_examples(
    pipeline: JobName,
    answers: Annotated[Sequence[Place], arg("ANSWERS", "The JSON file saved by the page, or the filled-in CSV.")],
    count: Annotated[int, opt("Number of examples.", min=1)] = 4,
    out: Annotated[Place | None, opt("Folder of the sample. Default: RUNS/NAME/audit.")] = None,
    seed: Seed = 0,
    budget: Budget = None,
    runs: Runs = None,
) -> Outcome[ExamplesAudit]:
    """Choose few-shot examples for the judge from answers with a reason, and measure whether they help.

    The judge labels each of the other answered pairs with and without the examples. To use the examples, set
    `control.judge.examples: audit`; the next run then judges all pairs again.

    Example: airgen audit examples pipelines/quickstart.yaml audit-answers.json

    Returns:
        The judge's agreement with people, with and without the examples, and the file of the examples.

    Raises:
        DatasetError: Too few answers give a reason, or the job has no LLM judge.
    """
    from airgen.audit.answers_as_examples import measure_examples
    from airgen.job.show import find_job

    job = find_job(pipeline, path_or_none(runs))
    folder = Path(out) if out else job.directory / "audit"
    audit = measure_examples(job, paths(answers), folder, count=count, seed=seed, budget_usd=budget)
    return Outcome(audit, [audit.as_text(), f"{audit.examples} examples: {audit.file}"])


@command
def audit_holes(
    dataset: Dataset,
    run: Annotated[Sequence[Place], opt("TREC run file.")] = (),
    submissions: Annotated[Sequence[Place], opt("Folder of submissions, or one zip file.", metavar="DIR")] = (),
    judge: Annotated[str | None, opt("module:function(query text, passage text) -> label.")] = None,
    pipeline: Annotated[Place | None, opt("Use this pipeline's judge and, for submissions, its re-rankers.")] = None,
    depth: Annotated[int, opt("Number of top hits of each run to judge.", min=1)] = 10,
    metric: Annotated[str, opt("Measure to report before and after judging.")] = "nDCG@10",
    split: Split = "test",
    out: Annotated[Place, opt("Folder for judgments; no pair is judged twice.")] = Path("holes"),
    next_version: Annotated[
        str | None, opt("With --submissions: write OUT/dataset as this version.", metavar="VERSION")
    ] = None,
    estimate: Annotated[bool, opt("With --pipeline: report the cost without calling the judge.")] = False,
    budget: Budget = None,
    answers: Annotated[Sequence[Place], opt("File of answers saved by OUT/audit.html.", metavar="FILE")] = (),
) -> Outcome[JudgedHoles]:
    """Judge the unjudged top hits ("holes") of runs or submissions, and compare scores before and after.

    The judge does not see which system retrieved a passage. Without --judge or --pipeline, people judge: on the page
    OUT/audit.html, in OUT/audit.csv, or by setting `score` in OUT/holes.jsonl. Run the same command again to use their
    labels.

    Example: airgen audit holes scifact --run bm25.run --run dense.run --pipeline pipelines/quickstart.yaml

    Returns:
        The number of holes and judgments, and the scores of each run before and after.

    Raises:
        UsageError: Options contradict each other, or the judge is not a function.
        BudgetSpent: The budget is spent; the same call with a higher one continues.
    """
    from airgen.audit.holes import judge_holes, read_submissions
    from airgen.components.registry import resolve
    from airgen.evaluation.run import read_run
    from airgen.job.show import job_file
    from airgen.publishing.scores import load_labels

    if judge and pipeline:
        raise UsageError("--judge or --pipeline, not both")
    if judge and ":" not in judge:
        raise UsageError(f"--judge {judge}: give module:function")
    if bool(run) == bool(submissions):
        raise UsageError("give --run or --submissions, and not both")
    if next_version and not submissions:
        raise UsageError("--next-version needs --submissions")
    if estimate and not pipeline:
        raise UsageError("--estimate needs --pipeline, whose judge would be asked")
    if estimate and next_version:
        raise UsageError("--estimate calls no judge, so it cannot write a --next-version")

    def before_asking(cost: Estimate) -> bool:
        calls = sum(stage.calls for stage in cost.stages)
        tokens = sum(stage.prompt_tokens + stage.completion_tokens for stage in cost.stages)
        usd = "an unknown price" if cost.usd is None else f"{cost.usd:.4f} USD"
        say(
            "\n".join(
                [f"{calls:,} judgments, about {tokens:,} tokens, {usd}", *(f"! {line}" for line in cost.warnings)]
            )
        )
        return not estimate

    ask = resolve("judge", judge) if judge else None
    if ask is not None and not callable(ask):
        raise UsageError(f"--judge {judge}: is not a function")
    home, folder, refused = Path(dataset), Path(out), dict[str, list[str]]()
    labels, runs = None, {str(path): read_run(path) for path in paths(run)}
    if submissions:
        (labels,) = load_labels([home], split)
        runs, refused = read_submissions(paths(submissions), labels)
    judged = judge_holes(
        home,
        runs,
        folder,
        split=split,
        depth=depth,
        measure=metric,
        judge=ask,
        pipeline=None if pipeline is None else job_file(pipeline),
        submitted=labels,
        version=next_version,
        budget_usd=budget,
        before_asking=before_asking,
        answers=paths(answers),
    )
    for file, reasons in refused.items():
        echo(f"left out: {file}: {'; '.join(reasons)}", err=True)
    then = (
        f"to label: open {folder / 'audit.html'}, or fill in the levels of {folder / 'audit.csv'} or the scores of "
        f"{folder / 'holes.jsonl'}; then the same command again"
    )
    if judged.dataset:
        then = f"{judged.dataset}: version {next_version}; rescore the submissions with `airgen publish score`"
    return Outcome(replace(judged, refused=refused), [*judged.lines(), then])
