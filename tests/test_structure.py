"""The architecture, held by a test: imports go one way, and there is no cycle."""

import ast
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

import airgen
from airgen import api
from airgen.cli import find_app, help_text, words_of
from airgen.commands import COMMANDS, GROUPS

PACKAGE = Path(airgen.__file__).parent

# The layers of the package, from the bottom up: a part imports only parts that come before it.
FLOORS = (
    "errors", "safety", "components", "storage", "net", "models", "display", "settings", "compute", "text", "tables",
    "dataset", "llms", "corpus", "retrievers", "evaluation", "publishing", "training", "steps", "generation", "control",
    "job", "studies", "audit", "report", "python", "commands", "api", "cli", "__main__",
)  # fmt: skip
# Published files are all that these know: no job, no work database, no LLM.
FILES_ONLY = {"dataset", "retrievers", "evaluation", "publishing", "training"}


FILES = sorted(PACKAGE.rglob("*.py"))


@dataclass
class Module:
    """What is looked at of a module, without its tree: hundreds of them would slow down what runs after this."""

    documented: bool
    classes: list[str]
    shown: list[str]
    imports: list[ast.Import | ast.ImportFrom]  # those inside functions, too


@cache
def module(path: Path) -> Module:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    lists = [node for node in tree.body if isinstance(node, ast.Assign) and "__all__" in map(_name, node.targets)]
    return Module(
        bool(ast.get_docstring(tree)),
        [node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")],
        [name for node in lists for name in ast.literal_eval(node.value)],
        [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)],
    )


def imports_of(path: Path) -> set[str]:
    """The parts of airgen that a module imports."""
    found = set()
    for node in module(path).imports:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" if node.module == "airgen" else node.module for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("airgen.")}
    return found - {"__version__"}


def test_imports_go_one_way() -> None:
    for path in FILES:
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if part != "__init__":
            above = set(FLOORS[FLOORS.index(part) + 1 :])
            assert not imports_of(path) & above, f"{path} imports what stands above it"
        if part in FILES_ONLY:
            unknown = {"steps", "generation", "control", "job", "llms"}
            assert not imports_of(path) & unknown, f"{path} must know published files only"


def test_every_floor_exists_and_every_part_has_a_floor() -> None:
    parts = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in FILES}
    assert parts - {"__init__"} == set(FLOORS)


LARGE = {"numpy", "pydantic", "duckdb"}
LIGHT = {
    "import airgen": {*LARGE, "typer", "airgen.api"},
    "import airgen; airgen.run": {*LARGE, "openai"},
    "from airgen.cli import main\ntry: main(['--help'])\nexcept SystemExit as stop: assert stop.code == 0": {
        *LARGE, "torch", "aiohttp", "openai", "rich", "altair", "vl_convert",
    },
    "import airgen.corpus; airgen.corpus.load_corpus_settings('python-reference')": {
        "numpy", "duckdb", "llama_index", "tiktoken", "selectolax", "pypdfium2", "markdown_it", "trafilatura",
        "fasttext", "datasets",
    },
    "import airgen.dataset.beir, airgen.evaluation": {"airgen.storage.store", "airgen.job", "altair"},
}  # fmt: skip


@pytest.mark.parametrize("code", LIGHT)
def test_what_is_looked_at_first_imports_nothing_heavy(code: str) -> None:
    code = f"import sys\n{code}\nassert not {LIGHT[code]} & set(sys.modules), sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_columns_are_aligned_in_one_place() -> None:
    padded = re.compile(r"\.[lr]just\(|\{[^{}]*:[<>]\{|\{[^{}]*:[<>]\d")
    pads = {path.relative_to(PACKAGE).as_posix() for path in FILES if padded.search(path.read_text("utf-8"))}
    # `escaping` aligns tables; the others write the help, lines of progress, and comments in YAML.
    assert pads == {"safety/escaping.py", "cli.py", "steps/progress.py", "training/recipe.py"}
    tables = {path.name for path in FILES if "terminal_table" in path.read_text("utf-8")}
    assert tables == {"escaping.py", "study.py"}


def test_help_lists_every_command_once() -> None:
    assert sorted(name for group in GROUPS.values() for name in group) == sorted(COMMANDS)
    modules = [path for path in (PACKAGE / "commands").glob("*.py") if "\n@command\n" in path.read_text("utf-8")]
    assert {path.stem for path in modules} == set(COMMANDS)
    assert len(COMMANDS) == 13
    for name, line in COMMANDS.items():
        assert f"  {name:<10}{line}" in help_text()


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_and_word_has_help_with_an_example(name: str) -> None:
    for word, function in words_of(name).items():
        app, shown, rest = find_app([name, *([word] if word else []), "--help"])
        assert (shown, rest) == (f"airgen {name} {word}".strip(), ["--help"])
        said = CliRunner().invoke(app, rest)
        assert said.exit_code == 0 and f"Example: {shown}" in " ".join(said.stdout.split()), shown
        # The function of Python has its name, and is the same; `label` takes data there, and files here.
        assert getattr(api, f"{name}_{word}".rstrip("_").replace("-", "_")) is function or name == "label"


def test_every_function_of_the_api_is_a_command_or_a_value() -> None:
    names = {f"{name}_{word}".rstrip("_").replace("-", "_") for name in COMMANDS for word in words_of(name)}
    assert names | {"Check", *api.VALUES} == set(api.__all__)


def test_every_module_says_what_it_is_for_and_keeps_private_names() -> None:
    """A name with an underscore is private. `__all__` stands only where a module shows names of others."""
    for path in FILES:
        assert module(path).documented, path
        imported = {alias.asname or alias.name for node in module(path).imports if isinstance(node, ast.ImportFrom)
                    for alias in node.names if (node.module or "").startswith("airgen")}  # fmt: skip
        private = {name for name in imported if name.startswith("_") and not name.startswith("__")}
        assert private <= {module.stem for module in FILES}, path
        shown = module(path).shown
        assert not shown or imported & set(shown) or path.name == "__init__.py", path


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def test_no_two_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions count, too: a circle that is only closed at run time is a circle."""
    names = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in FILES}
    names = {name.removesuffix(".__init__"): path for name, path in names.items()}
    arrows: dict[str, set[str]] = {}
    for name, path in names.items():
        found = set()
        for node in module(path).imports:
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif node.module:
                found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
        # A package's __init__ shows what its modules offer: an arrow to it from inside is no circle.
        arrows[name] = {one for one in found & set(names) if one != name and names[one].name != "__init__.py"}
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, " -> ".join((*above[above.index(name) :], name))
        if name not in done:
            for other in sorted(arrows[name]):
                visit(other, (*above, name))
            done.add(name)

    for name in arrows:
        visit(name, ())


def test_no_two_public_classes_have_one_name() -> None:
    found = Counter(name for path in FILES for name in module(path).classes)
    assert not {name for name, count in found.items() if count > 1}
