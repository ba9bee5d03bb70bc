"""Text pairs mined from a corpus or a dump without labels, after E5's CCPairs (section 3).

    miner = PairMiner(settings=MiningSettings(seed=42))
    for pair in miner.mine(passages): ...       # a stream; citations come last, when all headings are known
    miner.counts                                # {("title", "pairs"): 812, ("title", "no title"): 14, ...}

    title       a document's title, and its text                       E5: (title, passage)
    heading     the path of headings above a section, and the section  E5: (entity name + section title, passage)
    question    a heading that is a question, or "Q: ... A: ...", and the answer   E5: (question, answer)
    neighbour   two passages that follow one another in a document     E5, appendix A: passages of one page
    citation    a passage, and a passage whose section, title or manual page it names    E5: citation pairs
    comment     a post of Reddit, and a comment                          only from a dump (`dumps`)
    answer      a question of StackExchange, and an upvoted answer       only from a dump
    entailment  a sentence, and one that it entails, of any length       only from a dump

For neighbours and citations a seeded coin decides which side is the query, as in E5's section 4.1. Candidates that are
refused are counted with the reason. What was met is known by hashes in temporary files, and so are texts that a
citation may need; memory holds about 100 bytes for each heading of a corpus that can be cited.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import IO

import regex

from airgen.errors import UsageError
from airgen.keys import rng, text_key
from airgen.records import SURROGATE
from airgen.registry import closest
from airgen.text.words import count_words
from airgen.training.mining.citations import Citations, leaf_of, unnumbered
from airgen.training.stored import KeyCounts

KINDS = ("title", "heading", "question", "neighbour", "citation", "comment", "answer", "entailment")

_PATH = " > "
_QUESTION_MARKS = ("?", "？", "؟")
_DIALOGUE = regex.compile(
    r"(?m)^\s*Q\s?\d*[.:)]\s*(?P<q>[^\n]+(?:\n(?!\s*A\s?\d*[.:)])[^\n]+)*?)\s*\n+\s*A\s?\d*[.:)]\s*(?P<a>(?:(?!^\s*Q\s?\d*[.:)]).)+)",
    regex.DOTALL,
)
_LETTER = regex.compile(r"\p{L}")


@dataclass(frozen=True, slots=True)
class SourcePassage:
    """A passage to mine.

    document: the document that holds the passage, or "". start, end: for chunks that may overlap, the character
    offsets of the passage in its document.
    """

    id: str
    text: str
    title: str = ""
    document: str = ""
    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class MinedPair:
    """A query and a passage that is relevant to it.

    source: if the query is itself a passage (neighbours and citations), the id of that passage, else "". negative: a
    passage that is not relevant to the query, if the source says so.
    """

    query: str
    passage: str
    kind: str
    passage_id: str
    source: str = ""
    negative: SourcePassage | None = None


@dataclass(frozen=True, slots=True)
class LinkedPassages:
    """Two passages that belong together. The coin decides which one is the query."""

    one: SourcePassage
    other: SourcePassage
    kind: str


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row of a dump that gives no pair. `kind` is what it would have been: "comment", "passage", "line", ..."""

    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class MiningSettings:
    """Which pairs are kept.

    seed: of the coin that decides which side is the query. min_words: shorter passages are left out. max_characters:
    longer ones are left out (E5: 4,096). per_query: maximum number of passages of one query; of a long section that was
    cut into pieces, the later pieces say little about its heading.
    """

    seed: int = 42
    min_words: int = 8
    max_characters: int = 4096
    per_query: int = 3


