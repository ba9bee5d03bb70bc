"""Which wording of a need is exported: by a ratio, by an overlap, by real queries."""

from collections import Counter

import pytest

from airgen.errors import SettingsError
from airgen.generation.wording import choose, nearest
from airgen.settings import GenerationSettings
from airgen.settings.base import validate
from airgen.settings.generation import WordingSettings

OF = {"plain": 0.6, "terms": 0.9, "lay": 0.3, "described": 0.1}


@pytest.mark.parametrize(
    ("target", "wording"),
    [(1.0, "terms"), (0.7, "plain"), (0.44, "lay"), (0.0, "described"), (0.2, "lay")],  # .2: both are .1 away
)
def test_the_nearest_overlap_is_chosen(target: float, wording: str) -> None:
    assert nearest(OF, target) == wording
    assert choose([OF], WordingSettings(overlap=target), ["key"]) == [wording]
    assert choose([OF], WordingSettings(like="log.csv"), ["key"], target) == [wording]


def test_an_unknown_overlap_is_never_nearest() -> None:
    assert nearest({"plain": None, "lay": 0.9}, 0.1) == "lay"
    assert nearest({"plain": None}, 0.1) == "plain"


def test_a_ratio_draws_by_key_and_keeps_to_what_there_is() -> None:
    keys = [str(number) for number in range(2000)]
    counts = Counter(choose([OF] * 2000, WordingSettings(plain=1, terms=1, lay=2), keys))
    assert set(counts) == {"plain", "terms", "lay"}
    assert counts["lay"] / 2000 == pytest.approx(0.5, abs=0.04)
    assert choose([{"plain": 0.5}] * 3, WordingSettings(plain=0, lay=1), keys[:3]) == ["plain"] * 3
    first = choose([OF] * 50, WordingSettings(lay=1), keys[:50])
    assert first == choose([OF] * 60, WordingSettings(lay=1), keys[:60])[:50]  # more queries change nothing


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": "needs", "wording": {"lay": 1, "overlap": 0.5}}, "cannot be combined with overlap or like"),
        ({"method": "needs", "wording": {"overlap": 0.5, "like": "log.csv"}}, "cannot be combined with like"),
        ({"method": "needs", "wording": {"plain": 0}}, "at least one wording"),
        ({"method": "needs", "wording": {"overlap": 1.5}}, "less than or equal to 1"),
        ({"wording": {"lay": 1}}, "wording needs method: needs"),
        ({"method": "needs", "rewrites": 1}, "rewrites: belongs to method: paper"),
        ({"method": "needs", "styles": {"formal": 1}, "lengths": {"lt5": 1}}, "lengths, styles: belongs"),
        ({"method": "needs", "prompts": "small"}, "needs one_call: true"),
        ({"method": "needs", "candidates": 3}, "one draft per query"),
        ({"one_call": True}, "one_call needs prompts: small or method: needs"),
    ],
)
def test_settings_that_contradict_each_other(settings: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        validate(settings, GenerationSettings, "pipeline.yaml")
