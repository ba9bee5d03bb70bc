"""Turn tokens into terms by language: normalise, drop stop words, stem.

`chain("de", True, True)("Häuser") == "haus"`. English follows Lucene's EnglishAnalyzer: its 33 stop words and its
Porter stemmer. Arabic uses Larkey's light10, Persian and Bengali use a short list of suffixes, and the other languages
use Snowball's stemmer (PyStemmer). Their stop words are only function words: short lists without words that can carry
meaning in a query, such as numbers, negations, and verbs other than the copula. BM25 gives other function words a
weight near 0 anyway.

`porter_stem` is the stemmer of Lucene's PorterStemFilter: M. F. Porter, An algorithm for suffix stripping, Program
14(3), 1980, with its author's later changes (`bli` to `ble` and `logi` to `log` in step 2, words of one or two letters
unchanged), which Snowball's `porter` lacks. Each step finds the longest matching suffix, then checks its condition.
"""

import importlib
import unicodedata
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from airgen.errors import MissingExtra
from airgen.text.normal_form import normal_form

_WORDS = {
    "en": "a an and are as at be but by for if in into is it no not of on or such that the their then there "
    "these they this to was will with",
    "es": "a al ante con como cual cuales de del desde donde durante e el ella ellas ellos en entre era eran es "
    "esa esas ese eso esos esta estas este esto estos fue fueron ha han hasta hay la las le les lo los "
    "más me mi mis muy nos o para pero por porque que qué quien se según ser si sin sobre son su sus "
    "también te tu tus u un una unas uno unos y ya",
    "fr": "a ai au aux avec c ce ces cet cette comme d dans de des dont du elle elles en est et eu il ils j je "
    "l la le les leur leurs lui m ma mais me mes moi mon n ne nos notre nous on ont ou où par pas pour qu "
    "que qui s sa se ses son sont sur t ta te tes ton tu un une vos votre vous y à été être",
    "de": "als also am an auch auf aus bei bin bis bist da dann das daß dass dem den denn der des dich die dies "
    "diese diesem diesen dieser dieses dir du ein eine einem einen einer eines er es euch für hat haben "
    "ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im in ist ja mein meine mich mir mit nach noch nur ob "
    "oder sein seine seinem seinen seiner sich sie sind so über um und uns unser unter vom von vor war "
    "waren was wer wie wir wird wurde zu zum zur zwischen",
    "ru": "а без бы был была были было быть в вам вас во вот все вы где да для до его ее если еще же за и из "
    "или им их к как ко ли мне мы на над нам нас не него нее ни них но о об он она они оно от по под при "
    "с со та так также там то того тоже той только том ты у уже чем что чтобы эта эти это этого этой этом "
    "этот я",
    "ar": "في من على إلى الى عن مع هذا هذه ذلك تلك التي الذي الذين هو هي هم هن ما ماذا كان كانت يكون أن ان إن "
    "لا لم لن قد و أو ثم بين كل بعد قبل حتى عند منذ كما لكن إذا هل أي به بها له لها فيه فيها عليه عليها "
    "منه منها وهو وهي",
    "fa": "و در به از که این آن را با برای است بود شد می های ها یا تا هم نیز اما اگر هر یک بر خود او ما شما "
    "آنها من تو چه چون پس بین روی است هست شده باشد بودند کرد کرده دارد داشت ای ی",
    "id": "yang dan di ke dari untuk pada dengan ini itu adalah atau oleh sebagai dalam akan juga telah sudah "
    "tidak ada karena saat bahwa dia ia mereka kami kita saya anda para sebuah seorang secara serta "
    "tersebut maka agar hingga sampai antara bagi apa apakah siapa",
    "hi": "का के की को में से है हैं था थी थे और या पर यह वह ये वे इस उस इन उन ने तो ही भी कि जो तक एक हो होता "
    "होती होते कर करने करना गया गई गए लिए साथ द्वारा क्या कौन अपने अपनी अपना मैं हम तुम आप मेरा हमारा "
    "उनके इसके उसके",
    "bn": "এবং ও এই সেই যে যা কি কে এ এর তার তাদের তিনি তারা আমি আমরা আমার আপনি তুমি থেকে জন্য করে করা হয় হয়ে "
    "হয়েছে ছিল ছিলেন আছে না এক একটি একটা কোন সঙ্গে সাথে মধ্যে উপর পর দিয়ে বা কিন্তু যদি তবে আর",
}

