"""Mine text pairs from an unlabelled corpus or dump, after E5's CCPairs (section 3).

    title       a document's title, and its text                       E5: (title, passage)
    heading     the path of headings above a section, and the section  E5: (entity name + section title, passage)
    question    a heading that is a question, or "Q: ... A: ...", and the answer   E5: (question, answer)
    neighbour   two passages that follow one another in a document     E5, appendix A: passages of one page
    citation    a passage, and a passage whose section, title or manual page it names    E5: citation pairs
    comment, answer, entailment, pair     only from a dump (`dumps`)

For neighbours and citations, a seeded random choice decides which side is the query, as in E5's section 4.1. Refused
candidates are counted by reason. Hashes of texts seen so far, and texts that a citation may need, are in temporary
files; each heading that can be cited takes about 100 bytes of memory.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import regex

from airgen.components.keys import rng
from airgen.components.registry import unknown_name
from airgen.storage.records import SURROGATE
from airgen.text.words import count_words
from airgen.training.dataset_columns import KeyCounts, StoredTexts, key_of

KINDS = ("title", "heading", "question", "neighbour", "citation", "comment", "answer", "entailment", "pair")

_GIVEN = ("entailment", "pair")  # kinds whose passages may be short, because people made these pairs
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

    Attributes:
        document: The document that contains the passage, or "".
        start, end: Character offsets of the passage in its document, for chunks that may overlap.
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

    Attributes:
        source: The id of the passage that serves as the query (neighbours and citations), or "".
        negatives: Passages that are not relevant to the query, if the source has any.
    """

    query: str
    passage: str
    kind: str
    passage_id: str
    source: str = ""
    negatives: tuple[SourcePassage, ...] = ()


