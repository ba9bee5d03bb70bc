"""Queries with many relevant passages: broad ones, or ones whose known passage says little."""

from airgen.dataset.beir import BeirDataset

MANY_POSITIVES = 10
"""A query with more relevant passages should be checked, since nDCG@10 cannot show them all."""


def broad_queries(dataset: BeirDataset, split: str) -> str:
    """Return a sentence about the queries of a split with many relevant passages; empty without such queries."""
    labels = dataset.qrels(split).labels
    counts = {query: sum(label > 0 for label in of_query.values()) for query, of_query in labels.items()}
    many = sorted(
        (query for query in counts if counts[query] > MANY_POSITIVES), key=lambda query: (-counts[query], query)
    )
    if not many:
        return ""
    have = "has" if len(many) == 1 else "have"
    return (
        f"{len(many):,} of {len(counts):,} queries {have} more than {MANY_POSITIVES} relevant passages, {many[0]} the "
        f"most ({counts[many[0]]}): votes label every passage as relevant that scores about as high as the known "
        f"one. If these questions are not broad, choose a better passage in the labels"
    )
