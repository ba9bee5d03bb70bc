"""StackExchange: (question, upvoted answer) from the archive dumps, `stackexchange:cooking/Posts.xml`.

Posts.xml has one post on a line: `<row Id="7" PostTypeId="2" ParentId="5" Score="11" Body="&lt;p&gt;..." />`. Each line
is parsed by itself, so a damaged one costs itself alone. A line that begins with `<row` cannot declare entities, so
none can be expanded. Type 1 is a question, with a Title, and type 2 an answer. Answers of a score below 1 are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from airgen.corpus.readers.files import lines
from airgen.corpus.readers.html import TooMuchMarkupError, html_blocks
from airgen.training.mining.dumps.dump_reader import (
    LONGEST_LINE,
    DumpRow,
    DumpSettings,
    passage_id,
    plain,
    plain_line,
)
from airgen.training.mining.dumps.text_store import TextStore
from airgen.training.mining.pairs import MinedPair, RefusedRow


class StackExchangeDump:
    """The posts of each file in their order; a question comes before its answers."""

    def __init__(self, files: Sequence[Path], settings: DumpSettings) -> None:
        self.files, self.settings = files, settings

    def read(self) -> Iterator[DumpRow]:
        """A MinedPair for each answer that is kept."""
        for path in self.files:
            # `7z x math.stackexchange.com.7z -omath` gives math/Posts.xml
            own = path.name.split(".xml")[0]
            site = path.absolute().parent.name if own.lower() == "posts" else own
            with TextStore() as questions:
                for row in _rows(path):
                    yield from [row] if isinstance(row, RefusedRow) else self._post(row, questions, site)

    def _post(self, row: Mapping[str, str], questions: TextStore, site: str) -> Iterator[DumpRow]:
        if row.get("PostTypeId") == "1":
            title = plain_line(row.get("Title", ""))
            text = _text(row.get("Body", "")) if self.settings.question == "full" else ""
            if not title or text is None:
                yield RefusedRow("post", "a question without a title" if not title else "too much markup")
            else:
                questions.put(row.get("Id", ""), f"{title}\n{text}".strip())
        elif row.get("PostTypeId") == "2":
            yield self._answer(row, questions, site)
        else:
            yield RefusedRow("post", "neither a question nor an answer")

    def _answer(self, row: Mapping[str, str], questions: TextStore, site: str) -> DumpRow:
        try:
            score = int(row.get("Score", ""))
        except ValueError:
            return RefusedRow("answer", "without a score")
        if score < self.settings.min_score:
            return RefusedRow("answer", f"a score below {self.settings.min_score}")
        question = questions.get(row.get("ParentId", ""))
        if question is None:
            return RefusedRow("answer", "its question is not in the file")
        text = _text(row.get("Body", ""))
        if text is None:
            return RefusedRow("answer", "too much markup")
        return MinedPair(question, text, "answer", passage_id(f"{site}/{row.get('Id', '')}", text))


def _rows(path: Path) -> Iterator[Mapping[str, str] | RefusedRow]:
    """The attributes of each row."""
    for _, line in lines(path, LONGEST_LINE):
        if line is None:
            yield RefusedRow("line", f"longer than {LONGEST_LINE >> 20} MB")
        elif (line := line.strip()).startswith(b"<row"):
            try:
                yield ElementTree.fromstring(line).attrib  # no document type stands before <row
            except (ElementTree.ParseError, ValueError):
                yield RefusedRow("line", "not XML")
        elif not line.removeprefix(b"\xef\xbb\xbf").startswith((b"<?xml", b"<posts", b"</posts")) and line:
            yield RefusedRow("line", "not a row of Posts.xml")


def _text(body: str) -> str | None:
    """The text of a post's HTML; None for more markup than is read."""
    try:
        _, blocks = html_blocks(body)
    except TooMuchMarkupError:
        return None
    return plain("\n\n".join(block.text for block in blocks))
