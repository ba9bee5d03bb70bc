"""Each of the ten packages that the user chose does its part: it is a dependency, and the product runs on it."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# import name -> distribution, and the modules without whose import of it the main path would be another one
CHOSEN = {
    "openai": ("openai", {"net/openai_client.py"}),
    "tiktoken": ("tiktoken", {"text/token_counts.py"}),
    "llama_index": (
        "llama-index-core",
        {"corpus/chunking.py", "corpus/node_parsers.py", "corpus/readers/llama_hub.py"},
    ),
    "FlagEmbedding": ("FlagEmbedding", {"retrievers/flag_embedding.py"}),
    "sentence_transformers": ("sentence-transformers", {"retrievers/dense/embedders.py", "training/kinds/encoder.py"}),
    "faiss": ("faiss-cpu", {"retrievers/dense/ann_index.py", "retrievers/dense/exact_search.py"}),
    "datasets": ("datasets", {"corpus/readers/json_records.py"}),
    "tenacity": ("tenacity", {"net/retrying.py"}),
    "jinja2": ("jinja2", {"llms/prompts.py", "dataset/card.py"}),
    "duckdb": ("duckdb", {"storage/store.py", "storage/sql_connections.py"}),
}


def imported(path: Path) -> set[str]:
    """The top-level packages that a module imports, by a statement or by `load_extra`."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "load_extra" and node.args:
            names |= {str(node.args[0].value)} if isinstance(node.args[0], ast.Constant) else set()
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("package", CHOSEN)
def test_a_chosen_package_is_a_dependency_and_used(package: str) -> None:
    distribution, modules = CHOSEN[package]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    product = {name: lines for name, lines in project["optional-dependencies"].items() if name != "dev"}
    asked = [*project["dependencies"], *(line for lines in product.values() for line in lines)]
    assert any(line.lower().startswith(distribution.lower()) for line in asked)
    assert {name for name in modules if package not in imported(ROOT / "airgen" / name)} == set()


def test_one_extra_has_all_ten_and_the_readme_names_it_first() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    (whole,) = extras["full"]
    assert whole.startswith(f"{project['name']}[")
    parts = whole.partition("[")[2].rstrip("]").split(",")
    asked = [*project["dependencies"], *(line.lower() for part in parts for line in extras[part])]
    for distribution, _ in CHOSEN.values():
        assert any(line.startswith(distribution.lower()) for line in asked), distribution
    named = re.findall(r"\.\[([\w,-]+)\]", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert named[0] == "full"


def test_the_readme_says_what_each_of_them_does() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## What it is built on")[2]
    for name in ("openai", "tiktoken", "llama-index", "FlagEmbedding", "sentence-transformers", "faiss", "datasets",
                 "tenacity", "jinja2", "duckdb"):  # fmt: skip
        assert name in text.partition("\n## ")[0]


@pytest.mark.nightly
def test_the_bound_on_transformers_is_still_needed(tmp_path: Path) -> None:
    """In their newest releases, FlagEmbedding imports what transformers dropped. When it no longer does, this fails."""
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    packages = ["transformers", "FlagEmbedding"]
    done = subprocess.run([*download, "--dest", str(tmp_path), *packages], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no package index can be reached: {done.stderr.strip().splitlines()[-1:]}")
    names: set[str] = set()
    sources: dict[str, str] = {}
    for wheel in tmp_path.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            names |= set(archive.namelist())
            if wheel.name.lower().startswith("flagembedding"):
                inference = [name for name in archive.namelist() if name.endswith(".py") and "/inference/" in name]
                sources |= {name: archive.read(name).decode() for name in inference}
    assert sources and "transformers/__init__.py" in names
    dropped = {
        node.module
        for source in sources.values()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("transformers.")
        for path in [(node.module or "").replace(".", "/")]
        if f"{path}.py" not in names and f"{path}/__init__.py" not in names
    }
    assert dropped, "nothing is missing any more: try the newest transformers and remove the bound in pyproject.toml"
