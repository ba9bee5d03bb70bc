"""Audit the labels with people's answers.

runs/NAME/audit/
    audit.html      for people: works without a server, saves audit-answers.json
    audit.csv       the same for a spreadsheet
    sample.json     the sample with what the judge or the votes say; people who answer should not open it
    result.json     what the answers say, for programs

The labels are those of a job, or of a dataset without its job, for which only the labels are known.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airgen.audit import answers as given
from airgen.audit.answers import AuditResult
from airgen.audit.sample import (
    GRADED,
    LABELLED,
    QUESTION,
    SUBJECT,
    AuditItem,
    AuditSample,
    address_of,
    draw,
    earlier_samples,
    four_levels,
    has_levels,
    load_sample,
    write_sample,
    yes_or_no,
)
from airgen.corpus.readers.metadata import metadata_of
from airgen.dataset.beir import BeirDataset
from airgen.dataset.derive import version_after, with_peoples_labels
from airgen.dataset.human_labels import NOTE, PersonsLabel, newer, note_text, pair_mark, read_labels, write_labels
from airgen.dataset.manifest import load_manifest
from airgen.dataset.verify import keep_card
from airgen.dataset.write import seal
from airgen.display.study import Shown
from airgen.errors import AirgenError, DatasetError
from airgen.job.audit_answers import LABELS, document_texts, keep_checked
from airgen.job.export import export_dataset
from airgen.job.job import Job
from airgen.publishing.withhold import pair_of
from airgen.settings import Pipeline
from airgen.steps.judge import judge_kind
from airgen.steps.progress import STATUS
from airgen.steps.text_pool import Pool
from airgen.storage.json_values import read_json, write_json
from airgen.storage.records import Decision
from airgen.storage.store import Store

_KINDS = {  # decision -> kind of document, and whether it is relevant in the dataset
    "keep_query": ("positive", True),
    "add_positive": ("added positive", True),
    "keep_negative": ("generated negative", False),
    "drop_negative": ("dropped negative", True),
    "ignore": ("other", False),
    "add_negative": ("other", False),  # for the user's own queries
}


def _decided_items(job: Job) -> list[AuditItem]:
    """Return every decision of a finished job with its texts. Raises StoreError if the job was never run.

    The label is the model's, even if a person's label has replaced it, because an audit measures the model.
    """
    with job.open_store(read_only=True) as store:
        accepted = job.accepted(store)
        plan = job.plan(store)
        decisions: dict[str, list[Decision]] = {}
        for row in store.rows_of(Decision, plan.get("decision", ""), accepted.keys):
            decisions.setdefault(row.parent, []).append(row)
        decided = {row.id for rows in decisions.values() for row in rows if row.action in _KINDS}
        texts = Pool.of(store, plan, accepted).rows(decided)
        places = store.passages_named(plan["corpus"], decided, "t.document, t.metadata")
    ids, items = job.ids, []
    for lineage in accepted.lineages:
        for row in decisions.get(lineage.final.key, ()):
            if row.action not in _KINDS:
                continue
            kind, relevant = _KINDS[row.action]
            about = (ids.query(lineage), ids.document(row.id), kind, row.level, relevant)
            items.append(AuditItem(*about, lineage.final.text, *texts[row.id], _place(places.get(row.id))))
    return items


def _place(known: tuple[str, str] | None) -> str:
    """Return where a person can read the document: its URL if it has one, or else its name."""
    if known is None:
        return ""
    document, metadata = known
    return address_of(document, *metadata_of(metadata).values()) or document


def audited_items(source: Job | Path, split: str = "test") -> list[AuditItem]:
    """Return all items to draw from: the decisions of a job, or the labels of a dataset's split without its job.

    Raises DatasetError if the split has no labels.
    """
    if isinstance(source, Job):
        return _decided_items(source)
    dataset = BeirDataset.open(source)
    labels, queries = dataset.qrels(split).labels, dataset.queries(split)
    if not labels:
        raise DatasetError(f"{source}: no query of the split {split} has an answer, so there is nothing to draw")
    wanted = {passage for of_query in labels.values() for passage in of_query}
    texts = {
        row.id: (row.title, row.text, address_of(row.id, *row.metadata.values()) or row.id)
        for row in dataset.passages()
        if row.id in wanted
    }
    items = [
        AuditItem(
            query=query,
            document=passage,
            kind=LABELLED[label <= 0],
            level=None,
            relevant=label > 0,
            query_text=queries[query].text,
            title=texts[passage][0],
            text=texts[passage][1],
            source=texts[passage][2],
        )
        for query, of_query in labels.items()
        for passage, label in of_query.items()
        if query in queries and passage in texts
    ]
    if not items:
        raise DatasetError(
            f"{source}: no label of {split} has both its query and its passage in this dataset: the labels belong "
            f"to a different dataset"
        )
    return items


def draw_labels(source: Job | Path, count: int, out: Path, seed: int = 0, split: str = "test") -> AuditSample:
    """Draw a sample, and write the page, the table and the sample to `out`. An older sample is moved to `out/earlier`,
    and answers given in a live report remain valid for their pairs.

    Raises DatasetError if there is nothing to draw.
    """
    if isinstance(source, Job):
        name, cut = source.pipeline.name, source.pipeline.control.judge.relevant_from
        graded, subject = _is_graded(source.pipeline), source.pipeline.relevance == "subject"
    else:
        dataset = BeirDataset.open(source)
        name, cut = f"{dataset.name} {split}", int(str(dataset.info.get("relevant_from") or 2))
        graded = has_levels(dataset)
        subject = False
    sample = dataclasses.replace(
        draw(audited_items(source, split), count, dataset=name, relevant_from=cut, seed=seed),
        levels=four_levels() if graded else yes_or_no(cut),
        question=GRADED if graded else SUBJECT if subject else QUESTION,
    )
    write_sample(sample, out)
    given.carry_answers(out, sample)
    return sample


def _is_graded(pipeline: Pipeline) -> bool:
    """Return whether the job's labels are levels rather than yes or no."""
    judge = pipeline.control.judge
    return bool(judge.members) and all(judge_kind(member).GRADED for member in judge.members)


