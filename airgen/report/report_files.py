"""The files of a report: web pages, and data in compressed chunks that a page loads when it needs them.

    with report_folder(Path("report"), "title") as pack:
        pack.write("d0/queries", {...})

A report is opened from disk, where a page may load scripts but may not read files. Therefore, a chunk of data is a
script with one call, `airgenData("d0/queries", "BASE64 OF GZIPPED JSON")`. In a single HTML file, the same text is in a
block that browsers do not execute. Equal data give equal bytes.

A content security policy allows only scripts and styles with the page's nonce. The nonce is a hash of the whole report,
so no text in the report can contain it.
"""

import base64
import gzip
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airgen.display.study import STYLE, html_document
from airgen.errors import UsageError
from airgen.safety.escaping import html_text
from airgen.storage.json_values import plain
from airgen.storage.records import SURROGATE
from airgen.storage.whole_files import building, whole_file

MARKER = "data/report.js"
"""The marker file of a report: a folder without it is not replaced."""
_MOST_HTML_CHARACTERS = 96 << 20  # characters of a single HTML file; browsers become slow with more
_COMPRESSION_LEVEL = 4  # twice as fast as level 6, and a twentieth larger
_WEB = Path(__file__).parent / "web"


def chunk(value: Any) -> str:
    """Encode a value as base64 of gzipped JSON. NaN becomes null, and each lone surrogate becomes U+FFFD."""
    try:
        text = _json(value)
    except (ValueError, TypeError):  # a NaN or a dataclass in it: to look for them first takes longer than to write
        text = _json(plain(value))
    raw = SURROGATE.sub("\ufffd", text).encode("utf-8")
    return base64.b64encode(gzip.compress(raw, _COMPRESSION_LEVEL, mtime=0)).decode("ascii")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class Pack:
    """Collects the data of a report in the folder `data`, or in memory if it is None."""

    def __init__(self, data: Path | None = None) -> None:
        self.data = data
        self.kept: dict[str, str] = {}
        self._hash = hashlib.sha256()
        self._size = 0

    def write(self, name: str, value: Any) -> int:
        """Write a chunk, and return its size in characters. Raises UsageError if a single file becomes too large."""
        text = chunk(value)
        self._hash.update(f"{name}\0{text}\0".encode())
        if self.data is None:
            self._size += len(text)
            if self._size > _MOST_HTML_CHARACTERS:
                raise UsageError(
                    f"the report is larger than {_MOST_HTML_CHARACTERS >> 20} MB in one file: write a folder, without "
                    "--single-file"
                )
            self.kept[name] = text
        else:
            path = self.data / f"{name}.js"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f'airgenData("{name}","{text}");\n', encoding="ascii")
        return len(text)

    @property
    def nonce(self) -> str:
        """Return a hash of everything written and of the page's own files."""
        whole = self._hash.copy()
        for path in web_files():
            whole.update(path.read_bytes())
        return base64.b64encode(whole.digest()[:18]).decode("ascii")


def web_files() -> list[Path]:
    """Return the page's own scripts and styles, beginning with `core.js`, which the other scripts use."""
    files = [STYLE, *(path for path in _WEB.iterdir() if path.suffix in (".js", ".css"))]
    return sorted(files, key=lambda path: (path.name != "core.js", path.name))


@contextmanager
def report_folder(out: Path, title: str, *, connect: str = "'none'") -> Iterator[Pack]:
    """Yield the pack of a folder, which replaces an older report once it is complete.

    `connect` is explained in `index_page`. Raises DatasetError if `out` contains other files or cannot be written.
    """
    with building(out, MARKER, durable=False) as folder:
        pack = Pack(folder / "data")
        yield pack
        assets = folder / "assets"
        assets.mkdir()
        for path in web_files():
            (assets / path.name).write_bytes(path.read_bytes())
        (folder / "index.html").write_text(index_page(title, pack.nonce, connect=connect), encoding="utf-8")


@contextmanager
def report_file(out: Path, title: str) -> Iterator[Pack]:
    """Yield the pack of a single HTML file."""
    pack = Pack()
    yield pack
    if out.is_dir():
        raise UsageError(f"{out}: is a folder, a single HTML file cannot replace it")
    out.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(out) as fresh:
        fresh.write_text(index_page(title, pack.nonce, pack.kept), encoding="utf-8")


def index_page(title: str, nonce: str, data: dict[str, str] | None = None, *, connect: str = "'none'") -> str:
    """Return the HTML page, which with `data` needs no other files. `connect` lists the origins from which its scripts
    may request data.
    """
    policy = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src data: blob:; "
        f"connect-src {connect}"
    )

    def tag(path: Path) -> str:
        kind = "script" if path.suffix == ".js" else "style"
        if data is not None:
            return f'<{kind} nonce="{nonce}">\n{path.read_text(encoding="utf-8")}</{kind}>'
        if kind == "script":
            return f'<script nonce="{nonce}" src="assets/{path.name}"></script>'
        return f'<link rel="stylesheet" nonce="{nonce}" href="assets/{path.name}">'

    styles, scripts = ("\n".join(tag(path) for path in web_files() if path.suffix == end) for end in (".css", ".js"))
    blocks = "".join(
        f'<script type="text/plain" data-chunk="{name}">{text}</script>\n' for name, text in (data or {}).items()
    )
    head = f'<meta name="referrer" content="no-referrer">\n<link rel="icon" href="data:,">\n{styles}'
    body = f"""<body>
<a class="skip" href="#main">Skip to the content</a>
<header id="top"></header>
<main id="main" tabindex="-1"><noscript>This report needs JavaScript.</noscript></main>
<footer id="foot"></footer>
{blocks}{scripts}
</body>"""
    return html_document(html_text(title), policy, head, body)
