"""QA on chunks: nothing is lost, sizes hold, overlaps are exact, and the parent is kept."""

import itertools
import json
import re
from bisect import bisect_left
from pathlib import Path
from typing import Any

import pytest
from corpus_maker import corpus
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airgen.corpus import prepare
from airgen.corpus.chunking import Piece, cut
from airgen.corpus.cleaning.filters import normalise
from airgen.corpus.settings import ChunkSettings
from airgen.storage.records import Passage
from airgen.text.sentences import sentences
from airgen.text.token_counts import load_tokenizer

WORDS = st.sampled_from(
    ["bee", "hive.", "Zaun!", "naïve", "日本。", "x" * 60, "3.5", "e.g.", "a", "\n\n", "\n", "Wax?", "🐝🐝"]
)
TEXT = st.lists(WORDS, max_size=120).map(lambda words: normalise(" ".join(words)))
TOKENIZERS = st.sampled_from(["cl100k_base", "words"])
HEADINGS = st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["One", "Two", "Three", "Four four"])), max_size=8)


def settings_of(by: str, size: int, overlap: int) -> ChunkSettings:
    return ChunkSettings.model_validate({"by": by, "size": size, "overlap": min(overlap, size // 2)})


def check(text: str, pieces: list[Piece], part: ChunkSettings, tokenizer: Any) -> None:
    covered = 0
    for piece in pieces:
        assert not text[covered : piece.start].strip()  # nothing between the chunks
        assert piece.end > covered
        covered = piece.end
        body = text[piece.start : piece.end]
        assert body == body.strip() != ""
        assert tokenizer.count([body])[0] <= part.size
    assert not text[covered:].strip()


@given(HEADINGS, st.lists(TEXT, min_size=9, max_size=9), st.integers(8, 60), st.integers(0, 20), TOKENIZERS)
@settings(max_examples=100)
@example([], ["hive. Wax? bee bee bee Zaun!", *[""] * 8], 8, 2, "cl100k_base")
@example([], ["hive. 日本。 3.5 3.5 🐝🐝 bee bee\n\n bee", *[""] * 8], 19, 3, "cl100k_base")
def test_nothing_is_lost_and_sizes_hold(
    outline: list[tuple[int, str]], bodies: list[str], size: int, overlap: int, name: str
) -> None:
    parts = (f"{head}\n\n{body}" for (_, head), body in zip(outline, bodies[1:], strict=False))
    text, tokenizer = normalise("\n\n".join([bodies[0], *parts])), load_tokenizer(name, "en")
    for by in ("tokens", "sentences", "headings"):
        part = settings_of(by, size, overlap)
        check(text, cut(text, outline, part, tokenizer, "en"), part, tokenizer)


@given(count=st.integers(0, 400), size=st.integers(8, 60), overlap=st.integers(0, 30))
def test_windows_of_tokens_overlap_exactly(count: int, size: int, overlap: int) -> None:
    text = " ".join(f"w{number}" for number in range(count))
    part, tokenizer = settings_of("tokens", size, overlap), load_tokenizer("words", "en")
    pieces = cut(text, [], part, tokenizer, "en")
    starts = tokenizer.starts(text)
    places = [(bisect_left(starts, piece.start), bisect_left(starts, piece.end)) for piece in pieces]
    assert all(end - start == size for start, end in places[:-1])
    assert all(before[1] - after[0] == part.overlap for before, after in itertools.pairwise(places))


@given(lengths=st.lists(st.integers(1, 12), max_size=30), size=st.integers(12, 40), overlap=st.integers(0, 20))
@settings(max_examples=100)
def test_as_many_whole_sentences_as_fit_are_repeated(lengths: list[int], size: int, overlap: int) -> None:
    text = " ".join("Word" + " word" * (length - 1) + "." for length in lengths)
    part = settings_of("sentences", size, overlap)
    pieces = cut(text, [], part, load_tokenizer("words", "en"), "en")
    count = lambda text: len(text.split())  # noqa: E731
    for before, after in itertools.pairwise(pieces):
        repeated = count(text[after.start : before.end])
        assert repeated <= part.overlap
        whole = sentences(text[before.start : before.end], "en")
        more = count(whole[-len(sentences(text[after.start : before.end], "en")) - 1]) if len(whole) > 1 else size
        following = count(sentences(text[before.end :], "en")[0])
        assert (
            repeated + more > part.overlap
            or repeated + more + following > size
            or repeated + more == count(text[before.start : before.end])
        )


def test_sections_stay_whole_with_the_headings_above_them() -> None:
    long = " ".join(f"Sentence number {number} is here." for number in range(12))
    body = "Some words about it that are long enough to be a passage of their own, which is twenty words or so in all."
    text = f"Guide\n\n{body}\n\nInstall\n\n{body}\n\nLinux\n\nUse apt.\n\nUse\n\n{long}"
    outline = [(1, "Guide"), (2, "Install"), (3, "Linux"), (2, "Use")]
    pieces = cut(text, outline, settings_of("headings", 32, 5), load_tokenizer("words", "en"), "en")
    assert [(re.split(r"\n|(?<=\.) ", text[piece.start : piece.end])[0], piece.path) for piece in pieces] == [
        ("Guide", ()),
        ("Install", ("Guide",)),
        ("Use", ("Guide",)),
        ("Sentence number 5 is here.", ("Guide", "Use")),
        ("Sentence number 10 is here.", ("Guide", "Use")),
    ]
    assert text[pieces[1].start : pieces[1].end].endswith("Linux\n\nUse apt.")


def passages(folder: Path, reader: dict[str, str], **more: Any) -> list[Passage]:
    return [row for row in prepare(corpus(folder, reader, **more), "qa") if isinstance(row, Passage)]


def test_a_corpus_of_chunks_keeps_parents_and_offsets(tmp_path: Path) -> None:
    for name, words in (("a", "alpha"), ("b", "beta")):
        lines = [f"Sentence {number} of {words} has {number * 7} words in it." for number in range(60)]
        body = f"{' '.join(lines)}\n\n## Later\n\n{' '.join(lines[::-1])}"
        (tmp_path / f"{name}.md").write_text(f"# Title {name}\n\n{body}")
    reader = {"kind": "markdown", "path": "."}
    rows = passages(tmp_path, reader, chunk={"size": 100, "overlap": 20, "by": "headings"})
    whole = {row.id: row.text for row in passages(tmp_path, reader)}
    assert {row.document for row in rows} == {"a", "b"} == set(whole)
    assert [row.id for row in rows][:2] == ["a#chunk=1", "a#chunk=2"]
    assert all(row.text == whole[row.document][row.start : row.end] and row.tokens <= 100 for row in rows)
    assert rows[0].title == "Title a" and any(row.title == "Title a > Later" for row in rows)
    assert len({row.key for row in rows}) == len(rows)
    with pytest.raises(ValueError, match="at most half of size"):
        ChunkSettings(size=100, overlap=51)
    (tmp_path / "c.txt").write_text(" ".join(f"Sentence {n} is about bees and their hives." for n in range(2000)))
    kept = passages(tmp_path, {"kind": "text", "path": "."}, chunk={"size": 300, "overlap": 0})  # too long for one
    assert sum(row.text.count("Sentence") for row in kept) == 2000
    lines = [{"_id": "a", "text": "First words. " * 30}, {"_id": "a", "text": "Other words. " * 90}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    rows = passages(tmp_path, {"kind": "jsonl", "path": "a.jsonl"}, chunk={"size": 20, "overlap": 0})
    assert not any("Other" in row.text for row in rows)  # two documents of one id do not mix
