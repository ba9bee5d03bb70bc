"""Edit the XML of Word documents: text that mammoth would lose is moved to where mammoth reads it, or becomes a piece.

word = WordFile(raw)
word.readable()             # the document for mammoth: equations, shapes and fields are text
word.pieces(texts)          # (reason, text): headers, comments, and whatever is in none of the texts
"""

import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from airgen.corpus.readers.html import html_page
from airgen.corpus.readers.packed_xml import local
from airgen.corpus.readers.reader import Unusable

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_MAIN = ("document", "footnotes", "endnotes")
# The parts of a document by their first element, and why their words are not part of its text.
_BESIDE = {
    "hdr": "header of the page", "ftr": "footer of the page", "comments": "comments",
    "glossaryDocument": "blocks of text to insert", "chartSpace": "words of a chart", "dataModel": "words of a drawing",
}  # fmt: skip
_OTHER = "other part of the document"
_SETTINGS = ("settings", "webSettings", "styles", "numbering", "fonts")
_STRICT = "{http://purl.oclc.org/ooxml/wordprocessingml/main}"
_DRAWINGS = ("http://schemas.openxmlformats.org/drawingml/2006/", "http://purl.oclc.org/ooxml/drawingml/")
_CHARTS = {f"{{{space}{name}" for space in _DRAWINGS for name in ("chart}chartSpace", "diagram}dataModel")}
# Elements around runs or paragraphs that mammoth does not know; their content replaces them.
_AROUND = frozenset(f"{_W}{name}" for name in ("fldSimple", "dir", "bdo", "ruby", "rubyBase", "subDoc", "proofErr"))
_NO_TEXT = frozenset(
    f"{_W}{name}" for name in ("del", "moveFrom", "rPr", "pPr", "sectPr", "tblPr", "trPr", "tcPr", "sdtPr")
)
_SIGNS = {f"{_M}sup": "^", f"{_M}sub": "_", f"{_M}den": "/", f"{_M}deg": "root "}
_TEXTS = frozenset(f"{space}t" for space in (_W, _M, "{http://schemas.openxmlformats.org/drawingml/2006/main}"))
_MAX_SEARCHED_PARAGRAPHS = 1000  # paragraphs that are searched for in the whole text
_MAX_INNER_FILE_BYTES = 16 << 20  # bytes per file in the archive
Element = ElementTree.Element


class WordFile:
    """An unpacked Word document. Raises Unusable if it declares entities, and ParseError for broken XML."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._trees: dict[str, Element] = {}
        self._pieces: list[tuple[str, str]] = []
        self._mended: set[str] = set()
        with zipfile.ZipFile(io.BytesIO(raw)) as members:
            for name in members.namelist():
                if name.endswith(".xml") and name != "[Content_Types].xml":
                    data = members.read(name)
                    if b"<!ENTITY" in data or "<!ENTITY".encode("utf-16-le") in data:
                        raise Unusable("damaged document", f"{name} declares entities")
                    root = ElementTree.fromstring(data)
                    if root.tag in _CHARTS or (root.tag.startswith((_W, _STRICT)) and local(root) not in _SETTINGS):
                        self._trees[name] = root
                elif name.startswith("word/embeddings/") or name.lower().endswith((".rtf", ".mht", ".mhtml", ".docx")):
                    self._pieces.append(("file inside the document", name))
                elif name.lower().endswith((".htm", ".html", ".xhtml", ".txt")):
                    text = members.read(name)[:_MAX_INNER_FILE_BYTES].decode("utf-8-sig", "replace")
                    page = html_page(text) if "<" in text else None
                    self._pieces.append(("file inside the document", page.text if page else text))
        for name, root in self._trees.items():
            if local(root) in _MAIN and self._mend(root):
                self._mended.add(name)

    def readable(self) -> bytes:
        """Return the document in a form that mammoth reads completely. It is rewritten only if necessary."""
        if not self._mended:
            return self._raw
        out = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(self._raw)) as members, zipfile.ZipFile(out, "w") as written:
            for member in members.infolist():
                if member.filename in self._mended:
                    written.writestr(member.filename, ElementTree.tostring(self._trees[member.filename], "utf-8"))
                elif not member.filename.startswith(("word/media/", "word/embeddings/")):
                    written.writestr(member.filename, members.read(member.filename))
        return out.getvalue()

    def pieces(self, texts: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield the pieces of the document that do not occur in these texts, as (reason, text)."""
        yield from self._pieces
        keys = {letters for text in texts for letters in map(_letters, [text, *text.split("\n")])}
        whole = "".join(map(_letters, texts))
        missed = 0
        for root in self._trees.values():
            reason = "" if local(root) in _MAIN else _BESIDE.get(local(root), _OTHER)
            lost = [text for text in _paragraphs(root) if (key := _letters(text)) and (reason or key not in keys)]
            if not reason:
                missed += len(lost)
                lost = [text for text in lost if missed <= _MAX_SEARCHED_PARAGRAPHS and _letters(text) not in whole]
            if lost:
                yield reason or "not understood by mammoth", "\n".join(dict.fromkeys(lost))

    def _mend(self, root: Element) -> bool:
        """Move what mammoth would lose to where mammoth reads it. Returns whether anything was moved."""
        changed = False
        stack = [root]
        while stack:
            parent = stack.pop()
            waiting, children, replaced = list(reversed(parent)), list[Element](), False
            while waiting:
                child = waiting.pop()
                replacement = self._instead(child)
                if replacement is None:
                    children.append(child)
                else:
                    replaced = True
                    waiting += reversed(replacement)
            if replaced:
                changed = True
                parent[:] = children
            stack += [child for child in children if child.tag not in _NO_TEXT]
        return changed

    def _instead(self, child: Element) -> list[Element] | None:
        """Return the replacement of an element, or None to keep it, and record what is left out."""
        tag = child.tag
        if tag == f"{_M}oMath":
            return [_run(_equation(child))]
        if tag == f"{_M}oMathPara":
            return [node for node in child if node.tag == f"{_M}oMath"]
        if tag == f"{_MC}AlternateContent":
            alternatives = (node for name in ("Fallback", "Choice") for node in child.iter(f"{_MC}{name}"))
            return list(next((node for node in alternatives if _has_words(node)), []))
        if tag in (f"{_W}del", f"{_W}moveFrom"):
            self._note("deleted text" if tag == f"{_W}del" else "moved text", "".join(_words(child)))
        elif tag == f"{_W}rt":
            self._note("pronunciation of a word (ruby)", "".join(_words(child)))
            return []
        elif tag == f"{_W}sdtPr" or tag == f"{_W}ffData":
            names = {f"{_W}listItem": f"{_W}displayText", f"{_W}listEntry": f"{_W}val"}
            choices = [node.get(names[node.tag], "") for node in child.iter() if node.tag in names]
            self._note("options of a form field", "\n".join(choices))
        elif tag == f"{_W}drawing":
            for node in child.iter():
                if local(node) == "docPr":
                    self._note(
                        "alternative text of a picture", " ".join(filter(None, (node.get("title"), node.get("descr"))))
                    )
            if boxes := list(child.iter(f"{_W}txbxContent")):
                shape = Element(f"{_W}pict")
                shape.extend(boxes)
                return [shape]
        elif tag in _AROUND or (tag.startswith(_W) and tag not in _KNOWN and _has_runs(child)):
            return list(child)
        return None

    def _note(self, reason: str, text: str) -> None:
        if text.strip():
            self._pieces.append((reason, text.strip()))


