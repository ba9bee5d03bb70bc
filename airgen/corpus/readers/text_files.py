"""Files of plain text, and the base of readers that read one file at a time."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from airgen.corpus.readers.files import PathReader, Raw, opened
from airgen.corpus.readers.metadata import file_values
from airgen.corpus.readers.reader import Unusable, drop, left_out
from airgen.corpus.readers.sections import Block, SectionSettings, sections
from airgen.errors import CorpusError
from airgen.storage.records import Document, Dropped
from airgen.text.character_encodings import Decoded, decoded, usual_encoding

_MAX_SAMPLED_FILES, _SAMPLE_BYTES = 100, 1 << 14  # files, and bytes per file, from which the encoding is detected


# What files begin with that are saved under the name of another kind, and what to do.
_SIGNATURES = (
    (b"%PDF-", "a PDF: name it .pdf"),
    (b"PK\x03\x04", "an archive or an office document: name it .docx, .epub, .odt or .pptx, or unpack it"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old office document: save it as .docx"),
    (b"{\\rtf", "RTF: save it as .docx"),
    (b"\x89PNG\r\n", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
)
_PAGE = re.compile(rb"\A\s*+<(?:!doctype\s+html|html)\b", re.IGNORECASE)


def _other_format(raw: bytes, path: Path, packed: bool) -> str:
    """Return what a file is that does not have the format of its reader, and what to do; empty if it may have it."""
    if packed or path.suffix.lower() == ".txt":
        no_message = path.suffix.lower() not in (".eml", ".mbox", ".mht", ".mhtml")
        if no_message and _PAGE.match(raw):
            return "an HTML page: name it .html"
    if packed:
        return ""
    return next((words for signature, words in _SIGNATURES if raw.startswith(signature)), "")


class FileReader(PathReader):
    """Base class of readers that read one file at a time. A subclass turns its bytes or its text into documents.

    If it raises Unusable, the file is dropped.
    """

    Settings: type[SectionSettings] = SectionSettings
    version = 3
    usual = ""  # the encoding of files that are not UTF-8
    packed = False  # whether files declare their encoding

    def look_around(self, paths: Sequence[Path]) -> None:
        """Detect a legacy encoding from several files, since a few words are not enough."""
        if not (self.packed or self.settings.encoding) and len(paths) > 1:
            sample = paths[:: max(len(paths) // _MAX_SAMPLED_FILES, 1)]
            self.usual = usual_encoding(map(_beginning, sample), self.place.language)

    def raw_file(self, path: Path) -> Iterator[Raw | Dropped]:
        """Yield the bytes of one file, or drop it if it is empty or too large."""
        name = self.name(path)
        with opened(path) as stream:
            raw = stream.read(self.settings.max_bytes + 1)
        if len(raw) > self.settings.max_bytes:
            yield drop("too large", identity=name, detail=f"more than {self.settings.max_bytes} bytes", source=name)
        elif not raw.strip():
            yield drop("empty file", identity=name, source=name)
        elif other := _other_format(raw, path, self.packed):
            yield drop("another format than its name says", identity=name, detail=other, source=name)
        else:
            yield Raw(path, raw)

    def read_raw(self, raw: Raw) -> Iterator[Document | Dropped]:
        """Yield the documents of one file's bytes."""
        name = self.name(raw.path)
        self.about = {name: file_values(name, raw.data)} if self.settings.metadata else {}
        try:
            yield from self.parse(raw.data, name)
        except Unusable as error:
            yield drop(error.reason, identity=name, detail=error.detail, source=name, text=error.text)

    def parse(self, raw: bytes, name: str) -> Iterator[Document | Dropped]:
        """Yield the documents of one file's bytes."""
        result = self.decode(raw)
        yield from self.parse_text(result.text, name)
        if result.damaged:
            yield damage(result, self.identity(name), name)

    def parse_text(self, text: str, name: str) -> Iterator[Document | Dropped]:
        """Return the documents in the text of one file."""
        raise NotImplementedError

    def pieces(self, left: Iterable[tuple[str, str]], name: str, position: str = "") -> Iterator[Dropped]:
        """Yield a Dropped for each (reason, text) piece that is left out of a file."""
        for reason, text in left:
            yield left_out(reason, identity=self.identity(name), source=name, position=position, text=text)

    def documents(self, blocks: Iterable[Block], title: str, name: str) -> Iterator[Document]:
        """Yield the blocks of one file as one document, or one per section, whose id contains its anchor.

        Raises Unusable if the file has no text.
        """
        blocks = [block for block in blocks if block.text]
        if not blocks:
            raise Unusable("no text in the file")
        if self.settings.split == "file":
            outline = tuple((block.level, block.text) for block in blocks if block.level)
            yield self.document(name, "\n\n".join(block.text for block in blocks), title, outline=outline)
            return
        least, most = self.settings.min_words, self.settings.max_words
        for part in sections(blocks, title, language=self.place.language, min_words=least, max_words=most):
            yield self.document(name, part.text, part.title, f"#{part.anchor}", position=part.anchor)

    def decode(self, raw: bytes) -> Decoded:
        """Return the file's text, and its encoding. Raises Unusable if none fits."""
        encoding = self.settings.encoding
        try:
            return decoded(raw, encoding, self.place.language, self.usual)
        except UnicodeError as error:
            reason = (
                "unknown encoding" if not encoding else "broken UTF-8" if encoding == "utf-8" else f"not {encoding}"
            )
            raise Unusable(reason, str(error), raw[:200].decode("utf-8", "replace")) from error
        except LookupError as error:
            raise Unusable("unknown encoding", f"{encoding}: no such encoding") from error


