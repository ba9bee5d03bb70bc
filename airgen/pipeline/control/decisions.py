"""Decisions: what Table 2 makes of the judgments, a row for each document of each query (paper 2.4)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from airgen.keys import fingerprint
from airgen.pipeline.control.judgments import OWN, changed_texts, is_current, own_labels, pairs_of
from airgen.pipeline.control.prelabels import prelabels_of
from airgen.pipeline.control.set_stage import Control, SetStage
from airgen.pipeline.control.table2 import decide, decide_own, is_unsure
from airgen.records import Decision, HardNegative, Judgment, Recall, SourceLikeness

__all__ = ["DECISIONS"]


def _fingerprint(control: Control, model: Any) -> str:
    settings, combination = control.settings, control.combination
    names = ("judgment", OWN, "source_likeness")
    read = {stage: fp for stage, fp in control.plan.items() if stage.startswith("prelabel") or stage in names}
    return fingerprint(
        stage="decision", version=1, relevant_from=settings.judge.relevant_from, plan=read,
        thresholds=settings.thresholds.model_dump(),
        **({"calibration": combination.fingerprint} if combination else {}),
        **({"unsure": settings.judge.unsure} if settings.judge.unsure else {}),
    )  # fmt: skip


def _work(control: Control, model: Any, fp: str, queries: Sequence[str]) -> Iterator[list[Decision]]:
    relevant_from, lineages = control.settings.judge.relevant_from, control.accepted.lineages
    negatives = {lineage.final.key: [one.id for one in lineage.every(HardNegative)] for lineage in lineages}
    judged, unsure = _judgments(control, negatives), control.settings.judge.unsure
    dropped = {
        id_
        for key, ids in negatives.items()
        for id_ in ids
        if (found := judged.get(key, {}).get(id_)) and found.level >= relevant_from and not is_unsure(found, unsure)
    }
    for lineage in lineages:
        key = lineage.final.key
        if not lineage.sources:
            yield decide_own(key, judged.get(key, {}), relevant_from, fp, unsure)
            continue
        own = lineage.passage.id
        yield decide(key, own, negatives[key], judged.get(key, {}), dropped, relevant_from, fp, unsure)


def _judgments(control: Control, negatives: Mapping[str, Collection[str]]) -> dict[str, dict[str, Judgment]]:
    """Judgments by query and document, weighed by the combined judge where there is one.

    Judgments that an earlier threshold or re-ranker asked for stay on the disk, and are not read here.
    """
    asked = {(pair.query, pair.id) for pair in pairs_of(control)}
    sources = control.sources
    asked |= {(key, id_) for key, ids in sources.items() for id_ in ids}
    changed = changed_texts(control.store, control.plan["corpus"])
    recalls, prelabels = control.rows("recall", Recall), prelabels_of(control)
    likeness = control.rows("source_likeness", SourceLikeness) if "source_likeness" in control.plan else {}
    found: dict[str, dict[str, Judgment]] = {}
    for row in control.store.made(Judgment, control.plan["judgment"], control.queries):
        if (row.parent, row.id) not in asked or not is_current(row, changed, sources[row.parent]):
            continue
        if control.combination is not None:
            key = row.parent
            # A generated negative was written to be like the source, so its likeness is no sign of relevance.
            like = None if row.id in negatives[key] else likeness.get(key)
            weighed = control.combination.judged(row, recalls.get(key), prelabels[key], like)
            # A document that was not recalled, and about which no LLM was asked, has no evidence at all.
            missing = weighed is row and not control.settings.judge.members
            row = replace(row, level=0, reason="not recalled") if missing else weighed
        found.setdefault(row.parent, {})[row.id] = row
    for row in own_labels(control):
        found.setdefault(row.parent, {})[row.id] = row
    return found


DECISIONS = SetStage("decision", Decision, "decisions", _fingerprint, _work, always=True)
