"""`airgen suite`: many datasets under one name, in versions that never change."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airgen.commands.options import RUNS, Budget, Json, Language, Runs, Split, echo, new_app

app = new_app("suite")

DatasetOrSuite = Annotated[
    Path, typer.Argument(metavar="DIR", help="A finished dataset, or a finished version of a suite.")
]


@app.command()
def build(
    suite: Annotated[Path, typer.Argument(metavar="SUITE.yaml", help="Name, version and pipelines of the suite.")],
    budget: Budget = None,
    runs: Runs = RUNS,
    root: Annotated[Path, typer.Option(help="Folder that holds the suites.")] = Path("suites"),
    as_json: Json = False,
) -> None:
    """Run a suite's pipelines and collect their datasets as a version. Run a stopped command again to go on.

    Example: airgen suite build suites/python.yaml --budget 20
    """
    import json

    from airgen.pipeline.engines import money
    from airgen.pipeline.job import Job
    from airgen.pipeline.summary import run_pipeline
    from airgen.publishing.suites import FinishedPipeline
    from airgen.publishing.suites import build as build_version
    from airgen.settings.base import find_yaml
    from airgen.settings.suite import load_suite
    from airgen.text.tokens import count_tokens

    def run(path: Path, budget_usd: float | None) -> FinishedPipeline:
        run_pipeline(path, runs=runs, budget_usd=budget_usd, evaluate=False)
        job = Job(path, runs)
        with job.open_store(read_only=True) as store:
            return FinishedPipeline(job.dataset, money(store).spent)

    def say(line: str) -> None:
        echo(line, err=True)

    built = build_version(
        load_suite(find_yaml("pipelines", suite)), root, run, budget_usd=budget, count_tokens=count_tokens, say=say
    )
    if as_json:
        value = {"directory": str(built.directory), "spent_usd": built.spent_usd, "datasets": sorted(built.datasets)}
        echo(json.dumps(value, indent=1))
    else:
        echo((built.directory / "statistics.md").read_text(encoding="utf-8"))
        echo(f"{built.directory}, ${built.spent_usd:.2f}")


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="Directory of a finished version.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="Directory of the version to compare with it.")],
    as_json: Json = False,
) -> None:
    """List what changed between two versions: datasets that were added, trimmed or extended.

    It also lists queries that changed their split, which none should.

    Example: airgen suite diff suites/python/26.11 suites/python/26.12
    """
    import json
    from dataclasses import asdict

    from airgen.publishing.suites import diff as compare
    from airgen.publishing.suites import diff_text

    changes = compare(old, new)
    echo(json.dumps([asdict(change) for change in changes], indent=1) if as_json else diff_text(changes))


Against = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="DIR", help="A known collection, a suite or a folder of collections; no labels needed (repeatable)."
    ),
]


@app.command()
def compare(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A finished version of a suite, or a dataset.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The version or dataset to compare with it.")],
    systems: Annotated[
        Path | None, typer.Option(metavar="YAML", help="Anchor systems, three or more, that run on both versions.")
    ] = None,
    split: Split = "test",
    measure: Annotated[str, typer.Option(help="Measure that ranks the systems. Default: the task's.")] = "",
    against: Against = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for runs, scores and comparison.json.")] = Path(
        "compare"
    ),
    as_json: Json = False,
) -> None:
    """Tell whether anchor systems rank in a new version as in the old one, and what was carried over.

    With --against also: which texts of the new version stand in known collections, word for word or nearly.

    Example: airgen suite compare suites/python/26.11 suites/python/26.12 --systems anchors.yaml
    """
    import json
    from dataclasses import asdict

    from airgen.dataset.files import write_text
    from airgen.evaluation import load_systems
    from airgen.evaluation.result import without_nan
    from airgen.quality.contamination import contamination as overlaps
    from airgen.quality.versions import Anchors, compare_versions, contamination_text, versions_text

    def say(line: str) -> None:
        if not as_json:
            echo(line, err=True)

    anchors = Anchors(load_systems(systems), systems.resolve().parent, out, measure) if systems else None
    found = compare_versions(old, new, anchors, split=split, say=say)
    known = overlaps(new, against) if against else []
    value = without_nan({**asdict(found), "contamination": [asdict(one) for one in known]})
    text = json.dumps(value, ensure_ascii=False, indent=1)
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "comparison.json", text + "\n")
    if as_json:
        echo(text)
        return
    echo(versions_text(found))
    if known:
        echo("\n" + contamination_text(known))
    echo(f"{out / 'comparison.json'}")


@app.command()
def contamination(
    home: DatasetOrSuite,
    against: Annotated[
        list[Path],
        typer.Option(metavar="DIR", help="A known collection, a suite or a folder of collections (repeatable)."),
    ],
    language: Language = None,
    as_json: Json = False,
) -> None:
    """List the queries and passages that stand in known collections, word for word or nearly.

    Example: airgen suite contamination runs/python-reference/dataset --against collections/scifact
    """
    import json
    from dataclasses import asdict

    from airgen.quality.contamination import contamination as overlaps
    from airgen.quality.versions import contamination_text

    found = overlaps(home, against, language=language)
    as_text = json.dumps([asdict(one) for one in found], ensure_ascii=False, indent=1) if as_json else ""
    echo(as_text or contamination_text(found))


@app.command()
def stats(
    home: DatasetOrSuite,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: Json = False,
) -> None:
    """Print passages, tokens, queries, positives, hard negatives and licences (paper, Tables 16 to 21).

    Example: airgen suite stats suites/python/26.11 --csv
    """
    import json

    from airgen.dataset.manifest import load_manifest, statistics_csv, statistics_markdown, table_rows
    from airgen.publishing.suites import datasets_of, is_dataset

    rows = table_rows([load_manifest(home)] if is_dataset(home) else datasets_of(home).values())
    text = statistics_csv(rows) if as_csv else json.dumps(rows, indent=1) if as_json else statistics_markdown(rows)
    echo(text.rstrip("\n"))


@app.command()
def layout(
    home: DatasetOrSuite,
    kind: Annotated[str, typer.Argument(metavar="LAYOUT", help="trec or air-bench.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Directory to write.")],
    as_json: Json = False,
) -> None:
    """Convert datasets for other tools: TREC files (ir_datasets, trec_eval), or AIR-Bench's folders (air-benchmark).

    Example: airgen suite layout suites/python/26.11 air-bench --out export
    """
    import json

    from airgen.dataset.layouts import export_layout, export_layouts
    from airgen.publishing.suites import datasets_of, is_dataset

    if is_dataset(home):
        files = export_layout(home, kind, out)
    else:
        files = export_layouts({key: home / key for key in datasets_of(home)}, kind, out)
    names = [path.relative_to(out).as_posix() for path in files]
    echo(json.dumps({"directory": str(out), "files": names}, indent=1) if as_json else "\n".join(names))
