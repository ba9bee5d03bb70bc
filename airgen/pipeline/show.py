"""The whole life of a query, from its document to its labels, as `airgen show` prints it.

Each stage says itself how its rows are shown; quality control is shown here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airgen.errors import UsageError
from airgen.pipeline.control.mining import mined_by_query
from airgen.pipeline.control.table2 import votes
from airgen.pipeline.generate import Accepted
from airgen.pipeline.job import Job
from airgen.pipeline.progress import read_status
from airgen.pipeline.public_ids import PublicIds
from airgen.pipeline.stage import Lineage
from airgen.records import Decision, Judgment, Passage, Prelabel, Skip
from airgen.store import Store
from airgen.text.display import terminal_lines

__all__ = ["find_lineage", "job_with", "life", "render_life"]


def find_lineage(accepted: Accepted, name: str, ids: PublicIds) -> tuple[Lineage, str]:
    """The lineage of a query id (or a beginning of one), and why it was rejected, if it was.

    Raises UsageError where none or several match.
    """
    every = [(lineage, "") for lineage in accepted.lineages] + [(one.lineage, one.words) for one in accepted.rejected]
    found = [(one, reason) for one, reason in every if _name(one, ids).startswith(name)]
    if len(found) == 1:
        return found[0]
    some = ", ".join(_name(one, ids) for one, _ in (found or every)[:8])
    many = f"{len(found)} queries begin with {name!r}: {some}" if found else f"no query {name!r}; some are: {some}"
    raise UsageError(many)


def job_with(name: str, runs: Path) -> Job:
    """The one job under `runs` that has a query of this id (or beginning). Raises UsageError for none or several."""
    found: list[Job] = []
    others: list[Job] = []
    for status in sorted(runs.glob("*/status.json")):
        path = Path(str((read_status(status) or {}).get("pipeline", "")))
        if not path.is_file() or not status.with_name("work.duckdb").is_file():
            continue
        job = Job(path, runs)
        with job.open_store(read_only=True) as store:
            accepted = job.accepted(store)
        every, ids = [*accepted.lineages, *(one.lineage for one in accepted.rejected)], job.ids
        (found if any(_name(one, ids).startswith(name) for one in every) else others).append(job)
    if len(found) == 1:
        return found[0]
    where = ", ".join(job.pipeline.name for job in found or others) or "no job"
    problem = "several jobs have a query" if found else "no job has a query"
    raise UsageError(f"{problem} {name!r} under {runs} ({where}): give the pipeline's YAML before the id")


def _name(lineage: Lineage, ids: PublicIds) -> str:
    return ids.query(lineage) if lineage.query is not None else ids.sample(lineage)


def life(store: Store, job: Job, lineage: Lineage, rejected: str) -> dict[str, Any]:
    """Everything that is known of one query, as plain values; `lines` are the stages' own, for the terminal."""
    value: dict[str, Any] = {
        "id": _name(lineage, job.ids),
        "outcome": f"rejected: {rejected}" if rejected else "accepted",
        "document": _shown(lineage.passage),
        **({"second": _shown(lineage.partner)} if lineage.partner is not None else {}),
        "skips": {stage: _why(row) for stage, row in lineage.skips.items()},
        "lines": [],
    }
    for stage in job.flow.every:
        values, lines = stage.show(lineage)
        value.update(values)
        value["lines"] += lines
    if lineage.query is not None:
        value.update(_labels(store, job, lineage))
    return value


def _shown(passage: Passage) -> dict[str, str]:
    return {"id": passage.id, "title": passage.title, "text": passage.text}


def _why(row: Skip) -> str:
    return row.reason + (f": {row.detail}" if row.detail else "")


def _labels(store: Store, job: Job, lineage: Lineage) -> dict[str, Any]:
    """Hard negatives with the mined ones, and for each document of the query votes, judgment and decision."""
    plan, key = job.plan(store), lineage.final.key
    negatives = {row.id for row in lineage.hard_negatives}
    mined = {row.id: row for row in mined_by_query(store, plan, [key]).get(key, ())}
    stages = sorted(stage for stage in plan if stage.startswith("prelabel:"))
    prelabels = [row for stage in stages for row in store.made(Prelabel, plan[stage], [key])]
    counts = votes(prelabels, job.pipeline.control.thresholds, negatives)
    judgments = {row.id: row for row in store.made(Judgment, plan["judgment"], [key])}
    decisions = {row.id: row for row in store.made(Decision, plan.get("decision", ""), [key])}
    kinds = {**dict.fromkeys(mined, "mined"), **dict.fromkeys(sorted(negatives), "negative")}
    kinds = {**dict.fromkeys([one.id for one in lineage.sources], "own document"), **kinds}
    ids = list(dict.fromkeys([*kinds, *decisions, *judgments]))
    titles = dict(store.query("SELECT id, title FROM passage WHERE id IN (SELECT unnest(?))", [ids]))
    public, found = job.ids, []
    for id_ in ids:
        judgment, decision = judgments.get(id_), decisions.get(id_)
        found.append(
            {
                "id": id_,
                "published": public.document(id_),
                "kind": kinds.get(id_, "other"),
                "title": titles.get(id_, ""),
                "votes": f"{counts.get(id_, 0)}/{len(prelabels)}",
                "level": judgment.level if judgment else None,
                "probability": judgment.probability if judgment else None,
                "decision": decision.action if decision else None,
                "reason": decision.reason if decision else None,
            }
        )
    rows = [*lineage.hard_negatives, *mined.values()]
    shown = [{"id": row.id, "title": row.title, "text": row.text, "origin": row.origin} for row in rows]
    return {"hard_negatives": shown, "labels": found}


def render_life(value: dict[str, Any]) -> str:
    """The same as text for a terminal; control characters of documents and models are taken out."""
    lines = [f"{value['id']}  {value['outcome']}", ""]
    for source in [value["document"], *([value["second"]] if "second" in value else [])]:
        lines += [f"document   {source['id']}"]
        lines += [f"           {source['title']}"] if source["title"] else []
        lines += ["           | " + line for line in source["text"].splitlines()]
    lines += value["lines"]
    lines += [f"skipped    {stage}: {why}" for stage, why in value["skips"].items()]
    for row in value.get("hard_negatives", ()):
        lines.append(f"{'mined' if row['origin'] == 'mined' else 'negative':<10} {row['id']}  {row['title']}")
        lines += ["           | " + " ".join(row["text"].split())] if row["text"] else []
    for row in value.get("labels", ()):
        probability = "" if row["probability"] is None else f" p={row['probability']:.2f}"
        level = "-" if row["level"] is None else row["level"]
        decision = row["decision"] or "-"
        lines.append(
            f"label      {row['kind']:<12} votes {row['votes']}  level {level}{probability}  {decision}"
            f"  {row['published']}  {row['id']}  {row['title']}".rstrip()
        )
    return terminal_lines("\n".join(lines))
