"""Read e-mail messages and saved web pages (.eml, .mbox, .mht, .mhtml): `reader: {kind: email, path: support}`.

The subject becomes the title, and the message's plain or HTML text the document. Attachments, and the sender and
recipients, are pieces that are left out.
"""

import base64
import email
import email.errors
import email.policy
import re
from collections.abc import Iterator
from email.message import Message
from typing import Any, ClassVar

from airgen.corpus.readers.html import html_page
from airgen.corpus.readers.reader import Unusable
from airgen.corpus.readers.sections import Block, Page, SectionSettings, paragraphs
from airgen.corpus.readers.text_files import FileReader
from airgen.storage.records import Document, Dropped, storable
from airgen.text.character_encodings import Decoded, decoded, decoded_html

_MBOX = re.compile(rb"^From [^\n]*\n(?=[A-Za-z][\w-]*:)", re.MULTILINE)
_SPACES = b" \t\r\n"
_PAGES = ("text/html", "application/xhtml+xml")
_HEADERS = ("From", "To", "Cc", "Date")
_WRONG = (  # errors of the library for damaged files
    LookupError, ValueError, TypeError, AttributeError, AssertionError, RecursionError, ArithmeticError,
    email.errors.MessageError,
)  # fmt: skip
_MOST_PARTS = 10_000
_LONGEST_HEADER = 4_000  # maximum number of characters parsed: the library's time is quadratic in a header's length


class _Bounded(email.policy.EmailPolicy):
    """The library's default policy, except that very long headers are kept unparsed."""

    def header_fetch_parse(self, name: str, value: str) -> Any:
        """Return a header's value."""
        if len(value) <= _LONGEST_HEADER:
            return super().header_fetch_parse(name, value)
        written = " ".join(value.split())
        return written[:_LONGEST_HEADER] if name.lower().startswith("content-") else written


_POLICY = _Bounded()


class EmailReader(FileReader):
    """Yields one document per message. A file may contain several messages."""

    class Settings(SectionSettings):
        """Settings of the e-mail reader.

        Attributes:
            max_bytes: Maximum size of a file.
        """

        packages: ClassVar[tuple[str, ...]] = ("selectolax",)
        max_bytes: int = 256 * 1024 * 1024

    suffixes = (".eml", ".mht", ".mhtml", ".mbox")
    version, packed = 2, True

    def parse(self, raw: bytes, name: str) -> Iterator[Document | Dropped]:
        """Yield the pieces left out of a file, then its documents. Raises Unusable if the file has no text."""
        starts = [match.start() for match in _MBOX.finditer(raw)] if name.lower().endswith(".mbox") else []
        if not starts:
            yield from self._message(raw, name, "")
            return
        if starts[0]:
            yield from self.pieces([("before the first message", raw[: starts[0]].decode("utf-8", "replace"))], name)
        for number, (start, end) in enumerate(zip(starts, [*starts[1:], len(raw)], strict=True), 1):
            message = raw[raw.index(b"\n", start) + 1 : end]
            try:
                yield from self._message(re.sub(rb"(?m)^>(>*From )", rb"\1", message), name, f"#message={number}")
            except Unusable as error:
                yield from self.pieces([(error.reason, error.text)], name, f"message {number}")

    def _message(self, raw: bytes, name: str, anchor: str) -> Iterator[Document | Dropped]:
        try:
            message = _with_parts(email.message_from_bytes(raw.removeprefix(b"\xef\xbb\xbf"), policy=_POLICY))
            title = storable(" ".join(str(_header(message, "Subject")).split()))
            page = self._page(message)
            headers = [f"{key}: {value}" for key in _HEADERS if (value := _header(message, key))]
        except _WRONG as error:
            raise Unusable(
                "damaged message", f"{type(error).__name__}: {error}", raw[:200].decode("utf-8", "replace")
            ) from error
        position = anchor.lstrip("#").replace("=", " ")
        left = [*page.left, ("from, to and date of a message", storable("\n".join(headers)))]
        yield from self.pieces([piece for piece in left if any(map(str.isalnum, piece[1]))], name, position)
        blocks = [block for block in page.blocks if block.text.strip()]
        if not blocks:
            raise Unusable("no text in the message", "", title)
        title = title or page.title
        if not anchor:
            yield from self.documents(blocks, title, name)
            return
        text = "\n\n".join(block.text for block in blocks)
        yield self.document(name, text, title, anchor, position=position)

    def _page(self, message: Message) -> Page:
        """Return the text of a message without attachments: the first plain-text alternative, otherwise HTML."""
        blocks: list[Block] = []
        left: list[tuple[str, str]] = []
        title = ""
        parts = [(message, False)]
        count = 0
        while parts:
            part, aside = parts.pop()
            count += 1
            if count > _MOST_PARTS:
                raise Unusable("too large", f"more than {_MOST_PARTS:,} parts")
            kind = part.get_content_type()
            if kind.startswith("multipart/") and not part.is_multipart():
                kind = "text/plain"  # its boundary is missing
            left.append(("around the parts of the message", storable(_around(part))))
            inner = [child for child in part.get_payload() if isinstance(child, Message)] if part.is_multipart() else []
            if inner:
                chosen = _chosen(kind, inner)
                parts += [(child, aside or child not in chosen) for child in reversed(inner)]
                if kind == "message/rfc822":
                    blocks.append(Block(storable(_header(inner[0], "Subject"))))
                continue
            filename = storable(_filename(part))
            if not kind.startswith("text/") or kind in ("text/css", "text/javascript"):
                left.append(("attachment", filename))
                continue
            page = self._text(part, kind)
            left += page.left
            if aside:
                left.append(("other form of the message", page.text))
            elif part.get_content_disposition() == "attachment":
                left.append(("attachment", f"{filename}\n{page.text}"))
            else:
                blocks += page.blocks
                title = title or page.title
        return Page(title, blocks, left)

    def _text(self, part: Message, kind: str) -> Page:
        raw, mended = _payload(part)
        left = [("damaged base64, read as far as it goes", mended)] if mended else []
        charset = str(part.get_content_charset() or "")
        try:
            if charset.lower() in _UTF7 and kind not in _PAGES:
                result = Decoded(raw.decode("utf-7"), "utf-7")
            elif charset or kind in _PAGES:
                result = decoded_html(raw, "", self.place.language, charset)
            else:
                result = decoded(raw, "", self.place.language)
        except UnicodeError:  # one part does not cost the message
            result = Decoded(raw.decode("utf-8", "replace"), "utf-8", damaged=True)
        if result.damaged:
            left.append((f"bytes that are not {result.encoding}", result.text))
        page = html_page(result.text) if kind in _PAGES else Page("", paragraphs(result.text))
        return Page(page.title, page.blocks, [*page.left, *left])


