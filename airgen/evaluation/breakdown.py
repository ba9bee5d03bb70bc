"""Details of a result: scores by kind of query, worst queries, biases, and refusal.

Query attributes are the `metadata` of the queries, and the class of the length in words. Biases follow section 6 and
appendix H of BEIR. A refused query is one whose best score is below a threshold, or that has no hit: an AUROC near .5
says that a system's scores do not compare from query to query, as those of rank fusion.
"""

import math
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import regex
from numpy.typing import NDArray

from airgen.dataset.beir import BeirQuery
from airgen.evaluation.measures import Judged, Scores
from airgen.evaluation.run import Run
from airgen.evaluation.significance import bootstrap_interval
from airgen.retrievers.base import Corpus
from airgen.text.words import count_words, words

_MOST_VALUES = 24  # an attribute with more values does not group queries
_SHOWN = 400  # characters of a passage in a report
_WORST = 10  # queries of a system that are shown
_TOP = 10  # hits of a query whose lengths and words are compared


@dataclass(frozen=True, slots=True)
class Group:
    """The mean of a measure over the queries whose `attribute` has this value."""

    attribute: str
    value: str
    queries: int
    mean: float


def attributes(queries: Mapping[str, BeirQuery], language: str) -> dict[str, dict[str, str]]:
    """{attribute: {query id: value}}: the metadata, and `words`, the query's length class."""
    found: dict[str, dict[str, str]] = {"words": {}}
    for key, query in queries.items():
        found["words"][key] = length_class(count_words(query.text, language))
        for name, value in query.metadata.items():
            if isinstance(value, str | int | bool) and name not in ("split", "words"):
                found.setdefault(name, {})[key] = str(value)
    return {name: values for name, values in found.items() if 1 < len(set(values.values())) <= _MOST_VALUES}


def by_attribute(scores: Scores, measure: str, found: Mapping[str, Mapping[str, str]]) -> list[Group]:
    """The measure's mean for each value of each attribute; attributes and values are sorted."""
    values = scores.of(measure)
    groups = []
    for name in sorted(found):
        members: dict[str, list[float]] = defaultdict(list)
        for key, value in zip(scores.query_ids, values.tolist(), strict=True):
            if key in found[name]:
                members[found[name][key]].append(value)
        groups += [Group(name, value, len(each), float(np.mean(each))) for value, each in sorted(members.items())]
    return groups


