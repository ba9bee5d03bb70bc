"""Write small PDF files, with words at any position."""

from collections.abc import Sequence


def pdf(
    pages: Sequence[Sequence[str]],
    *,
    field: str = "",
    note: str = "",
    unseen: str = "",
    bookmark: str = "",
    title: str = "",
    off: str = "",
) -> bytes:
    """Return a PDF file.

    Args:
        pages: The lines of each page.
        field: The value of a form field on the first page, without an appearance, as many programs save it.
        note: The text of a note on the first page.
        unseen: Words on the first page that are not drawn, like those behind a scan.
        bookmark: The title of an outline entry.
        title: The title of the file.
        off: Words on the first page outside the visible area.
    """
    objects: dict[int, bytes] = {}
    first = 10
    kids = " ".join(f"{first + 2 * number} 0 R" for number in range(len(pages)))
    objects[2] = f"<</Type/Pages/Kids[{kids}]/Count {len(pages)}>>".encode()
    objects[3] = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"
    annotations = []
    if field:
        objects[4] = f"<</Type/Annot/Subtype/Widget/FT/Tx/T(name)/V({field})/Rect[50 50 200 70]>>".encode()
        annotations.append("4 0 R")
    if note:
        objects[5] = f"<</Type/Annot/Subtype/Text/Contents({note})/Rect[300 50 320 70]>>".encode()
        annotations.append("5 0 R")
    for number, lines in enumerate(pages):
        place = first + 2 * number
        shown = [f"BT /F1 12 Tf 50 {780 - 20 * row} Td ({line}) Tj ET" for row, line in enumerate(lines)]
        if number == 0 and unseen:
            shown.append(f"BT 3 Tr /F1 12 Tf 50 300 Td ({unseen}) Tj ET")
        if number == 0 and off:
            shown.append(f"BT /F1 12 Tf 50 2000 Td ({off}) Tj ET")
        stream = "\n".join(shown).encode("latin-1")
        beside = f"/Annots[{' '.join(annotations)}]" if number == 0 and annotations else ""
        objects[place] = (
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Resources<</Font<</F1 3 0 R>>>>"
            f"/Contents {place + 1} 0 R{beside}>>"
        ).encode()
        objects[place + 1] = b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream)
    more = "/AcroForm<</Fields[4 0 R]>>" if field else ""
    if bookmark:
        objects[6] = b"<</Type/Outlines/First 7 0 R/Last 7 0 R/Count 1>>"
        objects[7] = f"<</Title({bookmark})/Parent 6 0 R/Dest[{first} 0 R/Fit]>>".encode()
        more += "/Outlines 6 0 R"
    objects[8] = f"<</Title({title})>>".encode()
    objects[1] = f"<</Type/Catalog/Pages 2 0 R{more}>>".encode()
    out, places = b"%PDF-1.4\n", dict[int, int]()
    for number, content in sorted(objects.items()):
        places[number] = len(out)
        out += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(
        b"%010d 00000 n \n" % places[number] if number in places else b"0000000000 65535 f \n"
        for number in range(max(objects) + 1)
    )
    size = max(objects) + 1
    trailer = b"trailer <</Size %d/Root 1 0 R/Info 8 0 R>>\nstartxref\n%d\n%%%%EOF" % (size, len(out))
    return out + b"xref\n0 %d\n%s" % (size, table) + trailer
