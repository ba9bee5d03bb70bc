from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airgen.pipeline.stages.attributes import (
    copied,
    duplicates,
    longest_common_run,
    names_character,
    off_subject,
    overlap,
    repeats_itself,
    self_reference,
    wrong_length,
)
from airgen.text import language_check as tongue

WORDS = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=12)


@pytest.mark.parametrize(
    ("text", "length", "good"),
    [
        ("one two three four", "lt5", True), ("one two three four five", "lt5", False),
        ("one two three four five six seven eight nine", "lt10", True), (" ".join("w" * 10), "lt10", False),
        (" ".join("w" * 10), "10to20", True), (" ".join("w" * 20), "10to20", True),
        (" ".join("w" * 21), "10to20", False),
        (" ".join("w" * 19), "ge20", False), (" ".join("w" * 20), "ge20", True),
        ("", "lt5", False),
    ],
)  # fmt: skip
def test_length_classes_at_their_edges(text: str, length: str, good: bool) -> None:
    assert (wrong_length(text, length, "en") is None) == good


@pytest.mark.parametrize(
    ("text", "found"),
    [("what does the document say of bees", True), ("according to the text, who won", True),
     ("This passage is about bees", True),
     ("the author of the theory", True), ("how do I document my code", False), ("text classification methods", False),
     ("which passage leads to the tomb", False), ("section 12 of the act", False),
     ("how often does it appear in the character's description", True), ("which dash is the character U+2013", False),
     ("rules in the provided documentation", True), ("what results are expected in this scenario", True),
     ("what is the study's purpose?", True), ("what does the report describe about flutter", True),
     ("how does the report generator work", False), ("what did the authors use", True),
     ("what does the character ask about autism", True), ("the worst climate scenario for wheat", False)],
)  # fmt: skip
def test_references_to_the_document(text: str, found: bool) -> None:
    assert (self_reference(text) is not None) == found


@pytest.mark.parametrize(
    ("text", "language", "good"),
    [("wie alt ist das Haus", "de", True), ("这座房子有多老", "zh", True),
     ("how old is it", "zh", False), ("这座房子", "en", False),
     ("Python の例外処理", "ja", True), ("كم عمر هذا البيت", "ar", True), ("कितना पुराना", "hi", True),
     ("বাড়িটি কত পুরানো", "bn", True),
     ("이 집은 얼마나 오래", "ko", True), ("сколько лет дому", "ru", True), ("1234 ?!", "en", False)],
)  # fmt: skip
def test_scripts(text: str, language: str, good: bool) -> None:
    assert (tongue.wrong_script(text, language) is None) == good


@given(WORDS, WORDS)
def test_longest_common_run_against_brute_force(left: list[str], right: list[str]) -> None:
    def runs(words: list[str]) -> set[tuple[str, ...]]:
        return {tuple(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)}

    expected = max((len(run) for run in runs(left) & runs(right)), default=0)
    assert longest_common_run(left, right) == expected == longest_common_run(right, left)


def test_copies() -> None:
    document = "The quick brown fox jumps over the lazy dog near the river bank."
    assert copied("why does the quick brown fox jump", document, "en", 4) is None
    problem = copied("The QUICK brown fox jumps high", document, "en", 4)
    assert problem is not None and "5 words in a row" in problem.text


def test_overlap_counts_distinct_words() -> None:
    assert overlap("bees bees honey frost", "Honey is made by bees.", "en") == pytest.approx(2 / 3)
    assert overlap("", "anything", "en") == 0.0


def test_near_duplicates() -> None:
    assert duplicates("How do bees make honey?", "how do bees make honey", "en")
    assert not duplicates("how do bees make honey", "how do wasps build nests", "en")
    assert not duplicates("", "", "en")


@pytest.mark.parametrize(
    ("query", "language", "good"),
    [
        ("why do bees die", "en", True),  # of the document
        ("what should a keeper do in winter", "en", True),  # of the scenario
        ("I don't understand what keepers do", "en", False),  # who asks is no subject
        ("I can't find my favourite book", "en", False),
        ("what is it", "en", False),  # nothing but function words
        ("warum sterben Bienen", "de", False),
    ],
)
def test_an_original_query_names_something_of_its_subject(query: str, language: str, good: bool) -> None:
    found = off_subject(query, "Bees die of frost.", "A keeper prepares for winter.", "keeper", language)
    assert (found is None) == good


@pytest.mark.parametrize(
    ("query", "character", "good"),
    [
        ("what did the jet engineer observe?", "Jet engineer", False),
        ("what does the engineer need to know", "engineers", False),
        ("what is in the engineer's report", "engineer", False),
        ("why might designers consider stiffness", "designers", True),
        ("what are the engineering standards", "engineer", True),
        ("what is it", "", True),
    ],
)
def test_a_query_does_not_speak_of_its_character(query: str, character: str, good: bool) -> None:
    assert (names_character(query, character) is None) == good


@pytest.mark.parametrize(
    ("query", "good"),
    [
        ("what are the signs and symptoms signs symptoms signs symptoms signs symptoms", False),  # a 1.5B model's
        ("vaccine vaccine for dogs for dogs vaccine for cats dogs", False),  # four of ten words are different ones
        ("is the tax on the sale of a house the tax of the year of the sale", True),
        ("New York, New York", True),
        ("la la la la la la", True),  # a song; too short to tell
    ],
)
def test_a_query_does_not_run_in_circles(query: str, good: bool) -> None:
    assert (repeats_itself(query, "en") is None) == good
