"""Find personal data without check digits: street addresses, dates of birth, and passport and account numbers.

>>> hide("Date of birth: 11/07/1984", "en", BIRTH, Counter())
'Date of birth: <BIRTHDATE>'

Dates of birth, passports and accounts are recognised by a word next to them, and street addresses by their form, in
AIR-Bench's 13 languages. The English patterns apply to every language, since forms and web pages mix languages.
`benchmarks/names.py` has the precision and recall.
"""

import re
import unicodedata
from collections import Counter
from functools import cache

ADDRESS, BIRTH, PASSPORT, ACCOUNT = "ADDRESS", "BIRTHDATE", "PASSPORT", "ACCOUNT"

_UP = "[A-ZÀ-ÖØ-ÞА-ЯЁ]"
_WORD = rf"{_UP}[\w’'-]*"
_LETTERS = r"[^\W\d_]"
_MONTH = r"[^\s\d,.;:()/-]{2,14}"  # including the vowel signs of Hindi and Bengali, which \w leaves out
_DATE = (
    r"(?<!\d)(?:"
    r"\d{1,4}\s?[./-]\s?\d{1,2}\s?[./-]\s?\d{1,4}(?!\d)"
    r"|\d{4}\s?[年년]\s?\d{1,2}\s?[月월]\s?\d{1,2}\s?[日일]"
    rf"|\d{{1,2}}(?:st|nd|rd|th|er|º|\.)?\s+(?:of\s+|de\s+)?{_MONTH}\.?,?\s+(?:de\s+|del\s+)?\d{{4}}(?!\d)"
    rf"|{_MONTH}\.?\s+\d{{1,2}}(?:st|nd|rd|th)?,?\s+\d{{4}}(?!\d)"
    r")"
)
# Words before and after a date of birth.
_BORN = {
    "en": r"born(?: on)?|date of birth|birth ?date|D\.?O\.?B\.?",
    "de": r"geboren(?: am)?|geb\.(?: am)?|Geburtsdatum|Geburtstag",
    "fr": r"née?(?:\(e\))?(?: le)?|date de naissance",
    "es": r"nacid[oa](?: el)?|nació(?: el)?|fecha de nacimiento",
    "ru": r"родил(?:ся|ась)|дата рождения",
    "zh": r"出生日期|出生于|出生|生于|生日",
    "ja": r"生年月日|誕生日",
    "ko": r"생년월일|출생일?",
    "ar": r"تاريخ الميلاد|مواليد|ولدت? في",
    "fa": r"تاریخ تولد|متولد",
    "id": r"tanggal lahir|lahir(?: pada)?(?: tanggal)?",
    "hi": r"जन्म(?: ?तिथि| ?दिनांक)?",
    "bn": r"জন্ম(?: ?তারিখ)?",
}
_BORN_AFTER = {
    "de": r"\s+geboren", "ru": r"\s*(?:года?\s+рождения|г\.\s?р\.)", "zh": r"(?:出生|生)", "ja": r"(?:生まれ|生)",
    "ko": r"\s?(?:생|출생)", "hi": r"\s+को\s+(?:हुआ\s+)?जन्म",
}  # fmt: skip
_PASSPORTS = {
    "en": r"passport", "de": r"Reisepass\w*|Passnummer|Pass-Nr\.?", "fr": r"passeport", "es": r"pasaporte",
    "ru": r"паспорт\w*", "zh": r"护照", "ja": r"旅券|パスポート", "ko": r"여권", "ar": r"جواز(?: ال)?سفر|جواز السفر",
    "fa": r"گذرنامه|پاسپورت", "id": r"paspor", "hi": r"पासपोर्ट", "bn": r"পাসপোর্ট",
}  # fmt: skip
_ACCOUNTS = {
    "en": r"(?:bank )?account (?:number|no\.?|nr\.?|#)|a/c (?:number|no\.?)",
    "de": r"Kontonummer|Konto-?Nr\.?",
    "fr": r"(?:numéro|n°|no) de compte|compte n°",
    "es": r"(?:número|n\.?º|no\.) de cuenta|cuenta n\.?º",
    "ru": r"номер сч[её]та|расч[её]тный сч[её]т|р/с",
    "zh": r"银行账号|银行帐号|账号|帐号|银行卡号|卡号",
    "ja": r"口座番号",
    "ko": r"계좌 ?번호|계좌",
    "ar": r"رقم الحساب",
    "fa": r"شماره حساب",
    "id": r"(?:nomor|no\.?) rek(?:ening|\.)?",
    "hi": r"खाता (?:संख्या|नंबर|नं\.?)",
    "bn": r"(?:হিসাব|অ্যাকাউন্ট) ?(?:নম্বর|নং)",
}
_BETWEEN = r"[^\d\n;。]{0,25}?"  # words between the name of a number and the number: `number is`, `lautet`
_NUMBER = (
    r"(?<![A-Za-z\d])(?:\d{4} \d{6}|\d\d \d\d \d{6}"  # Russia
    r"|(?=(?:[A-Z]*\d){6})[A-Z]{0,3}\d{2,9}|(?=(?:[A-Z]*\d){5})[A-Z\d]{8,10})(?!\w)"
)
_ACCOUNT = r"\d(?:[ -]?\d){5,24}(?!\w)"

