"""Splits: by a query's own key, near the ratio, and never different because others came."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airgen.dataset.secret import long_doc_splits, split_of

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
