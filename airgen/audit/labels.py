"""Audit the labels, and the choice between `relevance: answer` and `subject`, with people's answers.

runs/NAME/audit/, runs/NAME/audit-relevance/
    audit.html      for people: works without a server, saves audit-answers.json
    audit.csv       the same for a spreadsheet
    sample.json     the sample with what the judge or the votes say; people who answer should not open it
    result.json     what the answers say, for programs

The labels are those of a job, or of a dataset without its job, for which only the labels are known. To decide about
`relevance`, people are asked about ten queries with five passages each, besides the source: mostly passages that are
relevant only with `subject`, because the settings differ on these. Queries that `answer` would drop are used only if
there are too few others.
"""

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airgen.audit import answers as given
from airgen.audit.answers import AuditResult, Levels, Proportion
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
    load_sample,
    write_sample,
    yes_or_no,
)
from airgen.control.judge import judge_kind
from airgen.control.judgment import current
from airgen.control.text_pool import Pool
from airgen.control.votes import WAY, first, relevant, voted
from airgen.corpus.readers.metadata import metadata_of
from airgen.dataset.beir import BeirDataset
from airgen.dataset.derive import version_after, with_peoples_labels
from airgen.dataset.files import whole_file
from airgen.dataset.human_labels import NOTE, PersonsLabel, newer, note_text, pair_mark, read_labels, write_labels
from airgen.dataset.manifest import load_manifest
from airgen.dataset.verify import keep_card
from airgen.dataset.write import seal
from airgen.errors import AirgenError, DatasetError, SettingsError, UsageError, disk_error
from airgen.json_values import read_json, write_json
from airgen.keys import text_key
from airgen.paths import is_shipped
from airgen.pipeline.audit_answers import LABELS, document_texts, keep_checked
from airgen.pipeline.export import export_dataset
from airgen.pipeline.job import Job
from airgen.publishing.withhold import pair_of
from airgen.records import Decision, Judgment, Prelabel
from airgen.settings import RELEVANCE, JudgeSettings, Pipeline
from airgen.settings.base import parse_yaml
from airgen.steps.lineage import Lineage
from airgen.steps.progress import STATUS
from airgen.store import Store
from airgen.study import Shown, Table, columns

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
            f"{source}: no label of {split} has both its query and its passage in this dataset: "
            "the labels belong to another dataset"
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
        graded = (dataset.path / "qrels-graded").is_dir() and not dataset.info.get("levels")
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
    sample, gone = _as_it_is_now(drawn, items)
    if not sample.items:
        raise DatasetError(
            f"{folder}: none of the {len(drawn.items)} pairs of the sample has a label any more: draw another one with "
            "`airgen audit sample`"
        )
    numbers = {(item.query, item.document): number for number, item in enumerate(sample.items, 1)}
    moved = {
        number: numbers[pair]
        for number, item in enumerate(drawn.items, 1)
        if (pair := (item.query, item.document)) in numbers
    }
    people = [
        {moved[number]: level for number, level in person.answers.items() if number in moved} for person, _ in read
    ]
    lost = sum(number not in moved for person, _ in read for number in person.answers)
    others = [pair for person, _ in read for pair in person.others]
    result = dataclasses.replace(
        given.score(sample, people),
        chosen_by_hand=given.chosen_pairs(items, others, sample.relevant_from),
        gone=gone,
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
        return f"version {self.before} -> {self.version}: {note_text(self.change) or 'no label is of a person'}"


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
            f"{source.path}: the job is not finished: run it to its end first with `airgen run {source.path}`"
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


def _as_it_is_now(sample: AuditSample, items: Sequence[AuditItem]) -> tuple[AuditSample, int]:
    """Return the sample with the current labels, and the number of pairs that no longer have one."""
    now = {(item.query, item.document): item for item in items}
    same = [
        item for item in sample.items if (new := now.get((item.query, item.document))) and given.same_texts(item, new)
    ]
    left = [now[item.query, item.document] for item in same]
    populations = Counter(item.stratum for item in items)
    return dataclasses.replace(sample, items=tuple(left), populations=populations), len(sample.items) - len(left)


def _people(answers: Sequence[Path], sample: AuditSample) -> list[given.PersonsAnswers]:
    return [given.read_answers(path, sample.key, len(sample.items)) for path in answers]


QUERIES, PASSAGES = 10, 5

_QueryKinds = tuple[Lineage, dict[str, str]]  # a query, and the kinds of its passages

BOTH, WIDER, NEITHER = "relevant by both words", "relevant by subject alone", "relevant by neither word"
_LABELLED = {"answer": (BOTH,), "subject": (BOTH, WIDER)}
_ASKED = {WIDER: 3, BOTH: 1, NEITHER: 1}  # of five passages; if a kind has too few, the next kinds fill up

_ONE_SIDED_QUANTILE = 1.644854  # 95 %

_QUESTION = "If you had asked this, should a search find this document?"
_NOTE = (
    "You decide what is relevant here: only a document that answers the query, or also one about its subject. Judge "
    "all documents by the same rule."
)


@dataclass(frozen=True)
class RelevanceAudit(Shown):
    """The result of the audit of the two settings of `relevance`.

    `word` is the better setting, or None if the answers do not decide. `differ` is the share of relevant passages among
    those that are relevant only with `subject`, with a 90% interval; above `cut`, it favours `subject`, because these
    passages then raise the F1 of the labels (among passages that either setting calls relevant, including the sources).
    `figures` are the precision, recall and agreement with people of each setting's labels, among the recalled passages
    of the queries besides their sources, weighted by how they were drawn. `unanswered` passages have no level and are
    ignored. `gone` are pairs in the sample that no longer exist in the job.
    """

    word: str | None
    now: str
    differ: Proportion
    cut: float
    figures: Mapping[str, Mapping[str, Proportion]]
    queries: int
    people: int
    unanswered: int
    gone: int = 0

    def as_text(self) -> str:
        """Return the text for a terminal."""
        names = ("precision", "recall", "agreement")
        rows = [[name, *(f"{of[name]:.2f}" for of in self.figures.values())] for name in names]
        verdict = {
            "answer": f"`answer` fits: less than {self.cut:.2f}",
            "subject": f"`subject` fits: more than {self.cut:.2f}",
            None: f"the answers do not tell: it may be more or less than {self.cut:.2f}",
        }[self.word]
        return (
            f"{self.queries} queries; {self.unanswered} passages without an answer count nowhere"
            f"{f', nor do {self.gone} that are gone' if self.gone else ''}\n"
            f"{Table(rows, columns('besides the source', *self.figures)).text()}\n"
            f"of the passages that only `subject` calls relevant people confirm {self.differ:.2f} (90 %), by "
            f"{self.differ.count} answers\n{verdict}; the pipeline says {self.now}"
        )


def kinds(prelabels: Sequence[Prelabel], sources: Collection[str]) -> dict[str, str]:
    """Return, for each recalled passage of a query except its sources, the settings with which it is relevant."""
    shares = voted(prelabels, sources)
    narrow = relevant(shares, sources, "answer", len(prelabels))
    return {
        id_: BOTH if id_ in narrow else WIDER if share >= WAY["subject"] else NEITHER
        for id_, share in shares.items()
        if id_ not in sources
    }


def pick_passages(query: str, kinds_of: Mapping[str, str], seed: int = 0) -> list[str]:
    """Pick the passages to ask about from all passages with their kinds, in an order that does not reveal the kind."""
    places = {id_: text_key(f"relevance\x1f{seed}\x1f{query}\x1f{id_}") for id_ in kinds_of}
    by_kind = {
        kind: sorted((id_ for id_ in kinds_of if kinds_of[id_] == kind), key=places.__getitem__) for kind in _ASKED
    }
    chosen = [id_ for kind, count in _ASKED.items() for id_ in by_kind[kind][:count]]
    rest = [id_ for kind, count in _ASKED.items() for id_ in by_kind[kind][count:]]
    return sorted([*chosen, *rest[: PASSAGES - len(chosen)]], key=lambda id_: text_key(f"order\x1f{places[id_]}"))


def population(query: str, kind: str) -> str:
    """Return the name under which a sample stores the number of a query's passages of a kind."""
    return f"{query}: {kind}"


def draw_relevance(job: Job, out: Path, queries: int = QUERIES, seed: int = 0) -> AuditSample:
    """Draw the queries and passages, and write the page, the table and the sample to `out`, replacing an older sample.

    Raises DatasetError if the job is not finished or its labels do not depend on `relevance`, and StoreError if it was
    never run.
    """
    stable, others = list[_QueryKinds](), list[_QueryKinds]()
    with job.open_store(read_only=True) as store:
        for query, stays in _by_word(job, store, seed):
            (stable if stays else others).append(query)
            if len(stable) == queries:
                break
        asked = [*stable, *others][:queries]
        chosen = [
            (lineage, kind_of, id_)
            for lineage, kind_of in asked
            for id_ in pick_passages(lineage.final.key, kind_of, seed)
        ]
        texts = Pool.of(store, job.plan(store), job.accepted(store)).rows({id_ for _, _, id_ in chosen})
    if not chosen:
        raise DatasetError(f"{job.path}: the source of no query is found: there is nothing to ask about")
    ids, labelled = job.ids, _LABELLED[job.pipeline.relevance]
    items = tuple(
        AuditItem(
            query=ids.query(lineage),
            document=ids.document(id_),
            kind=kind_of[id_],
            level=None,
            relevant=kind_of[id_] in labelled,
            query_text=lineage.final.text,
            title=texts[id_][0],
            text=texts[id_][1],
        )
        for lineage, kind_of, id_ in chosen
    )
    counts = Counter(population(ids.query(lineage), kind) for lineage, kind_of in asked for kind in kind_of.values())
    relevant_from = job.pipeline.control.judge.relevant_from
    name, levels = f"{job.pipeline.name} (what is relevant)", yes_or_no(relevant_from)
    sample = AuditSample(
        dataset=name, relevant_from=relevant_from, items=items, populations=counts, levels=levels, question=_QUESTION
    )
    write_sample(sample, out, note=_NOTE)
    return sample


def score_relevance(job: Job, answers: Sequence[Path], folder: Path) -> RelevanceAudit:
    """Score the answers to the sample in `folder`, and save the result in its `result.json`.

    An answer is compared with the current votes or judgment of its pair, and pairs that no longer exist are ignored.
    Raises DatasetError if the answers are to another sample or no pairs are left.
    """
    drawn = load_sample(folder / "sample.json", "airgen audit relevance")
    ids, asked = job.ids, {item.query for item in drawn.items}
    now, counts = dict[tuple[str, str], str](), Counter[str]()
    with job.open_store(read_only=True) as store:
        for (lineage, kind_of), _ in _by_word(job, store):
            if (query := ids.query(lineage)) in asked:
                now |= {(query, ids.document(id_)): kind for id_, kind in kind_of.items()}
                counts.update(population(query, kind) for kind in kind_of.values())
    left = {
        number: dataclasses.replace(item, kind=now[item.query, item.document])
        for number, item in enumerate(drawn.items, 1)
        if (item.query, item.document) in now
    }
    if not left:
        raise DatasetError(
            f"{folder}: the job has none of the {len(drawn.items)} pairs of the sample any more: draw another one with "
            "`airgen audit relevance`"
        )
    places = {number: place for place, number in enumerate(left, 1)}
    people = [
        {places[number]: level for number, level in person.answers.items() if number in places}
        for person in _people(answers, drawn)
    ]
    sample = dataclasses.replace(drawn, items=tuple(left.values()), populations=counts)
    result = dataclasses.replace(say(sample, people, job.pipeline.relevance), gone=len(drawn.items) - len(left))
    write_json(folder / "result.json", result)
    return result


def say(sample: AuditSample, people: Sequence[Levels], now: str = "answer") -> RelevanceAudit:
    """Compute the figures of both settings from the answers. A passage with several answers gets the lower median
    level.

    Intervals are Wilson's, with Kish's effective number of passages. Raises DatasetError if there are no answers.
    """
    levels = {sample.items[number - 1]: level for number, level in given.middle_levels(people).items()}
    asked = Counter(population(item.query, item.kind) for item in levels)
    rows = []  # kind, whether people find it relevant, weight
    for item, level in levels.items():
        name = population(item.query, item.kind)
        rows.append((item.kind, level >= sample.relevant_from, sample.populations.get(name, 0) / asked[name]))
    figures = {
        word: {
            "precision": Proportion.of((good, weight) for kind, good, weight in rows if kind in labelled),
            "recall": Proportion.of((kind in labelled, weight) for kind, good, weight in rows if good),
            "agreement": Proportion.of((good == (kind in labelled), weight) for kind, good, weight in rows),
        }
        for word, labelled in _LABELLED.items()
    }
    differ = Proportion.of(((good, weight) for kind, good, weight in rows if kind == WIDER), _ONE_SIDED_QUANTILE)
    queries = len({item.query for item in levels})  # the same number of sources, which are relevant by both words
    labelled = queries + math.fsum(weight for kind, _, weight in rows if kind == BOTH)
    right = queries + math.fsum(weight for kind, good, weight in rows if kind == BOTH and good)
    wider = math.fsum(weight for kind, good, weight in rows if kind == WIDER and good)
    cut = right / (labelled + right + wider)  # half of the F1 of `answer`; a more probable answer raises it
    word = "subject" if differ.low > cut else "answer" if differ.high < cut else None
    return RelevanceAudit(
        word=word,
        now=now,
        differ=differ,
        cut=cut,
        figures=figures,
        queries=queries,
        people=len(people),
        unanswered=len(sample.items) - len(levels),
    )


def set_relevance(path: Path, word: str) -> None:
    """Set `relevance` in a pipeline's YAML, leaving everything else unchanged except the comment written by `airgen
    init`.

    Raises UsageError if the pipeline is not the user's own file, and SettingsError if the file cannot be changed.
    """
    if not path.is_file() or is_shipped(path):
        raise UsageError(f"{path}: is not your own pipeline file: copy it, and set relevance: {word} there")
    try:
        text = path.read_bytes().decode()
        changed, replacements = re.subn(
            r"""(?m)^(relevance:[ \t]*)["']?(?:answer|subject)\b["']?""", rf"\g<1>{word}", text
        )
        if not replacements:
            changed = re.sub(r"(?m)^task:[^\r\n]*(\r?\n)", rf"\g<0>relevance: {word}\1", text, count=1)
        for other in RELEVANCE:
            about = "relevant: {} (or {})"
            changed = changed.replace(about.format(RELEVANCE[other], word), about.format(RELEVANCE[word], other))
        if parse_yaml(changed, Pipeline, str(path), path.resolve().parent).relevance != word:
            raise SettingsError([f"{path}: `relevance` is not on a line of its own: set relevance: {word} yourself"])
        with whole_file(path) as fresh:
            fresh.write_bytes(changed.encode())
    except OSError as error:
        raise disk_error(error) from error


def _by_word(job: Job, store: Store, seed: int = 0) -> Iterator[tuple[_QueryKinds, bool]]:
    """Yield the queries in drawn order, with the kinds of their passages and whether `answer` keeps them.

    If an LLM gives levels, the two settings are two cutoffs between levels, so its judgments determine what is relevant
    with each setting. If it says yes or no, each setting has its own prompt; the passages that would be relevant only
    with `subject` are then those that the re-rankers score close enough to the source. Generated negatives are left
    out.

    Raises DatasetError if the job is not finished or has the user's own queries.
    """
    pipeline, accepted, plan = job.pipeline, job.accepted(store), job.plan(store)
    if pipeline.queries is not None:
        raise DatasetError(
            f"{job.path}: the queries are your own, and this audit is for generated ones: check their labels with "
            f"`airgen audit sample {job.path} 50`"
        )
    if "decision" not in plan:
        raise DatasetError(f"{job.path}: the job is not finished: run it to its end first with `airgen run {job.path}`")
    generated = {negative.id for lineage in accepted.lineages for negative in lineage.hard_negatives}

    def order(lineage: Lineage) -> str:
        return text_key(f"relevance\x1f{seed}\x1f{lineage.final.key}")

    for lineage in sorted(accepted.lineages, key=order):
        stages = [f"prelabel:{place}" for place in range(len(pipeline.control.rerankers))]
        rows = [row for stage in stages for row in store.rows_of(Prelabel, plan[stage], [lineage.final.key])]
        sources = [source.id for source in lineage.sources]
        whole = kinds(rows, sources) if len(rows) == len(stages) else {}  # else it came after the last finished run
        if pipeline.control.judge.members and rows:
            judged = store.rows_of(Judgment, plan["judgment"], [lineage.final.key])
            levels = {row.id: row.level for row in current(store, plan["corpus"], judged)}
            whole = _judged(pipeline, levels, voted_=whole, recalled=rows[0].ids, sources=sources)
        if kinds_of := {id_: kind for id_, kind in whole.items() if id_ not in generated}:
            yield (lineage, kinds_of), bool(pipeline.control.judge.members) or first(rows, sources)


def asks_again(pipeline: Pipeline) -> bool:
    """Return whether the other setting of `relevance` needs new judgments from an LLM."""
    return bool(pipeline.control.judge.members) and _cuts(pipeline)[1] is None


def _judged(
    pipeline: Pipeline,
    levels: Mapping[str, int],
    voted_: Mapping[str, str],
    recalled: Sequence[str],
    sources: Sequence[str],
) -> dict[str, str]:
    """Return with which setting each recalled passage of a query, except its sources, is relevant for the job's LLM
    judge."""
    answer, subject = _cuts(pipeline)
    kinds_of = {}
    for id_ in recalled:
        if id_ in sources:
            continue
        level = levels.get(id_, -1)
        if subject is None:  # the judge answers yes or no for one of the words
            yes, guess = level >= pipeline.control.judge.relevant_from, voted_.get(id_, NEITHER)
            if pipeline.relevance == "answer":
                kinds_of[id_] = BOTH if yes else WIDER if guess != NEITHER else NEITHER
            else:
                kinds_of[id_] = NEITHER if not yes else BOTH if guess == BOTH else WIDER
        else:
            kinds_of[id_] = BOTH if level >= answer else WIDER if level >= subject else NEITHER
    return kinds_of


def _cuts(pipeline: Pipeline) -> tuple[int, int | None]:
    """Return the lowest relevant levels for `answer` and `subject`, or None if they are not cutoffs of the same
    judge."""
    judge = pipeline.control.judge
    known = [judge_kind(member) for member in judge.members]
    if not all(kind.GRADED for kind in known):
        return judge.relevant_from, None
    default, wider = JudgeSettings.model_fields["relevant_from"].default, min(kind.SUBJECT[1] for kind in known)
    if pipeline.relevance == "subject":
        return max(default, judge.relevant_from + 1), judge.relevant_from
    return judge.relevant_from, min(wider, judge.relevant_from)
