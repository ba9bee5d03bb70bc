"""Guess the encoding of a text from its bytes and from the language of the corpus.

    decoded(raw, "", "ru")          # Decoded(text="...", encoding="koi8_r", damaged=False)
    decoded(raw, "", "")            # the language is not known: all of them are tried
    legacy_language(samples)        # "ru": the language of bytes from many files, or "" where they are UTF-8

UTF-8 and byte order marks are recognised directly. All other bytes are decoded with each encoding used for a language,
and the result whose characters suit that language best is chosen: frequent letters of its script and its quotation
marks, but no control codes, symbols or letters of other scripts.
"""

import codecs
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from airgen.errors import CorpusError
from airgen.storage.compressed_files import opened

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
_SAMPLE_BYTES = 1 << 16  # bytes of lines that are not ASCII
_READ_BYTES = 1 << 20
_MIN_SCORE = 0.2  # the minimum score of a reading
# By how much a reading must be better to need no other evidence, per non-ASCII byte, and the minimum number of such
# bytes.
_CLEAR_MARGIN, _MIN_EVIDENCE_BYTES = 5.0, 15
_SUFFICIENT_EVIDENCE_BYTES = 200  # the number of non-ASCII bytes from which a text shows its encoding on its own
_EBCDIC = frozenset({"cp037", "cp273", "cp424", "cp500", "cp875", "cp1026", "cp1140"})
_EBCDIC_LETTERS = frozenset(byte for start in (0x81, 0x91, 0xC1, 0xD1) for byte in range(start, start + 9)) | frozenset(
    byte for start in (0xA2, 0xE2) for byte in range(start, start + 8)
)
_EBCDIC_SPACE, _EBCDIC_BREAKS = 0x40, bytes.maketrans(b"\x15", b"\x25")  # the two bytes that end a line
_MAX_CAPITALS = 0.05  # penalty
_MIN_UTF7_SCORE, _MIN_UTF7_BYTES = 0.5, 30  # of one sequence; several may be short
_SHIFTED = re.compile(rb"\+[A-Za-z0-9/+]{3,}")  # UTF-7's sequences of letters that are not ASCII
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x19\x1c-\x1f]")  # in no text of single bytes
_HZ = re.compile(rb"~\{(?:[\x21-\x77][\x21-\x7e])+~\}")
_ESCAPES = {b"\x1b$B": "iso2022_jp", b"\x1b$@": "iso2022_jp", b"\x1b$)C": "iso2022_kr"}