_UNIT = r"(?:,?\s+(?:Apt\.?|Apartment|Suite|Unit|Flat|#)\s*[\w-]{1,6})?"
_CJK = "[\u4e00-\u9fff]"
_DEVANAGARI, _BENGALI = "[\u0900-\u0963\u0970-\u097f]+", "[\u0980-\u09e5\u09f0-\u09ff]+"
_ARABIC = "[\u0620-\u065f\u066e-\u06d3\u200c]+"
_ADDRESSES = {
    "en": rf"(?<![\w.,/-])\d{{1,5}}[A-Za-z]?\s+(?:[NSEW]\.?\s+)?(?:{_WORD}\s+){{1,3}}(?:Street|St\.?|Avenue"
    rf"|Ave\.?|Road|Rd\.?"
    rf"|Lane|Ln\.?|Drive|Dr\.|Boulevard|Blvd\.?|Court|Terrace|Crescent|Parkway)(?!\w){_UNIT}",
    "de": rf"(?<![\w-])(?!Bundesstra|Landstra|Umweg)(?:{_UP}[\wäöüß-]*(?:straße|strasse|str\.|weg|gasse|allee"
    rf"|ufer|damm|chaussee)"
    rf"|{_WORD}[ -](?:Straße|Str\.|Weg|Gasse|Allee|Platz)"
    rf"|(?:Am|An der|Im|Auf dem|Zum|Zur)\s+{_UP}\w*(?:bach|berg|hang|markt|see|feld|hof|tor|park|wald|graben"
    rf"|brunnen|mühle))"
    r"\s+\d{1,4}(?:\s?[a-h])?(?![\w]|[.,]\d)",
    "fr": r"(?<![\w.,/-])\d{1,4}(?:\s?(?:bis|ter|[A-D]))?,?\s+(?:rue|avenue|av\.|boulevard|bd|allée|impasse"
    r"|chemin|quai|cours|route"
    rf"|passage|square)\s+(?:(?:de|du|des|la|le|les)\s+|l’|l'|d’|d')*{_WORD}(?:[ -]{_WORD}){{0,3}}",
    "es": r"(?<!\w)(?:[Cc]alle|[Cc]/|[Aa]venida|[Aa]vda\.?|[Pp]laza|[Pp]aseo|[Cc]amino|[Pp]asaje)\s+(?:(?:de"
    r"|del|los|las|la|el)\s+)*"
    rf"{_WORD}(?:\s+(?:(?:de|del|la|los)\s+)*{_WORD}){{0,3}},?\s+(?:n\.?[ºo°]\s*|núm\.?\s*)?\d{{1,4}}(?![\w]|[.,]\d)",
    "ru": rf"(?<!\w)(?:ул\.|[Уу]лиц[аеыу]|пр-т|пр\.|[Пп]роспект[еа]?|пер\.|[Пп]ереул(?:ок|ке)|[Бб]ульвар"
    rf"|[Шш]оссе|наб\.)\s+{_WORD}"
    rf"(?:\s+{_WORD})?,?\s+(?:д\.|дом)?\s*\d{{1,4}}[а-я]?(?:\s?[/к]\s?\d+)?(?:,\s*(?:кв\.|квартира|корп\."
    rf"|стр\.)\s*\d+)*(?!\w)",
    "zh": rf"(?:{_CJK}{{2,3}}?(?:省|市|自治区))?(?:{_CJK}{{1,4}}?(?:市|区|县|镇|乡))*{_CJK}{{2,4}}?(?:路|街"
    rf"|大道|巷|胡同)"
    r"(?:\d+弄)?\d+号(?:\d+(?:号楼|栋|幢|单元|室))*",
    "ja": rf"(?:東京都|北海道|大阪府|京都府|{_CJK}{{2,3}}県)(?:[{_CJK[1:-1]}ぁ-んァ-ヶー]{{1,6}}?[市区郡町村])+"
    rf"[{_CJK[1:-1]}ぁ-んァ-ヶー]{{1,10}}?\d+(?:丁目\d+番(?:地)?(?:\d+号)?|(?:[-−－]\d+){{1,3}})",
    "ko": r"(?<![가-힣])(?:[가-힣]{1,5}(?:특별시|광역시|특별자치시|도|시)\s+)?(?:[가-힣]{1,5}(?:시|군"
    r"|구)\s+){1,2}[가-힣\d]+(?:로|길)"
    r"(?:\s?\d+번?길)?\s+\d+(?:-\d+)?(?!\d)(?:번지|호)?",
    "ar": rf"(?:شارع|طريق|جادة)\s+{_ARABIC}(?:\s+{_ARABIC}){{0,2}}،?\s+(?:رقم\s+)?\d{{1,4}}(?!\d)",
    "fa": rf"خیابان\s+{_ARABIC}(?:\s+{_ARABIC}){{0,2}}(?:،\s*(?:کوچه"
    rf"|بن‌بست)\s+{_ARABIC}(?:\s+{_ARABIC})?)?،?\s*پلاک\s+\d{{1,4}}(?!\d)",
    "id": rf"(?<!\w)(?:Jalan|Jln?\.?|Gang|Gg\.)\s+{_WORD}(?:\s+{_WORD}){{0,3}}?,?\s+(?:[Nn]o\.?\s*"
    rf"|[Nn]omor\s+)\d{{1,4}}[A-Z]?"
    r"(?:,?\s+RT\.?\s*\d+(?:\s*/?\s*RW\.?\s*\d+)?)?",
    "hi": rf"(?:मकान|फ्लैट|प्लॉट)\s+(?:नंबर|नं\.?|संख्या|क्रमांक)\s+\d+(?:,\s*{_DEVANAGARI}(?:\s+{_DEVANAGARI})?)?",
    "bn": rf"(?:বাড়ি|বাসা|ফ্ল্যাট|প্লট)\s+(?:নং|নম্বর)\s+\d+(?:,\s*রোড\s+(?:নং|নম্বর)\s+\d+"
    rf"|,\s*{_BENGALI}\s+(?:রোড|সড়ক|লেন))?",
}  # fmt: skip
_CARRIED = re.compile("^[住在于位到寄给送至的是往]+")  # characters with which a Chinese address does not begin


