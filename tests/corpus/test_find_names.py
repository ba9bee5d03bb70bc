"""What names or identifies a person (paper, A.1): found in 13 languages, counted, and on where it should be."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from airgen import models
from airgen.compute import Compute
from airgen.corpus import qa_passages
from airgen.corpus.cleaning import find_names
from airgen.corpus.cleaning import name_recognisers as recognisers
from airgen.corpus.cleaning.mask_personal_data import mask, what_remains
from airgen.corpus.preparation import prepare
from airgen.corpus.requirements import missing
from airgen.corpus.settings import CorpusSettings, load_corpus_settings
from airgen.settings.compute import ComputeSettings
from airgen.storage.records import Dropped, Passage

needs_rampart = pytest.mark.skipif(not models.fetched("rampart"), reason="airgen fetch tests")


@pytest.mark.parametrize(
    "language, text, masked",
    [
        ("en", "Born March 4, 1961, at 9 Mill Lane.", "Born <BIRTHDATE>, at <ADDRESS>."),
        ("en", "Passport no. X1234567; account no. 1234-5678.", "Passport no. <PASSPORT>; account no. <ACCOUNT>."),
        ("de", "geb. am 4.3.1961, Goethestraße 12b", "geb. am <BIRTHDATE>, <ADDRESS>"),
        ("fr", "née le 1er mai 1970, 3, rue de la Paix", "née le <BIRTHDATE>, <ADDRESS>"),
        ("es", "nació el 4 de marzo de 1961 en la calle del Sol, 9", "nació el <BIRTHDATE> en la <ADDRESS>"),
        ("ru", "17.08.1975 года рождения, паспорт 45 09 123456", "<BIRTHDATE> года рождения, паспорт <PASSPORT>"),
        ("zh", "1984年7月11日出生，住在广州市天河区体育西路103号。", "<BIRTHDATE>出生，住在<ADDRESS>。"),
        ("ja", "1984年7月11日生、京都府京都市左京区吉田本町36-1", "<BIRTHDATE>生、<ADDRESS>"),
        ("ko", "생년월일 1984.7.11, 계좌번호: 123-456-789012", "생년월일 <BIRTHDATE>, 계좌번호: <ACCOUNT>"),
        ("ar", "ولد في 4 مارس 1961", "ولد في <BIRTHDATE>"),
        ("fa", "متولد ۱۳۶۳/۴/۲۰، شماره حساب ۰۱۰۲۳۴۵۶۷۸", "متولد <BIRTHDATE>، شماره حساب <ACCOUNT>"),
        ("id", "lahir 4 Maret 1961, nomor paspor A 7654321", "lahir <BIRTHDATE>, nomor paspor A <PASSPORT>"),
        ("hi", "जन्म तिथि 4 मार्च 1961", "जन्म तिथि <BIRTHDATE>"),
        ("bn", "জন্ম তারিখ ৪ মার্চ ১৯৬১", "জন্ম তারিখ <BIRTHDATE>"),
        ("it", "Date of birth: 11/07/1984, 9 Mill Lane", "Date of birth: <BIRTHDATE>, <ADDRESS>"),
    ],
)  # fmt: skip
def test_addresses_dates_of_birth_and_numbers_are_masked(language: str, text: str, masked: str) -> None:
    assert mask(text, "titles", language).text == masked


@pytest.mark.parametrize(
    "language, text",
    [
        ("en", "The treaty of 4 March 1961 has 12 articles; the 10 Great Lakes drive 3 of them."),
        ("en", "A passport is needed. In 2010 there were 533380006 people. Account for 1234567 of them."),
        ("de", "Auf der Bundesstraße 7 und im Kapitel 3, Platz 12, am 4.3.1961"),
        ("fr", "12 routes nationales, le 4 mars 1961, rue sans numéro"),
        ("zh", "2023年5月12日发布，第3号文件，南京路很长。"),
        ("ja", "2023年5月12日に公開された。東京都の人口は1400万人。"),
        ("ko", "2023년 5월 12일에 서울로 3명이 갔다."),
    ],
)
def test_other_dates_and_numbers_stay(language: str, text: str) -> None:
    assert mask(text, "titles", language).text == text


def test_encyclopaedias_keep_names_addresses_and_dates_of_birth() -> None:
    text = "Mrs Ada Lovelace, born on 10 December 1815, lived at 12 Saint James Square Road; passport AB1234567."
    assert mask(text).text == text.replace("AB1234567", "<PASSPORT>")


@pytest.mark.parametrize(
    "language, text, masked",
    [
        ("ar", "قال الدكتور أحمد منصور إن السيد عبد الله الحربي غائب", "قال الدكتور <NAME> إن السيد <NAME> غائب"),
        ("fa", "آقای رضا احمدی آمد", "آقای <NAME> آمد"),
        ("hi", "श्री मोहन ने कहा", "श्री <NAME> ने कहा"),  # the second word is no name but a postposition
        ("bn", "জনাব আব্দুল করিম বলেন", "জনাব <NAME> বলেন"),
        ("ko", "김영숙 씨와 고객님, 선생님, 하나님, 마음씨, 날씨", "<NAME> 씨와 고객님, 선생님, 하나님, 마음씨, 날씨"),
        ("id", "Ibu Siti Rahayu tiba", "Ibu <NAME> tiba"),
    ],
)
def test_names_after_titles_without_capitals(language: str, text: str, masked: str) -> None:
    assert mask(text, "titles", language).text == masked


@needs_rampart
def test_a_recogniser_takes_persons_and_leaves_products_laws_and_diseases() -> None:
    text = (
        "Nicholas E. Golovin and Wernher von Braun spoke. Thanks, Kevin! Parkinson's disease, the Sarbanes-Oxley Act, "
        "a Fourier transform, the Samsung Galaxy and ibuprofen were their subjects."
    )
    masked = (
        text.replace("Nicholas E. Golovin", "<NAME>").replace("Wernher von Braun", "<NAME>").replace("Kevin", "<NAME>")
    )
    assert mask(text, "ner", "en").text == masked
    assert (
        mask("Das Down-Syndrom, Morbus Crohn und Jürgen Maier", "ner", "de").text
        == "Das Down-Syndrom, Morbus Crohn und <NAME>"
    )


@needs_rampart
def test_a_name_on_the_edge_of_a_window_is_found() -> None:
    """The model reads 480 characters at a time."""
    for before in range(460, 482, 3):
        text = "The boiler was cold again. " * 30
        text = text[:before] + " and Margaret O'Dell said so. " + text
        assert mask(text, "ner", "en").text == text.replace("Margaret O'Dell", "<NAME>"), before


def test_japanese_and_chinese_names_are_those_of_the_dictionaries() -> None:
    pytest.importorskip("fugashi")
    pytest.importorskip("rjieba")
    japanese = "山田太郎さんはパーキンソン病とピタゴラスの定理を調べ、鈴木氏に話した。"
    assert mask(japanese, "ner", "ja").text == japanese.replace("山田太郎", "<NAME>").replace("鈴木", "<NAME>")
    chinese = "陈建国和赵文博在石家庄买了华为手机，布洛芬治不了帕金森病。"
    assert mask(chinese, "ner", "zh").text == chinese.replace("陈建国", "<NAME>").replace("赵文博", "<NAME>")


@pytest.mark.skipif(not models.fetched("natasha-ner"), reason="airgen fetch natasha-ner")
def test_russian_names_are_found_in_every_case() -> None:
    pytest.importorskip("slovnet")
    text = "Теорема Пифагора, закон Ома, и спасибо Дмитрию Королёву за ответ."
    assert mask(text, "ner", "ru").text == text.replace("Дмитрию Королёву", "<NAME>")


def test_a_missing_model_is_named_before_the_corpus_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "fetched", lambda _: False)
    assert [part.line for part in recognisers.missing("en")] == [
        "clean.names: the model rampart has not been fetched (or set names: keep): airgen fetch rampart"
    ]
    assert recognisers.missing("hi") == [] and not recognisers.has_recogniser("hi")


def test_the_model_reads_only_sentences_that_may_contain_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def probabilities(text: str) -> Iterator[tuple[int, int, float]]:
        read.append(text)
        for match in re.finditer("Tom|Hargreaves|JANE|DOE", text):
            yield *match.span(), 1.0

    monkeypatch.setattr(recognisers, "_token_probabilities", probabilities)
    monkeypatch.setattr(models, "fetched", lambda _: True)
    text = (
        "The results of the DNA test were late. I spoke with Tom Hargreaves. It was late. "
        "It was signed by JANE DOE. "
        "Results are kept for a year, and the results of tests are not."
    )
    assert [text[begin:end] for begin, end in recognisers.spans(text, "en")] == ["Tom Hargreaves", "JANE DOE"]
    assert [part.strip() for part in read] == ["I spoke with Tom Hargreaves.", "It was signed by JANE DOE."]
    read.clear()
    names = "Tom Hargreaves wrote to " * 60 + "me."  # a sentence longer than a window is read in several
    assert len(list(recognisers.spans(names, "en"))) == 60
    assert len(read) == 4 and all(len(part) <= 480 for part in read)


def test_a_sentence_that_sections_repeat_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tokens:
        ids, offsets = [1, 2], [(0, 3), (4, 12)]

    class Model:
        read = 0

        def run(self, names: list[str], inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
            self.read += 1
            return [np.array([[[0.0, 9.0], [0.0, 9.0]]])]

    class Tokenizer:
        def encode(self, text: str) -> Tokens:
            return Tokens()

    model = Model()
    monkeypatch.setattr(recognisers, "_load_rampart", lambda: (model, Tokenizer(), [1]))
    monkeypatch.setattr(models, "fetched", lambda _: True)
    recognisers._token_probabilities.cache_clear()
    try:
        assert {recognisers.spans("Ada Lovelace", "en")[0] for _ in range(3)} == {(0, 12)}
    finally:
        recognisers._token_probabilities.cache_clear()
    assert model.read == 1


def test_names_are_recognised_on_all_cores_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[ComputeSettings] = []

    class Cores(Compute):
        def map(self, work: Any, items: Any, *, ordered: bool = True, least: int = 0) -> Any:
            return ((key, work.here(item)) for key, item in items)

    def open_compute(settings: ComputeSettings) -> Compute:
        opened.append(settings)
        return Cores()

    monkeypatch.setattr(qa_passages, "open_compute", open_compute)
    monkeypatch.setattr(qa_passages, "cores", lambda: 4)
    counts: list[int] = []
    monkeypatch.setattr(models, "fetched", lambda _: True)
    monkeypatch.setattr(recognisers, "missing_extra", lambda *_: None)
    monkeypatch.setattr(find_names, "spans", lambda *_: [])
    rows = [{"id": str(n), "text": f"{n} {'words ' * 2000}"} for n in range(9)]
    settings = corpus(tmp_path, "forum", rows).model_copy(update={"language": "en"})
    assert sum(isinstance(row, Passage) for row in prepare(settings, "qa", progress=counts.append)) == 9
    assert [one.workers for one in opened] == [4]
    assert len(counts) > 1 and sum(counts) == 9  # the count moves while names are recognised
    assert list(prepare(corpus(tmp_path, "tech", rows), "qa")) and len(opened) == 1  # nothing slow: this process


def corpus(folder: Path, domain: str, rows: list[dict[str, str]], **clean: Any) -> CorpusSettings:
    (folder / "d.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    own = {
        "min_tokens": 1,
        "language": "off",
        "boilerplate": "off",
        "offensive_share": None,
        "near_duplicates": None,
        **clean,
    }
    value = {
        "name": "c", "language": "hi", "domain": domain, "licence": "x", "source": "x", "clean": own,
        "reader": {"kind": "jsonl", "path": "d.jsonl", "fields": {"id": "id"}},
    }  # fmt: skip
    (folder / "c.yaml").write_text(yaml.safe_dump(value), encoding="utf-8")
    return load_corpus_settings(folder / "c.yaml")


@pytest.mark.parametrize(
    "domain, clean, names",
    [
        ("web", {}, "ner"), ("Forum posts", {}, "ner"), ("medical", {}, "ner"), ("health-care", {}, "ner"),
        *((domain, {}, "ner") for domain in ("news", "wiki", "science", "finance")),
        *((domain, {}, "ner") for domain in ("healthcare", "law", "arxiv", "book")),
        ("tech", {}, "keep"), ("general", {}, "keep"), ("webbing", {}, "keep"), ("web", {"names": "keep"}, "keep"),
        ("web", {"names": False}, "keep"), ("web", {"names": "off"}, "keep"), ("wiki", {"names": "titles"}, "titles"),
        ("web", {"personal_data": "off"}, "keep"),
    ],
)  # fmt: skip
def test_names_are_masked_in_the_papers_domains_and_where_private_persons_are_named(
    domain: str, clean: Any, names: str, tmp_path: Path
) -> None:
    settings = corpus(tmp_path, domain, [], **clean)
    assert settings.names == names
    assert settings.identity["clean"]["names"] == ("off" if names == "keep" else names)  # as before there was a default
    assert "names of persons" in what_remains(settings, "qa") or "stays" in what_remains(settings, "qa")


def test_without_its_model_names_after_a_title_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "fetched", lambda _: False)
    found = corpus(tmp_path, "web", []).model_copy(update={"language": "en"})
    asked = corpus(tmp_path, "web", [], names="ner").model_copy(update={"language": "en"})
    assert (found.names, asked.names) == ("titles", "ner")
    assert not [line for line in missing(found, "qa") if "rampart" in line]
    assert [line for line in missing(asked, "qa") if "airgen fetch rampart" in line]
    assert what_remains(found, "qa").endswith(
        "only after a courtesy title (a recogniser finds more: airgen fetch rampart)."
    )


def test_what_was_masked_is_counted_and_the_data_is_in_no_row(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "title": "श्री मोहन", "text": "a@b.org और c@d.org, जन्म 4 मार्च 1961"},
        {"id": "b", "text": "राजमा चावल में टमाटर पड़ता है।"},
        {"id": "c", "text": "a@b.org, जन्म 4 मार्च 1961"},
        {"id": "d", "text": "e@f.org, जन्म 5 मार्च 1961"},  # the same as the one before, once it is masked
    ]
    settings = corpus(tmp_path, "forum", rows)
    assert missing(settings, "qa") == []
    found = list(prepare(settings, "qa"))
    assert [row.text for row in found if isinstance(row, Passage)] == [
        "<EMAIL> और <EMAIL>, जन्म <BIRTHDATE>", "राजमा चावल में टमाटर पड़ता है।", "<EMAIL>, जन्म <BIRTHDATE>",
    ]  # fmt: skip
    masks = [row for row in found if isinstance(row, Dropped) and row.cleaner == "masked"]
    assert Counter(row.reason for row in masks) == {"EMAIL": 2, "NAME": 1, "BIRTHDATE": 2}  # documents that are kept
    assert [(row.reason, row.detail) for row in masks if row.id == "a"] == [
        ("BIRTHDATE", "1 in this document"), ("EMAIL", "2 in this document"), ("NAME", "1 in this document"),
    ]  # fmt: skip
    assert not any("@" in str(row) for row in found)
    assert len({row.key for row in found}) == len(found)