_ENCODINGS = {
    "cp1252 iso8859_15 cp850 mac_roman": "en de fr es pt it nl sv da no fi id ca eu ga",
    "cp1250 iso8859_2 cp852": "pl cs sk hu ro hr sl",
    "cp1251 koi8_r cp866 iso8859_5 mac_cyrillic": "ru bg sr",
    "cp1251 koi8_u cp866 iso8859_5 mac_cyrillic": "uk",
    "cp1254 cp857": "tr",
    "cp1253 iso8859_7 cp737": "el",
    "cp1256 iso8859_6 cp720 mac_arabic": "ar",
    "cp1256 iso8859_6 mac_farsi": "fa",
    "cp1257 iso8859_13": "lt lv et",
    "gb18030 big5hkscs": "zh",
    "cp932 euc_jp": "ja",
    "cp949": "ko",
    "cp874": "th",
    "cp1258": "vi",
}
_LEGACY_ENCODINGS = {
    language: names.split() for names, languages in _ENCODINGS.items() for language in languages.split()
}
# The most frequent non-ASCII characters of each language.
_COMMON = {
    "en": "é", "de": "äöüß", "fr": "éèàêçôîûùâëïœ", "es": "áéíóúñü¿¡", "pt": "ãçáéíóõâêàú", "it": "àèéìòù",
    "nl": "ëéïöü", "sv": "åäöé", "da": "æøåé", "no": "æøåé", "fi": "äöå", "id": "é", "ca": "àèéíòóçïú·", "eu": "ñç",
    "ga": "áéíóú",
    "pl": "ąćęłńóśźż", "cs": "ěščřžýáíéůúťď", "sk": "áäčďéíľňóôšťúýž", "hu": "áéíóöőúüű", "ro": "ăâîşţ", "hr": "čćđšž",
    "sl": "čšž", "ru": "оеаинтсрвлкмдпуяыьгзб", "bg": "аоиетнрсвлкдпмзъгуя", "sr": "аиоенрстујвкдпмзлљњћ",
    "uk": "оаинівертскдлмупяьзбйї", "tr": "ışğüçöİ", "el": "αοιετσνηυρπκμλςίόάέήύώδγθχφ",
    "ar": "اليمونترببةعدسفهكقحأ", "fa": "ایيرندهمتوبسشكکزگپچآ", "lt": "ąčęėįšųūž", "lv": "āčēģīķļņšūž", "et": "äõöüšž",
    "zh": "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年"
    "过发后作里用道行所然家种"
    "事成方多经去法学如都同现当没动面起看定天分还进好小部其些主样理心本前开但因只从想实日者意无力它與這個們來為國說時會對過發後裡經學沒"
    "動還進樣開從實無長機關點電將兩區並文件及或由被使本位第每请設置",
    "ja": "のにはをたがでてとしれさいるなこもらあかりっすまくうけんよそきつだおえ日本人大年一中会国事語時分行出用者上",
    "ko": "이다는의에가고을를은하한도로지사기리서자나시어대들인그있아일만해과부전정수주보여으성",
    "th": "านรอกเงมยลวดทสตะปบคหแจพชขใไโ่้ีิัื์็ุูาำ", "vi": "àáảãạăằắâầấậđèéêềếệìíòóôồốộơờớợùúưừứựỳý",
}  # fmt: skip
_ALPHABETS = {
    "ru": "абвгдеёжзийклмнопрстуфхцчшщъыьэюя", "bg": "абвгдежзийклмнопрстуфхцчшщъьюя",
    "uk": "абвгґдеєжзиіїйклмнопрстуфхцчшщьюя", "sr": "абвгдђежзијклљмнњопрстћуфхцчџш",
}  # fmt: skip
_SCRIPTS = {
    **dict.fromkeys(("ru", "bg", "sr", "uk"), ("CYRILLIC",)), "el": ("GREEK",), "ar": ("ARABIC",), "fa": ("ARABIC",),
    "zh": ("CJK",), "ja": ("HIRAGANA", "KATAKANA", "CJK"), "ko": ("HANGUL",), "th": ("THAI",),
}  # fmt: skip
_SIGNS = frozenset("€£©®°§№×\xa0\xad")
_PLAIN = frozenset("“”‘’„‚«»‹›–—…•·、。「」『』（），！？：；・ー《》〈〉【】～‐′″、％؟،؛ـ")


_QUOTED = re.compile(r"(?<=[^\W\d_])[“”„‚«»‹›…€£©®°§¿¡](?=[^\W\d_])")  # characters that do not occur in words
_CLOSING = re.compile(r"(?<!\S)[’”‚](?=[а-яё])")  # capital letters of another Cyrillic encoding
_WORD = re.compile(r"[^\W\d_]+")


class Decoded(NamedTuple):
    """A text, its encoding, and whether bytes that are invalid in that encoding were replaced by U+FFFD."""

    text: str
    encoding: str
    damaged: bool = False


def decoded(raw: bytes, encoding: str, language: str, usual: str = "") -> Decoded:
    """Decode a whole file.

    Args:
        raw: The bytes of the file.
        encoding: The encoding that the user names, or "" to detect it. A byte order mark takes precedence.
        language: Language of the text; "" or `und` if it is unknown.
        usual: The encoding of the other files, used if the file has too few words to detect its own.

    Raises UnicodeError, whose message names the encodings tried, if none fits, and LookupError for an unknown text
    encoding.
    """
    if name := _marked(raw):
        return _lenient(raw, name)
    if encoding:
        return Decoded(with_line_feeds(raw, text_codec(encoding)).decode(text_codec(encoding)), encoding)
    if name := _wide(raw[:4096]):  # tested before UTF-8, in which many of its bytes are control codes
        return _lenient(raw, name)
    try:
        return Decoded(raw.decode(_seven_bits(raw) or _utf7(raw, language) or "utf-8"), "utf-8")
    except UnicodeDecodeError:
        pass
    if (
        usual
        and sum(byte > 127 for byte in raw[:_SAMPLE_BYTES]) < _SUFFICIENT_EVIDENCE_BYTES
        and _is_likely(raw, usual, language)
    ):
        return Decoded(raw.decode(usual), usual)
    return _lenient(raw, "utf-8" if _is_broken_utf8(raw[: _SAMPLE_BYTES * 4]) else guessed(raw, language))


