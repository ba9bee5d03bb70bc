"""Readers for Reddit, (post, comment) from pushshift's dumps, and StackExchange, (question, upvoted answer).

Submissions (RS_*) have rows with id, title and selftext; comments (RC_*) have body, score, link_id (the post, t3_ID)
and parent_id. E5 skips comments with a score below 1. airgen also skips replies to other comments, which do not answer
the post, and anything deleted or written by AutoModerator.

Posts.xml has one post per line: `<row Id="7" PostTypeId="2" ParentId="5" Score="11" Body="&lt;p&gt;..." />`. Lines are
parsed separately, so damage is limited to a single line, and entities cannot be declared.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from airgen.corpus.readers.html import html_blocks
from airgen.corpus.readers.reader import Unusable
from airgen.tables.json_files import lines
from airgen.training.dataset_columns import TextTable
from airgen.training.dumps import (
    LONGEST_LINE,
    DumpReader,
    DumpRow,
    first_text,
    json_rows,
    passage_id,
    plain,
    plain_line,
)
from airgen.training.mining.pairs import MinedPair, RefusedRow

_GONE = frozenset({"[deleted]", "[removed]", "[deleted by user]", "[ removed by reddit ]"})


class RedditDump(DumpReader):
    """Reads the posts of all files first, then the comments."""

    def read(self) -> Iterator[DumpRow]:
        """Yield a MinedPair for each comment that is kept."""
        posts = TextTable()
        later = []
        for path in self.files:
            if _is_comment(next((row for row in json_rows(path) if isinstance(row, dict)), {})):
                later.append((path, True))
                continue
            mixed = False
            for row in json_rows(path):
                if isinstance(row, RefusedRow):
                    yield row
                elif _is_comment(row):
                    mixed = True
                else:
                    yield from self._post(row, posts)
            if mixed:
                later.append((path, False))
        for path, first_time in later:
            for row in json_rows(path):
                if isinstance(row, dict) and _is_comment(row):
                    yield self._comment(row, posts)
                elif first_time and isinstance(row, RefusedRow):
                    yield row
                elif first_time:
                    yield RefusedRow("post", "in a file that begins with comments")

    def _post(self, row: dict[str, Any], posts: TextTable) -> Iterator[RefusedRow]:
        """Store the text of a post for its comments."""
        title, key = plain_line(first_text(row, "title")), first_text(row, "id")
        if not title or not key or title.casefold() in _GONE:
            yield RefusedRow("post", "without a title")
            return
        text = plain(first_text(row, "selftext")) if self.settings.question == "full" else ""
        posts.put(key, title if text.casefold() in _GONE else f"{title}\n{text}".strip())

    def _comment(self, row: dict[str, Any], posts: TextTable) -> DumpRow:
        text, post = plain(first_text(row, "body")), first_text(row, "link_id")
        parent, score = str(row.get("parent_id") or post), row.get("score")
        if not text or text.casefold() in _GONE:
            return RefusedRow("comment", "deleted")
        if parent != post:
            return RefusedRow("comment", "a reply to a comment")
        if type(score) is not int or score < self.settings.min_score:
            return RefusedRow("comment", f"a score below {self.settings.min_score}")
        if row.get("author") == "AutoModerator":
            return RefusedRow("comment", "by AutoModerator")
        query = posts.get(post.removeprefix("t3_"))
        if query is None:
            return RefusedRow("comment", "its post is not in the files")
        return MinedPair(query, text, "comment", passage_id(f"t1_{first_text(row, 'id')}", text))


def _is_comment(row: dict[str, Any]) -> bool:
    return "body" in row and "title" not in row


class StackExchangeDump(DumpReader):
    """Reads the posts of each file in order. A question comes before its answers."""

    def read(self) -> Iterator[DumpRow]:
        """Yield a MinedPair for each answer that is kept."""
        for path in self.files:
            # `7z x math.stackexchange.com.7z -omath` creates math/Posts.xml
            stem = path.name.split(".xml")[0]
            site = path.absolute().parent.name if stem.lower() == "posts" else stem
            questions = TextTable()
            for row in _rows(path):
                yield from [row] if isinstance(row, RefusedRow) else self._post(row, questions, site)

    def _post(self, row: Mapping[str, str], questions: TextTable, site: str) -> Iterator[DumpRow]:
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

    def _answer(self, row: Mapping[str, str], questions: TextTable, site: str) -> DumpRow:
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
    """Yield the attributes of each row."""
    for _, line in lines(path, LONGEST_LINE):
        if line is None:
            yield RefusedRow("line", f"longer than {LONGEST_LINE >> 20} MB")
        elif (line := line.strip()).startswith(b"<row"):
            try:
                yield ElementTree.fromstring(line).attrib  # a document type cannot precede <row
            except (ElementTree.ParseError, ValueError):
                yield RefusedRow("line", "not XML")
        elif not line.startswith((b"<?xml", b"<posts", b"</posts")) and line:
            yield RefusedRow("line", "not a row of Posts.xml")


def _text(body: str) -> str | None:
    """Return the text of a post's HTML, or None if it has too much markup."""
    try:
        _, blocks = html_blocks(body)
    except Unusable:
        return None
    return plain("\n\n".join(block.text for block in blocks))
