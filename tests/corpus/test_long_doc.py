"""The Long-Doc task: chunks that are pieces of the text, and apparatus that goes while the text stays."""

from itertools import pairwise
from pathlib import Path

import pytest
from corpus_maker import corpus, prose
from hypothesis import given, settings
from hypothesis import strategies as st
from packages import package

from airgen.corpus import prepare
from airgen.corpus.book_parts import find_apparatus, remove_apparatus
from airgen.corpus.chunking import chunks, sentence_pieces
from airgen.corpus.cleaning.filters import normalise
from airgen.errors import CorpusError
from airgen.storage.records import Document, Dropped, Passage
from airgen.text.token_counts import load_tokenizer

package("llama_index.core")

SCRIPTS = {
    "en": "The court shall decide. Is it so? No, it is not! ",
    "zh": "法院应当作出决定。是这样吗？不，不是！",
    "ja": "裁判所が決定する。そうですか？いいえ、違います！",
    "ar": "تقرر المحكمة ذلك. هل هذا صحيح؟ لا، ليس كذلك! ",
    "fa": "دادگاه تصمیم می\u200cگیرد. آیا چنین است؟ نه، چنین نیست! ",
    "hi": "न्यायालय निर्णय करेगा। क्या ऐसा है? नहीं, ऐसा नहीं है! ",
    "bn": "আদালত সিদ্ধান্ত নেবে। তাই কি? না, তা নয়! ",
}
piece = st.one_of(
    st.sampled_from(
        [*SCRIPTS.values(), "\n\n", "\n", " ", "No. 5 costs 3.5 €. ", "a" * 300, "🙂" * 40, "same. same. "]
    ),
    st.text(max_size=80),
)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(piece, max_size=40).map("".join).map(normalise),
    st.sampled_from(sorted(SCRIPTS)),
    st.sampled_from([(20, 5), (200, 50)]),
)
def test_chunks_are_pieces_that_cover_the_text_in_order(text: str, language: str, limits: tuple[int, int]) -> None:
    size, overlap = limits
    assert "".join(sentence_pieces(text, language)) == text
    found = chunks(text, language=language, size=size, overlap=overlap)
    covered, last = 0, -1
    for chunk in found:
        body = text[chunk.start : chunk.end]
        assert body and body == body.strip()
        assert last < chunk.start and not text[covered : chunk.start].strip()
        assert chunk.tokens == load_tokenizer("cl100k_base").count([body])[0]
        covered, last = max(covered, chunk.end), chunk.start
    assert not text[covered:].strip()


@pytest.mark.parametrize("language", sorted(SCRIPTS))
def test_each_script_breaks_at_its_own_sentence_ends(language: str) -> None:
    text = (SCRIPTS[language] * 60).strip()
    found = chunks(text, language=language)
    assert len(found) > 3
    for chunk in found:
        assert text[chunk.start : chunk.end].endswith((".", "!", "?", "。", "！", "？", "؟", "।"))
        assert chunk.tokens <= 202  # LlamaIndex adds up the sentences' tokens; joined, they can be one or two more
    overlaps = [first.end - second.start for first, second in pairwise(found)]
    assert all(width > 0 for width in overlaps)
    assert all(load_tokenizer("cl100k_base").count([text[b.start : a.end]])[0] <= 51 for a, b in pairwise(found))


@pytest.mark.parametrize("text", ["\n\n".join(f"{prose(n, 30)} {prose(n + 99, 30)}" for n in range(12)), "a b " * 900])
def test_the_splitter_is_llama_indexs(text: str) -> None:
    """Also where a chunk stands at many places of the text."""
    from llama_index.core.node_parser import SentenceSplitter, SimpleNodeParser

    assert SimpleNodeParser is SentenceSplitter
    encode = load_tokenizer("cl100k_base")._encoding.encode_ordinary  # type: ignore[attr-defined]
    theirs = SentenceSplitter(chunk_size=200, chunk_overlap=50, tokenizer=encode).split_text(text)
    assert [text[chunk.start : chunk.end] for chunk in chunks(text)] == theirs


BOOK = "\n\n".join(
    [
        "A BOOK\n\nby Somebody\n\nCopyright 1999",
        "CONTENTS\n\nIntroduction ........ 1\nThe First Part ........ 9\nThe Second Part\nReferences ........ 200",
        "Introduction",
        prose(1, 120),
        "The First Part",
        prose(2, 400),
        "The references in this chapter are few.",
        "The Second Part",
        prose(3, 400),
        "References",
        "\n".join(f"Author {n}, A. (19{n + 10}). A title. Journal {n}, 1-9." for n in range(30)),
        "Appendix",
        prose(4, 100),
        "INDEX",
        "\n".join(f"entry {n}, {n}" for n in range(40)),
    ]
)


def test_a_book_loses_its_apparatus_and_nothing_else() -> None:
    kinds = ("front-matter", "contents", "references", "index")
    document = Document("b", BOOK)
    text, starts, removed = remove_apparatus(BOOK, [(0, document)], kinds, "en")
    assert sorted(kind for kind, _ in removed) == sorted(kinds)
    for number in (1, 2, 3, 4):
        assert prose(number, {1: 120, 4: 100}.get(number, 400)) in text
    assert "The references in this chapter are few." in text and "Appendix" in text
    for gone in ("Copyright 1999", "........", "Author 7", "entry 5, 5"):
        assert gone not in text
    assert starts[0] == (0, document)


