"""Which split a query belongs to (paper appendix A.4).

QA: dev to test is 1:4 by a hash of the query's key, so a query keeps its split when others are added.
Long-Doc: one whole dataset of each domain is dev, the others are test; earlier decisions are kept.

>>> split_of("some key", {"dev": 1, "test": 4}) in ("dev", "test")
True
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def split_of(query_key: str, ratios: Mapping[str, int]) -> str:
    """The split of a query, which depends only on its key and the ratios, not on their order.

    Raises ValueError for ratios that are negative or sum to 0.
    """
    total = sum(ratios.values())
    if total <= 0 or min(ratios.values()) < 0:
        raise ValueError(f"split ratios {dict(ratios)} must be whole numbers, at least one above 0")
    place = _hash(f"split\x1f{query_key}") % total
    for name in sorted(ratios):
        place -= ratios[name]
        if place < 0:
            return name
    raise AssertionError("unreachable: the ratios sum to the total")


def long_doc_splits(
    datasets: Iterable[tuple[str, str]], earlier: Mapping[tuple[str, str], str] | None = None
) -> dict[tuple[str, str], str]:
    """The split of each Long-Doc dataset, given as (domain, name): one dev in each domain, the others test.

    The decisions in `earlier` are kept. In a domain without dev, the new dataset with the lowest hash becomes dev,
    unless the domain has only one dataset, which is needed as test.
    """
    decided = dict(earlier or {})
    wanted = sorted(set(datasets))
    result = {pair: decided[pair] for pair in wanted if pair in decided}
    for domain in sorted({domain for domain, _ in wanted}):
        members = [pair for pair in wanted if pair[0] == domain]
        new = [pair for pair in members if pair not in decided]
        has_dev = any(split == "dev" for pair, split in decided.items() if pair[0] == domain)
        if not has_dev and len(members) > 1 and new:
            dev = min(new, key=lambda pair: (_hash(f"long-doc\x1f{pair[0]}\x1f{pair[1]}"), pair))
            result[dev] = "dev"
        for pair in new:
            result.setdefault(pair, "test")
    return result
