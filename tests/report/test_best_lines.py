"""Which lines of a passage are shown first."""

from hypothesis import given
from hypothesis import strategies as st

from airgen.report.best_lines import BestLines

FILLER = "Nothing of this is about what was asked, and it goes on for a while. " * 12


def test_the_window_begins_with_the_sentence_of_the_words() -> None:
    best = BestLines("How long does an access token live?", ["how", "does", "an"])
    text = FILLER + "Access tokens live for an hour, others longer. " + FILLER
    assert text[best.start(text, 400) :].startswith("Access tokens live")
    # Several words together count more than one word often.
    text = "A token. " + FILLER + "token token token. " + FILLER + "The access of a token is long.\n" + FILLER
    assert text[best.start(text, 400) :].startswith("The access of a token")


def test_a_beginning_that_is_as_good_stays() -> None:
    best = BestLines("access token", [])
    assert best.start("An access token. " + FILLER + "An access token.", 400) == 0
    assert best.start("short, access token", 400) == 0 and best.start(FILLER, 400) == 0
    assert BestLines("the of", ["the", "of"]).start(FILLER + "the of", 400) == 0
    assert BestLines("", []).start(FILLER, 400) == 0 and BestLines("?!", []).start(FILLER, 400) == 0


@given(st.text(max_size=60), st.text(max_size=900), st.integers(1, 400))
def test_any_text_has_a_beginning(query: str, text: str, length: int) -> None:
    assert 0 <= BestLines(query, []).start(text, length) <= len(text)
