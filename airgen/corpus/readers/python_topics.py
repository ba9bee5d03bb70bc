"""Read Python's language reference, which the standard library includes for `help()`: `reader: {kind: python-topics}`.

Each topic is a text written by Sphinx, and is split at its headings and definitions. Minor versions of Python have
different texts, so they are different corpora.
"""

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from airgen.corpus.readers.reader import Place, ReaderSettings, drop
from airgen.corpus.readers.sections import Block, sections
from airgen.errors import CorpusError
from airgen.storage.records import Document, Dropped

_LEVELS = {"*": 1, "=": 2, "-": 3, "~": 4}
_UNDERLINE = re.compile(r"^([*=~-])\1{2,}$")
_DEFINITION = re.compile(r"^(?:(?:async )?(?:class|exception|coroutine|await) )?[A-Za-z_][\w.]*(?:\(.*\))?$")
_LITERAL = re.compile(r"^\s*(?:>>>|\.\.\.|\$|#)|::=|^\s{3,}\S.*\s{3,}\S|^\+[-=+]+\+$|^\s*\|")
_MARK_UP = [
    (re.compile(r"(?<![\w*])\*\*?(?=\S)([^*\n]+?)(?<=\S)\*\*?(?![\w*])"), r"\1"),  # emphasis
    (re.compile(r"\[((?:PEP|RFC) ?\d+)\]"), r"\1"),
]


class TopicsReader:
    """Yields the sections of `pydoc_data.topics`, in the order of topics. Their ids are `topic/section`."""

    class Settings(ReaderSettings):
        """Settings with the limits of a section in words. `skip` lists topics to leave out."""

        min_words: int = 45
        max_words: int = 170
        skip: tuple[str, ...] = ()  # topics to skip, since this reader has no files

        def text_version(self) -> str:
            """Return the version of this Python, whose reference is the text."""
            return ".".join(map(str, sys.version_info[:3]))

    def __init__(self, settings: Settings, place: Place) -> None:
        self.settings, self.place = settings, place

    def read(self) -> Iterator[Document | Dropped]:
        version = f"Python {sys.version_info.major}.{sys.version_info.minor}"
        for name, text in _topics().items():
            if name in self.settings.skip:
                yield drop("skipped topic", identity=name, source=version, position=name, text=text)
                continue
            parts = blocks(text)
            least, most = self.settings.min_words, self.settings.max_words
            for part in sections(parts, min_words=least, max_words=most):
                yield Document(
                    f"{name}/{part.anchor}",
                    part.text,
                    part.title,
                    source=version,
                    position=name,
                    licence=self.place.licence,
                    language=self.place.language,
                )


def _topics() -> dict[str, str]:
    """Return the dictionary in `pydoc_data/topics.py`, read as data."""
    spec = importlib.util.find_spec("pydoc_data.topics")
    if spec is None or spec.origin is None:
        raise CorpusError(
            "this Python was installed without pydoc_data.topics (on Debian: apt-get install libpython3-stdlib)"
        )
    for node in ast.walk(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            topics: dict[str, str] = ast.literal_eval(node.value)
            return dict(sorted(topics.items()))
    raise CorpusError(f"{spec.origin}: has no dictionary of topics, so this version of Python is not supported")


def blocks(text: str) -> Iterator[Block]:
    """Yield headings, definitions (as headings of level 5) and paragraphs of one topic."""
    pieces = [piece for piece in re.split(r"\n\s*\n", text) if piece.strip()]
    inside = False
    for piece in pieces:
        rows = piece.strip("\n").split("\n")
        if len(rows) == 2 and (mark := _UNDERLINE.match(rows[1].strip())):
            inside = False
            yield Block(_plain(rows[0]), _LEVELS[mark[1]])
            continue
        if not rows[0][:1].isspace():
            defined = [row for row in rows if _DEFINITION.match(row)]
            if len(defined) == len(rows) and any("(" in row or "." in row for row in rows):
                inside = True
                yield Block(rows[0], 5)
                if len(rows) > 1:
                    yield Block("\n".join(rows), joins=True)
                continue
            if inside:  # text at the margin ends the definition
                inside = False
                yield Block("", 5)
        yield Block(_paragraph(rows))


def _paragraph(rows: list[str]) -> str:
    """Return the paragraph on one line; code, grammars and tables keep their line breaks."""
    margin = min(len(row) - len(row.lstrip()) for row in rows if row.strip())
    rows = [row[margin:].rstrip() for row in rows]
    if any(_LITERAL.search(row) for row in rows) or (margin >= 3 and _looks_like_code(rows)):
        return "\n".join(rows)
    return _plain(" ".join(row.strip() for row in rows))


def _looks_like_code(rows: list[str]) -> bool:
    marks = sum(
        bool(re.search(r"[=(){}\[\]]|^\s*(?:def|class|for|while|if|import|return|try|with|print)\b", row))
        for row in rows
    )
    return marks * 2 > len(rows) and not rows[-1].rstrip().endswith(".")


def _plain(text: str) -> str:
    for pattern, replacement in _MARK_UP:
        text = pattern.sub(replacement, text)
    return text.strip()
