"""An MkDocs hook that generates pages when the site is built (`make docs`).

`reference/python.md` is the API reference, `reference/settings.md` every setting, and the pages at the top of the
repository that the guide links to come along. `nav` follows the list of docs/README.md.
"""

import re
from pathlib import Path
from types import ModuleType
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import airgen
from airgen import api

ROOT = Path(airgen.__file__).parents[1]
OUTSIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
"""Pages at the top of the repository that become pages of the site."""


def python_reference() -> str:
    """Return the reference of `airgen.api`: values first, then the commands by group."""
    groups: dict[str, list[str]] = {}
    for name in api.__all__:
        value = getattr(api, name)
        if isinstance(value, ModuleType):
            raise TypeError(f"airgen.api.{name} is a module, not a value")
        values = name in api.VALUES or isinstance(value, type)
        groups.setdefault("Values" if values else name.partition("_")[0], []).append(f"{value.__module__}.{name}")
    lines = ["# Python reference", "", "How they work together: [Python](../python.md).", ""]
    for group, names in sorted(groups.items(), key=lambda item: (item[0] != "Values", item[0])):
        lines += [f"## {group}", ""]
        for name in names:
            lines += [f"::: {name}", ""]
    return "\n".join(lines)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Give the site the guide in its order, then the reference, then the notes."""
    docs = Path(config.docs_dir)
    index = (docs / "README.md").read_text("utf-8")
    pages = re.findall(r"^- \d+ · \[([^]]+)]\(([^)#]+)\)", index, re.M)
    guide = [{f"{int(page[:2])}. {title}": page} for title, page in pages]
    notes = [f"notes/{page.name}" for page in sorted((docs / "notes").glob("*.md"))]
    listed = {page for entry in guide for page in entry.values()} | {"README.md"}
    other = [page.name for page in sorted(docs.glob("*.md")) if page.name not in listed]
    config.nav = [
        {"Home": "README.md"},
        {"Guide": guide},
        {"Reference": ["reference/python.md", "reference/settings.md", *other]},
        {"Notes": notes},
        {"Project": list(OUTSIDE)},
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not files in docs/."""
    from airgen.job.settings_reference import reference

    pages = {"reference/python.md": python_reference(), "reference/settings.md": reference()}
    for name in OUTSIDE:
        pages[name] = re.sub(r"\]\(docs/", "](", (ROOT / name).read_text("utf-8"))
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Point links to the top of the repository to the included pages."""
    return re.sub(rf"\]\(\.\./({'|'.join(OUTSIDE)})", r"](\1", markdown)
