"""Read text files, with or without light markup: reStructuredText, AsciiDoc, Org and subtitles.

>>> asciidoc_blocks("= Guide\\n\\n== Use\\n\\nPress *Start*.")
('Guide', [Block(text='Guide', level=1, joins=False), Block(text='Use', level=2, joins=False), \
Block(text='Press *Start*.', level=0, joins=False)])

Headings are recognised, and all other lines are kept unchanged. The navigation of reStructuredText, and numbers and
times of subtitles, are left out.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from airgen.corpus.readers.sections import Block, Page, paragraphs
from airgen.corpus.readers.text_files import FileReader, rst_blocks
from airgen.storage.records import Document, Dropped

_ASCIIDOC = re.compile(r"(={1,6}|#{1,6})[ \t]++(\S.*)")
_DELIMITER = re.compile(r"(?:-{4,}|\.{4,}|\+{4,}|/{4,}|={4,}|\*{4,}|_{4,}|`{3,}|\|===)[ \t]*")
_VERBATIM = ("-", ".", "+", "/", "`")
_ORG = re.compile(r"\A(\*+)[ \t]++(\S.*)")
_ORG_TITLE = re.compile(r"#\+title:[ \t]*+(.*)", re.IGNORECASE)
_TIMES = re.compile(r"\A[ \t]*(?:\d+:)?\d{1,2}:\d\d[.,:]\d{1,3}[ \t]*-->[ \t]*(?:\d+:)?\d{1,2}:\d\d[.,:]\d{1,3}.*")
_SPEAKER = re.compile(r"<v(?:\.[^\s<>]*+)?[ \t]++([^<>]+)>")
_TAG = re.compile(r"</?(?:[ibuc]|font|ruby|rt|lang|v)(?:[.\s][^<>]*)?>|<\d[\d:.]*>|\{\\[^{}]*\}", re.IGNORECASE)
_RST_LISTS = ("toctree", "contents", "index", "meta")
_RST_NAVIGATION = re.compile(rf"\.\. ({'|'.join(_RST_LISTS)}|currentmodule|module|highlight|default-role|sectnum)::")
_RST_TARGET = re.compile(r"\.\. _[^:]++:")
_SENTENCE_END = (".", "!", "?", "。", "！", "？", "…", "।", "؟", '."', '?"', '!"', ".”", "?”", "!”")
_MOST_CUES = 20  # maximum cues per paragraph in subtitles without full stops


class TextReader(FileReader):
    """Reads plain text, whose paragraphs are separated by blank lines. reStructuredText, AsciiDoc and Org keep their
    title and headings; the times of subtitles are left out."""

    suffixes = (
        ".txt", ".text", ".txt.gz", ".rst", ".rst.gz", ".adoc", ".asciidoc", ".org", ".srt", ".vtt",
    )  # fmt: skip
    version = 6

    def parse_text(self, text: str, name: str) -> Iterator[Document | Dropped]:
        ending = Path(name.lower().removesuffix(".gz")).suffix
        if ending in (".srt", ".vtt"):
            page = subtitle_page(text)
        elif ending in (".rst", ".adoc", ".asciidoc", ".org"):
            blocks_of = {".rst": rst_blocks, ".org": org_blocks}
            page = Page(*blocks_of.get(ending, asciidoc_blocks)(text))
            if ending == ".rst":
                page = without_navigation(page)
        else:
            page = Page("", paragraphs(text))
        yield from self.pieces(page.left, name)
        yield from self.documents(page.blocks, page.title, name)


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff").split("\n")


def _blocks(text: str, heading: Callable[[str], tuple[int, str] | None]) -> list[Block]:
    """Return the headings and the paragraphs between blank lines."""
    blocks: list[Block] = []
    held: list[str] = []
    for line in [*_lines(text), ""]:
        head = heading(line)
        if head is not None or not line.strip():
            if held:
                blocks.append(Block("\n".join(held).strip("\n")))
                held = []
            if head is not None:
                blocks.append(Block(head[1], min(head[0], 6)))
        else:
            held.append(line.rstrip())
    return blocks


def _first_heading(blocks: list[Block]) -> str:
    return next((block.text for block in blocks if block.level == 1), "")


def asciidoc_blocks(text: str) -> tuple[str, list[Block]]:
    """Return the title, headings and paragraphs of AsciiDoc. A line in a block of code is not a heading."""
    within = ""

    def heading(line: str) -> tuple[int, str] | None:
        nonlocal within
        if _DELIMITER.fullmatch(line) and line[0] in _VERBATIM:
            mark = line.rstrip()
            within = "" if within == mark else within or mark
            return None
        match = None if within else _ASCIIDOC.fullmatch(line.rstrip())
        if match is None:
            return None
        words = match[2].removesuffix(match[1])  # `== Title ==`
        return len(match[1]), words.rstrip() if words[-1:] in (" ", "\t") else match[2]

    blocks = _blocks(text, heading)
    return _first_heading(blocks), blocks


def org_blocks(text: str) -> tuple[str, list[Block]]:
    """Return the title, headings and paragraphs of an Org file."""
    title = ""

    def heading(line: str) -> tuple[int, str] | None:
        nonlocal title
        line = line.rstrip()
        if (named := _ORG_TITLE.fullmatch(line)) and not title and named[1]:
            title = named[1]
            return 1, title
        match = _ORG.fullmatch(line)
        return (len(match[1]), match[2]) if match else None

    blocks = _blocks(text, heading)
    return title or _first_heading(blocks), blocks


def without_navigation(page: Page) -> Page:
    """Leave out what reStructuredText has for its own navigation, with the reason: targets of links, directives that
    list other pages, and directives that only say what the following is about."""
    left: dict[str, list[str]] = {}
    blocks: list[Block] = []
    listing = False  # inside a directive whose content is indented
    for block in page.blocks:
        lines = block.text.split("\n")
        listing = listing and not block.level and lines[0][:1].isspace()
        directive = None if block.level else _RST_NAVIGATION.match(block.text)
        if directive and all(line[:1].isspace() or _RST_NAVIGATION.match(line) for line in lines):
            listing = directive[1] in _RST_LISTS
            reason = "directive of reStructuredText"
        elif not block.level and all(_RST_TARGET.match(line) for line in lines):
            reason = "target of a link"
        elif listing:
            reason = "directive of reStructuredText"
        else:
            blocks.append(block)
            continue
        left.setdefault(reason, []).append(block.text)
    return Page(page.title, blocks, [(reason, "\n\n".join(texts)) for reason, texts in left.items()])


def subtitle_page(text: str) -> Page:
    """Convert subtitles (SubRip, WebVTT) to paragraphs of whole sentences. Numbers, times, notes, and lines that only
    repeat the previous line, as in live captions, are left out."""
    left: dict[str, list[str]] = {}
    blocks: list[Block] = []
    held: list[str] = []
    cues, last = 0, ""
    for words, reason in _cue_lines(_lines(text)):
        if not reason and words == last:
            reason = "repeated line of subtitles"
        if reason:
            left.setdefault(reason, []).append(words)
            continue
        last = words
        held.append(words)
        cues += 1
        if words.endswith(_SENTENCE_END) or cues >= _MOST_CUES:
            blocks.append(Block("\n".join(held)))
            held, cues = [], 0
    if held:
        blocks.append(Block("\n".join(held)))
    return Page("", blocks, [(reason, "\n".join(lines)) for reason, lines in left.items()])


def _cue_lines(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield each line with the reason for leaving it out, or ""."""
    beside = ""  # inside a note, a style or the header
    for place, line in enumerate(lines):
        words = line.strip()
        after = lines[place + 1] if place + 1 < len(lines) else ""
        before = lines[place - 1].strip() if place else ""
        if not words:
            beside = ""
        elif _TIMES.fullmatch(line):
            beside = ""
            yield words, "times of subtitles"
        elif beside:
            yield words, beside
        elif not before and (place == 0 or words.split(None, 1)[0] in ("NOTE", "STYLE", "REGION")):
            first = words.split(None, 1)[0]
            if first in ("WEBVTT", "NOTE", "STYLE", "REGION"):
                beside = "notes and styles of subtitles"
                yield words, beside
            elif _TIMES.fullmatch(after):
                yield words, "times of subtitles"
            else:
                yield from _spoken(words)
        elif not before and _TIMES.fullmatch(after):
            yield words, "times of subtitles"  # the number or name of a cue
        else:
            yield from _spoken(words)


def _spoken(words: str) -> Iterator[tuple[str, str]]:
    text = _TAG.sub("", _SPEAKER.sub(r"\1: ", words)).strip()
    if text:
        yield text, ""
    elif any(map(str.isalnum, words)):
        yield words, "notes and styles of subtitles"
