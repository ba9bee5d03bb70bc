"""`airgen evaluate`: run systems or chunkers on datasets in BEIR format, and score and compare existing run files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from airgen.commands.command import command
from airgen.commands.options import (
    Compute,
    Dataset,
    Datasets,
    IgnoreIdenticalIds,
    Language,
    Place,
    Places,
    Quiet,
    RunGiven,
    Seed,
    Split,
    Systems,
    arg,
    number,
    opt,
    paths,
)
from airgen.commands.outcome import UNSURE, WORSE, Outcome
from airgen.commands.printing import count, say
from airgen.display.study import Column, P, Plain, Rows, Shown, Study, Table, columns
from airgen.errors import AirgenError, UsageError
from airgen.safety.escaping import md
from airgen.storage.whole_files import write_text

if TYPE_CHECKING:
    from airgen.dataset.beir import BeirDataset
    from airgen.evaluation.collections import CollectionList
    from airgen.evaluation.experiment import EvaluationOptions, Searched
    from airgen.evaluation.result import Result
    from airgen.evaluation.significance import AgainstBaseline, Comparison
    from airgen.evaluation.systems import SystemSettings
    from airgen.python.results import Results
    from airgen.studies.tune import TunedHybrid


FailBelow = Annotated[float | None, number("Exit with code 4 if a system's first measure is below this value.", min=0)]


@command
def evaluate(
    datasets: Datasets,
    systems: Annotated[Systems, opt("A systems YAML, or the name of a built-in one (systems-quickstart).")],
    out: Annotated[Place, opt("Folder for runs, scores and tables.")] = Path("results"),
    split: Split = "test",
    metrics: Annotated[str, opt('Measures, such as "nDCG@10 R_cap@100", or `air-bench` for AIR-Bench\'s.')] = "",
    top: Annotated[int, opt("Number of hits per query.", min=1)] = 1000,
    only: Annotated[Sequence[str], opt("Run only this system and the systems it depends on.")] = (),
    language: Language = None,
    ignore_identical_ids: IgnoreIdenticalIds = False,
    without_negatives: Annotated[
        bool, opt("Remove the generated hard negatives from every run (for services that do not index them).")
    ] = False,
    fresh: Annotated[bool, opt("Rerun systems that have saved results.")] = False,
    fail_below: FailBelow = None,
    lengths: Annotated[bool, opt("Compare the lengths of the retrieved passages (BEIR, appendix H).")] = False,
    chunkers: Annotated[Place | None, opt("Compare the chunkers in this YAML (built-in: chunkers).")] = None,
    gold: Annotated[
        Literal["auto", "answers", "passages"],
        opt("With --chunkers: source of the gold spans: `answers` (their quotes), `passages` or `auto`."),
    ] = "auto",
    share: Annotated[
        float, number("With --chunkers: minimum share of a span that a relevant chunk covers.", min=0, max=1)
    ] = 0.5,
    compute: Compute = None,
    verbose: Annotated[
        bool, opt("Show how each model is run: prompts, maximum length, dimensions, dtype, similarity, revision.")
    ] = False,
    by: Annotated[str, opt("Break scores down by a query attribute, such as type or metadata.product.")] = "",
    check: Annotated[bool, opt("Report what each system needs, without running any.")] = False,
    quiet: Quiet = False,
) -> Outcome[Results]:
    """Run retrieval systems on datasets and compare them. Saved results are reused.

    With --lengths, the length distributions of each system's top ten passages are compared. With --chunkers, each
    chunker splits the documents, and hits are scored by the characters they cover. If the labels of the split are
    withheld, the runs are saved for `airgen publish submit` instead of being scored.

    A list of collections (`beir`) means all of its collections that have been fetched, each with its own split.

    Example: airgen evaluate beir --systems systems-offline
    Example: airgen evaluate datasets/scifact --systems pipelines/systems-quickstart.yaml --out results

    Examples:
        results = airgen.evaluate(bench, {"bm25": "bm25", "new": SentenceTransformer("intfloat/e5-base-v2")})
        results = airgen.evaluate("runs/handbook", {"site": my_search, "old": airgen.Dense(old_embed)}, metrics="RR@10")

    Returns:
        The results of each system on each dataset. With chunkers, the comparison for each dataset; with `check`, what
        each system needs.

    Raises:
        UsageError: A measure, a system or the split is unknown.
        DatasetError: A dataset cannot be read.
        AirgenError: Every system failed. In Python, if only some did, `failed` of the results gives the reasons.
    """
    from airgen.compute import computing
    from airgen.evaluation import AIR_BENCH, DEFAULT_MEASURES, EvaluationOptions, write_overview
    from airgen.evaluation import evaluate as run_systems
    from airgen.evaluation.collections import find_list
    from airgen.evaluation.experiment import makes_first, results_folder, run_without_labels
    from airgen.evaluation.result_tables import compare_results, model_lines, overview, ranking_study
    from airgen.evaluation.systems import chosen_systems, named_once, needs_study, system_needs
    from airgen.python.convert_systems import systems_of
    from airgen.python.results import Results
    from airgen.settings.base import find_yaml
    from airgen.settings.compute import compute_settings
    from airgen.studies.lengths import write_lengths

    out, given = Path(out), paths(datasets)
    wanted = [str(measure) for measure in AIR_BENCH] if metrics == "air-bench" else (metrics or DEFAULT_MEASURES)
    named, folder = systems_of(systems)
    chosen = chosen_systems(named, only)
    if check:
        needed: Any = system_needs(chosen)
        return Outcome(needed, needs_study(needed).text(), code=1 if any(system.missing for system in needed) else 0)
    options = EvaluationOptions(
        split=split,
        measures=wanted,
        top=top,
        ignore_identical_ids=ignore_identical_ids,
        language=language,
        folder=folder,
        fresh=fresh,
        without_negatives=without_negatives,
    )
    if chunkers is not None:
        return _compare_chunkers(
            given, find_yaml("pipelines", chunkers), systems=chosen, out=out, options=options, gold=gold, share=share
        )
    results, waiting = Results(), list["Searched"]()
    lines: list[str] = []
    lost: dict[tuple[Path, str], list[str]] = {}  # {(dataset, error): systems}: a damaged file fails all of them

    def failed(dataset: Path, name: str, error: AirgenError) -> None:
        lost.setdefault((dataset, str(error)), []).append(name)
        say(f"{dataset}: {name}: failed")  # the reason is printed once, at the end

    known = [(path, find_list(path)) for path in given]
    lists = [listed for _, listed in known if listed is not None]
    targets = _targets([path for path, listed in known if listed is None], lists, options)
    for opened, own in targets.values():
        for line in makes_first(opened, chosen, out, own):
            say(line)
    with computing(compute_settings(compute or "local")):
        for dataset, (opened, options) in targets.items():
            split, lacks = options.split, partial(failed, dataset)
            if split in opened.withheld:
                if (advice := opened.where_labels_are(split)) is not None:
                    say(f"{opened.name}: {advice}")
                searched = run_without_labels(opened, chosen, out, options, started=say, failed=lacks)
                waiting += searched
                lines += _waiting(dataset, searched) if searched else []
                continue
            dataset_results = run_systems(
                opened,
                chosen,
                out,
                options,
                progress=say,
                started=say,
                failed=lacks,
                encoding=partial(_encoding, opened.name),
            )
            results += dataset_results
            if dataset_results:
                lines += [f"{opened.name} ({split})"] if len(targets) > 1 else []
                lines.append(ranking_study(dataset_results, compare_results(dataset_results)).text())
                lines += model_lines(dataset_results) if verbose else []
            if dataset_results and lengths:
                place = results_folder(out, opened.name, split)
                say(f"\n{write_lengths(opened, dataset_results, place)}\n{place / 'lengths.md'}, with lengths.svg")
    results.out, results.places, results.sliced = out, tuple(targets), by
    if results:
        write_overview(out, results)
        for name in results.datasets if by else ():
            study = results.on(name).by(by)
            title = f"{name}: {study.title}" if len(results.datasets) > 1 else study.title
            lines += ["", title, *(part.text() for part in study.parts if isinstance(part, Table))]
        lines += [overview(results).text()] if len(results) > len(chosen) else []
        lines += [line for listed in lists for line in _means(listed, results, out)]
        folders = dict.fromkeys(results_folder(out, result.dataset, result.split) for result in results)
        reports = [str(folder / "report.md") for folder in folders]
        more = f" and {len(reports) - 3} more" if len(reports) > 3 else ""
        lines.append(f"tables: {out / 'results.md'}, {out / 'results.csv'}; by dataset: {', '.join(reports[:3])}{more}")
    scores = {f"{result.dataset}: {result.name}": result.score for result in results}
    low = _too_low(scores, results[0].headline if results else "", fail_below)
    errors = [f"{dataset}: {named_once(names, words)}" for (dataset, words), names in lost.items()]
    error = AirgenError("\n".join(errors)) if lost else None
    if lost and results:
        results.failed = errors
    return Outcome(results, [*lines, *low], json=[*results, *waiting], error=error, code=WORSE if low else 0)


def _encoding(dataset: str, system: str, done: int, total: int) -> None:
    count(f"{dataset}: {system}: encoding passages", done, total)


def _too_low(scores: Mapping[str, float], measure: str, least: float | None) -> list[str]:
    """Return a line for each score below the minimum."""
    return [
        f"{name}: {measure} {value:.4f} is below the minimum of {least:g}"
        for name, value in scores.items()
        if least is not None and value < least
    ]


def _means(listed: CollectionList, results: Sequence[Result], out: Path) -> list[str]:
    """Write and return the table of a list of collections."""
    from airgen.evaluation.collections import means_table, missing_sets

    table, lost = means_table(listed, results), missing_sets(listed, results)
    text = f"{table}\n{lost}\n" if lost else table
    write_text(out / f"{listed.name}.md", f"# {md(listed.title or listed.name)}\n\n{text}")
    return [f"{listed.name}, {results[0].headline}:\n{text}\n{out / listed.name}.md"]


def _compare_chunkers(
    datasets: list[Path],
    chunkers: Path,
    systems: list[SystemSettings],
    out: Path,
    options: EvaluationOptions,
    gold: Literal["auto", "answers", "passages"],
    share: float,
) -> Outcome[Any]:
    """Compare chunkers on each dataset."""
    from airgen.evaluation.experiment import results_folder
    from airgen.publishing.suites import opened_datasets
    from airgen.studies.chunkers.chunkers import load_chunkers
    from airgen.studies.chunkers.compare_chunkers import chunkers_study, compare_chunkers

    wanted = load_chunkers(chunkers)
    comparisons = Rows(
        compare_chunkers(opened, wanted, systems=systems, out=out, options=options, gold=gold, share=share, say=say)
        for opened in opened_datasets(datasets, options.split, say).values()
    )
    lines = []
    for comparison in comparisons:
        place = results_folder(out, comparison.dataset, comparison.split) / "chunkers" / "chunkers.md"
        lines += [chunkers_study(comparison).markdown(), f"{place}, with .json"]
    return Outcome(comparisons, lines)


def _targets(
    folders: list[Path], lists: list[CollectionList], options: EvaluationOptions
) -> dict[Path, tuple[BeirDataset, EvaluationOptions]]:
    """Return datasets and their options by folder; each collection of a list has its own split and id rule."""
    from airgen.publishing.suites import opened_datasets

    opened_by_folder = opened_datasets(folders, options.split, say)
    targets = {folder: (opened, options) for folder, opened in opened_by_folder.items()}
    for listed in lists:
        there = listed.opened()
        names = {collection.name for collection, _ in there.values()}
        if left_out := [collection.name for collection in listed.collections if collection.name not in names]:
            say(f"{listed.name}: {', '.join(left_out)} left out: not fetched (airgen show collections {listed.name})")
        for collection, opened in there.values():
            own = collection.split if options.split == "test" else options.split
            rule = options.ignore_identical_ids or collection.ignore_identical_ids
            targets[opened.path] = (opened, replace(options, split=own, ignore_identical_ids=rule))
    every = [opened.name for opened, _ in targets.values()]
    if twice := sorted({name for name in every if every.count(name) > 1}):
        raise UsageError(f"two datasets have the name {twice[0]!r}: evaluate them separately, each with its own --out")
    return targets


def _waiting(dataset: Path, searched: Sequence[Searched]) -> list[str]:
    """Describe what ran without labels, and how to submit it."""
    first = searched[0]
    lines = [
        f"{run.dataset}: {run.name}: {run.queries:,} queries ({'kept' if run.cached else 'ran'}): {run.run}"
        for run in searched
    ]
    return [
        *lines,
        f"The labels of {first.split} are withheld from {dataset}, so there are no scores. To submit a run:",
        f"  airgen publish submit --dataset {dataset} --run {first.run} --split {first.split} --out {first.name}.zip",
    ]


@dataclass(frozen=True)
class ComparedRuns(Shown):
    """The comparison of runs.

    Attributes:
        measures: By measure, the comparison of every pair of runs. Empty with a baseline.
        missing: By run, the number of queries without results.
        runs: With a baseline, each run with its difference from the baseline and the confidence interval.
    """

    measures: Mapping[str, Comparison]
    missing: Mapping[str, int]
    runs: Sequence[AgainstBaseline] = ()


@command
def evaluate_compare(
    runs: Annotated[
        Places | Mapping[str, Any], arg("A.run B.run", "Two or more TREC run files (with --baseline, one or more).")
    ],
    qrels: Annotated[RunGiven, opt("Relevance labels as TSV, TREC or JSONL.")],
    metrics: Annotated[str, opt("Measures, separated by spaces.")] = "nDCG@10",
    baseline: Annotated[Place | None, opt("Compare every run with this run only.", metavar="RUN")] = None,
    fail_if_worse: Annotated[bool, opt("With --baseline: exit with code 4 if a run is significantly worse.")] = False,
    fail_if_unsure: Annotated[bool, opt("With --baseline: exit with code 5 if a run may be worse.")] = False,
    fail_below: FailBelow = None,
    margin: Annotated[float, number("With --baseline: acceptable loss.", min=0)] = 0.0,
) -> Outcome[ComparedRuns]:
    """Compare runs with paired tests, and estimate how many queries are needed to detect each difference.

    With --baseline, each run is compared with that run only. It is `worse` if a randomisation test and the whole
    confidence interval say that it is worse by more than the margin. If fewer than six queries differ, the answer is
    always `cannot tell`.

    Example: airgen evaluate compare bm25.run dense.run --qrels scifact/qrels/test.tsv --metrics "nDCG@10 Recall@100"
    Example: airgen evaluate compare new.run --baseline main.run --qrels qrels.tsv --fail-if-worse --margin 0.01

    Returns:
        The pairwise comparisons with p-values and confidence intervals, or the comparisons with the baseline.

    Raises:
        UsageError: There are fewer than two runs, or an option needs --baseline.
        DatasetError: A file cannot be read, a run lacks more than a tenth of the queries with labels, or it has no
            passage with a label.
    """
    import numpy as np

    from airgen.evaluation import parse_measures, read_run, score
    from airgen.evaluation.measures import check_common, labelled_passages
    from airgen.evaluation.result_tables import pair_text, places_text, rank_text
    from airgen.evaluation.significance import ALPHA, against_baseline, compare
    from airgen.python.convert_systems import labels_given, run_given

    if baseline is None and (fail_if_worse or fail_if_unsure or margin):
        raise UsageError("--fail-if-worse, --fail-if-unsure and --margin need --baseline RUN")
    if isinstance(runs, Mapping):
        given = {str(name): run_given(run, str(name)) for name, run in runs.items()}
        if baseline is not None and str(baseline) in given:
            given[str(baseline)] = given.pop(str(baseline))  # the others are compared with the last
        elif baseline is not None:
            given[str(baseline)] = run_given(baseline, str(baseline))
        names = list(given)
    else:
        files = [*paths(runs), *([Path(baseline)] if baseline is not None else [])]
        names = [str(path) for path in files]
        given = {}
    if len(names) < 2:
        raise UsageError("give at least two run files to compare")
    if len(set(names)) < len(names):
        raise UsageError("a run file is given twice")
    labels, wanted = labels_given(qrels), parse_measures(metrics)
    read = [given[name] if given else read_run(name) for name in names]
    passages = labelled_passages(labels)
    for name, run in zip(names, read, strict=True):
        check_common(name, run, labels, passages=passages)
    scored = [score(run, labels, wanted) for run in read]
    judged = zip(names[: -1 if baseline is not None else None], scored, strict=False)
    low = _too_low({name: scores.means()[str(wanted[0])] for name, scores in judged}, str(wanted[0]), fail_below)
    missing = dict(zip(names, (scores.missing for scores in scored), strict=True))
    if baseline is not None:
        level = 1 - ALPHA / (len(wanted) * (len(names) - 1))  # all intervals hold simultaneously
        gates = [
            against_baseline(name, scores.of(m), scored[-1].of(m), measure=str(m), margin=margin, level=level)
            for name, scores in zip(names[:-1], scored[:-1], strict=True)
            for m in wanted
        ]
        table = Table(
            gates,
            [
                Column("run", lambda gate: gate.run),
                Column("measure", lambda gate: gate.measure),
                Column("difference", lambda gate: gate.difference, "+.4f"),
                Column(f"{100 * level:.4g} %", lambda gate: (gate.low, gate.high), "+.4f"),
                Column("p", lambda gate: gate.p, P),
                Column("queries", lambda gate: gate.queries, ","),
                Column("differ", lambda gate: gate.differing, ","),
                Column("missing", lambda gate: missing[gate.run], ","),
                Column("", lambda gate: gate.verdict, left=True),
            ],
        )
        bad = {"worse"} if fail_if_worse or fail_if_unsure else set()
        bad |= {"cannot tell"} if fail_if_unsure else set()
        shown = {"baseline": baseline, "queries": len(labels), "runs": gates}
        verdicts = bad & {gate.verdict for gate in gates}
        code = WORSE if "worse" in verdicts or low else UNSURE if verdicts else 0
        return Outcome(ComparedRuns({}, missing, gates), Study("", [table, *map(Plain, low)]), json=shown, code=code)
    comparisons = {
        str(measure): compare(names, np.stack([scores.of(measure) for scores in scored])) for measure in wanted
    }
    means = [
        (name, *(f"{mean:.4f}" for mean in scores.means().values()), scores.missing)
        for name, scores in zip(names, scored, strict=True)
    ]
    parts: list[str | Table] = [Table(means, columns("run", *comparisons, "missing"))]
    for measure, comparison in comparisons.items():
        parts += [Plain(pair_text(pair, measure)) for pair in comparison.pairs]
        ranks, beside = rank_text(comparison), places_text(comparison)
        rows = [(at, name, ranks[name], beside[name]) for at, name in enumerate(comparison.names, 1)]
        titles = columns("#", "run", "rank", "not significantly different from #", left=(1,))
        parts += [f"## By {measure}", Table(rows, titles)]
    value = {"measures": comparisons, "missing": missing}
    return Outcome(
        ComparedRuns(comparisons, missing),
        Study("", [*parts, *map(Plain, low)]),
        json=value,
        code=WORSE if low else 0,
    )


@command
def evaluate_measures(
    run: Annotated[RunGiven, arg("RUN", "A TREC run file, optionally gzipped.")],
    qrels: Annotated[RunGiven, arg("QRELS", "Relevance labels as TSV, TREC or JSONL.")],
    metrics: Annotated[
        str, opt("Measures, separated by spaces, or `air-bench` for AIR-Bench's.")
    ] = "nDCG@10 Recall@100 R_cap@100 AP RR@10 Hole@10",
    by_query: Annotated[bool, opt("Also print the scores of each query.")] = False,
    ignore_identical_ids: IgnoreIdenticalIds = False,
    fail_below: FailBelow = None,
) -> Outcome[dict[str, Any]]:
    """Score a run against relevance labels, with the same results as trec_eval. Queries without results score zero.

    Example: airgen evaluate measures bm25.run scifact/qrels/test.tsv --metrics "nDCG@10 R_cap@100"

    Returns:
        The `means` and 95% confidence `intervals` by measure, the `counts` of queries and, on request, the scores of
        each query as `queries`.

    Raises:
        UsageError: A measure is unknown.
        DatasetError: A file cannot be read, or the run and the labels have no query or passage in common.
    """
    from airgen.evaluation import AIR_BENCH, parse_measures, score
    from airgen.evaluation.intervals import bootstrap_interval
    from airgen.evaluation.measures import check_common, labelled_passages
    from airgen.python.convert_systems import labels_given, run_given

    wanted = AIR_BENCH if metrics == "air-bench" else parse_measures(metrics)
    scored_run, labels = run_given(run, "run"), labels_given(qrels)
    run = run if isinstance(run, str | Path) else "the run"
    check_common(str(run), scored_run, labels, least=0, passages=labelled_passages(labels))
    scores = score(scored_run, labels, wanted, ignore_identical_ids=ignore_identical_ids)
    names, means = [str(measure) for measure in wanted], scores.means()
    intervals = dict(zip(names, bootstrap_interval(scores.values).tolist(), strict=True))
    counts = {
        "queries": len(scores.query_ids),
        "missing": scores.missing,
        "not judged": scores.unjudged,
        "without relevant": scores.without_relevant,
        **{name.replace("_", " "): count for name, count in scored_run.notes.items()},
    }
    value: dict[str, Any] = {"means": means, "intervals": intervals, "counts": counts}
    rows = [(name, mean, tuple(intervals[name])) for name, mean in means.items()]
    parts: list[str | Table] = [Table(rows, columns("measure", "mean", "95 %", form=".4f"))]
    if by_query:
        by_key = zip(scores.query_ids, scores.values.T.tolist(), strict=True)
        value["queries"] = {key: dict(zip(names, numbers, strict=True)) for key, numbers in by_key}
        listed = [(key, *row.values()) for key, row in value["queries"].items()]
        parts += ["## By query", Table(listed, columns("query", *names, form=".4f"))]
    shown = [f"{count} {name}" for name, count in counts.items() if count or name in ("queries", "missing")]
    low = _too_low({str(run): means[names[0]]}, names[0], fail_below)
    parts += [Plain(", ".join(shown)), *map(Plain, low)]
    return Outcome(value, Study("", parts), code=WORSE if low else 0)


@command
def evaluate_tune(
    dataset: Dataset,
    systems: Annotated[Sequence[str], arg("A B", "Two to four systems in the results, or TREC run files.")],
    results: Annotated[Place, opt("Folder written by `airgen evaluate --split dev`.")] = Path("results"),
    split: Annotated[str, opt("Split to tune on; must not be test.")] = "dev",
    metric: Annotated[str, opt("Measure to optimise, with a cutoff of at most 10.")] = "nDCG@10",
    seed: Seed = 0,
) -> Outcome[TunedHybrid]:
    """Tune the weights of a hybrid on dev labels, and estimate the gain on held-out queries by cross-validation.

    No retriever is run: the saved runs of the systems are fused. The last line of the output is the tuned hybrid, ready
    to paste into a systems YAML.

    Example: airgen evaluate tune datasets/handbook bm25 dense --results results

    Returns:
        The chosen method and weights, and the cross-validated gain over each system.

    Raises:
        UsageError: The split is test, or there are too few queries or the wrong number of systems.
        DatasetError: The dataset or a run cannot be read.
    """
    from airgen.audit.differing_systems import find_runs
    from airgen.dataset.beir import BeirDataset
    from airgen.evaluation import parse_measures, read_run
    from airgen.evaluation.experiment import results_folder
    from airgen.studies.tune import tune

    if split == "test":
        raise UsageError("tuning on test labels would inflate every test score: tune on dev labels")
    (measure,) = parse_measures(metric)[:1]
    if measure.cutoff is None or measure.cutoff > 10:
        raise UsageError(f"{measure}: a measure with a cutoff of at most 10 is needed, such as nDCG@10")
    opened = BeirDataset.open(dataset)
    files = find_runs(results_folder(Path(results), opened.name, split), systems)
    runs = {name: read_run(path) for name, path in files.items()}
    tuned = tune(runs, opened.qrels(split).labels, measure=str(measure), seed=seed)
    system = tuned.chosen.as_system("hybrid", tuned.systems)
    last = "  - " + json.dumps(system, ensure_ascii=False)
    return Outcome(tuned, Study("", [*tuned.study(split).parts, Plain(last)]), json={**asdict(tuned), "system": system})
