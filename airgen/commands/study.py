"""`airgen study`: is a benchmark, a judge or a model any good? Agreement, faults, diversity, gains, versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from airgen.commands.command import Outcome, command, echo, say
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
from airgen.errors import UsageError
from airgen.kept import write_json
from airgen.study import Rows
from airgen.text.display import distinct_names, terminal_table

if TYPE_CHECKING:
    from airgen.evaluation.systems import SystemSettings
    from airgen.pipeline.job import Job
    from airgen.studies.agree.report import AgreementReport
    from airgen.studies.compare import VersionComparison
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
    pipeline: Annotated[Place, opt("A pipeline; the collection takes the place of its `corpus`.")],
    systems: Annotated[Place, opt("A systems YAML; `weakened: true` marks systems made bad on purpose.")],
    sources: Annotated[
        Literal["positives", "any"],
        opt("Generate queries from documents with a positive human label (paper, section 4.1), or from any.", "--from"),
    ] = "positives",
    split: Split = "test",
    target: Target = None,
    measure: Annotated[str, opt("The measure that ranks the systems.")] = "nDCG@10",
    beside: Annotated[
        Sequence[Place],
        opt("Another human-labelled collection; how well its ranking agrees is the baseline."),
        dataset_of,
    ] = (),
    draws: Annotated[int, opt("How often some generated queries are drawn (Figure 3).", min=1, max=10_000)] = 30,
    drawn: Annotated[int | None, opt("How many at a time; by default the paper's share.", min=1)] = None,
    check: Annotated[bool, opt("Print the cost and what each system needs; make no LLM call.")] = False,
    budget: Budget = None,
    runs: Runs = None,
) -> Outcome[AgreementReport]:  # fmt: skip
    """Generate queries from a human-labelled collection, rank systems with both kinds of labels, compare the rankings.

    The command can be stopped at any time; run it again to go on. The report is
    RUNS/NAME-COLLECTION/agreement/agreement.md.

    Example: airgen study agree scifact --pipeline pipelines/agree.yaml --systems pipelines/systems-agree.yaml
    """
    from airgen.evaluation.systems import load_systems
    from airgen.pipeline.show import find_place
    from airgen.settings.base import find_yaml
    from airgen.steps.progress import STATUS, Display
    from airgen.studies.agree.study import AgreementStudy, agree_job

    home, path = Path(collection), find_yaml("pipelines", systems)
    found = load_systems(path)
    path, folder = find_place(pipeline, path_or_none(runs))
    job = agree_job(home, path, folder, sources=sources, split=split, target=target)
    if check:
        return _check(job, found)
    study = AgreementStudy(
        job, home, found, Display(job.directory / STATUS), split=split, sources=sources,
        measure=measure, beside=paths(beside), budget_usd=budget, draws=draws, drawn=drawn,
    )  # fmt: skip
    report = study.report()
    folder = job.directory / "agreement"
    report.write(folder)
    files = f"{folder / 'agreement.md'}, agreement.json, ranks.svg, resamplings.svg"
    return Outcome(report, [report.markdown(), files])


def _check(job: Job, systems: list[SystemSettings]) -> Outcome[Any]:
    """The estimate of the job, and what each system needs; exit code 1 where anything is missing."""
    from airgen.commands.check import check_job
    from airgen.evaluation.systems import system_needs

    looked, needed = check_job(job), system_needs(systems)
    rows = [["system", "kind", "models", "packages"]]
    rows += [[one.name, one.kind, ", ".join(one.models), ", ".join(one.packages)] for one in needed]
    missing = [f"  ! {line}" for one in needed for line in one.missing]
    lines = [*looked.text, "", terminal_table(rows, left=(0, 1, 2, 3)), *missing]
    shown = {**looked.value.as_dict(), "systems": needed}
    return Outcome(looked.value, lines, json=shown, code=1 if looked.code or missing else 0)


@command
def study_correlate(
    sources: Annotated[Places, arg("RESULTS", "Folders of `airgen evaluate`, of MTEB's results, or CSV tables.")],
    by: Annotated[
        Literal["folder", "task", "domain", "language", "dataset"],
        opt("What is compared: each source as a whole, or its tasks, domains, languages or datasets."),
    ] = "folder",
    names: Annotated[Place | None, opt("{name in a source: common name}, where they differ.", metavar="YAML")] = None,
    only: Annotated[Sequence[str], opt("Compare only this system.")] = (),
    dataset: Annotated[Sequence[str], opt("Use only this dataset or task.")] = (),
    measure: Annotated[str | None, opt("The measure of airgen's results; else the one that ranks.")] = None,
    split: Annotated[str | None, opt("The split of datasets that have several; else test, then dev.")] = None,
    least: Annotated[int, opt("Fewest common systems of two benchmarks.", min=3)] = 3,
    out: Annotated[Place, opt("Folder for the report and its chart.")] = Path("correlation"),
) -> Outcome[CorrelationStudy]:
    """Correlate the rankings of the same systems by several benchmarks: Spearman and Kendall, p-values, intervals.

    Systems are matched by name; `intfloat/e5-large-v2` is `e5-large-v2`. A benchmark is the mean over its datasets.

    Example: airgen study correlate results --by task
    Example: airgen study correlate results mteb-results --names names.yaml --dataset ArguAna --dataset SciFact
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
    found = correlate(benchmarks(rows, by=by, names=mapped, only=only, datasets=dataset), least=least)
    found.write(folder)
    return Outcome(found, [found.text(), f"{folder / 'correlation.md'}, correlation.json, correlation.svg"])


