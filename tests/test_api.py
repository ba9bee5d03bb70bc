"""The functions of `import airgen`, in a script and under a running event loop."""

import ast
import asyncio
import inspect
import re
import threading
from pathlib import Path

import pytest
from command_line import invoke

import airgen
from airgen.errors import SettingsError, UsageError
from airgen.steps.ask import run_to_end
from airgen.storage.paths import data_dir


def test_every_function_is_there_documented() -> None:
    assert {"run", "check", "evaluate", "study_agree", "__version__"} <= set(dir(airgen))
    for name in dir(airgen):
        value = getattr(airgen, name)
        assert isinstance(value, str) or value.__doc__
    with pytest.raises(AttributeError, match="no attribute 'blub'"):
        airgen.blub  # noqa: B018


def test_a_function_shows_what_it_takes_and_gives() -> None:
    shown = str(inspect.signature(airgen.run))
    assert "budget: float | None = None" in shown and shown.endswith("-> 'RunResult'") and "typer" not in shown


def test_help_in_python_is_about_arguments_and_values() -> None:
    for name in dir(airgen):
        documentation = getattr(airgen, name).__doc__ or "" if callable(getattr(airgen, name)) else ""
        assert not re.search(r"(?<![\w`-])--[a-z]|^Example: airgen ", documentation, re.MULTILINE), name
    documentation = inspect.getdoc(airgen.evaluate) or ""
    for words in ("Also a Benchmark", "a function of a query", 'evaluate(bench, {"bm25": "bm25"'):
        assert words in documentation


_TYPED = """
def old_embed(texts: list[str]) -> list[list[float]]:
    return [[1.0] for _ in texts]

def my_search(query: str) -> list[str]:
    return [query]
"""


@pytest.mark.nightly
def test_the_types_of_the_example_pass_mypy(tmp_path: Path) -> None:
    guide = (data_dir("docs") / "python.md").read_text(encoding="utf-8")
    imports, _, example = re.findall(r"(?s)```python\n(.*?)```", guide)[0].partition("\n")
    code = f"{imports}  # type: ignore[import-untyped,unused-ignore]\n{_TYPED}\n{example}"
    code += 'shown: str = results["site"].name + bench.queries[0]\nairgen.evaluate([bench, "runs/other"], "bm25")\n'
    (tmp_path / "example.py").write_text(code, encoding="utf-8")
    from mypy import api

    said, errors, code_ = api.run(["--strict", str(tmp_path / "example.py")])
    assert code_ == 0, said + errors


def test_a_command_gives_values_and_rows_a_table() -> None:
    rows = airgen.show_models()
    assert {"name", "bytes", "fetched"} <= set(rows[0])
    pandas = pytest.importorskip("pandas")
    table = rows.to_pandas()
    assert isinstance(table, pandas.DataFrame) and len(table) == len(rows)


@pytest.mark.parametrize("words", ["export layout DIR trec --out S3", "evaluate S3 --systems systems-quickstart"])
def test_an_address_where_a_folder_is_needed(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a path it would be a folder of the name `s3:`."""
    monkeypatch.chdir(tmp_path)
    result = invoke(*words.replace("S3", "s3://an-id:a-secret@bucket/x").split())
    assert isinstance(result.exception, UsageError)
    assert "give a local file or folder, not an address (s3://...)" in str(result.exception)
    assert "a-secret" not in str(result.exception) and not [*tmp_path.iterdir()]
    with pytest.raises(UsageError, match=r"^out: give a local file or folder"):
        airgen.evaluate(tmp_path, systems="systems-quickstart", out="s3://bucket/x")


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


def test_whatever_a_function_returns_is_shown() -> None:
    """As a short text and as tables, in a console and in a notebook."""
    functions = [value for name in dir(airgen) if inspect.isfunction(value := getattr(airgen, name))]
    returned = [str(inspect.signature(function).return_annotation) for function in functions]
    parts = [
        part.partition("[")[0] for annotation in returned for part in annotation.split(" | ")
    ]  # Rows[Upload]: Rows
    named = set(re.findall(r"\b[A-Z]\w+", " ".join(parts))) - {"Path", "Any"}
    shown: dict[str, bool] = {}
    for path in Path(airgen.__file__).parent.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name in named:
                bases = {base.id for base in ast.walk(node) if isinstance(base, ast.Name)}
                methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
                shown[node.name] = bool({"Shown", "Results", "Rows"} & bases) or "_repr_html_" in methods
    assert len(named) > 20 and named <= shown.keys()
    assert sorted(name for name in named if not shown[name]) == []
