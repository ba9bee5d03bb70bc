"""Output of `airgen show`: the history of a query, and the state of a job.

A job can be given as its pipeline, its work directory, its name, or the id of a query. Each stage formats its own rows,
and this module formats those of quality control. The state of a job comes from its status file and, unless another
process has it open, from its work database.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

from airgen.control.judgment import current
from airgen.control.mined_negative import MINED_NAME
from airgen.control.query_set import OWN
from airgen.control.table2 import votes
from airgen.display.study import Column, Plain, Study, Table, columns
from airgen.errors import SettingsError, StoreError, UsageError
from airgen.job.job import Job, owner_of
from airgen.safety.escaping import dollars
from airgen.settings.base import find_yaml
from airgen.settings.suite import is_suite
from airgen.steps.accepted import Accepted
from airgen.steps.ask import money
from airgen.steps.lineage import Lineage
from airgen.steps.progress import STATUS, number, read_status, seconds_left
from airgen.steps.public_ids import PublicIds
from airgen.steps.step import Plan
from airgen.storage.paths import RUNS, beside
from airgen.storage.records import Decision, HardNegative, Judgment, OwnQuery, Passage, Prelabel, Recall, Row
from airgen.storage.store import Store

R = TypeVar("R", bound=Row)


_BATCH_QUERIES = 256  # queries whose quality-control rows are in memory together


def find_lineage(accepted: Accepted, name: str, ids: PublicIds) -> tuple[Lineage, str]:
    """Return the lineage of a query id (or a prefix), and why it was rejected. Raises UsageError for no match or
    several.
    """
    every = [(lineage, "") for lineage in accepted.lineages] + [(row.lineage, row.words) for row in accepted.rejected]
    matches = [(lineage, reason) for lineage, reason in every if name_of(lineage, ids).startswith(name)]
    if len(matches) == 1:
        return matches[0]
    some = ", ".join(name_of(lineage, ids) for lineage, _ in (matches or every)[:8])
    many = f"{len(matches)} queries begin with {name!r}: {some}" if matches else f"no query {name!r}; some are: {some}"
    raise UsageError(many)


def name_of(lineage: Lineage, ids: PublicIds) -> str:
    """Return the public id of a lineage's query, or of its sample if it has no query."""
    return ids.query(lineage) if lineage.query is not None else ids.sample(lineage)


def listed(accepted: Accepted, ids: PublicIds) -> list[dict[str, str]]:
    """Return the id, text and outcome of each query."""
    rows = [
        {"id": ids.query(lineage), "query": lineage.final.text, "outcome": "accepted"} for lineage in accepted.lineages
    ]
    return rows + [
        {"id": ids.query(row.lineage), "query": row.lineage.final.text, "outcome": row.words}
        for row in accepted.rejected
        if row.lineage.query is not None
    ]


def life(store: Store, job: Job, lineage: Lineage, rejected: str) -> dict[str, Any]:
    """Return everything known about a query as plain values. `lines` are the (label, text) pairs of the steps."""
    return next(lives(store, job, [(lineage, rejected)]))


def lives(store: Store, job: Job, every: Sequence[tuple[Lineage, str]]) -> Iterator[dict[str, Any]]:
    """Yield the same for many lineages, each with its reason for rejection ("" if it was not rejected)."""
    plan, ids = job.plan(store), job.ids
    for first in range(0, len(every), _BATCH_QUERIES):
        some = every[first : first + _BATCH_QUERIES]
        control = _Control(store, job, plan, [lineage for lineage, _ in some if lineage.query is not None])
        for lineage, rejected in some:
            skips, sources = lineage.skips.items(), zip(("document", "second"), lineage.sources, strict=False)
            value: dict[str, Any] = {
                "id": name_of(lineage, ids),
                "outcome": f"rejected: {rejected}" if rejected else "accepted",
                **({"own": _shown(lineage.own, "count", "lines", "line")} if lineage.own is not None else {}),
                **{name: _shown(source, "title") for name, source in sources},
                "skips": {stage: ": ".join(filter(None, (row.reason, row.detail))) for stage, row in skips},
                "lines": [],
            }
            for stage in job.flow.every:
                values, lines = stage.show(lineage)
                value.update(values)
                value["lines"] += lines
            if lineage.query is not None:
                value.update(control.labels(lineage, ids))
            yield value


def _shown(row: Passage | OwnQuery | HardNegative, *names: str) -> dict[str, Any]:
    return {name: getattr(row, name) for name in ("id", "text", *names)}


