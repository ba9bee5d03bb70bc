"""Manual pages in roff, in any language: `reader: {kind: man, path: usr/share/man/de}`.

The reader extracts text and does not typeset. It understands the man macros, the common mdoc macros, fonts and special
characters, and leaves out all other requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from airgen.corpus.readers.reader import drop
from airgen.corpus.readers.texts import Block, FileReader, documents_of
from airgen.records import Document, Dropped

_NAMED = {
    "aq": "'", "cq": "’", "oq": "‘", "dq": '"', "lq": "“", "rq": "”", "Bq": "„", "Fo": "«", "Fc": "»", "bu": "•",
    "em": "—", "en": "–", "hy": "-", "mi": "−", "rs": "\\", "ti": "~", "ha": "^", "ga": "`", "co": "©", "rg": "®",
    "tm": "™", "->": "→", "<-": "←", "<=": "≤", ">=": "≥", "!=": "≠", "+-": "±", "mu": "×", "de": "°", "ss": "ß",
    "at": "@", "sh": "#", "sq": "□", "ct": "¢", "Eu": "€", "Po": "£", "ba": "|", "br": "|", "ul": "_", "lB": "[",
    "rB": "]", "lC": "{", "rC": "}", "la": "⟨", "ra": "⟩", "sl": "/", "Do": "$", "14": "¼", "12": "½", "34": "¾",
    "S2": "²", "S3": "³", "*a": "α", "*b": "β", "*m": "μ", "*p": "π", "if": "∞", "no": "¬", "dg": "†", "sc": "§",
    ":a": "ä", ":o": "ö", ":u": "ü", ":A": "Ä", ":O": "Ö", ":U": "Ü", "'e": "é", "'a": "á", "`e": "è", "`a": "à",
    "^e": "ê", "^o": "ô", ",c": "ç", "~n": "ñ", "'o": "ó", "'i": "í", "'u": "ú", "oA": "Å", "oa": "å", "/o": "ø",
}  # fmt: skip
_ESCAPES = re.compile(
    r"\\(?:f(?:\[[^\]]{0,200}+\]|\(..|.)|s(?:\[[^\]]{0,200}+\]|[+-]?\(?\d{1,2}|'[^']{0,200}+')"
    r"|[mMkVgnYF](?:\[[^\]]{0,200}+\]|\(..|.)|[hvwlLDNbxXoZ]'[^']{0,200}+'|"
    r"(?P<named>\((?P<two>..)|\[(?P<long>[^\]]{1,200}+)\])|\*(?:\[(?P<string>[^\]]{0,200}+)\]|\((?P<str2>..)|(?P<str1>.))|(?P<one>.))",
    re.DOTALL,
)
_ONE = {"e": "\\", "-": "-", " ": " ", "0": " ", "~": " ", "'": "'", "`": "`", "(": "(", "\\": "\\", ".": "."}
_STRINGS = {"lq": "“", "rq": "”", "Aq": "'", "R": "®", "Tm": "™", 'L"': "“", 'R"': "”"}
_ARGUMENT = re.compile(r'"([^"]*+(?:""[^"]*+)*+)"?|(\S+)')
_HEADS = {"SH": 1, "Sh": 1, "SS": 2, "Ss": 2}
_BREAKS = frozenset((
    "PP", "LP", "P", "Pp", "sp", "IP", "HP", "RS", "RE", "br", "Bl", "El", "nf", "fi", "EX", "EE", "Bd", "Ed",
    "TQ", "in", "ti", "It",
))  # fmt: skip
_FONTS = frozenset((
    "B", "I", "BR", "RB", "BI", "IB", "IR", "RI", "SM", "SB", "Nm", "Fl", "Ar", "Pa", "Xr", "Cm", "Ic", "Va", "Fa",
    "Fn", "Sy", "Em", "Li", "Dq", "Sq", "Ql", "Ev", "Er", "Op", "Dv",
))  # fmt: skip
_SKIPPED = frozenset((
    "de", "ig", "am", "TH", "Dd", "Os", "ds", "nr", "ft", "ad", "hy", "na", "nh", "ne", "ll", "lf", "so", "if",
    "ie", "el",
))  # fmt: skip


class ManReader(FileReader):
    """One document for each page, or (`split: sections`) section, titled by page and headings."""

    suffixes = tuple(
        f".{number}{extra}"
        for number in "12345678"
        for extra in ("", ".gz", "p.gz", "pm.gz", "x.gz", "posix.gz", "ssl.gz", "type.gz")
    )

    version = 3

    def parse_text(self, text: str, name: str) -> Iterator[Document | Dropped]:
        """The documents of one page; a page that only includes another (`.so`) is dropped."""
        if re.match(r"(?:\.\\\".*\n)*\.so ", text):
            yield drop("points to another page", identity=name, source=name, text=text)
            return
        title, blocks = man_blocks(text)
        if not blocks:
            yield drop("no text in the page", identity=name, source=name, text=text)
            return
        identity = re.sub(r"\.gz$", "", name)
        yield from documents_of(blocks, title, name, self.settings, self.place, identity)


def man_blocks(text: str) -> tuple[str, list[Block]]:
    """The title (`ls(1)`), headings and paragraphs of a page."""
    title = ""
    found: list[Block] = []
    held: list[str] = []
    verbatim = tagged = False
    joins = False
    until = ""
    rows: list[str] = []  # of a table

    def close() -> None:
        nonlocal joins
        body = ("\n" if verbatim else " ").join(held)
        body = body if verbatim else " ".join(body.split())
        held.clear()
        if body.strip():
            found.append(Block(body.strip("\n"), joins=joins))
        joins = False

    for line in text.replace("\\\n", "").split("\n"):
        if until:
            if line.strip() != until:
                if until == ".TE":
                    rows.append(line)
                continue
            if until == ".TE":
                found.append(Block(_table(rows)))
                rows.clear()
            until = ""
            continue
        if line.startswith(("'\\\"", '.\\"', '\\"')) or line in (".", "'"):
            continue
        if not line.startswith((".", "'")):
            if not line.strip() and not verbatim:
                close()
            else:
                held.append(_text(line))
                if tagged:  # the line after .TP is a term, and the next paragraph explains it
                    tagged, joins = False, True
                    close()
            continue
        match = re.match(r"[.']\s*([^\s\\\"]+)\s?(.*)", line)
        if match is None:
            continue
        macro, rest = match[1], re.sub(r"\\\".*", "", match[2])
        arguments = [_text(quoted.replace('""', '"') or bare) for quoted, bare in _ARGUMENT.findall(rest.strip())]
        if macro in ("TH", "Dt") and arguments:
            title = f"{arguments[0].lower()}({arguments[1]})" if len(arguments) > 1 else arguments[0].lower()
        elif macro in ("de", "ig", "am", "de1"):
            until = "." + (
                arguments[1] if len(arguments) > 1 else ("" if macro != "ig" else arguments[0] if arguments else "")
            )
        elif macro in ("TS", "EQ", "PS"):
            close()
            until = {"TS": ".TE", "EQ": ".EN", "PS": ".PE"}[macro]
        elif macro in _HEADS:
            close()
            if arguments:
                found.append(Block(" ".join(arguments), _HEADS[macro]))
        elif macro == "TP":
            close()
            tagged = True
        elif macro in _BREAKS:
            close()
            if macro in ("nf", "EX"):
                verbatim = True
            elif macro in ("fi", "EE"):
                verbatim = False
            if macro == "IP" and arguments and arguments[0].strip(" •-–*"):
                held.append(arguments[0])
                joins = True
                close()
            elif macro == "It" and arguments:
                held.append(" ".join(item for item in arguments if item not in _FONTS))
                joins = True
                close()
        elif macro in _FONTS and arguments:
            gap = "" if len(macro) == 2 and macro.isupper() and macro not in ("SM", "SB") else " "
            held.append(gap.join(arguments))
            if tagged:
                tagged, joins = False, True
                close()
        elif macro in ("UR", "MT", "URL") and arguments:
            held.append(arguments[-1] if macro == "URL" else "")
        elif macro == "Nd":
            held.append("- " + " ".join(arguments))
        elif macro not in _SKIPPED and arguments and macro[0].isupper() and len(macro) == 2 and macro[1].islower():
            held.append(" ".join(item for item in arguments if item not in _FONTS))  # other mdoc macros hold text
    close()
    found.append(Block(_table(rows)))
    return title, [block for block in found if block.text]


def _table(lines: list[str]) -> str:
    """The rows of a table for tbl, with their cells side by side. First come its options (`;`) and formats (`.`)."""
    mark, rows, held, open_ = "\t", [], [], 0
    formats = True
    for line in lines:
        if formats:
            if line.rstrip().endswith(";") and (named := re.search(r"tab ?\((.)\)", line)):
                mark = named[1]
            formats = not line.rstrip().endswith(".")
            continue
        if line.startswith(".T&"):
            formats = True
        elif line.strip() not in ("", "_", "="):
            held.append(re.sub(r"^[.'][A-Za-z]{1,2} ?", "", line))
            open_ += line.count("T{") - line.count("T}")
            if open_ <= 0:
                cells = _text(" ".join(held)).replace("T{", "").replace("T}", "").split(mark)
                rows.append(" | ".join(cell.strip() for cell in cells if cell.strip(" _=")))
                held, open_ = [], 0
    return "\n".join(row for row in [*rows, " ".join(held)] if row)


def _text(line: str) -> str:
    return _ESCAPES.sub(_escape, line) if "\\" in line else line


def _escape(match: re.Match[str]) -> str:
    name = match["two"] or match["long"]
    if name:
        if re.fullmatch(r"u[0-9A-F]{4,6}", name):
            value = int(name[1:], 16)
            return chr(value) if value <= 0x10FFFF else ""
        return _NAMED.get(name, "")
    string = match["string"] or match["str2"] or match["str1"]
    if string:
        return _STRINGS.get(string, "")
    return _ONE.get(match["one"] or "", "")