@cache
def _patterns(kind: str, language: str) -> tuple[re.Pattern[str], ...]:
    """Return the patterns of a kind. If a pattern has a group, only the group is replaced."""
    languages = dict.fromkeys((language, "en"))
    if kind == ADDRESS:
        patterns = [_ADDRESSES[name] for name in languages if name in _ADDRESSES]
    else:
        words = "|".join(table[name] for table in (_WORDS[kind],) for name in languages if name in table)
        # A word in another script has neither a beginning nor a case.
        named = rf"(?i:(?<![A-Za-zÀ-ÿА-яЁё])(?:{words}))"
        if kind == BIRTH:
            patterns = [rf"{named}[\s:：.()（-]{{0,6}}(?:am\s+|le\s+|el\s+|on\s+|в\s+|في\s+)?({_DATE})"]
            patterns += [rf"({_DATE})(?={_BORN_AFTER[language]})"] if language in _BORN_AFTER else []
        elif kind == PASSPORT:
            patterns = [rf"{named}{_BETWEEN}({_NUMBER})"]
        else:
            patterns = [rf"{named}[^\w\n]{{0,4}}(?:(?:is|lautet|ist|est|es|है|是|は)\s*)?[^\w\n]{{0,4}}({_ACCOUNT})"]
    return tuple(re.compile(unicodedata.normalize("NFC", pattern)) for pattern in patterns)


_WORDS = {BIRTH: _BORN, PASSPORT: _PASSPORTS, ACCOUNT: _ACCOUNTS}


def hide(text: str, language: str, kind: str, counts: Counter[str]) -> str:
    """Replace all data of one kind by <KIND>, and count the replacements in `counts`.

    Args:
        text: Normalised text (NFC).
        language: ISO 639 code. For a language other than the 13, only the English patterns apply.
        kind: ADDRESS, BIRTH, PASSPORT or ACCOUNT.
        counts: Counter to which the number of replacements of this kind is added.

    Returns:
        The text with the replacements.
    """

    def replaced(match: re.Match[str]) -> str:
        counts[kind] += 1
        if match.re.groups:
            return f"{match[0][: match.start(1) - match.start()]}<{kind}>{match[0][match.end(1) - match.start() :]}"
        lead = _CARRIED.match(match[0])
        return f"{lead[0] if lead else ''}<{kind}>"

    for pattern in _patterns(kind, language):
        text = pattern.sub(replaced, text)
    return text
