"""Find and remove the front matter, table of contents, references and index of a long document.

Appendix A.1 of the paper removes the table of contents and the references. Chunks of title pages and indexes are just
as useless. A part is removed only if both its heading and its form identify it, so a chapter called "References" is
kept. The removed parts are returned and reported as dropped.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from airgen.settings.languages import SPACELESS
from airgen.storage.records import Document

# Headings in AIR-Bench's languages, in lower case.
_TERMS = {
    "contents": "contents|table of contents|list of figures|list of tables|list of illustrations|目录|目錄|目次|"
    "もくじ|índice|índice general|contenido|tabla de contenidos|sumario|table des matières|sommaire|"
    "inhalt|inhaltsverzeichnis|содержание|оглавление|차례|목차|المحتويات|فهرس المحتويات|فهرست|"
    "فهرست مطالب|daftar isi|विषय सूची|विषय-सूची|अनुक्रमणिका|সূচিপত্র|সূচীপত্র",
    "references": "references|reference list|bibliography|works cited|literature cited|literature|cited literature|"
    "参考文献|參考文獻|引用文献|referencias|referencias bibliográficas|bibliografía|références|"
    "références bibliographiques|bibliographie|literatur|literaturverzeichnis|quellen|"
    "quellenverzeichnis|литература|список литературы|библиография|참고문헌|참고 문헌|المراجع|المصادر|"
    "منابع|مراجع|کتابنامه|daftar pustaka|referensi|संदर्भ|सन्दर्भ|ग्रन्थसूची|তথ্যসূত্র|গ্রন্থপঞ্জি",
    "index": "index|general index|subject index|index of names|索引|índice alfabético|índice analítico|"
    "stichwortverzeichnis|sachregister|register|предметный указатель|алфавитный указатель|찾아보기|"
    "색인|نمایه|indeks",
    "stop": "appendix|appendices|annex|annexes|supplement|glossary|about the author|notes|acknowledgements|"
    "acknowledgments|附录|附錄|付録|apéndice|anexo|annexe|anhang|приложение|부록|الملاحق|پیوست|"
    "lampiran|परिशिष्ट|পরিশিষ্ট",
    "body": "abstract|summary|introduction|preface|foreword|prologue|chapter 1|chapter i|摘要|前言|引言|序|"
    "はじめに|resumen|introducción|prefacio|résumé|avant-propos|préface|zusammenfassung|einleitung|"
    "vorwort|einführung|аннотация|введение|предисловие|서론|머리말|요약|مقدمة|ملخص|چکیده|مقدمه|"
    "abstrak|pendahuluan|kata pengantar|सारांश|प्रस्तावना|भूमिका|ভূমিকা|সারাংশ",
}
_HEADINGS = {term: kind for kind, terms in _TERMS.items() for term in terms.split("|")}
_NUMBER = re.compile(
    r"^(?:#{1,6}\s*)?(?:(?:\d{1,2}|[ivxlc]{1,6}|[a-z])(?:\.\d{1,2})*[.)]?\s+)?(.*?)[\s.:：]*$", re.IGNORECASE
)
_ENTRY = re.compile(
    r"(?:\.\s?){3,}+\s*+[\divxlc]{0,5}$|…\s*+\d*$|\s{2,}+\d{1,4}$|\t\d{1,4}$|^\W*\d{1,2}(?:\.\d{1,2})*[.)]?\s.{1,80}\s\d{1,4}$",
    re.IGNORECASE,
)
_ENTRY_SIZE = 200  # characters at the end of a line that identify an entry
_CITATION = re.compile(
    r"(?<!\d)(?:1[89]|20)\d\d[a-z]?(?!\d)|^\s*\[\w{1,12}\]|^\s*\d{1,3}\.\s"
    r"|\bdoi\b|https?://|\bet al\b|\bpp?\.\s?\d|\bvol\.|\barXiv\b|\bISBN\b",
    re.IGNORECASE,
)
_PAGE = re.compile(r"(?<=[\s.…])[\divxlc]++$", re.IGNORECASE)  # the page number at the end of an entry
_APPENDIX = re.compile(r"^(?:#{1,6}\s*)?(?:appendix|annex)\b", re.IGNORECASE)
_STOPS = (".", "!", "?", "。", "！", "？", "؟", "।", "॥", "۔", ":", ";", "”", '"', "»", ")")


@dataclass(frozen=True, slots=True)
class _Line:
    start: int
    end: int
    text: str

    @property
    def kind(self) -> str:
        """Return the kind of part whose heading this line is, or an empty string."""
        if len(self.text) > 60:
            return ""
        match = _NUMBER.match(self.text.strip(" *_"))
        return _HEADINGS.get(" ".join(match[1].lower().strip(" *_").split()), "") if match else ""


def remove_apparatus(
    text: str, starts: list[tuple[int, Document]], kinds: Sequence[str], language: str
) -> tuple[str, list[tuple[int, Document]], list[tuple[str, str]]]:
    """Remove parts such as the table of contents from a text.

    Args:
        text: One document, or several joined documents.
        starts: The offset at which each document begins.
        kinds: The parts to remove: front-matter, contents, references, index.
        language: ISO 639 code.

    Returns:
        The remaining text, the documents' new starts, and the removed parts as (kind, text).
    """
    wanted = [kind for kind in kinds if kind != "front-matter" or len(starts) == 1]
    ranges = find_apparatus(text, wanted, language)
    pieces: list[str] = []
    moved: list[tuple[int, Document]] = []
    firsts = [place for place, _ in starts]
    length = at = 0
    for start, end in [*((start, end) for start, end, _ in ranges), (len(text), len(text))]:
        body = text[at:start]
        piece = body.strip()
        if piece:
            offset = at + len(body) - len(body.lstrip())
            if pieces:
                length += 2
            inside = starts[bisect_left(firsts, at) : bisect_left(firsts, start)]
            moved += [(length + max(place - offset, 0), document) for place, document in inside]
            if not pieces and not any(place <= length for place, _ in moved):
                # The beginning of this document was removed, but the rest still belongs to it.
                moved.append((length, starts[max(bisect_left(firsts, offset + 1) - 1, 0)][1]))
            pieces.append(piece)
            length += len(piece)
        at = end
    moved.sort(key=lambda entry: entry[0])
    return "\n\n".join(pieces), moved, [(kind, text[start:end].strip()) for start, end, kind in ranges]


def find_apparatus(text: str, kinds: Sequence[str], language: str = "en") -> list[tuple[int, int, str]]:
    """Find parts such as the table of contents in a text.

    Args:
        text: The text.
        kinds: The parts to find: front-matter, contents, references, index.
        language: ISO 639 code.

    Returns:
        Ranges (start, end, kind) in characters, in order, not overlapping.
    """
    lines = list(_lines(text))
    parts: list[tuple[int, int, str]] = []
    if "contents" in kinds:
        parts += _contents(lines, len(text))
    if "references" in kinds:
        parts += _references(lines, len(text))
    if "index" in kinds:
        parts += _index(lines, len(text))
    if "front-matter" in kinds:
        for start, end, kind in _front_matter(lines, len(text), language):
            # The contents are often inside the front matter; they keep their own kind.
            for first, last, _ in sorted(part for part in parts if part[1] <= end):
                parts.append((start, first, kind))
                start = last
            parts.append((start, end, kind))
    merged: list[tuple[int, int, str]] = []
    for start, end, kind in sorted(parts):
        if merged and start < merged[-1][1]:
            start = merged[-1][1]
        if text[start:end].strip():
            merged.append((start, end, kind))
    # If nearly the whole document would be removed, the parts were not recognised correctly.
    return merged if sum(end - start for start, end, _ in merged) < 0.8 * len(text) else []


def _lines(text: str) -> Iterator[_Line]:
    at = 0
    for row in text.split("\n"):
        yield _Line(at, at + len(row), row)
        at += len(row) + 1


def _key(text: str) -> str:
    """Return the letters of a contents entry, to compare them with those of headings."""
    return re.sub(r"[\W\d_]+", "", _PAGE.sub("", text.lower().strip()))


def _is_entry(text: str) -> bool:
    """Return whether a line ends like an entry of a table of contents.

    The pattern takes quadratic time, so only the end of the line is matched.
    """
    return bool(_ENTRY.search(text if len(text) <= _ENTRY_SIZE else "x" + text[-_ENTRY_SIZE:]))


def _contents(lines: list[_Line], size: int) -> Iterator[tuple[int, int, str]]:
    at = 0
    headings: dict[str, list[int]] = {}  # the positions of each short line that can be the heading of an entry
    while at < len(lines) and lines[at].start < 0.3 * size:
        is_heading = lines[at].kind == "contents"
        if is_heading and not headings:
            for index, line in enumerate(lines):
                if len(line.text) < 100 and not _is_entry(line.text):
                    headings.setdefault(_key(line.text), []).append(index)
        if is_heading and (end := _contents_end(lines, at, size, headings)) > at + 1:
            yield lines[at].start, lines[end - 1].end, "contents"
            at = end
        elif _is_entry(lines[at].text):  # a table of contents without its heading
            end = at
            while end < len(lines) and (_is_entry(lines[end].text) or not lines[end].text.strip()):
                end += 1
            if sum(bool(line.text.strip()) for line in lines[at:end]) >= 6:
                yield lines[at].start, lines[end - 1].end, "contents"
            at = end
        else:
            at += 1


def _contents_end(lines: list[_Line], at: int, size: int, headings: dict[str, list[int]]) -> int:
    """Return the line where the contents that begin at `at` end: where their first entry is repeated, or prose
    begins."""
    entries = [index for index in range(at + 1, min(at + 60, len(lines))) if len(_key(lines[index].text)) >= 4][:3]
    for entry in entries[:2]:
        repeats = headings.get(_key(lines[entry].text), [])
        place = bisect_left(repeats, entry + 3)
        if place < len(repeats) and lines[repeats[place]].start <= lines[at].start + 0.2 * size + 4000:
            return repeats[place]
    end = at + 1
    for index in range(at + 1, len(lines)):
        row = lines[index].text.strip()
        if not row:
            continue
        if _is_entry(lines[index].text) or (len(row) < 90 and not row.endswith(_STOPS)):
            end = index + 1
        else:
            break
    # The last short line can be the heading of the next part.
    while (
        end > at + 2
        and not _is_entry(lines[end - 1].text)
        and _is_entry("\n".join(line.text for line in lines[max(at + 1, end - _ENTRY_SIZE) : end]))
    ):
        end -= 1
    return end


def _references(lines: list[_Line], size: int) -> Iterator[tuple[int, int, str]]:
    places = [at for at, line in enumerate(lines) if line.kind == "references" and line.start >= 0.05 * size]
    if not places:
        return
    levels = [len(line.text) - len(line.text.lstrip("#")) for line in lines]
    ends = [at for at, row in enumerate(lines) if row.kind in ("stop", "index", "body") or _APPENDIX.match(row.text)]
    written = _counts(bool(row.text.strip()) for row in lines)
    cited = _counts(bool(_CITATION.search(row.text)) for row in lines)
    of_level = {0: ends}  # the lines at which references below a heading of this level end
    for at in places:
        if (level := levels[at]) not in of_level:
            of_level[level] = sorted({*ends, *(place for place, other in enumerate(levels) if 0 < other <= level)})
        stops = of_level[level]
        place = bisect_left(stops, at + 1)
        end = stops[place] if place < len(stops) else len(lines)
        body = written[end] - written[at + 1]
        # Entries span several lines: in a list of references, at least every fifth line has a citation mark.
        if body >= 3 and (cited[end] - cited[at + 1]) * 5 >= body:
            yield lines[at].start, lines[end - 1].end, "references"


def _counts(marks: Iterable[bool]) -> list[int]:
    """Return, for each n from 0, how many of the first n lines are marked."""
    return list(accumulate(marks, initial=0))


def _index(lines: list[_Line], size: int) -> Iterator[tuple[int, int, str]]:
    places = [at for at, line in enumerate(lines) if line.kind == "index" and line.start > 0.6 * size]
    if not places:
        return
    rows = [line.text.strip() for line in lines]
    written = _counts(bool(row) for row in rows)
    small = _counts(0 < len(row) < 75 and not row.endswith((".", "。", "।")) for row in rows)
    for at in places:
        body = written[-1] - written[at + 1]
        if body >= 10 and small[-1] - small[at + 1] >= 0.8 * body:
            yield lines[at].start, lines[-1].end, "index"
            return


def _front_matter(lines: list[_Line], size: int, language: str) -> Iterator[tuple[int, int, str]]:
    """Yield everything before the first paragraph of prose, or before the abstract, preface or introduction."""
    limit = min(0.05 * size, 8000)
    words, begin = 0, 0
    for index, line in enumerate(lines):
        if line.start > limit:
            return
        row = line.text.strip()
        if line.kind == "body":
            if index:
                yield 0, line.start, "front-matter"
            return
        if not row:
            words, begin = 0, index + 1
            continue
        small = sum(letter.islower() or not letter.isupper() for letter in row) * 2 > len(row)
        words += (len(row) // 2 if language in SPACELESS else len(row.split())) if small else 0
        if words >= 40:
            if begin:
                yield 0, lines[begin].start, "front-matter"
            return
