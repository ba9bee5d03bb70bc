import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airgen.components.keys import rng
from airgen.text import near_duplicates
from airgen.text.near_duplicates import NearDuplicateIndex, alike, folded_words, word_counts

TEXTS = st.lists(
    st.lists(st.sampled_from(["a", "bb", "ccc", "dddd", "eeeee", "f", "gg", "hhh", "iiii", "jjjjj"]), max_size=9),
    max_size=25,
)


@settings(deadline=None)  # a busy machine is no failure
@given(TEXTS, st.sampled_from([0.3, 0.5, 2 / 3, 0.75, 0.8, 0.9, 1.0]), st.sampled_from([1, 2, 3]))
def test_the_earliest_text_alike_is_found_as_by_comparing_all_pairs(
    texts: list[list[str]], threshold: float, together: int
) -> None:
    seen, sets = NearDuplicateIndex("en", threshold), list[frozenset[str]]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(near_duplicates, "_TOGETHER", together)
        for text in texts:
            new = frozenset(text)
            expected = next((place for place, old in enumerate(sets) if alike(new, old, threshold)), None)
            assert seen.find(" ".join(text)) == expected
            assert seen.add(" ".join(text)) == expected
            sets.append(new)
    assert len(seen) == len(texts)


@pytest.mark.parametrize(
    ("left", "right", "language", "same"),
    [
        ("How do bees make honey?", "how do bees make honey", "en", True),
        ("how do bees make honey", "how do bees make wax", "en", False),  # 4 of 6 words
        ("a b c d e f g h i", "a b c d e f g h", "en", True),  # 8 of 9
        ("Ｗｈｏ made it", "who made it", "en", True),  # full width
        ("这座房子有多老", "这座房子有多老？", "zh", True),
        ("", "", "en", False),
    ],
)
def test_near_duplicates_by_their_words(left: str, right: str, language: str, same: bool) -> None:
    seen = NearDuplicateIndex(language)
    assert seen.add(left) is None
    assert (seen.add(right) == 0) == same


def test_words_are_folded() -> None:
    assert folded_words("Straße ＩＳ ﬁne", "de") == ["strasse", "is", "fine"]


def test_known_counts_of_words_change_the_time_alone() -> None:
    from collections import Counter

    texts = [f"how {'very ' * (place % 2)}common are rare{place % 7} words of {place % 5}" for place in range(60)]
    counts = Counter(word for text in texts for word in set(folded_words(text, "en")))
    plain, counted = NearDuplicateIndex("en"), NearDuplicateIndex("en", counts=counts)
    assert [plain.add(text) for text in texts] == [counted.add(text) for text in texts]
    steps = [sum(map(len, one._places.values())) for one in (plain, counted)]
    assert steps[0] == steps[1] and max(map(len, counted._places.values())) < max(map(len, plain._places.values()))


def test_few_texts_are_compared_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log has many queries of the same few hundred words, and the comparisons must not grow with its square."""
    compared = []

    def counted(left: frozenset[str], right: frozenset[str], threshold: float) -> bool:
        compared.append(1)
        return alike(left, right, threshold)

    monkeypatch.setattr(near_duplicates, "alike", counted)
    random, words = rng("a log", 0), [f"word{number}" for number in range(300)]
    seen = NearDuplicateIndex("en")
    for size in (1000, 2000):
        compared.clear()
        for _ in range(1000):
            seen.add(" ".join(random.sample(words, 6)))
        assert len(seen) == size and len(compared) < size
    compared.clear()
    texts = [f"how to open the blue door {number}" for number in range(1000)]
    seen = NearDuplicateIndex("en", counts=word_counts(texts, "en"))
    assert all(seen.add(text) is None for text in texts)
    assert not compared  # each differs from all others in one word of seven, which is too much
