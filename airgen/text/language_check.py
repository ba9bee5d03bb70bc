"""Check, without a model, whether a text is in a given language, and whether it refers to "this document".

A language with its own script is recognised by its letters. Languages that share a script (English, Spanish, French,
German, Indonesian; Arabic, Persian) are recognised by their function words. For languages that the paper does not
cover, only the script is checked. A false alarm costs a paid call, so doubtful texts pass. docs/notes/generation.md
reports the measured error rates.
"""

import re
import unicodedata

from airgen.text.analysis.languages import STOPWORDS
from airgen.text.words import words

_SCRIPTS = {
    "ar": ("ARABIC",), "fa": ("ARABIC",), "ru": ("CYRILLIC",), "hi": ("DEVANAGARI",), "bn": ("BENGALI",),
    "ja": ("HIRAGANA", "KATAKANA", "CJK"), "zh": ("CJK",), "ko": ("HANGUL",), "el": ("GREEK",), "hy": ("ARMENIAN",),
    "sr": ("CYRILLIC", "LATIN"), "ta": ("TAMIL",), "ne": ("DEVANAGARI",), "uk": ("CYRILLIC",), "th": ("THAI",),
}  # fmt: skip

# Words with which English queries begin, and which are not stop words of the index.
_ASKING = frozenset(
    (
        *("how", "what", "why", "when", "where", "who", "which", "do", "does", "did", "can", "i", "my", "you", "your"),
        *("from", "have", "has", "been", "were", "about", "than", "would", "should", "its", "he", "she", "we", "our"),
    )
)
_FUNCTION = {**STOPWORDS, "en": STOPWORDS["en"] | _ASKING}
_RIVALS = (("en", "es", "fr", "de", "id"), ("ar", "fa"))
_KANA = re.compile(r"[\u3041-\u30ff]")
_IDEOGRAPH = re.compile(r"[\u4e00-\u9fff]")
_NAME = re.compile(r"[A-Z][\w'’]*(?:-\w+)+")
_FOREIGN = "its words are of another language than the one asked for"
_MIN_WORDS = 5  # a text with this many words should have a function word of its own language
_MIN_IDEOGRAPHS = 12  # a Japanese text with this many ideographs also has kana


def checked(language: str) -> str:
    """Return how the language of an answer is checked."""
    if any(language in group for group in _RIVALS):
        return "script and function words"
    return "script and characters" if language in ("zh", "ja") else "script"


def wrong_language(text: str, language: str, document: str = "") -> str | None:
    """Check the language of an answer.

    Args:
        text: The answer.
        language: ISO 639 code of the requested language.
        document: The document that the answer is about. With it, in a text of at least five words without any function
            word of the language, a single foreign function word that is not in the document is enough evidence, because
            foreign words in names mostly come from the document.

    Returns:
        The problem, worded for the model's next attempt, or None.
    """
    problem = wrong_script(text, language)
    if problem:
        return problem
    if language in ("zh", "ja"):
        kana, ideographs = len(_KANA.findall(text)), len(_IDEOGRAPH.findall(text))
        if language == "zh" and kana > 2 and kana * 5 > ideographs:
            return "it is Japanese, not Chinese"
        if language == "ja" and not kana and ideographs >= _MIN_IDEOGRAPHS:
            return "it is Chinese, not Japanese"
    rivals = next((group for group in _RIVALS if language in group), ())
    used = {word.casefold() for word in words(text, language)} if rivals else set()
    for rival in rivals:
        # Names and titles can contain a foreign function word. Two of them, and few of the text's own language, are
        # evidence.
        own = len((used & _FUNCTION[language]) - _FUNCTION[rival])
        alien = len((used & _FUNCTION[rival]) - _FUNCTION[language])
        if alien >= 2 and alien > 2 * own:
            return _FOREIGN
        if document and not own and len(used) >= _MIN_WORDS:
            known = f"{document.replace('_', ' ')} {' '.join(_NAME.findall(text))}"  # titles of wikis; "Kim Jong-un"
            if (used & _FUNCTION[rival]) - _FUNCTION[language] - {word.casefold() for word in words(known, language)}:
                return _FOREIGN
    return None


def untranslated(text: str, language: str, source: str) -> str | None:
    """Return a problem if a text that should be in `language` has the function words of `source`, or None.

    `wrong_language` compares a language with others that share its script, whereas this function suspects one language.
    """
    if language == source or language not in _FUNCTION or source not in _FUNCTION:
        return None
    used = {word.casefold() for word in words(text, source)}
    alien = len((used & _FUNCTION[source]) - _FUNCTION[language])
    if alien >= 2 and alien > 2 * len((used & _FUNCTION[language]) - _FUNCTION[source]):
        return "it is in the language of the document"
    return None


