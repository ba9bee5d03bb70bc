"""The architecture, held by a test: imports go one way, and there is no cycle."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import airgen
from airgen.cli import COMMANDS, GROUPS, help_text

PACKAGE = Path(airgen.__file__).parent

# What each part of the package may import besides itself; the order is the design's.
GROUND = {"records", "keys", "errors", "registry", "yamls", "text", "duplicates"}
MAY_IMPORT: dict[str, set[str]] = {
    "records": set(),
    "keys": set(),
    "errors": set(),
    "text": {"errors"},
    "duplicates": {"text"},
    "registry": {"errors"},
    "yamls": {"errors", "registry"},
    "settings": GROUND,
    "prompts": {*GROUND, "llms"},
    "llms": {*GROUND, "models", "settings"},
    "models": GROUND,
    "store": {"records", "errors", "keys"},
    "corpus": {*GROUND, "models", "settings", "prompts"},
    "retrievers": {*GROUND, "models", "settings"},
    "stages": {*GROUND, "settings", "prompts", "llms", "retrievers"},
    "dataset": {*GROUND, "settings", "store", "evaluation"},
    "evaluation": {*GROUND, "settings", "dataset", "retrievers", "models", "prompts"},
    "training": {*GROUND, "settings", "dataset", "evaluation", "retrievers", "models"},
    "report": {*GROUND, "settings", "dataset", "evaluation"},
}
ABOVE = {"runner", "commands", "cli", "__main__", "__init__"}


def imports_of(path: Path) -> set[str]:
    """The parts of airgen that a module imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" if node.module == "airgen" else node.module for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("airgen.")}
    return found - {"__version__"}


MODULES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_go_one_way(path: Path) -> None:
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if part in ABOVE:
        return
    assert imports_of(path) - {part} <= MAY_IMPORT[part], f"{path} imports what stands above it"


def test_the_beir_reader_and_the_metrics_need_no_pipeline() -> None:
    code = (
        "import sys, airgen.dataset.beir, airgen.evaluation\n"
        "bad = [name for name in sys.modules if name.startswith(('airgen.store', 'airgen.stages', 'airgen.runner'))]\n"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom airgen.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as stop:\n    assert stop.code == 0\n"
        "heavy = {'numpy', 'duckdb', 'pydantic', 'torch', 'aiohttp', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_help_lists_every_command_once() -> None:
    assert sorted(name for _, names in GROUPS for name in names) == sorted(COMMANDS)
    for name, (line, _) in COMMANDS.items():
        assert f"  {name:<13}{line}" in help_text()


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_with_an_example(name: str) -> None:
    import importlib

    import typer

    module = importlib.import_module(f"airgen.commands.{COMMANDS[name][1]}")
    commands = module.app.registered_commands
    assert commands
    for command in commands:
        assert "Example" in (command.callback.__doc__ or ""), f"{name}: {command.callback.__name__}"
    assert typer.main.get_command(module.app) is not None


def test_every_module_says_what_it_is_for_and_exports_on_purpose() -> None:
    for path in MODULES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), path
        names = {target.id for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)
                 for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
                 if isinstance(target, ast.Name)}  # fmt: skip
        assert "__all__" in names or path.name == "__main__.py", path