# The elements around runs and paragraphs that mammoth reads, or leaves out for a reason.
_KNOWN = _NO_TEXT | frozenset(f"{_W}{name}" for name in (
    "document", "body", "footnotes", "footnote", "endnotes", "endnote", "p", "r", "tbl", "tr", "tc", "customXml", "ins",
    "moveTo", "object", "smartTag", "drawing", "pict", "txbxContent", "hyperlink", "sdt", "sdtContent",
    "moveFromRangeStart", "moveFromRangeEnd", "moveToRangeStart", "moveToRangeEnd", "background", "tblGrid", "tblPrEx",
))  # fmt: skip


def _words(element: Element) -> Iterator[str]:
    """Yield the words of an element, including deleted ones."""
    for node in element.iter():
        if node.tag in _TEXTS or local(node) == "delText":
            yield node.text or ""


def _has_words(element: Element) -> bool:
    return any(words.strip() for words in _words(element))


def _has_runs(element: Element) -> bool:
    return any(node.tag in (f"{_W}r", f"{_W}p") for node in element.iter() if node is not element)


def _run(text: str) -> Element:
    run = Element(f"{_W}r")
    words = ElementTree.SubElement(run, f"{_W}t")
    words.text = text
    words.set("{http://www.w3.org/XML/1998/namespace}space", "preserve")
    return run


def _equation(element: Element) -> str:
    """Return an equation on one line: x^2, a/b, a_1."""
    pieces: list[str] = []
    stack: list[Element] = [element]
    while stack:
        node = stack.pop()
        pieces.append(_SIGNS.get(node.tag, ""))
        if node.tag == f"{_M}t":
            pieces.append(node.text or "")
        stack += reversed(node)
    return "".join(pieces)


def _paragraphs(root: Element) -> Iterator[str]:
    """Yield the words of each paragraph, and of each text in a drawing or chart outside paragraphs."""
    for paragraph in root.iter():
        if local(paragraph) != "p":
            continue
        words = []
        stack: list[Element] = [paragraph]
        while stack:
            node = stack.pop()
            if node is not paragraph and local(node) == "p":
                continue  # a separate paragraph for a text box
            if node.tag in (f"{_W}del", f"{_W}moveFrom"):
                continue
            if local(node) == "t":
                words.append(node.text or "")
            elif local(node) in ("tab", "br", "cr"):
                words.append(" ")
            stack += reversed(node)
        yield "".join(words)
    for cache in root.iter():
        if local(cache) == "strCache":
            yield "\n".join(node.text or "" for node in cache.iter() if local(node) == "v")


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text)