def _beginning(path: Path) -> bytes:
    """Return the first bytes of a file; none if it cannot be read."""
    try:
        with opened(path) as stream:
            return stream.read(_SAMPLE_BYTES)
    except CorpusError:
        return b""


def damage(result: Decoded, identity: str, name: str) -> Dropped:
    """Return a note about invalid bytes in a text: how many there are, and the first lines that contain them."""
    lines = [line.strip() for line in result.text.split("\n") if "\ufffd" in line]
    count = result.text.count("\ufffd")
    detail = f"{count:,} invalid sequences replaced with U+FFFD"
    reason = f"bytes that are not {result.encoding}"
    return left_out(reason, identity=identity, detail=detail, source=name, text="\n".join(lines[:20]))


_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1{2,}")


def rst_blocks(text: str) -> tuple[str, list[Block]]:
    """Return the title, headings and paragraphs of a reStructuredText document. Inline markup is kept.

    A heading is a line that is underlined, and possibly overlined, by a repeated character at least as long. Levels
    follow the order in which these characters first occur.
    """
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    levels: dict[tuple[str, bool], int] = {}
    blocks: list[Block] = []
    paragraph: list[str] = []

    def flush() -> None:
        if any(map(str.strip, paragraph)):
            blocks.append(Block("\n".join(paragraph).strip("\n")))
        paragraph.clear()

    place = 0
    while place < len(lines):
        line = lines[place]
        over = _ADORNMENT.fullmatch(line) if not paragraph else None
        if (
            over
            and place + 2 < len(lines)
            and lines[place + 2] == line
            and 0 < len(lines[place + 1].strip()) <= len(line)
        ):
            sign, words, size = (line[0], True), lines[place + 1].strip(), 3
        elif (
            not paragraph
            and line.strip()
            and not line[0].isspace()
            and not over
            and place + 1 < len(lines)
            and _ADORNMENT.fullmatch(lines[place + 1])
            and len(lines[place + 1]) >= min(len(line), 4)
        ):
            sign, words, size = (lines[place + 1][0], False), line.strip(), 2
        else:
            if line.strip():
                paragraph.append(line)
            else:
                flush()
            place += 1
            continue
        flush()
        blocks.append(Block(words, min(levels.setdefault(sign, len(levels) + 1), 6)))
        place += size
    flush()
    return next((block.text for block in blocks if block.level == 1), ""), blocks
