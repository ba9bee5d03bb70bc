"""Read the metadata of documents: a row's columns or a file's properties named in `metadata: [product, version]`.

A row has its columns, a Markdown file its front matter, an HTML page its `<meta name="...">` elements, a DOCX or EPUB
file its properties (title, creator, subject, language, date, ...), and every file its `path`, `folder` and `file`. A
missing value is null, so that all documents have the same names.

The work database stores metadata as JSON text with the names in order.
"""

import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import yaml

_MAX_VALUE_CHARACTERS = 1000  # characters of a value
_HEAD_BYTES = 1 << 18  # bytes read from a file for its metadata
_FRONT_MATTER = re.compile(rb"\A(?:\xef\xbb\xbf)?---[ \t]*\r?\n(.*?)\r?\n---[ \t]*\r?\n", re.DOTALL)
_META = re.compile(r"<meta\b([^<>]{1,4000})>", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""(?<![a-z-])([a-z-]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)
_PROPERTY = re.compile(r"<(?:dc|dcterms|cp):([a-zA-Z]+)\b[^<>]*>([^<]{0,2000})</")


def metadata_text(names: Sequence[str], values: Mapping[str, Any]) -> str:
    """Return the values of these names as JSON, or "" if there are no names."""
    return json.dumps({name: _value(values.get(name)) for name in names}, ensure_ascii=False) if names else ""


def metadata_of(text: str) -> dict[str, Any]:
    """Parse the result of `metadata_text`."""
    values: dict[str, Any] = json.loads(text) if text else {}
    return values


def _value(value: Any) -> Any:
    """Return scalars and lists of scalars unchanged, and anything else as text."""
    if isinstance(value, str):
        return " ".join(value.split())[:_MAX_VALUE_CHARACTERS]
    if value is None or isinstance(value, bool | int | float):
        return value if value == value else None  # NaN means missing
    if isinstance(value, list | tuple) and all(isinstance(item, str | bool | int | float) for item in value):
        return [_value(item) for item in value[:100]]
    return str(value)[:_MAX_VALUE_CHARACTERS]


def file_values(name: str, raw: bytes) -> dict[str, Any]:
    """Return the metadata of a file, including its path. Names from the file are also included in lower case."""
    place = PurePosixPath(name)
    values: dict[str, Any] = {
        "path": name,
        "folder": str(place.parent) if place.parent.name else "",
        "file": place.name,
    }
    ending = place.name.lower()
    if ending.endswith((".md", ".markdown", ".mdx", ".qmd", ".rst", ".txt")):
        own = _front_matter(raw)
    elif ending.endswith((".html", ".htm", ".xhtml")):
        own = _meta_tags(raw[:_HEAD_BYTES].decode("utf-8", "replace"))
    elif ending.endswith((".docx", ".epub")):
        own = _properties(raw)
    else:
        own = {}
    return {**values, **{key.lower(): value for key, value in own.items()}, **own}


def _front_matter(raw: bytes) -> dict[str, Any]:
    match = _FRONT_MATTER.match(raw[:_HEAD_BYTES])
    if match is None:
        return {}
    try:
        value = yaml.safe_load(match[1].decode("utf-8", "replace"))
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}  # it is not valid front matter, so the reader keeps the text
    return {str(key): item for key, item in value.items()} if isinstance(value, dict) else {}


def _meta_tags(text: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for tag in _META.finditer(text):
        values = {key.lower(): double or single for key, double, single in _ATTRIBUTE.findall(tag[1])}
        if (key := values.get("name") or values.get("property")) and "content" in values:
            metadata.setdefault(key, values["content"])
    return metadata


def _properties(raw: bytes) -> dict[str, Any]:
    """Return the Dublin Core metadata of a zipped document."""
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as pack:
            names = [name for name in pack.namelist() if name == "docProps/core.xml" or name.endswith(".opf")][:1]
            text = "".join(pack.open(name).read(_HEAD_BYTES).decode("utf-8", "replace") for name in names)
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError, ValueError):
        return {}  # a damaged file, which its reader reports
    properties: dict[str, Any] = {}
    for key, value in _PROPERTY.findall(text):
        properties.setdefault(key, value.strip())
    return properties
