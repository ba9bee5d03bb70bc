"""The documentation: no dead link, short pages, commands that can be called, and no name of a page that is gone."""

import inspect
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from command_line import call

import airgen
from airgen import cli
from airgen.commands import COMMANDS
from airgen.errors import AirgenError, UsageError

ROOT = Path(airgen.__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
GUIDE = sorted(DOCS.glob("[0-9][0-9]-*.md"))
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """The names that headings have in links, as GitHub makes them; the second of equal ones ends in -1."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ (.*)$", without_code(text), re.MULTILINE):
        name = re.sub(r"[^\w -]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-")
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def links(text: str) -> list[str]:
    text = re.sub(r"`[^`]*`", "", without_code(text))
    return re.findall(r"\]\(\s*([^)\s]+)\)", text) + re.findall(r"^\[[^]]+\]: (\S+)", text, re.MULTILINE)


def dead_links(page: Path) -> Iterator[str]:
    for link in links(page.read_text("utf-8")):
        if re.match(r"https?:", link):
            continue
        path, _, anchor = link.partition("#")
        to = (page.parent / path).resolve() if path else page
        if not to.exists() or (anchor and anchor not in anchors(to.read_text("utf-8"))):
            yield link


@pytest.mark.parametrize("name", NAMES)
def test_every_link_leads_somewhere(name: str) -> None:
    assert list(dead_links(ROOT / name)) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text("# One, two\n# One, two\n[a](#one-two) [b](#one-two-1) [c](b.md)\n`[d](e.md)`\n[f](#g)\n")
    assert list(dead_links(page)) == ["b.md", "#g"]


def test_the_guide_is_short_and_the_index_names_every_page() -> None:
    assert [int(page.name[:2]) for page in GUIDE] == list(range(1, 15))
    assert {page.name: lines for page in GUIDE if (lines := page.read_text("utf-8").count("\n")) > 160} == {}
    readme, index = (ROOT / "README.md").read_text("utf-8"), (DOCS / "README.md").read_text("utf-8")
    assert readme.count("\n") <= 120
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.*") if page.name not in ("README.md", "report.png")}
    assert pages == {link.partition("#")[0] for link in links(index)}


def test_notes_say_when_they_were_made() -> None:
    notes = sorted((DOCS / "notes").glob("*.md"))
    assert [page.name for page in notes if "November 2026" not in page.read_text("utf-8")[:600]] == []


def test_files_name_pages_that_are_there() -> None:
    """`docs/NAME.md` in code, settings and scripts."""
    gone = []
    for folder in ("airgen", "benchmarks", "corpora", "pipelines", "prompts"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".yaml", ".j2", ".js"):
                named = re.findall(r"(?<![\w/.-])docs/(?:notes/)?[\w.-]+\.(?:md|ipynb)\b", path.read_text("utf-8"))
                gone += [(str(path.relative_to(ROOT)), one) for one in named if not (ROOT / one).exists()]
    assert gone == []


def commands(text: str) -> tuple[list[str], list[str]]:
    """Every `airgen ...` of a page: lines of shell blocks, which are whole, and code spans, which may leave words out.

    Comments, and what stands beside a command as a column, are no part of it.
    """
    kind, lines = None, []
    for line in text.splitlines():
        if line.startswith("```"):
            kind = line[3:].strip() if kind is None else None
        elif kind in ("", "sh"):
            lines.append(line.removeprefix("$ "))
    spans = [" ".join(one.split()) for one in re.findall(r"`([^`]+)`", without_code(text))]
    both = [{re.split(r"\s+[#>]|\s{3,}", one)[0].strip() for one in found} for found in (lines, spans)]
    whole, part = (sorted(one for one in found if re.match(r"airgen [a-z]", one)) for found in both)
    return whole, part


def cannot_be_called(text: str, *, whole: bool = True) -> str:
    """Why a command line would be refused before it runs; of a part, only a word or an option that is not there."""
    try:
        words = shlex.split(text)[1:]
        if words[0] in COMMANDS and len(words) == 1:
            return ""  # a command by its name
        app, name, words = cli.find_app(words)
        command: Any = typer.main.get_command(app)
        if whole:
            given, left, _ = command.make_parser(command.context_class(command, info_name=name)).parse_args(words)
            wrong = [*left, *(one.name for one in command.params if one.required and not given.get(one.name))]
        else:
            known = {one for param in command.params for one in (*param.opts, *param.secondary_opts)} | {"--help"}
            wrong = [one for one in words if one.startswith("-") and one not in known]
    except (AirgenError, typer.BadParameter.__base__) as error:
        return f"{text}: {error}"
    return f"{text}: {wrong[0]}" if wrong else ""


@pytest.mark.parametrize("name", NAMES)
def test_every_command_can_be_called(name: str) -> None:
    whole, part = commands((ROOT / name).read_text("utf-8"))
    if name == "docs/papers.md":  # readers of a table run the commands that are printed
        whole, part = [*whole, *(text for text in part if cli.find_app(text.split()[1:])[2])], []
        assert len(whole) > 30
    said = [*(cannot_be_called(text) for text in whole), *(cannot_be_called(text, whole=False) for text in part)]
    assert [one for one in said if one] == []


def is_clean(said: str) -> None:
    assert said.strip() and re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", said) == []


def examples() -> Iterator[str]:
    """Every command after `Example:` in the help of a command."""
    for function in (one for name in COMMANDS for one in cli.words_of(name).values()):
        help_text = inspect.cleandoc(function.shell.__doc__ or "")  # type: ignore[attr-defined]
        for text in re.findall(r"(?s)Example: (.*?)(?=\n *\n|\nExample:|\Z)", help_text):
            yield from re.split(r"\s{3,}|\n(?=airgen )", text)


def test_every_example_of_a_help_can_be_called() -> None:
    found = [one.partition(" > ")[0] for one in examples()]
    assert len(found) > 50 and [line for one in found if (line := cannot_be_called(one))] == []


SHOWN = ("settings", "guide", "prompts", "models", "collections", "corpus p")
NEED_NOTHING = ("airgen help", *(f"airgen show {name}" for name in SHOWN))


@pytest.mark.parametrize("text", [one for one in examples() if one.startswith(NEED_NOTHING)])
def test_an_example_prints_clean_text_and_json(text: str) -> None:
    is_clean(call(*shlex.split(text)[1:]))
    assert json.loads(call(*shlex.split(text)[1:], "--json"))


def test_a_wrong_command_is_found() -> None:
    for text in ("study gain a --before b", "study correlate --by task", "study agree a --pipeline b --systems x --no"):
        assert cannot_be_called(f"airgen {text}")
    page = "```\n$ airgen show nothing --so   a column\nairgen train augment --on a # b\n```\n"
    whole, part = commands(f"{page}`airgen\nevaluate compare --so` `airgen evaluate --fresh` `airgen audit`")
    assert whole == ["airgen show nothing --so", "airgen train augment --on a"]
    assert part == ["airgen audit", "airgen evaluate --fresh", "airgen evaluate compare --so"]
    assert all(map(cannot_be_called, whole))
    assert [bool(cannot_be_called(text, whole=False)) for text in part] == [False, False, True]


def test_help_prints_a_page_or_where_a_word_is() -> None:
    for words, page in {"": "README", "3": "03-evaluating", "own queries": "06-your-own-queries",
                        "queries": "07-queries",
                        "corpus": "02-your-corpus", "glossary": "glossary"}.items():  # fmt: skip
        assert call("help", *words.split()) == (DOCS / f"{page}.md").read_text("utf-8"), words
    found = call("help", "Ollama")
    page = "09-llms-and-money"
    assert f"{page}: Which LLM\n    | `openai` | any endpoint" in found and f"{page}: Ollama" not in found
    assert json.loads(call("show", "guide", "ollama", "--json")) == found.rstrip("\n")
    assert "03-evaluating: " in call("help", "area", "break", "scores") or "06-your" in call(
        "help", "product", "scores"
    )
    with pytest.raises(UsageError, match="no page of the guide mentions 'xyzzy'"):
        call("help", "xyzzy")
