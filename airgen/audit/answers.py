"""People's answers: the file that a page saves, one answer at a time or at once, and the resulting agreement with the
labels.

    runs/NAME/audit/audit-answers.json      {"key", "dataset", "answers": {"12": 3}, "reasons": {"12": "..."}, "others"}

`others` are answers to pairs that a person chose or whose label the person had seen. They are no evidence of the share
of correct labels, and are excluded from the estimates. People answer with the levels of the job's judge, or yes and no,
without seeing its answer, and may give a reason in a sentence. A label is confirmed if the person's level means the
same relevance, with the judge's cutoff between levels.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from airgen.audit.answer_table import FilledRow, is_table, level_of, read_answer_table, whole
from airgen.audit.sample import ANSWERS, EARLIER, KINDS, AuditItem, AuditSample, earlier_samples
from airgen.dataset.human_labels import CONFIRMED, share_interval
from airgen.display.study import Shown
from airgen.errors import DatasetError, disk_error
from airgen.safety.escaping import figure, one_line
from airgen.storage.json_values import DAMAGE, kept_of, read_json, write_json
from airgen.storage.paths import locked

_MOST_CHOSEN_PAIRS = 10_000  # pairs that a person chose by hand

Levels = Mapping[int, int | None]  # position of the item -> level, None for "cannot say"
_Level = Annotated[int, Field(strict=True, ge=0, le=3)]
_Id = Annotated[str, Field(max_length=1000)]
_Why = Annotated[str, Field(max_length=2000)]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A person's level for a pair that this person chose, or None for "cannot say". `seen` says whether the label was
    in view."""

    query: _Id
    document: _Id
    level: _Level | None = None
    seen: bool = True
    why: _Why = ""


@dataclass(frozen=True, slots=True)
class PersonsAnswers:
    """A file of answers: to the sample with this key, by item number, and to pairs that the person chose.

    `reasons` are the person's reasons by item number.
    """

    key: str | None
    dataset: str = ""
    answers: Mapping[int, _Level | None] = field(default_factory=dict)
    others: tuple[Chosen, ...] = ()
    reasons: Mapping[int, _Why] = field(default_factory=dict)


def answers_of(path: Path, sample: AuditSample, earlier: Mapping[str, AuditSample]) -> tuple[PersonsAnswers, int]:
    """Return a person's answers to a sample, including answers to an earlier sample about the same pairs.

    Also returns the number of answers to pairs that are not in this sample. Raises the errors of `read_answers`.
    """
    key = key_in(path)
    if key == sample.key or key not in earlier:
        return read_answers(path, sample.key, len(sample.items), sample.levels), 0
    old = earlier[key]
    person = read_answers(path, key, len(old.items), old.levels)
    now = {(item.query, item.document): number for number, item in enumerate(sample.items, 1)}
    places = dict[int, int]()
    for number in {*person.answers, *person.reasons}:
        item = old.items[number - 1]
        place = now.get((item.query, item.document))
        if place is not None and same_texts(item, sample.items[place - 1]):
            places[number] = place
    moved = {places[number]: level for number, level in person.answers.items() if number in places}
    reasons = {places[number]: why for number, why in person.reasons.items() if number in places}
    return replace(person, key=sample.key, answers=moved, reasons=reasons), len(person.answers) - len(moved)


def same_texts(item: AuditItem, other: AuditItem) -> bool:
    """Return whether two items with the same ids have the same texts, as far as known."""
    return not item.texts or not other.texts or item.texts == other.texts


def carry_answers(folder: Path, sample: AuditSample) -> None:
    """Carry over a live report's answers from an earlier sample: answers to pairs in this sample, and chosen pairs."""
    path = folder / ANSWERS
    if path.is_file():
        return
    earlier = earlier_samples(folder)
    places = [folder / EARLIER / key / ANSWERS for key in earlier]
    files = sorted((path for path in places if path.is_file()), key=lambda path: path.stat().st_mtime_ns)
    for file in files[-1:]:
        old = saved_answers(file, earlier[file.parent.name])
        taken = replace(old, answers={}, reasons={}) if not old.answers else answers_of(file, sample, earlier)[0]
        write_json(path, replace(taken, key=sample.key, dataset=sample.dataset, others=old.others))


