"""`airgen study compare`, `contamination` and `stats`: versions of a suite or of a dataset, and what stands in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from airgen.commands.command import Outcome, Rows, command, say
from airgen.commands.options import DatasetOrSuite, Language, Place, Split, arg, opt, paths

if TYPE_CHECKING:
    from airgen.quality.contamination import Contamination
    from airgen.quality.versions import VersionComparison

_KNOWN = "A known collection, a suite or a folder of collections; no labels needed."


@command
def study_compare(
    old: Annotated[Place, arg("OLD", "A finished version of a suite, or a dataset.")],
    new: Annotated[Place, arg("NEW", "The version or dataset to compare with it.")],
    systems: Annotated[Place | None, opt("Three or more systems that run on both versions.", metavar="YAML")] = None,
    split: Split = "test",
    measure: Annotated[str, opt("Measure that ranks the systems. Default: the task's.")] = "",
    against: Annotated[Sequence[Place], opt(_KNOWN, metavar="DIR")] = (),
    out: Annotated[Place, opt("Folder for runs, scores and comparison.json.", metavar="DIR")] = Path("compare"),
) -> Outcome[VersionComparison]:
    """Tell whether anchor systems rank in a new version as in the old one, and what was carried over.

    With --against also: which texts of the new version stand in known collections, word for word or nearly.

    Example: airgen study compare suites/python/26.11 suites/python/26.12 --systems anchors.yaml
    """
    from airgen.evaluation import load_systems
    from airgen.kept import write_json
    from airgen.quality.contamination import contamination, contamination_text
    from airgen.quality.versions import Anchors, compare_versions, versions_text
    from airgen.settings.base import find_yaml

    anchors, folder = None, Path(out)
    if systems is not None:
        path = find_yaml("pipelines", systems)
        anchors = Anchors(load_systems(path), path.resolve().parent, folder, measure)
    found = compare_versions(Path(old), Path(new), anchors, split=split, say=say)
    known = contamination(Path(new), paths(against)) if against else []
    shown = {**asdict(found), "contamination": known}
    write_json(folder / "comparison.json", shown)
    more = ["", contamination_text(known)] if known else []
    return Outcome(found, [versions_text(found), *more, f"{folder / 'comparison.json'}"], json=shown)


@command
def study_contamination(
    home: DatasetOrSuite,
    against: Annotated[Sequence[Place], opt(_KNOWN, metavar="DIR")],
    language: Language = None,
) -> Outcome[Rows[Contamination]]:
    """List the queries and passages that stand in known collections, word for word or nearly.

    Example: airgen study contamination runs/python-reference/dataset --against collections/scifact
    """
    from airgen.quality.contamination import contamination, contamination_text

    found = contamination(Path(home), paths(against), language=language)
    return Outcome(Rows(found), contamination_text(found))


@command
def study_stats(
    home: DatasetOrSuite,
    as_csv: Annotated[bool, opt("Print CSV.", "--csv")] = False,
) -> Outcome[Rows[dict[str, Any]]]:
    """Print passages, tokens, queries, positives, hard negatives and licences (paper, Tables 16 to 21).

    Example: airgen study stats suites/python/26.11 --csv
    """
    from airgen.dataset.manifest import load_manifest, statistics_csv, statistics_markdown, table_rows
    from airgen.publishing.suites import datasets_of, is_dataset

    home = Path(home)
    rows = table_rows([load_manifest(home)] if is_dataset(home) else datasets_of(home).values())
    return Outcome(Rows(rows), (statistics_csv if as_csv else statistics_markdown)(rows).rstrip("\n"))