@pytest.mark.parametrize(
    "heading, entries",
    [("参考文献", "张三. 论文题目[J]. 学报, 2010, 3(2): 1-9."),
     ("Literaturverzeichnis", "Meier, H. (2010): Titel. Berlin."),
     ("Bibliografía", "García, J. (2010). Título. Madrid."), ("## References", "1. Doe J. Title. 2010."),
     ("7. Références", "Dupont, 2010. Titre."),
     ("Список литературы", "Иванов И. Название. М., 2010."),
     ("संदर्भ", "[1] लेखक, 2010."), ("المراجع", "[1] مؤلف، 2010.")],
)  # fmt: skip
def test_references_in_several_languages(heading: str, entries: str) -> None:
    text = "\n\n".join([prose(1, 300), prose(2, 300), heading, "\n".join([entries] * 8)])
    assert [kind for _, _, kind in find_apparatus(text, ["references"])] == ["references"]


@pytest.mark.parametrize(
    "text",
    ["\n\n".join([prose(1, 300), "References", *[prose(n, 80) for n in range(2, 8)]]),  # a chapter of that name
     "INTRO\n\nReferences\n" + "\n".join(f"Author {n} (1990). Title." for n in range(100))],  # nothing would stay
)  # fmt: skip
def test_what_looks_like_apparatus_and_is_the_text_stays(text: str) -> None:
    assert find_apparatus(text, ["references", "index", "contents"]) == []


@settings(max_examples=50)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                ["Contents", "References", "Index", "Introduction", "", "Appendix", "One ..... 5", "Doe (1999). Title."]
            ),
            st.integers(0, 50).map(lambda n: prose(n, 30)),
        ),
        max_size=60,
    ),
    st.integers(1, 5),
)
def test_what_stays_and_what_goes_are_together_the_text(lines: list[str], count: int) -> None:
    text = normalise("\n".join(lines))
    at = sorted({len(text) * part // count for part in range(count)})
    documents = [(place, Document(str(place), "")) for place in at]
    kinds = ("front-matter", "contents", "references", "index")
    kept, starts, removed = remove_apparatus(text, documents, kinds, "en")
    visible = "".join(kept.split()) + "".join("".join(part.split()) for _, part in removed)
    assert sorted(visible) == sorted("".join(text.split()))
    assert [place for place, _ in starts] == sorted(place for place, _ in starts)
    assert not kept or starts[0][0] == 0


def lines(path: Path, rows: list[dict[str, str]]) -> None:
    import json

    path.write_text("\n".join(json.dumps(row) for row in rows))


def test_one_document_of_several_must_be_chosen(tmp_path: Path) -> None:
    lines(tmp_path / "c.jsonl", [{"_id": "one", "text": prose(1, 300)}, {"_id": "two", "text": prose(2, 300)}])
    reader = {"kind": "jsonl", "path": "c.jsonl"}
    with pytest.raises(CorpusError, match=r"'one', 'two'.*choose it"):
        list(prepare(corpus(tmp_path, reader), "long-doc"))
    with pytest.raises(CorpusError, match="none of its 2 documents has the id 'three'"):
        list(prepare(corpus(tmp_path, reader, long_doc={"document": "three"}), "long-doc"))
    rows = list(prepare(corpus(tmp_path, reader, long_doc={"document": "two"}, tokenizer="cl100k_base"), "long-doc"))
    passages = [row for row in rows if isinstance(row, Passage)]
    assert passages[0].document == "two" and len(passages) > 3
    assert [passage.ordinal for passage in passages] == list(range(len(passages)))


def test_merged_documents_keep_titles_and_say_where_a_chunk_begins(tmp_path: Path) -> None:
    rows = [{"_id": str(n), "title": f"Article {n}", "text": prose(n, 90)} for n in range(5)]
    lines(
        tmp_path / "c.jsonl",
        [*rows[:2], {"_id": "x", "text": "References\n" + "\n".join(["Doe (1999)."] * 9)}, *rows[2:]],
    )
    made = corpus(tmp_path, {"kind": "jsonl", "path": "c.jsonl"}, long_doc={"merge": True}, tokenizer="cl100k_base")
    found = list(prepare(made, "long-doc"))
    passages = [row for row in found if isinstance(row, Passage)]
    text = "\n\n".join(f"Article {n}\n{prose(n, 90)}" for n in range(2))
    assert text.startswith(passages[0].text) and passages[0].text.startswith("Article 0\n")
    for passage in passages:
        assert passage.end - passage.start == len(passage.text)
    assert {passage.position for passage in passages} <= {f"Article {n}" for n in range(5)}
    assert [row.reason for row in found if isinstance(row, Dropped)] in ([], ["references"])


def test_a_document_that_is_too_long_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airgen.corpus.preparation.MAX_TEXT", 100)
    for name, text in (("a", "One sentence of a book. " * 4), ("b", "Another sentence of it. " * 4)):
        (tmp_path / f"{name}.txt").write_text(text)
    assert list(prepare(corpus(tmp_path, {"kind": "text", "path": "a.txt"}), "long-doc"))
    with pytest.raises(CorpusError, match=r"has more than 100 characters, too many for the Long-Doc task"):
        list(prepare(corpus(tmp_path, {"kind": "text", "path": "."}, long_doc={"merge": True}), "long-doc"))
