"""`airgen study`: test benchmarks, judges and models: agreement, faults, diversity, gains and versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from airgen.commands.command import command
from airgen.commands.options import (
    Budget,
    Dataset,
    DatasetOrSuite,
    Datasets,
    Language,
    Place,
    Places,
    Runs,
    Seed,
    Split,
    Target,
    arg,
    dataset_of,
    opt,
    path_or_none,
    paths,
)
from airgen.commands.outcome import Outcome
from airgen.commands.printing import echo, say
from airgen.display.study import Rows, Study
from airgen.errors import UsageError
from airgen.safety.escaping import distinct_names
from airgen.storage.json_values import write_json

if TYPE_CHECKING:
    from airgen.evaluation.systems import SystemSettings
    from airgen.job.job import Job
    from airgen.studies.agree.report import AgreementReport
    from airgen.studies.compare_versions import VersionComparison
    from airgen.studies.contamination import Contamination
    from airgen.studies.correlate import CorrelationStudy
    from airgen.studies.gain import GainReport
    from airgen.studies.inspect.inspect_dataset import Inspection
    from airgen.studies.judge.calibrate import Calibration
    from airgen.studies.judge.simulate import JudgeSimulation


@command
def study_agree(
    collection: Annotated[
        Place, arg("COLLECTION", "A human-labelled dataset in BEIR format, or a fetched one (scifact)."), dataset_of
    ],
    pipeline: Annotated[Place, opt("Pipeline to use; the collection replaces its `corpus`.")],
    systems: Annotated[Place, opt("A systems YAML; `weakened: true` marks systems that are deliberately poor.")],
    sources: Annotated[
        Literal["positives", "any"],
        opt("Generate queries from documents with a positive human label (paper, section 4.1) or any.", "--from"),
    ] = "positives",
    split: Split = "test",
    target: Target = None,
    measure: Annotated[str, opt("Measure that ranks the systems.")] = "nDCG@10",
    beside: Annotated[
        Sequence[Place],
        opt("Another human-labelled collection, whose agreement serves as a baseline."),
        dataset_of,
    ] = (),
    draws: Annotated[int, opt("Number of resamplings of generated queries (Figure 3).", min=1, max=10_000)] = 30,
    drawn: Annotated[int | None, opt("Number of queries per resampling. Default: the paper's share.", min=1)] = None,
    check: Annotated[bool, opt("Report the cost and what each system needs, without LLM calls.")] = False,
    budget: Budget = None,
    runs: Runs = None,
) -> Outcome[AgreementReport]:
    """Measure whether generated and human labels rank systems alike (paper, section 4.1).

    The command generates queries from a human-labelled collection, ranks the systems with both kinds of labels and
    compares the rankings. You can stop it at any time and run it again to continue. The report is written to
    RUNS/NAME-COLLECTION/agreement/agreement.md.

    Example: airgen study agree scifact --pipeline pipelines/agree.yaml --systems pipelines/systems-agree.yaml

    Returns:
        The scores and ranks by both kinds of labels, and their Spearman correlation with a confidence interval.

    Raises:
        DatasetError: The collection cannot be read, or lacks labels.
        UsageError: The pipeline's task is not qa, or there are too few systems.
        SettingsError: A system or the pipeline lacks something.
        BudgetSpent: The budget is spent; the same call with a higher budget continues.
    """
    from airgen.evaluation.systems import load_systems
    from airgen.job.show import read_job
    from airgen.settings.base import find_yaml
    from airgen.steps.progress import STATUS, Display
    from airgen.studies.agree.study import AgreementStudy, agree_job

    home, path = Path(collection), find_yaml("pipelines", systems)
    systems_given = load_systems(path)
    job = agree_job(home, read_job(pipeline, path_or_none(runs)), sources=sources, split=split, target=target)
    if check:
        return _check(job, systems_given)
    study = AgreementStudy(
        job,
        home,
        systems_given,
        Display(job.directory / STATUS),
        split=split,
        sources=sources,
        measure=measure,
        beside=paths(beside),
        budget_usd=budget,
        draws=draws,
        drawn=drawn,
    )
    report = study.report()
    folder = job.directory / "agreement"
    report.write(folder)
    files = f"{folder / 'agreement.md'}, agreement.json, ranks.svg, resamplings.svg"
    return Outcome(report, [report.markdown(), files])


def _check(job: Job, systems: list[SystemSettings]) -> Outcome[Any]:
    """Report the cost of the job and what each system needs; exit with code 1 if anything is missing."""
    from airgen.commands.check import outcome_of
    from airgen.evaluation.systems import needs_study, system_needs
    from airgen.job.check_job import check_job

    checked, needed = outcome_of(check_job(job)), system_needs(systems)
    assert isinstance(checked.text, Study)
    text = Study("", [*checked.text.parts, "## Systems", *needs_study(needed).parts])
    shown = {**checked.value.as_dict(), "systems": needed}
    lacking = any(system.missing for system in needed)
    return Outcome(checked.value, text, json=shown, code=1 if checked.code or lacking else 0)


@command
def study_correlate(
    sources: Annotated[Places, arg("RESULTS", "Folders written by `airgen evaluate` or MTEB, or CSV tables.")],
    by: Annotated[
        Literal["folder", "task", "domain", "language", "dataset"],
        opt("What to compare: the sources as a whole, or their tasks, domains, languages or datasets."),
    ] = "folder",
    names: Annotated[Place | None, opt("Mapping {name in a source: common name} of systems.", metavar="YAML")] = None,
    only: Annotated[Sequence[str], opt("Compare only this system.")] = (),
    dataset: Annotated[Sequence[str], opt("Use only this dataset or task.")] = (),
    measure: Annotated[
        str | None, opt("Measure to use from airgen's results. Default: the one that ranks systems.")
    ] = None,
    split: Annotated[str | None, opt("Split to use if a dataset has several. Default: test, then dev.")] = None,
    least: Annotated[int, opt("Minimum number of systems that two benchmarks share.", min=3)] = 3,
    out: Annotated[Place, opt("Folder for the report and its chart.")] = Path("correlation"),
) -> Outcome[CorrelationStudy]:
    """Correlate how several benchmarks rank the same systems: Spearman, Kendall, p-values and confidence intervals.

    Systems are matched by name, without the organisation: `intfloat/e5-large-v2` matches `e5-large-v2`. The score of a
    system on a benchmark is its mean over the datasets.

    Example: airgen study correlate results --by task
    Example: airgen study correlate results mteb-results --names names.yaml --dataset ArguAna --dataset SciFact

    Returns:
        The correlation of each pair of benchmarks.

    Raises:
        UsageError: There are fewer than two benchmarks, or they share too few systems.
        DatasetError: A source cannot be read.
    """
    from airgen.evaluation.score_tables import benchmarks, read_names, read_system_scores
    from airgen.studies.correlate import correlate

    given, folder = paths(sources), Path(out)
    if len(set(given)) < len(given):
        raise UsageError("a source is given twice")
    titles = distinct_names(path.stem if path.is_file() else path.resolve().name for path in given)
    rows = {
        title: read_system_scores(path, measure=measure, split=split) for title, path in zip(titles, given, strict=True)
    }
    mapped = read_names(Path(names)) if names else {}
    correlation = correlate(benchmarks(rows, by=by, names=mapped, only=only, datasets=dataset), least=least)
    correlation.write(folder)
    return Outcome(correlation, [correlation.text(), f"{folder / 'correlation.md'}, correlation.json, correlation.svg"])


@command
def study_gain(
    datasets: Datasets,
    before: Annotated[str, opt("Model before training: a folder or a Hub name (with --systems, a system).")],
    after: Annotated[str, opt("Model after training, given likewise.")],
    systems: Annotated[Place | None, opt("A systems YAML with both systems.")] = None,
    measure: Annotated[str | None, opt("Measure to compare. Default: nDCG@10 (Long-Doc datasets: Recall@10).")] = None,
    split: Split = "test",
    results: Annotated[Place, opt("Folder of results; saved results are reused.")] = Path("results"),
    out: Annotated[Place, opt("Folder for the report.")] = Path("gain"),
    language: Language = None,
) -> Outcome[GainReport]:
    """Compare a model before and after fine-tuning on two or more datasets, to find out where it gains and where it
    loses.

    Both models are evaluated on each dataset. The differences have paired confidence intervals.

    Example: airgen study gain datasets/finance datasets/law --before all-minilm-l6-v2 --after models/finance

    Returns:
        The scores, differences, intervals and p-values by dataset.

    Raises:
        UsageError: The two systems have no queries in common, or a system is unknown.
        DatasetError: A dataset cannot be read.
    """
    from airgen.evaluation import DEFAULT_MEASURES, EvaluationOptions, evaluate
    from airgen.evaluation.systems import before_and_after
    from airgen.publishing.suites import opened_datasets
    from airgen.settings.base import find_yaml
    from airgen.studies.gain import gains

    path = None if systems is None else find_yaml("pipelines", systems)
    pair, folder = before_and_after(before, after, path)
    measures = (*DEFAULT_MEASURES, *([measure] if measure else []))
    options = EvaluationOptions(split, measures, language=language, folder=folder)
    pairs = []
    for opened in opened_datasets(paths(datasets), split, say).values():
        done = evaluate(opened, pair, Path(results), options, progress=say)
        by_name = {result.name: result for result in done}
        pairs.append((opened, by_name[pair[-2].name], by_name[pair[-1].name]))
    report = gains(pairs, measure=measure)
    report.write(Path(out))
    files = f"{Path(out) / 'gain.md'}, gain.json; by system: {results}/DATASET/{split}/report.md"
    return Outcome(report, [report.text(), files])


@command
def study_diversity(
    datasets: Datasets,
    out: Annotated[Place, opt("Folder for the report and the labels.")] = Path("diversity"),
    label_with: Annotated[Place | None, opt("Pipeline whose LLM labels the types and styles of queries.")] = None,
    real: Annotated[Place | None, opt("Ten or more real queries to compare with: a file or a BEIR folder.")] = None,
    budget: Budget = None,
    language: Language = None,
) -> Outcome[dict[str, Any]]:
    """Measure the diversity of datasets: query types, styles, lengths, vocabulary, duplicates, overlap with positives.

    For several datasets, the weighted Jaccard similarity of their corpora is reported. LLM labels are saved in OUT and
    reused; run a stopped command again to continue. With --real, the queries are also compared with real ones by
    length, form, vocabulary and meaning.

    Example: airgen study diversity runs/quickstart/dataset scifact --real log.csv

    Returns:
        The profile of each dataset, the similarities and, with real queries, the `likeness`.

    Raises:
        DatasetError: A dataset cannot be read.
        BudgetSpent: The budget is spent; the same call with a higher budget continues.
    """
    from airgen.job.show import job_file
    from airgen.studies.diversity.likeness import likeness_table, likeness_to, write_likeness
    from airgen.studies.diversity.measure import profile_datasets
    from airgen.studies.diversity.report import summary_table, write_diversity

    given, folder = paths(datasets), Path(out)
    base = None if label_with is None else job_file(label_with)
    profiles, failed = profile_datasets(given, folder, language=language, pipeline=base, budget_usd=budget)
    warn = partial(echo, err=True)
    for reason, count in failed.items():
        warn(f"{count} queries have no label: {reason}")
    value = write_diversity(folder, profiles)
    lines, more = [summary_table(profiles).text()], ""
    if alike := likeness_to(given, Path(real), profiles[0].language, warn) if real else []:
        value["likeness"] = write_likeness(folder, alike)["datasets"]
        lines += ["", likeness_table(alike).text()]
        more = f", {folder / 'likeness.md'}"
    return Outcome(value, [*lines, f"report: {folder / 'diversity.md'}, with .json{more}"])


@command
def study_inspect(
    dataset: Dataset,
    results: Annotated[Place | None, opt("Folder of existing runs (`airgen evaluate --out`, or TREC files).")] = None,
    systems: Annotated[
        Place | None, opt("Systems YAML to run. Default: inexpensive systems (systems-inspect).")
    ] = None,
    against: Annotated[
        Sequence[Place], opt("Another collection, whose texts must not occur in the dataset."), dataset_of
    ] = (),
    out: Annotated[Place | None, opt("Folder for the page and the results. Default: inspect/NAME/SPLIT.")] = None,
    split: Split = "test",
    language: Language = None,
) -> Outcome[Inspection]:
    """Check a benchmark for problems with labels, queries and systems; give a verdict and advice for each.

    Any dataset in BEIR format can be checked, with or without airgen's manifest. Inexpensive systems are run unless
    --results gives existing runs. The exit code is 0 whatever the verdicts.

    Example: airgen study inspect datasets/scifact --against datasets/nfcorpus

    Returns:
        The findings, each with its value, verdict and advice.

    Raises:
        UsageError: Both results and systems are given, or no system can be run.
        DatasetError: The split has no labels, or the runs belong to another dataset.
    """
    from airgen.dataset.beir import BeirDataset
    from airgen.evaluation.experiment import results_folder
    from airgen.settings.base import find_yaml
    from airgen.studies.inspect.inspect_dataset import inspect_dataset, inspection_text, write_inspection

    if results is not None and systems is not None:
        raise UsageError("give either --results (existing runs) or --systems (to run), not both")
    folder = Path(out) if out else results_folder("inspect", BeirDataset.open(dataset).name, split)
    inspection = inspect_dataset(
        Path(dataset),
        systems=None if systems is None else find_yaml("pipelines", systems),
        out=folder,
        split=split,
        language=language,
        results=None if results is None else Path(results),
        against=paths(against),
        say=say,
    )
    files = write_inspection(inspection, folder)
    return Outcome(inspection, [inspection_text(inspection), f"details and advice: {files[0]}, with .json"])


@command
def study_judge(
    judge: Annotated[
        str | None,
        arg(
            "JUDGE",
            "A judge prompt (judge, judge_yes_no, rubric), `pipeline` for the pipeline's judge, "
            "`votes` for the votes of its re-rankers, or a re-ranker. Omit it with --simulate.",
        ),
    ] = None,
    collections: Annotated[Places, arg("COLLECTION", "One or more human-labelled datasets."), dataset_of] = (),
    pipeline: Annotated[Place | None, opt("Pipeline whose models are used. Default: quickstart.")] = None,
    pairs: Annotated[
        int | None, opt("Number of pairs per collection, half of them relevant. Default: 60.", min=2)
    ] = None,
    depth: Annotated[
        int | None, opt("Number of top hits of BM25 and the recall model to draw from. Default: 10.", min=1)
    ] = None,
    relevant_from: Annotated[
        Sequence[str],
        opt("Lowest label that counts as relevant in collection NAME. Default: 1.", metavar="NAME=LABEL"),
    ] = (),
    ignore: Annotated[
        Sequence[str], opt("Ignore pairs of collection NAME with this label.", metavar="NAME=LABEL")
    ] = (),
    words: Annotated[int | None, opt("Maximum number of words of a document that an LLM reads.", min=1)] = None,
    split: Split = "test",
    language: Language = None,
    seed: Seed = 0,
    out: Annotated[Place, opt("Folder for answers, vectors and reports.")] = Path("runs/judge"),
    budget: Budget = None,
    simulate: Annotated[
        bool, opt("Simulate judges by adding errors to human labels, and rank systems by each.")
    ] = False,
    systems: Annotated[
        Place | None, opt("With --simulate: systems YAML. Default: systems-agree.", metavar="YAML")
    ] = None,
    queries: Annotated[
        int | None, opt("With --simulate: number of queries per collection. Default: 30.", min=1)
    ] = None,
    draws: Annotated[
        int | None, opt("With --simulate: number of draws of sources and errors. Default: 20.", min=1, max=10_000)
    ] = None,
) -> Outcome[Calibration | JudgeSimulation]:
    """Compare a judge with human labels, on labelled pairs and on unjudged top hits.

    With --simulate, estimate the benefit of a better judge instead: systems are ranked by the labels of simulated
    judges with more and fewer errors, and these rankings are compared with the ranking by human labels.

    Example: airgen study judge votes datasets/scifact datasets/nfcorpus --pairs 200
    Example: airgen study judge --simulate datasets/scifact datasets/nfcorpus

    Returns:
        The judge's agreement with people on each collection: precision, recall, F1 and kappa with intervals. With
        `simulate`, the agreement of the rankings for each simulated judge.

    Raises:
        UsageError: The judge or a collection is unknown, or options contradict each other.
        DatasetError: A collection has too few pairs.
        BudgetSpent: The budget is spent; the same call with a higher budget continues.
    """
    from airgen.job.show import job_file
    from airgen.llms.prompts import PromptSet
    from airgen.settings import load_pipeline
    from airgen.steps.progress import STATUS, Display
    from airgen.studies.judge.calibrate import JudgeTrial, Selection, calibrate

    of_judges = {"--pairs": pairs, "--depth": depth, "--words": words, "--budget": budget}
    of_simulations = {"--systems": systems, "--queries": queries, "--draws": draws}
    if useless := [name for name, value in (of_judges if simulate else of_simulations).items() if value is not None]:
        raise UsageError(f"{useless[0]} has no effect {'with' if simulate else 'without'} --simulate: remove it")
    folders = paths(collections)
    if simulate and judge is not None:
        folders.insert(0, dataset_of(judge))  # the first word after the command is also a collection
    if not folders or not (simulate or judge):
        words_needed = "COLLECTION" if simulate else "JUDGE and COLLECTION"
        raise UsageError(f"{words_needed}: give at least one human-labelled dataset, such as scifact")
    least, left_out = _labels("--relevant-from", relevant_from), _labels("--ignore", ignore)
    known = {folder.resolve().name for folder in folders}
    if unknown := sorted((least.keys() | left_out.keys()) - known):
        raise UsageError(f"{unknown[0]}=...: no given collection has this name")
    drawn = Selection(split, pairs or 60, depth or 10, seed=seed, language=language or Selection.language)
    chosen = [
        (folder, replace(drawn, label_from=max(least.get(name, [1.0])), ignore=tuple(left_out.get(name, []))))
        for folder in folders
        for name in [folder.resolve().name]
    ]
    base, display = job_file(pipeline or "quickstart"), Display(Path(out) / STATUS)
    if judge is None or simulate:
        from airgen.evaluation.systems import load_systems
        from airgen.settings.base import find_yaml
        from airgen.studies.judge.simulate import SimulationPlan, simulate_judges

        listed = load_systems(find_yaml("pipelines", systems or "systems-agree"))
        plan = SimulationPlan(
            pipeline=load_pipeline(base),
            systems=listed,
            work=Path(out),
            queries=queries or 30,
            draws=draws or 20,
            seed=seed,
        )
        simulated = simulate_judges(chosen, plan, display)
        return Outcome(simulated, simulated.study().markdown())
    trial = JudgeTrial(
        pipeline=load_pipeline(base),
        prompts=PromptSet.beside(base.parent),
        work=Path(out),
        words=words,
        budget_usd=budget,
    )
    result = calibrate(judge, chosen, trial, display)
    return Outcome(result, result.study().markdown())


def _labels(option: str, given: Sequence[str]) -> dict[str, list[float]]:
    """Parse NAME=LABEL words into {name: labels}."""
    labels: dict[str, list[float]] = {}
    for word in given:
        name, _, label = word.rpartition("=")
        try:
            labels.setdefault(name, []).append(float(label))
        except ValueError:
            raise UsageError(f"{option} {word}: give NAME=LABEL with a number, such as scifact=1") from None
    return labels


@command
def study_compare(
    old: Annotated[Place, arg("OLD", "The older version of a suite or dataset.")],
    new: Annotated[Place, arg("NEW", "The newer version.")],
    systems: Annotated[
        Place | None, opt("Systems YAML with three or more systems to run on both versions.", metavar="YAML")
    ] = None,
    split: Split = "test",
    measure: Annotated[str, opt("Measure that ranks the systems. Default: the task's measure.")] = "",
    out: Annotated[Place, opt("Folder for runs, scores and comparison.json.", metavar="DIR")] = Path("compare"),
) -> Outcome[VersionComparison]:
    """Report what changed between two versions, and whether both rank the same systems in the same order.

    Example: airgen study compare suites/python/26.11 suites/python/26.12 --systems anchors.yaml

    Returns:
        The changes and, with systems, the correlation of the two rankings with a confidence interval.

    Raises:
        UsageError: There are fewer than three systems.
        DatasetError: A version is not finished, or the versions have no dataset in common.
    """
    from airgen.evaluation import load_systems
    from airgen.settings.base import find_yaml
    from airgen.studies.compare_versions import Anchors, compare_versions, versions_text

    anchors, folder = None, Path(out)
    if systems is not None:
        path = find_yaml("pipelines", systems)
        anchors = Anchors(load_systems(path), path.resolve().parent, folder, measure)
    comparison = compare_versions(Path(old), Path(new), anchors, split=split, say=say)
    write_json(folder / "comparison.json", comparison)
    return Outcome(comparison, [versions_text(comparison), f"{folder / 'comparison.json'}"])


@command
def study_contamination(
    home: DatasetOrSuite,
    against: Annotated[
        Sequence[Place],
        opt("A known collection, a suite, or a folder of collections; labels are not needed.", metavar="DIR"),
    ],
    language: Language = None,
) -> Outcome[Rows[Contamination]]:
    """List queries and passages that occur verbatim or almost verbatim in known collections.

    Example: airgen study contamination runs/python-reference/dataset --against collections/scifact

    Returns:
        The matches of each dataset.

    Raises:
        DatasetError: A dataset or a collection cannot be read.
    """
    from airgen.studies.contamination import contamination, contamination_text

    rows = contamination(Path(home), paths(against), language=language)
    return Outcome(Rows(rows), contamination_text(rows))


@command
def study_stats(
    homes: Annotated[
        Places,
        arg("DATASET", "Datasets in BEIR format, fetched collections or lists, finished jobs, or suites."),
        dataset_of,
    ],
    as_csv: Annotated[bool, opt("Print as CSV.", "--csv")] = False,
) -> Outcome[Rows[dict[str, Any]]]:
    """Print the size of datasets in one table (BEIR, Table 1; paper, Tables 4 and 16 to 21).

    For any dataset in BEIR format: queries, passages, relevant passages per query (D/Q) and words. For finished
    datasets and suites also: tokens, hard negatives and licences. For a list (`beir`), all fetched collections.

    Example: airgen study stats scifact nfcorpus   airgen study stats suites/python/26.11 --csv

    Returns:
        A row for each dataset.

    Raises:
        DatasetError: The dataset cannot be read.
    """
    from airgen.dataset.manifest import statistics_csv, statistics_markdown
    from airgen.studies.dataset_sizes import statistics_rows

    rows = statistics_rows(*paths(homes))
    return Outcome(Rows(rows), (statistics_csv if as_csv else statistics_markdown)(rows).rstrip("\n"))
