"""`airgen evaluate`: systems on datasets in BEIR format, or several chunkers on one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from airgen.commands.command import Outcome, Rows, command, say
from airgen.commands.options import (
    Compute,
    Datasets,
    IgnoreIdenticalIds,
    Language,
    Place,
    Quiet,
    Split,
    number,
    opt,
    paths,
)

if TYPE_CHECKING:
    from airgen.dataset.beir import BeirDataset
    from airgen.errors import AirgenError
    from airgen.evaluation.collections import CollectionList
    from airgen.evaluation.experiment import EvaluationOptions, Searched
    from airgen.evaluation.result import Result
    from airgen.evaluation.systems import SystemSettings


@command
def evaluate(
    datasets: Datasets,
    systems: Annotated[Place, opt("A systems YAML, or one that airgen ships: systems-quickstart.")],
    out: Annotated[Place, opt("Folder for runs, scores and tables.")] = Path("results"),
    split: Split = "test",
    metrics: Annotated[str, opt('Measures, such as "nDCG@10 R_cap@100", or `air-bench` for all.')] = "",
    top: Annotated[int, opt("Number of hits that each system returns for a query.", min=1)] = 1000,
    only: Annotated[Sequence[str], opt("Run only this system and those it uses.")] = (),
    language: Language = None,
    ignore_identical_ids: IgnoreIdenticalIds = False,
    without_negatives: Annotated[
        bool, opt("Leave the generated hard negatives out of every run: for services that do not have them.")
    ] = False,
    fresh: Annotated[bool, opt("Run systems again whose results are kept.")] = False,
    lengths: Annotated[bool, opt("Compare the lengths of what each system finds (BEIR, appendix H).")] = False,
    chunkers: Annotated[Place | None, opt("A YAML of chunkers, or `chunkers`: compare them on the labels.")] = None,
    gold: Annotated[
        Literal["auto", "answers", "passages"],
        opt("With --chunkers: gold spans from `answers` (quotes), `passages`, or `auto`."),
    ] = "auto",
    share: Annotated[float, number("With --chunkers: share of a span that a chunk covers.", min=0, max=1)] = 0.5,
    compute: Compute = None,
    quiet: Quiet = False,
) -> Outcome[Rows[Result]]:
    """Run systems on datasets and compare them. Results are kept: a system that ran before does not run again.

    With --lengths, the lengths of the best ten passages of each system are compared as distributions.
    With --chunkers, the documents are cut by each chunker, and hits are scored by the characters that they cover.
    Where the labels of the split are withheld, scores wait for them: runs are kept for `airgen publish submit`.

    A list of collections (`beir`) stands for those of its sets that are fetched, each with its own split.

    Example: airgen evaluate beir --systems systems-offline
    Example: airgen evaluate datasets/scifact --systems pipelines/systems-quickstart.yaml --out results
    """
    from functools import partial

    from airgen.compute import computing
    from airgen.errors import AirgenError
    from airgen.evaluation import AIR_BENCH, DEFAULT_MEASURES, EvaluationOptions, load_systems, write_overview
    from airgen.evaluation import evaluate as run_systems
    from airgen.evaluation.collections import find_list
    from airgen.evaluation.experiment import results_folder, run_without_labels
    from airgen.evaluation.lengths import write_lengths
    from airgen.evaluation.systems import chosen_systems
    from airgen.evaluation.tables import compare_results, overview_table, ranking_text
    from airgen.settings.base import find_yaml
    from airgen.settings.compute import compute_settings

    out, given, path = Path(out), paths(datasets), find_yaml("pipelines", systems)
    wanted = [str(measure) for measure in AIR_BENCH] if metrics == "air-bench" else (metrics or DEFAULT_MEASURES)
    chosen = chosen_systems(load_systems(path), only)
    options = EvaluationOptions(
        split, wanted, top, ignore_identical_ids, language, path.resolve().parent,
        fresh=fresh, without_negatives=without_negatives,
    )  # fmt: skip
    if chunkers is not None:
        return _compare_chunkers(given, find_yaml("pipelines", chunkers), chosen, out, options, gold, share)
    results, waiting = Rows["Result"](), list["Searched"]()
    lines: list[str] = []
    lost: list[str] = []

    def failed(dataset: Path, name: str, error: AirgenError) -> None:
        lost.append(f"{dataset}: system {name}: {error}")
        say(f"{dataset}: {name}: failed: {error}")

    known = [(one, find_list(one)) for one in given]
    lists = [listed for _, listed in known if listed is not None]
    targets = _targets([one for one, listed in known if listed is None], lists, options)
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
            found = run_systems(opened, chosen, out, options, progress=say, started=say, failed=lacks)
            results += found
            if found:
                lines += [f"{opened.name} ({split})"] if len(targets) > 1 else []
                lines.append(ranking_text(found, compare_results(found)))
            if found and lengths:
                place = results_folder(out, opened.name, split)
                say(f"\n{write_lengths(opened, found, place)}\n{place / 'lengths.md'}, with lengths.svg")
    if results:
        write_overview(out, results)
        lines += [overview_table(results)] if len(results) > len(chosen) else []
        lines += [line for listed in lists for line in _means(listed, results, out)]
        lines.append(
            f"tables: {out / 'results.md'}, {out / 'results.csv'}; by dataset: {out}/DATASET/{split}/report.md"
        )
    return Outcome(results, lines, json=[*results, *waiting], error=AirgenError("\n".join(lost)) if lost else None)


def _means(listed: CollectionList, results: Sequence[Result], out: Path) -> list[str]:
    """The benchmark's own table, which is also written."""
    from airgen.dataset.files import write_text
    from airgen.evaluation.collections import means_table
    from airgen.text.display import md

    table = means_table(listed, results)
    write_text(out / f"{listed.name}.md", f"# {md(listed.title or listed.name)}\n\n{table}")
    return [f"{listed.name}, {results[0].headline}:\n{table}\n{out / listed.name}.md"]


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
    from airgen.evaluation.chunkers import load_chunkers
    from airgen.evaluation.compare_chunkers import chunkers_study, compare_chunkers
    from airgen.evaluation.experiment import results_folder
    from airgen.publishing.suites import opened_datasets

    wanted = load_chunkers(chunkers)
    found = Rows(
        compare_chunkers(opened, wanted, systems, out, options, gold=gold, share=share, say=say)
        for opened in opened_datasets(datasets).values()
    )
    lines = []
    for one in found:
        place = results_folder(out, one.dataset, one.split) / "chunkers" / "chunkers.md"
        lines += [chunkers_study(one).markdown(), f"{place}, with .json"]
    return Outcome(found, lines)


