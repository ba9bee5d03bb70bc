"""The audit as one HTML page, and a person's answers in a file.

    runs/NAME/audit/audit-answers.json      {"key", "dataset", "answers": {"12": 3}, "others": [{...}]}

The page works without a server. Texts reach it as text nodes only, and a content security policy allows its own script
and nothing from outside. `others` are answers to pairs that a person chose, or whose label this person had seen: they
say nothing about the share of right labels, and are in no estimate.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airgen.dataset.files import write_text
from airgen.errors import DatasetError, disk_error
from airgen.kept import DAMAGE, read_json, write_json
from airgen.quality.audit.sample import AuditItem, AuditSample, sample_csv, sample_json
from airgen.study import html_page
from airgen.text.display import html_text, plain_text

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
        value = read_json(path)
        found = {**empty, "answers": dict(value["answers"]), "others": [asdict(one) for one in _chosen(value)]}
        known = value["key"]
    except DAMAGE as error:
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
        write_json(path, found)
    except OSError as error:
        raise disk_error(error) from error
    return found


def read_chosen(path: Path) -> list[Chosen]:
    """The pairs in a file of answers that are outside of the sample; none in a file that has no such list."""
    if path.suffix == ".csv":
        return []
    try:
        return _chosen(json.loads(path.read_text(encoding="utf-8-sig")))
    except DAMAGE as error:
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


QUESTION = "Does the document answer the query?"


def write_sample(sample: AuditSample, out: Path, *, note: str = "", question: str = QUESTION) -> None:
    """Write the page, the table and the sample itself to the folder `out`. An older sample there is replaced."""
    out.mkdir(parents=True, exist_ok=True)
    page = question_page(sample.dataset, sample.key, sample.items, note=note, question=question)
    write_text(out / "audit.html", page)
    write_text(out / "audit.csv", sample_csv(sample))
    write_text(out / "sample.json", sample_json(sample))


def question_page(
    title: str, key: str, items: Sequence[AuditItem], *, note: str = "", batch: int = 0, question: str = QUESTION
) -> str:
    """A page that asks about each item in turn.

    note: a line for people. question: what is asked about each item. batch: after how many answers the page says that
    they can be saved and scored.
    """
    shown = [
        {name: plain_text(text) for name, text in (("query", one.query_text), ("title", one.title), ("text", one.text))}
        for one in items
    ]
    value = {"key": key, "dataset": plain_text(title), "batch": batch, "items": shown}
    data = json.dumps(value, ensure_ascii=True).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    levels = "\n".join(
        f'<button type="button" class="level" data-level="{level}"><kbd>{level}</kbd> {html_text(text)}</button>'
        for level, text in (*enumerate(LEVELS), ("x", "I cannot say"))
    )
    title = f"Audit of {html_text(title)}"
    body = f"""<main class="asking">
<h1>{title}</h1>
{f"<p>{html_text(note)}</p>" if note else ""}
<p>{html_text(question)} Press <kbd>0</kbd> to <kbd>3</kbd>, <kbd>x</kbd> if you cannot say,
<kbd>←</kbd> and <kbd>→</kbd> to move, <kbd>s</kbd> to save.</p>
<p id="progress" role="status" aria-live="polite"></p>
<section aria-label="query"><h2>Query</h2><p id="query" class="foreign"></p></section>
<section aria-label="your answer" id="levels">
{levels}
</section>
<section aria-label="document"><h2>Document</h2><h3 id="title" class="foreign"></h3><p id="text" class="foreign"></p>
</section>
<p class="controls">
<button type="button" id="back">← Back</button>
<button type="button" id="next">Next →</button>
<button type="button" id="save">Save answers</button>
<label>Go on from a saved file <input type="file" id="open" accept="application/json"></label>
</p>
</main>
<script type="application/json" id="data">{data}</script>"""
    return html_page(title, body, Path(__file__).with_name("page.js").read_text(encoding="utf-8"))


LEVELS = ("not relevant", "superficially relevant, but actually not", "somewhat relevant", "relevant")
