"""Decide by Table 2 on the judgments of each query, from an LLM or from re-rankers' votes (paper 2.4)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airgen.components.keys import row_key
from airgen.control.judgment import current, own_labels, pairs_of
from airgen.control.prelabel import prelabels_of
from airgen.control.query_set import OWN, Control
from airgen.control.table2 import decide
from airgen.steps.lineage import Lineage
from airgen.steps.step import RowBatch, WholeStep, all_parents
from airgen.steps.votes import FEW, NOT_FOUND, PEOPLES, WAY, first, least_share, relevant, voted
from airgen.storage.records import Decision, HardNegative, Judgment
from airgen.storage.sequences import batched

QUERIES = 500  # queries whose decisions are written at once


def _parts(control: Control, model: Any) -> dict[str, Any]:
    settings, pipeline = control.settings, control.tools.pipeline
    read = {step: fp for step, fp in control.plan.items() if step.startswith("prelabel") or step in ("judgment", OWN)}
    voting = [pipeline.relevance, str(least_share(pipeline.relevance, len(settings.rerankers))), PEOPLES, FEW]
    return {
        "relevant_from": settings.judge.relevant_from,
        "plan": read,
        "thresholds": settings.thresholds.model_dump(),
        "votes": voting if settings.votes_decide else None,
        **({"most others": settings.most_others} if settings.most_others is not None else {}),
    }


def _work(control: Control, model: Any) -> Iterator[RowBatch]:
    relevant_from, lineages = control.settings.judge.relevant_from, control.accepted.lineages
    negatives = {lineage.final.key: [row.id for row in lineage.every(HardNegative)] for lineage in lineages}
    judged = _judgments(control)
    dropped = {
        id_
        for key, ids in negatives.items()
        for id_ in ids
        if (judgment := judged.get(key, {}).get(id_)) and judgment.level >= relevant_from
    }
    voting = not control.settings.judge.members
    unjudged = NOT_FOUND[control.tools.pipeline.relevance] if voting else "its document was not judged"

    def of(lineage: Lineage) -> list[Decision]:
        key, own = lineage.final.key, lineage.passage.id if lineage.sources else None
        return decide(
            key,
            own,
            negatives[key],
            judged.get(key, {}),
            dropped=dropped,
            relevant_from=relevant_from,
            fingerprint=control.fingerprint,
            unjudged=unjudged,
        )

    for batch in batched(lineages, QUERIES):
        yield RowBatch([row for lineage in batch for row in of(lineage)])


def _judgments(control: Control) -> dict[str, dict[str, Judgment]]:
    """Return judgments by query and document, from the LLM or votes, if any, overridden by the user's own labels.

    Judgments requested with an earlier threshold or re-ranker stay on disk, but are not used.
    """
    labels = own_labels(control)
    judgments: dict[str, dict[str, Judgment]] = {}
    if control.settings.judge.members:
        judgments = _of_llm(control, labels)
    elif control.settings.votes_decide:
        judgments = _by_votes(control, labels)
    for row in labels:
        judgments.setdefault(row.parent, {})[row.id] = row
    return judgments


def _of_llm(control: Control, labels: Sequence[Judgment]) -> dict[str, dict[str, Judgment]]:
    asked = {(pair.query, pair.id) for pair in pairs_of(control, labels)}
    asked |= {(key, id_) for key, ids in control.sources.items() for id_ in ids}
    rows = control.store.rows_of(Judgment, control.plan["judgment"], control.queries)
    judgments: dict[str, dict[str, Judgment]] = {}
    for row in current(control.store, control.plan["corpus"], [row for row in rows if (row.parent, row.id) in asked]):
        judgments.setdefault(row.parent, {})[row.id] = row
    return _without_vague(control, judgments)


def _without_vague(control: Control, judgments: Mapping[str, Mapping[str, Judgment]]) -> dict[str, dict[str, Judgment]]:
    """Leave out the other relevant passages of generated queries that have too many of them (`most_others`).

    They are not called irrelevant: they have no label. On three of four collections, labels of such queries ranked
    systems worse than their sources alone (docs/notes/agreement.md).
    """
    most, cut = control.settings.most_others, control.settings.judge.relevant_from
    written = {negative.id for lineage in control.accepted.lineages for negative in lineage.every(HardNegative)}
    kept: dict[str, dict[str, Judgment]] = {}
    for key, of_query in judgments.items():
        sources = control.sources.get(key, ())
        others = {id_ for id_, row in of_query.items() if row.level >= cut} - set(sources) - written
        vague = most is not None and bool(sources) and len(others) > most
        kept[key] = {id_: row for id_, row in of_query.items() if not (vague and id_ in others)}
    return kept


def _by_votes(control: Control, labels: Sequence[Judgment]) -> dict[str, dict[str, Judgment]]:
    """Return judgments by votes for the pairs that an LLM would judge, the sources, and every relevant passage.

    The sources of a user's own query are the passages labelled as relevant. If there are none, or if the re-rankers do
    not recognise them, nothing is judged.
    """
    cut = control.settings.judge.relevant_from
    known: dict[str, list[str]] = {}
    for row in labels:
        if row.level >= cut:
            known.setdefault(row.parent, []).append(row.id)
    pairs: dict[str, set[str]] = {}
    for pair in pairs_of(control, labels):
        pairs.setdefault(pair.query, set()).add(pair.id)
    judgments: dict[str, dict[str, Judgment]] = {}
    written = {negative.id for lineage in control.accepted.lineages for negative in lineage.every(HardNegative)}
    fp, relevance = control.plan["judgment"], control.tools.pipeline.relevance
    for key, rows in prelabels_of(control).items():
        made = control.sources.get(key)
        if made and relevance == "answer" and not first(rows, made, written):
            continue
        shares = voted(rows, own := made or known.get(key, []))
        if made:
            least, doubtful = least_share(relevance, len(rows)), WAY["subject"]
            chosen = relevant({id_: shares[id_] for id_ in shares if id_ not in written}, made, relevance, len(rows))
            chosen |= {id_ for id_ in shares.keys() & written if shares[id_] >= least}
        else:
            doubtful, chosen = PEOPLES, {id_ for id_, share in shares.items() if share >= PEOPLES or id_ in own}
        for id_, share in shares.items():
            # Passages that may be about a generated query's subject are not called irrelevant, because a mined negative
            # must be certain.
            if id_ in chosen or (share < doubtful and id_ in pairs.get(key, ())):
                judgments.setdefault(key, {})[id_] = Judgment(
                    key=row_key("vote", f"{key}/{id_}", fp),
                    parent=key,
                    fingerprint=fp,
                    ordinal=0,
                    id=id_,
                    level=cut if id_ in chosen else 0,
                    judge="votes",
                )
    return judgments


DECISIONS = WholeStep(
    "decision", (Judgment,), Decision, 2, label="decisions", work=_work, parts=_parts, pending=all_parents
)
