"""What can be known of a query without a person: is it found again, is it specific, is it whole, is it copied?

Each feature is about 0 to 1, so that few labels fit their weights.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from airgen.pipeline.stages.answer_checks import longest_common_run
from airgen.text.analysis.stopwords import STOPWORDS
from airgen.text.near_duplicates import folded_words
from airgen.text.overlap import borrowed
from airgen.text.words import words

__all__ = ["DEPTH", "FEATURES", "Found", "features"]

DEPTH = 100  # hits among which the source is looked for

FEATURES = (
    "lexical_rank",
    "lexical_margin",
    "dense_rank",
    "dense_margin",
    "rare",
    "rarest",
    "known",
    "borrowed",
    "title",
    "copied",
    "words",
    "content",
    "ends_open",
    "reports",
    "peers",
)
"""The names of the features, in their order.

*_rank: 1 where a search finds the source first, .5 at rank 2, 0 below `DEPTH`. *_margin: by how much the source is
above the next passage, as a share of its score (dense: four times that); negative where another one is above it. rare,
rarest: mean and greatest inverse document frequency of the query's stems, 1 for a stem of one passage. known: share of
its stems that any passage has. borrowed: share of its stems that the source has. title: share of the title's stems that
the query has. copied: the longest run of words that stands in the source, as a share. words: a tenth of their number.
content: share of words that are no function words. ends_open: the last word is a function word. reports: it asks what a
text does ("was presented in the study"), or for a search, in English. peers: how alike the other candidates are.
"""

# A query ends in one of these where a small model ran out of words. The stop words of other languages serve them.
_OPEN = {
    "en": {
        "about", "above", "after", "against", "among", "around", "before", "between", "during", "from", "how", "like",
        "over", "than", "through", "under", "used", "using", "via", "what", "when", "where", "which", "while", "who",
        "whose", "why", "within", "without",
    },
}  # fmt: skip


# Who has a question does not know of a study that answers it, and does not tell a search engine to search. A word may
# stand between article and noun: "the creep tests".
_REPORTS = {
    "en": re.compile(
        r"\b(?:th(?:e|is|ese|ose)) (?:\w+ )?(?:analys[ei]s|articles?|authors?|experiments?|findings?|investigations?|"
        r"papers?|reports?|research(?:ers)?|results?|scenarios?|study|studies|theory|tests?|work)\b"
        r"|\b(?:conducted|described|discussed|investigated|mentioned|observed|presented|reported|studied)\b"
        r"|^(?:find|search|look(?:ing)?)\b|\bneeds?\b|\binformation\b|\bin the context of\b"
        r"|\b(?:main|primary) (?:focus|point|purpose|topic)\b",
        re.IGNORECASE,
    )
}


@dataclass(frozen=True, slots=True)
class Found:
    """Where a search found the source: its rank from 1 (0: not in the first `DEPTH`), and by how much it is first."""

    rank: int
    margin: float

    @classmethod
    def of(cls, positions: Sequence[int], scores: Sequence[float], sources: Sequence[int]) -> Found:
        """From one query's hits, best first. Of several sources the one that is found last counts."""
        ranks = {position: place for place, position in enumerate(positions) if position >= 0}
        if not sources or any(source not in ranks for source in sources):
            return cls(0, -1.0)
        last = max(ranks[source] for source in sources)
        others = [score for position, score in zip(positions, scores, strict=True) if position not in sources]
        own = scores[last]
        best = max((score for score in others if math.isfinite(score)), default=0.0)
        margin = (own - best) / abs(own) if own else -1.0
        return cls(last + 1, max(-1.0, min(1.0, margin)))

    @property
    def score(self) -> float:
        """1 at the first rank, falling with the logarithm."""
        return 1 / (1 + math.log2(self.rank)) if self.rank else 0.0


def features(
    query: str,
    source: tuple[str, str],
    others: Sequence[str],
    language: str,
    lexical: Found,
    dense: Found | None,
    frequencies: Callable[[str], Sequence[int]],
    passages: int,
) -> tuple[float, ...]:
    """The values of `FEATURES`, rounded to six digits.

    source: title and text. others: the other candidates. dense: None without an embedding model. frequencies: how many
    of the `passages` have each distinct stem of a text.
    """
    counts = frequencies(query)
    seen = [count for count in counts if count]
    rarity = [math.log(passages / count) / math.log(max(passages, 2)) for count in seen]
    said, document = folded_words(query, language), folded_words(" ".join(source), language)
    function = STOPWORDS.get(language, frozenset())
    spoken = [word.casefold() for word in words(query, language)]
    values = (
        lexical.score,
        lexical.margin,
        (dense or lexical).score,
        dense.margin * 4 if dense else lexical.margin,
        sum(rarity) / len(rarity) if rarity else 0.0,
        max(rarity, default=0.0),
        len(seen) / len(counts) if counts else 0.0,
        borrowed(query, "\n".join(source), language)[0],
        borrowed(source[0], query, language)[0] if source[0] else 0.0,
        longest_common_run(said, document) / len(said) if said else 0.0,
        min(len(said), 40) / 10,
        sum(word not in function for word in spoken) / len(spoken) if spoken else 0.0,
        float(bool(spoken) and spoken[-1] in function | _OPEN.get(language, set())),
        float(language in _REPORTS and _REPORTS[language].search(query) is not None),
        _alike(said, [folded_words(other, language) for other in others]),
    )
    return tuple(round(value, 6) for value in values)


def _alike(said: Sequence[str], others: Sequence[Sequence[str]]) -> float:
    """The mean Jaccard similarity with the others; 0 where there is none."""
    mine = set(said)
    shares = [len(mine & set(other)) / len(mine | set(other)) for other in others if mine | set(other)]
    return sum(shares) / len(shares) if shares else 0.0
