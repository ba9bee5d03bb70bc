"""Write a report: the summary, the queries, and the parts from other modules.

The value of a part is written to `data/KEY/NAME.js`, which a single page reads.
"""

import shlex
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from airgen import __version__
from airgen.audit.sample import ANSWERS, QUESTION, AuditSample, four_levels, keys_of, load_sample, meaning_of
from airgen.errors import AirgenError, DatasetError, StoreError
from airgen.evaluation.experiment import results_folder
from airgen.job.job import Job
from airgen.job.run_result import RunResult
from airgen.report.compared_systems import Board, boards, systems_chunks
from airgen.report.find_sources import find_sources
from airgen.report.overview import overview, together
from airgen.report.overview_tables import datasets_table
from airgen.report.queries import write_queries
from airgen.report.report_files import Pack, report_file, report_folder
from airgen.report.source import ReportSource

_MOST_DOCUMENT_CHARACTERS = 100_000  # characters of a document


def audit_folder(source: ReportSource) -> Path:
    """Return the folder in which `airgen audit` keeps the sample and the answers for a job or dataset."""
    return source.job.directory / "audit" if source.job is not None else results_folder("audit", source.name, "")


def audit_sample(source: ReportSource) -> AuditSample | None:
    """Return the audit's sample, or None. Raises DatasetError if its file cannot be read."""
    path = audit_folder(source) / "sample.json"
    return load_sample(path) if path.is_file() else None


def audit_part(source: ReportSource) -> dict[str, Any] | None:
    """Return the data for the audit's pages, or None for a source without a finished dataset."""
    if source.dataset is None:
        return None
    place = shlex.quote(str(source.dataset.path)) if source.job is None else source.job.words
    try:
        sample = audit_sample(source)
    except DatasetError as error:
        source.notes.append(f"the audit is not shown: {error}")
        return None
    items = [] if sample is None else sample.items
    wanted = {item.document for item in items}
    passages = source.dataset.passages() if wanted else ()
    texts = {passage.id: (passage.title, passage.text) for passage in passages if passage.id in wanted}
    shown = []
    for item in items:
        title, body = texts.get(item.document, ("", ""))
        query = source.queries.get(item.query)
        text = query.text if query is not None else ""
        about = {"query": item.query, "document": item.document, "source": item.source}
        shown.append({**about, "text": text, "title": title, "body": body[:_MOST_DOCUMENT_CHARACTERS]})
    levels = four_levels() if sample is None else sample.levels
    keys = {press: str(level) for press, level in keys_of(levels).items()}
    return {
        "key": None if sample is None else sample.key,
        "dataset": source.name if sample is None else sample.dataset,
        "levels": {str(level): words for level, words in levels.items()},
        "keys": keys,
        "question": QUESTION if sample is None else sample.question,
        "meaning": meaning_of(QUESTION if sample is None else sample.question),
        "items": shown,
        "file": str(audit_folder(source) / ANSWERS),
        "draw": f"airgen audit sample {place} 100",
        "score": f"airgen audit score {place} {ANSWERS}",
        "score_kept": f"airgen audit score {place} {shlex.quote(str(audit_folder(source) / ANSWERS))}",
    }


FORMAT = 1


def make_report(
    places: Sequence[str | Path | Job],
    out: Path | None = None,
    *,
    runs: Path | None = None,
    single_file: bool = False,
    public: bool = False,
    private: Sequence[str] | None = None,
) -> Path:
    """Write the report on jobs, datasets and results, and return the page to open. See `find_sources` for the
    arguments.

    `out` is the folder or, with `single_file`, the HTML file. The default is `report` or `report.html`, in the job's
    directory for a single job, or else in the working directory; for a public report, it is `report-public`.

    Raises UsageError, DatasetError or StoreError if something is missing or cannot be read.
    """
    sources, notes = find_sources(places, runs=runs, public=public, private=private)
    title = title_of(sources)
    name = ("report-public" if public else "report") + (".html" if single_file else "")
    out = out or ((sources[0].home if len(sources) == 1 else None) or Path()) / name
    with (report_file if single_file else report_folder)(out, title) as pack:
        write_data(pack, sources, notes, title)
    return out if single_file else out / "index.html"


def report_of_run(job: Job, result: RunResult, say: Callable[[str], None]) -> RunResult:
    """Add the report to the result of a finished run. If the report cannot be written, the run does not fail."""
    if result.manifest is None and not result.usage:
        return result  # there is a corpus at most
    try:
        return replace(result, report=make_report([job]))
    except AirgenError as error:
        say(f"the report was not written: {error}")
        return result


def title_of(sources: Sequence[ReportSource]) -> str:
    """Return the title of a report: the names of its sources."""
    return ", ".join(source.name for source in sources[:3]) + (", …" if len(sources) > 3 else "")


def write_data(
    pack: Pack, sources: Sequence[ReportSource], notes: Sequence[str], title: str, *, live: bool = False
) -> None:
    """Write all data, ending with the summary, which says what there is. `live` says whether the report is served."""
    datasets, facts, every = list[dict[str, Any]](), list[dict[str, Any]](), list[list[Board]]()
    for source in sources:
        with ExitStack() as stack:
            if source.job is not None:
                with suppress(StoreError):  # the parts that need it report this
                    stack.enter_context(source.store())
            every.append(boards(source))
            counts = write_queries(source, pack)
            has = ["queries"] if counts["queries"] else []
            about = overview(source, every[-1])
            facts.append(about["facts"])
            parts = {"overview": about, "audit": None if source.public else audit_part(source)}
            for name, value in parts.items():
                if value is not None:
                    pack.write(f"{source.key}/{name}", value)
                    has.append(name)
        for name, value in systems_chunks(source, every[-1], linked="queries" in has):
            pack.write(name, value)
            has += ["systems"] if name == f"{source.key}/systems" else []
        datasets.append({**_summary(source, has, counts), "generated": facts[-1]["generated"]})
    side = together(sources, every)
    if side is not None:
        pack.write("together", side)
    public = any(source.public for source in sources)
    value = {"format": FORMAT, "title": title, "made_by": f"airgen {__version__}", "public": public, "live": live}
    value |= {"notes": list(notes), "datasets": datasets, "together": side is not None}
    if len(datasets) > 1:
        value["table"] = datasets_table(list(zip(datasets, facts, strict=True)))
    pack.write("report", value)


def _summary(source: ReportSource, has: Sequence[str], counts: dict[str, Any]) -> dict[str, Any]:
    manifest = source.manifest
    return {
        "key": source.key,
        "name": source.name,
        **{name: source.info.get(name) for name in ("task", "language", "domain", "version")},
        "state": source.state,
        "splits": source.splits,
        "withheld": sorted(source.withheld),
        "passages": manifest.statistics.passages if manifest is not None else None,
        "systems": {split: [result.name for result in every] for split, every in source.results.items()},
        "counts": counts,
        "has": list(has),
        "stopwords": source.stopwords,
        "notes": list(source.notes),
    }