class _Control:
    """The quality control rows of some queries by the key of the final query, and titles by document id."""

    def __init__(self, store: Store, job: Job, plan: Plan, lineages: Sequence[Lineage]) -> None:
        self.job = job
        keys = [lineage.final.key for lineage in lineages]

        def rows_of(kind: type[R], *stages: str) -> list[R]:
            return [row for stage in stages if stage in plan for row in store.rows_of(kind, plan[stage], keys)]

        judgments, decisions = rows_of(Judgment, "judgment", OWN), rows_of(Decision, "decision")
        self.judgments = _by_query(current(store, plan["corpus"], judgments))
        self.decisions = _by_query(decisions)
        self.recalls = {row.parent: row.ids for row in rows_of(Recall, "recall")}
        stages = sorted(stage for stage in plan if stage.startswith("prelabel:"))
        self.prelabels = _by_query(rows_of(Prelabel, *stages))
        self.mined = _by_query(rows_of(HardNegative, MINED_NAME))
        named = {source.id for lineage in lineages for source in lineage.sources}
        named |= {row.id for row in judgments} | {row.id for row in decisions}
        self.titles = store.passages_named(plan["corpus"], named, "t.title")

    def labels(self, lineage: Lineage, public: PublicIds) -> dict[str, Any]:
        """Return the hard negatives, including mined ones, and the evidence and decision for each document of the
        query."""
        key = lineage.final.key
        negatives, mined = lineage.hard_negatives, self.mined.get(key, [])
        prelabels = self.prelabels.get(key, ())
        counts = votes(prelabels, self.job.pipeline.control.thresholds, {row.id for row in negatives})
        voters = sum(bool(row.ids) for row in prelabels)  # that have read the passages of this query
        recalled = {id_: rank for rank, id_ in enumerate(self.recalls.get(key, ()), 1)}
        decisions = {row.id: row for row in self.decisions.get(key, ())}
        kinds = {source.id: "own document" for source in lineage.sources} | {row.id: "mined" for row in mined}
        kinds |= dict.fromkeys(sorted(row.id for row in negatives), "negative")
        judgments = {row.id: row for row in self.judgments.get(key, ())}
        labels = []
        for id_ in dict.fromkeys([*kinds, *decisions, *judgments]):
            judgment, decision = judgments.get(id_), decisions.get(id_)
            labels.append(
                {
                    "id": id_,
                    "published": public.document(id_),
                    "kind": kinds.get(id_, "other"),
                    "title": self.titles.get(id_, ""),
                    "recall": recalled.get(id_),
                    "votes": f"{counts.get(id_, 0)}/{voters}",
                    "level": judgment.level if judgment else None,
                    "probability": judgment.probability if judgment else None,
                    "words": judgment.reason if judgment else None,
                    "decision": decision.action if decision else None,
                    "reason": decision.reason if decision else None,
                }
            )
        shown = [_shown(row, "title", "origin") for row in [*negatives, *mined]]
        return {"hard_negatives": shown, "labels": labels}


def _by_query(rows: Iterable[R]) -> dict[str, list[R]]:
    by_query: dict[str, list[R]] = {}
    for row in rows:
        by_query.setdefault(row.parent, []).append(row)
    return by_query


def life_study(value: dict[str, Any]) -> Study:
    """Return the history of a query as tables: the generated texts, then each label."""
    rows: list[tuple[str, str]] = []
    if own := value.get("own"):
        rows += [("query", own["text"]), ("asked", f"{own['count']:,} times, first in line {own['line']}")]
    for source in (value[name] for name in ("document", "second") if name in value):
        rows += [("document", source["id"]), *([("", source["title"])] if source["title"] else [])]
        rows += [("", f"| {line}") for line in source["text"].splitlines()]
    rows += value["lines"]
    rows += [("skipped", f"{step}: {why}") for step, why in value["skips"].items()]
    for row in value.get("hard_negatives", ()):
        rows.append(("mined" if row["origin"] == "mined" else "negative", f"{row['id']}  {row['title']}"))
        rows += [("", "| " + " ".join(row["text"].split()))] if row["text"] else []
    labels = value.get("labels", ())
    return Study(f"{value['id']}  {value['outcome']}", [Table(rows, columns("", "", left=(1,))), _label_table(labels)])


