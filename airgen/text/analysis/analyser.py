"""Turn texts into index terms, like Lucene's analysers, and into term ids.

    Analyser("en")("The cat's on 3.5 mats!")                       # ["cat", "3.5", "mat"]
    analyser("en", wordpiece="all-minilm-l6-v2")("Transonic flow")  # ["trans", "##onic", "flow"]
    encoder = Encoder(analyser("en"))
    terms, lengths = encoder.encode(["The cats sat", "a cat"])     # [0, 1, 0], [2, 1]

English is exactly Lucene's EnglishAnalyzer. Other languages use the same steps with their own normalisation, stop words
and stemmer (`languages.py`). Terms in Chinese, Japanese and Korean are bigrams, as in Lucene's CJKAnalyzer, or words
with `segment=True`. A model's WordPiece tokens can also serve as terms, without a stemmer and stop words.

Each distinct token is analysed only once. A compiled scan finds the tokens if numba is installed (the `fast` extra),
otherwise a regular expression. Both number the terms in order of first occurrence, so the indexes are equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from airgen import models
from airgen.components.keys import file_sha256
from airgen.compute.exact_arithmetic import worth_compiling
from airgen.errors import ModelError
from airgen.storage.sequences import batched
from airgen.text.analysis import languages
from airgen.text.analysis.tokenizer import classes, tokens
from airgen.text.normal_form import encodable, normal_form
from airgen.text.token_counts import plain_tokenizer
from airgen.text.words import segmenter, words

if TYPE_CHECKING:
    from airgen.text.analysis._scan import State


_CACHE = 200_000  # tokens whose terms are kept
_CJK = frozenset({"zh", "ja", "ko"})


@dataclass(frozen=True)
class Analyser:
    """Splits a text into tokens and turns each into a term, which is cached.

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
        """Return whether runs of Han, kana and Hangul are split into overlapping pairs."""
        return self.language in _CJK and not self.segment

    @property
    def scannable(self) -> bool:
        """Return whether the compiled scan gives the same tokens as `split`."""
        return not self.segment and self.ngram == 0

    def prepare(self, text: str) -> str:
        """Prepare a text for `split`: NFKC in Chinese, Japanese and Korean; in Persian, non-joiners become spaces."""
        if text.isascii():
            return text
        if self.language in _CJK:
            return normal_form("NFKC", text)
        if self.language == "fa":
            return text.replace("‌", " ")  # Lucene's PersianCharFilter, which splits at the non-joiner
        return text

    def split(self, text: str) -> list[str]:
        """Return the tokens of a prepared text."""
        if self.segment:
            return words(text, self.language)
        pieces = tokens(text, self.bigrams)
        if not self.ngram:
            return pieces
        grams: list[str] = []
        for token in pieces:
            marked = f"_{languages.lower(token)}_"
            grams += [marked[start : start + self.ngram] for start in range(max(1, len(marked) - self.ngram + 1))]
        return grams

    def term(self, token: str) -> str | None:
        """Return the term of a token, or None for a stop word."""
        if self.ngram:
            return token
        return languages.chain(self.language, self.stem, self.stopwords)(token)

    def terms(self, tokens: Sequence[str]) -> list[str | None]:
        """Return the term of each token; like `term`, but cached."""
        known = self._cache
        terms = []
        for token in tokens:
            if token not in known:
                if len(known) >= _CACHE:
                    known.clear()
                known[token] = self.term(token)
            terms.append(known[token])
        return terms

    def __call__(self, text: str) -> list[str]:
        """Return the terms of a text in order, without stop words."""
        return [term for term in self.terms(self.split(self.prepare(text))) if term is not None]

    def describe(self) -> Mapping[str, object]:
        """Return every setting that changes the terms."""
        split = f"words:{segmenter(self.language)}" if self.segment else "cjk-bigrams" if self.bigrams else "uax29"
        return {
            "language": self.language,
            "split": f"{split}:{self.ngram}-grams" if self.ngram else split,
            "stemmer": languages.stemmer_name(self.language) if self.stem and not self.ngram else "none",
            "stopwords": languages.stopword_count(self.language) if self.stopwords and not self.ngram else 0,
        }


_BATCH = 1 << 21  # characters: 8 MB of code points
_COMPILE_FROM = 2_000_000  # characters below which loading numba takes longer than it saves
_DROPPED = -1


