"""The questions for people: a stratified sample of labels, its files, and a page that works without a server.

    sample = draw(items, 100, dataset="notes", relevant_from=2, seed=42)     # every kind and level, in random order
    write_sample(sample, Path("runs/notes/audit"))                           # audit.html, audit.csv, sample.json

Texts are inserted into the page only as text nodes, and a content security policy allows only its own script.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airgen.audit.answer_table import COLUMNS, read_answer_table, whole
from airgen.components.keys import content_key, text_key
from airgen.dataset.beir import BeirDataset
from airgen.dataset.human_labels import pair_mark
from airgen.display.study import html_page
from airgen.errors import DatasetError
from airgen.safety.escaping import csv_text, html_text, plain_text
from airgen.storage.json_values import DAMAGE, plain, read_json, read_kept, write_json
from airgen.storage.whole_files import keep_copy, safe_name, write_text

LABELLED = ("relevant", "not relevant")
"""The kinds used if only the labels are known, as in a released dataset."""

KINDS = ("positive", "added positive", "generated negative", "dropped negative", "other", *LABELLED)
"""The kinds of documents of a query: the document that it was written from; one that quality control added; a
generated one; a generated one that control removed; one judged not relevant; and `LABELLED`."""

EARLIER = "earlier"
"""The folder of earlier samples, each in a subfolder named by its key."""

ANSWERS = "audit-answers.json"
"""The file of people's answers."""

LEVELS = ("not relevant", "superficially relevant, but actually not", "somewhat relevant", "relevant")
"""The levels of the paper's Table 8."""

QUESTION = "Does the document answer the query?"
GRADED = "How relevant is the document to the query?"
SUBJECT = "Is the document about what the query asks about?"


_MEANINGS = {
    QUESTION: "Yes: somebody who asks this is helped by the document, or by a part of it. No: it is only about "
    "something similar, however many of the words it has.",
    SUBJECT: "Yes: the document is about what the query asks about, whether it answers the query or not. No: it only "
    "shares words with it.",
    GRADED: "Relevant: it answers the query. Somewhat relevant: it answers a part of it. Superficially relevant: it is "
    "about something similar, but answers nothing. Not relevant: neither.",
}


def meaning_of(question: str) -> str:
    """Return what the answers to a question mean, in a few sentences; "" for another question."""
    return _MEANINGS.get(question, "")


def yes_or_no(relevant_from: int) -> dict[int, str]:
    """Return the levels for a job with binary labels."""
    return {0: "no", relevant_from: "yes"}


def has_levels(dataset: BeirDataset) -> bool:
    """Return whether a dataset's labels are levels rather than yes or no."""
    return (dataset.path / "qrels-graded").is_dir() and not dataset.info.get("levels")


def four_levels() -> dict[int, str]:
    """Return the levels for a job whose judge uses Table 8's levels."""
    return dict(enumerate(LEVELS))


@dataclass(frozen=True, slots=True)
class AuditItem:
    """A (query, document) pair to ask about.

    `level` is the judge's level, or None if it was not asked. `relevant` is quality control's decision. `source` is
    where the document can be read: a URL or a name. `mark` identifies the two texts (`pair_mark`).
    """

    query: str
    document: str
    kind: str
    level: int | None
    relevant: bool
    query_text: str = ""
    title: str = ""
    text: str = ""
    source: str = ""
    mark: str = ""

    @property
    def texts(self) -> str:
        """Return the mark of its texts, even if they are no longer known."""
        return self.mark or (pair_mark(self.query_text, self.title, self.text) if self.text else "")

    @property
    def stratum(self) -> str:
        """Return the kind and level."""
        return f"{self.kind}, {'not judged' if self.level is None else f'level {self.level}'}"


@dataclass(frozen=True, slots=True)
class AuditSample:
    """The items in the order in which people see them. `populations` counts all pairs in each stratum.

    `levels` are the possible answers in words, and `question` is the question about each pair.
    """

    dataset: str
    relevant_from: int
    items: tuple[AuditItem, ...]
    populations: Mapping[str, int]
    levels: Mapping[int, str] = field(default_factory=four_levels)
    question: str = QUESTION

    @property
    def key(self) -> str:
        """Return an id of the sample, by which answers to another sample are refused."""
        return content_key([self.dataset, [[item.query, item.document] for item in self.items]])[:16]


