"""The functions of `import airgen`, in a script and under a running event loop."""

from __future__ import annotations

import ast
import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import airgen
from airgen.errors import SettingsError
from airgen.paths import data_dir
from airgen.pipeline.ask_each import run_to_end


def test_every_function_is_there_documented_and_light() -> None:
    assert dir(airgen) == airgen.__all__
    text = (data_dir("docs") / "python.md").read_text()
    for name in airgen.__all__:
        value = getattr(airgen, name)
        assert isinstance(value, str) or value.__doc__
        assert f"airgen.{name}(" in text or name in ("__version__", "Check")
    with pytest.raises(AttributeError, match="no attribute 'blub'"):
        airgen.blub  # noqa: B018
    code = "import sys, airgen; assert not {'numpy', 'pydantic', 'duckdb', 'airgen.api'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_stub_for_type_checkers_is_what_is_exported() -> None:
    tree = ast.parse(Path(airgen.__file__).read_text())
    (names,) = [[one.name for one in node.names] for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom) and node.module == "airgen.api"]  # fmt: skip
    assert set(names) | {"__version__"} == set(airgen.__all__)


def test_a_coroutine_runs_under_a_running_loop_and_leaves_nothing() -> None:
    async def work(fail: bool) -> int:
        asyncio.get_running_loop().create_task(asyncio.Event().wait())  # left behind: it is cancelled
        await asyncio.to_thread(int)
        if fail:
            raise SettingsError(["as asked"])
        return 7

    async def notebook() -> int:
        with pytest.raises(SettingsError, match="as asked"):
            run_to_end(work(True))
        return run_to_end(work(False))

    before = threading.active_count()
    assert asyncio.run(notebook()) == 7 and run_to_end(work(False)) == 7
    assert threading.active_count() == before


def test_the_notebook_runs(tmp_path: Path) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    book = nbformat.read(data_dir("docs") / "notebook.ipynb", as_version=4)
    assert all(not cell.get("outputs") for cell in book.cells)
    nbclient.NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert sum(cell.cell_type == "code" for cell in book.cells) >= 4
