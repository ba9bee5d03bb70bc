"""Make small documents for Word, PowerPoint and LibreOffice, and EPUB books."""

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
M = "http://schemas.openxmlformats.org/officeDocument/2006/math"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
REL = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
OASIS = "urn:oasis:names:tc:opendocument:xmlns:container"
OPF, ENCRYPTED = "http://www.idpf.org/2007/opf", "http://www.w3.org/2001/04/xmlenc#"
MC = "http://schemas.openxmlformats.org/markup-compatibility/2006"
WORD_ROOT = (
    f'xmlns:w="{W}" xmlns:m="{M}" xmlns:r="{REL}" xmlns:mc="{MC}" '
    'xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing"'
)


def _packed(members: Mapping[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return out.getvalue()


def run(text: str) -> str:
    """Return a run of text."""
    return f"<w:r><w:t xml:space='preserve'>{text}</w:t></w:r>"


def word(body: str, parts: Mapping[str, str] | None = None, change: Callable[[str], bytes] = str.encode) -> bytes:
    """Make a document with this body. `parts` is {name below word/: XML}, or with `../` another file. `change` makes
    the bytes of its main part."""
    rels = f"<Relationship Id='r1' Type='{REL}/officeDocument' Target='word/document.xml'/>"
    inner = f"<Relationship Id='h1' Type='{REL}/aFChunk' Target='../inner.html'/>"
    members: dict[str, str | bytes] = {
        "[Content_Types].xml": f"<Types xmlns='{PACKAGE}/content-types'/>",
        "_rels/.rels": f"<Relationships xmlns='{PACKAGE}/relationships'>{rels}</Relationships>",
        "word/_rels/document.xml.rels": f"<Relationships xmlns='{PACKAGE}/relationships'>{inner}</Relationships>",
        "word/document.xml": change(f"<w:document {WORD_ROOT}><w:body>{body}</w:body></w:document>"),
    }
    for name, text in (parts or {}).items():
        members[name.removeprefix("../") if name.startswith("../") else f"word/{name}.xml"] = text
    return _packed(members)


def epub(
    chapters: Mapping[str, str | bytes], spine: Sequence[str] = (), locked: Sequence[str] = (), lost: bool = False
) -> bytes:
    """Make a book of these chapters. `spine` is their order, with `NAME:no` for non-linear chapters; `locked` are
    encrypted parts; with `lost`, a listed chapter is missing."""
    refs = "".join(
        f"<itemref idref='{name.split(':')[0]}'{' linear=' + repr('no') if ':' in name else ''}/>"
        for name in spine or chapters
    )
    names = [*chapters, *(["lost"] if lost else [])]
    items = "".join(f"<item id='{name}' href='{name}.xhtml' media-type='application/xhtml+xml'/>" for name in names)
    members: dict[str, str | bytes] = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": f"<container xmlns='{OASIS}'><rootfile full-path='b.opf'/></container>",
        "b.opf": f"<package xmlns='{OPF}'><manifest>{items}</manifest><spine>{refs}</spine></package>",
    }
    for name, text in chapters.items():
        members[f"{name}.xhtml"] = text if isinstance(text, bytes) else f"<html><body>{text}</body></html>"
    if locked:
        data = "".join(
            f"<e:EncryptedData><e:CipherData><e:CipherReference URI='{name}'/></e:CipherData></e:EncryptedData>"
            for name in locked
        )
        members["META-INF/encryption.xml"] = f"<encryption xmlns='{OASIS}' xmlns:e='{ENCRYPTED}'>{data}</encryption>"
    return _packed(members)


A = "http://schemas.openxmlformats.org/drawingml/2006/main"
P = "http://schemas.openxmlformats.org/presentationml/2006/main"
SLIDE = f"xmlns:a='{A}' xmlns:p='{P}' xmlns:r='{REL}' xmlns:mc='{MC}'"


def shape(text: str, place: str = "") -> str:
    """Return a shape of a slide; `place` is the type of its placeholder."""
    kind = f"<p:nvSpPr><p:nvPr><p:ph type='{place}'/></p:nvPr></p:nvSpPr>" if place else ""
    return f"<p:sp>{kind}<p:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:txBody></p:sp>"


def pptx(
    slides: Sequence[Sequence[str]], notes: str = "", table: str = "", more: Mapping[str, str] | None = None
) -> bytes:
    """Make a presentation with the title and other texts of each slide. `notes` and `table` (a cell) belong to the
    first slide. `more` is {member: XML}, or the XML inside the first slide under "slide"."""
    more = dict(more or {})
    extra = more.pop("slide", "")
    ids = "".join(f"<p:sldId id='{n}' r:id='r{n}'/>" for n in range(len(slides)))
    targets = "".join(f"<Relationship Id='r{n}' Target='slides/slide{n}.xml'/>" for n in range(len(slides)))
    members: dict[str, str | bytes] = {
        "ppt/presentation.xml": f"<p:presentation {SLIDE}><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>",
        "ppt/_rels/presentation.xml.rels": f"<Relationships xmlns='{PACKAGE}/relationships'>{targets}</Relationships>",
        **more,
    }
    for number, (title, *texts) in reversed(list(enumerate(slides))):  # the order is that of the list, not of the file
        inner = shape(title, "title") + "".join(map(shape, texts))
        if not number:
            row = f"<a:tr><a:tc><a:txBody><a:p><a:r><a:t>{table}</a:t></a:r></a:p></a:txBody></a:tc></a:tr>"
            inner += (f"<p:graphicFrame><a:tbl>{row}</a:tbl></p:graphicFrame>" if table else "") + extra
        members[f"ppt/slides/slide{number}.xml"] = f"<p:sld {SLIDE}><p:spTree>{inner}</p:spTree></p:sld>"
    if notes:
        body = shape(notes, "body") + shape("7", "sldNum")
        members["ppt/notesSlides/n1.xml"] = f"<p:notes {SLIDE}><p:spTree>{body}</p:spTree></p:notes>"
        rels = "<Relationship Id='n' Target='../notesSlides/n1.xml'/>"
        members["ppt/slides/_rels/slide0.xml.rels"] = (
            f"<Relationships xmlns='{PACKAGE}/relationships'>{rels}</Relationships>"
        )
    return _packed(members)


OD = "urn:oasis:names:tc:opendocument:xmlns:"
OD_ROOT = " ".join(
    f"xmlns:{name}='{OD}{uri}:1.0'"
    for name, uri in (
        ("office", "office"), ("text", "text"), ("table", "table"), ("draw", "drawing"), ("style", "style"),
        ("svg", "svg-compatible"),
    )
) + " xmlns:xlink='http://www.w3.org/1999/xlink'"  # fmt: skip


def odt(body: str, more: Mapping[str, str] | None = None) -> bytes:
    """Make a LibreOffice text. `more` is {member: XML}."""
    text = f"<office:body><office:text>{body}</office:text></office:body>"
    content = f"<office:document-content {OD_ROOT}>{text}</office:document-content>"
    return _packed({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": content, **(more or {})})