@command
def study_gain(
    datasets: Datasets,
    before: Annotated[str, opt("The model before: a folder, a Hub name; with --systems a system.")],
    after: Annotated[str, opt("The model, or the system, after.")],
    systems: Annotated[Place | None, opt("A systems YAML that has both systems.")] = None,
    measure: Annotated[str | None, opt("By default nDCG@10, and Recall@10 for Long-Doc datasets.")] = None,
    split: Split = "test",
    results: Annotated[Place, opt("Folder of results; what is there does not run again.")] = Path("results"),
    out: Annotated[Place, opt("Folder for the report.")] = Path("gain"),
    language: Language = None,
) -> Outcome[GainReport]:
    """Compare a model before and after fine-tuning, on two or more datasets: where does it gain, where does it lose?

    Both are evaluated on each dataset, and the differences have paired intervals.

    Example: airgen study gain datasets/finance datasets/law --before all-minilm-l6-v2 --after models/finance
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
    found = []
    for opened in opened_datasets(paths(datasets)).values():
        done = evaluate(opened, pair, Path(results), options, progress=say)
        by_name = {result.name: result for result in done}
        found.append((opened, by_name[pair[-2].name], by_name[pair[-1].name]))
    report = gains(found, measure=measure)
    report.write(Path(out))
    files = f"{Path(out) / 'gain.md'}, gain.json; by system: {results}/DATASET/{split}/report.md"
    return Outcome(report, [report.text(), files])


@command
def study_diversity(
    datasets: Datasets,
    out: Annotated[Place, opt("Folder for the report and the labels.")] = Path("diversity"),
    label_with: Annotated[Place | None, opt("A pipeline whose LLM labels query types and styles.")] = None,
    real: Annotated[Place | None, opt("Real queries to compare with, ten or more: a file, a BEIR folder.")] = None,
    budget: Budget = None,
    language: Language = None,
) -> Outcome[dict[str, Any]]:
    """Measure query types and styles, lengths, word overlap with positives, vocabulary and duplicates of datasets.

    Between datasets it measures the weighted Jaccard similarity of their corpora. Labels are kept in OUT, so that none
    is paid for twice; run a stopped command again to go on. With --real it also says how much the queries look like
    real ones: lengths, forms, words, meanings.

    Example: airgen study diversity runs/quickstart/dataset scifact --real log.csv
    """
    from airgen.pipeline.show import job_file
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
    results: Annotated[Place | None, opt("Runs that are there: of `airgen evaluate --out`, or TREC files.")] = None,
    systems: Annotated[Place | None, opt("A systems YAML to run. Default: cheap systems, systems-inspect.")] = None,
    against: Annotated[Sequence[Place], opt("Another collection whose texts must not be here."), dataset_of] = (),
    out: Annotated[Place | None, opt("Folder of the page and the results. Default: inspect/NAME/SPLIT.")] = None,
    split: Split = "test",
    language: Language = None,
) -> Outcome[Inspection]:
    """Look for what makes a benchmark useless: labels, queries and systems, with a verdict and what to do.

    It takes any dataset in BEIR format, with or without airgen's manifest. Cheap systems run on the spot unless
    --results names runs. The exit code is 0 for every verdict.

    Example: airgen study inspect datasets/scifact --against datasets/nfcorpus
    """
    from airgen.dataset.beir import BeirDataset
    from airgen.evaluation.experiment import results_folder
    from airgen.settings.base import find_yaml
    from airgen.studies.inspect.inspect_dataset import inspect_dataset, inspection_text, write_inspection

    if results is not None and systems is not None:
        raise UsageError("--results takes runs that are there, --systems makes them: give one of the two")
    folder = Path(out) if out else results_folder("inspect", BeirDataset.open(dataset).name, split)
    found = inspect_dataset(
        Path(dataset), systems=None if systems is None else find_yaml("pipelines", systems), out=folder, split=split,
        language=language, results=None if results is None else Path(results), against=paths(against), say=say,
    )  # fmt: skip
    files = write_inspection(found, folder)
    return Outcome(found, [inspection_text(found), f"what to do: {files[0]}, with .json"])


@command
def study_judge(
    judge: Annotated[
        str | None,
        arg("JUDGE", "One of: a judge prompt (judge, judge_yes_no, rubric); `pipeline` for the pipeline's own judge; "
            "`votes` for the votes of its re-rankers; a re-ranker. None with --simulate."),
    ] = None,
    collections: Annotated[Places, arg("COLLECTION", "Human-labelled datasets."), dataset_of] = (),
    pipeline: Annotated[Place | None, opt("Use this pipeline's models (default: quickstart's).")] = None,
    pairs: Annotated[
        int | None, opt("Pairs drawn from each collection; half are relevant (default: 60).", min=2)
    ] = None,
    depth: Annotated[
        int | None, opt("Draw pairs from the top hits of BM25 and the recall model (default: 10).", min=1)
    ] = None,
    relevant_from: Annotated[
        Sequence[str],
        opt("Lowest label that counts as relevant in collection NAME (default: 1).", metavar="NAME=LABEL"),
    ] = (),
    ignore: Annotated[
        Sequence[str], opt("Leave out the pairs of collection NAME with this label.", metavar="NAME=LABEL")
    ] = (),
    words: Annotated[int | None, opt("Maximum number of words of a document for an LLM.", min=1)] = None,
    split: Split = "test",
    language: Language = None,
    seed: Seed = 0,
    out: Annotated[Place, opt("Folder for answers, vectors and reports.")] = Path("runs/judge"),
    budget: Budget = None,
    simulate: Annotated[
        bool, opt("Ask no judge: people's labels, with errors, play judges, and systems are ranked by each.")
    ] = False,
    systems: Annotated[
        Place | None, opt("With --simulate: the systems YAML (default: systems-agree).", metavar="YAML")
    ] = None,
    queries: Annotated[
        int | None, opt("With --simulate: queries drawn from each collection (default: 30).", min=1)
    ] = None,
    draws: Annotated[
        int | None, opt("With --simulate: draws of sources and errors (default: 20).", min=1, max=10_000)
    ] = None,
) -> Outcome[Calibration | JudgeSimulation]:  # fmt: skip
    """Compare a judge with human labels, on pairs that people judged relevant or not relevant and on unjudged top hits.

    With --simulate: what would a better judge buy? How systems rank by labels of judges with more and fewer errors,
    beside their ranking by people's labels.

    Example: airgen study judge votes datasets/scifact datasets/nfcorpus --pairs 200
    Example: airgen study judge --simulate datasets/scifact datasets/nfcorpus
    """
    from airgen.pipeline.show import job_file
    from airgen.prompts import PromptSet
    from airgen.settings import load_pipeline
    from airgen.steps.progress import STATUS, Display
    from airgen.studies.judge.calibrate import JudgeTrial, Selection, calibrate

    of_judges = {"--pairs": pairs, "--depth": depth, "--words": words, "--budget": budget}
    of_simulations = {"--systems": systems, "--queries": queries, "--draws": draws}
    if useless := [name for name, value in (of_judges if simulate else of_simulations).items() if value is not None]:
        raise UsageError(f"{useless[0]} says nothing {'with' if simulate else 'without'} --simulate: leave it out")
    folders = paths(collections)
    if simulate and judge is not None:
        folders.insert(0, dataset_of(judge))  # the first word behind the command is a collection, too
    if not folders or not (simulate or judge):
        words_needed = "COLLECTION" if simulate else "JUDGE and COLLECTION"
        raise UsageError(f"{words_needed}: name at least one human-labelled dataset, such as scifact")
    least, left_out = _labels("--relevant-from", relevant_from), _labels("--ignore", ignore)
    known = {folder.resolve().name for folder in folders}
    if unknown := sorted((least.keys() | left_out.keys()) - known):
        raise UsageError(f"{unknown[0]}=...: no collection given has that directory's name")
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
        plan = SimulationPlan(load_pipeline(base), listed, Path(out), queries or 30, draws or 20, seed)
        simulated = simulate_judges(chosen, plan, display)
        return Outcome(simulated, simulated.study().markdown())
    trial = JudgeTrial(load_pipeline(base), PromptSet.beside(base.parent), Path(out), words, budget)
    result = calibrate(judge, chosen, trial, display)
    return Outcome(result, result.study().markdown())


def _labels(option: str, given: Sequence[str]) -> dict[str, list[float]]:
    """NAME=LABEL words as {name: labels}."""
    found: dict[str, list[float]] = {}
    for word in given:
        name, _, label = word.rpartition("=")
        try:
            found.setdefault(name, []).append(float(label))
        except ValueError:
            raise UsageError(f"{option} {word}: give NAME=LABEL with a number, such as scifact=1") from None
    return found


@command
def study_compare(
    old: Annotated[Place, arg("OLD", "A finished version of a suite, or a dataset.")],
    new: Annotated[Place, arg("NEW", "The version or dataset to compare with it.")],
    systems: Annotated[Place | None, opt("Three or more systems that run on both versions.", metavar="YAML")] = None,
    split: Split = "test",
    measure: Annotated[str, opt("Measure that ranks the systems. Default: the task's.")] = "",
    out: Annotated[Place, opt("Folder for runs, scores and comparison.json.", metavar="DIR")] = Path("compare"),
) -> Outcome[VersionComparison]:
    """Tell whether anchor systems rank in a new version as in the old one, and what was carried over.

    Example: airgen study compare suites/python/26.11 suites/python/26.12 --systems anchors.yaml
    """
    from airgen.evaluation import load_systems
    from airgen.settings.base import find_yaml
    from airgen.studies.compare import Anchors, compare_versions, versions_text

    anchors, folder = None, Path(out)
    if systems is not None:
        path = find_yaml("pipelines", systems)
        anchors = Anchors(load_systems(path), path.resolve().parent, folder, measure)
    found = compare_versions(Path(old), Path(new), anchors, split=split, say=say)
    write_json(folder / "comparison.json", found)
    return Outcome(found, [versions_text(found), f"{folder / 'comparison.json'}"])


@command
def study_contamination(
    home: DatasetOrSuite,
    against: Annotated[
        Sequence[Place],
        opt("A known collection, a suite or a folder of collections; no labels needed.", metavar="DIR"),
    ],
    language: Language = None,
) -> Outcome[Rows[Contamination]]:
    """List the queries and passages that stand in known collections, word for word or nearly.

    Example: airgen study contamination runs/python-reference/dataset --against collections/scifact
    """
    from airgen.studies.contamination import contamination, contamination_text

    found = contamination(Path(home), paths(against), language=language)
    return Outcome(Rows(found), contamination_text(found))


@command
def study_stats(
    home: Annotated[
        Place,
        arg("DATASET", "A dataset in BEIR format, a fetched one, a list of them, a finished job, or a suite."),
        dataset_of,
    ],
    as_csv: Annotated[bool, opt("Print CSV.", "--csv")] = False,
) -> Outcome[Rows[dict[str, Any]]]:
    """Print the size of a dataset (BEIR's Table 1; the paper's Tables 16 to 21).

    Any folder in BEIR's layout has queries, passages, relevant passages a query (D/Q) and words; a finished dataset or
    suite also tokens, hard negatives and licences. A list of collections (`beir`) has its fetched sets.

    Example: airgen study stats scifact   airgen study stats suites/python/26.11 --csv
    """
    from airgen.dataset.manifest import statistics_csv, statistics_markdown
    from airgen.studies.statistics import statistics_rows

    rows = statistics_rows(Path(home))
    return Outcome(Rows(rows), (statistics_csv if as_csv else statistics_markdown)(rows).rstrip("\n"))