def _targets(
    folders: list[Path], lists: list[CollectionList], options: EvaluationOptions
) -> dict[Path, tuple[BeirDataset, EvaluationOptions]]:
    """Datasets by folder, each with its options: in a list of collections, each has a split and a rule of its own."""
    from dataclasses import replace

    from airgen.errors import UsageError
    from airgen.publishing.suites import opened_datasets

    found = {folder: (opened, options) for folder, opened in opened_datasets(folders).items()}
    for listed in lists:
        there = listed.opened()
        names = {one.name for one, _ in there.values()}
        if left_out := [one.name for one in listed.collections if one.name not in names]:
            say(f"{listed.name}: without {', '.join(left_out)}: not fetched (airgen show collections {listed.name})")
        for one, opened in there.values():
            own = one.split if options.split == "test" else options.split
            rule = options.ignore_identical_ids or one.ignore_identical_ids
            found[opened.path] = (opened, replace(options, split=own, ignore_identical_ids=rule))
    every = [opened.name for opened, _ in found.values()]
    if twice := sorted({name for name in every if every.count(name) > 1}):
        raise UsageError(f"two datasets are named {twice[0]!r}: evaluate them with two --out")
    return found


def _waiting(dataset: Path, searched: Sequence[Searched]) -> list[str]:
    """What ran without labels, and how to go on."""
    first = searched[0]
    lines = [
        f"{one.dataset}: {one.name}: {one.queries:,} queries ({'kept' if one.cached else 'ran'}): {one.run}"
        for one in searched
    ]
    return [
        *lines,
        f"The labels of {first.split} are not in {dataset}: scores wait for them. To send in a run:",
        f"  airgen publish submit --dataset {dataset} --run {first.run} --split {first.split} --model {first.name} "
        f"--out {first.name}.zip",
    ]
