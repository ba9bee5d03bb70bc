"""Break down results: scores by kind of query, biases, answers and refusal.

Query attributes are the `metadata` of the queries, and the length class in words. Biases follow section 6 and appendix
H of BEIR. A query is refused if its best score is below a threshold, or if it has no hit. An AUROC near .5 means that a
system's scores are not comparable between queries, as in rank fusion.
"""

import math
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import regex
from numpy.typing import NDArray

from airgen.dataset.beir import BeirQuery
from airgen.dataset.content import OVERLAP
from airgen.evaluation.intervals import bootstrap_interval
from airgen.evaluation.measures import Judged, Scores
from airgen.evaluation.run import Run
from airgen.retrievers.passages import Passages
from airgen.text.words import count_words, words

_MOST_VALUES = 24  # an attribute with more values does not group queries
_RESAMPLED_QUERIES = 1000  # of a group; more would take seconds for each system
_TOP_HITS = 10  # hits per query whose lengths and words are compared


@dataclass(frozen=True, slots=True)
class Group:
    """The mean of a measure over the queries with this value of `attribute`, and its 95% interval."""

    attribute: str
    value: str
    queries: int
    mean: float
    interval: tuple[float, float] | None = None


def attributes(queries: Mapping[str, BeirQuery], language: str) -> dict[str, dict[str, str]]:
    """Return {attribute: {query id: value}}: the metadata, and `words`, the length class of the query."""
    values_by_attribute: dict[str, dict[str, str]] = {"words": {}}
    for key, query in queries.items():
        values_by_attribute["words"][key] = length_class(count_words(query.text, language))
        for name, value in query.metadata.items():
            if isinstance(value, str | int | bool) and name not in ("split", "words"):
                values_by_attribute.setdefault(name, {})[key] = str(value)
            elif name == OVERLAP and isinstance(value, float):
                values_by_attribute.setdefault(name, {})[key] = overlap_class(value)
    return {
        name: values for name, values in values_by_attribute.items() if 1 < len(set(values.values())) <= _MOST_VALUES
    }


def by_attribute(scores: Scores, measure: str, attributes: Mapping[str, Mapping[str, str]]) -> list[Group]:
    """Average the measure for each value of each attribute, with intervals, sorted by attribute and value."""
    values = scores.of(measure)
    groups = []
    for name in sorted(attributes):
        members: dict[str, list[float]] = defaultdict(list)
        for key, value in zip(scores.query_ids, values.tolist(), strict=True):
            if key in attributes[name]:
                members[attributes[name][key]].append(value)
        groups += [
            Group(name, value, len(each), float(np.mean(each)), _interval(np.array(each)))
            for value, each in sorted(members.items())
        ]
    return groups