class Encoder:
    """Numbers terms in order of first occurrence.

    `compiled=None` uses numba if it is installed and the first texts are long enough for loading it to save time.
    """

    def __init__(self, analyser: Analyser, compiled: bool | None = None) -> None:
        self.analyser = analyser
        self.vocabulary: dict[str, int] = {}
        self.compiled = compiled
        self._ids = np.empty(0, np.int32)  # token id of the scan -> term id
        self._known: dict[str, int] = {}  # token -> term id, without the scan
        self._state: State | None = None  # of the scan

    def encode(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the term ids of all texts in order, int32, and the number of terms per text, int64 (n,)."""
        parts, lengths = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
        for terms, counts in self.batches(texts):
            parts.append(terms)
            lengths.append(counts)
        return np.concatenate(parts), np.concatenate(lengths)

    def batches(self, texts: Sequence[str]) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]]:
        """Yield the same for batches of texts, which need not all be in memory."""
        if self.compiled is not False:  # decided once, since the two methods have different token ids
            enough = self.compiled or any(worth_compiling(size, _COMPILE_FROM) for size in accumulate(map(len, texts)))
            self.compiled = enough and self.analyser.scannable
        for batch in batched(map(self.analyser.prepare, texts), _BATCH, len):
            yield self._scan(batch) if self.compiled else self._match(batch)

    def _scan(self, batch: list[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        from airgen.text.analysis import _scan

        joined = "".join(batch)
        text = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
        bounds = np.zeros(len(batch) + 1, np.int64)
        np.cumsum([len(prepared) for prepared in batch], out=bounds[1:])
        table = classes(128 if joined.isascii() else 0x110000, self.analyser.bigrams)
        tokens, counts, (begins, ends), self._state = _scan.intern(
            text, bounds, table, self._state or _scan.new_state()
        )
        fresh = [self._term(joined[begin:end]) for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        self._ids = np.concatenate((self._ids, np.array(fresh, np.int32)))
        terms = self._ids[tokens]
        is_kept = terms != _DROPPED
        if not is_kept.all():
            texts = np.repeat(np.arange(len(batch)), counts)
            counts = np.bincount(texts[is_kept], minlength=len(batch))
            terms = terms[is_kept]
        return terms, counts.astype(np.int64)

    def _match(self, batch: list[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        known = self._known
        ids: list[int] = []
        counts = np.empty(len(batch), np.int64)
        for number, text in enumerate(batch):
            before = len(ids)
            tokens = self.analyser.split(text)
            for token in tokens:
                term = known.get(token)
                if term is None:
                    term = known[token] = self._term(token)
                if term != _DROPPED:
                    ids.append(term)
            counts[number] = len(ids) - before
        return np.array(ids, np.int32), counts

    def _term(self, token: str) -> int:
        term = self.analyser.term(token)
        return _DROPPED if term is None else self.vocabulary.setdefault(term, len(self.vocabulary))


@dataclass(frozen=True)
class WordPieces(Analyser):
    """An analyser whose terms are the tokens of `wordpiece`: a name in the catalogue, or a folder with tokenizer.json.

    Special tokens ([CLS], [UNK], ...) are not terms, even if a text contains their names.
    """

    wordpiece: str = ""

    @property
    def scannable(self) -> bool:
        """Return False, because the compiled scan does not support sub-words."""
        return False

    @cached_property
    def path(self) -> Path:
        """Return the path of the tokenizer's file. Raises ModelError if it is missing."""
        folder = models.path(self.wordpiece) if self.wordpiece in models.catalogue() else Path(self.wordpiece)
        if not (folder / "tokenizer.json").is_file():
            raise ModelError(f"{self.wordpiece} has no tokenizer.json: name a model of the catalogue, or a folder")
        return folder / "tokenizer.json"

    @cached_property
    def tokenizer(self) -> Any:
        """Return a `tokenizers.Tokenizer` without truncation or padding. Raises ModelError or MissingExtra."""
        return plain_tokenizer(self.path)

    @cached_property
    def _special(self) -> frozenset[str]:
        return frozenset(token.content for token in self.tokenizer.get_added_tokens_decoder().values() if token.special)

    def prepare(self, text: str) -> str:
        """Return the text without lone surrogates, which the tokenizer rejects."""
        return encodable(text)

    def split(self, text: str) -> list[str]:
        """Return the tokens of a text."""
        tokens: list[str] = self.tokenizer.encode(text, add_special_tokens=False).tokens
        return tokens

    def term(self, token: str) -> str | None:
        """Return the token itself, or None for a special token."""
        return None if token in self._special else token

    def describe(self) -> Mapping[str, object]:
        return {
            "language": self.language,
            "split": "wordpiece",
            "tokenizer": file_sha256(self.path),
            "stemmer": "none",
            "stopwords": 0,
        }