@dataclass(frozen=True, slots=True)
class LinkedPassages:
    """Two related passages. A random choice decides which one is the query."""

    one: SourcePassage
    other: SourcePassage
    kind: str


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row of a dump that yields no pair. `kind` is what it would have been: "comment", "passage", "line", ..."""

    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class MiningSettings:
    """Settings that determine which pairs are kept.

    Attributes:
        seed: Seed for the random choice of which side is the query.
        min_words: Minimum number of words in a passage.
        max_characters: Maximum number of characters in a passage (E5: 4,096).
        per_query: Maximum number of passages per query, since later pieces of a long section are less related to its
            heading.
    """

    seed: int = 42
    min_words: int = 8
    max_characters: int = 4096
    per_query: int = 3


class PairMiner:
    """Mines pairs of the given kinds as a stream. The same input and seed give the same pairs.

    `counts` is {(kind, reason): number}, where the reason for a pair that is kept is "pairs". Raises UsageError for an
    unknown kind.

    Args:
        exclude: Texts, such as queries of test collections, that must not be a pair's query, by exact match (E5,
            appendix A).
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
            raise unknown_name("kind of pair", unknown, KINDS)
        self.kinds = tuple(kind for kind in KINDS if kind in kinds)
        self.counts: Counter[tuple[str, str]] = Counter()
        self._language, self._settings = language, settings
        self._excluded = {_key(text) for text in exclude}
        self._queries, self._pairs, self._texts = KeyCounts(), KeyCounts(), KeyCounts()

    def mine(
        self, rows: Iterable[SourcePassage | MinedPair | LinkedPassages | RefusedRow], *, dump: bool = False
    ) -> Iterator[MinedPair]:
        """Yield the pairs from the passages of a corpus or dump in order, followed by citations.

        A passage forms pairs with its headings, and with the previous passage if both have the same `document`. A dump
        has no citations, and repeated passages, on any page, are skipped, as in cc_net. The length limits apply to both
        sides of a pair.
        """
        citations = Citations() if "citation" in self.kinds and not dump else None
        cited = StoredTexts()
        previous: SourcePassage | None = None
        for row in rows:
            if isinstance(row, RefusedRow):
                self.counts[row.kind, row.reason] += 1
            elif isinstance(row, SourcePassage):
                before, previous = previous, self._cleaned(row, dump)
                if previous is None:
                    continue
                for pair in self._pairs_of(previous):
                    yield from self._checked(pair)
                if "neighbour" in self.kinds and before is not None and previous.document:
                    yield from self._neighbours(before, previous)
                if citations is not None:
                    book = previous.document.rpartition("/")[0] or previous.document  # files of a folder share numbers
                    citations.add(len(cited), previous.title, previous.text, book)
                    cited.append(json.dumps([previous.id, previous.text]))
            elif row.kind in self.kinds:
                pair = row if isinstance(row, MinedPair) else self._pair_by_coin(row.one, row.other, row.kind)
                checked = self._too_long if pair.kind in _GIVEN else self._unusable
                if reason := checked(pair.passage) or self._too_long(pair.query):
                    self.counts[pair.kind, reason] += 1
                else:
                    yield from self._checked(pair)
        for citation in citations.resolve() if citations else ():
            if citation.target is None:
                self.counts["citation", citation.reason] += 1
            else:
                citing, other = (SourcePassage(*json.loads(cited[at])) for at in (citation.source, citation.target))
                yield from self._checked(self._pair_by_coin(citing, other, "citation"))

    def _cleaned(self, passage: SourcePassage, dump: bool) -> SourcePassage | None:
        """Count a passage, and return it without its title in the text, or None if it is skipped."""
        passage = replace(passage, text=_without_title(passage))
        reason = self._unusable(passage.text)
        if dump and not reason and self._texts.add(_key(passage.text)) > 1:
            reason = "comes twice"
        self.counts["passage", reason or "passages"] += 1
        return None if reason else passage

    def _unusable(self, text: str) -> str:
        """Return why a passage is skipped, or ""."""
        least = self._settings.min_words
        if reason := self._too_long(text):
            return reason
        return f"shorter than {least} words" if count_words(text[: 40 * least], self._language) < least else ""

    def _too_long(self, text: str) -> str:
        most = self._settings.max_characters
        return f"longer than {most} characters" if len(text) > most else ""

    def _pairs_of(self, passage: SourcePassage) -> Iterator[MinedPair]:
        """Yield the pairs of a passage with its own headings, and of questions and answers inside it."""
        path = [part.strip() for part in passage.title.split(_PATH) if part.strip()]
        leaf = unnumbered(leaf_of(passage.title).strip())
        if "question" in self.kinds and leaf.endswith(_QUESTION_MARKS):
            yield MinedPair(leaf, passage.text, "question", passage.id)
        elif len(path) > 1 and "heading" in self.kinds:
            names = [unnumbered(part) for part in path]
            # The document and the section, as in E5; headings between them describe a position, not a topic.
            query = leaf if names[0].casefold() == leaf.casefold() else f"{names[0]}: {leaf}"
            yield MinedPair(query, passage.text, "heading", passage.id)
        elif len(path) == 1 and "title" in self.kinds:
            yield MinedPair(leaf, passage.text, "title", passage.id)
        elif not path and "title" in self.kinds:
            self.counts["title", "no title"] += 1
        if "question" in self.kinds:
            for number, dialogue in enumerate(_DIALOGUE.finditer(passage.text)):
                answer = " ".join(dialogue["a"].split())
                yield MinedPair(
                    " ".join(dialogue["q"].split()), answer, "question", f"{passage.id}#answer-{number + 1}"
                )

    def _neighbours(self, first: SourcePassage, second: SourcePassage) -> Iterator[MinedPair]:
        if first.document != second.document:
            return
        if second.start < first.end and second.end > second.start:  # such a pair would match by its shared text
            self.counts["neighbour", "the passages overlap"] += 1
            return
        yield from self._checked(self._pair_by_coin(first, second, "neighbour"))

    def _pair_by_coin(self, first: SourcePassage, second: SourcePassage, kind: str) -> MinedPair:
        """Pair two passages, deciding at random which one is the query."""
        if rng("pair", self._settings.seed, kind, first.id, second.id).random() < 0.5:
            first, second = second, first
        return MinedPair(first.text, second.text, kind, passage_id=second.id, source=first.id)

    def _checked(self, pair: MinedPair) -> Iterator[MinedPair]:
        """Yield the pair unless it is refused, and count both cases."""
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
            yield replace(pair, negatives=tuple(filter(partial(self._is_negative, pair), pair.negatives)))

    def _is_negative(self, pair: MinedPair, passage: SourcePassage) -> bool:
        """Return whether a passage can be a negative of a pair, unlike a positive of the query."""
        met = self._pairs.add(_key(f"{pair.query}\x1f{passage.text}"))
        return met == 1 and not SURROGATE.search(passage.text) and not self._too_long(passage.text)


def _without_title(passage: SourcePassage) -> str:
    """Remove a first line that repeats the heading, which would make the pair trivial."""
    text = passage.text.strip()
    for heading in (passage.title.strip(), leaf_of(passage.title).strip()):
        start, rest = text[: len(heading)], text[len(heading) :]
        ended = rest[:1] in ("", "\n", ".", ":") or (heading[-1:] in (".", "?", "!") and rest[:1] == " ")
        if heading and start.casefold() == heading.casefold() and ended:
            return rest.lstrip(" \n.:=-#*_~")
    return text


def _key(text: str) -> int:
    return key_of(" ".join(text.split()))


