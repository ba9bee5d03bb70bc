"""Cleaners on texts whose right answer is known."""

import unicodedata

import pytest
from corpus_maker import prose
from hypothesis import given
from hypothesis import strategies as st

from airgen.corpus.cleaning.filters import (
    Item,
    has_list,
    judge_language,
    judge_length,
    judge_offensive,
    judge_text,
    normalise,
    word_list,
)
from airgen.corpus.cleaning.mask_personal_data import judge_personal, mask
from airgen.storage.records import Document
from airgen.text.token_counts import load_tokenizer


def test_lengths_are_inclusive() -> None:
    words = load_tokenizer("words")
    items = [Item(Document("d", "x " * tokens)) for tokens in (4, 5, 10, 11, 0)]
    assert [judge_length(item, words, 5, 10)[:2] for item in items] == [
        (False, "too short"), (True, ""), (True, ""), (False, "too long"), (False, "empty")
    ]  # fmt: skip
    assert [item.tokens for item in items] == [4, 5, 10, 11, 0]


@given(st.text())
def test_normalised_text_is_clean_and_stays_as_it_is(text: str) -> None:
    found = normalise(text)
    assert normalise(found) == found
    assert not any(unicodedata.category(letter) in ("Cc", "Cs") for letter in found.replace("\n", ""))
    assert "\n\n\n" not in found and found == found.strip()
    found.encode()  # no lone surrogates


@pytest.mark.parametrize(
    "raw, clean",
    [
        ("\x1b[31mred\x1b[0m and \x1b]0;title\x07plain", "red and plain"),
        ("  indented first\n    code  here\t x", "indented first\n    code here x"),
        ("two  spaces here  \n>>> '   spacious   '.rstrip()", "two spaces here\n>>> '   spacious   '.rstrip()"),
        ("e\u0301te\u0301", "été"),
        ("می\u200cخواهم", "می\u200cخواهم"),  # a zero-width non-joiner is spelling
        ("a\u202eb\u200bc\u00add", "abcd"),
        ("\ud800x", "\ufffdx"),
        ("one\u2028two\rthree\x0cfour", "one\ntwo\nthree\nfour"),
        ("one\x0btwo\x85three\x1cfour\x1dfive\x1esix\x1fseven", "one\ntwo\nthree\nfour\nfive\nsix seven"),
    ],
)
def test_normalising(raw: str, clean: str) -> None:
    assert normalise(raw) == clean


@pytest.mark.parametrize(
    "text, masked",
    [
        ("Write to ann.b+c@mail.example.co.uk.", "Write to <EMAIL>."),
        ("IBAN DE89 3704 0044 0532 0130 00 please", "IBAN <IBAN> please"),
        ("card 4111 1111 1111 1111, ok", "card <CARD>, ok"),
        ("Call +49 30 901820 or (030) 9018-2000 now", "Call <PHONE> or <PHONE> now"),
        ("call 212-555-0187.", "call <PHONE>."),
        ("from 212.94.201.11 port 53", "from <IP> port 53"),
        ("via 2001:4860:4860:0:0:0:0:8888 today", "via <IP> today"),
        ("SSN 219-09-9999.", "SSN <ID>."),
        ("DNI 12345678Z", "DNI <ID>"),
        ("NIR 2 69 05 49 588 157 80", "NIR <ID>"),
        ("身份证 11010519491231002X。", "身份证 <ID>。"),
        ("手机13812345678联系", "手机13812345678联系"),  # glued to letters: not told from a longer number
        ("电话：13812345678。", "电话：<PHONE>。"),
    ],
)
def test_personal_data_is_masked(text: str, masked: str) -> None:
    assert mask(text).text == masked


@pytest.mark.parametrize(
    "text",
    [
        "Version 3.11.2 of 2023-02-07, 10,000,000 rows, ISBN 978-3-16-148410-0.",
        "card 1234 5678 9012 3456, order 4111 1111 1111 1112",  # wrong check digits
        "the mask 255.255.255.0, the host 127.0.0.1 and 192.168.1.10",
        "pi is 3.141592653589793, year 1999/2000, pages 100-120, 1914-1918",
        "user@localhost and a@b",
        "IBAN DE00 3704 0044 0532 0130 00",
        "at 12:30:45, 00:1B:44:11:3A:B7 is a MAC address",
        "Section 4.1.2.1, version 13.3.3.5, the resolver 8.8.8.8",
        "f9:2a:c2:77:29:f9:5c:00 is a serial number",
        "Boston, MA 02111-1307, timestamp @15584760000, shmmax=17179869184, +2147483647",
        "the bytes 26 00 00 00 00 00 00 00 and accession numbers FS290155-FS300559",
        "SSN 000-12-3456 and 123-45-6789-0",
        "DOI 10.1000/182, RFC 2822, ISO 8601:2004",
        "the range 0x7fffffff to 0xffffffff, 1234567890123456789012",
    ],
)
def test_what_is_no_personal_data_stays(text: str) -> None:
    assert mask(text).text == text


