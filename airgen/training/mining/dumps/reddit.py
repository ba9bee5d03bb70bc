"""Reddit: (post, comment) from pushshift's dumps, `reddit:RS_2019-01.zst reddit:RC_2019-01.zst`.

A file of submissions (RS_*) has rows with id, title and selftext; one of comments (RC_*) has rows with body, score,
link_id (the post, t3_ID) and parent_id. Which is which is told by the first row. E5 leaves out comments of more than
4,096 characters, which the miner does for all passages, and of a score below 1. Left out here, too: replies to other
comments, which answer those and not the post; and what was deleted or written by AutoModerator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from airgen.training.mining.dumps.dump_reader import (
    DumpRow,
    DumpSettings,
    first_text,
    json_rows,
    passage_id,
    plain,
    plain_line,
)
from airgen.training.mining.dumps.text_store import TextStore
from airgen.training.mining.pairs import MinedPair, RefusedRow

_GONE = frozenset({"[deleted]", "[removed]", "[deleted by user]", "[ removed by reddit ]"})


class RedditDump:
    """Posts of all files first, then the comments."""

    def __init__(self, files: Sequence[Path], settings: DumpSettings) -> None:
        self.files, self.settings = files, settings

    def read(self) -> Iterator[DumpRow]:
        """A MinedPair for each comment that is kept."""
        with TextStore() as posts:
            later = []
            for path in self.files:
                if _begins_with_a_comment(path):
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

    def _post(self, row: dict[str, Any], posts: TextStore) -> Iterator[RefusedRow]:
        """Keep the text of a post for its comments."""
        title, key = plain_line(first_text(row, "title")), first_text(row, "id")
        if not title or not key or title.casefold() in _GONE:
            yield RefusedRow("post", "without a title")
            return
        text = plain(first_text(row, "selftext")) if self.settings.question == "full" else ""
        posts.put(key, title if text.casefold() in _GONE else f"{title}\n{text}".strip())

    def _comment(self, row: dict[str, Any], posts: TextStore) -> DumpRow:
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


def _begins_with_a_comment(path: Path) -> bool:
    return next((_is_comment(row) for row in json_rows(path) if isinstance(row, dict)), False)
