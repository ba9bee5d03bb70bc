"""Which passages queries are written for (paper 2.3, step 1): a seeded permutation of the corpus.

Multi-hop queries (not in the paper): a share of the samples has a second passage of the same document, one of the
`NEAR` around the first. The prompts show both, the query must need both, and both are its positives.
"""

import heapq
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace

from airgen.errors import UsageError
from airgen.keys import fingerprint, rng, row_key
from airgen.records import Sample
from airgen.settings import Pipeline
from airgen.steps.stage import Plan
from airgen.store import Store

NEAR = 6
"""How many passages of the document the second one is drawn from: those that stand nearest to the first."""


PARTNERS = "set `chunk` in the corpus, or use task: long-doc"
"""How documents get a second passage."""


_NEAR = """
WITH ordered AS (
    SELECT t.document, t.key, row_number() OVER (PARTITION BY t.document ORDER BY t.start, t.key) AS place
    FROM membership m JOIN passage t ON t.key = m.key WHERE m.fingerprint = $1 AND t.document <> ''
    AND t.document IN (SELECT p.document FROM passage p WHERE p.key IN (SELECT unnest($2)))
)
SELECT one.key, other.key FROM ordered one JOIN ordered other USING (document)
WHERE one.key IN (SELECT unnest($2)) AND other.key <> one.key
QUALIFY row_number() OVER (PARTITION BY one.key ORDER BY abs(other.place - one.place), other.place) <= $3
"""


def sample_fingerprint(pipeline: Pipeline, seed: int | str) -> str:
    """A hash of what samples depend on besides the corpus."""
    return fingerprint(stage="sample", version=1, seed=seed, multi_hop=[pipeline.generation.multi_hop, NEAR])


def with_second_passages(store: Store, plan: Plan, samples: Sequence[Sample], share: float) -> list[Sample]:
    """The samples; a new one has a second passage with the chance `share`. Raises UsageError if no document has one."""
    known = {row.key: row for row in store.made(Sample, plan["sample"], [sample.parent for sample in samples])}
    wanted = [one for one in samples if one.key not in known and rng(one.key, "multi-hop").random() < share]
    near = defaultdict[str, list[str]](list)
    keys = [sample.parent for sample in wanted]
    for key, other in store.query(_NEAR, [plan["corpus"], keys, NEAR]):
        near[key].append(other)
    chosen = {
        one.key: replace(one, second=min(others, key=lambda key: row_key("partner", one.key, key)))
        for one in wanted
        if (others := near[one.parent])
    }
    if len(wanted) >= 5 and not chosen and not known:
        raise UsageError(f"generation.multi_hop: no document that was drawn has a second passage: {PARTNERS}")
    return [known.get(sample.key) or chosen.get(sample.key) or sample for sample in samples]


def draw_samples(
    store: Store, plan: Plan, count: int, per_passage: int, frame: Collection[str] | None = None
) -> list[Sample]:
    """The first `count` samples of the permutation over the corpus, or over the documents of `frame`, by id; fewer
    where it is spent."""
    found: list[Sample] = []
    for turn in range(per_passage):
        left = count - len(found)
        if left <= 0:
            break
        names = store.passage_names(plan["corpus"])
        keys = (key for key, id_ in names if frame is None or id_ in frame)
        drawn = ((row_key("sample", key, plan["sample"], turn), key) for key in keys)
        found += [Sample(key, parent, plan["sample"], turn) for key, parent in heapq.nsmallest(left, drawn)]
    return found