STOPWORDS: dict[str, frozenset[str]] = {language: frozenset(words.split()) for language, words in _WORDS.items()}
"""By ISO 639-1 code. Chinese, Japanese and Korean have none: their terms are bigrams."""


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.split(":") for pair in text.split())


_Rules = Mapping[str, list[tuple[str, str]]]


def _by_end(rules: str) -> _Rules:
    """Group a step's rules (suffix, replacement) by the last two letters, so that few are tried per word."""
    rules_by_end: dict[str, list[tuple[str, str]]] = {}
    for suffix, instead in _pairs(rules).items():
        rules_by_end.setdefault(suffix[-2:], []).append((suffix, instead))
    return rules_by_end


_STEP_2 = _by_end(
    "ational:ate tional:tion enci:ence anci:ance izer:ize bli:ble alli:al entli:ent eli:e ousli:ous ization:ize "
    "ation:ate ator:ate alism:al iveness:ive fulness:ful ousness:ous aliti:al iviti:ive biliti:ble logi:log"
)
_STEP_3 = _by_end("icate:ic ative: alize:al iciti:ic ical:ic ful: ness:")
# Longest first if an ending ends in another: ement, ment, ent.
_STEP_4 = _by_end("al: ance: ence: er: ic: able: ible: ant: ement: ment: ent: ion: ou: ism: ate: iti: ous: ive: ize:")
# A single test for all endings, which most words do not pass; the others are s, y and e.
_ENDS = frozenset(["ed", "ng", "ll", *_STEP_2, *_STEP_3, *_STEP_4])


def porter_stem(word: str) -> str:
    """Return the stem of a lower-case word. Every character except a, e, i, o, u and y is a consonant."""
    if len(word) < 3 or not (word[-1] in "sye" or word[-2:] in _ENDS):
        return word
    word = _step_1(word)
    word = _replace(word, _STEP_2)
    word = _replace(word, _STEP_3)
    word = _replace(word, _STEP_4, 2)
    return _step_5(word)


# v, c or y for each byte. Non-ASCII characters are question marks by then, and so count as consonants.
_KINDS = bytes(ord("v" if letter in b"aeiou" else "y" if letter == ord("y") else "c") for letter in range(256))


def _shape(word: str) -> str:
    """Return v for each vowel and c for each consonant. y is a vowel after a consonant: `_shape("syzygy") ==
    "cvcvcv"`."""
    shape = word.encode("ascii", "replace").translate(_KINDS).decode()
    if "y" not in shape:
        return shape
    while (place := shape.find("y")) >= 0:
        shape = shape[:place] + ("v" if shape[place - 1 : place] == "c" else "c") + shape[place + 1 :]
    return shape


def _measure(word: str) -> int:
    """Return m, the number of times a vowel is followed by a consonant."""
    return _shape(word).count("vc")


def _ends_cvc(word: str) -> bool:
    """Return whether a word ends in consonant, vowel, consonant, the last of which is not w, x or y: hop, but not
    how."""
    return _shape(word).endswith("cvc") and word[-1] not in "wxy"


def _ends_double(word: str) -> bool:
    return word[-1:] == word[-2:-1] and _shape(word).endswith("c")