def answered(path: Path) -> bool:
    """Return whether a file contains answers, unlike a table that has not been filled in."""
    try:
        if is_table(path):
            return any(row.level for row in read_answer_table(path))
        return bool(json.loads(path.read_text(encoding="utf-8-sig"))["answers"])
    except (*DAMAGE, DatasetError):
        return True  # `read_answers` reports what is wrong with it


def key_in(path: Path) -> str:
    """Return the key of the sample in a file of answers, or ""."""
    try:
        if is_table(path):
            return next((row.sample for row in read_answer_table(path) if row.sample), "")
        return str(json.loads(path.read_text(encoding="utf-8-sig")).get("key") or "")
    except (*DAMAGE, DatasetError):
        return ""


def read_answers(path: Path, key: str, items: int, levels: Mapping[int, str] | None = None) -> PersonsAnswers:
    """Read a person's answers to a sample from the page's JSON or the filled-in table.

    Args:
        path: The file.
        key: The key of the sample.
        items: The number of items in the sample.
        levels: The allowed answers. For yes and no, a table may contain these words, or 1 and 0.

    Raises:
        DatasetError: The answers are to another sample, a number is not in the sample, a level is not 0 to 3, or there
            are no answers to the sample.
    """
    try:
        if is_table(path):
            rows = [row for row in read_answer_table(path) if row.level]
            of = next((row.sample for row in rows if row.sample), key)
            given = {_number_in(path, row): level_of(path, row, levels) for row in rows}
            why = {_number_in(path, row): row.why for row in rows if row.why}
            value = {"key": of, "answers": given, "reasons": why}
        else:
            value = json.loads(path.read_text(encoding="utf-8-sig"))
        answers = kept_of(PersonsAnswers, value)
    except FileNotFoundError:
        raise DatasetError(
            f"{path}: no such file; the audit's page saves it, usually in your downloads folder"
        ) from None
    except DAMAGE as error:
        raise DatasetError(f"{path}: not answers to an audit ({one_line(error, 200)})") from error
    if answers.key != key:
        raise DatasetError(f"{path}: answers to another sample ({answers.key}; this sample is {key})")
    _check_numbers(path, answers, items)
    if not answers.answers:
        raise DatasetError(f"{path}: the file contains no answers")
    return answers


def _number_in(path: Path, row: FilledRow) -> int:
    number = whole(row.number)
    if number is None:
        written = one_line(row.number, 40)
        raise DatasetError(f"{path}:{row.line}: {written!r} is not the number of a pair in the sample")
    return number


def _check_numbers(path: Path, answers: PersonsAnswers, items: int) -> None:
    if wrong := [number for number in (*answers.answers, *answers.reasons) if not 1 <= number <= items]:
        raise DatasetError(f"{path}: item {str(wrong[0])[:40]}: the sample has items 1 to {items}")


def saved_answers(path: Path, sample: AuditSample | None) -> PersonsAnswers:
    """Return the content of the file, or of a new file. Raises DatasetError if the answers are to another sample."""
    key, dataset = (None, "") if sample is None else (sample.key, sample.dataset)
    if not path.is_file():
        return PersonsAnswers(key, dataset)
    try:
        answers = kept_of(PersonsAnswers, read_json(path))
    except DAMAGE as error:
        raise DatasetError(f"{path}: not answers to an audit ({error}): move the file away") from error
    if answers.answers and answers.key != key:
        raise DatasetError(
            f"{path}: answers to another sample ({answers.key}; this sample is {key}): move the file away"
        )
    return replace(answers, key=key, dataset=dataset)


