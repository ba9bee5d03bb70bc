"""Every manifest of a data set of the Hub reads a double of it: its file names, columns, configurations, ten rows."""

import bz2
import gzip
import json
import lzma
import shutil
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packages import package

from airgen.corpus import load_corpus_settings
from airgen.corpus.readers.tabular import stable_id
from airgen.corpus.requirements import open_reader
from airgen.corpus.settings import manifest_names
from airgen.errors import CorpusError
from airgen.storage.paths import data_dir
from airgen.storage.records import Document

datasets = package("datasets")
pa = package("pyarrow")

SETS: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "hub_sets.yaml").read_text(encoding="utf-8"))
CORPORA = [name for name in manifest_names() if name.startswith("hub-")]


def double_of(name: str) -> tuple[str, str]:
    """The data set that a corpus reads, and which variant of it."""
    name = name.removesuffix("-whole")  # of AIR-Bench 24.04: the same without a limit
    known = {pattern: path for path, one in SETS.items() for pattern in one["expect"]}
    if name in known:
        return known[name], ""
    for pattern, path in known.items():
        begin, mark, _ = pattern.partition("{variant}")
        if mark and name.startswith(begin):
            return path, name.removeprefix(begin)
    raise AssertionError(f"tests/corpus/hub_sets.yaml has no double for {name}")


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the rows in the form that the file's name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    if ".zip/" in path.as_posix():
        archive = path.parent.with_name(path.parent.name)
        path.parent.rmdir()
        with zipfile.ZipFile(archive, "w") as out:
            out.writestr(path.name, lines)
    elif path.suffix == ".parquet":
        import pyarrow.parquet as parquet

        parquet.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".arrow":
        table = pa.Table.from_pylist(rows)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as out:
            out.write_table(table)
    elif path.suffix == ".txt":
        path.write_text("".join(row["text"] + "\n" for row in rows), encoding="utf-8")
    elif path.suffix == ".csv":
        names = list(rows[0])
        path.write_text("\n".join([",".join(names), *(",".join(row[name] for name in names) for row in rows)]))
    else:
        packed = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}.get(path.suffix, bytes)
        path.write_bytes(packed(lines))


def make(folder: Path, path: str, variant: str) -> None:
    """The double of a data set, as a folder that `datasets` reads like a repository."""
    one = json.loads(json.dumps(SETS[path], ensure_ascii=False).replace("{variant}", variant))
    rows = one["rows"]
    assert len(rows) == 10
    if column := one.get("long"):
        rows = [{**row, column: f"{place} " + "word " * (row[column] // 5)} for place, row in enumerate(rows)]
    for name, wanted in one["files"].items():
        write(folder / path / name, rows if wanted == "all" else [rows[place] for place in wanted])
    if configs := one.get("configs"):
        parts = [
            {"config_name": name, "data_files": [{"split": split, "path": glob} for split, glob in splits.items()]}
            for name, splits in configs.items()
        ]
        (folder / path / "README.md").write_text(f"---\n{yaml.safe_dump({'configs': parts})}---\n")


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No data set can be looked up anywhere, and nothing is kept from another test."""
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    yield


def test_every_hub_corpus_has_a_double_and_every_double_its_corpora() -> None:
    assert {double_of(name)[0] for name in CORPORA} == set(SETS)
    for path, one in SETS.items():
        assert one["schema"], path


# For a file with many variants, two are read; the others are read in the nightly tests.
FAMILIES = Counter[str]()
NAMES = []
for name in CORPORA:
    FAMILIES[family := double_of(name)[0]] += 1
    NAMES.append(pytest.param(name, marks=[pytest.mark.nightly] * (FAMILIES[family] > 2)))


@pytest.mark.parametrize("name", NAMES)
def test_a_manifest_reads_the_set_that_it_names(name: str, tmp_path: Path) -> None:
    path, variant = double_of(name)
    shutil.copytree(data_dir("corpora"), tmp_path / "corpora")
    make(tmp_path / "corpora", path, variant)
    settings = load_corpus_settings(name, tmp_path)
    assert settings.base == tmp_path / "corpora" and settings.reader.written["path"] == path
    assert settings.fetch is not None and (settings.fetch.kind, settings.fetch.package) == ("hub", path)
    found = [row for row in open_reader(settings).read() if isinstance(row, Document)]
    expect = SETS[path]["expect"]
    count, identity, title, text = expect[
        name.removesuffix("-whole").removesuffix(variant) + "{variant}" if variant else name.removesuffix("-whole")
    ]
    first = found[0]
    assert len(found) == count and len({row.id for row in found}) == count
    assert identity == "any" or first.id == (identity or stable_id(first.title, first.text))
    assert title == "any" or first.title == title
    assert text == "any" or first.text == text
    assert all(row.language == settings.language and row.licence == settings.licence for row in found)


def test_a_column_that_the_set_has_under_another_name_is_named(tmp_path: Path) -> None:
    """What a user sees where a schema was not confirmed, and is another."""
    shutil.copytree(data_dir("corpora"), tmp_path / "corpora")
    rows = [{"arabic": "نص", "english": "a text"}]
    write(tmp_path / "corpora" / "asas-ai" / "financial_news" / "pairs.csv", rows)
    settings = load_corpus_settings("hub-financial-news-ar", tmp_path)
    with pytest.raises(CorpusError, match=r"'asas-ai/financial_news': no column 'text' \(it has arabic, english\)"):
        list(open_reader(settings).read())