def test_names_after_titles() -> None:
    assert (
        mask("Yesterday Mrs. Ada King Lovelace met Dr Babbage.", "titles").text
        == "Yesterday Mrs. <NAME> met Dr <NAME>."
    )
    german = "Herr Prof. Dr. Meier, Frau Müller-Lüdenscheidt und Richard M. Stallman"
    assert mask(german, "titles", "de").text == "Herr Prof. Dr. <NAME>, Frau <NAME> und Richard M. Stallman"
    assert mask("Selon eux, M. Dupont et Richard M. Stallman", "titles", "fr").text == (
        "Selon eux, M. <NAME> et Richard M. Stallman"
    )
    assert mask("王小明先生说", "titles", "zh").text == "<NAME>先生说"
    assert mask("Mrs. Ada Lovelace").text == "Mrs. Ada Lovelace"


def test_dropping_says_what_kinds_and_never_the_data() -> None:
    verdict = judge_personal(Item(Document("d", "a@b.org, c@d.org, 212.94.201.11")), "keep", "en")
    assert (verdict.keep, verdict.detail) == (False, "2 EMAIL, 1 IP")


@pytest.mark.parametrize(
    "good, kind",
    [("378282246310005", "CARD"), ("GB82WEST12345698765432", "IBAN"), ("2341 2341 2346", "ID"), ("X1234567L", "ID"),
     ("255081416802538", "ID"), ("440524198001010013", "ID"), ("078-05-1120", "ID")],
)  # fmt: skip
def test_check_digits_accept_a_known_number_and_no_neighbour(good: str, kind: str) -> None:
    assert mask(good).text == f"<{kind}>"
    if good != "078-05-1120":  # US social security numbers have no check digit
        place = next(at for at in range(len(good) - 1, 0, -1) if good[at].isdigit())
        for digit in set("0123456789") - {good[place]}:
            neighbour = good[:place] + digit + good[place + 1 :]
            assert mask(neighbour).text == neighbour


SENTENCES = {
    "en": "The committee shall publish its report before the end of the year.",
    "zh": "委员会应当在年底之前公布其报告，并说明理由。请各部门认真执行。",
    "es": "El comité publicará su informe antes de que termine el año.",
    "fr": "Le comité publiera son rapport avant la fin de l'année.",
    "de": "Der Ausschuss veröffentlicht seinen Bericht vor dem Ende des Jahres.",
    "ru": "Комитет должен опубликовать свой отчёт до конца года.",
    "ja": "委員会は年末までに報告書を公表しなければなりません。",
    "ko": "위원회는 연말까지 보고서를 발표해야 합니다.",
    "ar": "يجب على اللجنة أن تنشر تقريرها قبل نهاية العام.",
    "fa": "کمیته باید گزارش خود را پیش از پایان سال منتشر کند.",
    "id": "Panitia harus menerbitkan laporannya sebelum akhir tahun ini berakhir.",
    "hi": "समिति को वर्ष के अंत से पहले अपनी रिपोर्ट प्रकाशित करनी चाहिए।",
    "bn": "কমিটিকে বছরের শেষ হওয়ার আগে তার প্রতিবেদন প্রকাশ করতে হবে।",
}


@pytest.mark.parametrize("language", sorted(SENTENCES))
def test_each_language_keeps_its_own_and_drops_the_others(language: str) -> None:
    pytest.importorskip("fasttext")
    kept = {other for other, text in SENTENCES.items() if judge_language(text, language, 0.5).keep}
    assert kept == {language}


def test_no_verdict_without_evidence() -> None:
    pytest.importorskip("fasttext")
    assert judge_language("x = 1 + 2; 0x7f 1999", "de", 0.5).keep


