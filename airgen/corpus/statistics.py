"""Counts, lengths and reasons for dropping of a prepared corpus, for the terminal and for the card.

stats = summarise(settings, "qa", prepare(settings, "qa"))
stats.passages, stats.tokens.mean, stats.funnel   # [("length", "too short", 31), ...]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from airgen.corpus.settings import CorpusSettings, Task
from airgen.records import Dropped, Passage


@dataclass(frozen=True, slots=True)
class TokenLengths:
    """Lengths in tokens: quantiles, mean and sum."""

    total: int = 0
    mean: float = 0.0
    least: int = 0
    median: int = 0
    p90: int = 0
    most: int = 0


@dataclass(frozen=True, slots=True)
class CorpusSummary:
    """A corpus in numbers. `funnel` holds (cleaner, reason, count), the most frequent first."""

    name: str
    task: str
    language: str
    domain: str
    licence: str
    source: str
    read: int
    passages: int
    tokens: TokenLengths
    funnel: list[tuple[str, str, int]]
    histogram: list[tuple[int, int, int]]
    languages: list[tuple[str, int]] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        """For `--json`."""
        return asdict(self)


def summarise(
    settings: CorpusSettings, task: Task, rows: Iterable[Passage | Dropped], *, identify_languages: bool = False
) -> CorpusSummary:
    """Count rows of a stream; `identify_languages` also identifies each passage's language. Raises MissingExtra."""
    sizes: Counter[int] = Counter()
    funnel: Counter[tuple[str, str]] = Counter()
    languages: Counter[str] = Counter()
    for row in rows:
        if isinstance(row, Dropped):
            funnel[row.cleaner, row.reason] += 1
            continue
        sizes[row.tokens] += 1
        if identify_languages:
            from airgen.corpus.cleaning.filters import identify

            languages[identify(row.text)[0]] += 1
    passages = sum(sizes.values())
    return CorpusSummary(
        settings.name, task, settings.language, settings.domain, settings.licence, settings.source,
        passages + sum(count for (cleaner, _), count in funnel.items() if cleaner != "apparatus"),
        passages, _lengths(sizes),
        sorted(((*step, count) for step, count in funnel.items()), key=lambda row: (-row[2], row)),
        bins(sizes),
        sorted(languages.items(), key=lambda row: (-row[1], row)),
    )  # fmt: skip


def _lengths(sizes: Counter[int]) -> TokenLengths:
    count = sum(sizes.values())
    if not count:
        return TokenLengths()
    total = sum(size * times for size, times in sizes.items())
    ordered = sorted(sizes.items())

    def quantile(share: float) -> int:
        """The smallest length that this share of the passages does not exceed."""
        seen = 0
        for size, times in ordered:
            seen += times
            if seen >= share * count:
                return size
        return ordered[-1][0]

    return TokenLengths(total, total / count, ordered[0][0], quantile(0.5), quantile(0.9), ordered[-1][0])


def bins(sizes: Counter[int], most: int = 12) -> list[tuple[int, int, int]]:
    """At most `most` bins (from, to, count) of one round width, both ends inclusive."""
    if not sizes:
        return []
    top = max(sizes)
    width = next(step * 10**power for power in range(12) for step in (1, 2, 5) if step * 10**power * most > top)
    counts = Counter({size // width: 0 for size in sizes})
    for size, times in sizes.items():
        counts[size // width] += times
    return [(at * width, (at + 1) * width - 1, counts[at]) for at in range(min(counts), max(counts) + 1)]


def statistics_lines(found: CorpusSummary, tokenizer: str) -> list[str]:
    """For a terminal: the counts, the lengths as bars, what was dropped, the languages."""
    length, top = found.tokens, max((count for _, _, count in found.histogram), default=1)
    lines = [
        f"{found.name}: {found.task}, {found.language}, {found.domain}; licence {found.licence}; {found.source}",
        f"{found.read:,} read, {found.passages:,} passages, {length.total:,} tokens ({tokenizer}): "
        f"mean {length.mean:.0f}, median {length.median}, 90 % up to {length.p90}, {length.least} to {length.most}",
    ]
    for low, high, count in found.histogram:
        lines.append(f"{low:>7}-{high:<7}{count:>9,} {'█' * round(40 * count / top) or ('▏' if count else '')}")
    lines += [f"dropped {count:>9,}  {cleaner}: {reason}" for cleaner, reason, count in found.funnel]
    if found.languages:
        lines.append("languages: " + ", ".join(f"{code} {count:,}" for code, count in found.languages[:12]))
    return lines
