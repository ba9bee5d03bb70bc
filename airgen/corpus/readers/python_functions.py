"""Functions of Python files as passages, for code retrieval: `reader: {kind: python, path: src}`.

The files are parsed by `ast` and never run. A function's passage is its source, decorators and docstring included, with
the name of its class in the title. A function inside a function is part of that one.
"""

from __future__ import annotations

import ast
import textwrap
import warnings
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from airgen.corpus.readers.reader import ReaderSettings, decoded, drop
from airgen.corpus.readers.texts import FileReader
from airgen.records import Document, Dropped
from airgen.settings.base import FILE

Function = ast.FunctionDef | ast.AsyncFunctionDef


class PythonReader(FileReader):
    """One document for each function and method that is long enough."""

    class Settings(ReaderSettings):
        """`min_lines`: shorter functions are dropped. `docstrings: false` leaves docstrings out, which say in words
        what a query asks for. `encoding`: without one, UTF-8 as Python's own."""

        path: Annotated[str, FILE]
        encoding: str = ""
        min_lines: int = Field(default=3, ge=1)
        docstrings: bool = True

    suffixes = (".py", ".pyi")

    def decode(self, raw: bytes, name: str) -> str | Dropped:
        """The file's text: UTF-8 where it is valid, as Python reads it."""
        if not self.settings.encoding:
            try:
                return decoded(raw, "utf-8", self.place.language)
            except UnicodeError:
                pass  # an old file that declares another encoding
        return super().decode(raw, name)

    def parse_text(self, text: str, name: str) -> Iterator[Document | Dropped]:
        """The functions of one file, in its order; a file that is no Python is dropped."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of invalid escapes: it is other people's code
                tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            yield drop("no Python", identity=name, detail=f"{type(error).__name__}: {error}"[:200], source=name)
            return
        lines = text.split("\n")  # as Python counts them, after the line ends were made alike
        seen: dict[str, int] = {}
        for where, node in _functions(tree):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            last = node.end_lineno or node.lineno
            anchor = where
            seen[where] = seen.get(where, 0) + 1
            if seen[where] > 1:  # the other half of a property, an overload, a branch of `if`
                anchor = f"{where}-{seen[where]}"
            identity = f"{self.identity(name)}#{anchor}"
            kept = [
                line for number, line in enumerate(lines[first - 1 : last], first) if number not in self._left_out(node)
            ]
            if len(kept) < self.settings.min_lines:
                yield drop("too few lines", identity=identity, source=name, position=anchor, text="\n".join(kept))
                continue
            yield Document(
                identity, textwrap.dedent("\n".join(kept)), where, source=name, position=anchor,
                licence=self.place.licence, language=self.place.language,
            )  # fmt: skip

    def _left_out(self, node: Function) -> range:
        """The lines of the docstring, where it is not wanted and not the whole body."""
        first = node.body[0]
        held = (
            isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
        )
        if self.settings.docstrings or not held or len(node.body) == 1 or node.body[1].lineno == first.lineno:
            return range(0)
        return range(first.lineno, (first.end_lineno or first.lineno) + 1)


def _functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """(qualified name, node) of each function that is not inside another, in the file's order."""
    pending: list[tuple[str, ast.AST]] = [("", node) for node in reversed(tree.body)]
    while pending:
        above, node = pending.pop()
        if isinstance(node, Function):
            yield f"{above}{node.name}", node
        else:
            inside = f"{above}{node.name}." if isinstance(node, ast.ClassDef) else above
            pending += [(inside, child) for child in reversed(list(ast.iter_child_nodes(node)))]
