"""`airgen export`: rewrite a job's dataset, or convert its labels or files for other tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from airgen.commands.command import command
from airgen.commands.options import Dataset, DatasetOrSuite, JobName, Place, Runs, Split, arg, opt, path_or_none
from airgen.commands.outcome import Outcome
from airgen.commands.printing import echo
from airgen.components.registry import closest
from airgen.errors import UsageError

if TYPE_CHECKING:
    from airgen.dataset.layouts import Converted
    from airgen.dataset.manifest import Manifest


@command
def export(
    pipeline: JobName,
    out: Annotated[
        Place | None, opt("Directory to write. Default: the job's dataset; with --without, DATASET-without-STAGE.")
    ] = None,
    without: Annotated[
        Sequence[str],
        opt("Omit a stage: `control`, `correction`, `negatives` or `rewrite` (paper, Table 5)."),
    ] = (),
    runs: Runs = None,
) -> Outcome[Manifest]:
    """Write a job's dataset again from its work database, optionally without some stages. Makes no LLM calls.

    Example: airgen export pipelines/quickstart.yaml --without control --out ablation

    Returns:
        The manifest of the dataset.

    Raises:
        UsageError: A stage is unknown, or quality control has not run yet.
        DatasetError: No query or no relevant passage would be left.
    """
    from airgen.job.export import ABLATIONS, export_dataset
    from airgen.job.show import read_job

    for name in without:
        if name not in ABLATIONS:
            raise UsageError(f"--without {name}{closest(name, list(ABLATIONS))}")
    job = read_job(pipeline, path_or_none(runs))
    beside = job.dataset.with_name("-".join([job.dataset.name, *(["without", *without] if without else [])]))
    directory = beside if out is None else Path(out)  # the job's own dataset has all stages
    with job.open_store() as store:
        manifest = export_dataset(job, store, accepted=job.accepted(store), out=directory, without=without)
    queries = {split: statistics.queries for split, statistics in manifest.statistics.splits.items()}
    counts = {"passages": manifest.statistics.passages, "queries": queries}
    by_split = ", ".join(f"{split} {count:,}" for split, count in queries.items())
    line = f"{directory}: {manifest.statistics.passages:,} passages, queries: {by_split}"
    return Outcome(manifest, line, json={"directory": directory, **counts})


@command
def export_labels(
    dataset: Dataset,
    to: Annotated[str, opt("Format: quepid, opensearch, elasticsearch, ranx, trec (pytrec_eval) or ir_datasets.")],
    out: Annotated[
        Place | None, opt("File to write (ir_datasets: a folder). Default: the format's usual name.")
    ] = None,
    split: Split = "test",
    variant: Annotated[str, opt("Use other labels of an airgen dataset: graded (0 to 3), positives or soft.")] = "",
    index: Annotated[str, opt("With elasticsearch: index to search.")] = "my-index",
    fields: Annotated[str, opt("With elasticsearch: fields to search.")] = "title text",
) -> Outcome[Converted]:
    """Convert queries and labels for other tools. `airgen label` can read Quepid, OpenSearch and TREC files.

    Example: airgen export labels runs/quickstart/dataset --to opensearch --variant graded

    Returns:
        The file that was written, and the numbers of queries and labels in it.

    Raises:
        UsageError: The format is unknown.
        DatasetError: The dataset lacks these labels, or the format cannot represent them.
    """
    from airgen.dataset.beir import BeirDataset
    from airgen.dataset.layouts import FORMATS, convert

    target = Path(FORMATS[to][0] if to in FORMATS else to) if out is None else Path(out)
    names = fields.replace(",", " ").split()
    converted = convert(BeirDataset.open(dataset), split, to, target, variant=variant, index=index, fields=names)
    if converted.without_text:
        echo(f"{converted.without_text:,} of these queries have no text in the dataset", err=True)
    return Outcome(converted, f"{converted.out}: {converted.labels:,} labels of {converted.queries:,} queries")


@command
def export_layout(
    home: DatasetOrSuite,
    layout: Annotated[str, arg("LAYOUT", "Layout: trec or air-bench.")],
    out: Annotated[Place, opt("Directory to write.", metavar="DIR")],
) -> Outcome[list[Path]]:
    """Convert datasets to TREC files (ir_datasets, trec_eval) or to AIR-Bench's folders (air-benchmark).

    Example: airgen export layout suites/python/26.11 air-bench --out export

    Returns:
        The paths of the files.

    Raises:
        UsageError: The layout is unknown.
        DatasetError: The dataset is not finished, or the layout cannot represent an id or a label.
    """
    from airgen.dataset.layouts import export_layouts
    from airgen.publishing.suites import datasets_of, is_dataset

    home, out = Path(home), Path(out)
    files = export_layouts({key: home / key for key in ([""] if is_dataset(home) else datasets_of(home))}, layout, out)
    names = [path.relative_to(out).as_posix() for path in files]
    return Outcome(list(files), names, json={"directory": out, "files": names})