def wrong_script(text: str, language: str) -> str | None:
    """Return a problem if most words of a text are not in the language's script, or None.

    Each ideograph counts as a word.
    """
    wanted = _SCRIPTS.get(language, ("LATIN",))
    right = alien = 0
    before = None
    for char in text:
        in_script = unicodedata.name(char, "").startswith(wanted) if char.isalpha() else None
        if in_script is True and (before is not True or "CJK" in wanted):
            right += 1
        elif in_script is False and before is not False:
            alien += 1
        before = in_script
    if not right + alien:
        return "it has no letters"
    # Every language has names and terms in Latin letters, so a third of the words in the language's script is enough.
    return None if right * 2 >= alien else "it is not in the script of the asked language"


# Phrases that mean "this document", which only people who have seen the document would write in a query. The patterns
# of all languages are searched at once, because those of other languages match nothing.
_REFERENCES = (
    # English
    r"\b(?:this|the|that|given|above|provided|following)\s+"
    r"(?:document|text|passage|article|excerpt|section|paragraph|chunk)\b"
    r"|\b(?:according to|as (?:described|mentioned|stated|defined)) (?:in )?(?:the |this )?"
    r"(?:document|text|passage|article|author)"
    r"|\b(?:do|does|did) (?:the|this) (?:report|study|paper|book)"
    r" (?:conclude|describe|discuss|find|mention|say|show|state|suggest)\b"
    r"|\bthe authors?\b|\bthe (?:provided|given) (?:documentation|information|text)\b"
    # phrases about the character and scenario of the prompt
    r"|\bthe character(?:'s|’s)? (?:asks?|asked|needs|wants|would|learns?|description|scenario)\b"
    r"|\bin this scenario\b|\bthe scenario text\b|\bthe study(?:'s|’s) (?:aim|goal|purpose)\b",
    # German, Spanish, French, Indonesian
    r"\b(?:dies(?:e[rmns]?|es)|obige[rmns]?|vorliegende[rmns]?|gegebene[rmns]?|laut(?: de[mr])?|gemäß de[mr])\s+"
    r"(?:dokument|text|abschnitt|artikel|passage|auszug|absatz)\w{0,2}\b(?!\s+\d)",
    r"\b(?:este|dicho|presente|según (?:el|la|este)|en el)\s+"
    r"(?:documento|texto|pasaje|fragmento|artículo|extracto)\b(?!\s+(?:de|\d))",
    r"\b(?:ce|cet|cette|présente?|selon (?:le|la|ce|cet)|dans (?:le|ce))\s+"
    r"(?:document|texte|passage|extrait|article|paragraphe)\b(?!\s+(?:d[eu]|\d))"
    r"|\bd'après (?:le|ce) (?:document|texte)\b",
    r"\b(?:dokumen|teks|artikel|kutipan|paragraf|bacaan)\s+(?:ini|tersebut|di atas)\b"
    r"|\bmenurut (?:dokumen|teks|artikel|penulis)\b",
    # Russian
    r"\b(?:эт(?:от|ом|ого|ому|ой|а)|данн(?:ый|ом|ого|ому|ой|ая)|согласно|приведённ\w+|приведенн\w+)\s+"
    r"(?:документ|текст|отрывк?|отрывок|стать|фрагмент|абзац)\w*",
    # Chinese, Japanese, Korean: without word boundaries, so parts of other words are excluded
    r"[这该上][述]?[篇段份个]?(?:文档|文本|文章|段落|文字|材料)|(?:根据|依据|按照)(?:文档|文章|文本|文中|材料)"
    r"|(?<!日)本文(?![化学字明])|(?:文档|文章|文)中(?:提到|所述|描述|说)",
    r"(?:この|上記の|以下の)(?:文書|文章|テキスト|記事|段落|資料|本文)|(?:文書|文章|テキスト|本文)によ[るれ]",
    r"(?<!\w)(?:이|위|본|해당|주어진)\s+(?:문서|텍스트|글|기사|지문|단락|본문)|(?:문서|본문|지문|글)에\s*(?:따르면|의하면)",
    # Arabic, Persian, Hindi, Bengali
    r"\b(?:هذا|هذه|بحسب|حسب|وفقا?|وفقًا)\s+(?:ل)?(?:المستند|الوثيقة|النص|المقال|المقالة|الفقرة|المقطع|للنص|للمستند)\b",
    r"\b(?:این|طبق|بر اساس)\s+(?:سند|متن|مقاله|نوشته|بند|پاراگراف)\b",
    r"(?<!\w)(?:इस|दिए गए|उपरोक्त)\s+(?:दस्तावेज़?|पाठ|लेख|अनुच्छेद|गद्यांश)",
    r"(?<!\w)(?:এই|উপরের|প্রদত্ত)\s+(?:নথি|পাঠ্য|লেখা|নিবন্ধ|অনুচ্ছেদ|দলিল)",
)
_REFERENCE = re.compile("|".join(f"(?:{pattern})" for pattern in _REFERENCES), re.IGNORECASE)


def self_reference(text: str) -> str | None:
    """Return a problem if a query, which must make sense on its own, refers to the document, or None."""
    match = _REFERENCE.search(text)
    return f"it says {match[0]!r}" if match else None
