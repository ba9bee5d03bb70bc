"""Chunkers on one set of labels: spans, their measures by hand, documents from their chunks, and the whole command."""

import json
from itertools import pairwise

import pytest
from beir_folder import write_beir
from command_line import call, invoke
from hypothesis import given
from hypothesis import strategies as st

from airgen.dataset.beir import BeirDataset
from airgen.errors import DatasetError, SettingsError, UsageError
from airgen.studies.chunkers.chunkers import (
    ChunkerSettings,
    DocumentChunk,
    Span,
    WholeDocument,
    chunks_of,
    covered,
    gold_spans,
    is_relevant,
    load_chunkers,
    query_scores,
)
from airgen.text.token_counts import load_tokenizer

TEXT = (
    "Bees live in hives. A queen lays eggs all day. Workers fetch nectar from flowers far away. They dance to say "
    "where it is. Honey is nectar without water. Winter bees live for months. Summer bees live for weeks."
)
WORDS = load_tokenizer("words", "en")


def chunk(start, end, document="d", name="c"):
    return DocumentChunk(f"{name}{start}", document, "", "x" * (end - start), start, end)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 100, True),  # holds the span [40, 60)
        (0, 50, True),  # half of the span
        (0, 49, False),  # 9 of 20 characters
        (45, 55, True),  # lies in it
        (56, 66, False),  # 4 of its 10 characters lie in it
        (60, 80, False),  # touches it
    ],
)
def test_a_chunk_is_relevant_if_it_covers_half_of_the_span_or_lies_half_in_it(start, end, expected):
    assert is_relevant(chunk(start, end), Span("d", 40, 60)) is expected
    assert not is_relevant(chunk(start, end, "other"), Span("d", 40, 60))


def test_the_measures_by_hand():
    spans = [Span("d", 0, 100), Span("e", 0, 50)]
    hits = [chunk(200, 300), chunk(50, 100), chunk(0, 60), *[chunk(300 + at, 310 + at) for at in range(10)]]
    tokens = {one.id: 400 for one in hits}
    found = query_scores(hits, spans, tokens, lambda text, left: len(text) * left // 400)
    assert found["RR@10"] == 1 / 2
    assert found["spans@10"] == 1 / 2  # nothing of document e was found
    # 500 tokens hold the first hit and a quarter of the second: 12 of 50 characters of 150.
    assert found["coverage@500"] == pytest.approx(12 / 150)
    # 1,000 tokens hold two hits and half of the third, [0, 30): 50 + 30 characters.
    assert found["coverage@1000"] == pytest.approx(80 / 150)
    # All three: [0, 60) and [50, 100) share characters, which count once.
    assert found["coverage@2000"] == pytest.approx(100 / 150)
    assert query_scores([], spans, {}, lambda text, left: 0) == dict.fromkeys(found, 0.0)
    late = [chunk(200 + 10 * at, 210 + 10 * at) for at in range(10)] + [chunk(0, 100)]
    assert query_scores(late, spans, {one.id: 1 for one in late}, lambda text, left: 0)["RR@10"] == 0


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), min_size=1, max_size=6), st.integers(0, 40))
def test_coverage_is_a_share_and_more_pieces_never_cover_less(spans, cut):
    gold = [Span("d", start, start + length) for start, length in spans]
    pieces = [("d", 0, cut), ("d", cut, 60)]
    assert covered([], gold) == 0
    assert 0 <= covered(pieces[:1], gold) <= covered(pieces, gold) == 1
    # Counted character by character.
    wanted = {place for start, length in spans for place in range(start, start + length)}
    assert covered(pieces[:1] * 2, gold) == len([place for place in wanted if place < cut]) / len(wanted)