def _label_table(labels: Sequence[dict[str, Any]]) -> Table:
    """Return a row for each document with votes, judgment and decision. Its own id is included if a different id is
    published.
    """
    shown = [
        Column("label", itemgetter("kind")),
        Column("votes", itemgetter("votes")),
        Column("level", itemgetter("level"), missing="-"),
        Column("p", itemgetter("probability"), ".2f", missing="-"),
        Column("decision", itemgetter("decision"), left=True, missing="-"),
        Column("document", itemgetter("published"), left=True),
        Column("own id", lambda row: "" if row["id"] == row["published"] else row["id"], left=True),
        Column("title", itemgetter("title"), left=True),
    ]
    renamed = any(row["id"] != row["published"] for row in labels)
    judged = any(row["probability"] is not None for row in labels)
    left_out = {*([] if renamed else ["own id"]), *([] if judged else ["p"])}
    return Table(labels, [column for column in shown if column.title not in left_out])


def queries_study(rows: Sequence[dict[str, str]]) -> Study:
    """Return the listed queries as a table without a header, one line each."""
    outcome = Column("", lambda row: "" if row["outcome"] == "accepted" else f"({row['outcome']})", left=True)
    return Study("", [Table(rows, [Column("", itemgetter("id")), Column("", itemgetter("query"), left=True), outcome])])


def find_job(name: str | Path, runs: Path | None = None) -> Job:
    """Return the job that `read_job` returns, with the target of its last run."""
    return with_last_target(read_job(name, runs))


def job_file(name: str | Path) -> Path:
    """Return the pipeline file of a job; see `read_job`."""
    found = _pipeline_or_job(name, None)
    return found.path if isinstance(found, Job) else found


def read_job(name: str | Path, runs: Path | None = None, *, target: int | None = None) -> Job:
    """Return a job: all that the commands need of its files, which are read here, once.

    Args:
        name: The pipeline's file, the name of a shipped pipeline, the job's work directory, or its name under `runs`.
        runs: The parent folder of the work directory. Default: `runs` next to the pipeline's file.
        target: The number of accepted queries, in place of the pipeline's.

    Raises:
        SettingsError: The name is none of these, or a setting is wrong.
        UsageError: The pipeline of the work directory is missing.
    """
    found = _pipeline_or_job(name, runs)
    if isinstance(found, Job):
        return found.changed(target=target)
    return Job(found, _runs_of(found) if runs is None else runs, target=target)


def find_suite(name: str | Path) -> Path | None:
    """Return the file of a suite; None if the name is that of a pipeline or a job, or of nothing."""
    try:
        path = find_yaml("pipelines", name)
    except SettingsError:
        return None
    return path if is_suite(path) else None


def _pipeline_or_job(name: str | Path, runs: Path | None) -> Path | Job:
    directory = Path(name)
    if not is_job(directory):
        try:
            return find_yaml("pipelines", name)
        except SettingsError:
            directory = (runs or RUNS) / name
            if not is_job(directory):
                raise
    job_or_problem = job_of_directory(directory)
    if isinstance(job_or_problem, str):
        if (report := directory / "agreement" / "agreement.md").is_file():
            raise UsageError(f"{directory}: is the work of `airgen study agree`: its report is {report}")
        raise UsageError(f"{directory}: {job_or_problem}: name the pipeline's YAML instead")
    return job_or_problem


def _runs_of(path: Path) -> Path:
    """Return the folder that contains the work directory of a pipeline file: `runs` next to it, or the parent folder if
    the file is in its own work directory, as written by `airgen.generate`."""
    folder = path.resolve().parent
    own = is_job(folder) and owner_of(folder) == path.resolve()
    return folder.parent if own else beside(path) / RUNS


def is_job(directory: Path) -> bool:
    """Return whether a directory is the work directory of a job."""
    return (directory / STATUS).is_file()


def job_of_directory(directory: Path) -> Job | str:
    """Return the job of a work directory from the pipeline in its status file, or the reason why it cannot be
    loaded."""
    pipeline = owner_of(directory)
    if pipeline is None:
        return "its status.json names no pipeline"
    if not pipeline.is_file():
        return f"its pipeline {pipeline} is missing"
    try:
        job = with_last_target(Job(pipeline, directory.parent))
    except SettingsError as error:
        return error.problems[0]
    if job.directory.resolve() != directory.resolve():
        return f"its pipeline {pipeline} is now named {job.pipeline.name!r}"
    return job


def with_last_target(job: Job) -> Job:
    """Return the job with the target of its last run, which `airgen run --target` may have set."""
    target = (read_status(job.directory / STATUS) or {}).get("target")
    known = isinstance(target, int) and target > 0
    return job.changed(target=target) if known and target != job.pipeline.target else job


