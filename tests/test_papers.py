"""docs/papers.md: every table and figure has a row, and every command in it can be called."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

import airgen
from airgen.cli import find_app
from airgen.paths import data_dir
from airgen.settings.base import find_yaml

ROOT = Path(airgen.__file__).parents[1]
PAGE = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
# The tables and figures of each paper; 7 of BEIR's is not in the text that the project has.
HELD = {
    "AIR-Bench": (set(range(1, 24)), set(range(1, 7))),
    "BEIR": (set(range(1, 11)) - {7}, set(range(1, 6))),
    "BM25 query augmentation": ({1, 2, 3, 4}, set()),
    "E5": (set(range(1, 14)), {1}),
}


def lines_and_spans(page: str) -> set[str]:
    """Every `airgen ...` of a page: in code spans and in code blocks, without comments."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    lines = [line.removeprefix("$ ").partition(" #")[0].strip() for block in blocks for line in block.splitlines()]
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL))
    return {text for text in (*lines, *spans) if text.startswith("airgen ")}


def commands() -> list[str]:
    """The commands of docs/papers.md that say more than their name."""
    found = {text for text in lines_and_spans(PAGE) if len(text.split()) > 2}
    return sorted(text for text in found if find_app(text.split()[1:])[2])


def numbers(section: str, what: str) -> set[int]:
    """The numbers after "Table" or "Figure" in bold: `**Tables 12-14**` is three."""
    found: set[int] = set()
    for text in re.findall(rf"\*\*{what}s? ([\d, -]+)\*\*", section):
        for part in text.split(","):
            first, _, last = part.strip().partition("-")
            found |= set(range(int(first), int(last or first) + 1))
    return found


@pytest.mark.parametrize("paper", HELD)
def test_every_table_and_figure_has_a_row(paper: str) -> None:
    (section,) = re.findall(rf"^## {re.escape(paper)} .*?(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert (numbers(section, "Table"), numbers(section, "Figure")) == HELD[paper]
    for row in re.findall(r"^\| \*\*(?:Table|Figure).*$", section, re.MULTILINE):
        assert "`" in row or "none" in row, row  # a command, or a word on why there is none


def parsed(text: str) -> None:
    """Look at a command line as the command would, without running it: subcommand, options, values, arguments."""
    app, _, words = find_app([word.strip('"') for word in re.findall(r'"[^"]*"|\S+', text)[1:]])
    command: Any = typer.main.get_command(app)
    options = {word: one for one in command.params if one.param_type_name == "option" for word in one.opts}
    arguments, rest = [], iter(words)
    given = set()
    for word in rest:
        if not word.startswith("-"):
            arguments.append(word)
            continue
        assert word in options, f"{text}: no option {word}"
        given.add(options[word].name)
        if not options[word].is_flag:
            assert not next(rest, "--").startswith("-"), f"{text}: {word} has no value"
    lacking = [word for word, one in options.items() if one.required and one.name not in given]
    assert not lacking, f"{text}: {lacking[0]} is missing"
    wanted = sum(one.required for one in command.params if one.param_type_name == "argument")
    assert len(arguments) >= wanted, f"{text}: an argument is missing"


@pytest.mark.parametrize("text", commands())
def test_a_command_can_be_called(text: str) -> None:
    parsed(text)


def pages() -> list[Path]:
    """Every page that names commands."""
    return [*sorted((ROOT / "docs").glob("*.md")), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md"))]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_page_names_commands_and_options_that_exist(page: Path) -> None:
    """A command of a page may be cut short, but its words and options exist."""
    for text in lines_and_spans(page.read_text(encoding="utf-8")):
        words = text.partition(" > ")[0].partition(" && ")[0].split()[1:]
        if words[0].startswith("-") or words[0] == "COMMAND" or words[1:] in ([], ["--help"]):
            continue
        app, _, rest = find_app(words)
        options = {name for one in typer.main.get_command(app).params for name in one.opts}
        wrong = [word for word in rest if word.startswith("--") and word not in options]
        assert not wrong, f"{text}: no option {wrong[0]}"


def test_there_are_commands_to_check() -> None:
    assert len(commands()) > 30
    with pytest.raises(AssertionError, match="no-such"):
        parsed("airgen study agree msmarco --pipeline full --systems x --no-such")
    with pytest.raises(AssertionError, match="--after is missing"):
        parsed("airgen study gain a --before b")
    with pytest.raises(AssertionError, match="an argument is missing"):
        parsed("airgen study correlate --by task")


def test_what_commands_name_ships() -> None:
    """Pipelines and systems by name, scripts, test files and recipes by path; and links lead to headings that exist."""
    named = set()
    for text in commands():
        named |= set(re.findall(r"--(?:pipeline|systems|label-with) (\S+)", text)) - {"SYSTEMS", "systems.yaml"}
        job = find_app(text.split()[1:])[2][0].partition("#")[0]
        named |= {job} if re.match(r"airgen (check|run|show) " + job, text) else set()
    assert {"full", "quickstart", "systems-airbench-17", "systems-offline", "airbench-24.05"} <= named
    for name in named:
        assert find_yaml("pipelines", name).is_file(), name
    paths = re.findall(r"\b((?:benchmarks|tests|pipelines|prompts)/[\w/.-]+\.\w+)", PAGE)
    assert paths and [path for path in paths if not (ROOT / path).is_file()] == []
    for script in re.findall(r"python (benchmarks/\w+\.py) --table", PAGE):
        assert "--table" in (ROOT / script).read_text(encoding="utf-8")
    for link, anchor in re.findall(r"\]\(([\w./]*)#([\w-]+)\)", PAGE):
        text = (ROOT / "docs" / link).read_text(encoding="utf-8") if link else PAGE
        headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        assert anchor in {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}, (link, anchor)
    for link in re.findall(r"\]\(([\w./]+)\)", PAGE):
        assert (ROOT / "docs" / link).exists(), link
    assert data_dir("pipelines").is_dir()
