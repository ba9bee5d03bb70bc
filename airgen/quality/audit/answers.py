"""One person's answers in a file, given one by one from the pages of a report.

    runs/NAME/audit/audit-answers.json      {"key", "dataset", "answers": {"12": 3}, "others": [{...}]}

`answers` are those to the sample, and `airgen audit score` reads them. An answer to any other pair, and one by a person
who has seen the label, goes to `others`: nobody drew these pairs, a person chose them, so they say nothing about the
share of right labels. They are in no estimate.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airgen.dataset.atomic import whole_file
from airgen.errors import DatasetError, disk_error
from airgen.quality.audit.sample import AuditItem, AuditSample
from airgen.text.display import json_text

ANSWERS = "audit-answers.json"
_MOST = 10_000  # pairs that were chosen by hand
_LONGEST = 1000  # characters of an id


@dataclass(frozen=True, slots=True)
class Chosen:
    """A person's level of a pair that this person chose; None for "cannot say". seen: with the label in view."""

    query: str
    document: str
    level: int | None
    seen: bool


def saved_answers(path: Path, sample: AuditSample | None) -> dict[str, Any]:
    """What the file holds, or what a new file will. Raises DatasetError for answers to another sample."""
    key, dataset = (None, "") if sample is None else (sample.key, sample.dataset)
    empty: dict[str, Any] = {"key": key, "dataset": dataset, "answers": {}, "others": []}
    if not path.is_file():
        return empty
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        found = {**empty, "answers": dict(value["answers"]), "others": [asdict(one) for one in _chosen(value)]}
        known = value["key"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DatasetError(f"{path}: not answers to an audit ({error}): move the file away") from error
    if found["answers"] and known != key:
        raise DatasetError(f"{path}: answers to another sample ({known}; this sample is {key}): move the file away")
    return found


def add_answer(path: Path, sample: AuditSample | None, value: Mapping[str, Any]) -> dict[str, Any]:
    """Take an answer into the file, in place of an older one to the same pair; returns what the file then holds.

    value: {number, level} of the sample, or {query, document, level, seen}. A level is 0 to 3, None for "cannot say",
    or absent: the answer is taken back. Raises DatasetError for anything else.
    """
    found = saved_answers(path, sample)
    level = _level(value)
    if "number" in value:
        number, most = value["number"], len(sample.items) if sample is not None else 0
        if type(number) is not int or not 1 <= number <= most:
            raise DatasetError(f"item {str(number)[:40]!r}: the sample has items 1 to {most}")
        found["answers"].pop(str(number), None)
        if "level" in value:
            found["answers"][str(number)] = level
    else:
        one = _pair(value)
        others = [
            other for other in found["others"] if (other["query"], other["document"]) != (one.query, one.document)
        ]
        found["others"] = [*others, asdict(one)] if "level" in value else others
        if len(found["others"]) > _MOST:
            raise DatasetError(f"{path}: more than {_MOST:,} pairs outside of the sample: draw a sample instead")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as fresh:
            fresh.write_text(json_text(found, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise disk_error(error) from error
    return found


def read_chosen(path: Path) -> list[Chosen]:
    """The pairs in a file of answers that are outside of the sample; none in a file that has no such list."""
    if path.suffix == ".csv":
        return []
    try:
        return _chosen(json.loads(path.read_text(encoding="utf-8-sig")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DatasetError(f"{path}: not answers to an audit ({error})") from error


def chosen_pairs(items: Iterable[AuditItem], chosen: Iterable[Chosen], relevant_from: int) -> dict[str, int]:
    """How many pairs people chose by hand, and of how many they confirm the label: counts, and no estimate.

    unknown: pairs without a label. cannot say: pairs without a level.
    """
    relevant = {(item.query, item.document): item.relevant for item in items}
    found = {"pairs": 0, "confirmed": 0, "unknown": 0, "cannot say": 0}
    for one in chosen:
        found["pairs"] += 1
        label = relevant.get((one.query, one.document))
        if one.level is None:
            found["cannot say"] += 1
        elif label is None:
            found["unknown"] += 1
        else:
            found["confirmed"] += (one.level >= relevant_from) == label
    return found


def _chosen(value: Mapping[str, Any]) -> list[Chosen]:
    return [_pair(one) for one in list(value.get("others") or [])[:_MOST]]


def _pair(value: Mapping[str, Any]) -> Chosen:
    query, document = value.get("query"), value.get("document")
    if not (isinstance(query, str) and isinstance(document, str) and max(len(query), len(document)) <= _LONGEST):
        raise DatasetError("an answer needs the query's and the document's id")
    return Chosen(query, document, _level(value), bool(value.get("seen", True)))


def _level(value: Mapping[str, Any]) -> int | None:
    level = value.get("level")
    if level is None or (type(level) is int and 0 <= level <= 3):
        return level
    raise DatasetError(f"level {str(level)[:40]!r}: levels are 0 to 3, and null if a person cannot say")
