"""Splits: by a query's own key, near the ratio, and never different because others came."""

import hashlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airgen.dataset.secret import exact_splits, long_doc_splits, split_of

PAIRS = st.lists(
    st.tuples(st.sampled_from(["law", "book", "arxiv"]), st.text("abcdef", min_size=1, max_size=3)), max_size=12
)


def test_known_keys_keep_their_split_between_releases() -> None:
    # Published datasets depend on these: a change of the hash is a change of every dataset.
    splits = [split_of(f"query-{i}", {"dev": 1, "test": 4}) for i in range(24)]
    assert [i for i, split in enumerate(splits) if split == "dev"] == [0, 13, 15, 19, 23]


def test_ratio_one_to_four() -> None:
    dev = sum(split_of(f"key {i}", {"dev": 1, "test": 4}) == "dev" for i in range(10_000))
    assert abs(dev - 2000) < 4 * (10_000 * 0.2 * 0.8) ** 0.5


@given(st.text(), st.dictionaries(st.text("abc", min_size=1), st.integers(0, 5), min_size=1))
def test_split_depends_on_the_key_alone(key: str, ratios: dict[str, int]) -> None:
    if not sum(ratios.values()):
        with pytest.raises(ValueError, match="at least one above 0"):
            split_of(key, ratios)
        return
    split = split_of(key, ratios)
    assert ratios[split] > 0
    assert split == split_of(key, dict(sorted(ratios.items(), reverse=True)))


def placed(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()


def test_the_papers_counts_are_exact() -> None:
    splits = exact_splits([f"passage {i}" for i in range(1731)], {"dev": 1, "test": 4}, placed)
    assert Counter(splits.values()) == {"dev": 346, "test": 1385}
    # The order of the queries does not reveal which query of a block of five is dev.
    assert len({i % 5 for i in range(1731) if splits[f"passage {i}"] == "dev"}) == 5


@given(st.integers(0, 60), st.integers(0, 60), st.dictionaries(st.sampled_from("abc"), st.integers(0, 4), min_size=1))
def test_exact_splits_hold_the_ratio_and_move_only_the_last_block(
    count: int, more: int, ratios: dict[str, int]
) -> None:
    sources = [f"passage {i}" for i in range(count + more)]
    if not sum(ratios.values()):
        with pytest.raises(ValueError, match="at least one above 0"):
            exact_splits(sources, ratios, placed)
        return
    before, after = (exact_splits(sources[:n], ratios, placed) for n in (count, count + more))
    total = sum(ratios.values())
    for name, ratio in ratios.items():
        assert abs(list(before.values()).count(name) - count * ratio / total) < 1
    moved = [source for source in before if before[source] != after[source]]
    assert set(moved) <= set(sources[count - count % total : count])


@given(PAIRS, PAIRS)
def test_long_doc_one_dev_per_domain_and_no_change_by_growth(
    first: list[tuple[str, str]], more: list[tuple[str, str]]
) -> None:
    before = long_doc_splits(first)
    after = long_doc_splits([*first, *more], before)
    assert set(after) == set(first) | set(more)
    assert {pair: after[pair] for pair in before} == before
    for domain in {domain for domain, _ in after}:
        members = [split for (d, _), split in after.items() if d == domain]
        assert members.count("dev") == (1 if len(members) > 1 and not _stuck(domain, before, after) else 0)
        assert "test" in members


def _stuck(domain: str, before: dict[tuple[str, str], str], after: dict[tuple[str, str], str]) -> bool:
    """All of the domain's datasets were decided as test when there was one only, and none is new."""
    return all(pair in before for pair in after if pair[0] == domain) and "dev" not in [
        split for (d, _), split in before.items() if d == domain
    ]