def usual_encoding(samples: Iterable[bytes], language: str) -> str:
    """Return the encoding of most samples that are not UTF-8, judged from all of them together, or "" if it is
    unclear."""
    odd = b"\n".join(_legacy_samples(samples))
    readings = _readings(odd, language) if odd else []
    return readings[0][1] if readings and readings[0][0] >= _MIN_SCORE else ""


def _is_likely(raw: bytes, name: str, language: str) -> bool:
    """Return whether bytes may be in an encoding, in that no other decoding is much better."""
    try:
        raw.decode(name)
    except UnicodeDecodeError:
        return False
    readings = _readings(raw, language)
    score = max((score for score, encoding, _ in readings if encoding == name), default=-2.0)
    return score >= _MIN_SCORE and readings[0][0] - score < _CLEAR_MARGIN / max(
        sum(byte > 127 for byte in raw), _MIN_EVIDENCE_BYTES
    )


_DECLARED = re.compile(
    rb"""<(?:meta|\?xml)[^>]{0,300}?(?:charset|encoding)\s{0,9}=\s{0,9}["']?\s{0,9}([\w.:-]{2,40})""", re.IGNORECASE
)
# How browsers read a label: the Encoding Standard's supersets. UTF-16 in a page with ASCII bytes is UTF-8.
_BROWSERS = {
    "cp1252": "ascii us-ascii iso-8859-1 iso8859-1 latin1 latin-1 l1 windows-1252 cp1252 x-user-defined x-cp1252 ansi "
    "ansi_x3.4-1968 cp819 ibm819 csisolatin1 iso-ir-100 iso88591 iso_8859-1 iso_8859-1:1987",
    "cp1254": "iso-8859-9 latin5 windows-1254 cp1254 csisolatin5 iso-ir-148 iso8859-9 iso88599 iso_8859-9 l5 x-cp1254 "
    "iso_8859-9:1989",
    "cp874": "tis-620 iso-8859-11 windows-874 cp874 dos-874 iso8859-11 iso885911",
    "gb18030": "gb2312 gbk gb_2312-80 x-gbk gb18030 cp936 chinese csgb2312 csiso58gb231280 gb_2312 iso-ir-58",
    "big5hkscs": "big5 big5-hkscs cn-big5 x-x-big5 csbig5",
    "cp932": "shift_jis shift-jis sjis x-sjis windows-31j ms_kanji cp932 csshiftjis",
    "euc_jp": "euc-jp x-euc-jp cseucpkdfmtjapanese",
    "cp949": "euc-kr ks_c_5601-1987 ksc5601 korean windows-949 cp949 cseuckr csksc56011987 iso-ir-149 ks_c_5601-1989 "
    "ksc_5601",
    "koi8_r": "koi koi8 koi8-r koi8_r cskoi8r",
    "koi8_u": "koi8-u koi8-ru",
    "cp866": "866 cp866 ibm866 csibm866 dos-866",
    "iso8859_2": "iso-8859-2 csisolatin2 iso-ir-101 l2 latin2 iso_8859-2:1987",
    "iso8859_5": "iso-8859-5 csisolatincyrillic cyrillic iso-ir-144 iso_8859-5:1988",
    "iso8859_6": "iso-8859-6 arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6-e "
    "iso-8859-6-i iso-ir-127 iso_8859-6:1987",
    "iso8859_7": "iso-8859-7 csisolatingreek ecma-118 elot_928 greek greek8 iso-ir-126 iso_8859-7:1987 sun_eu_greek",
    "iso8859_8": "iso-8859-8 logical visual csiso88598e csiso88598i csisolatinhebrew hebrew iso-8859-8-e iso-8859-8-i "
    "iso-ir-138 iso8859-8 iso88598 iso_8859-8 iso_8859-8:1988",
    "iso8859_15": "iso-8859-15 csisolatin9 l9 latin9 latin-9",
    "mac_cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "mac_roman": "macintosh mac x-mac-roman csmacintosh",
    **{
        f"cp{number}": f"windows-{number} cp{number} x-cp{number}"
        for number in (1250, 1251, 1253, 1255, 1256, 1257, 1258)
    },
    "utf-8": "utf-8 utf8 unicode-1-1-utf-8 utf-16 utf-16le utf-16be utf-32 ucs-2 unicode undefined none",
}
_LABELS = {label: name for name, labels in _BROWSERS.items() for label in labels.split()}