def add_answer(path: Path, sample: AuditSample | None, value: Mapping[str, Any]) -> PersonsAnswers:
    """Save an answer in the file, replacing an older answer to the same pair, and return the new content.

    Several processes may save answers at once, and wait for each other.

    `value` is {number, level} for the sample, or {query, document, level, seen}, with `why`. A level is 0 to 3, None
    for "cannot say", or absent to withdraw the answer. Raises DatasetError for anything else.
    """
    try:
        with locked(path.with_name(f".{path.name}.lock"), wait=True):
            return _add_answer(path, sample, value)
    except OSError as error:
        raise disk_error(error) from error


def _add_answer(path: Path, sample: AuditSample | None, value: Mapping[str, Any]) -> PersonsAnswers:
    saved, keep = saved_answers(path, sample), "level" in value
    given: dict[str, Any] = {"others": [value]}
    if "number" in value:
        number, why = str(value["number"]), value.get("why")
        given = {"answers": {number: value.get("level")}, **({"reasons": {number: why}} if why else {})}
    try:
        new = kept_of(PersonsAnswers, {"key": saved.key, **given})
    except ValueError as error:
        raise DatasetError(f"not an answer to an audit: {error}") from error
    _check_numbers(path, new, 0 if sample is None else len(sample.items))
    pairs = {(pair.query, pair.document) for pair in new.others}
    answers = {number: level for number, level in saved.answers.items() if number not in new.answers}
    reasons = {number: why for number, why in saved.reasons.items() if number not in new.answers}
    others = tuple(pair for pair in saved.others if (pair.query, pair.document) not in pairs)
    if keep:
        answers, others = {**answers, **new.answers}, (*others, *new.others)
        reasons |= new.reasons
    saved = replace(saved, answers=answers, reasons=reasons, others=others)
    if len(saved.others) > _MOST_CHOSEN_PAIRS:
        raise DatasetError(
            f"{path}: more than {_MOST_CHOSEN_PAIRS:,} pairs outside of the sample: draw a sample instead"
        )
    try:
        write_json(path, saved)
    except OSError as error:
        raise disk_error(error) from error
    return saved


def chosen_pairs(items: Iterable[AuditItem], chosen: Iterable[Chosen], relevant_from: int) -> dict[str, int]:
    """Count the pairs that people chose by hand, and those whose label they confirm. The counts are not estimates.

    `unknown` are pairs without a label, and `cannot say` pairs without a level.
    """
    relevant = {(item.query, item.document): item.relevant for item in items}
    counts = {"pairs": 0, "confirmed": 0, "unknown": 0, "cannot say": 0}
    for pair in chosen:
        counts["pairs"] += 1
        label = relevant.get((pair.query, pair.document))
        if pair.level is None:
            counts["cannot say"] += 1
        elif label is None:
            counts["unknown"] += 1
        else:
            counts["confirmed"] += (pair.level >= relevant_from) == label
    return counts


@dataclass(frozen=True, slots=True)
class Proportion:
    """The share of `count` pairs on which two labels agree, with its interval."""

    agreed: int
    count: int
    share: float
    low: float
    high: float

    @classmethod
    def of(cls, rows: Iterable[tuple[bool, float]], z: float = 1.959964) -> "Proportion":
        """Compute the share from (agreed, weight), with its interval.

        The number of pairs is the effective sample size (Kish).
        """
        every = list(rows)
        if not every:
            return cls(agreed=0, count=0, share=math.nan, low=0.0, high=1.0)
        total = math.fsum(weight for _, weight in every)
        share = math.fsum(weight for agreed, weight in every if agreed) / total
        size = total**2 / math.fsum(weight**2 for _, weight in every)
        low, high = share_interval(share, size, z)
        return cls(agreed=sum(agreed for agreed, _ in every), count=len(every), share=share, low=low, high=high)

    def __format__(self, form: str) -> str:
        return f"{figure(self.share, form)} ({self.low:{form}}–{self.high:{form}})"