def _interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the bootstrap interval of the mean, or the normal one for many queries, for which they are the same."""
    if len(values) <= _RESAMPLED_QUERIES:
        low, high = bootstrap_interval(values)[0].tolist()
        return low, high
    half = 1.96 * float(values.std(ddof=1)) / math.sqrt(len(values))
    return float(values.mean()) - half, float(values.mean()) + half


def negatives_above(hits: Judged) -> dict[str, float]:
    """Count how often a passage judged not relevant is ranked above the best relevant one.

    A relevant passage that was not retrieved counts as ranked last.

    Returns:
        `queries`, the number of queries with both kinds of label; `share`, the share of them with such a negative; and
        `mean`, the mean number of such negatives per query.
    """
    total = len(hits.query_ids)
    best = np.full(total, np.iinfo(np.int64).max)
    relevant = hits.label > 0
    np.minimum.at(best, hits.row[relevant], hits.rank[relevant])
    above = np.bincount(hits.row[~relevant & (hits.rank < best[hits.row])], minlength=total)
    positive = np.bincount(hits.pair_row[hits.pair_label > 0], minlength=total) > 0
    both = positive & (np.bincount(hits.pair_row[hits.pair_label <= 0], minlength=total) > 0)
    count = int(both.sum())
    if not count:
        return {"queries": 0, "share": 0.0, "mean": 0.0}
    return {"queries": count, "share": float((above[both] > 0).mean()), "mean": float(above[both].mean())}


def negative_ranks(hits: Judged) -> dict[str, float]:
    """Describe the ranks of passages judged not relevant, of which those near the top are hard.

    Returns:
        `pairs`, the number of (query, negative) pairs; `first_ten`, the share of them in the top ten; and `median`, the
        median rank, absent if at least half of them were not retrieved.
    """
    pairs = int((hits.pair_label <= 0).sum())
    ranks = np.full(pairs, np.inf)
    known = hits.rank[hits.label <= 0]
    ranks[: len(known)] = known
    middle = float(np.median(ranks)) if pairs else math.inf
    figures = {"pairs": pairs, "first_ten": float((ranks <= _TOP_HITS).mean()) if pairs else 0.0}
    return figures if math.isinf(middle) else {**figures, "median": middle}


def _best(run: Run, corpus: Passages, depth: int, queries: Collection[str]) -> Iterator[tuple[str, list[int]]]:
    """Yield (query id, corpus positions of its best hits) for each query. -1 means not in the corpus."""
    ranked, places = run.ranked(), {key: place for place, key in enumerate(corpus.ids)}
    place_of = np.array([places.get(key, -1) for key in ranked.passage_ids], dtype=np.int64)
    for key, start, end in zip(ranked.query_ids, ranked.offsets[:-1], ranked.offsets[1:], strict=True):
        if key in queries:
            yield key, place_of[ranked.passages[start : min(end, start + depth)]].tolist()


def biases(
    run: Run,
    qrels: Mapping[str, Mapping[str, float]],
    queries: Mapping[str, BeirQuery],
    corpus: Passages,
    split: dict[int, frozenset[str]],
) -> dict[str, float]:
    """Measure length and word overlap of the top ten passages, the relevant passages and the corpus.

    Lengths are medians in characters. Overlap is the mean share of a query's distinct words that a passage contains.
    `split` caches the words of passages from one system to the next.
    """

    def words_of(text: str) -> frozenset[str]:
        return frozenset(word.lower() for word in words(text, corpus.language))

    sizes = [len(corpus.full_text(place)) for place in range(len(corpus))]
    places = {key: place for place, key in enumerate(corpus.ids)}
    lengths: dict[str, list[int]] = {"top": [], "relevant": [], "corpus": sizes}
    overlaps: dict[str, list[float]] = {"top": [], "relevant": []}
    for key, top in _best(run, corpus, _TOP_HITS, qrels.keys() & queries.keys()):
        terms = words_of(queries[key].text)
        relevant = [places[passage] for passage, label in qrels[key].items() if label > 0 and passage in places]
        for kind, passages in (("top", [place for place in top if place >= 0]), ("relevant", relevant)):
            lengths[kind] += [sizes[place] for place in passages]
            for place in passages if terms else ():
                if place not in split:
                    split[place] = words_of(corpus.full_text(place))
                overlaps[kind].append(len(terms & split[place]) / len(terms))
    return {
        **{f"{kind}_characters": float(np.median(of)) if of else 0.0 for kind, of in lengths.items()},
        **{f"{kind}_overlap": float(np.mean(of)) if of else 0.0 for kind, of in overlaps.items()},
    }


OVERLAP_BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""The limits of the classes of overlap."""


def overlap_class(value: float) -> str:
    """Return the class of an overlap with the answering passage, 0 to 1. A limit belongs to the class below it.

    >>> overlap_class(0.5), overlap_class(0.6)
    ('0.4-0.6', '0.4-0.6')
    """
    place = next((place for place, high in enumerate(OVERLAP_BINS[1:]) if value <= high), len(OVERLAP_BINS) - 2)
    return f"{OVERLAP_BINS[place]:.1f}-{OVERLAP_BINS[place + 1]:.1f}"


def length_class(count: int) -> str:
    """Return the class of a query length in words: the paper's classes (appendix A.2.1), made disjoint."""
    if count < 5:
        return "00-04"
    if count < 10:
        return "05-09"
    return "10-19" if count < 20 else "20+"


FALSE_REFUSALS = 0.05
"""The maximum share of answerable queries that may be refused."""

Tops = NDArray[np.float64]


