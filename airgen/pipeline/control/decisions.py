"""Decisions: what Table 2 makes of the judgments or votes, a row for each document of each query (paper 2.4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from airgen.keys import fingerprint, row_key
from airgen.pipeline.control.judgments import OWN, changed_texts, is_current, own_labels, pairs_of
from airgen.pipeline.control.prelabels import prelabels_of
from airgen.pipeline.control.set_stage import Control, SetStage
from airgen.pipeline.control.table2 import decide, decide_own, is_unsure
from airgen.pipeline.control.votes import NOT_FOUND, PEOPLES, WAY, first, voted
from airgen.records import Decision, HardNegative, Judgment


def _fingerprint(control: Control, model: Any) -> str:
    settings, pipeline = control.settings, control.tools.pipeline
    read = {
        stage: fp for stage, fp in control.plan.items() if stage.startswith("prelabel") or stage in ("judgment", OWN)
    }
    return fingerprint(
        stage="decision", version=2, relevant_from=settings.judge.relevant_from, plan=read,
        thresholds=settings.thresholds.model_dump(), unsure=settings.judge.unsure,
        votes=None if settings.judge.members else [pipeline.relevance, WAY[pipeline.relevance], PEOPLES],
    )  # fmt: skip


def _work(control: Control, model: Any, fp: str, queries: Sequence[str]) -> Iterator[list[Decision]]:
    relevant_from, lineages = control.settings.judge.relevant_from, control.accepted.lineages
    negatives = {lineage.final.key: [one.id for one in lineage.every(HardNegative)] for lineage in lineages}
    judged, unsure = _judgments(control), control.settings.judge.unsure
    dropped = {
        id_
        for key, ids in negatives.items()
        for id_ in ids
        if (found := judged.get(key, {}).get(id_)) and found.level >= relevant_from and not is_unsure(found, unsure)
    }
    voting = not control.settings.judge.members
    unjudged = NOT_FOUND[control.tools.pipeline.relevance] if voting else "its document was not judged"
    for lineage in lineages:
        key = lineage.final.key
        if not lineage.sources:
            yield decide_own(key, judged.get(key, {}), relevant_from, fp, unsure)
            continue
        own = lineage.passage.id
        yield decide(key, own, negatives[key], judged.get(key, {}), dropped, relevant_from, fp, unsure, unjudged)


def _judgments(control: Control) -> dict[str, dict[str, Judgment]]:
    """Judgments by query and document: of the LLM or by votes, and over them the user's own labels.

    Judgments that an earlier threshold or re-ranker asked for stay on the disk, and are not read here.
    """
    found = _of_llm(control) if control.settings.judge.members else _by_votes(control)
    for row in own_labels(control):
        found.setdefault(row.parent, {})[row.id] = row
    return found


def _of_llm(control: Control) -> dict[str, dict[str, Judgment]]:
    asked = {(pair.query, pair.id) for pair in pairs_of(control)}
    sources = control.sources
    asked |= {(key, id_) for key, ids in sources.items() for id_ in ids}
    changed = changed_texts(control.store, control.plan["corpus"])
    found: dict[str, dict[str, Judgment]] = {}
    for row in control.store.made(Judgment, control.plan["judgment"], control.queries):
        if (row.parent, row.id) in asked and is_current(row, changed, sources[row.parent]):
            found.setdefault(row.parent, {})[row.id] = row
    return found


def _by_votes(control: Control) -> dict[str, dict[str, Judgment]]:
    """What the votes say of the pairs that an LLM would judge, of the sources, and of every relevant passage.

    The sources of a user's own query are the passages that somebody labelled relevant. A query without any, or whose
    sources the re-rankers do not find, gets no judgment, and so no positive but those labels.
    """
    cut = control.settings.judge.relevant_from
    known: dict[str, list[str]] = {}
    for row in own_labels(control):
        if row.level >= cut:
            known.setdefault(row.parent, []).append(row.id)
    pairs: dict[str, set[str]] = {}
    for pair in pairs_of(control):
        pairs.setdefault(pair.query, set()).add(pair.id)
    found: dict[str, dict[str, Judgment]] = {}
    written = {one.id for lineage in control.accepted.lineages for one in lineage.every(HardNegative)}
    fp, relevance = control.plan["judgment"], control.tools.pipeline.relevance
    for key, rows in prelabels_of(control).items():
        made = control.sources.get(key)
        if made and relevance == "answer" and not first(rows, made, written):
            continue
        own, least = made or known.get(key, []), WAY[relevance] if made else PEOPLES
        for id_, share in voted(rows, own).items():
            relevant = share >= least or id_ in own
            if relevant or id_ in pairs.get(key, ()):
                level, name = cut if relevant else 0, row_key("vote", f"{key}/{id_}", fp)
                judgment = Judgment(name, key, fp, 0, id_, level, None, "votes")
                found.setdefault(key, {})[id_] = judgment
    return found


DECISIONS = SetStage("decision", Decision, "decisions", _fingerprint, _work, always=True)