def test_boilerplate() -> None:
    assert judge_text(prose(1)).keep
    assert judge_text("\n".join(f"Link {n}" for n in range(10))).reason == "list of links or headings"
    assert judge_text("| 1 | 2 |\n| 3.5 | 4 |\n" * 3).reason == "few letters"
    assert (
        judge_text("See https://example.org/a/very/long/path/index.html and www.example.org/x now").reason
        == "mostly links"
    )
    assert judge_text("We use cookies. Read our privacy policy. Sign up for the newsletter.").reason == "page furniture"
    assert judge_text("A privacy policy tells people what is stored. " + prose(2, 80)).keep
    assert (
        judge_text("\n".join(["A repeated line of the page header."] * 4 + [prose(3)] * 2)).reason == "repeated lines"
    )
    assert judge_text("buy it now " * 20).reason == "repetition"
    assert judge_text(SENTENCES["zh"] * 2).keep and judge_text(SENTENCES["bn"]).keep


CODE = {
    "a configuration": "[cache]\nsize=64\nbind-address=0.0.0.0\nmax_open=200\nskip-dns",
    "an element": "<Host *:80>\n  Name example.com\n  Root /srv/pages/html\n</Host>\n<Host *:81>\n  Name example.org\n"
    "  Root /srv/pages/html\n</Host>",
    "a session": "$ tool init\n$ tool add .\n$ tool commit -m first\n$ tool branch\n$ tool push -u origin main",
    "a synopsis": "ALLOW { READ | WRITE\n  | LIST }\n  ON { TABLE name }\n  TO role\n\nALLOW { USE | ALL }\n"
    "  ON { TABLE name }\n  TO role\n\nALLOW { MAKE | ALL }\n  ON { SPACE name }\n  TO role",
    "a matrix": "work index top\n A B C --soft A B\n A B C --hard B B\n --keep (no)\nwork index top\n"
    " A B B --soft A B\n A B B --hard B B\n --keep (no)\nwork index top\n A A B --soft A B\n --keep (no)",
    "a program": "x = {0: 1, 2: 3}\ny = [[1, 0], [0, 1]]\nz = x[0] + y[1][0]\nw = (1 + 2) ** 3 // 4",
}  # fmt: skip


@pytest.mark.parametrize("text", CODE.values(), ids=CODE)
def test_code_is_no_boilerplate(text: str) -> None:
    """What a manual is asked for is often in a block of short lines."""
    assert judge_text(text).keep


FURNITURE = ["Home\nAbout us\nGetting-started\nWhat's new\nPrice list (2024)\nEN / DE\n© 2024 Acme",
             "Contents\n1. Introduction\n2. Start\n2.1. Upgrades\n3. Reference\n4. Appendix (A)",
             "\n".join(f"item-{n} - Part {n}" for n in range(8))]  # fmt: skip


@pytest.mark.parametrize("text", FURNITURE)
def test_menus_and_contents_are_no_code(text: str) -> None:
    assert judge_text(text).reason == "list of links or headings"


def test_a_table_of_commands_is_no_list_of_links() -> None:
    rows = [
        "lit | shows which lamps burn",
        "out | puts a lamp out",
        "dim | sets how bright one is",
        "log | who was there",
    ]
    assert judge_text("\n".join(["Commands", *rows])).keep
    menu = [f"{name} | {other}" for name in ("Home", "News", "Shop") for other in ("About us", "Contact", "Help")]
    assert judge_text("\n".join(menu)).reason == "list of links or headings"


def test_offensive_text_goes_by_share() -> None:
    pytest.importorskip("glin_profanity")
    assert has_list("de") and not has_list("bn")
    assert {language for language in SENTENCES if word_list(language)} == set(SENTENCES) - {"id", "bn"}
    word = next(word for word in sorted(word_list("en")) if word.isalpha() and len(word) > 5)
    assert judge_offensive(f"{word} {prose(4, 30)} {word}", "en", 0.02)[:2] == (False, "too many offensive words")
    quotation = f"{word} {prose(4, 200)} {word}"  # two words of two hundred
    assert all(judge_offensive(text, "en", 0.02).keep for text in (quotation, word, SENTENCES["en"]))


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "Set relay_host to xxx.example.org, and XXX to the port: xx or xxx stands for your own value."),
        ("en", "How to kill a job: first find its number, then read how to kill a process group, as in mf.c and bs.c."),
        ("tr", "Kapak 30 cm x 40 cm, derinlik 12 cm: 31 numaralı levha, 18+ ve 30+1 ölçülerinde satılır."),
        ("pt", "O fio de Cu tem 2 mm, e a liga Cu com zinco resiste mais; CU é o símbolo na tabela."),
        ("ja", "部品 3P の端子に SM と XX を付け、3P と SM の番号を確かめる。"),
    ],
)
def test_placeholders_units_and_abbreviations_are_no_offence(language: str, text: str) -> None:
    pytest.importorskip("glin_profanity")
    assert judge_offensive(text, language, 0.02).keep
    assert len(word_list(language)) > 60  # the words themselves are still there