def negatives_above(hits: Judged) -> dict[str, float]:
    """How often a passage judged not relevant is ranked above the best relevant one.

    queries: how many have both kinds of label. share: the share of them with such a negative. mean: how many such
    negatives a query has on average. A relevant passage that was not found counts as ranked last.
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


def worst_queries(
    scores: Scores,
    measure: str,
    run: Run,
    qrels: Mapping[str, Mapping[str, float]],
    queries: Mapping[str, BeirQuery],
    corpus: Corpus,
) -> list[dict[str, Any]]:
    """The queries with the lowest score: the first passage, the best relevant passage, and its rank."""
    values = scores.of(measure)
    order = np.argsort(values, kind="stable")[:_WORST]
    places = {key: place for place, key in enumerate(corpus.ids)}
    wanted = {scores.query_ids[row] for row in order}
    ranked = {key: [passage for passage, _ in hits] for key, hits in run.ranked().items(wanted)}

    def shown(passage: str | None) -> dict[str, Any] | None:
        if passage is None:
            return None
        text = corpus.full_text(places[passage])[:_SHOWN] if passage in places else ""
        return {"id": passage, "text": text}

    worst = []
    for row in order.tolist():
        key = scores.query_ids[row]
        hits = ranked.get(key, [])
        rank = {passage: at for at, passage in enumerate(hits, 1)}
        relevant = sorted((p for p, label in qrels[key].items() if label > 0), key=lambda p: (-qrels[key][p], p))
        best = min(relevant, key=lambda p: rank.get(p, len(hits) + 1), default=None)
        worst.append(
            {
                "query": key,
                "text": queries[key].text if key in queries else "",
                "score": float(values[row]),
                "first": shown(hits[0] if hits else None),
                "relevant": shown(best),
                "relevant_rank": rank.get(best) if best is not None else None,
            }
        )
    return worst


def biases(
    run: Run,
    qrels: Mapping[str, Mapping[str, float]],
    queries: Mapping[str, BeirQuery],
    corpus: Corpus,
    *,
    split: dict[int, frozenset[str]] | None = None,
) -> dict[str, float]:
    """Length and word overlap of the top ten passages, of the relevant passages, and of the corpus.

    Lengths are medians in characters. Overlap is the mean share of a query's distinct words that a passage contains.
    `split` caches the words of passages from one system to the next.
    """
    places = {key: place for place, key in enumerate(corpus.ids)}
    split = {} if split is None else split

    def overlap(query: frozenset[str], passages: Sequence[int]) -> list[float]:
        for place in passages:
            if place not in split:
                split[place] = frozenset(word.lower() for word in words(corpus.full_text(place), corpus.language))
        return [len(query & split[place]) / len(query) for place in passages] if query else []

    lengths: dict[str, list[int]] = {"top": [], "relevant": []}
    overlaps: dict[str, list[float]] = {"top": [], "relevant": []}
    for key, hits in run.ranked().items():
        if key not in qrels or key not in queries:
            continue
        terms = frozenset(word.lower() for word in words(queries[key].text, corpus.language))
        relevant = [passage for passage, label in qrels[key].items() if label > 0]
        for kind, ids in (("top", [passage for passage, _ in hits[:_TOP]]), ("relevant", relevant)):
            found = [places[passage] for passage in ids if passage in places]
            lengths[kind] += [len(corpus.full_text(place)) for place in found]
            overlaps[kind] += overlap(terms, found)
    lengths["corpus"] = [len(corpus.full_text(place)) for place in range(len(corpus))]
    return {
        **{f"{kind}_characters": float(np.median(of)) if of else 0.0 for kind, of in lengths.items()},
        **{f"{kind}_overlap": float(np.mean(of)) if of else 0.0 for kind, of in overlaps.items()},
    }


def length_class(count: int) -> str:
    """The class of a query length in words: the paper's classes (appendix A.2.1), made disjoint."""
    if count < 5:
        return "00-04"
    if count < 10:
        return "05-09"
    return "10-19" if count < 20 else "20+"


FALSE_REFUSALS = 0.05
"""The share of answerable queries that may be refused."""

Tops = NDArray[np.float64]


def refusal(run: Run, answerable: Collection[str], unanswered: Collection[str]) -> dict[str, float]:
    """The figures of one system; empty where one of the two kinds of queries is missing.

    queries: how many have no answer. auroc: how probable it is that a query with an answer has a higher best score than
    one without (ties count half); auroc_low, auroc_high: its 95 % interval (DeLong et al. 1988). threshold: see the
    module; -inf if more than 5 % of the answerable queries have no hit at all. false_refusals: the share of
    answerable queries below it. false_hits: the share of queries without an answer that reach it.
    """
    spans = zip(run.query_ids, run.offsets[:-1], run.offsets[1:], strict=True)
    tops = {key: float(run.scores[first:last].max()) for key, first, last in spans if last > first}
    asked = np.array([tops.get(key, -np.inf) for key in sorted(answerable)])
    empty = np.array([tops.get(key, -np.inf) for key in sorted(unanswered)])
    if not len(asked) or not len(empty):
        return {}
    threshold = float(np.sort(asked)[int(FALSE_REFUSALS * len(asked))])
    won, lost = placements(asked, empty), placements(-empty, -asked)
    auroc = float(won.mean())
    error = math.sqrt(sum(float(part.var(ddof=1)) / len(part) for part in (won, lost) if len(part) > 1))
    return {
        "queries": len(empty),
        "auroc": auroc,
        "auroc_low": max(auroc - 1.96 * error, 0.0),
        "auroc_high": min(auroc + 1.96 * error, 1.0),
        "threshold": threshold,
        "false_refusals": float(((asked < threshold) | np.isneginf(asked)).mean()),
        "false_hits": float(((empty >= threshold) & ~np.isneginf(empty)).mean()),
    }


