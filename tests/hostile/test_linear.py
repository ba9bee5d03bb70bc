"""Every regular expression of the package, and every parser of outside text, takes linear time.

All patterns are found in the source, so a new one cannot be forgotten: it is attacked with repetitions of the marks and
words that stand in it. A parser is attacked by name. Time is the process's own CPU time, and only its growth counts.
"""

# ruff: noqa: E501  # rows of hostile inputs
import ast
import importlib
import io
import itertools
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import regex

import airgen
from airgen.corpus.book_parts import find_apparatus
from airgen.corpus.cleaning.filters import judge_text, normalise
from airgen.corpus.cleaning.mask_personal_data import mask
from airgen.corpus.readers.html import html_blocks
from airgen.corpus.readers.markdown import markdown_blocks
from airgen.corpus.readers.pdf import join_pages
from airgen.corpus.readers.reader import Unusable
from airgen.corpus.readers.sections import Block, sections
from airgen.errors import SettingsError
from airgen.storage.yaml_text import read_yaml
from airgen.tables import DelimitedTable
from airgen.text.character_encodings import guessed
from airgen.text.near_duplicates import folded_words
from airgen.text.sentences import sentences
from airgen.text.token_counts import count_tokens
from airgen.text.words import words

ROOT = Path(airgen.__file__).parent
VERBS = ("compile", "sub", "match", "search", "findall", "split", "fullmatch", "finditer")
MEASURABLE = 0.004  # seconds; below it the growth of CPU time is noise
LONGEST = 64_000  # characters
SCREEN = 4_000  # characters up to which half of them are tried at once, before the growth is measured
GROWTH = 3.0  # of CPU time, where the input doubles: 2 is linear, 4 quadratic
QUICK = 2.5  # a growth that one measurement distinguishes from 4

# Patterns that see only texts of a bounded length, and that length.
BOUNDED = {
    "airgen.corpus.book_parts:_NUMBER": 60,
    "airgen.corpus.book_parts:_ENTRY": 201,
    "airgen.corpus.cleaning.filters:_SENTENCE_END": 40,
    "airgen.tables.read:_TOPICS_FILE": 5_000,
    "airgen.net.http:_DURATION": 100,
    "airgen.net.http:_DURATIONS": 100,
    "airgen.text.sentences:_ABBREVIATIONS": 24,
    "airgen.text.sentences:_NUMBERED": 24,
}
# Patterns that never see a text from outside.
INSIDE = {
    "airgen.corpus.readers.python_topics": "the reference that comes with this Python",
    "airgen.models.fetching": "requirements of the catalogue",
    "airgen.llms.scripted": "the offline double of a model: prompts that airgen made",
    "airgen.net.downloads": "the messages of package managers on this machine",
}


class TooLong(Exception):
    pass


