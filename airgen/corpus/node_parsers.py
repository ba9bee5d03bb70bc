"""Split documents into chunks with any LlamaIndex node parser.

    chunk: {parser: "llama_index.core.node_parser:MarkdownNodeParser"}
    chunk: {parser: "llama_index.core.node_parser:TokenTextSplitter", arguments: {chunk_size: 256, chunk_overlap: 32}}

The parser receives the cleaned text of a document. A node keeps its offsets if its text occurs in the document, and has
none if the parser changed the text.
"""

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from airgen.components.registry import load_extra, meant
from airgen.corpus.settings import ChunkSettings
from airgen.errors import CorpusError
from airgen.safety.guard import guarded
from airgen.safety.mask_secrets import error_words


def node_parser(settings: ChunkSettings) -> Any:
    """Create the parser that the settings name. Raises CorpusError if it is not a parser, and MissingExtra if
    LlamaIndex is missing."""
    name = settings.parser or ""
    load_extra("llama_index.core.node_parser", f"chunk.parser {name}")
    module, _, attribute = name.partition(":")
    try:
        kind = getattr(importlib.import_module(module), attribute, None)
    except Exception as error:  # noqa: BLE001  # a package may fail in any way while it is imported
        raise CorpusError(f"chunk.parser {name} cannot be imported: {error_words(error)}") from None
    if kind is None:
        known = [public for public in dir(importlib.import_module(module)) if public[:1].isupper()]
        raise CorpusError(f"chunk.parser {name}: {module} has no {attribute}{meant(attribute, known)}")
    if not (isinstance(kind, type) and callable(getattr(kind, "get_nodes_from_documents", None))):
        raise CorpusError(f"chunk.parser {name} is not a node parser of LlamaIndex")
    fields = set(getattr(kind, "model_fields", {})) | set(inspect.signature(kind).parameters)
    for given in settings.arguments:
        if given not in fields:
            raise CorpusError(f"chunk.parser {name} takes no argument {given!r}{meant(given, fields)}")
    with guarded(f"chunk.parser {name}", CorpusError):
        return kind(**settings.arguments)


def parse_nodes(parser: Any, name: str, text: str) -> list[tuple[str, int | None, tuple[str, ...]]]:
    """Return (text, offset or None, headings above) for each node of a document, in order. Raises CorpusError."""
    document = load_extra("llama_index.core.schema", f"chunk.parser {name}").Document
    with guarded(f"chunk.parser {name}", CorpusError):
        nodes = parser.get_nodes_from_documents([document(text=text)])
        rows = [(str(node.text), node.start_char_idx, node.metadata or {}) for node in nodes]
    chunks: list[tuple[str, int | None, tuple[str, ...]]] = []
    at = 0
    for body, start, metadata in rows:
        body, lead = body.strip(), len(body) - len(body.lstrip())
        if not body:
            continue
        place: int | None = None if start is None else start + lead
        if place is None or text[place : place + len(body)] != body:
            offset = text.find(body, at)
            place = offset if offset >= 0 else None
        if place is not None:
            at = place + 1  # nodes may overlap, and come in the order of the text
        chunks.append((body, place, _headings(metadata)))
    return chunks


def _headings(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the headings in MarkdownNodeParser's `header_path`, such as /Guide/Install/."""
    path = metadata.get("header_path")
    return tuple(part for part in path.split("/") if part) if isinstance(path, str) else ()
