"""Find and read the files of corpora: `load_corpus_settings("indian-constitution")`, by name or path.

In a corpus of several long documents each makes a dataset of its own (paper, appendix A.1); `name#id` selects one.

One file can describe corpora that differ in little: with `variants: [bn, hi]`, the file wiki.yaml is the corpora
wiki-bn and wiki-hi, and `{variant}` in a value stands for bn or hi. `variants: {bn: {limit: 7}}` also replaces values.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airgen.corpus.settings import CorpusSettings
from airgen.errors import CorpusError, SettingsError
from airgen.paths import data_dir
from airgen.registry import closest
from airgen.settings.yaml_file import find_yaml, merged, read_mapping, validate


def manifest_names() -> list[str]:
    """The names of all corpora, sorted: those in ./corpora, and those that airgen ships."""
    names: set[str] = set()
    for folder in (Path("corpora"), data_dir("corpora")):
        for path in folder.glob("*.yaml"):
            names |= {f"{path.stem}-{variant}" for variant in _variants(path)} or {path.stem}
    return sorted(names)


def find_manifest(name: str | Path, folder: Path | None = None) -> Path:
    """The YAML file of a corpus, by path or name, also in `folder`. Raises CorpusError with the closest name."""
    return _find(name, folder)[0]


def _find(name: str | Path, folder: Path | None) -> tuple[Path, str]:
    """The YAML file of a corpus, and which of its variants the corpus is; empty for a file that has none."""
    try:
        path = find_yaml("corpora", name, folder)
    except SettingsError as error:
        if Path(name).is_dir():
            raise CorpusError(
                f"{name}: is a folder of documents: `airgen init {name}` writes its corpus.yaml"
            ) from error
        if found := _family(str(name), folder):
            return found
        raise CorpusError(f"no corpus is named {str(name)!r}{closest(str(name), manifest_names())}") from error
    if not path.is_file():
        raise CorpusError(f"{path}: no such file")
    return path, ""


def _family(name: str, folder: Path | None) -> tuple[Path, str] | None:
    """The file and the variant: `wiki-en-old` is the variant `en-old` of `wiki`, or `old` of `wiki-en`."""
    for place in (place for place, letter in enumerate(name) if letter == "-"):
        stem, variant = name[:place], name[place + 1 :]
        try:
            path = find_yaml("corpora", stem, folder)
        except SettingsError:
            continue
        if path.is_file() and variant in _variants(path):
            return path, variant
    return None


def _variants(path: Path) -> dict[str, dict[str, Any]]:
    """What each variant of a file replaces; empty for a file without variants, or with wrong ones."""
    try:
        found = read_mapping(path)[0].get("variants")
    except SettingsError:
        return {}
    named = {key: {} for key in found} if isinstance(found, list) else found if isinstance(found, dict) else {}
    return {str(name): own if isinstance(own, dict) else {} for name, own in named.items()}


def load_corpus_settings(name: str | Path, folder: Path | None = None) -> CorpusSettings:
    """Read a corpus YAML by path or name, with all problems at once; `name#id` selects one long document.

    `folder`: of the pipeline that names it, where it is looked for first. Raises CorpusError if there is no such file,
    SettingsError (file:line: path: problem) if it is wrong.
    """
    name, _, document = str(name).partition("#")
    path, variant = _find(name, folder)
    value, node = read_mapping(path)
    if variant:
        value = _of_variant(value, variant, _variants(path)[variant])
    elif known := _variants(path):
        names = ", ".join(f"{path.stem}-{one}" for one in [*known][:5])
        raise CorpusError(f"{path}: holds several corpora: name one of them: {names}{', ...' * (len(known) > 5)}")
    settings = validate(value, CorpusSettings, str(path), node, path.resolve().parent)
    wanted = f"{path.stem}-{variant}" if variant else path.stem
    if settings.name != wanted and document == "" and path.parent.name == "corpora":
        raise SettingsError([f"{path}:1: name: {settings.name!r} differs from the file's name {wanted!r}"])
    if document:
        part = settings.long_doc.model_copy(update={"document": document, "merge": False})
        settings = settings.model_copy(update={"long_doc": part})
    settings._base = path.resolve().parent
    return settings


def _of_variant(value: dict[str, Any], variant: str, own: dict[str, Any]) -> dict[str, Any]:
    """The settings of one variant: its own values replace those of the file, and it has its own name."""
    common = {key: part for key, part in value.items() if key != "variants"}
    found: dict[str, Any] = _filled(merged({**common, "name": f"{common.get('name')}-{variant}"}, own), variant)
    return found


def _filled(value: Any, variant: str) -> Any:
    if isinstance(value, dict):
        return {key: _filled(part, variant) for key, part in value.items()}
    if isinstance(value, list):
        return [_filled(part, variant) for part in value]
    return value.replace("{variant}", variant) if isinstance(value, str) else value