@given(
    st.sampled_from(["sentences", "tokens", "windows", "whole"]),
    st.integers(8, 40),
    st.integers(1, 4),
    st.text(max_size=80),
)
def test_chunks_are_the_document_and_lose_no_visible_character(by, size, sentences, more):
    text = TEXT + more
    settings = ChunkerSettings(name="c", by=by, size=size, overlap=size // 4, sentences=sentences, step=1)
    found = list(chunks_of([WholeDocument("d", "Bees", text)], settings, WORDS, "en"))
    assert all(one.text == text[one.start : one.end] and one.title == "Bees" for one in found)
    held = {place for one in found for place in range(one.start, one.end)}
    assert not [place for place, char in enumerate(text) if not char.isspace() and place not in held]
    assert len({one.id for one in found}) == len(found)
    assert all(one.start < two.start for one, two in pairwise(found))


def test_windows_are_runs_of_sentences():
    settings = ChunkerSettings(name="w", by="windows", sentences=3, step=2)
    found = [one.text.strip() for one in chunks_of([WholeDocument("d", "", TEXT)], settings, WORDS, "en")]
    assert found[0] == "Bees live in hives. A queen lays eggs all day. Workers fetch nectar from flowers far away."
    assert found[1].startswith("Workers") and found[1].endswith("without water.")
    assert found[-1].endswith("for weeks.") and len(found) == 3


def test_a_chunkers_file_is_checked(tmp_path):
    path = tmp_path / "chunkers.yaml"
    for text, problem in (
        ("chunkers: []", "at least 1"),
        ("chunkers: [{name: a}, {name: a}]", "two chunkers are named 'a'"),
        ("chunkers: [{name: a, overlap: 150}]", "half of size"),
        ("chunkers: [{name: a, by: windows, sentences: 2, step: 3}]", "in no chunk"),
        ("chunkers: [{name: ../a}]", "name"),
        ("chunkers: [{name: a, by: sentence}]", "by"),
    ):
        path.write_text(text)
        with pytest.raises(SettingsError, match=problem):
            load_chunkers(path)


def corpus():
    """A collection of documents whose facts stand in one sentence each."""
    facts = ["Honey is nectar without water.", "Winter bees live for months.", "A queen lays eggs all day."]
    filler = [f"Nobody knows why village number {at} has so many old clocks and roofs." for at in range(60)]
    documents = [
        " ".join([*filler[20 * at : 20 * at + 12], fact, *filler[20 * at + 12 : 20 * at + 20]])
        for at, fact in enumerate(facts)
    ]
    return facts, documents


@pytest.fixture
def folder(tmp_path):
    facts, documents = corpus()
    home = write_beir(
        tmp_path / "data",
        [{"_id": f"d{at}", "title": "", "text": text} for at, text in enumerate(documents)],
        [{"_id": f"q{at}", "text": fact.lower()} for at, fact in enumerate(facts)] + [{"_id": "q9", "text": "lost"}],
        {"test": [(f"q{at}", f"d{at}", 1) for at in range(3)] + [("q9", "d0", 0)]},
        name="bees", language="en", tokenizer="words",
    )  # fmt: skip
    (home / "answers").mkdir()
    rows = [
        {"query-id": f"q{at}", "corpus-id": f"d{at}", "answer": "x", "quote": fact,
         "start": documents[at].index(fact), "end": documents[at].index(fact) + len(fact)}
        for at, fact in enumerate(facts)
    ]  # fmt: skip
    (home / "answers" / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return home


def test_gold_is_the_quote_of_the_answer_or_the_passage(folder):
    facts, documents = corpus()
    dataset = BeirDataset.open(folder)
    quotes = gold_spans(dataset, "test")
    assert (quotes.kind, quotes.without) == ("answers", 1)
    for at, fact in enumerate(facts):
        (span,) = quotes.spans[f"q{at}"]
        assert documents[at][span.start : span.end] == fact
    whole = gold_spans(dataset, "test", "passages")
    assert whole.spans["q1"] == [Span("d1", 0, len(documents[1]))] and "q9" not in whole.queries
    (folder / "answers" / "test.jsonl").write_text('{"query-id": "q0", "corpus-id": "far", "start": 0, "end": 2}\n')
    with pytest.raises(DatasetError, match=r"answers/test\.jsonl:1: needs query-id, a known corpus-id"):
        gold_spans(dataset, "test")
    (folder / "answers" / "test.jsonl").unlink()
    with pytest.raises(DatasetError, match=r"generation\.answers makes them"):
        gold_spans(dataset, "test", "answers")


def test_documents_are_put_together_from_their_chunks_whatever_their_order(tmp_path):
    settings = ChunkerSettings(name="c", by="sentences", size=12, overlap=5)
    pieces = list(chunks_of([WholeDocument("d", "Bees", TEXT)], settings, WORDS, "en"))
    assert any(one.end > two.start for one, two in pairwise(pieces))  # some characters occur in two chunks
    rows = [{"_id": one.id, "title": one.title, "text": one.text.strip()} for one in reversed(pieces)]
    home = write_beir(
        tmp_path / "data", rows, [{"_id": "q", "text": "honey"}], {"test": [("q", pieces[2].id, 1)]}, name="x"
    )
    (home / "private").mkdir()
    places = [{"_id": one.id, "parent": "d", "start": one.start, "end": one.end} for one in pieces]
    (home / "private" / "parents.jsonl").write_text("".join(json.dumps(row) + "\n" for row in places))
    found = gold_spans(BeirDataset.open(home), "test")
    assert [(one.id, one.title, one.text) for one in found.documents] == [("d", "Bees", TEXT)]
    (span,) = found.spans["q"]
    assert TEXT[span.start : span.end] == pieces[2].text.strip()
    (home / "private" / "parents.jsonl").write_text('{"_id": "d#1", "parent": "d"}\n')
    with pytest.raises(DatasetError, match="export the job again"):
        gold_spans(BeirDataset.open(home), "test")


def test_the_command_compares_chunkers_and_runs_nothing_twice(folder, tmp_path):
    (tmp_path / "systems.yaml").write_text("systems: [{name: bm25, kind: bm25}]")
    (tmp_path / "chunkers.yaml").write_text(
        "chunkers:\n  - {name: small, by: sentences, size: 30}\n  - {name: windows, by: windows, sentences: 2}\n"
        "  - {name: whole, by: whole}\n"
    )
    words = [folder, "--systems", tmp_path / "systems.yaml", "--chunkers", tmp_path / "chunkers.yaml"]
    words += ["--out", tmp_path / "out"]
    (found,) = json.loads(call("evaluate", *words, "--json"))
    rows = {row["chunker"]: row for row in found["rows"]}
    assert (found["gold"], found["queries"], found["documents"], found["without"]) == ("answers", 3, 3, 1)
    assert rows["whole"]["chunks"] == 3 and rows["small"]["mean_tokens"] <= 30
    # The first 1,000 tokens hold the three documents; ten chunks of any kind hold the sentence.
    assert all(row["means"]["coverage@2000"] == 1 == row["means"]["spans@10"] for row in rows.values())
    assert rows["whole"]["means"]["coverage@500"] == 1 == rows["small"]["means"]["RR@10"]
    text = call("evaluate", *words)
    assert "Chunkers on bees, test" in text and "quotes of the reference answers" in text
    folder_of = tmp_path / "out" / "bees" / "test" / "chunkers"
    assert json.loads((folder_of / "chunkers.json").read_text())["rows"] == found["rows"]
    before = (folder_of / "results" / "small" / "test" / "bm25.run.gz").stat().st_mtime_ns
    call("evaluate", *words, "--gold", "answers")
    assert (folder_of / "results" / "small" / "test" / "bm25.run.gz").stat().st_mtime_ns == before
    # Each chunker leaves a dataset in BEIR format with the labels that follow from the spans.
    small = BeirDataset.open(folder_of / "small").qrels("test").labels
    assert set(small) == {"q0", "q1", "q2"} and all(len(row) == 1 for row in small.values())
    with pytest.raises(UsageError, match="must be"):
        call("evaluate", *words, "--share", "0")
    assert invoke("evaluate", *words, "--gold", "quotes").exit_code == 2
