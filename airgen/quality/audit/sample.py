"""Human audit: a stratified sample of a dataset's labels, checked by people, and how far they agree.

    sample = draw(items, 100, seed=42)                 # every kind of document and every level, in random order
    result = score(sample, [answers])                  # agreement by kind and level, with Wilson intervals

People give the same levels 0 to 3 as the judge, without seeing its answer. A label is confirmed if the person's level
means the same relevance, with the cut between levels that was used for the judge.
"""

import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from airgen.errors import DatasetError
from airgen.kept import DAMAGE, plain, read_kept
from airgen.keys import content_key, text_key
from airgen.text.display import csv_text, json_text

LABELLED = ("relevant", "not relevant")
"""The kinds where only the labels are known, as in a released dataset."""

KINDS = ("positive", "added positive", "generated negative", "dropped negative", "other", *LABELLED)
"""The kinds of documents of a query: the document that it was written from; one that quality control added; a
generated one; a generated one that control removed; one judged not relevant; and `LABELLED`."""

Answers = Mapping[int, int | None]  # number of the item -> level, None for "cannot say"


@dataclass(frozen=True, slots=True)
class AuditItem:
    """One (query, document) pair.

    level: the judge's; None if it was not asked. relevant: the decision of quality control.
    """

    query: str
    document: str
    kind: str
    level: int | None
    relevant: bool
    query_text: str = ""
    title: str = ""
    text: str = ""

    @property
    def stratum(self) -> str:
        """Kind and level."""
        return f"{self.kind}, {'not judged' if self.level is None else f'level {self.level}'}"


@dataclass(frozen=True, slots=True)
class AuditSample:
    """Items in the order in which people see them; `populations` counts all pairs of each stratum."""

    dataset: str
    relevant_from: int
    items: tuple[AuditItem, ...]
    populations: Mapping[str, int]

    @property
    def key(self) -> str:
        """An id of the sample, so that answers to another sample are refused."""
        return content_key([self.dataset, [[item.query, item.document] for item in self.items]])[:16]


@dataclass(frozen=True, slots=True)
class Proportion:
    """The share of `count` pairs on which two labels agree, with its 95 % interval from `low` to `high`."""

    agreed: int
    count: int
    share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class AuditResult:
    """How far people agree with the labels.

    overall: the share of all labels that people would confirm; each stratum is weighted by its size in the dataset.
    same_level: the share of pairs with equal levels. people: how many people answered. agree: how often people who saw
    the same pair gave the same relevance; None if no pair was seen twice. unanswered: pairs without an answer, which
    count nowhere.
    """

    overall: Proportion
    by_kind: Mapping[str, Proportion]
    by_level: Mapping[str, Proportion]
    same_level: Proportion
    people: int
    agree: Proportion | None
    unanswered: int

    def as_card(self) -> dict[str, Any]:
        """Figures for the dataset's card."""
        found = {
            "labels that people confirm, weighted by stratum": _shown(self.overall),
            "equal levels": _shown(self.same_level),
            "people": self.people,
            "pairs without an answer": self.unanswered,
        }
        found |= {f"confirmed, {kind}": _shown(value) for kind, value in self.by_kind.items()}
        found |= {f"confirmed, {level}": _shown(value) for level, value in self.by_level.items()}
        if self.agree is not None:
            found["people agree with each other"] = _shown(self.agree)
        return found


def _shown(value: Proportion) -> str:
    return f"{value.share:.3f} ({value.low:.3f}–{value.high:.3f}), {value.agreed} of {value.count}"


def draw(items: Sequence[AuditItem], count: int, *, dataset: str, relevant_from: int, seed: int = 0) -> AuditSample:
    """At most `count` items: strata by kind and level share them equally, small ones are taken whole.

    The seed decides which items and in which order, so the order does not show the judge's level. Raises DatasetError
    if there are no items.
    """
    if not items:
        raise DatasetError(f"{dataset}: there are no decisions to audit; run the pipeline to its end first")
    strata: dict[str, list[AuditItem]] = {}
    for item in items:
        strata.setdefault(item.stratum, []).append(item)

    def place(item: AuditItem) -> str:
        return text_key(f"audit\x1f{seed}\x1f{item.query}\x1f{item.document}")

    chosen: list[AuditItem] = []
    # The smallest stratum comes first, so that the others share what it does not use.
    for turn, name in enumerate(sorted(strata, key=lambda name: (len(strata[name]), name))):
        share = math.ceil((count - len(chosen)) / (len(strata) - turn))
        chosen += sorted(strata[name], key=place)[: max(0, min(share, count - len(chosen)))]
    ordered = tuple(sorted(chosen, key=lambda item: text_key(f"order\x1f{place(item)}")))
    return AuditSample(dataset, relevant_from, ordered, {name: len(strata[name]) for name in sorted(strata)})


def sample_json(sample: AuditSample) -> str:
    """The file that `load_sample` reads. It has the decisions and no texts."""
    value = plain(sample)
    for item in value["items"]:
        del item["query_text"], item["title"], item["text"]
    return json_text({"key": sample.key, **value}, indent=1) + "\n"


def load_sample(path: Path, draw: str = "airgen audit sample") -> AuditSample:
    """The sample that the command `draw` drew. Raises DatasetError if the file is missing or is not a sample."""
    return read_kept(AuditSample, path, "sample of airgen audit", f"draw one with `{draw}`")


