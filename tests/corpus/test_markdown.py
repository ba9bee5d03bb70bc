"""Markdown: every word of the rendered page stays, and so does what only looks like a tag."""

import html
import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from airgen.corpus.readers.markdown import MarkdownReader, markdown_blocks
from airgen.corpus.readers.reader import Place
from airgen.corpus.readers.sections import Block
from airgen.storage.records import Document

INLINE = st.sampled_from(
    ["word", "`git checkout <branch>`", "--flag <path>", "List<Integer>", "<https://a.example/b>", "**bold**", "*em*",
     "[link](a.md)", "[ref][r]", "![alt *text*](b.png)", "~~gone~~", "a_b_c", "<b>html</b>", "&copy;", "\\*star\\*",
     "x[^1]", "``a ` b``", "<br>", "<!-- unseen -->", "**open", "`open", "[open", "5 < 6 > 4", "| pipe"]
)  # fmt: skip
LINE = st.lists(INLINE, min_size=1, max_size=5).map(" ".join)
MARKS = st.sampled_from(
    ["", "# ", "## ", "- ", "* ", "1. ", "> ", "> - ", "    ", "  - ", "```\n", "~~~~\n", "| a | b |\n|---|---|\n| "]
)
PAGE = st.lists(st.tuples(MARKS, LINE, st.sampled_from(["\n", "\n\n", "\n===\n", "\n```\n"])), max_size=12).map(
    lambda parts: "".join("".join(part) for part in parts)
)


def missing(text: str) -> list[str]:
    """The words of the page, as a browser shows it, that are not in our text in their order, and alt texts."""
    lexbor = pytest.importorskip("selectolax.lexbor")
    from mdit_py_plugins.footnote import footnote_plugin

    parser = MarkdownIt("commonmark", {"maxNesting": 100}).enable(["table", "strikethrough"]).use(footnote_plugin)
    page = parser.render(text)
    found, at, lost = plain(text), 0, []
    # Two elements in one line have no space between them, so a word of one is a part of our line.
    for word in re.findall(r"\w+", lexbor.LexborHTMLParser(page).body.text(separator="\n")):
        place = found.find(word, at)
        lost += [word] if place < 0 else []
        at = at if place < 0 else place + len(word)
    alt = " ".join(re.findall(r'<img [^>]*alt="([^"]*)"', page))
    return lost + [word for word in re.findall(r"\w+", html.unescape(alt)) if word not in found]


def plain(text: str) -> str:
    return "\n".join(block.text for block in markdown_blocks(text)[1])


@given(PAGE)
@settings(max_examples=150)
@example("`open `git checkout <branch>` word `git checkout <branch>`")
def test_no_word_of_the_rendered_page_is_missing(text: str) -> None:
    assert not missing(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Use `git checkout <branch>` now", "Use git checkout <branch> now"),
        ("tool --flag <path>", "tool --flag <path>"),
        ("a List<Integer> of them", "a List<Integer> of them"),
        ("see <https://a.example/b>", "see https://a.example/b"),
        ("````md\n```js\ncode()\n```\n````", "```js\ncode()\n```"),
        ("see [the **guide**](g.html)", "see the guide"),
        ('![a bee](bee.png "Bee") flies', "a bee flies"),
        ("[wiki](https://en.wikipedia.org/wiki/Bee_(insect)) and [x](y)", "wiki and x"),
        ("a<!-- not\nshown --> b", "a b"),
        ("<b>x</b> <i>unclosed", "x <i>unclosed"),
        ("<script>\nalert(1)\n</script>\n\nafter", "after"),
        ("<p align=center>\nİ &amp; text\n</p>", "İ & text"),
        ("| a | b |\n|---|---|\n| 1 | `x` |", "a | b\n1 | x"),
        ("- a\n- b\n  - c", "- a\n- b\n  - c"),
        ("fact[^n]\n\n[^n]: source", "fact[1]\n[1] source"),
        ("> quoted\n>\n> twice", "quoted\ntwice"),
    ],
)
def test_the_text_of_a_page(text: str, wanted: str) -> None:
    assert plain(text) == wanted


@pytest.mark.parametrize("front", ["---\ntitle: 'One'\ntags: [a]\n---\n", '+++\ntitle = "One"\n+++\n'])
def test_the_title_of_the_front_matter(front: str) -> None:
    assert markdown_blocks(f"{front}# Two\n\ntext") == ("One", [Block("Two", 1), Block("text")])


def test_a_page_becomes_sections_below_their_headings(tmp_path: Path) -> None:
    (tmp_path / "guide.md").write_text(
        "# Guide\n\nIntro [link](http://x.y/z_(a)) and **bold** text.\n\n"
        "## Use\n\n```python\n# no heading\nx = 1\n```\n\nDone.\n\nUnderlined\n----------\n\nLast *words*.\n"
    )
    settings = MarkdownReader.Settings(path=".", split="sections", min_words=1)
    rows = [row for row in MarkdownReader(settings, Place(tmp_path)).read() if isinstance(row, Document)]
    assert [(row.id, row.title, row.text) for row in rows] == [
        ("guide#guide", "Guide", "Intro link and bold text."),
        ("guide#use", "Guide > Use", "# no heading\nx = 1\n\nDone."),
        ("guide#underlined", "Guide > Underlined", "Last words."),
    ]


def test_the_words_of_every_markdown_file_that_packages_ship() -> None:
    """Read-me files of installed packages, written by many people."""
    import importlib.metadata as metadata

    shipped = (file for dist in metadata.distributions() for file in dist.files or [] if file.suffix == ".md")
    read = 0
    for path in sorted({Path(str(file.locate())) for file in shipped})[:60:6]:
        if path.is_file() and path.stat().st_size < 100_000:
            text = path.read_text("utf-8", "replace")
            assert not missing(re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)), path
            read += 1
    if not read:
        pytest.skip("no package ships Markdown")
