"""A query as an encoder reads it, and the index term that each of its tokens belongs to.

    read = QueryReader(folder, 64, "words", "en")
    read(["Statins lowered strokes"])[0]
    # ids [101, 28093, 7076, 6668, 13305, 102], terms [None, "statin", "statin", "lower", "stroke", None]

Terms are the tokens themselves (`wordpiece`), or the words of the language's analyser, several tokens to a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from airgen.retrievers.dense.onnx_encoder import encode_batch, load_tokenizer
from airgen.text.analysis import WordPieces, analyser
from airgen.text.words import encodable


@dataclass(frozen=True, slots=True)
class ReadQuery:
    """ids: token ids with the special ones, cut to the encoder's length. terms: the term of each, None for a token
    without a term (a special token, a stop word). rest: terms that the encoder does not see.
    """

    ids: list[int]
    terms: list[str | None]
    rest: list[str]


class QueryReader:
    """`max_length` counts tokens of the folder's tokenizer.json, special ones included; `terms` is wordpiece or words.

    `analyser` makes the index that the terms belong to. Raises ModelError for a damaged tokenizer.
    """

    def __init__(self, folder: Path, max_length: int, terms: str, language: str) -> None:
        self.analyser = analyser(language, wordpiece=None if terms == "words" else str(folder))
        self._tokenizer, self._length = load_tokenizer(folder / "tokenizer.json", max_length), max_length

    def __call__(self, texts: Sequence[str]) -> list[ReadQuery]:
        """One for each text; an empty one has the special tokens alone."""
        if isinstance(self.analyser, WordPieces):
            return self._pieces(texts)
        return [self._words(text) for text in texts]

    def _pieces(self, texts: Sequence[str]) -> list[ReadQuery]:
        found = []
        for item in encode_batch(self._tokenizer, texts, self._length):
            beyond = [token for part in item.overflowing for token in part.tokens]
            rest = [term for term in self.analyser.terms(beyond) if term is not None]
            found.append(ReadQuery(list(item.ids), self.analyser.terms(item.tokens), rest))
        return found

    def _words(self, text: str) -> ReadQuery:
        words = self.analyser.split(self.analyser.prepare(text))
        terms = self.analyser.terms(words)
        sent = [encodable(word) for word in words[: self._length]]  # a word is a token or more: no later one is seen
        item = self._tokenizer.encode(sent, is_pretokenized=True)
        places = item.word_ids
        seen = set(places)
        return ReadQuery(
            list(item.ids),
            [None if place is None else terms[place] for place in places],
            [term for place, term in enumerate(terms) if place not in seen and term is not None],
        )