def _payload(part: Message) -> tuple[bytes, str]:
    """Return the bytes of a part, and the beginning of its base64 where that is damaged."""
    raw = part.get_payload(decode=True)
    raw = raw if isinstance(raw, bytes) else b""
    coding = str(part.get("Content-Transfer-Encoding") or "").strip().lower()
    if not coding and (text := _unmarked_base64(raw)):
        return text, ""
    if coding != "base64":
        return raw, ""
    written = part.get_payload()
    if not isinstance(written, str):
        return raw, ""
    letters = re.sub(r"[^A-Za-z0-9+/]", "", written)
    if not letters or raw.translate(None, _SPACES) != written.encode("utf-8", "replace").translate(None, _SPACES):
        return raw, ""  # the library gives what is no base64 as it is
    return base64.b64decode(letters[: len(letters) // 4 * 4]), written[:200]


_UTF7 = ("utf-7", "utf7", "unicode-1-1-utf-7", "x-unicode-2-0-utf-7")


def _unmarked_base64(raw: bytes) -> bytes:
    """Return the text of a part that is base64 although no header says so; nothing for another part."""
    *lines, last = raw.split() or [b""]
    if len(raw) < _MIN_BASE64_BYTES or not _BASE64.fullmatch(last):
        return b""
    if not all(60 <= len(line) <= 76 and _BASE64.fullmatch(line) for line in lines):
        return b""
    try:
        text = base64.b64decode(raw.translate(None, _SPACES), validate=True)
        return text if b" " in text and not _CONTROLS.search(text.decode("utf-8")) else b""
    except ValueError:
        return b""


_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f]")
_MIN_BASE64_BYTES = 60
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{1,76}={0,2}")  # a line of it
_BOUNDARY = re.compile(r"^--(\S{1,70})[ \t]{0,9}\r?\nContent-[A-Z]", re.MULTILINE | re.IGNORECASE)


def _with_parts(message: Message) -> Message:
    """Return a message with its parts: one whose header names another boundary is parsed with that of its body."""
    payload = message.get_payload()
    if message.get_content_maintype() != "multipart" or message.is_multipart() or not isinstance(payload, str):
        return message
    if (boundary := _BOUNDARY.search(payload)) is None:
        return message
    kind = message.get_content_subtype()
    head = f'Content-Type: multipart/{kind}; boundary="{boundary[1]}"\n'
    others = "".join(f"{name}: {value}\n" for name, value in message.raw_items() if name.lower() != "content-type")
    whole = f"{head}{others}\n{payload}".encode("utf-8", "surrogateescape")
    return email.message_from_bytes(whole, policy=_POLICY)


def _around(message: Message) -> str:
    """Return what is before and after the parts of a message, which programs do not show."""
    words = "\n".join(filter(None, (message.preamble, message.epilogue))).strip()
    return _USUAL_PREAMBLE.sub("", words).strip()


_USUAL_PREAMBLE = re.compile(r"\AThis is a multi-?part message in MIME format\.*", re.IGNORECASE)


def _header(message: Message, name: str) -> str:
    try:
        return str(message.get(name) or "")
    except _WRONG:  # a header that breaks the rules
        raw: Any = dict(message.raw_items()).get(name, "")
        return str(raw)


def _filename(part: Message) -> str:
    try:
        return str(part.get_filename() or "")
    except _WRONG:
        return ""


def _chosen(kind: str, parts: list[Message]) -> list[Message]:
    """Return the parts with the text: one of several alternatives, or the first HTML part of a saved page."""
    if kind == "multipart/alternative":
        rich = [part for part in parts if part.is_multipart() or part.get_content_type() == "text/html"]
        plain = [part for part in parts if part.get_content_type() == "text/plain" and _has_words(part)]
        return (plain or rich or parts)[:1]
    if kind == "multipart/related":
        return [next((part for part in parts if part.get_content_maintype() in ("text", "multipart")), parts[0])]
    return parts


def _has_words(part: Message) -> bool:
    raw = part.get_payload(decode=True)
    return isinstance(raw, bytes) and any(byte > 127 or chr(byte).isalnum() for byte in raw)
