"""Find and remove the front matter, table of contents, references and index of a long document.

Appendix A.1 of the paper removes the table of contents and the references. Chunks of title pages and indexes are just
as useless. A part is removed only if both its heading and its form show what it is, so a chapter that is called
"References" stays. The removed parts are returned, and are listed among what was dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from airgen.languages import SPACELESS
from airgen.records import Document

__all__ = ["find_apparatus", "remove_apparatus"]

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
    r"(?:\.\s?){3,}\s*[\divxlc]{0,5}$|…\s*\d*$|\s{2,}\d{1,4}$|\t\d{1,4}$|^\W*\d{1,2}(?:\.\d{1,2})*[.)]?\s.{1,80}\s\d{1,4}$",
    re.IGNORECASE,
)
_CITATION = re.compile(
    r"(?<!\d)(?:1[89]|20)\d\d[a-z]?(?!\d)|^\s*\[\w{1,12}\]|^\s*\d{1,3}\.\s"
    r"|\bdoi\b|https?://|\bet al\b|\bpp?\.\s?\d|\bvol\.|\barXiv\b|\bISBN\b",
    re.IGNORECASE,
)
_STOPS = (".", "!", "?", "。", "！", "？", "؟", "।", "॥", "۔", ":", ";", "”", '"', "»", ")")


@dataclass(frozen=True, slots=True)
class _Line:
    start: int
    end: int
    text: str

    @property
    def kind(self) -> str:
        """The kind of part that this line is a heading of, or an empty string."""
        if len(self.text) > 60:
            return ""
        match = _NUMBER.match(self.text.strip(" *_"))
        return _HEADINGS.get(" ".join(match[1].lower().strip(" *_").split()), "") if match else ""


def remove_apparatus(
    text: str, starts: list[tuple[int, Document]], kinds: Sequence[str], language: str
) -> tuple[str, list[tuple[int, Document]], list[tuple[str, str]]]:
    """The text without the parts of these kinds, the documents' new starts, and the removed parts as (kind, text)."""
    wanted = [kind for kind in kinds if kind != "front-matter" or len(starts) == 1]
    ranges = find_apparatus(text, wanted, language)
    pieces: list[str] = []
    moved: list[tuple[int, Document]] = []
    length = at = 0
    for start, end in [*((start, end) for start, end, _ in ranges), (len(text), len(text))]:
        body = text[at:start]
        piece = body.strip()
        if piece:
            offset = at + len(body) - len(body.lstrip())
            if pieces:
                length += 2
            for place, document in starts:
                if at <= place < start:
                    moved.append((length + max(place - offset, 0), document))
            if not any(place <= length for place, _ in moved):
                # The beginning of this document was removed, but the rest still belongs to it.
                owner = [document for place, document in starts if place <= offset]
                moved.append((length, owner[-1] if owner else starts[0][1]))
            pieces.append(piece)
            length += len(piece)
        at = end
    moved.sort(key=lambda entry: entry[0])
    return "\n\n".join(pieces), moved, [(kind, text[start:end].strip()) for start, end, kind in ranges]


def find_apparatus(text: str, kinds: Sequence[str], language: str = "en") -> list[tuple[int, int, str]]:
    """Ranges (start, end, kind) of the parts, in order, not overlapping."""
    lines = list(_lines(text))
    found: list[tuple[int, int, str]] = []
    if "contents" in kinds:
        found += _contents(lines, len(text))
    if "references" in kinds:
        found += _references(lines, len(text))
    if "index" in kinds:
        found += _index(lines, len(text))
    if "front-matter" in kinds:
        for start, end, kind in _front_matter(lines, len(text), language):
            # The contents are often inside the front matter; they keep their own kind.
            for first, last, _ in sorted(part for part in found if part[1] <= end):
                found.append((start, first, kind))
                start = last
            found.append((start, end, kind))
    merged: list[tuple[int, int, str]] = []
    for start, end, kind in sorted(found):
        if merged and start < merged[-1][1]:
            start = merged[-1][1]
        if text[start:end].strip():
            merged.append((start, end, kind))
    # Where nearly the whole document would be removed, the parts were not recognised correctly.
    return merged if sum(end - start for start, end, _ in merged) < 0.8 * len(text) else []


