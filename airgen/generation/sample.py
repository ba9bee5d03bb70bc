"""Sample the passages for which queries are written (paper 2.3, step 1), by a seeded permutation of the corpus.

For multi-hop queries (not in the paper), a share of the samples has a second passage from the same document, one of the
`NEAR` passages around the first. The prompts show both, the query must need both, and both are its positives.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from airgen.components.keys import canonical_json, fingerprint, rng, row_key
from airgen.corpus.readers.metadata import metadata_of
from airgen.errors import UsageError
from airgen.settings import Pipeline
from airgen.steps.step import Plan
from airgen.storage.records import Sample
from airgen.storage.store import Store

NEAR = 6
"""Number of candidates for the second passage of a document: those nearest to the first."""


PARTNERS = "set `chunk` in the corpus, or use task: long-doc"
"""Advice on how documents get a second passage."""


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
    """Return a hash of everything on which samples depend besides the corpus."""
    generation = pipeline.generation
    strata = {"stratify": generation.stratify} if generation.stratify else {}
    return fingerprint(stage="sample", version=1, seed=seed, multi_hop=[generation.multi_hop, NEAR], **strata)


def with_second_passages(store: Store, plan: Plan, samples: Sequence[Sample], share: float) -> list[Sample]:
    """Give each new sample a second passage with probability `share`, and return all samples.

    Raises UsageError if no document has a second passage.
    """
    known = {row.key: row for row in store.rows_of(Sample, plan["sample"], [sample.parent for sample in samples])}
    new = [sample for sample in samples if sample.key not in known]
    wanted = [sample for sample in new if rng(sample.key, "multi-hop").random() < share]
    near = defaultdict[str, list[str]](list)
    keys = [sample.parent for sample in wanted]
    for key, other in store.query(_NEAR, [plan["corpus"], keys, NEAR]):
        near[key].append(other)
    chosen = {
        sample.key: replace(sample, second=min(others, key=lambda key: row_key("partner", sample.key, key)))
        for sample in wanted
        if (others := near[sample.parent])
    }
    if len(wanted) >= 5 and not chosen and not known:
        raise UsageError(f"generation.multi_hop: none of the sampled documents has a second passage: {PARTNERS}")
    return [known.get(sample.key) or chosen.get(sample.key) or sample for sample in samples]


def draw_samples(
    store: Store,
    plan: Plan,
    count: int,
    per_passage: int,
    frame: Collection[str] | None = None,
    stratify: str | None = None,
) -> list[Sample]:
    """Return the first `count` samples of the permutation of the corpus, or of the documents with ids in `frame`; fewer
    if it is exhausted. With `stratify`, a metadata name, they are drawn evenly over its values.

    Raises UsageError if no passage has metadata of this name.
    """
    strata = {} if stratify is None else _strata(store, plan["corpus"], stratify)
    samples: list[Sample] = []
    for turn in range(per_passage):
        left = count - len(samples)
        if left <= 0:
            break
        names = store.passage_names(plan["corpus"])
        keys = (key for key, id_ in names if frame is None or id_ in frame)
        drawn: Iterable[tuple[str, str]] = ((row_key("sample", key, plan["sample"], turn), key) for key in keys)
        if stratify is not None:
            drawn = _evenly(drawn, strata)
        samples += [Sample(key, parent, plan["sample"], turn) for key, parent in heapq.nsmallest(left, drawn)]
    return samples


def _strata(store: Store, corpus: str, name: str) -> dict[str, str]:
    """Return the value of this metadata by passage key."""
    rows = {key: metadata_of(text) for key, text in store.metadata(corpus)}
    if not any(name in values for values in rows.values()):
        known = sorted({field for values in rows.values() for field in values})
        has = f"it has {', '.join(known)}" if known else "it has none: name columns in the corpus's `metadata`"
        raise UsageError(f"generation.stratify: {name!r} is not metadata of the corpus ({has})")
    return {key: canonical_json(values.get(name)) for key, values in rows.items()}


def _evenly(drawn: Iterable[tuple[str, str]], strata: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the samples with keys that order them round-robin over the values: the key begins with the sample's
    position among those with the same value.
    """
    places: Counter[str] = Counter()
    for key, passage in sorted(drawn):
        value = strata.get(passage, "")
        yield f"{places[value]:08x}{key[8:]}", passage
        places[value] += 1