def patterns() -> Iterator[tuple[str, Any]]:
    """(name, pattern) of all calls of `re` and `regex` whose pattern can be computed when the module is loaded."""
    for path in sorted(ROOT.rglob("*.py")):
        module = ".".join(("airgen", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
        text = path.read_text(encoding="utf-8")
        if module in INSIDE or module.endswith("__main__") or not re.search(r"^import (re|regex)$", text, re.MULTILINE):
            continue
        space = dict(vars(importlib.import_module(module)))
        for name, value in space.items():
            for number, found in enumerate(value if isinstance(value, (list, tuple)) else [value]):
                pair = found if isinstance(found, tuple) else (found,)
                if isinstance(pair[0] if pair else None, (re.Pattern, regex.Pattern)):
                    yield f"{module}:{name}" + (f"[{number}]" if isinstance(value, (list, tuple)) else ""), pair[0]
        for node in ast.walk(ast.parse(text)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in VERBS):
                continue
            library = node.func.value
            if not (isinstance(library, ast.Name) and library.id in ("re", "regex")) or node.func.attr == "compile":
                continue
            try:
                source = eval(compile(ast.Expression(node.args[0]), module, "eval"), space)
            except NameError:
                continue  # made from the settings of one run; the parsers below use them
            if isinstance(source, str):
                flags = next((ast.unparse(word.value) for word in node.keywords if word.arg == "flags"), "0")
                yield f"{module}:{node.lineno}", space[library.id].compile(source, eval(flags, space))


PATTERNS = sorted(dict(patterns()).items())


def hostile(pattern: Any) -> list[str]:
    """What to repeat: the marks of the pattern, pairs of them, and its words."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    marks = sorted({mark for mark in source if not mark.isalnum() and mark != "\\"} | set("a1A .\n"))[:12]
    found = re.findall(r"[A-Za-z<!@:/.\[\]]{2,12}", re.sub(r"\\[a-zA-Z]|\(\?\w*", " ", source))[:12]
    return [*marks, *found, *("".join(pair) for pair in itertools.permutations(marks, 2))]


def spent(run: Callable[[str], object], text: str) -> float:
    start = time.process_time()
    run(text)
    return time.process_time() - start


def assert_linear(run: Callable[[str], object], make: Callable[[int], str], longest: int = LONGEST) -> None:
    """Double the input until time can be measured; then another doubling may cost at most three times as much.

    The alarm ends what is exponential. A growth that was measured once can be another process's; then the least of
    three is compared.
    """

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 30)
    try:
        size = 50
        if longest <= SCREEN and spent(run, make(longest // 2)) < MEASURABLE / 4:  # as much as quadratic time takes
            return
        while size < longest and spent(run, make(size)) < MEASURABLE:
            size *= 2
        if size >= longest:
            return
        if spent(run, make(2 * size)) < QUICK * spent(run, make(size)):
            return
        for _ in range(5):
            once = min(spent(run, make(size)) for _ in range(3))
            twice = min(spent(run, make(2 * size)) for _ in range(3))
            if twice < GROWTH * once:
                return
            size *= 2  # a table that grew or a cache that was filled is no growth for ever
        raise AssertionError(f"{size:,} characters: {twice / once:.1f} times the time for twice the text")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    "surroundings",
    [
        pytest.param([("", "\0x")], id="ended"),
        pytest.param([("", ""), ("a", "  x")], id="other", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize(("name", "pattern"), PATTERNS, ids=[name for name, _ in PATTERNS])
def test_a_pattern_takes_linear_time(name: str, pattern: Any, surroundings: list[tuple[str, str]]) -> None:
    longest = BOUNDED.get(name, SCREEN)

    def run(text: str) -> None:
        for _ in pattern.finditer(text if isinstance(pattern.pattern, str) else text.encode()):
            pass

    for unit in hostile(pattern):
        for before, after in surroundings:
            assert_linear(
                run,
                lambda size, u=unit, b=before, a=after: b + u * (size // len(u)) + a,
                longest,  # type: ignore[misc]
            )


def test_every_exception_names_a_pattern() -> None:
    names = {name for name, _ in PATTERNS}
    assert names >= set(BOUNDED)
    assert all((ROOT.parent / f"{module.replace('.', '/')}.py").is_file() for module in INSIDE)
    assert len(PATTERNS) > 80


def pages(html: str) -> None:
    try:
        html_blocks(html)
    except Unusable as error:
        assert error.reason == "nested too deep"
        return


def settings(text: str) -> None:
    try:
        read_yaml(text)
    except SettingsError:
        return


PARSERS: dict[str, tuple[Callable[[str], object], list[str]]] = {
    "personal": (
        lambda text: mask(text, "titles", "fr"),
        ["12:30:45:" + "a" * 22 + "_x", "a:", "12:30:45:a", "Mr M. ", "M. ", "+49 30 ", "a@a.", "1 ", "AB12 ABCD ", "1.1."],
    ),
    "personal, one run": (lambda text: mask("12:30:45:" + text + "_x"), ["a", "aaaa:", ":a"]),
    "markdown": (
        markdown_blocks,
        ["<!--", "[a](", "**a ", "[", "![", "__a ", "*a ", "[a][", "<a", "![a](", "[a](b ", "(", "# a ", "`", "<!-- -->",
         "[a](x)(", "* a\n", "#", "[a](b \"", "**", "***a", "title: ", "---\n", "=\n",
         "<script>", "<!", "<style ", "> ", "- ", "1. ", "[^a]", "[^a]: b\n", "| a", "a|b\n-|-\n", "<a=", "</a>", "~~a ", "&", "\\"],
    ),
    "markdown heading": (lambda text: markdown_blocks("# a" + text + "b"), [" ", "#", " #"]),
    "front matter": (lambda text: markdown_blocks("---\ntitle: a" + text + "b\n---\n"), [" ", "'", "\ntitle: "]),
    "boilerplate": (judge_text, ["a.", "a", "http://", "www.", "a.html", ".html", "a.htm", "a b ", "a\n", "https://a.php"]),
    "boilerplate, one word": (lambda text: judge_text("www." + text + "http"), ["a.", "a.html", ".", "http"]),
    "normalise": (normalise, ["\u0315\u0300", "\u0f73", "\u0344", " ", "\n ", "\x1b[", "\x1b]", "\t", "\x1b[0 ", "a\u0301"]),
    "near duplicates": (lambda text: folded_words(text, "en"), ["\u0315\u0300", "\u0f73", "a ", "\ufdfa"]),
    "html": (
        pages,
        ["<div>", "<main>a", "<td>a", "<b><p>", "<ul><li>a", "<p>a<", "<!--", "&amp", "<b></p>", "<table><tr><td>a", "<nav>a",
         "<a><p>", "<svg>", "<pre>a", "<span>a</span>", "<tr><td>a<td>b"],
    ),
    "attributes of a page": (
        lambda text: pages(f"<p {text}>a</p>"), ["a=1 ", "a='>' ", 'a="<" ', "a ", "/", "a='", 'a="', "= ", "a/b\n"]
    ),
    "tags of a page": (pages, ["<p ", "<p a='", "<!-- <p", "<script>'<p", "<style>", "<textarea>a", "<p/", "<title>"]),
    "encodings": (lambda text: guessed(text.encode("utf-16-le").replace(b"\0", b"\xe9"), ""), ["a", "a\n", " ", "ab "]),
    "a table": (
        lambda text: list(DelimitedTable(io.StringIO(f"id,text\n{text}"))), ['"', '"a', 'a"', '"a\n', ",", '\n"', '","', "\n"]
    ),
    "book parts": (
        lambda text: find_apparatus(text, ["front-matter", "contents", "references", "index"]),
        [". ", "...", "Contents\n", "References\n", "Index\n", "# References\n", "目录\nA long line of prose that ends here.\n",
         "a 1\n", "   1", "References\n2001\n", "\n", "a . . . . . . . . . . . . . . . . . . . . . . x\n"],
    ),
    "a contents entry": (lambda text: find_apparatus(f"x\nContents\nab {text}!\nmore\n" + "y\n" * 40, ["contents"]), [". ", ".", "…"]),
    "sections": (
        lambda text: list(sections([Block(line, joins=line == ":") for line in text.split("\n")], "t")),
        [":\n", "!\n", "a\n", "a b\n"],
    ),
    "pdf": (lambda text: join_pages(text.split("\f")), ["a-\n", "\n", "1\f", "- \n", "page 1/", "1 \n\f"]),
    "words": (lambda text: words(text, "en"), ["_", ".", "a.", "!", "a'", "_a", "'", "\u0301", "\n ", "e\u0301."]),
    "sentences": (lambda text: sentences(text, "en"), ["_", ".", "a.", "!", "\n ", "\n", ". ", "A. ", "。", "\" "]),
    "tokens": (count_tokens, ["a", " ", "^", "\n", "1", "中", "\u0301"]),
    # PyYAML itself is not linear in nesting, which ends in one clear error (tests/settings/test_settings.py).
    "yaml": (settings, ["a: b\n", "- a\n", "# "]),
}  # fmt: skip


@pytest.mark.parametrize("parser", PARSERS)
def test_a_parser_takes_linear_time(parser: str) -> None:
    run, units = PARSERS[parser]
    for unit in units:
        assert_linear(run, lambda size, u=unit: u * (size // len(u)))  # type: ignore[misc]
