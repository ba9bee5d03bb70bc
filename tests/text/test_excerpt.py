"""The part of a document that a slow model reads."""

from random import Random

from airgen.text.excerpt import LETTERS, excerpt

SENTENCES = [f"Sentence number {place} says something of the hive and of its bees." for place in range(100)]
LONG = "The hive\n\n" + " ".join(SENTENCES)


def test_a_short_document_is_shown_whole() -> None:
    text = "The hive\n\n" + " ".join(SENTENCES[:5])
    assert excerpt(text, "en") == excerpt(text, "en", Random(1)) == text


def test_the_beginning_is_whole_sentences_below_the_title() -> None:
    part = excerpt(LONG, "en")
    assert part.startswith("The hive\n\nSentence number 0 ") and part.endswith("bees.")
    assert LETTERS * 0.8 < len(part) < LETTERS + 20


def test_other_parts_are_drawn_and_hold_whole_sentences() -> None:
    parts = {excerpt(LONG, "en", Random(seed)) for seed in range(30)}
    assert len(parts) > 20
    for part in parts:
        title, text = part.split("\n\n")
        assert title == "The hive" and text in LONG and text.startswith("Sentence number") and text.endswith("bees.")
        assert len(text) > LETTERS // 3


def test_text_without_sentences_is_cut_and_ideographs_sooner() -> None:
    assert len(excerpt("a" * 9000, "en")) == LETTERS
    chinese = "蜂箱\n\n" + "蜜蜂在冬天靠储存的蜂蜜过活。" * 100
    assert len(excerpt(chinese, "zh")) < LETTERS // 2 and excerpt(chinese, "zh").endswith("。")