def refusal(run: Run, answerable: Collection[str], unanswered: Collection[str]) -> dict[str, float]:
    """Measure how well the best score separates queries with and without an answer.

    Args:
        run: The run of one system.
        answerable: Ids of queries with an answer.
        unanswered: Ids of queries without an answer.

    Returns:
        Nothing if one of the two kinds is missing. Otherwise, `queries`, the number of queries without an answer;
        `auroc`, the probability that a query with an answer has a higher best score than one without (ties count half);
        `auroc_low` and `auroc_high`, its 95% interval (DeLong et al. 1988); `threshold`, see the module, -inf if more
        than 5% of the answerable queries have no hit; `false_refusals`, the share of answerable queries below it; and
        `false_hits`, the share of queries without an answer that reach it.
    """
    spans = zip(run.query_ids, run.offsets[:-1], run.offsets[1:], strict=True)
    tops = {key: float(run.scores[first:last].max()) for key, first, last in spans if last > first}
    answered = np.array([tops.get(key, -np.inf) for key in sorted(answerable)])
    empty = np.array([tops.get(key, -np.inf) for key in sorted(unanswered)])
    if not len(answered) or not len(empty):
        return {}
    threshold = float(np.sort(answered)[int(FALSE_REFUSALS * len(answered))])
    won, lost = placements(answered, empty), placements(-empty, -answered)
    auroc = float(won.mean())
    error = math.sqrt(sum(float(part.var(ddof=1)) / len(part) for part in (won, lost) if len(part) > 1))
    return {
        "queries": len(empty),
        "auroc": auroc,
        "auroc_low": max(auroc - 1.96 * error, 0.0),
        "auroc_high": min(auroc + 1.96 * error, 1.0),
        "threshold": threshold,
        "false_refusals": float(((answered < threshold) | np.isneginf(answered)).mean()),
        "false_hits": float(((empty >= threshold) & ~np.isneginf(empty)).mean()),
    }


def placements(values: Tops, others: Tops) -> Tops:
    """Return, for each value, the share of `others` below it; ties count half. Takes n log n steps."""
    ordered = np.sort(others)
    below, upto = (np.searchsorted(ordered, values, side=side) for side in ("left", "right"))
    shares: Tops = (below + upto) / (2 * len(others))
    return shares


CUTOFFS = (5, 20, 100)
_WITHOUT_SPACES = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
_TOKEN = regex.compile(rf"{_WITHOUT_SPACES}|[[\p{{L}}\p{{N}}\p{{M}}]--{_WITHOUT_SPACES}]+|[^\p{{Z}}\p{{C}}]", regex.V1)


def token_line(text: str) -> str:
    """Join the tokens of a text, each between two spaces (no token contains a space); "" for a text without tokens.

    >>> token_line("It's  Café No. 5")
    " it ' s café no . 5 "
    """
    tokens = [token.lower() for token in _TOKEN.findall(unicodedata.normalize("NFD", text))]
    return f" {' '.join(tokens)} " if tokens else ""


def has_answer(passage: str, answers: Sequence[str]) -> bool:
    """Return whether the tokens of an answer occur consecutively in the passage. Both are results of `token_line`."""
    return any(answer and answer in passage for answer in answers)


def answer_accuracy(
    run: Run,
    answers: Mapping[str, Sequence[str]],
    corpus: Passages,
    depth: int = CUTOFFS[-1],
    lines: dict[int, str] | None = None,
) -> dict[str, tuple[float, float, float]]:
    """Measure how often one of the best k passages contains an answer, by DPR's definition.

    As in DPR (Karpukhin et al. 2020, `has_answer` of its code), text and answer are normalised to NFD, split into runs
    of letters, digits and marks and into single other characters, and lowercased; a passage has the answer if the
    answer's tokens follow each other in its text. The title does not count, and no label is needed. In addition, each
    character in a script without spaces is a token. A query without results scores 0.

    Args:
        run: The run of one system.
        answers: Answers by query id.
        corpus: The passages.
        depth: Requested number of hits per query. Larger cutoffs are left out.
        lines: Cache of the tokens of passages, by position in the corpus, shared by all systems.

    Returns:
        {measure: (mean over the queries with answers, low, high)}, with 95% bootstrap intervals; empty if no query has
        an answer.
    """
    cutoffs = [cutoff for cutoff in CUTOFFS if cutoff <= depth]
    wanted = {key: [*filter(None, map(token_line, each))] for key, each in answers.items()}
    wanted = {key: each for key, each in wanted.items() if each}
    if not cutoffs or not wanted:
        return {}
    lines = {} if lines is None else lines
    first = dict.fromkeys(wanted, np.inf)  # the rank of the first passage with an answer
    for key, best in _best(run, corpus, cutoffs[-1], wanted):
        for rank, place in enumerate(best, 1):
            if place >= 0 and place not in lines:
                lines[place] = token_line(corpus.texts[place])
            if place >= 0 and has_answer(lines[place], wanted[key]):
                first[key] = rank
                break
    ranks = np.array(list(first.values()))
    values = np.array([ranks <= cutoff for cutoff in cutoffs], np.float64)
    means, intervals = values.mean(axis=1).tolist(), bootstrap_interval(values).tolist()
    return {
        f"Answer@{cutoff}": (mean, low, high)
        for cutoff, mean, (low, high) in zip(cutoffs, means, intervals, strict=True)
    }