def score_labels(source: Job | Path, answers: Sequence[Path], folder: Path, split: str = "test") -> AuditResult:
    """Score the answers to the sample in `folder`, or to an earlier one. The result is written to the card of the job's
    dataset or, without a job, to the folder's `result.json`.

    An answer is about a pair of texts, so it remains valid if the pair's label changes. Pairs that no longer exist, or
    whose texts have changed, are ignored. Raises DatasetError if no pairs are left.
    """
    drawn, earlier = load_sample(folder / "sample.json"), earlier_samples(folder)
    read = [given.answers_of(path, drawn, earlier) for path in answers]
    items = audited_items(source, split)
    sample, moved = _as_it_is_now(drawn, items)
    if not sample.items:
        raise DatasetError(
            f"{folder}: none of the {len(drawn.items)} pairs in the sample still has a label: draw a new sample "
            f"with `airgen audit sample`"
        )
    people = [
        {moved[number]: level for number, level in person.answers.items() if number in moved} for person, _ in read
    ]
    lost = sum(number not in moved for person, _ in read for number in person.answers)
    others = [pair for person, _ in read for pair in person.others]
    result = dataclasses.replace(
        given.score(sample, people),
        chosen_by_hand=given.chosen_pairs(items, others, sample.relevant_from),
        gone=len(drawn.items) - len(moved),
        of_other_pairs=lost + sum(count for _, count in read),
    )
    if isinstance(source, Job):
        with source.open_store(read_only=True) as store:
            keep_checked(source.directory, source.plan(store).get("decision", ""), result.as_card())
        manifest = load_manifest(source.dataset)
        files = {name: entry for name, entry in manifest.files.items() if name not in ("README.md", "croissant.json")}
        keep_card(source.dataset, source.directory)
        seal(source.dataset, dataclasses.replace(manifest, files=files, audit=result.as_card()))
    else:
        write_json(folder / "result.json", result)
    return result


@dataclass(frozen=True)
class Applied(Shown):
    """A dataset with people's answers as labels: its location, its versions, and what changed."""

    dataset: Path
    before: str
    version: str
    change: dict[str, Any]

    def as_text(self) -> str:
        """Return the text for a terminal."""
        return f"version {self.before} -> {self.version}: {note_text(self.change) or 'no label is from a person'}"


