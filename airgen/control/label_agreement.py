"""How often the judge agrees with the user's own labels, which it does not decide.

The LLM judges a few of these pairs too. Votes know the other relevant passages of the query, but not the one in
question.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from airgen.control.judgment import current
from airgen.control.table2 import BROUGHT
from airgen.dataset.human_labels import agreement_note
from airgen.settings import ControlSettings
from airgen.steps.step import Plan
from airgen.steps.votes import PEOPLES, voted
from airgen.storage.records import Decision, Judgment, Prelabel
from airgen.storage.store import Store

Labels = Mapping[tuple[str, str], bool]
"""Whether a passage is relevant to a query, by the keys of both."""


def label_agreement(
    store: Store, plan: Plan, settings: ControlSettings, decisions: Iterable[Decision]
) -> dict[str, Any] | None:
    """Return the note for the manifest on how often the judge agrees with the user's labels; None if nothing tells.

    Args:
        store: The work database.
        plan: The fingerprints of a finished quality control.
        settings: Its settings.
        decisions: Its decisions, of which those by the user's labels count.
    """
    cut = settings.judge.relevant_from
    labels = {(row.parent, row.id): (row.level or 0) >= cut for row in decisions if row.reason.startswith(BROUGHT)}
    if not labels:
        return None
    by_llm = bool(settings.judge.members)
    judged = dict(_of_llm(store, plan, labels, cut) if by_llm else _of_votes(store, plan, labels))
    if not judged:
        return None
    pairs = [(labels[pair], relevant) for pair, relevant in judged.items()]
    return agreement_note("judge" if by_llm else "votes", pairs)


def _of_llm(store: Store, plan: Plan, labels: Labels, cut: int) -> Iterator[tuple[tuple[str, str], bool]]:
    rows = store.rows_of(Judgment, plan["judgment"], {query for query, _ in labels})
    for row in current(store, plan["corpus"], [row for row in rows if (row.parent, row.id) in labels]):
        yield (row.parent, row.id), row.level >= cut


def _of_votes(store: Store, plan: Plan, labels: Labels) -> Iterator[tuple[tuple[str, str], bool]]:
    """Yield the votes on the labelled passages of queries that have another relevant passage."""
    steps = sorted(step for step in plan if step.startswith("prelabel:"))
    prelabels: dict[str, list[Prelabel]] = {}
    for step in steps:
        for row in store.rows_of(Prelabel, plan[step], {query for query, _ in labels}):
            prelabels.setdefault(row.parent, []).append(row)
    relevant_to: dict[str, list[str]] = {}
    for (query, passage), relevant in labels.items():
        if relevant:
            relevant_to.setdefault(query, []).append(passage)
    for query, passage in labels:
        known = [other for other in relevant_to.get(query, ()) if other != passage]
        shares = voted(prelabels[query], known) if known and query in prelabels else {}
        if passage in shares:
            yield (query, passage), shares[passage] >= PEOPLES