def draw(items: Sequence[AuditItem], count: int, *, dataset: str, relevant_from: int, seed: int = 0) -> AuditSample:
    """Draw at most `count` items, shared equally among strata by kind and level. Small strata are included completely.

    The seed determines the items and their order, so that the order does not reveal the judge's level. Raises
    DatasetError if there are no items.
    """
    if not items:
        raise DatasetError(f"{dataset}: there are no decisions to audit; run the pipeline to its end first")
    strata: dict[str, list[AuditItem]] = {}
    for item in items:
        strata.setdefault(item.stratum, []).append(item)

    def place(item: AuditItem) -> str:
        return text_key(f"audit\x1f{seed}\x1f{item.query}\x1f{item.document}")

    chosen: list[AuditItem] = []
    # The smallest stratum comes first, so that the others can use what it leaves over.
    for turn, name in enumerate(sorted(strata, key=lambda name: (len(strata[name]), name))):
        share = math.ceil((count - len(chosen)) / (len(strata) - turn))
        chosen += sorted(strata[name], key=place)[: max(0, min(share, count - len(chosen)))]
    ordered = tuple(sorted(chosen, key=lambda item: text_key(f"order\x1f{place(item)}")))
    return AuditSample(dataset, relevant_from, ordered, {name: len(strata[name]) for name in sorted(strata)})


def load_sample(path: Path, draw: str = "airgen audit sample") -> AuditSample:
    """Load the sample drawn by the command `draw`. Raises DatasetError if the file is missing or not a sample."""
    return read_kept(AuditSample, path, "sample of airgen audit", f"draw one with `{draw}`")


def earlier_samples(folder: Path) -> dict[str, AuditSample]:
    """Return the earlier samples in the folder by key. Answers to their pairs remain valid."""
    samples = {}
    for path in sorted((folder / EARLIER).glob("*/sample.json")):
        sample = load_sample(path)
        samples[sample.key] = sample
    return samples


def keep_earlier(out: Path, key: str) -> Path | None:
    """Move a sample with another key, its page and its answers to `out/earlier/KEY`, and return this folder."""
    try:
        old = str(read_json(out / "sample.json")["key"])
    except FileNotFoundError:
        return None
    except DAMAGE:
        old = "damaged"
    if old == key:
        return None
    place = out / EARLIER / safe_name(old[:64])
    place.mkdir(parents=True, exist_ok=True)
    for name in ("audit.csv", ANSWERS, "audit.html", "sample.json"):  # the sample last: a stop leaves it in force
        if (out / name).is_file():
            keep_copy(place / name, folder=place)
            (out / name).replace(place / name)
    return place


def write_sample(sample: AuditSample, out: Path, *, note: str = "") -> None:
    """Write the page, the table and the sample itself to the folder `out`.

    The table is for a spreadsheet, with empty columns `level` and `why` to fill in. The sample contains the decisions
    but no texts. An existing other sample is moved to `out/earlier` with all answers; entries in the table of the same
    sample are kept.
    """
    out.mkdir(parents=True, exist_ok=True)
    keep_earlier(out, sample.key)
    page = question_page(
        sample.dataset, sample.key, sample.items, note=note, levels=sample.levels, question=sample.question
    )
    write_text(out / "audit.html", page)
    filled = _filled(out / "audit.csv", sample.key)
    text = _table(sample, filled)
    if _differs(out / "audit.csv", _table(sample, {})):  # it may hold answers to another sample
        keep_copy(out / "audit.csv", text)
    write_text(out / "audit.csv", text)
    value = {"key": sample.key, **plain(sample)}
    for item, own in zip(value["items"], sample.items, strict=True):
        del item["query_text"], item["title"], item["text"]
        item["mark"] = own.texts
    write_json(out / "sample.json", value)


def _filled(path: Path, key: str) -> dict[str, tuple[str, str]]:
    """Return {number: (level, why)} from the filled-in table of this sample."""
    try:
        rows = read_answer_table(path)
    except DatasetError:
        return {}
    return {
        str(whole(row.number)): (row.level, row.why)
        for row in rows
        if (row.level or row.why) and row.sample in ("", key)
    }