def apply_answers(source: Job | Path, answers: Sequence[Path], folder: Path, split: str = "test") -> Applied:
    """Replace labels with people's answers in the next version of the dataset.

    A job saves them in `people.jsonl`, and its dataset is exported again, with the earlier one in `versions`. For a
    dataset without its job, the new dataset is in `folder/dataset`. Answers to pairs that a person chose, or whose
    label was in view, also become labels. Raises DatasetError if the job is not finished or no answer can become a
    label.
    """
    labels = _labels_of(answers, folder)
    if not labels:
        raise DatasetError(f"{answers[0]}: no answer has a level: there is no label to take")
    if not isinstance(source, Job):
        manifest = load_manifest(source)
        now = {(item.query, item.document): item.texts for item in audited_items(source, split)}
        labels = [label for label in labels if label.mark in ("", now.get((label.query, label.document), label.mark))]
        version = version_after(manifest.info.version, source.parent / "versions")
        out = folder / "dataset"
        newer_, change = with_peoples_labels(
            source, out, labels, version=version, split=split, pair=pair_of(source, manifest)
        )
        return Applied(out, manifest.info.version, newer_.info.version, change.as_note())
    if not source.finished():
        raise DatasetError(
            f"{source.path}: the job is not finished: run it to its end first with `airgen run {source.words}`"
        )
    path = source.directory / LABELS
    before, saved_labels = load_manifest(source.dataset).info.version, read_labels(path)
    try:
        with source.open_store() as store:
            write_labels(path, newer(saved_labels, _with_marks(source, store, labels)))
            keep_card(source.dataset, source.directory)
            manifest = export_dataset(source, store, source.accepted(store), source.dataset)
    except AirgenError:
        if saved_labels:
            write_labels(path, saved_labels)
        else:
            path.unlink(missing_ok=True)
        raise
    status = source.directory / STATUS
    write_json(status, {**read_json(status), "finished": source.identity})
    note = manifest.notes.get(NOTE)
    return Applied(source.dataset, before, manifest.info.version, dict(note) if isinstance(note, dict) else {})


def _with_marks(job: Job, store: Store, labels: Sequence[PersonsLabel]) -> list[PersonsLabel]:
    """Return the labels, each with the mark of its texts, or of the current texts for a pair that a person chose."""
    accepted, ids = job.accepted(store), job.ids
    wanted = {label.document for label in labels if not label.mark}
    texts = document_texts(store, job.plan(store), accepted=accepted, ids=ids, wanted=wanted) if wanted else {}
    queries = {ids.query(lineage): lineage.final.text for lineage in accepted.lineages}
    return [
        dataclasses.replace(label, mark=pair_mark(queries[label.query], *texts[label.document]))
        if not label.mark and label.query in queries and label.document in texts
        else label
        for label in labels
    ]


def _labels_of(answers: Sequence[Path], folder: Path) -> list[PersonsLabel]:
    """Return people's label for each pair, by the lower median of their levels, with the marks of the texts."""
    drawn = load_sample(folder / "sample.json")
    samples = {**earlier_samples(folder), drawn.key: drawn}
    levels: dict[tuple[str, str], list[int]] = {}
    reasons: dict[tuple[str, str], str] = {}
    marks: dict[tuple[str, str], str] = {}
    for path in answers:
        sample = samples.get(given.key_in(path), drawn)
        person = given.read_answers(path, sample.key, len(sample.items), sample.levels)
        answered = [
            (sample.items[number - 1], level, person.reasons.get(number, ""))
            for number, level in person.answers.items()
        ]
        for item, level, why in answered:
            pair = (item.query, item.document)
            marks[pair] = item.texts
            if level is not None:
                levels.setdefault(pair, []).append(level)
                reasons[pair] = why or reasons.get(pair, "")
        for other in person.others:
            if other.level is not None:
                levels.setdefault((other.query, other.document), []).append(other.level)
                reasons[other.query, other.document] = other.why
    return [
        PersonsLabel(
            *pair, sorted(given_levels)[(len(given_levels) - 1) // 2], reasons.get(pair, ""), marks.get(pair, "")
        )
        for pair, given_levels in levels.items()
    ]


def _as_it_is_now(sample: AuditSample, items: Sequence[AuditItem]) -> tuple[AuditSample, dict[int, int]]:
    """Return the sample with the current labels, without pairs that have none any more, and the new number of each pair
    by its number in the sample. A pair whose ids have changed is known by its texts."""
    now = {(item.query, item.document): item for item in items}
    by_texts = {item.texts: item for item in items if item.texts}
    left, moved = list[AuditItem](), dict[int, int]()
    for number, item in enumerate(sample.items, 1):
        current = now.get((item.query, item.document)) or by_texts.get(item.texts)
        if current is not None and given.same_texts(item, current):
            left.append(current)
            moved[number] = len(left)
    populations = Counter(item.stratum for item in items)
    return dataclasses.replace(sample, items=tuple(left), populations=populations), moved


def people_who_answered(answers: Sequence[Path], sample: AuditSample) -> list[given.PersonsAnswers]:
    return [given.read_answers(path, sample.key, len(sample.items), sample.levels) for path in answers]
