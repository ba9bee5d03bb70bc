"""Faults of typing: seeded, one a query, and of the kind that is said."""

from difflib import SequenceMatcher
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airgen.text.mistyping import AS_WRITTEN, MISSING, SHORTENED, TYPO, mistyped

TEXTS = {
    "en": "how do I keep the temperature of a hive constant",
    "de": "wie halte ich die Temperatur eines Bienenstocks gleichmäßig",
    "zh": "怎样保持蜂箱的温度不变",
    "ru": "как сохранить температуру улья зимой",
}


@pytest.mark.parametrize("language", sorted(TEXTS))
def test_one_fault_of_the_kind_that_is_said(language: str) -> None:
    text, kinds = TEXTS[language], set()
    for seed in range(60):
        changed, kind = mistyped(text, language, Random(seed))
        assert (changed, kind) == mistyped(text, language, Random(seed))
        assert changed != text and kind != AS_WRITTEN
        kinds.add(kind)
        before, after = text.split(), changed.split()
        if kind == TYPO:
            assert len(before) == len(after) and sum(a != b for a, b in zip(before, after, strict=True)) == 1
            assert abs(len(changed) - len(text)) <= 1 and SequenceMatcher(None, text, changed).ratio() > 0.75
        elif kind == MISSING:
            assert len(after) == len(before) - 1 and set(after) <= set(before)
        else:
            assert kind == SHORTENED and len(changed) < len(text) and len(after) == len(before)
    assert TYPO in kinds
    if language == "en":
        assert kinds == {TYPO, MISSING, SHORTENED}


def test_nothing_is_done_where_no_rule_applies() -> None:
    assert mistyped("3.5 a b", "en", Random(1)) == ("3.5 a b", AS_WRITTEN)


@given(st.text(), st.sampled_from(["en", "de", "zh", "ja", "th", "ru", "ar"]), st.integers())
def test_any_text_can_be_mistyped(text: str, language: str, seed: int) -> None:
    changed, kind = mistyped(text, language, Random(seed))
    assert (kind == AS_WRITTEN) == (changed == text)
