"""Read the data of a report back, as its page does."""

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

_CALL = re.compile(r'airgenData\("([^"]+)","([A-Za-z0-9+/=]*)"\);\n')
_BLOCK = re.compile(r'<script type="text/plain" data-chunk="([^"]+)">([A-Za-z0-9+/=]*)</script>')


def unpacked(text: str) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(text)))


def read_report(page: Path) -> dict[str, Any]:
    """Return {name: value} for every chunk of a folder's `index.html`, or of a single HTML file."""
    found = {name: unpacked(text) for name, text in _BLOCK.findall(page.read_text("utf-8"))}
    for path in sorted((page.parent / "data").rglob("*.js")) if not found else ():
        name, text = _CALL.fullmatch(path.read_text("ascii")).groups()  # type: ignore[union-attr]
        assert path == page.parent / "data" / f"{name}.js"
        found[name] = unpacked(text)
    return found


def cells(table: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the rows of a page's table as texts."""
    rows = list(zip(*(column["texts"] for column in table["columns"]), strict=True))
    assert len(rows) == table["size"]
    return rows


def column(table: dict[str, Any], title: str) -> dict[str, Any]:
    """Return a column of a page's table: its texts and sort keys."""
    return next(column for column in table["columns"] if column["title"] == title)


def choices(table: dict[str, Any], name: str) -> list[str]:
    """Return the value of each row of a page's table in a filter, or ""."""
    values = next(
        ([value for value, _ in each["choices"]], each["at"]) for each in table["filters"] if each["name"] == name
    )
    return [values[0][at] if at >= 0 else "" for at in values[1]]


def lives(data: dict[str, Any], key: str = "d0") -> dict[str, dict[str, Any]]:
    """Return {query id: history} of a dataset in the order of the table."""
    blocks = [value for name, value in sorted(data.items()) if name.startswith(f"{key}/lives-")]
    every = [life for block in blocks for life in block]
    assert [life["id"] for life in every] == column(data[f"{key}/queries"]["table"], "Query")["ids"]
    return {life["id"]: life for life in every}
