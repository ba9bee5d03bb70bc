"""What all lexical retrievers share: analyse, index flat or by field, search, save and load.

A subclass says only how a posting is weighted. Fields are ranges of one index (term t of field f is
f * vocabulary + t), so a search over title and text is the same loop as over one text.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from airgen.errors import DatasetError, UsageError
from airgen.retrievers.base import Corpus, Hits
from airgen.retrievers.lexical import _postings
from airgen.retrievers.lexical.inverted_index import InvertedIndex
from airgen.retrievers.lexical.weighting import Field, Weighting
from airgen.retrievers.output_checks import non_empty
from airgen.text.analysis import Analyser, Encoder
from airgen.text.analysis import analyser as make_analyser

__all__ = ["Fields", "LexicalRetriever"]

Fields = Literal["flat", "multi"]
Self = TypeVar("Self", bound="LexicalRetriever")

_FORMAT = 1
_SETTINGS = "index.json"


class LexicalRetriever:
    """Exact search by weighted terms.

    `fields`: "flat" indexes title and text as one; "multi" scores them apart and adds the scores, each times its
    weight (`title_weight`, `text_weight`), as Anserini's multifield BEIR runs do with weights of 1. `analyser` is
    one, or options for the one of the corpus's language, such as `{"stem": False}`. `threads` and `compiled`
    (None: all cores, numba where it helps) change the speed only.
    """

    def __init__(
        self,
        weighting: Weighting,
        fields: Fields = "flat",
        analyser: Analyser | Mapping[str, Any] | None = None,
        title_weight: float = 1.0,
        text_weight: float = 1.0,
        threads: int | None = None,
        compiled: bool | None = None,
        name: str = "lexical",
    ) -> None:
        if fields not in ("flat", "multi"):
            raise UsageError(f"fields must be 'flat' or 'multi', not {fields!r}")
        if min(title_weight, text_weight) < 0:
            raise UsageError("a field's weight cannot be negative")
        self.name = name
        self.weighting = weighting
        self.fields: Fields = fields
        self.title_weight, self.text_weight = title_weight, text_weight
        self.threads = threads
        self.compiled = compiled
        self._analyser = analyser if isinstance(analyser, Analyser) else None
        self._options = {} if analyser is None or isinstance(analyser, Analyser) else dict(analyser)
        self._vocabulary: dict[str, int] = {}
        self._index: InvertedIndex | None = None

    @property
    def analyser(self) -> Analyser:
        """The analyser in use; of the corpus's language once a corpus was indexed."""
        return self._analyser or make_analyser("en", **self._options)

    @property
    def vocabulary(self) -> Mapping[str, int]:
        """Term to id, in the order of first appearance in the corpus."""
        return self._vocabulary

    def index(self, corpus: Corpus) -> None:
        """Analyse and index the corpus; replaces what was indexed before. Raises CorpusError for an empty one."""
        non_empty(corpus)
        if self._analyser is None:
            self._analyser = make_analyser(corpus.language, **self._options)
        encoder = Encoder(self._analyser, self.compiled)
        if self.fields == "flat":
            texts = [[corpus.full_text(position) for position in range(len(corpus))]]
        else:
            texts = [list(corpus.texts), list(corpus.titles) or [""] * len(corpus)]
        encoded = [encoder.encode(field) for field in texts]
        count = _postings.count_postings
        if encoder.compiled:
            from airgen.retrievers.lexical import _postings_compiled

            count = _postings_compiled.count_postings
        size = len(encoder.vocabulary)
        starts, positions, impacts = [np.zeros(1, np.int64)], [], []
        offset = 0
        while encoded:  # each field's term ids are freed once they are counted
            terms, lengths = encoded.pop(0)
            field = Field(*count(terms, lengths, size), lengths)
            del terms
            impacts.append(self.weighting.impacts(field))
            positions.append(field.positions)
            starts.append(field.starts[1:] + offset)
            offset += len(field.positions)
        self._index = InvertedIndex(
            np.concatenate(starts),
            positions[0] if len(positions) == 1 else np.concatenate(positions),
            impacts[0] if len(impacts) == 1 else np.concatenate(impacts),
            len(corpus),
        )
        self._vocabulary = encoder.vocabulary

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """The k best passages of each query; a term that stands twice in a query counts twice."""
        analyse = self.analyser
        return self.search_weighted([Counter(analyse(query)) for query in queries], k)

    def search_weighted(self, queries: Iterable[Mapping[str, float]], k: int) -> Hits:
        """Search with given terms (as the analyser makes them) and weights; unknown terms find nothing.

        Raises UsageError before `index`, for a k below 1, and for a weight that is negative or not finite.
        """
        index = self._built()
        size = len(self._vocabulary)
        known = [
            {self._vocabulary[term]: weight for term, weight in query.items() if term in self._vocabulary}
            for query in queries
        ]
        if self.fields == "multi":
            known = [
                {
                    field * size + term: weight * boost
                    for field, boost in enumerate((self.text_weight, self.title_weight))
                    for term, weight in query.items()
                }
                for query in known
            ]
        return index.search(known, k, self.threads, self.compiled)

    def document_frequency(self, term: str) -> int:
        """How many passages hold the term (in their text, if fields are apart)."""
        index, number = self._built(), self._vocabulary.get(term)
        return 0 if number is None else int(index.starts[number + 1] - index.starts[number])

    @property
    def postings(self) -> InvertedIndex:
        """The index itself, terms numbered as in `vocabulary`. Raises UsageError before `index`."""
        return self._built()

    @property
    def bytes(self) -> int:
        """Size of the index in bytes, the vocabulary left out."""
        return self._built().bytes

    def describe(self) -> Mapping[str, object]:
        """Every setting that changes the result."""
        found = {**self.weighting.describe(), "analyser": dict(self.analyser.describe()), "fields": self.fields}
        if self.fields == "multi":
            found |= {"title_weight": self.title_weight, "text_weight": self.text_weight}
        return {**found, "ties": "by position"}

    def save(self, folder: Path) -> None:
        """Write the index to a folder, which appears only when it is complete; an index there is replaced.

        Raises DatasetError if the folder holds anything else.
        """
        index = self._built()
        if folder.exists() and not (folder / _SETTINGS).is_file():
            raise DatasetError(f"{folder}: exists and is not an index; choose another folder")
        fresh = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        index.save(fresh)
        settings = {"format": _FORMAT, "size": index.size, "describe": self.describe()}
        (fresh / "vocabulary.json").write_text(json.dumps(list(self._vocabulary)), encoding="ascii")
        (fresh / _SETTINGS).write_text(json.dumps(settings, indent=1, sort_keys=True), encoding="ascii")
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)

    def load(self: Self, folder: Path) -> Self:
        """Take the index that a retriever with the same settings saved; its arrays are mapped, not read.

        Raises DatasetError if it is missing, damaged or was made with other settings. Load only what you trust.
        """
        settings = _read(folder / _SETTINGS)
        described = settings.get("describe", {}) if isinstance(settings, dict) else {}
        if self._analyser is None and isinstance(described.get("analyser"), dict):
            self._analyser = make_analyser(str(described["analyser"].get("language", "en")), **self._options)
        if not isinstance(settings, dict) or settings.get("format") != _FORMAT:
            raise DatasetError(f"{folder}: not an index of this version; index the corpus again")
        mine = json.loads(json.dumps(self.describe()))
        if described != mine:
            other = sorted(key for key in {*described, *mine} if described.get(key) != mine.get(key))
            raise DatasetError(f"{folder}: was made with other settings ({', '.join(other)}); index the corpus again")
        terms = _read(folder / "vocabulary.json")
        index = InvertedIndex.load(folder, int(settings["size"]))
        if len(index.starts) - 1 != len(terms) * (2 if self.fields == "multi" else 1):
            raise DatasetError(f"{folder}: the vocabulary does not fit the index; index the corpus again")
        self._vocabulary = {str(term): number for number, term in enumerate(terms)}
        self._index = index
        return self

    def _built(self) -> InvertedIndex:
        if self._index is None:
            raise UsageError(f"{self.name}: the corpus comes first; call index(corpus) or load(folder)")
        return self._index


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path}: not a usable part of an index ({error}); index the corpus again") from error
