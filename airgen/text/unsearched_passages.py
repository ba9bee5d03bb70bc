"""Recognise passages that users do not search for: fragments, captions, references, front matter, non-prose.

    unasked("References", "[1] Smith, J. (1999). Wings. J. Aero. 3, 1-9. [2] ...", "en")   # "a list of references"

Queries are about what people want to know, so these passages are skipped before anything is generated. They stay in the
corpus. Only clear cases count: a doubtful passage costs one call, whereas a passage that is skipped never gets a query.
"""

import re
import unicodedata

from airgen.settings.languages import SPACELESS
from airgen.text.analysis.languages import STOPWORDS
from airgen.text.words import words

FRAGMENT = "a fragment"
CAPTION = "a caption"
REFERENCES = "a list of references"
FRONT_MATTER = "front matter"
NO_PROSE = "no prose"

_LEAST_WORDS, _LEAST_IDEOGRAPHS = 12, 16
_CAPTION = re.compile(
    r"^\W*(?:fig(?:ure|ura)?|tab(?:le|elle|leau|la|ela)?|abb(?:ildung)?|plate|gambar|tabel|图|表|рис(?:унок)?|таблица)"
    r"s?\.?\s*[A-Z]?\d+(?:[.:-]?\d+)*\s*[.:)|\-–—：]",
    re.IGNORECASE,
)
_CAPTION_WORDS = 60
_OF_REFERENCES = re.compile(
    r"^\W*(?:\d+\W+)?(?:references|bibliography|works cited|literature(?: cited)?|further reading|literatur"
    r"(?:verzeichnis|hinweise)?|quellen|références|bibliographie|referencias|bibliografía|daftar pustaka|参考文献"
    r"|список литературы|литература)\W*$",
    re.IGNORECASE,
)
_CITED = re.compile(
    r"\bet al\b|\bdoi\b|10\.\d{4,}/|\barXiv:|\bISBN\b|\bpp?\.\s*\d|\bvol\.\s*\d|\bIn Proc|\bProceedings of\b"
    r"|\((?:1[89]|20)\d\d[a-z]?\)|\b(?:1[89]|20)\d\d;\s*\d+|\b\d+\(\d+\)\s*[:,]\s*\d+|,\s*[A-Z]\.(?:\s*[A-Z]\.)?(?=[,;\s])",
)
_CITED_A_WORD = 0.08
_FRONT = re.compile(
    r"all rights reserved|copyright\s*(?:©|\(c\)|\d{4})|©\s*\d{4}|\bISBN\b|printed in\b|table of contents"
    r"|typeset (?:in|by)|library of congress|no part of this (?:book|publication)|first published"
    r"|alle rechte vorbehalten|inhaltsverzeichnis"
    r"|tous droits réservés|table des matières|todos los derechos reservados|版权所有|目录$",
    re.IGNORECASE | re.MULTILINE,
)
_FRONT_WORDS = 200
_OF_THANKS = re.compile(  # a whole heading: "Delayed acknowledgments" is a subject
    r"\A[\W\d]*"
    r"(?:acknowledge?ments?|danksagung|remerciements|agradecimientos|ucapan terima kasih|致谢|благодарности)\W*",
    re.IGNORECASE,
)
_TO_A_PAGE = re.compile(
    r"(?:\.[^\S\n]?){4,99}[^\S\n]{0,9}\d{1,5}[^\S\n]{0,9}$|\S[^\S\n]{3,99}\d{1,4}[^\S\n]{0,9}$", re.MULTILINE
)
_LEAST_FUNCTION_WORDS = 0.05  # of the words of a text
_WITH_FUNCTION_WORDS = frozenset({"de", "en", "es", "fr"})  # of whose prose they are a quarter or more
_ENOUGH = 40  # words from which on such a share says something
_LEAST_LETTERS = 0.5  # of the characters that are no space; vowel signs count


def unasked(title: str, text: str, language: str) -> str:
    """Return the kind of a passage that users do not search for, or "" if they may search for it."""
    tokens = words(text, language)
    count = len(tokens)
    dense = "".join(text.split())
    least = _LEAST_IDEOGRAPHS if language in SPACELESS else _LEAST_WORDS
    if (len(dense) if language in SPACELESS else count) < least:
        return FRAGMENT
    if count <= _CAPTION_WORDS and _CAPTION.match(text):
        return CAPTION
    cited = len(_CITED.findall(text))
    heading = text.lstrip().split("\n", 1)[0]
    listed = _OF_REFERENCES.match(title.rpartition("\n")[2]) or _OF_REFERENCES.match(heading)
    if cited >= 3 and (listed or cited >= _CITED_A_WORD * count):
        return REFERENCES
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) >= 4 and len(_TO_A_PAGE.findall(text)) * 2 >= len(lines):
        return FRONT_MATTER
    if count <= _FRONT_WORDS and len(_FRONT.findall(text)) >= 2:
        return FRONT_MATTER
    if any(_OF_THANKS.fullmatch(part) for part in title.split(" > ")):
        return FRONT_MATTER
    if sum(unicodedata.category(char)[0] in "LM" for char in dense) < _LEAST_LETTERS * len(dense):
        return NO_PROSE
    if language in _WITH_FUNCTION_WORDS and count >= _ENOUGH:
        functional = sum(word.casefold() in STOPWORDS[language] for word in tokens)
        # Without any the text may be in other words than those of its language: then only commas show a list.
        if 0 < functional < _LEAST_FUNCTION_WORDS * count or (not functional and text.count(",") * 2 >= count):
            return NO_PROSE
    return ""