def job_with(name: str, runs: Path) -> Job:
    """Return the job under `runs` with this query id (or prefix). Raises UsageError for no match or several."""
    matches: list[Job] = []
    others: list[Job] = []
    for status in sorted(runs.glob(f"*/{STATUS}")):
        job = job_of_directory(status.parent)
        if isinstance(job, str) or not status.with_name("work.duckdb").is_file():
            continue
        with job.open_store(read_only=True) as store:
            accepted = job.accepted(store)
        every, ids = [*accepted.lineages, *(row.lineage for row in accepted.rejected)], job.ids
        (matches if any(name_of(lineage, ids).startswith(name) for lineage in every) else others).append(job)
    if len(matches) == 1:
        return matches[0]
    where = ", ".join(job.pipeline.name for job in matches or others) or "no job"
    problem = "several jobs have a query" if matches else "no job has a query"
    raise UsageError(f"{problem} {name!r} under {runs} ({where}): give the pipeline's YAML before the id")


_CALLS = """
SELECT stage, count(*) AS calls, sum(prompt_tokens), sum(cached_tokens), sum(completion_tokens), sum(cost_usd),
       count(*) FILTER (error <> ''), sum(seconds), count(*) FILTER (counted_here),
       coalesce(sum(cost_usd) FILTER (counted_here), 0) FROM answer GROUP BY stage ORDER BY stage
"""
_REASON_CHARACTERS = 160  # maximum characters of a reason
_COLUMNS = (
    "stage",
    "calls",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "usd",
    "failed",
    "seconds",
    "counted_here",
    "counted_here_usd",
)
_COMPUTE = ("workers", "nodes", "batches", "sent_again", "workers_lost")
_ASKS = {"queries", "hard negatives", "judgments"}  # steps that wait for calls, which are counted by what they request
# With the most frequent message: the server's, or what was wrong with an answer.
_FAILURES = """
SELECT stage, error, count(*), mode(text) FROM answer WHERE error <> '' GROUP BY stage, error ORDER BY 3 DESC, 1, 2
"""
_SKIPS = """
SELECT stage, reason, count(*), mode(split_part(detail, chr(10), 1)) FROM skip
WHERE fingerprint IN (SELECT unnest(?)) GROUP BY stage, reason ORDER BY 3 DESC, 1, 2 LIMIT 20
"""


def read_report(job: Job) -> dict[str, Any]:
    """Return plain values for `airgen show`. Raises StoreError if the job was never run or its database is damaged."""
    path = job.directory / "work.duckdb"
    status = read_status(job.directory / STATUS) or {}
    if not path.exists():
        raise StoreError(f"{job.directory}: this pipeline has not been run yet: run `airgen run {job.words}`")
    report: dict[str, Any] = {
        "directory": str(job.directory),
        "finished": job.finished(),
        "running": False,
        "stages": status.get("stages", {}),
        "compute": _compute(status.get("compute")),
    }
    try:
        with Store.open(path, read_only=True) as store:
            report["calls"] = [dict(zip(_COLUMNS, row, strict=True)) for row in store.query(_CALLS)]
            report["money"] = _money(store, report["calls"])
            report["failures"] = [list(row) for row in store.query(_FAILURES)]
            report["skips"] = [list(row) for row in store.query(_SKIPS, [list(job.plan(store).values())])]
    except StoreError:
        if not job.running:
            raise
        report["running"] = True  # its process has the database open, so only the status file can be read
    return report


def status_study(report: dict[str, Any]) -> Study:
    """Return the status of a job as tables: steps, calls, money, failures and skipped items."""
    state = "running" if report["running"] else "finished" if report["finished"] else "not finished, not running"
    parts: list[str | Table] = [_step_table(report)]
    if compute := report.get("compute"):
        where = f"{compute['nodes']:,} nodes of {compute['address']}, " if compute.get("address") else ""
        odd = [f"{compute[name]:,} {name.replace('_', ' ')}" for name in _COMPUTE[3:] if compute[name]]
        words = ", ".join([f"{compute['batches']:,} batches", *odd])
        parts.append(Plain(f"compute {compute.get('kind', '')}: {where}{compute['workers']:,} workers, {words}"))
    if report.get("calls"):
        parts.append(Table(_calls(report), _call_columns("calls for")))
    parts += map(Plain, _money_words(report["money"]) if report.get("money") else ())
    reasons = [("failed", *row) for row in report.get("failures", ())]
    reasons += [("skipped", *row) for row in report.get("skips", ())]
    parts.append(Table(reasons, _REASONS))
    return Study(f"{report['directory']}: {state}", parts)


