"""Multi-hop queries: a share of the samples gets a second passage of the same document (not in the paper).

The prompts show both passages, the query must need both, and both are its positives. The second one is drawn by the
sample's key among the `NEAR` passages around the first, since a long document's ends seldom answer one question
together. It is kept as a row, so it stays when the corpus grows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airgen.errors import UsageError
from airgen.keys import rng, row_key
from airgen.pipeline.stage import Plan
from airgen.records import Partner, Passage, Sample
from airgen.store import Store

NEAR = 6
"""How many passages of the document the second one is drawn from: those that stand nearest to the first."""

PARTNERS = "set `chunk` in the corpus, or use task: long-doc"
"""How documents get a second passage."""

PARTNER = "partner"
"""The plan's name for the rows; only a pipeline with `generation.multi_hop` has it."""

_SIBLINGS = """
SELECT t.document, t.key FROM membership m JOIN passage t ON t.key = m.key
WHERE m.fingerprint = ? AND t.document <> '' AND t.document IN (
    SELECT p.document FROM passage p WHERE p.key IN (SELECT unnest(?))
) ORDER BY t.document, t.start, t.key
"""


def draw_partners(store: Store, plan: Plan, samples: Sequence[Sample], share: float) -> None:
    """Write the row of each sample that has none yet. A sample whose document has one passage keeps that one.

    Raises UsageError if no sample's document has a second passage.
    """
    fingerprint = plan[PARTNER]
    done = {row.parent for row in store.made(Partner, fingerprint)}
    new = [sample for sample in samples if sample.key not in done]
    wanted = [sample for sample in new if rng(sample.key, "multi-hop").random() < share]
    siblings: dict[str, list[str]] = {}
    home: dict[str, str] = {}
    for document, key in store.query(_SIBLINGS, [plan["corpus"], [sample.parent for sample in wanted]]):
        siblings.setdefault(document, []).append(key)
        home[key] = document
    chosen = {}
    for sample in wanted:
        near = _nearest(siblings.get(home.get(sample.parent, ""), []), sample.parent)
        if near:
            chosen[sample.key] = min(near, key=lambda key: row_key("partner", sample.key, key))
    if len(wanted) >= 5 and not chosen and not done:
        raise UsageError(f"generation.multi_hop: no document that was drawn has a second passage: {PARTNERS}")
    store.put(
        [
            Partner(row_key("partner", sample.key, fingerprint), sample.key, fingerprint, 0, chosen.get(sample.key, ""))
            for sample in new
        ]
    )


def _nearest(keys: Sequence[str], own: str) -> list[str]:
    """The passages of a document, in its order, that stand nearest to one of them."""
    if own not in keys:
        return []
    at = keys.index(own)
    places = sorted((place for place in range(len(keys)) if place != at), key=lambda place: (abs(place - at), place))
    return [keys[place] for place in places[:NEAR]]


def load_partners(store: Store, plan: Plan, samples: Sequence[Sample]) -> Mapping[str, Passage | None]:
    """The second passage of each sample, by the sample's key; None for a sample with one passage.

    A sample whose second passage has left the corpus, or that was not drawn for yet, is not in the mapping.
    """
    if PARTNER not in plan:
        return {sample.key: None for sample in samples}
    rows = store.made(Partner, plan[PARTNER], [sample.key for sample in samples])
    keys = {row.passage for row in rows if row.passage}
    members = {key for key, _ in store.passage_names(plan["corpus"], keys)}
    passages = {one.key: one for one in store.rows(Passage, "t.key IN (SELECT unnest(?))", [sorted(members)])}
    return {row.parent: passages.get(row.passage) for row in rows if not row.passage or row.passage in passages}