def _step_1(word: str) -> str:
    """Remove plurals, -ed and -ing, and turn y into i."""
    if word.endswith(("sses", "ies")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    if word.endswith("eed"):
        if _measure(word[:-3]) > 0:
            word = word[:-1]
    elif word.endswith(("ed", "ing")):
        head = word[:-2] if word.endswith("d") else word[:-3]
        if "v" in _shape(head):
            word = _restore(head)
    if word.endswith("y") and "v" in _shape(word[:-1]):
        word = word[:-1] + "i"
    return word


def _restore(word: str) -> str:
    """Undo the changes made by -ed or -ing: hopp(ing) is hop, fil(ing) is file."""
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if _ends_double(word):
        return word if word[-1] in "lsz" else word[:-1]
    return word + "e" if _measure(word) == 1 and _ends_cvc(word) else word


def _replace(word: str, rules: _Rules, least: int = 1) -> str:
    """Apply the first rule whose suffix matches, if m is at least `least` before the suffix. -ion is removed only after
    s and t."""
    for suffix, instead in rules.get(word[-2:], ()):
        if word.endswith(suffix):
            head = word[: -len(suffix)]
            return head + instead if _measure(head) >= least and (suffix != "ion" or head[-1] in "st") else word
    return word


def _step_5(word: str) -> str:
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _ends_cvc(word[:-1])):
            word = word[:-1]
    if word.endswith("ll") and _measure(word[:-1]) > 1:
        word = word[:-1]
    return word


_SNOWBALL = _pairs(
    "es:spanish fr:french de:german ru:russian id:indonesian hi:hindi it:italian pt:portuguese nl:dutch sv:swedish "
    "da:danish no:norwegian fi:finnish hu:hungarian ro:romanian tr:turkish pl:polish cs:czech el:greek ca:catalan "
    "et:estonian lt:lithuanian eu:basque ga:irish hy:armenian sr:serbian ta:tamil ne:nepali"
)
_LIGHT = {"ar": "light10", "fa": "light-suffixes", "bn": "light-suffixes"}
# As in Lucene's French filter.
_ELISIONS = frozenset(["l", "m", "t", "qu", "n", "s", "j", "d", "c", "jusqu", "quoiqu", "lorsqu", "puisqu"])


def stemmer_name(language: str) -> str:
    """Return the name of the stemmer that `chain` uses."""
    if language == "en":
        return "porter"
    if language in _LIGHT:
        return _LIGHT[language]
    return f"snowball:{_SNOWBALL[language]}" if language in _SNOWBALL else "none"


def stopword_count(language: str) -> int:
    """Return the number of stop words of the language."""
    return len(STOPWORDS.get(language, ()))


def lower(token: str) -> str:
    """Convert to lower case one character at a time, like Java: without final sigma or a dotted capital I in two
    parts."""
    return token.lower() if token.isascii() else "".join([letter.lower()[0] for letter in token])


@cache
def chain(language: str, stem: bool, stopwords: bool) -> Callable[[str], str | None]:
    """Return a function that maps a token to its term, or to None for a stop word.

    Raises MissingExtra if the language's stemmer needs PyStemmer, which is not installed.
    """
    normalise = _NORMALISERS.get(language, lower)
    stops = frozenset(map(normalise, STOPWORDS.get(language, ()))) if stopwords else frozenset()
    stemmer = _stemmer(language) if stem else None

    def term(token: str) -> str | None:
        word = normalise(token)
        if not word or word in stops:
            return None
        return (stemmer(word) or word) if stemmer else word  # Nepali's stemmer leaves nothing of some words

    return term


def _stemmer(language: str) -> Callable[[str], str] | None:
    if language == "en":
        return porter_stem
    if language in _LIGHT:
        endings = {"fa": partial(_without, _PERSIAN_SUFFIXES, 1), "bn": partial(_without, _BENGALI_SUFFIXES, 2)}
        return endings.get(language, _stem_arabic)
    if language not in _SNOWBALL:
        return None
    try:
        package = importlib.import_module("Stemmer")
    except ModuleNotFoundError as error:
        raise MissingExtra(f"stemming language {language!r}", "PyStemmer", "languages") from error
    if _SNOWBALL[language] not in package.algorithms():  # Polish and Czech need PyStemmer 3.1
        raise MissingExtra(f"stemming language {language!r}", "PyStemmer", "languages")
    stem: Callable[[str], str] = package.Stemmer(_SNOWBALL[language], 0).stemWord
    if language == "de":
        return lambda word: _plain_umlauts(stem(word))
    return stem