def placements(values: Tops, others: Tops) -> Tops:
    """For each of the values the share of the others that is below it; ties count half. In n log n steps."""
    ordered = np.sort(others)
    below, upto = (np.searchsorted(ordered, values, side=side) for side in ("left", "right"))
    shares: Tops = (below + upto) / (2 * len(others))
    return shares


CUTOFFS = (5, 20, 100)
_WITHOUT_SPACES = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
_TOKEN = regex.compile(rf"{_WITHOUT_SPACES}|[[\p{{L}}\p{{N}}\p{{M}}]--{_WITHOUT_SPACES}]+|[^\p{{Z}}\p{{C}}]", regex.V1)


def token_line(text: str) -> str:
    """The tokens of a text, each between two blanks (no token holds one); empty for a text without any.

    >>> token_line("It's  Café No. 5")
    " it ' s cafe\u0301 no . 5 "
    """
    tokens = [token.lower() for token in _TOKEN.findall(unicodedata.normalize("NFD", text))]
    return f" {' '.join(tokens)} " if tokens else ""


def has_answer(passage: str, answers: Sequence[str]) -> bool:
    """Whether the tokens of an answer follow each other in the passage. Both are lines of `token_line`."""
    return any(answer and answer in passage for answer in answers)


def answer_accuracy(
    run: Run,
    answers: Mapping[str, Sequence[str]],
    corpus: Corpus,
    depth: int = CUTOFFS[-1],
    lines: dict[int, str] | None = None,
) -> dict[str, tuple[float, float, float]]:
    """Is an answer in one of the best k passages? {measure: (mean over the queries with answers, low, high)}.

    By the definition of DPR (Karpukhin et al. 2020, `has_answer` of its code): text and answer are normalised to NFD,
    split into runs of letters, digits and marks and into single other characters, and lowercased; a passage has the
    answer if the answer's tokens follow each other in its text. The title does not count, and no label is needed. One
    thing is added: where a script has no spaces, each character is a token. Intervals are of 95 % (bootstrap); empty
    where no query has an answer. A query without a result scores 0.

    depth: how many hits of a query were asked for; a cutoff beyond it is left out. `lines` caches the tokens of
    passages, by their position in the corpus, from one system to the next.
    """
    cutoffs = [cutoff for cutoff in CUTOFFS if cutoff <= depth]
    wanted = {key: [*filter(None, map(token_line, each))] for key, each in answers.items()}
    wanted = {key: each for key, each in wanted.items() if each}
    if not cutoffs or not wanted:
        return {}
    lines = {} if lines is None else lines
    places = {key: place for place, key in enumerate(corpus.ids)}
    first = dict.fromkeys(wanted, np.inf)  # the rank of the first passage with an answer
    ranked = run.ranked()
    for row, key in enumerate(ranked.query_ids):
        if key not in wanted:
            continue
        start, end = (int(ranked.offsets[place]) for place in (row, row + 1))
        for rank, passage in enumerate(ranked.passages[start : min(end, start + cutoffs[-1])].tolist(), 1):
            place = places.get(ranked.passage_ids[passage])
            if place is None:
                continue
            if place not in lines:
                lines[place] = token_line(corpus.texts[place])
            if has_answer(lines[place], wanted[key]):
                first[key] = rank
                break
    ranks = np.array(list(first.values()))
    values = np.array([ranks <= cutoff for cutoff in cutoffs], np.float64)
    means, intervals = values.mean(axis=1).tolist(), bootstrap_interval(values).tolist()
    return {
        f"Answer@{cutoff}": (mean, low, high)
        for cutoff, mean, (low, high) in zip(cutoffs, means, intervals, strict=True)
    }