def sample_csv(sample: AuditSample) -> str:
    """The same pairs for a spreadsheet, with an empty column `level` to fill in, and without the judge's answers."""
    rows = [[at, item.query_text, item.title, item.text, ""] for at, item in enumerate(sample.items, 1)]
    return csv_text(["number", "query", "title", "text", "level"], rows)


class Asked(Protocol):
    """What answers belong to: the id of a sample, and what people were shown, in this order."""

    @property
    def key(self) -> str: ...

    @property
    def items(self) -> Sequence[object]: ...


def read_answers(path: Path, sample: Asked) -> dict[int, int | None]:
    """One person's levels by item number, from the page's JSON or the filled-in CSV.

    Raises DatasetError for another sample's answers, a number that is not in the sample, or a level not in 0 to 3.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix == ".csv":
            rows = [(row["number"], row["level"]) for row in csv.DictReader(io.StringIO(text)) if row["level"].strip()]
        else:
            value = json.loads(text)
            if value["key"] != sample.key:
                raise DatasetError(f"{path}: answers to another sample ({value['key']}; this sample is {sample.key})")
            rows = list(value["answers"].items())
    except (*DAMAGE, csv.Error) as error:
        raise DatasetError(f"{path}: not answers to an audit ({error})") from error
    found: dict[int, int | None] = {}
    for number, level in rows:
        known = re.fullmatch("[0-9]{1,9}", str(number)) is not None and 1 <= int(number) <= len(sample.items)
        if not known or (level is not None and str(level) not in ("0", "1", "2", "3")):
            raise DatasetError(
                f"{path}: item {str(number)[:40]!r} with level {str(level)[:40]!r}: items are 1 to "
                f"{len(sample.items)}, levels 0 to 3"
            )
        found[int(number)] = None if level is None else int(level)
    if not found:
        raise DatasetError(f"{path}: the file has no answer")
    return found


def wilson(agreed: int, count: int) -> Proportion:
    """A share with Wilson's 95 % score interval, which is right for few pairs and for shares near 1 (Wilson, 1927)."""
    return weighted_wilson(agreed, count, agreed / count if count else math.nan, count)


def weighted_wilson(agreed: int, count: int, share: float, effective: float, z: float = 1.959964) -> Proportion:
    """The same for a weighted share: as many pairs count as an unweighted sample of the same precision would have."""
    if not count:
        return Proportion(0, 0, math.nan, 0.0, 1.0)
    middle = (share + z * z / (2 * effective)) / (1 + z * z / effective)
    reach = z / (1 + z * z / effective) * math.sqrt(share * (1 - share) / effective + z * z / (4 * effective**2))
    return Proportion(agreed, count, share, max(0.0, middle - reach), min(1.0, middle + reach))


def weighted_share(rows: Sequence[tuple[bool, float]], z: float = 1.959964) -> Proportion:
    """The share of what is true, with weights, and Wilson's interval for Kish's effective number of pairs."""
    total = math.fsum(weight for _, weight in rows)
    share = math.fsum(weight for good, weight in rows if good) / total if rows else math.nan
    effective = total**2 / math.fsum(weight**2 for _, weight in rows) if rows else 0.0
    return weighted_wilson(sum(good for good, _ in rows), len(rows), share, effective, z)


def score(sample: AuditSample, people: Sequence[Answers]) -> AuditResult:
    """Compare the dataset's labels with people's. A pair with several answers gets the lower median of their levels.

    Raises DatasetError if there is no answer at all.
    """
    given, levels, cut = _given(people), middle_levels(people), sample.relevant_from
    items = {number: sample.items[number - 1] for number in levels}
    right = [(item, (levels[n] >= cut) == item.relevant, levels[n] == item.level) for n, item in items.items()]
    twice = [{level >= cut for level in of} for of in given.values() if len(of) > 1]
    judged = [same for item, _, same in right if item.level is not None]
    answered = Counter(item.stratum for item, _, _ in right)

    def grouped(names: Sequence[str], name_of: Callable[[AuditItem], str]) -> dict[str, Proportion]:
        found = {name: [good for item, good, _ in right if name_of(item) == name] for name in names}
        return {name: wilson(sum(of), len(of)) for name, of in found.items() if of}

    return AuditResult(
        weighted_share([(good, sample.populations.get(item.stratum, 0) / answered[item.stratum])
                        for item, good, _ in right]),
        grouped(KINDS, lambda item: item.kind),
        grouped([f"level {n}" for n in range(4)], lambda item: f"level {item.level}"),
        wilson(sum(judged), len(judged)), len(people),
        wilson(sum(len(one) == 1 for one in twice), len(twice)) if twice else None, len(sample.items) - len(levels),
    )  # fmt: skip


def middle_levels(people: Sequence[Answers]) -> dict[int, int]:
    """The lower median of the levels of each pair that has one, by number. Raises DatasetError if there is none."""
    return {number: sorted(of)[(len(of) - 1) // 2] for number, of in sorted(_given(people).items())}


def _given(people: Sequence[Answers]) -> dict[int, list[int]]:
    levels: dict[int, list[int]] = {}
    for answers in people:
        for number, level in answers.items():
            if level is not None:
                levels.setdefault(number, []).append(level)
    if not levels:
        raise DatasetError("nobody answered: the audit has no answer")
    return levels