@dataclass(frozen=True, slots=True)
class AuditResult(Shown):
    """How well people agree with the labels.

    `overall` is the share of all labels that people would confirm, with each stratum weighted by its size in the
    dataset. `same_level` is the share of pairs with equal levels. `people` is the number of people who answered.
    `agree` is how often people who saw the same pair agreed on its relevance, or None if no pair was seen twice.
    `unanswered` pairs are not counted. `chosen_by_hand` is from `chosen_pairs`. `gone` are pairs in the sample that no
    longer have a label. `of_other_pairs` are answers to such pairs, or to pairs that only an earlier sample contains,
    which are not counted. `applied` describes the dataset if the answers became its labels.
    """

    overall: Proportion
    by_kind: Mapping[str, Proportion]
    by_level: Mapping[str, Proportion]
    same_level: Proportion
    people: int
    agree: Proportion | None
    unanswered: int
    chosen_by_hand: Mapping[str, int] = field(default_factory=dict)
    gone: int = 0
    of_other_pairs: int = 0
    applied: Any = None

    def as_card(self) -> dict[str, Any]:
        """Return the figures for the dataset's card."""
        figures = {
            CONFIRMED: self.overall,
            "equal levels": self.same_level,
            "people": self.people,
            "pairs without an answer": self.unanswered,
            **{f"confirmed, {name}": value for name, value in {**self.by_kind, **self.by_level}.items()},
            **({} if self.agree is None else {"people agree with each other": self.agree}),
        }
        return {
            name: f"{value:.3f}, {value.agreed} of {value.count}" if isinstance(value, Proportion) else value
            for name, value in figures.items()
        }


def score(sample: AuditSample, people: Sequence[Levels]) -> AuditResult:
    """Compare the dataset's labels with people's. A pair with several answers gets the lower median level.

    Raises DatasetError if there are no answers.
    """
    given, levels, cut = _given(people), middle_levels(people), sample.relevant_from
    items = {n: sample.items[n - 1] for n in levels}
    right = {n: (levels[n] >= cut) == item.relevant for n, item in items.items()}
    twice = [(len({level >= cut for level in answers}) == 1, 1.0) for answers in given.values() if len(answers) > 1]
    answered = Counter(item.stratum for item in items.values())

    def grouped(names: Sequence[str], name_of: Callable[[AuditItem], str]) -> dict[str, Proportion]:
        confirmed = {name: [(right[n], 1.0) for n, item in items.items() if name_of(item) == name] for name in names}
        return {name: Proportion.of(values) for name, values in confirmed.items() if values}

    return AuditResult(
        overall=Proportion.of(
            (right[n], sample.populations.get(item.stratum, 0) / answered[item.stratum]) for n, item in items.items()
        ),
        by_kind=grouped(KINDS, lambda item: item.kind),
        by_level=grouped([f"level {n}" for n in range(4)], lambda item: f"level {item.level}"),
        same_level=Proportion.of(
            (_equal(levels[n], judged, sample), 1.0) for n, item in items.items() if (judged := item.level) is not None
        ),
        people=len(people),
        agree=Proportion.of(twice) if twice else None,
        unanswered=len(sample.items) - len(levels),
    )


def _equal(level: int, judged: int, sample: AuditSample) -> bool:
    """Return whether a person and the judge agree. If people answer yes or no, only relevance is compared."""
    cut = sample.relevant_from
    return (level >= cut) == (judged >= cut) if len(sample.levels) == 2 else level == judged


def middle_levels(people: Sequence[Levels]) -> dict[int, int]:
    """Return the lower median of each pair's levels, by number. Raises DatasetError if there are none."""
    return {number: sorted(levels)[(len(levels) - 1) // 2] for number, levels in sorted(_given(people).items())}


def _given(people: Sequence[Levels]) -> dict[int, list[int]]:
    levels: dict[int, list[int]] = {}
    for answers in people:
        for number, level in answers.items():
            if level is not None:
                levels.setdefault(number, []).append(level)
    if not levels:
        raise DatasetError("there are no answers: the audit has not been answered")
    return levels
