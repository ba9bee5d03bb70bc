"""`airgen evaluate`: run systems on datasets in BEIR format and compare them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from airgen.commands.options import (
    Compute,
    Datasets,
    IgnoreIdenticalIds,
    Json,
    Language,
    Split,
    echo,
    finite,
    new_app,
    shipped,
)

if TYPE_CHECKING:
    from airgen.dataset.beir import BeirDataset
    from airgen.evaluation.collections import CollectionList
    from airgen.evaluation.experiment import EvaluationOptions, Searched
    from airgen.evaluation.result import Result
    from airgen.evaluation.systems import SystemSettings


app = new_app()


@app.command()
def evaluate(
    datasets: Datasets,
    systems: Annotated[
        Path, typer.Option(help="A systems YAML, or one that airgen ships: systems-quickstart.", callback=shipped)
    ],
    out: Annotated[Path, typer.Option(help="Folder for runs, scores and tables.")] = Path("results"),
    split: Split = "test",
    metrics: Annotated[str, typer.Option(help='Measures, such as "nDCG@10 R_cap@100", or `air-bench` for all.')] = "",
    top: Annotated[int, typer.Option(min=1, help="Number of hits that each system returns for a query.")] = 1000,
    only: Annotated[list[str] | None, typer.Option(help="Run only this system and those it uses (repeatable).")] = None,
    language: Language = None,
    ignore_identical_ids: IgnoreIdenticalIds = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run systems again whose results are kept.")] = False,
    lengths: Annotated[
        bool, typer.Option("--lengths", help="Compare the lengths of what each system finds (BEIR, appendix H).")
    ] = False,
    chunkers: Annotated[
        Path | None,
        typer.Option(help="A YAML of chunkers, or `chunkers`: compare them on one set of labels.", callback=shipped),
    ] = None,
    gold: Annotated[
        str, typer.Option(help="With --chunkers: gold spans from `answers` (quotes), `passages`, or `auto`.")
    ] = "auto",
    share: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="With --chunkers: share of a span that a relevant chunk covers.", callback=finite
        ),
    ] = 0.5,
    unsure: Annotated[
        Literal["not relevant", "left out", "judged only", "drawn"],
        typer.Option(help="What pairs count that the dataset's judge was not sure of (control.judge.unsure)."),
    ] = "not relevant",
    compute: Compute = None,
    as_json: Json = False,
) -> None:
    """Run systems on datasets and compare them. Results are kept: a system that ran before does not run again.

    With --lengths, the lengths of the best ten passages of each system are compared as distributions.
    With --chunkers, the documents are cut by each chunker, and hits are scored by the characters that they cover.
    Where the labels of the split are withheld, scores wait for them: runs are kept for `airgen submit`.

    A list of collections (`beir`) stands for those of its sets that are fetched, each with its own split.

    Example: airgen evaluate beir --systems systems-offline
    Example: airgen evaluate datasets/scifact --systems pipelines/systems-quickstart.yaml --out results
    """
    import json
    from dataclasses import asdict
    from functools import partial

    from airgen.compute import computing
    from airgen.dataset.files import write_text
    from airgen.errors import AirgenError
    from airgen.evaluation import AIR_BENCH, DEFAULT_MEASURES, EvaluationOptions, load_systems, write_overview
    from airgen.evaluation import evaluate as run
    from airgen.evaluation.collections import find_list, means_table
    from airgen.evaluation.experiment import results_folder, run_without_labels
    from airgen.evaluation.lengths import write_lengths
    from airgen.evaluation.systems import chosen_systems
    from airgen.evaluation.tables import compare_results, overview_table, ranking_text
    from airgen.settings.compute import compute_settings
    from airgen.text.display import md

    wanted = [str(measure) for measure in AIR_BENCH] if metrics == "air-bench" else (metrics or DEFAULT_MEASURES)

    def say(line: str) -> None:
        if not as_json:
            echo(line, err=True)

    chosen = chosen_systems(load_systems(systems), only)
    options = EvaluationOptions(
        split, wanted, top, ignore_identical_ids, language, folder=systems.resolve().parent, fresh=fresh, unsure=unsure
    )
    if chunkers is not None:
        _compare_chunkers(datasets, chunkers, chosen, out, options, gold, share, as_json)
        return
    results: list[Result] = []
    waiting: list[Searched] = []
    lost: list[str] = []

    def failed(dataset: Path, name: str, error: AirgenError) -> None:
        lost.append(f"{dataset}: system {name}: {error}")
        say(f"{dataset}: {name}: failed: {error}")

    known = [(one, find_list(one)) for one in datasets]
    lists = [listed for _, listed in known if listed is not None]
    targets = _targets([one for one, listed in known if listed is None], lists, options, say)
    with computing(compute_settings(compute or "local")):
        for dataset, (opened, options) in targets.items():
            split = options.split
            if split in opened.withheld:
                if (advice := opened.where_labels_are(split)) is not None:
                    say(f"{opened.name}: {advice}")
                lacks = partial(failed, dataset)
                searched = run_without_labels(opened, chosen, out, options, started=say, failed=lacks)
                waiting += searched
                if searched and not as_json:
                    _print_waiting(dataset, searched)
                continue
            found = run(opened, chosen, out, options, progress=say, started=say, failed=partial(failed, dataset))
            results += found
            if found and not as_json:
                if len(targets) > 1:
                    echo(f"{opened.name} ({split})")
                echo(ranking_text(found, compare_results(found)))
            if found and lengths:
                place = results_folder(out, opened.name, split)
                table = write_lengths(opened, found, place)
                say(f"\n{table}\n{place / 'lengths.md'}, with lengths.svg")
    if results:
        write_overview(out, results)
    if as_json:
        rows = [*map(asdict, results), *map(asdict, waiting)]
        echo(json.dumps(rows, ensure_ascii=False, indent=1, default=str))
    elif results:
        if len(results) > len(chosen):
            echo(overview_table(results))
        for listed in lists:
            table = means_table(listed, results)
            write_text(out / f"{listed.name}.md", f"# {md(listed.title or listed.name)}\n\n{table}")
            echo(f"{listed.name}, {results[0].headline}:\n{table}\n{out / listed.name}.md")
        echo(f"tables: {out / 'results.md'}, {out / 'results.csv'}; by dataset: {out}/DATASET/{split}/report.md")
    if lost:
        raise AirgenError("\n".join(lost))


def _compare_chunkers(
    datasets: list[Path],
    chunkers: Path,
    systems: list[SystemSettings],
    out: Path,
    options: EvaluationOptions,
    gold: str,
    share: float,
    as_json: bool,
) -> None:
    """Compare chunkers on each dataset."""
    import json
    from dataclasses import asdict

    from airgen.errors import UsageError
    from airgen.evaluation.chunkers import load_chunkers
    from airgen.evaluation.compare_chunkers import chunkers_markdown, compare_chunkers
    from airgen.evaluation.experiment import results_folder

    if gold not in ("auto", "answers", "passages"):
        raise UsageError(f"--gold is {gold!r}, but must be auto, answers or passages")
    wanted = load_chunkers(chunkers)
    found = [
        compare_chunkers(
            opened, wanted, systems, out, options, gold=cast(Literal["auto", "answers", "passages"], gold), share=share,
            say=lambda line: None if as_json else echo(line, err=True),
        )
        for opened in opened_datasets(datasets).values()
    ]  # fmt: skip
    if as_json:
        echo(json.dumps([asdict(one) for one in found], ensure_ascii=False, indent=1))
        return
    for one in found:
        echo(chunkers_markdown(one))
        echo(f"{results_folder(out, one.dataset, one.split) / 'chunkers' / 'chunkers.md'}, with .json")


def opened_datasets(given: list[Path]) -> dict[Path, BeirDataset]:
    """{folder: dataset}, with the datasets of suites. Results are kept by a dataset's name, so each needs its own."""
    from dataclasses import replace

    from airgen.dataset.beir import BeirDataset
    from airgen.errors import UsageError
    from airgen.publishing.suites import dataset_folders

    opened = {folder: BeirDataset.open(folder) for home in given for folder in dataset_folders(home).values()}
    for home in given:  # datasets of one name in a suite are told apart by their keys
        folders = dataset_folders(home)
        names = [opened[folder].name for folder in folders.values()]
        for key, folder in folders.items():
            if names.count(opened[folder].name) > 1:
                opened[folder] = replace(opened[folder], called=key.replace("/", "_"))
    names_so_far: dict[str, Path] = {}
    for folder, dataset in opened.items():
        if (other := names_so_far.setdefault(dataset.name, folder)) != folder:
            raise UsageError(f"{other} and {folder} are both named {dataset.name!r}: evaluate them with two --out")
    return opened