def _table(sample: AuditSample, filled: Mapping[str, tuple[str, str]]) -> str:
    rows = [
        [at, item.query_text, item.title, item.text, *filled.get(str(at), ("", "")), sample.key]
        for at, item in enumerate(sample.items, 1)
    ]
    return "\ufeff" + csv_text(COLUMNS, rows)  # without the mark, Excel takes the text for a legacy encoding


def _differs(path: Path, text: str) -> bool:
    """Return whether the file has content, and other content than this."""
    return path.is_file() and path.read_bytes() not in (b"", text.encode("utf-8", "surrogatepass"))


def question_page(
    title: str,
    key: str,
    items: Sequence[AuditItem],
    *,
    note: str = "",
    batch: int = 0,
    question: str = QUESTION,
    levels: Mapping[int, str] | None = None,
) -> str:
    """Return a page that asks about each item in turn.

    Args:
        title: What is audited.
        key: The key of the sample.
        items: The items with their texts.
        note: A line for people.
        batch: Number of answers after which the page says that they can be saved and scored.
        question: The question about each item.
        levels: The answers in words. Default: Table 8's.
    """
    levels = levels or four_levels()
    names = (("query", "query_text"), ("title", "title"), ("text", "text"), ("source", "source"))
    shown = [{name: plain_text(getattr(item, field)) for name, field in names} for item in items]
    keys = keys_of(levels)
    value: dict[str, Any] = {
        "key": key,
        "dataset": plain_text(title),
        "batch": batch,
        "items": shown,
        "keys": keys,
    }
    data = json.dumps(value, ensure_ascii=True).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    buttons = "\n".join(
        f'<button type="button" class="level" data-level="{level}"><kbd>{html_text(press)}</kbd> {html_text(text)}'
        "</button>"
        for press, level, text in [(press, str(level), levels[level]) for press, level in keys.items()]
        + [("x", "x", "I cannot say")]
    )
    pressed = ", ".join(f"<kbd>{html_text(press)}</kbd>" for press in keys)
    title = f"Audit of {html_text(title)}"
    body = f"""<main class="asking">
<h1>{title}</h1>
{f"<p>{html_text(note)}</p>" if note else ""}
<div class="along"><progress id="bar" max="{len(items)}" value="0" aria-label="answered"></progress>
<button type="button" id="save">Save answers</button>
<span id="progress" role="status" aria-live="polite"></span></div>
<section aria-label="query"><h2>Query</h2><p id="query" class="foreign"></p></section>
<section aria-label="document"><h2>Document</h2><h3 id="title" class="foreign"></h3><p id="source"></p>
<p id="text" class="foreign"></p></section>
<section aria-label="your answer" id="answer">
<h2>{html_text(question)}</h2>
<div id="levels">
{buttons}
</div>
{f'<p class="meaning">{html_text(meaning)}</p>' if (meaning := meaning_of(question)) else ""}
<label class="why">Why, in a sentence (optional) <input id="why" type="text" maxlength="500" dir="auto"></label>
</section>
<p class="controls">
<button type="button" id="back">← Back</button>
<button type="button" id="next">Next →</button>
<label>Continue from a saved file <input type="file" id="open" accept="application/json"></label>
</p>
<p>Press {pressed}, <kbd>x</kbd> if you cannot say, <kbd>w</kbd> to write why and <kbd>Enter</kbd> to leave that,
<kbd>←</kbd> and <kbd>→</kbd> to move, <kbd>s</kbd> to save.</p>
</main>
<script type="application/json" id="data">{data}</script>"""
    return html_page(title, body, Path(__file__).with_name("page.js").read_text(encoding="utf-8"))


def keys_of(levels: Mapping[int, str]) -> dict[str, int]:
    """Return the keyboard key for each answer: the level, or y and n if there are two."""
    if len(levels) == 2:
        return {"y": max(levels), "n": min(levels)}
    return {str(level): level for level in sorted(levels)}


def address_of(*places: object) -> str:
    """Return the first of these values that is a URL for a browser, or ""."""
    for place in places:
        if isinstance(place, str) and place.startswith(("http://", "https://")) and not any(c.isspace() for c in place):
            return place
    return ""
