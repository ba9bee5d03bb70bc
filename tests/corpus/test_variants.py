"""One file can describe several corpora; a file that nobody can fetch for a user is taken over from the user."""

from pathlib import Path

import pytest
from command_line import call
from refusals import refused

from airgen.corpus import load_corpus_settings
from airgen.corpus.settings import manifest_names
from airgen.errors import CorpusError, SettingsError, UsageError

WIKI = """name: wiki
variants:
  bn:
  hi: {limit: 7, reader: {fields: {text: body}}, title: "{variant} first"}
language: "{variant}"
domain: wiki
licence: CC0-1.0
source: https://{variant}.example.org
reader: {kind: jsonl, path: "{variant}.jsonl", fields: {id: key}}
limit: 100
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "corpora").mkdir()
    (tmp_path / "corpora" / "wiki.yaml").write_text(WIKI)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_a_variant_has_its_name_and_its_values() -> None:
    bengali, hindi = load_corpus_settings("wiki-bn"), load_corpus_settings("wiki-hi")
    assert (bengali.name, bengali.language, bengali.source, bengali.limit) == (
        "wiki-bn", "bn", "https://bn.example.org", 100,
    )  # fmt: skip
    assert bengali.reader.written == {"kind": "jsonl", "path": "bn.jsonl", "fields": {"id": "key"}}
    assert hindi.reader.written == {"kind": "jsonl", "path": "hi.jsonl", "fields": {"id": "key", "text": "body"}}
    assert (hindi.limit, hindi.title, hindi.base) == (7, "hi first", Path("corpora").resolve())
    assert {"wiki-bn", "wiki-hi"} <= set(manifest_names()) and "wiki" not in manifest_names()


def test_the_file_itself_is_no_corpus_and_a_wrong_name_is_explained(folder: Path) -> None:
    with pytest.raises(CorpusError, match=r"wiki\.yaml: contains several corpora: name one of them: wiki-bn, wiki-hi"):
        load_corpus_settings("wiki")
    with refused(CorpusError, "unknown_name", "wiki-bn"):
        load_corpus_settings("wiki-bm")
    (folder / "corpora" / "wiki.yaml").write_text(WIKI.replace("domain: wiki\n", "domian: wiki\n"))
    with pytest.raises(SettingsError) as caught:
        load_corpus_settings("wiki-hi")
    assert "wiki.yaml:6: domian: unknown key (did you mean 'domain'?)" in str(caught.value)


def test_a_file_of_ones_own_is_taken_over(folder: Path) -> None:
    text = "{name: own, language: en, domain: d, licence: l, source: s, reader: {kind: text, path: .},\n"
    text += " fetch: {kind: file, url: 'https://books.example.org/bees'}}\n"
    (folder / "corpora" / "own.yaml").write_text(text)
    missing = r"get the file from https://books\.example\.org/bees, then: airgen fetch own --from FILE"
    with pytest.raises(CorpusError, match=f"'own' cannot be downloaded automatically: {missing}"):
        call("fetch", "own")
    with pytest.raises(CorpusError, match=f"'own' is not on this machine: {missing}"):
        call("show", "corpus", "own")
    words = "Bees feed on nectar and pollen, and they keep honey for the winter in a hive of wax combs. "
    (folder / "bees.txt").write_text(words * 3)
    assert "1 files, sha256" in call("fetch", "own", "--from", folder / "bees.txt")
    assert "1 read, 1 passages" in call("show", "corpus", "own")
    assert "already in" in call("fetch", "own")
    (folder / "bees.txt").write_text("Another text about bees. " + words * 3)
    call("fetch", "own", "--from", folder / "bees.txt")  # another file takes its place
    assert "Another text" in call("show", "corpus", "own", "--sample", "5")
    with pytest.raises(CorpusError, match=r"nothing\.txt: no such file"):
        call("fetch", "own", "--from", folder / "nothing.txt")
    with pytest.raises(UsageError, match="--from FILE: name one corpus"):
        call("fetch", "own", "wiki-bn", "--from", folder / "bees.txt")
