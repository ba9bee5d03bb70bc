from __future__ import annotations

from airgen.records import flat_text, prompt_text, storable
from airgen.sequences import batched


def test_batches_hold_every_row_in_order() -> None:
    assert list(batched("abcde", 2)) == [["a", "b"], ["c", "d"], ["e"]]
    assert list(batched(["aaa", "b", "cc", "d"], 3, len)) == [["aaa"], ["b", "cc"], ["d"]]
    assert list(batched([], 2)) == []


def test_texts_are_joined_with_their_titles_in_two_ways() -> None:
    assert flat_text("Wings", "They bend.") == "Wings They bend."
    assert prompt_text("Wings", "They bend.") == "Wings\n\nThey bend."
    assert flat_text("", "They bend.") == prompt_text(None, "They bend.") == "They bend."


def test_what_is_stored_has_no_lone_surrogates_and_no_nul() -> None:
    assert storable("a\ud800b\x00c") == "a\ufffdbc"
    assert storable("naïve") == "naïve"