def _lines(text: str) -> Iterator[_Line]:
    at = 0
    for row in text.split("\n"):
        yield _Line(at, at + len(row), row)
        at += len(row) + 1


def _key(text: str) -> str:
    """The letters of a contents entry, which are equal to those of the heading that it names."""
    return re.sub(r"[\W\d_]+", "", re.sub(r"(?:\s|\.\s?|…)+[\divxlc]*$", "", text.lower().strip(), flags=re.IGNORECASE))


def _contents(lines: list[_Line], size: int) -> Iterator[tuple[int, int, str]]:
    at = 0
    while at < len(lines) and lines[at].start < 0.3 * size:
        if lines[at].kind == "contents" and (end := _contents_end(lines, at, size)) > at + 1:
            yield lines[at].start, lines[end - 1].end, "contents"
            at = end
        elif _ENTRY.search(lines[at].text):  # a table of contents without its heading
            end = at
            while end < len(lines) and (_ENTRY.search(lines[end].text) or not lines[end].text.strip()):
                end += 1
            if sum(bool(line.text.strip()) for line in lines[at:end]) >= 6:
                yield lines[at].start, lines[end - 1].end, "contents"
            at = end
        else:
            at += 1


def _contents_end(lines: list[_Line], at: int, size: int) -> int:
    """The line after the contents that begin at `at`: where its first entry is repeated, or prose begins."""
    entries = [index for index in range(at + 1, min(at + 60, len(lines))) if len(_key(lines[index].text)) >= 4][:3]
    for entry in entries[:2]:
        wanted = _key(lines[entry].text)
        for index in range(entry + 3, len(lines)):
            if lines[index].start > lines[at].start + 0.2 * size + 4000:
                break
            if (
                len(lines[index].text) < 100
                and _key(lines[index].text) == wanted
                and not _ENTRY.search(lines[index].text)
            ):
                return index
    end = at + 1
    for index in range(at + 1, len(lines)):
        row = lines[index].text.strip()
        if not row:
            continue
        if _ENTRY.search(lines[index].text) or (len(row) < 90 and not row.endswith(_STOPS)):
            end = index + 1
        else:
            break
    # The last short line can be the heading of the next part.
    while (
        end > at + 2
        and not _ENTRY.search(lines[end - 1].text)
        and _ENTRY.search("\n".join(line.text for line in lines[at + 1 : end]))
    ):
        end -= 1
    return end


def _references(lines: list[_Line], size: int) -> Iterator[tuple[int, int, str]]:
    for at, line in enumerate(lines):
        if line.kind != "references" or line.start < 0.05 * size:
            continue
        level = len(line.text) - len(line.text.lstrip("#"))
        end = at + 1
        while end < len(lines):
            row = lines[end]
            if row.kind in ("stop", "index", "body") or re.match(
                r"^(?:#{1,6}\s*)?(?:appendix|annex)\b", row.text, re.IGNORECASE
            ):
                break
            if level and (deeper := len(row.text) - len(row.text.lstrip("#"))) and deeper <= level:
                break
            end += 1
        body = [row for row in lines[at + 1 : end] if row.text.strip()]
        cited = sum(bool(_CITATION.search(row.text)) for row in body)
        # Entries span several lines: in a list of references, at least every fifth line has a citation mark.
        if len(body) >= 3 and cited * 5 >= len(body):
            yield line.start, lines[end - 1].end, "references"


def _index(lines: list[_Line], size: int) -> Iterator[tuple[int, int, str]]:
    for at, line in enumerate(lines):
        if line.kind == "index" and line.start > 0.6 * size:
            body = [row.text.strip() for row in lines[at + 1 :] if row.text.strip()]
            short = sum(len(row) < 75 and not row.endswith((".", "。", "।")) for row in body)
            if len(body) >= 10 and short >= 0.8 * len(body):
                yield line.start, lines[-1].end, "index"
                return


def _front_matter(lines: list[_Line], size: int, language: str) -> Iterator[tuple[int, int, str]]:
    """Everything before the first paragraph of prose, or before the abstract, preface or introduction."""
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