def decoded_html(raw: bytes, encoding: str, language: str, header: str = "", usual: str = "") -> Decoded:
    """Decode a page like a browser.

    A byte order mark takes precedence, then the charset in the HTTP header, then the charset that the page declares.
    Without any of them, the page is decoded like other text. An unknown charset is treated as UTF-8. A page that is
    valid UTF-8 is not decoded as windows-1252, whatever it declares.

    Args:
        raw: The bytes of the page.
        encoding: The encoding that the user names, or "".
        language: ISO 639 code, which helps to recognise a legacy encoding.
        header: The charset in the HTTP header.
        usual: The encoding of the other files.

    Raises:
        UnicodeError: No encoding fits.
        LookupError: `encoding` is not a text encoding.
    """
    declared = _DECLARED.search(raw[:4096])
    label = header or (declared[1].decode("ascii") if declared else "")
    if encoding or _marked(raw) or not label:
        return decoded(raw, encoding, language, usual)
    name = browsers_encoding(label)
    if name in ("utf-8", "cp1252"):
        return _if_it_is_not_utf8(raw, name, language)
    try:
        return Decoded(raw.decode(name), name)
    except UnicodeDecodeError:
        result = Decoded(raw.decode(name, "replace"), name, damaged=True)
    if result.text.count("\ufffd") * 50 < sum(byte > 127 for byte in raw[:_READ_BYTES]):
        return result
    return decoded(raw, "", language)


def browsers_encoding(label: str) -> str:
    """Return the encoding that a browser uses for a label; UTF-8 for an unknown label."""
    label = label.strip().lower()
    if label in _LABELS:
        return _LABELS[label]
    try:
        name = text_codec(label)
    except LookupError:
        return "utf-8"
    return "utf-8" if name == "utf-7" else name


def _if_it_is_not_utf8(raw: bytes, name: str, language: str) -> Decoded:
    try:
        return Decoded(raw.decode(_seven_bits(raw) or "utf-8"), "utf-8")
    except UnicodeDecodeError:
        # windows-1252 has five unassigned codes, which browsers map to control codes.
        return decoded(raw, "", language) if name == "utf-8" else _lenient(raw, name)


def text_codec(name: str) -> str:
    """Return Python's name for a text encoding.

    Raises LookupError for anything else, such as `idna`.
    """
    codec = codecs.lookup(name)
    odd = ("idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape", "mbcs", "oem")
    if not getattr(codec, "_is_text_encoding", True) or codec.name.replace("-", "_") in odd:
        raise LookupError(f"{name} is not an encoding of text")
    return codec.name