# The words for "section" before a number, in the languages that airgen knows.
_WORDS = (
    "section|sections|sect|sec|chapter|appendix|article|part|clause|rule|"
    "abschnitt|kapitel|anhang|artikel|teil|chapitre|annexe|partie|sección|capítulo|apéndice|artículo|parte|"
    "раздел|разделе|раздела|глава|главе|главы|приложение|приложении|статья|статье|статьи|"
    "bagian|bab|lampiran|pasal|अध्याय|अनुभाग|अनुच्छेद|অধ্যায়|অনুচ্ছেদ|القسم|الفصل|المادة|بخش|فصل|ماده|장|절|부록"
)
_NUMBER = r"(?:[A-Z]\.)?\d{1,4}(?:\.\d{1,4}){0,5}[a-z]?"
_NUMBERED = regex.compile(rf"(?i:\b(?:{_WORDS})\.?\s{{0,3}}|§\s{{0,2}})({_NUMBER})(?![\d])", regex.V1)
_CJK = regex.compile(r"第\s?(\d{1,4}(?:\.\d{1,4}){0,5})\s?[章节節条條]")
_QUOTED = regex.compile(r"[“„«「『\"]([^“”„«»「」『』\"\n]{4,100})[”“»」』\"]")
_MANUAL = regex.compile(r"(?<![\w.(])([A-Za-z_][\w.+-]{0,40}\([1-8][a-z]{0,4}\))")
_HEADING = regex.compile(
    rf"(?i:(?:{_WORDS})\.?\s+)?({_NUMBER})(?:[.:)]?(?:\s+|$)|[.:)]\s*)|第\s?(\d{{1,4}})\s?[章节節条條][:：.\s]*"
)
_MANUAL_NAME = regex.compile(r"[A-Za-z_][\w.+-]{0,40}\([1-8][a-z]{0,4}\)")
_MOST_CITATIONS = 3  # maximum citations from one passage; more are usually a list of links


@dataclass(frozen=True, slots=True)
class Citation:
    """A citation of passage number `target` by passage number `source`. If there is no target, `reason` says why."""

    source: int
    target: int | None
    reason: str = ""


def leaf_of(title: str) -> str:
    """Return the last heading of a path of headings."""
    return title.rpartition(_PATH)[2]


def unnumbered(heading: str) -> str:
    """Remove the number from a heading: `14.2. Statistics` becomes `Statistics`. A heading that is only a number is
    unchanged."""
    match = _HEADING.match(heading)
    return heading[match.end() :].strip() or heading if match else heading


class Citations:
    """Resolves citations between passages by section numbers, quoted headings and manual pages, without keeping texts.

    >>> index = Citations()
    >>> index.add(0, "Guide > 2.1. Loops", "A loop repeats.", "guide")
    >>> index.add(1, "Guide > 2.2. Breaks", "A break leaves a loop, see Section 2.1.", "guide")
    >>> [(one.source, one.target) for one in index.resolve()]
    [(1, 0)]

    A citation names a heading: by its number (`see Section 14.2`, `§ 5`), by its text in quotation marks (`see
    “Loops”`), or by the name of a manual page (`ls(1)`). Numbers are looked up only in the same book, the `scope` of a
    passage.
    """

    def __init__(self) -> None:
        # key -> (first passage below the heading, the heading's path), or None if two headings have the key.
        self._places: dict[tuple[str, str], tuple[int, str] | None] = {}
        self._references: list[tuple[int, tuple[str, str]]] = []
        self._dropped: list[int] = []

    def add(self, number: int, title: str, text: str, scope: str) -> None:
        """Add passage `number` with its path of headings, its text, and the book to which its section numbers refer."""
        path = ""
        for heading in filter(None, (part.strip() for part in title.split(_PATH))):
            path = f"{path}{_PATH}{heading}" if path else heading
            for key in _keys_of(heading, scope):
                known = self._places.setdefault(key, (number, path))
                if known is not None and known[1] != path:
                    self._places[key] = None
        references = list(dict.fromkeys(_references(text, scope)))
        self._references += [(number, key) for key in references[:_MOST_CITATIONS]]
        self._dropped += [number] * (len(references) - _MOST_CITATIONS)

    def resolve(self) -> Iterator[Citation]:
        """Yield every citation in the order of sources. A source cites each target once."""
        resolved: set[tuple[int, int]] = set()
        for source, key in self._references:
            if key not in self._places:
                if key[0] != "name":  # most quotations do not name a heading
                    yield Citation(source, None, "no passage has the cited number")
                continue
            place = self._places[key]
            if place is None:
                yield Citation(source, None, "several headings have the cited name")
            elif place[0] == source:
                yield Citation(source, None, "cites itself")
            elif (source, place[0]) not in resolved:
                resolved.add((source, place[0]))
                yield Citation(source, place[0])
        for source in self._dropped:
            yield Citation(source, None, f"more than {_MOST_CITATIONS} citations in a passage")


def _keys_of(heading: str, scope: str) -> Iterator[tuple[str, str]]:
    if _MANUAL_NAME.fullmatch(heading):
        yield "page", heading.casefold()
        return
    match = _HEADING.match(heading)
    if match:
        yield f"number\x1f{scope}", (match[1] or match[2]).casefold()
    name = unnumbered(heading).casefold()
    if len(name) >= 4:
        yield "name", name


def _references(text: str, scope: str) -> Iterator[tuple[str, str]]:
    references = [(match.start(), ("page", match[1].casefold())) for match in _MANUAL.finditer(text)]
    for pattern in (_NUMBERED, _CJK):
        references += [(match.start(), (f"number\x1f{scope}", match[1].casefold())) for match in pattern.finditer(text)]
    for match in _QUOTED.finditer(text):
        references.append((match.start(), ("name", unnumbered(match[1].strip(" ,.")).casefold())))
    yield from (key for _, key in sorted(references))
