"""Analysers turn text into index terms as Lucene's analysers do.

    analyse = Analyser("en")
    analyse("The cat's on 3.5 mats!")     # ["cat", "3.5", "mat"]

English is exactly Lucene's EnglishAnalyzer: StandardTokenizer, possessive filter, lower case, its 33 stop words,
Porter's stemmer. Other languages have the same order of steps, with their own normalisation, stop words and stemmer
(`languages.py`). The terms of Chinese, Japanese and Korean are bigrams, as in Lucene's CJKAnalyzer, or words with
`segment=True`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from airgen.text.analysis import languages
from airgen.text.analysis.boundaries import tokens
from airgen.text.normal_form import normal_form
from airgen.text.words import segmenter, words

_CACHE = 200_000  # tokens whose terms are kept
_CJK = frozenset({"zh", "ja", "ko"})


@dataclass(frozen=True)
class Analyser:
    """A text is split into tokens, and each token becomes a term, which is cached.

    `language` is an ISO 639-1 code. `stem` and `stopwords` turn these steps on. `segment` splits Chinese and Japanese
    into words instead of bigrams. `ngram` n > 0 indexes the character n-grams of each word instead of the stemmed word,
    for noisy text and rich inflection.
    """

    language: str = "en"
    stem: bool = True
    stopwords: bool = True
    segment: bool = False
    ngram: int = 0
    _cache: dict[str, str | None] = field(default_factory=dict, compare=False, repr=False)

    @property
    def bigrams(self) -> bool:
        """Whether runs of Han, kana and Hangul become overlapping pairs."""
        return self.language in _CJK and not self.segment

    @property
    def scannable(self) -> bool:
        """Whether the compiled scan splits as `split` does."""
        return not self.segment and self.ngram == 0

    def prepare(self, text: str) -> str:
        """The text before it is split: NFKC in Chinese, Japanese and Korean; in Persian non-joiners become spaces."""
        if text.isascii():
            return text
        if self.language in _CJK:
            return normal_form("NFKC", text)
        if self.language == "fa":
            return text.replace("‌", " ")  # Lucene's PersianCharFilter: the non-joiner splits
        return text

    def split(self, text: str) -> list[str]:
        """The tokens of a prepared text."""
        if self.segment:
            return words(text, self.language)
        found = tokens(text, self.bigrams)
        if not self.ngram:
            return found
        grams: list[str] = []
        for token in found:
            marked = f"_{languages.lower(token)}_"
            grams += [marked[start : start + self.ngram] for start in range(max(1, len(marked) - self.ngram + 1))]
        return grams

    def term(self, token: str) -> str | None:
        """The term of a token, or None for a stop word."""
        if self.ngram:
            return token
        return languages.chain(self.language, self.stem, self.stopwords)(token)

    def terms(self, tokens: Sequence[str]) -> list[str | None]:
        """The term of each token; like `term`, but cached."""
        known = self._cache
        found = []
        for token in tokens:
            if token not in known:
                if len(known) >= _CACHE:
                    known.clear()
                known[token] = self.term(token)
            found.append(known[token])
        return found

    def __call__(self, text: str) -> list[str]:
        """The terms of a text in order, stop words left out."""
        return [term for term in self.terms(self.split(self.prepare(text))) if term is not None]

    def describe(self) -> Mapping[str, object]:
        """Every setting that changes the terms."""
        split = f"words:{segmenter(self.language)}" if self.segment else "cjk-bigrams" if self.bigrams else "uax29"
        return {
            "language": self.language,
            "split": f"{split}:{self.ngram}-grams" if self.ngram else split,
            "stemmer": languages.stemmer_name(self.language) if self.stem and not self.ngram else "none",
            "stopwords": languages.stopword_count(self.language) if self.stopwords and not self.ngram else 0,
        }