def wide_lines(path: Path, limit: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield the numbered lines of a UTF-16 or UTF-32 file in UTF-8, like `files.lines`."""
    name, _ = encoding_of(path, "", "")
    with opened(path, CorpusError) as raw:
        stream = io.TextIOWrapper(raw, name, "replace", newline="\n")
        try:
            for number, line in enumerate(iter(lambda: stream.readline(limit + 1), ""), 1):
                if len(line) > limit and not line.endswith("\n"):
                    while (rest := stream.readline(limit)) and not rest.endswith("\n"):
                        pass
                    yield number, None
                else:
                    yield number, line.rstrip("\r\n").encode("utf-8", "replace")
        finally:
            stream.detach()


def is_wide(head: bytes) -> bool:
    """Return whether a file beginning with these bytes is UTF-16 or UTF-32, where a line break is more than one
    byte."""
    return _marked(head).startswith(("utf-16", "utf-32")) or bool(_wide(head))


def encoding_of(path: Path, named: str, language: str) -> tuple[str, bool]:
    """Return the encoding of a file of any size, and whether some bytes are invalid in it. Raises CorpusError."""
    try:
        if named:
            known = text_codec(named)
    except LookupError:
        raise CorpusError(f"{path}: reader.encoding: {named!r} is not an encoding") from None
    decoder, sample, odd = codecs.getincrementaldecoder("utf-8")(), b"", b""
    with opened(path, CorpusError) as raw:
        while piece := raw.read(_READ_BYTES):
            if not sample and (marked := _marked(piece)):
                return marked, False
            if named:
                return known, False
            if not sample and (escaped := _seven_bits(piece)):
                return escaped, False
            sample = sample or piece
            try:
                decoder.decode(piece)
            except UnicodeDecodeError:
                odd = sample if not sample.isascii() else piece
                break
        else:
            return _wide(sample[:4096]) or _utf7(sample, language) or "utf-8", False
    if wide := _wide(sample[:4096]):
        return wide, False
    if _is_broken_utf8(odd):
        return "utf-8", True
    try:
        return guessed(odd, language), True
    except UnicodeError as error:
        raise CorpusError(f"{path}: its encoding is not known: {error}") from None


def with_line_feeds(raw: bytes, name: str) -> bytes:
    """Return bytes with one line ending in an EBCDIC encoding, which has two; bytes in other encodings as they are."""
    return raw.translate(_EBCDIC_BREAKS) if is_ebcdic(name) else raw


def is_ebcdic(name: str) -> bool:
    """Return whether an encoding is one of mainframes, where the line ending is not that of ASCII."""
    return name in _EBCDIC


def _looks_like_ebcdic(raw: bytes) -> bool:
    """Return whether bytes are mostly letters and spaces of EBCDIC, and have hardly any of ASCII's spaces."""
    counts = Counter(raw[:_SAMPLE_BYTES])
    total = counts.total()
    letters = sum(count for byte, count in counts.items() if byte in _EBCDIC_LETTERS)
    return letters > 0.5 * total and counts[_EBCDIC_SPACE] > 0.05 * total > 100 * counts[0x20]


def _utf7(raw: bytes, language: str) -> str:
    """Return "utf-7" if ASCII bytes are valid UTF-7 whose shifted sequences are letters, or ""."""
    sample = raw[:_SAMPLE_BYTES].rpartition(b"\n")[0] or raw[:_SAMPLE_BYTES]
    shifted = _SHIFTED.findall(sample)
    if not sample.isascii() or (len(shifted) < 3 and sum(map(len, shifted)) < _MIN_UTF7_BYTES):
        return ""
    try:
        text = sample.decode("utf-7")
    except UnicodeDecodeError:
        return ""
    letters = Counter(letter for letter in text if letter > "\x7f")
    if len(letters) < 2 or any(unicodedata.category(letter)[0] not in "LMPSZC" for letter in letters):
        return ""
    scripts = Counter[str]()
    for letter, count in letters.items():
        scripts[_script(letter)] += count if letter.isalpha() else 0
    if scripts["DEVANAGARI"] + scripts["BENGALI"] > 0.9 * scripts.total() > 9:
        return "utf-7"  # scripts without a legacy encoding
    words = [word for word in _WORD.findall(text) if not word.isascii()][:2000]
    codes = [language] if language in _LEGACY_ENCODINGS else list(_LEGACY_ENCODINGS)
    return "utf-7" if max(_score(letters, words, _mixed_case(words), code) for code in codes) >= _MIN_UTF7_SCORE else ""


def guessed(raw: bytes, language: str) -> str:
    """Guess the encoding of bytes that are not UTF-8. Raises UnicodeError."""
    if _looks_like_ebcdic(raw):
        raise UnicodeError("it looks like EBCDIC; set reader.encoding (cp037, cp500, cp273, ...)")
    readings = _readings(raw, language)
    unclear = not readings or readings[0][0] < _MIN_SCORE
    if (unclear or _CONTROLS.search(raw[:_SAMPLE_BYTES])) and (name := _wide_words(raw, language)):
        return name
    if unclear:
        tried = (
            ", ".join(["utf-8", *_LEGACY_ENCODINGS[language]])
            if language in _LEGACY_ENCODINGS
            else "utf-8 and the encodings of all languages"
        )
        raise UnicodeError(f"tried {tried}; set reader.encoding")
    return readings[0][1]


def legacy_language(samples: Iterable[bytes]) -> str:
    """Return the language of several files in legacy encodings, judged from all of them together, or ""."""
    odd = b"\n".join(_legacy_samples(samples))
    readings = _readings(odd, "") if odd else []
    return readings[0][2] if readings and readings[0][0] >= _MIN_SCORE else ""


def _legacy_samples(samples: Iterable[bytes]) -> Iterator[bytes]:
    """Return the samples in a legacy encoding that they do not declare."""
    return (sample for sample in samples if not _marked(sample) and not _is_utf8(sample) and not _wide(sample))


def _is_utf8(raw: bytes) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(raw)  # a sample may end within a character
    except UnicodeDecodeError:
        return _is_broken_utf8(raw)
    return True


def _marked(raw: bytes) -> str:
    return next((name for mark, name in _MARKS if raw.startswith(mark)), "")


def _seven_bits(raw: bytes) -> str:
    """Return the encoding indicated by escape sequences in ASCII bytes."""
    if _HZ.search(raw) and raw.isascii():
        try:
            raw.rpartition(b"\n")[0].decode("hz")
            return "hz"
        except UnicodeDecodeError:
            return ""
    if b"\x1b$" not in raw or not raw.isascii():
        return ""
    return next((name for mark, name in _ESCAPES.items() if mark in raw), "")


def _wide(head: bytes) -> str:
    """Detect UTF-16 without a byte order mark, by the zeros next to Latin letters, digits, spaces and line ends, and
    UTF-32, by the zeros in each character."""
    if len(head) < 4 or b"\x00" not in head:
        return ""
    if len(head) >= 8 and len(head) % 4 == 0:
        for name, high, plane in (("utf-32-le", head[3::4], head[2::4]), ("utf-32-be", head[0::4], head[1::4])):
            if not any(high) and max(plane) <= 0x10 and 10 * plane.count(0) >= 9 * len(plane) and _fits(head, name):
                return name
    even, odd = head[0::2].count(0), head[1::2].count(0)
    half = len(head) // 2
    plain = sum(31 < byte < 127 for byte in head)
    if (even + odd) * 10 < 3 * len(head) and plain * 10 >= 9 * (len(head) - even - odd):
        return ""  # text of single bytes with some zeros among them
    if odd * 20 >= half and even * 10 < odd:
        return "utf-16-le"
    return "utf-16-be" if even * 20 >= half and odd * 10 < even else ""


def _fits(raw: bytes, name: str) -> bool:
    """Return whether bytes are text in an encoding, without control codes but those of lines."""
    try:
        text = raw.decode(name)
    except UnicodeDecodeError:
        return False
    return all(letter.isprintable() or letter.isspace() or unicodedata.category(letter) == "Cf" for letter in text)


def _wide_words(raw: bytes, language: str) -> str:
    """Detect UTF-16 without a byte order mark in scripts without spaces, by their frequent letters; "" for others."""
    sample = raw[: _SAMPLE_BYTES // 4 & ~1]
    best = (_MIN_SCORE, "")
    for code in ("zh", "ja", "ko") if language not in ("zh", "ja", "ko") else (language,):
        for name in ("utf-16-le", "utf-16-be"):
            if _fits(sample, name):
                letters = Counter(letter for letter in sample.decode(name) if letter > "\x7f")
                best = max(best, (_score(letters, [], 0.0, code), name))
    return best[1]


def _is_broken_utf8(raw: bytes) -> bool:
    """Return whether bytes are UTF-8 with a few damaged sequences.

    Text in another encoding has hardly any valid sequences.
    """
    text = raw.decode("utf-8", "replace")
    damaged = text.count("\ufffd")
    valid = sum(map(len, filter(None, (piece.strip() for piece in _not_ascii(text))))) - damaged
    return valid >= 8 * damaged


def _not_ascii(text: str) -> Iterator[str]:
    return iter("".join(letter if letter > "\x7f" else " " for letter in text).split())


def _lenient(raw: bytes, name: str) -> Decoded:
    try:
        return Decoded(raw.decode(name), name)
    except UnicodeDecodeError:
        return Decoded(raw.decode(name, "replace"), name, damaged=True)


def _readings(raw: bytes, language: str) -> list[tuple[float, str, str]]:
    """Return (score, encoding, language) for each possible decoding of the bytes, best first."""
    lines, size = list[bytes](), 0
    for line in raw.splitlines() if len(raw) <= _READ_BYTES else raw[:_READ_BYTES].splitlines()[:-1]:
        if not line.isascii():
            lines.append(line[:4096])
            size += len(lines[-1])
            if size > _SAMPLE_BYTES:
                break
    sample = b"\n".join(lines) or raw[:_SAMPLE_BYTES]
    languages = [language] if language in _LEGACY_ENCODINGS else list(_LEGACY_ENCODINGS)
    texts: dict[str, tuple[Counter[str], list[str], float]] = {}
    readings = []
    for place, code in enumerate(languages):
        for rank, name in enumerate(_LEGACY_ENCODINGS[code]):
            if name not in texts:
                text = sample.decode(name, "replace")
                letters = Counter(letter for letter in text if letter > "\x7f")
                words = [word for word in _WORD.findall(text) if not word.isascii()][:2000]
                odd = 2.0 * len(_QUOTED.findall(text)) + 4.0 * len(_CLOSING.findall(text))
                inside = odd / max(letters.total(), 1)
                texts[name] = letters, words, _mixed_case(words) + inside + _capitals(letters)
            score = _score(*texts[name], code) - 0.01 * rank
            readings.append((score, -place, name, code))
    return [(score, name, code) for score, _, name, code in sorted(readings, key=lambda row: (-row[0], -row[1]))]


def _score(letters: Counter[str], words: list[str], mixed: float, language: str) -> float:
    """Rate a text from -2 (surely not this language) to 1 (all non-ASCII characters are frequent in it)."""
    total = letters.total()
    if not total:
        return 0.0
    common, scripts = frozenset(_COMMON[language]), _SCRIPTS.get(language, ("LATIN",))
    alphabet = _ALPHABETS.get(language, "")
    dense = scripts[0] in ("CJK", "HIRAGANA", "HANGUL")
    score = 0.0
    for letter, count in letters.items():
        low = letter.lower()
        if low in common or letter in common or letter in _PLAIN:
            score += count
        elif alphabet and letter.isalpha() and low not in alphabet:
            score -= count
        elif letter in _SIGNS:
            score += 0.3 * count
        elif _script(letter) in scripts:
            score += (0.35 if dense else 0.3) * count
        else:
            score -= (4.0 if letter == "\ufffd" or unicodedata.category(letter)[0] == "C" else 1.5) * count
    score /= total
    if scripts == ("LATIN",):
        # Words in a Latin script have a few such letters. Words in another script that are read wrongly have only such
        # letters.
        score -= 1.5 * sum(map(_is_all_odd, words)) / max(len(words), 1)
    elif not dense:
        alone = sum(any(letter.isascii() and letter.isalpha() for letter in word) for word in words)
        score -= 0.5 * alone / max(len(words), 1)
    return score - mixed


def _is_all_odd(word: str) -> bool:
    inner = [letter for letter in word if letter.isalpha()]
    return len(inner) >= 3 and sum(letter > "\x7f" for letter in inner) * 3 > 2 * len(inner)


def _capitals(letters: Counter[str]) -> float:
    """Return a penalty for text in capitals, which is more likely lower case of another encoding."""
    upper = sum(count for letter, count in letters.items() if letter.isupper())
    lower = sum(count for letter, count in letters.items() if letter.islower())
    return _MAX_CAPITALS * max(0.0, 2 * upper / max(upper + lower, 1) - 1)


def _mixed_case(words: list[str]) -> float:
    """Return the share of words with a capital letter after a small letter, as in wrongly decoded Cyrillic."""
    cased = [word for word in words if any(map(str.isalpha, word))]
    odd = sum(any(a.islower() and b.isupper() for a, b in pairwise(word)) for word in cased)
    return odd / len(cased) if cased else 0.0


@cache
def _script(letter: str) -> str:
    if not letter.isalpha() and unicodedata.category(letter)[0] != "M":
        return ""
    return unicodedata.name(letter, "").split(" ")[0].split("-")[0]
