"""Read Jupyter notebooks: `reader: {kind: ipynb, path: notebooks, split: sections, outputs: true}`.

Markdown cells are read like other Markdown, with the code between them. Printed output is a piece that is left out,
unless `outputs` is set. Pictures have no text.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from airgen.corpus.readers.html import html_page
from airgen.corpus.readers.markdown import markdown_page
from airgen.corpus.readers.reader import Unusable
from airgen.corpus.readers.sections import Block, SectionSettings
from airgen.corpus.readers.text_files import FileReader, damage
from airgen.storage.records import Document, Dropped, storable

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_MOST_LEVEL = 6


class NotebookReader(FileReader):
    """Yields one document per notebook or section. Supports versions 3 and 4 of the format."""

    class Settings(SectionSettings):
        """Settings of the notebook reader.

        Attributes:
            outputs: Whether printed output is part of the text.
        """

        packages: ClassVar[tuple[str, ...]] = ("selectolax",)
        outputs: bool = False
        max_bytes: int = 64 * 1024 * 1024

    settings: Settings
    suffixes = (".ipynb", ".ipynb.gz")
    version = 1

    def parse(self, raw: bytes, name: str) -> Iterator[Document | Dropped]:
        """Yield the pieces that are left out, then the documents. Raises Unusable for a file that is not a notebook."""
        decoded = self.decode(raw)
        try:
            notebook = json.loads(decoded.text)
        except (ValueError, RecursionError) as error:
            raise Unusable("damaged notebook", str(error), decoded.text[:200]) from error
        cells = _cells(notebook)
        if cells is None:
            raise Unusable("no notebook", "it has no list of cells", decoded.text[:200])
        title = _text(_mapping(_mapping(notebook).get("metadata")).get("title")).strip()
        blocks: list[Block] = []
        left: list[tuple[str, str]] = []
        for cell in cells:
            source = storable(_text(cell.get("source", cell.get("input"))))
            kind = cell.get("cell_type")
            if kind == "markdown":
                page = markdown_page(source)
                blocks += page.blocks
                left += page.left
                if not title and page.title and not any(block.level for block in page.blocks):
                    title = page.title  # of front matter
            elif kind == "heading":
                level = cell.get("level")
                level = min(max(level, 1), _MOST_LEVEL) if isinstance(level, int) else 1
                blocks.append(Block(" ".join(source.split()), level))
            else:
                blocks.append(Block(source.strip("\n") if source.strip() else ""))
            printed = "\n".join(filter(str.strip, map(storable, _outputs(cell))))
            if printed and self.settings.outputs:
                blocks.append(Block(printed.strip("\n")))
            elif printed:
                left.append(("outputs of code", printed))
        if decoded.damaged:
            yield damage(decoded, self.identity(name), name)
        yield from self.pieces(left, name)
        title = title or next((block.text for block in blocks if block.level == 1 and block.text), "")
        yield from self.documents(blocks, title, name)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _cells(notebook: Any) -> list[Mapping[str, Any]] | None:
    """Return the cells of a notebook (of its worksheets in version 3), or None if it has none."""
    cells = _mapping(notebook).get("cells")
    if not isinstance(cells, list):
        sheets = _mapping(notebook).get("worksheets")
        if not isinstance(sheets, list):
            return None
        cells = [cell for sheet in sheets for cell in _list(_mapping(sheet).get("cells"))]
    return [cell for cell in cells if isinstance(cell, dict)]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    """Return a text that may be given as a list of lines."""
    lines = value if isinstance(value, list) else [value]
    return "".join(line for line in lines if isinstance(line, str))


def _outputs(cell: Mapping[str, Any]) -> Iterator[str]:
    """Yield the text that a cell's code printed, in the best form of each output."""
    for output in map(_mapping, _list(cell.get("outputs"))):
        data = _mapping(output.get("data")) or output
        for name in ("text", "text/plain", "text/markdown", "text/latex", "latex"):
            if text := _text(data.get(name)):
                break
        else:
            text = ""
        markup = _text(data.get("text/html", data.get("html")))
        if markup and (not text.strip() or text.lstrip().startswith("<")):  # <IPython.core.display.HTML object>
            text = html_page(markup).text or text
        error = " ".join(filter(None, (_text(output.get("ename")), _text(output.get("evalue")))))
        yield _COLOURS.sub("", "\n".join(filter(None, (text, error, *map(_text, _list(output.get("traceback")))))))
