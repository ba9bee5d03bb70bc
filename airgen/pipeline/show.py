"""The whole life of a query, from its document to its labels, as `airgen show` prints it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from airgen.errors import UsageError
from airgen.pipeline.assemble import query_id
from airgen.pipeline.control.mining import mined_by_query
from airgen.pipeline.control.table2 import votes
from airgen.pipeline.generate import Accepted
from airgen.pipeline.job import Job
from airgen.pipeline.progress import read_status
from airgen.pipeline.stage import Lineage
from airgen.records import Decision, Judgment, Prelabel
from airgen.settings import Pipeline
from airgen.store import Store

__all__ = ["find_lineage", "job_with", "life", "render_life"]


def find_lineage(accepted: Accepted, name: str) -> tuple[Lineage, str]:
    """The lineage of a query id (or a beginning of one), and why it was rejected, if it was.

    Raises UsageError where none or several match.
    """
    every = [(lineage, "") for lineage in accepted.lineages] + accepted.rejected
    named = [(lineage, reason) for lineage, reason in every if lineage.query is not None or reason]
    found = [(one, reason) for one, reason in named if _name(one).startswith(name)]
    if len(found) == 1:
        return found[0]
    ids = ", ".join(_name(one) for one, _ in (found or named)[:8])
    many = f"{len(found)} queries begin with {name!r}: {ids}" if found else f"no query {name!r}; some are: {ids}"
    raise UsageError(many)


def job_with(name: str, runs: Path) -> Job:
    """The one job under `runs` that has a query of this id (or beginning). Raises UsageError for none or several."""
    found: list[Job] = []
    others: list[Job] = []
    for status in sorted(runs.glob("*/status.json")):
        path = Path((read_status(status) or {}).get("pipeline", ""))
        if not path.is_file() or not status.with_name("work.duckdb").is_file():
            continue
        job = Job(path, runs)
        with job.open_store(read_only=True) as store:
            accepted = job.accepted(store)
        every = [*accepted.lineages, *(lineage for lineage, _ in accepted.rejected)]
        (found if any(_name(one).startswith(name) for one in every) else others).append(job)
    if len(found) == 1:
        return found[0]
    where = ", ".join(job.pipeline.name for job in found or others) or "no job"
    problem = "several jobs have a query" if found else "no job has a query"
    raise UsageError(f"{problem} {name!r} under {runs} ({where}): give the pipeline's YAML before the id")


def _name(lineage: Lineage) -> str:
    return query_id(lineage) if lineage.query is not None else "s" + lineage.sample.key[:15]


def life(store: Store, pipeline: Pipeline, lineage: Lineage, rejected: str) -> dict[str, Any]:
    """Everything that is known of one query, as plain values."""
    value: dict[str, Any] = {
        "id": _name(lineage),
        "outcome": f"rejected: {rejected}" if rejected else "accepted",
        "document": {"id": lineage.passage.id, "title": lineage.passage.title, "text": lineage.passage.text},
        "skips": {
            stage: row.reason + (f": {row.detail}" if row.detail else "") for stage, row in lineage.skips.items()
        },
    }
    if lineage.character:
        value["character"] = {"chosen": lineage.character.text, "options": lineage.character.options}
    if lineage.scenario:
        value["scenario"] = {"chosen": lineage.scenario.text, "options": lineage.scenario.options}
    if lineage.query is None:
        return value
    query = lineage.query
    value["query"] = {
        "original": query.text, "length": query.length, "type": query.type, "information": query.information,
        "attempts": query.attempts,
    }  # fmt: skip
    value["rewrites"] = [{"text": row.text, "style": row.style, "attempts": row.attempts} for row in lineage.rewrites]
    key = lineage.final.key
    negatives = {row.id for row in lineage.hard_negatives}
    mined = {row.id: row for row in mined_by_query(store, key).get(key, ())}
    value["hard_negatives"] = [
        {"id": row.id, "title": row.title, "text": row.text, "origin": row.origin}
        for row in [*lineage.hard_negatives, *mined.values()]
    ]
    prelabels = store.rows(Prelabel, "current_prelabel", "t.parent = ?", [key], "t.ordinal")
    counts = votes(prelabels, pipeline.control.thresholds, negatives)
    judgments = {row.id: row for row in store.rows(Judgment, "current_judgment", "t.parent = ?", [key])}
    decisions = {row.id: row for row in store.rows(Decision, "current_decision", "t.parent = ?", [key])}
    kinds = {**dict.fromkeys(mined, "mined"), **dict.fromkeys(sorted(negatives), "negative")}
    kinds = {lineage.passage.id: "own document", **kinds}
    ids = list(dict.fromkeys([*kinds, *decisions, *judgments]))
    titles = dict(store.query("SELECT id, title FROM current_passage WHERE id IN (SELECT unnest(?))", [ids]))
    value["labels"] = [
        {
            "id": id_,
            "kind": kinds.get(id_, "other"),
            "title": titles.get(id_, ""),
            "votes": f"{counts.get(id_, 0)}/{len(prelabels)}",
            "level": judgments[id_].level if id_ in judgments else None,
            "probability": judgments[id_].probability if id_ in judgments else None,
            "decision": decisions[id_].action if id_ in decisions else None,
            "reason": decisions[id_].reason if id_ in decisions else None,
        }
        for id_ in ids
    ]
    return value


def render_life(value: dict[str, Any]) -> str:
    """The same as text for a terminal; control characters of documents and models are taken out."""
    lines = [f"{value['id']}  {value['outcome']}", "", f"document   {value['document']['id']}"]
    lines += [f"           {value['document']['title']}"] if value["document"]["title"] else []
    lines += ["           | " + line for line in value["document"]["text"].splitlines()]
    for name in ("character", "scenario"):
        if name in value:
            others = [text for text in value[name]["options"] if text != value[name]["chosen"]]
            lines += [f"{name:<10} {value[name]['chosen']}", *(f"           ({text})" for text in others)]
    if "query" in value:
        asked = value["query"]
        lines.append(f"asked for  {asked['type']}, {asked['length']}, {asked['information']}")
        lines.append(f"query      {asked['original']}" + _tries(asked["attempts"]))
        lines += [f"rewrite    {row['text']}  [{row['style']}]" + _tries(row["attempts"]) for row in value["rewrites"]]
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
            f"  {row['id']}  {row['title']}".rstrip()
        )
    text = "\n".join(lines)
    return "".join(char for char in text if char == "\n" or char == "\t" or char.isprintable())


def _tries(attempts: int) -> str:
    return f"  (attempt {attempts})" if attempts > 1 else ""


def as_json(value: dict[str, Any]) -> str:
    """The same as JSON."""
    return json.dumps(value, ensure_ascii=False, indent=1)
