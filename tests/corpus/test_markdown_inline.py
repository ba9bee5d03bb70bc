"""Inline Markdown: as the plain patterns find it, which are short and quadratic."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airgen.corpus.readers.markdown_inline import unmark

PATTERNS = [
    (re.compile(r"!\[([^\]]*)\]\([^)]*\)"), r"\1"),
    (re.compile(r"\[([^\]]+)\]\((?:[^()\s]|\([^)]*\))*(?:\s+\"[^\"]*\")?\)"), r"\1"),
    (re.compile(r"\[([^\]]+)\]\[[^\]]*\]"), r"\1"),
    (re.compile(r"(?<!\w)(\*\*|__)(?=\S)(.+?)(?<=\S)\1(?!\w)"), r"\2"),
    (re.compile(r"(?<![\w*])\*(?=\S)([^*]+?)(?<=\S)\*(?![\w*])"), r"\1"),
    (re.compile(r"<!--.*?-->", re.DOTALL), ""),
    (re.compile(r"</?[a-zA-Z][^<>]{0,300}>"), ""),
]


def plain(text: str) -> str:
    for pattern, replacement in PATTERNS:
        text = pattern.sub(replacement, text)
    return text.strip()


@given(st.lists(st.sampled_from([*'![]()"*_ \na<>-/', "](", "![", "**", "__", "<!--", "-->", '(b "c")', "<i>"])))
@settings(max_examples=500)
@example(list('[[a](b(c)d "e")'))
@example(list("***a*** __b **c__ d**"))
@example(list('[a](b "c'))
def test_the_same_as_the_plain_patterns(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert unmark(text) == plain(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("see [the **guide**](g.html)", "see the guide"),
        ('![a bee](bee.png "Bee") flies', "a bee flies"),
        ("[wiki](https://en.wikipedia.org/wiki/Bee_(insect)) and [x][1]", "wiki and x"),
        ("a<!-- not\nshown --> b", "a b"),
    ],
)
def test_words_stay(text: str, wanted: str) -> None:
    assert unmark(text) == wanted
