"""Text pairs mined from a corpus, after E5's CCPairs (section 3): what belongs together without anyone's label.

    miner = PairMiner(seed=42)
    for pair in miner.mine(units): ...          # streamed; citations come last, when all headings are known
    miner.counts                                # {("title", "pairs"): 812, ("title", "no title"): 14, ...}

    title       a document's title, and its text                       E5: (title, passage)
    heading     the path of headings above a section, and the section  E5: (entity name + section title, passage)
    question    a heading that asks, or "Q: ... A: ...", and what follows   E5: (question, answer)
    neighbour   two passages that follow one another in a document     E5, appendix A: passages of one page
    citation    a passage, and one whose section, title or manual page it names    E5: citation pairs

Where neither side is the query by nature (neighbours, citations) a seeded coin decides, as in E5's section 4.1. What is
not a pair is counted with its reason. Memory holds some 100 bytes a pair and heading, never the texts: those that a
citation may need wait in a temporary file.
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

__all__ = ["KINDS", "Pair", "PairMiner", "Unit"]

KINDS = ("title", "heading", "question", "neighbour", "citation")

_PATH = " > "
_ASKS = ("?", "？", "؟")
_DIALOGUE = regex.compile(
    r"(?m)^\s*Q\s?\d*[.:)]\s*(?P<q>[^\n]+(?:\n(?!\s*A\s?\d*[.:)])[^\n]+)*?)\s*\n+\s*A\s?\d*[.:)]\s*(?P<a>(?:(?!^\s*Q\s?\d*[.:)]).)+)",
    regex.DOTALL,
)
_LETTER = regex.compile(r"\p{L}")


@dataclass(frozen=True, slots=True)
class Unit:
    """A passage of the corpus in its order. `document` groups passages that stand in one document, "" for none;

    `start` and `end` are its character offsets there, where chunks overlap.
    """

    id: str
    text: str
    title: str = ""
    document: str = ""
    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class Pair:
    """A query and the passage that answers it. `source` is the passage that the query is, or "" for a heading."""

    query: str
    passage: str
    kind: str
    passage_id: str
    source: str = ""


class PairMiner:
    """Mines the `kinds` of pairs, streaming; the same input and seed give the same pairs.

    min_words: of a passage. max_characters: longer passages are left out (E5: 4,096). per_query: how many passages one
    query may have: the sections below a heading that was cut in pieces say ever less about it. exclude: texts (queries
    of test collections) that no pair may have as its query, by exact match (E5, appendix A).

    Raises UsageError for an unknown kind.
    """

    def __init__(
        self,
        kinds: Collection[str] = KINDS,
        *,
        language: str = "en",
        min_words: int = 8,
        max_characters: int = 4096,
        per_query: int = 3,
        seed: int = 42,
        exclude: Iterable[str] = (),
    ) -> None:
        if unknown := next((kind for kind in kinds if kind not in KINDS), None):
            raise UsageError(f"no kind of pair {unknown!r}{closest(unknown, list(KINDS))}")
        self.kinds = tuple(kind for kind in KINDS if kind in kinds)
        self.counts: Counter[tuple[str, str]] = Counter()
        self._language, self._min_words, self._max = language, min_words, max_characters
        self._per_query, self._seed = per_query, seed
        self._excluded = {_key(text) for text in exclude}
        self._queries: Counter[int] = Counter()
        self._pairs: set[int] = set()

    def mine(self, units: Iterable[Unit]) -> Iterator[Pair]:
        """The pairs of all kinds as they come by, then the citations."""
        citations = Citations() if "citation" in self.kinds else None
        previous: Unit | None = None
        with tempfile.TemporaryFile() as spool:
            offsets: list[int] = []
            for unit in units:
                unit = replace(unit, text=_without_title(unit))
                if reason := self._unusable(unit):
                    self.counts["passage", reason] += 1
                    previous = None
                    continue
                self.counts["passage", "passages"] += 1
                for pair in self._own(unit):
                    yield from self._checked(pair)
                if "neighbour" in self.kinds and previous is not None and unit.document:
                    yield from self._neighbours(previous, unit)
                if citations is not None:
                    citations.add(len(offsets), unit.title, unit.text, _scope(unit))
                    offsets.append(spool.tell())
                    spool.write(json.dumps([unit.id, unit.text]).encode() + b"\n")
                previous = unit
            if citations is not None:
                yield from self._cited(citations, spool, offsets)

    def _unusable(self, unit: Unit) -> str:
        if len(unit.text) > self._max:
            return f"longer than {self._max} characters"
        if count_words(unit.text[: 40 * self._min_words], self._language) < self._min_words:
            return f"shorter than {self._min_words} words"
        return ""

    def _own(self, unit: Unit) -> Iterator[Pair]:
        """Pairs of a passage with its own headings, and of questions with answers inside it."""
        path = [part.strip() for part in unit.title.split(_PATH) if part.strip()]
        leaf = unnumbered(leaf_of(unit.title).strip())
        asks = "question" in self.kinds and leaf.endswith(_ASKS)
        if asks:
            yield Pair(leaf, unit.text, "question", unit.id)
        elif len(path) > 1 and "heading" in self.kinds:
            names = [unnumbered(part) for part in path]
            # The document and the section, as in E5: what stands between says where, not what about.
            query = leaf if names[0].casefold() == leaf.casefold() else f"{names[0]}: {leaf}"
            yield Pair(query, unit.text, "heading", unit.id)
        elif len(path) == 1 and "title" in self.kinds:
            yield Pair(leaf, unit.text, "title", unit.id)
        elif not path and "title" in self.kinds:
            self.counts["title", "no title"] += 1
        if "question" in self.kinds:
            for number, found in enumerate(_DIALOGUE.finditer(unit.text)):
                answer = " ".join(found["a"].split())
                yield Pair(" ".join(found["q"].split()), answer, "question", f"{unit.id}#answer-{number + 1}")

    def _neighbours(self, first: Unit, second: Unit) -> Iterator[Pair]:
        if first.document != second.document:
            return
        if second.start < first.end and second.end > second.start:  # overlapping chunks would match by what they share
            self.counts["neighbour", "the passages overlap"] += 1
            return
        yield from self._checked(self._tossed(first, second, "neighbour"))

    def _cited(self, citations: Citations, spool: IO[bytes], offsets: list[int]) -> Iterator[Pair]:
        def unit(number: int) -> Unit:
            spool.seek(offsets[number])
            return Unit(*json.loads(spool.readline()))

        for citation in citations.resolve():
            if citation.target is None:
                self.counts["citation", citation.reason] += 1
                continue
            yield from self._checked(self._tossed(unit(citation.source), unit(citation.target), "citation"))

    def _tossed(self, one: Unit, other: Unit, kind: str) -> Pair:
        if rng("pair", self._seed, kind, one.id, other.id).random() < 0.5:
            one, other = other, one
        return Pair(one.text, other.text, kind, other.id, one.id)

    def _checked(self, pair: Pair) -> Iterator[Pair]:
        """The pair, if it is one; counted either way."""
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
        elif self._queries[query] >= self._per_query:
            reason = f"its query has {self._per_query} passages already"
        self.counts[pair.kind, reason] += 1
        if reason == "pairs":
            self._queries[query] += 1
            self._pairs.add(both)
            yield pair


def _without_title(unit: Unit) -> str:
    """The text without a first line that repeats the heading: a pair must not be found by that alone."""
    text = unit.text.strip()
    for heading in (unit.title.strip(), leaf_of(unit.title).strip()):
        start, rest = text[: len(heading)], text[len(heading) :]
        ended = rest[:1] in ("", "\n", ".", ":") or (heading[-1:] in (".", "?", "!") and rest[:1] == " ")
        if heading and start.casefold() == heading.casefold() and ended:
            return rest.lstrip(" \n.:=-#*_~")
    return text


def _scope(unit: Unit) -> str:
    """The book of a passage: what stands beside its file has the same numbering."""
    return unit.document.rpartition("/")[0] or unit.document


def _key(text: str) -> int:
    return int(text_key(" ".join(text.split()))[:16], 16)
