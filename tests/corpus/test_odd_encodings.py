"""Encodings that are neither UTF-8 nor a legacy encoding of ASCII's kind: read, or refused with what to do."""

from pathlib import Path

import pytest
from corpus_maker import corpus

from airgen.corpus import prepare
from airgen.errors import CorpusError
from airgen.storage.records import Passage
from airgen.tables.open_table import open_table
from airgen.text.character_encodings import decoded

TEXTS = {
    "en": "Rinse the brush in cold water; it dries within a day. ",
    "de": "Für größere Flächen nimmt man die Walze, für Ecken den Pinsel. ",
    "ru": "Кисть промывают холодной водой, а валик сушат на воздухе. ",
    "ar": "اغسل الفرشاة بالماء البارد ثم اتركها لتجف في الهواء. ",
    "zh": "用冷水把刷子洗干净，然后放在通风的地方晾一天。",
    "ja": "刷毛は冷たい水で洗い、風通しのよい場所で一日乾かしてください。",
    "ko": "붓은 찬물에 헹구고 바람이 잘 통하는 곳에서 하루 동안 말리십시오. ",
    "hi": "ब्रश को ठंडे पानी से धोएँ और एक दिन हवा में सूखने दें। ",
}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "utf-7"])
@pytest.mark.parametrize("language", TEXTS)
def test_unicode_without_a_mark(language: str, encoding: str, known: bool) -> None:
    text = TEXTS[language] * 5
    assert decoded(text.encode(encoding), "", language if known else "").text == text


@pytest.mark.parametrize(
    ("language", "encoding"),
    [("zh", "hz"), ("ar", "cp720"), ("ar", "mac_arabic"), ("ru", "mac_cyrillic"), ("ru", "koi8_r"), ("zh", "gb18030"),
     ("ja", "cp932"), ("ja", "iso2022_jp"), ("ko", "euc_kr")],
)  # fmt: skip
def test_rarer_legacy_encodings(language: str, encoding: str) -> None:
    text = TEXTS[language] * 5 + ("𠀀 䶮。" if encoding == "gb18030" else "①㈱～" if encoding == "cp932" else "")
    assert decoded(text.encode(encoding), "", language).text == text


@pytest.mark.parametrize(
    "text", ["+foo +bar +baz\n" * 5, "call +49301234567 or +4930123456\n", "a+b@x c+d@x e+f@x", "~{~A~}"]
)
def test_ascii_is_not_taken_for_utf_7_or_hz(text: str) -> None:
    assert decoded(text.encode(), "", "").text == text


@pytest.mark.parametrize("language", ["", "en", "ru", "zh", "ja"])
@pytest.mark.parametrize("encoding", ["cp037", "cp500", "cp273", "cp1140"])
def test_ebcdic_is_refused_and_read_where_it_is_named(tmp_path: Path, encoding: str, language: str) -> None:
    text = TEXTS["en"] + "\n" + TEXTS["de" if encoding == "cp273" else "en"] * 4
    with pytest.raises(UnicodeError, match=r"EBCDIC; set reader\.encoding \(cp037"):
        decoded(text.encode(encoding), "", language)
    assert decoded(text.replace("\n", "\x85").encode(encoding), encoding, language).text == text
    table = "id;text\n7;wash it\n8;dry it\n"
    (tmp_path / "a.csv").write_bytes(table.replace("\n", "\x85").encode(encoding))
    with open_table(tmp_path / "a.csv", encoding=encoding) as file:
        assert [row.cells for row in file.rows] == [{"id": "7", "text": "wash it"}, {"id": "8", "text": "dry it"}]
    (tmp_path / "b.csv").write_bytes((table * 20).encode(encoding))
    with pytest.raises(CorpusError, match="EBCDIC"), open_table(tmp_path / "b.csv", language=language):
        pass


def test_files_of_several_encodings_in_one_folder(tmp_path: Path) -> None:
    encodings = ["koi8_r", "cp1251", "cp866", "iso8859_5", "utf-8", "utf-16", "utf-16-be", "utf-7"]
    text = TEXTS["ru"] * 3
    for encoding in encodings:
        (tmp_path / f"{encoding}.txt").write_bytes(f"{encoding} {text}".encode(encoding))
    rows = prepare(corpus(tmp_path, {"kind": "text", "path": "."}, language="ru"), "qa")
    texts = [row.text for row in rows if isinstance(row, Passage)]
    assert sorted(texts) == sorted(f"{encoding} {text}".strip() for encoding in encodings)