class PairMiner:
    """Mines pairs of the given kinds as a stream. The same input and seed give the same pairs.

    exclude: texts (queries of test collections) that no pair may have as its query, by exact match (E5, appendix A).
    counts: {(kind, reason): number}; the reason of a pair that is kept is "pairs".

    Raises UsageError for an unknown kind.
    """

    def __init__(
        self,
        kinds: Collection[str] = KINDS,
        settings: MiningSettings = MiningSettings(),
        *,
        language: str = "en",
        exclude: Iterable[str] = (),
    ) -> None:
        if unknown := next((kind for kind in kinds if kind not in KINDS), None):
            raise UsageError(f"unknown kind of pair {unknown!r}{closest(unknown, list(KINDS))}")
        self.kinds = tuple(kind for kind in KINDS if kind in kinds)
        self.counts: Counter[tuple[str, str]] = Counter()
        self._language, self._settings = language, settings
        self._excluded = {_key(text) for text in exclude}
        self._queries, self._pairs, self._texts = KeyCounts(), KeyCounts(), KeyCounts()

    def mine(self, passages: Iterable[SourcePassage]) -> Iterator[MinedPair]:
        """The pairs of all kinds in the order of the passages, then the citations."""
        citations = Citations() if "citation" in self.kinds else None
        previous: SourcePassage | None = None
        with tempfile.TemporaryFile() as spool:
            offsets: list[int] = []
            for passage in passages:
                passage = replace(passage, text=_without_title(passage))
                if reason := self._unusable(passage.text):
                    self.counts["passage", reason] += 1
                    previous = None
                    continue
                self.counts["passage", "passages"] += 1
                for pair in self._pairs_of(passage):
                    yield from self._checked(pair)
                if "neighbour" in self.kinds and previous is not None and passage.document:
                    yield from self._neighbours(previous, passage)
                if citations is not None:
                    citations.add(len(offsets), passage.title, passage.text, _scope(passage))
                    offsets.append(spool.tell())
                    spool.write(json.dumps([passage.id, passage.text]).encode() + b"\n")
                previous = passage
            if citations is not None:
                yield from self._cited(citations, spool, offsets)

    def mine_dump(self, rows: Iterable[SourcePassage | MinedPair | LinkedPassages | RefusedRow]) -> Iterator[MinedPair]:
        """The pairs of what a reader of dumps yields, in its order.

        A passage gives pairs with its headings, and with the passage before it if both have the same `document`. One
        that comes again, on any page, is left out, as cc_net does. The limits of length hold for both sides of a pair.
        """
        previous: SourcePassage | None = None
        for row in rows:
            if isinstance(row, RefusedRow):
                self.counts[row.kind, row.reason] += 1
                continue
            if isinstance(row, SourcePassage):
                before, previous = previous, self._of_dump(row)
                if previous is not None:
                    for pair in self._pairs_of(previous):
                        yield from self._checked(pair)
                    if "neighbour" in self.kinds and before is not None and previous.document:
                        yield from self._neighbours(before, previous)
                continue
            if row.kind not in self.kinds:
                continue
            pair = row if isinstance(row, MinedPair) else self._tossed(row.one, row.other, row.kind)
            checked = self._too_long if pair.kind == "entailment" else self._unusable
            if reason := checked(pair.passage) or self._too_long(pair.query):
                self.counts[pair.kind, reason] += 1
            else:
                yield from self._checked(pair)

    def _of_dump(self, passage: SourcePassage) -> SourcePassage | None:
        """A passage of a dump without its title in its text, counted; None if it is left out."""
        passage = replace(passage, text=_without_title(passage))
        reason = self._unusable(passage.text)
        if not reason and self._texts.add(_key(passage.text)) > 1:
            reason = "comes twice"
        self.counts["passage", reason or "passages"] += 1
        return None if reason else passage

    def _unusable(self, text: str) -> str:
        """The reason why a passage is left out, or ""."""
        least = self._settings.min_words
        if reason := self._too_long(text):
            return reason
        return f"shorter than {least} words" if count_words(text[: 40 * least], self._language) < least else ""

    def _too_long(self, text: str) -> str:
        most = self._settings.max_characters
        return f"longer than {most} characters" if len(text) > most else ""

    def _pairs_of(self, passage: SourcePassage) -> Iterator[MinedPair]:
        """Pairs of a passage with its own headings, and of questions and answers inside it."""
        path = [part.strip() for part in passage.title.split(_PATH) if part.strip()]
        leaf = unnumbered(leaf_of(passage.title).strip())
        if "question" in self.kinds and leaf.endswith(_QUESTION_MARKS):
            yield MinedPair(leaf, passage.text, "question", passage.id)
        elif len(path) > 1 and "heading" in self.kinds:
            names = [unnumbered(part) for part in path]
            # The document and the section, as in E5; headings between them name a place, not a topic.
            query = leaf if names[0].casefold() == leaf.casefold() else f"{names[0]}: {leaf}"
            yield MinedPair(query, passage.text, "heading", passage.id)
        elif len(path) == 1 and "title" in self.kinds:
            yield MinedPair(leaf, passage.text, "title", passage.id)
        elif not path and "title" in self.kinds:
            self.counts["title", "no title"] += 1
        if "question" in self.kinds:
            for number, found in enumerate(_DIALOGUE.finditer(passage.text)):
                answer = " ".join(found["a"].split())
                yield MinedPair(" ".join(found["q"].split()), answer, "question", f"{passage.id}#answer-{number + 1}")

    def _neighbours(self, first: SourcePassage, second: SourcePassage) -> Iterator[MinedPair]:
        if first.document != second.document:
            return
        if second.start < first.end and second.end > second.start:  # such a pair would match by its shared text
            self.counts["neighbour", "the passages overlap"] += 1
            return
        yield from self._checked(self._tossed(first, second, "neighbour"))

    def _cited(self, citations: Citations, spool: IO[bytes], offsets: list[int]) -> Iterator[MinedPair]:
        def read(number: int) -> SourcePassage:
            spool.seek(offsets[number])
            return SourcePassage(*json.loads(spool.readline()))

        for citation in citations.resolve():
            if citation.target is None:
                self.counts["citation", citation.reason] += 1
                continue
            yield from self._checked(self._tossed(read(citation.source), read(citation.target), "citation"))

    def _tossed(self, one: SourcePassage, other: SourcePassage, kind: str) -> MinedPair:
        """A pair of two passages; the coin decides which one is the query."""
        if rng("pair", self._settings.seed, kind, one.id, other.id).random() < 0.5:
            one, other = other, one
        return MinedPair(one.text, other.text, kind, other.id, one.id)

    def _checked(self, pair: MinedPair) -> Iterator[MinedPair]:
        """The pair, unless it is refused. Both cases are counted."""
        query = _key(pair.query)
        both = _key(f"{pair.query}\x1f{pair.passage}")
        reason = "pairs"
        if not _LETTER.search(pair.query):
            reason = "a query without letters"
        elif SURROGATE.search(pair.query) or SURROGATE.search(pair.passage):
            reason = "lone surrogates, which UTF-8 cannot hold"
        elif not pair.passage or pair.query == pair.passage:
            reason = "query and passage are equal"
        elif query in self._excluded:
            reason = "the query of a test collection"
        elif both in self._pairs:
            reason = "comes twice"
        elif self._queries.count(query) >= self._settings.per_query:
            reason = f"its query has {self._settings.per_query} passages already"
        self.counts[pair.kind, reason] += 1
        if reason == "pairs":
            self._queries.add(query)
            self._pairs.add(both)
            if pair.negative is not None:
                other = self._pairs.add(_key(f"{pair.query}\x1f{pair.negative.text}"))
                if other > 1 or SURROGATE.search(pair.negative.text) or self._too_long(pair.negative.text):
                    pair = replace(pair, negative=None)  # it is a positive of the query
            yield pair


def _without_title(passage: SourcePassage) -> str:
    """The text without a first line that repeats the heading, which would make the pair trivial."""
    text = passage.text.strip()
    for heading in (passage.title.strip(), leaf_of(passage.title).strip()):
        start, rest = text[: len(heading)], text[len(heading) :]
        ended = rest[:1] in ("", "\n", ".", ":") or (heading[-1:] in (".", "?", "!") and rest[:1] == " ")
        if heading and start.casefold() == heading.casefold() and ended:
            return rest.lstrip(" \n.:=-#*_~")
    return text


def _scope(passage: SourcePassage) -> str:
    """The book of a passage: files in the same folder share their section numbers."""
    return passage.document.rpartition("/")[0] or passage.document


def _key(text: str) -> int:
    return int(text_key(" ".join(text.split()))[:16], 16)
