"""Prepared corpora in the cache: the same rows, never damaged ones, and nothing of a run that was stopped."""

from pathlib import Path
from typing import Any

import pytest
from corpus_maker import corpus, prose

from airgen.corpus import preparation, prepare
from airgen.corpus.preparation import prepared
from airgen.corpus.settings import CorpusSettings
from airgen.errors import CorpusError


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CorpusSettings:
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "in").mkdir()
    for number in range(40):
        (tmp_path / "in" / f"{number}.txt").write_text(prose(number % 30))  # ten duplicates
    (tmp_path / "in" / "odd.txt").write_text("\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "latin-1")
    return corpus(tmp_path / "in", {"kind": "text", "path": "."}, clean={"exact_duplicates": "drop"})


def entries(tmp_path: Path) -> list[str]:
    return sorted(path.suffix for path in (tmp_path / "cache" / "prepared").iterdir())


def never(*_: Any) -> Any:
    raise AssertionError("the corpus is read again")


def test_the_second_time_nothing_is_read(made: CorpusSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = list(prepared(made, "qa", "f", worth=0))
    assert first == list(prepare(made, "qa"))
    assert entries(tmp_path) == [".gz"]
    monkeypatch.setattr(preparation, "prepare", never)
    assert list(prepared(made, "qa", "f", worth=0)) == first
    for other in (("qa", "g"), ("long-doc", "f")):
        with pytest.raises(AssertionError, match="read again"):
            list(prepared(made, *other, worth=0))  # type: ignore[arg-type]


@pytest.mark.parametrize("place", [0, 30, -1])
def test_a_damaged_entry_is_made_again(made: CorpusSettings, tmp_path: Path, place: int) -> None:
    first = list(prepared(made, "qa", "f", worth=0))
    (path,) = (tmp_path / "cache" / "prepared").glob("*.gz")
    whole = path.read_bytes()
    path.write_bytes(b"" if place == 0 else whole[:place] + bytes([whole[place] ^ 1]) + whole[place:][1:])
    assert list(prepared(made, "qa", "f", worth=0)) == first
    assert path.read_bytes() == whole


def test_a_run_that_is_stopped_leaves_no_entry(made: CorpusSettings, tmp_path: Path) -> None:
    rows = prepared(made, "qa", "f", worth=0)
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    assert entries(tmp_path) == []
    empty = corpus(tmp_path / "in", {"kind": "text", "path": "."}, clean={"min_tokens": 10_000})
    with pytest.raises(CorpusError, match="no passages"):
        list(prepared(empty, "qa", "f", worth=0))
    assert entries(tmp_path) == []


def test_small_corpora_are_not_kept_and_old_entries_go(
    made: CorpusSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    list(prepared(made, "qa", "f", worth=3600))
    assert entries(tmp_path) == []
    monkeypatch.setattr(preparation, "_MAX_ENTRIES", 2)
    for name in "abcd":
        list(prepared(made, "qa", name, worth=0))
    assert entries(tmp_path) == [".gz", ".gz"]
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path / "file" / "below"))  # that cannot be written costs nothing else
    assert list(prepared(made, "qa", "f", worth=0)) == list(prepare(made, "qa"))
