"""How many of a query's content words its passages have: the property of a query that decides, more than any other,
whether lexical or neural systems lead (docs/05-is-it-trustworthy.md).

    overlap("Which wings bend?", ["The wing bends under load."], "en").best      # 1.0

Content words are compared by stem, without function words and question words. In Chinese and Japanese, ideographs and
katakana are compared one by one, and words in Latin letters as wholes.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from airgen.text.near_duplicates import stemmer
from airgen.text.normal_form import normal_form
from airgen.text.query_form import function_words

_BY_CHARACTER = frozenset({"ja", "zh"})
_CHARACTERS = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u30a1-\u30fa\u30fc]|[A-Za-z0-9][\w.+#-]*")
_EMPTY_CHARACTERS = {"zh": frozenset("的了是在和与或吗呢吧么什怎哪谁何几有为之其这那个些被把从到对于会能可以要不")}
_NUMBER = re.compile(r"\d")


@dataclass(frozen=True, slots=True)
class Overlap:
    """The share of a query's content words that its passages have, 0 to 1.

    Attributes:
        best: The share in the passage that has the most of them.
        mean: The mean over the passages.
        named: The share of the query's content words that the best passage has as a name or a number.
        title: The share that is in the title of the best passage.
    """

    best: float
    mean: float
    named: float = 0.0
    title: float = 0.0


def content_terms(text: str, language: str) -> frozenset[str]:
    """Return the distinct content words of a text as stems, or as characters in Chinese and Japanese."""
    return _terms(text, language)


@lru_cache(maxsize=256)  # a passage is compared with every wording
def _terms(text: str, language: str) -> frozenset[str]:
    if language in _BY_CHARACTER:
        found = _CHARACTERS.findall(normal_form("NFKC", text).casefold())
        return frozenset(found) - _EMPTY_CHARACTERS.get(language, frozenset())
    return frozenset(stemmer(language)(text)) - _function_stems(language)


@cache
def _function_stems(language: str) -> frozenset[str]:
    """Return the stems of function words. They are removed after stemming, which also parts l'aile."""
    return frozenset(stemmer(language)(" ".join(sorted(function_words(language)))))


def overlap(query: str, passages: Sequence[str | tuple[str, str]], language: str) -> Overlap | None:
    """Measure the overlap of a query with the passages that answer it.

    Args:
        query: The text of the query.
        passages: Texts, or pairs of title and text.
        language: The language of both. Words of different languages cannot be compared.

    Returns:
        The overlap, or None if the query has no content word or there is no passage.
    """
    wanted = content_terms(query, language)
    if not wanted or not passages:
        return None
    pairs = [("", passage) if isinstance(passage, str) else passage for passage in passages]
    shared = [wanted & content_terms(f"{title}\n{text}", language) for title, text in pairs]
    place = max(range(len(pairs)), key=lambda place: len(shared[place]))
    title, text = pairs[place]
    named = shared[place] & _names(f"{title}\n{text}", language)
    return Overlap(
        best=len(shared[place]) / len(wanted),
        mean=sum(map(len, shared)) / len(pairs) / len(wanted),
        named=len(named) / len(wanted),
        title=len(wanted & content_terms(title, language)) / len(wanted) if title else 0.0,
    )


@lru_cache(maxsize=64)
def _names(text: str, language: str) -> frozenset[str]:
    """Return the terms of words that a text writes with a digit, or only with a capital where no sentence begins.

    German writes all nouns with a capital, so there only digits count.
    """
    names, lower, begins = list[str](), set[str](), True
    end = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        word = token.strip(_EDGES)
        inside = not begins and "\n" not in text[end : match.start()]
        end = match.end()
        if _NUMBER.search(word) or (language != "de" and inside and word[:1].isupper()):
            names.append(word)
        elif word[:1].islower():
            lower.add(word)
        begins = token.rstrip("\"'”’»)")[-1:] in _ENDS
    return content_terms(" ".join(name for name in names if name.lower() not in lower), language)


_TOKEN = re.compile(r"\S+")
_ENDS = (".", "!", "?", ":", "")
_EDGES = "\"'“”‘’«»‹›„‚.,;:!?()[]{}<>…–—*|"