_POSSESSIVES = tuple(mark + letter for mark in "'’＇" for letter in "sS")


def _english(token: str) -> str:
    if token.endswith(_POSSESSIVES):
        token = token[:-2]
    return lower(token)


def _french(token: str) -> str:
    word = lower(token).replace("’", "'")
    head, mark, tail = word.partition("'")
    return tail if mark and tail and head in _ELISIONS else word


def _plain_umlauts(word: str) -> str:
    return word.replace("ä", "a").replace("ö", "o").replace("ü", "u")


_LETTERS_OF: dict[str, dict[int, Any]] = {
    "de": str.maketrans({"ß": "ss"}),
    "ru": str.maketrans("ё", "е"),
    "ar": str.maketrans("آأإٱىة", "اااايه", "ـ" + "".join(map(chr, range(0x64B, 0x653)))),
    "fa": str.maketrans("يىےكۀةہأإؤ", "یییکهههااو", "ـٔ" + "".join(map(chr, range(0x64B, 0x653)))),
    # Hindi is spelt with and without nukta, and with chandrabindu or anusvara; each becomes a single form.
    "hi": str.maketrans({"़": None, "ँ": "ं", "‌": None, "‍": None}),
    "bn": str.maketrans({"‌": None, "‍": None, "ঁ": None, "়": None}),
}


def _one_spelling(language: str, token: str) -> str:
    """Return the token in lower case, with one form of each letter, and with the script's own digits converted to 0 to
    9."""
    word = lower(token)
    if language in ("hi", "bn"):
        word = normal_form("NFD", word)
    if language in ("ar", "fa", "hi", "bn"):
        word = "".join([str(unicodedata.decimal(letter, letter)) for letter in word])
    return word.translate(_LETTERS_OF[language])


_NORMALISERS: dict[str, Callable[[str], str]] = {
    "en": _english,
    "fr": _french,
    **{language: partial(_one_spelling, language) for language in _LETTERS_OF},
}


def _stem_arabic(word: str) -> str:
    """Stem normalised text by light10 (Larkey, Ballesteros and Connell 2007): remove "and", the article, then
    suffixes."""
    if word.startswith("و") and len(word) > 3:
        word = word[1:]
    for prefix in ("وال", "بال", "كال", "فال", "لل", "ال"):
        if word.startswith(prefix) and len(word) >= len(prefix) + 2:
            word = word[len(prefix) :]
            break
    for suffix in ("ها", "ان", "ات", "ون", "ين", "يه", "ه", "ي"):
        if word.endswith(suffix) and len(word) >= len(suffix) + 2:
            word = word[: -len(suffix)]
    return word


# Plural, comparative and possessive endings; case, plural and definite endings.
_PERSIAN_SUFFIXES = ("هایی", "های", "ها", "ترین", "تر", "ات", "ان", "ی", "م", "ت", "ش")
_BENGALI_SUFFIXES = (
    *("গুলোকে", "গুলোর", "গুলিকে", "গুলির", "গুলো", "গুলি", "দেরকে", "দের", "টিকে", "টির", "টাকে", "টার"),
    *("টি", "টা", "খানা", "কে", "তে", "েরা", "রা", "ের", "র", "ে", "ই", "ও"),
)


def _without(suffixes: tuple[str, ...], most: int, word: str) -> str:
    """Strip up to `most` of these suffixes from the word, leaving at least three letters."""
    for _ in range(most):
        fitting = (suffix for suffix in suffixes if word.endswith(suffix) and len(word) - len(suffix) >= 3)
        word = word.removesuffix(next(fitting, ""))
    return word