def _targets(
    folders: list[Path], lists: list[CollectionList], options: EvaluationOptions, say: Callable[[str], None]
) -> dict[Path, tuple[BeirDataset, EvaluationOptions]]:
    """Datasets by folder, each with its options: in a list of collections, each has a split and a rule of its own."""
    from dataclasses import replace

    from airgen.errors import UsageError

    found = {folder: (opened, options) for folder, opened in opened_datasets(folders).items()}
    for listed in lists:
        there = listed.opened()
        names = {one.name for one, _ in there.values()}
        if left_out := [one.name for one in listed.collections if one.name not in names]:
            say(f"{listed.name}: without {', '.join(left_out)}: not fetched (airgen collections list {listed.name})")
        for one, opened in there.values():
            own = one.split if options.split == "test" else options.split
            rule = options.ignore_identical_ids or one.ignore_identical_ids
            found[opened.path] = (opened, replace(options, split=own, ignore_identical_ids=rule))
    every = [opened.name for opened, _ in found.values()]
    if twice := sorted({name for name in every if every.count(name) > 1}):
        raise UsageError(f"two datasets are named {twice[0]!r}: evaluate them with two --out")
    return found


def _print_waiting(dataset: Path, searched: list) -> None:  # type: ignore[type-arg]
    """What ran without labels, and how to go on."""
    for one in searched:
        echo(f"{one.dataset}: {one.name}: {one.queries:,} queries ({'kept' if one.cached else 'ran'}): {one.run}")
    first = searched[0]
    echo(f"The labels of {first.split} are not in {dataset}: scores wait for them. To send in a run:")
    echo(
        f"  airgen submit --dataset {dataset} --run {first.run} --split {first.split} --model {first.name} "
        f"--out {first.name}.zip"
    )