def _step_table(report: dict[str, Any]) -> Table:
    """Return the progress, elapsed time and remaining time of each step."""

    def left(stage: dict[str, Any]) -> str | None:
        seconds = seconds_left(stage.get("done", 0), stage.get("total"), stage.get("rate"))
        return f"{seconds / 60:.0f} min" if seconds and report["running"] else None

    def done(stage: dict[str, Any]) -> str:
        return f"{stage.get('done', 0):,}" + ("" if stage.get("total") is None else f" of {stage['total']:,}")

    shown = [
        Column("step", lambda row: row[0]),
        Column("done", lambda row: done(row[1])),
        Column("seconds", lambda row: row[1].get("seconds"), ",.0f", missing=""),
        Column("about left", lambda row: left(row[1]), missing=""),
        Column("", lambda row: row[1].get("note", ""), left=True),
    ]
    rows = list(report["stages"].items())
    waits = any(left(stage) for _, stage in rows)
    return Table(rows, [column for column in shown if waits or column.title != "about left"])


def _compute(computed: Any) -> dict[str, Any]:
    """Return the compute resources of the last run besides its own process, if any."""
    if not isinstance(computed, dict) or not number(computed.get("batches")):
        return {}
    words = {
        name: str(computed[name])[:_REASON_CHARACTERS]
        for name in ("kind", "address")
        if isinstance(computed.get(name), str)
    }
    return words | {name: number(computed.get(name)) or 0 for name in _COMPUTE}


def work_table(report: dict[str, Any]) -> Table:
    """Return a breakdown of a job's time: its calls by stage, then the other steps of the last run. The durations of
    parallel calls are added up."""
    others = [
        (name, stage["seconds"])
        for name, stage in report["stages"].items()
        if name not in _ASKS and stage.get("seconds") is not None
    ]
    return Table([*_calls(report), *others], _call_columns("where the time went"))


def _calls(report: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return the calls of each stage, with tokens read, cached and written."""
    rows: list[tuple[Any, ...]] = []
    for row in report.get("calls", ()):
        read = row["prompt_tokens"] - row["cached_tokens"]
        figures = (row["calls"], row["failed"], read, row["cached_tokens"], row["completion_tokens"])
        rows.append((row["stage"].replace("_", " "), row["seconds"], *figures, dollars(row["usd"])))
    return rows


def _call_columns(title: str) -> list[Column]:
    """Return the columns for calls. A step without calls has only a name and a duration."""

    def cell(place: int, row: tuple[Any, ...]) -> Any:
        return row[place] if place < len(row) else None

    names = (title, "seconds", "calls", "failed", "read", "from cache", "written", "cost")
    return [
        Column(name, partial(cell, place), ",.0f" if place == 1 else ",", missing="")
        for place, name in enumerate(names)
    ]


_REASONS = [
    Column("", itemgetter(0)),
    Column("in", itemgetter(1), left=True),
    Column("count", itemgetter(3), ","),
    Column("why", itemgetter(2), left=True),
    Column("the most frequent words", lambda row: " ".join((row[4] or "").split())[:_REASON_CHARACTERS], left=True),
]


def _money(store: Store, calls: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the cost of the job, and the part of it without a resulting answer."""
    account = money(store)
    return {
        "spent_usd": round(account.spent, 6),
        "without_answer_usd": round(max(0.0, account.paid - math.fsum(row["usd"] for row in calls)), 6),
        "lost_usd": round(account.lost, 6),
        "lost_calls": len(account.open),
        "overbilled": [str(overbilled) for overbilled in account.overbilled],
        "counted_here": sum(row["counted_here"] for row in calls),
        "counted_here_usd": round(math.fsum(row["counted_here_usd"] for row in calls), 6),
    }


def _money_words(money: dict[str, Any]) -> Iterator[str]:
    """Yield lines about the cost of the job, and the part of it without a resulting answer."""
    if money["spent_usd"]:
        yield f"spent {dollars(money['spent_usd'])}"
    if money["without_answer_usd"]:
        yield f"  of it {dollars(money['without_answer_usd'])} for attempts whose answer was not kept"
    if money["lost_calls"]:
        yield (
            f"  of it {dollars(money['lost_usd'])}, the maximum cost of {money['lost_calls']} calls in flight at "
            f"a kill or crash"
        )
    for overbilled in money.get("overbilled", ()):
        yield f"  {overbilled}"
    if money["counted_here"]:
        yield (
            f"  {money['counted_here']:,} answers came without usable token counts: airgen counted the tokens, "
            f"and these answers cost at most {dollars(money['counted_here_usd'])}"
        )
