"""Parse the members of a ZIP archive of XML, with limits on their size."""

import io
import posixpath
import zipfile
import zlib
from xml.etree import ElementTree
from xml.parsers.expat import ExpatError

from airgen.corpus.readers.html_tags import MAX_MARKS
from airgen.corpus.readers.reader import Unusable

DAMAGED = (
    zipfile.BadZipFile, zlib.error, ExpatError, ElementTree.ParseError, EOFError, OSError, ArithmeticError, LookupError,
    TypeError, ValueError, AttributeError, RuntimeError,
)  # fmt: skip
Element = ElementTree.Element
_MOST_DEPTH = 100  # maximum nesting, because the content of each level is read once per level
_READ_AGAIN = 16 << 20  # bytes of members that may be read twice, since many places may refer to the same member


class PackedXml:
    """The XML of a zipped document. Raises Unusable if it unpacks to too much, and the errors in `DAMAGED`."""

    def __init__(self, raw: bytes, most: int) -> None:
        if raw.startswith(b"\xd0\xcf\x11\xe0"):
            raise Unusable("password needed", "it is encrypted or in an older format; save it again without a password")
        self._members = zipfile.ZipFile(io.BytesIO(raw))
        # A member yields at most the size that the archive declares for it, so the sum is a limit.
        parts = [member for member in self._members.infolist() if member.filename.endswith((".xml", ".rels"))]
        if (size := sum(member.file_size for member in parts)) > most:
            raise Unusable("too large", f"unpacks to {size} bytes, more than {most}")
        self.names = dict.fromkeys(member.filename for member in parts)  # in order; looked up once for each reference
        self._unread = size + _READ_AGAIN

    def tree(self, name: str) -> Element:
        """Return the root element of a member."""
        data = self._members.read(name)
        self._unread -= len(data)
        if self._unread < 0:
            raise Unusable("too large", f"{name} and others are included repeatedly")
        if b"<!ENTITY" in data or "<!ENTITY".encode("utf-16-le") in data:  # they can read files and grow without end
            raise Unusable("damaged document", f"{name} declares entities")
        if data.count(b"<") > MAX_MARKS:
            raise Unusable("too large", f"more than {MAX_MARKS:,} XML tags")
        root = ElementTree.fromstring(data)
        level, depth = [root], 0
        while level:
            if depth > _MOST_DEPTH:
                raise Unusable("nested too deep", f"{name}: more than {_MOST_DEPTH} levels of nested elements")
            level, depth = [child for element in level for child in element], depth + 1
        return root

    def targets(self, name: str) -> dict[str, str]:
        """Return {id: target member} for the relationships of a member (Office Open XML)."""
        folder, base = posixpath.split(name)
        try:
            relations = self.tree(f"{folder}/_rels/{base}.rels")
        except KeyError:
            return {}
        targets = {
            relation.get("Id", ""): relation.get("Target", "")
            for relation in relations
            if relation.get("TargetMode") != "External"
        }
        return {
            key: target.lstrip("/") if target.startswith("/") else posixpath.normpath(posixpath.join(folder, target))
            for key, target in targets.items()
        }


def local(element: Element) -> str:
    """Return the name of an element without its namespace, or "" for a comment."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def attribute(element: Element, name: str) -> str:
    """Return an attribute, ignoring its namespace."""
    return next((value for key, value in element.attrib.items() if key.rpartition("}")[2] == name), "")
