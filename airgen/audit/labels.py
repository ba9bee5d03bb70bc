"""Are the labels right, and does `relevance: answer` or `subject` fit? People answer, and the answers say.

runs/NAME/audit/, runs/NAME/audit-relevance/
    audit.html      for people: works without a server, saves audit-answers.json
    audit.csv       the same for a spreadsheet
    sample.json     the sample with what the judge or the votes say; people who answer should not open it
    result.json     what the answers say, for programs

The labels are those of a job, or of a dataset without its job, of which only the labels are known. About the word of
relevance ten queries are asked with five passages each besides the source: mostly passages that only `subject` calls
relevant, for on these the words differ. Queries that `answer` drops are asked about only where there are too few
others.
"""

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from airgen.audit import answers as given
from airgen.audit.answers import AuditResult, Levels, Proportion
from airgen.audit.sample import (
    LABELLED,
    AuditItem,
    AuditSample,
    draw,
    earlier_samples,
    load_sample,
    write_sample,
)
from airgen.control.pool import Pool
from airgen.control.votes import WAY, first, relevant, voted
from airgen.dataset.beir import BeirDataset
from airgen.dataset.files import whole_file
from airgen.dataset.manifest import load_manifest
from airgen.dataset.verify import keep_card
from airgen.dataset.write import seal
from airgen.errors import DatasetError, SettingsError, UsageError, disk_error
from airgen.kept import write_json
from airgen.keys import text_key
from airgen.paths import is_shipped
from airgen.pipeline.job import Job
from airgen.records import Decision, Prelabel
from airgen.settings import RELEVANCE, Pipeline
from airgen.settings.base import parse_yaml
from airgen.steps.lineage import Lineage
from airgen.store import Store
from airgen.study import Shown, Table, columns

_KINDS = {  # decision -> kind of document, and whether it is relevant in the dataset
    "keep_query": ("positive", True),
    "add_positive": ("added positive", True),
    "keep_negative": ("generated negative", False),
    "drop_negative": ("dropped negative", True),
    "ignore": ("other", False),
    "add_negative": ("other", False),  # of a query of the user's own
}


def _decided_items(job: Job) -> list[AuditItem]:
    """Every decision of a finished job with its texts. Raises StoreError if the job was never run."""
    with job.open_store(read_only=True) as store:
        accepted = job.accepted(store)
        plan = job.plan(store)
        decisions: dict[str, list[Decision]] = {}
        for row in store.made(Decision, plan.get("decision", ""), accepted.keys):
            decisions.setdefault(row.parent, []).append(row)
        decided = {row.id for rows in decisions.values() for row in rows if row.action in _KINDS}
        texts = Pool.of(store, plan, accepted).rows(decided)
    ids, items = job.ids, []
    for lineage in accepted.lineages:
        for row in decisions.get(lineage.final.key, ()):
            if row.action not in _KINDS:
                continue
            kind, relevant = _KINDS[row.action]
            about = (ids.query(lineage), ids.document(row.id), kind, row.level, relevant)
            items.append(AuditItem(*about, lineage.final.text, *texts[row.id]))
    return items


def audited_items(what: Job | Path, split: str = "test") -> list[AuditItem]:
    """All that can be drawn: the decisions of a job, or the labels of a split of a dataset without its job.

    Raises DatasetError if the split has no labels here.
    """
    if isinstance(what, Job):
        return _decided_items(what)
    dataset = BeirDataset.open(what)
    labels, queries = dataset.qrels(split).labels, dataset.queries(split)
    wanted = {passage for of_query in labels.values() for passage in of_query}
    texts = {row.id: (row.title, row.text) for row in dataset.passages() if row.id in wanted}
    found = [
        AuditItem(query, passage, LABELLED[label <= 0], None, label > 0, queries[query].text, *texts[passage])
        for query, of_query in labels.items()
        for passage, label in of_query.items()
        if query in queries and passage in texts
    ]
    if not found:
        raise DatasetError(f"{what}: no label of {split} has both its texts here: the labels are of another dataset")
    return found


def draw_labels(what: Job | Path, count: int, out: Path, seed: int = 0, split: str = "test") -> AuditSample:
    """Draw a sample, and write page, table and sample to `out`. An older one goes to `out/earlier`, and answers that a
    live report took stay answers to their pairs.

    Raises DatasetError where there is nothing to draw.
    """
    if isinstance(what, Job):
        name, cut = what.pipeline.name, what.pipeline.control.judge.relevant_from
    else:
        dataset = BeirDataset.open(what)
        name, cut = f"{dataset.name} {split}", int(str(dataset.info.get("relevant_from") or 2))
    sample = draw(audited_items(what, split), count, dataset=name, relevant_from=cut, seed=seed)
    write_sample(sample, out)
    given.carry_answers(out, sample)
    return sample


def score_labels(what: Job | Path, answers: Sequence[Path], folder: Path, split: str = "test") -> AuditResult:
    """Score the answers to the sample in `folder`, or to one that was drawn there before; the result goes into the card
    of the job's dataset, and without a job into the folder's `result.json`.

    An answer is to a pair of texts: it stays valid where the pair has another label now. Pairs that are gone count
    nowhere. Raises DatasetError if no pair is left.
    """
    drawn, earlier = load_sample(folder / "sample.json"), earlier_samples(folder)
    read = [given.answers_of(path, drawn, earlier) for path in answers]
    items = audited_items(what, split)
    sample, gone = _as_it_is_now(drawn, items)
    if not sample.items:
        raise DatasetError(
            f"{folder}: none of the {len(drawn.items)} pairs of the sample has a label any more: draw another one with "
            "`airgen audit sample`"
        )
    numbers = {(one.query, one.document): number for number, one in enumerate(sample.items, 1)}
    moved = {
        number: numbers[pair]
        for number, one in enumerate(drawn.items, 1)
        if (pair := (one.query, one.document)) in numbers
    }
    people = [
        {moved[number]: level for number, level in person.answers.items() if number in moved} for person, _ in read
    ]
    lost = sum(number not in moved for person, _ in read for number in person.answers)
    others = [one for person, _ in read for one in person.others]
    result = dataclasses.replace(
        given.score(sample, people),
        chosen_by_hand=given.chosen_pairs(items, others, sample.relevant_from),
        gone=gone,
        of_other_pairs=lost + sum(count for _, count in read),
    )
    if isinstance(what, Job):
        manifest = load_manifest(what.dataset)
        files = {name: entry for name, entry in manifest.files.items() if name not in ("README.md", "croissant.json")}
        keep_card(what.dataset, what.directory)
        seal(what.dataset, dataclasses.replace(manifest, files=files, audit=result.as_card()))
    else:
        write_json(folder / "result.json", result)
    return result


def _as_it_is_now(sample: AuditSample, items: Sequence[AuditItem]) -> tuple[AuditSample, int]:
    """The sample with the labels of today, and how many of its pairs have none any more."""
    now = {(one.query, one.document): one for one in items}
    left = [now[pair] for one in sample.items if (pair := (one.query, one.document)) in now]
    populations = Counter(one.stratum for one in items)
    return dataclasses.replace(sample, items=tuple(left), populations=populations), len(sample.items) - len(left)


def _people(answers: Sequence[Path], sample: AuditSample) -> list[given.PersonsAnswers]:
    return [given.read_answers(path, sample.key, len(sample.items)) for path in answers]


QUERIES, PASSAGES = 10, 5

_Found = tuple[Lineage, dict[str, str]]  # a query, and the kinds of its passages

BOTH, WIDER, NEITHER = "relevant by both words", "relevant by subject alone", "relevant by neither word"
_LABELLED = {"answer": (BOTH,), "subject": (BOTH, WIDER)}
_ASKED = {WIDER: 3, BOTH: 1, NEITHER: 1}  # of five passages; where one kind has too few, the next ones fill up

_ONE_SIDED = 1.644854  # 95 %

_QUESTION = "If you had asked this, should a search find this document?"
_NOTE = (
    "You decide what is relevant here: only a document that answers the query, or also one about its subject. Judge "
    "all documents by the same rule."
)


@dataclass(frozen=True)
class RelevanceAudit(Shown):
    """What people's answers say of the two words.

    word: the one that fits, None if the answers do not tell. differ: the share of relevant passages among those that
    only `subject` calls relevant, with a 90 % interval; above `cut` it speaks for `subject`, for then these passages
    raise the F1 of the labels (among what either word calls relevant, with the sources). figures: of each word's
    labels precision, recall and agreement with people, among the recalled passages of the asked queries besides their
    sources; passages are weighted by how they were drawn. unanswered: passages without a level, which count nowhere.
    """

    word: str | None
    now: str
    differ: Proportion
    cut: float
    figures: Mapping[str, Mapping[str, Proportion]]
    queries: int
    people: int
    unanswered: int

    def as_text(self) -> str:
        """For a terminal."""
        names = ("precision", "recall", "agreement")
        rows = [[name, *(f"{of[name]:.2f}" for of in self.figures.values())] for name in names]
        verdict = {
            "answer": f"`answer` fits: less than {self.cut:.2f}",
            "subject": f"`subject` fits: more than {self.cut:.2f}",
            None: f"the answers do not tell: it may be more or less than {self.cut:.2f}",
        }[self.word]
        return (
            f"{self.queries} queries; {self.unanswered} passages without an answer count nowhere\n"
            f"{Table(rows, columns('besides the source', *self.figures)).text()}\n"
            f"of the passages that only `subject` calls relevant people confirm {self.differ:.2f} (90 %), by "
            f"{self.differ.count} answers\n{verdict}; the pipeline says {self.now}"
        )


def kinds(prelabels: Sequence[Prelabel], sources: Collection[str]) -> dict[str, str]:
    """By which word's cut each recalled passage of a query is relevant, without its sources; empty if it has no cut."""
    found = voted(prelabels, sources)
    narrow = relevant(found, sources, "answer", len(prelabels))
    return {
        id_: BOTH if id_ in narrow else WIDER if share >= WAY["subject"] else NEITHER
        for id_, share in found.items()
        if id_ not in sources
    }


def pick(query: str, found: Mapping[str, str], seed: int = 0) -> list[str]:
    """The passages to ask about, of all passages with their kinds, in an order that does not show the kind."""
    places = {id_: text_key(f"relevance\x1f{seed}\x1f{query}\x1f{id_}") for id_ in found}
    of = {kind: sorted((id_ for id_ in found if found[id_] == kind), key=places.__getitem__) for kind in _ASKED}
    chosen = [id_ for kind, count in _ASKED.items() for id_ in of[kind][:count]]
    rest = [id_ for kind, count in _ASKED.items() for id_ in of[kind][count:]]
    return sorted([*chosen, *rest[: PASSAGES - len(chosen)]], key=lambda id_: text_key(f"order\x1f{places[id_]}"))


def population(query: str, kind: str) -> str:
    """The name under which a sample has the number of a query's passages of a kind."""
    return f"{query}: {kind}"


def draw_relevance(job: Job, out: Path, queries: int = QUERIES, seed: int = 0) -> AuditSample:
    """Draw the queries and passages, and write page, table and sample to `out`. An older sample there is replaced.

    Raises DatasetError for a job whose labels are no votes, or that is not finished; StoreError if it was never run.
    """
    kept, others = list[_Found](), list[_Found]()
    with job.open_store(read_only=True) as store:
        for found, stays in _voted(job, store, seed):
            (kept if stays else others).append(found)
            if len(kept) == queries:
                break
        asked = [*kept, *others][:queries]
        chosen = [(*found, id_) for found in asked for id_ in pick(found[0].final.key, found[1], seed)]
        texts = Pool.of(store, job.plan(store), job.accepted(store)).rows({id_ for _, _, id_ in chosen})
    if not chosen:
        raise DatasetError(f"{job.path}: the re-rankers find no query's source: there is nothing to ask about")
    ids, labelled = job.ids, _LABELLED[job.pipeline.relevance]
    items = tuple(
        AuditItem(ids.query(lineage), ids.document(id_), kind_of[id_], None, kind_of[id_] in labelled,
                  lineage.final.text, *texts[id_])
        for lineage, kind_of, id_ in chosen
    )  # fmt: skip
    counts = Counter(population(ids.query(lineage), kind) for lineage, kind_of in asked for kind in kind_of.values())
    relevant_from = job.pipeline.control.judge.relevant_from
    sample = AuditSample(f"{job.pipeline.name} (what is relevant)", relevant_from, items, counts)
    write_sample(sample, out, note=_NOTE, question=_QUESTION)
    return sample


def score_relevance(job: Job, answers: Sequence[Path], folder: Path) -> RelevanceAudit:
    """Score the answers to the sample in `folder`; the result is also in its `result.json`.

    Raises DatasetError for answers to another sample, or where the votes are others since it was drawn.
    """
    sample = load_sample(folder / "sample.json", "airgen audit relevance")
    people, ids = [person.answers for person in _people(answers, sample)], job.ids
    with job.open_store(read_only=True) as store:
        found = _voted(job, store)
        now = {(ids.query(one), ids.document(id_)): kind for (one, of), _ in found for id_, kind in of.items()}
    if changed := sum(now.get((item.query, item.document)) != item.kind for item in sample.items):
        raise DatasetError(
            f"{folder}: the votes on {changed} of {len(sample.items)} passages are others than when the sample was "
            "drawn: draw another one with `airgen audit relevance`"
        )
    result = say(sample, people, job.pipeline.relevance)
    write_json(folder / "result.json", result)
    return result


def say(sample: AuditSample, people: Sequence[Levels], now: str = "answer") -> RelevanceAudit:
    """What the answers say of both words. A passage with several answers gets the lower median of their levels.

    Intervals are Wilson's for Kish's effective number of passages. Raises DatasetError if nobody answered.
    """
    levels = {sample.items[number - 1]: level for number, level in given.middle_levels(people).items()}
    asked = Counter(population(one.query, one.kind) for one in levels)
    rows = []  # kind, whether people find it relevant, weight
    for one, level in levels.items():
        name = population(one.query, one.kind)
        rows.append((one.kind, level >= sample.relevant_from, sample.populations.get(name, 0) / asked[name]))
    figures = {
        word: {
            "precision": Proportion.of((good, weight) for kind, good, weight in rows if kind in labelled),
            "recall": Proportion.of((kind in labelled, weight) for kind, good, weight in rows if good),
            "agreement": Proportion.of((good == (kind in labelled), weight) for kind, good, weight in rows),
        }
        for word, labelled in _LABELLED.items()
    }
    differ = Proportion.of(((good, weight) for kind, good, weight in rows if kind == WIDER), _ONE_SIDED)
    queries = len({one.query for one in levels})  # as many sources, which are relevant by both words
    labelled = queries + math.fsum(weight for kind, _, weight in rows if kind == BOTH)
    right = queries + math.fsum(weight for kind, good, weight in rows if kind == BOTH and good)
    wider = math.fsum(weight for kind, good, weight in rows if kind == WIDER and good)
    cut = right / (labelled + right + wider)  # half of the F1 of `answer`: what is more probable raises it
    word = "subject" if differ.low > cut else "answer" if differ.high < cut else None
    return RelevanceAudit(word, now, differ, cut, figures, queries, len(people), len(sample.items) - len(levels))


def set_relevance(path: Path, word: str) -> None:
    """Write the word into a pipeline's YAML; all else in the file stays, but for the comment that `airgen init` writes.

    Raises UsageError for a pipeline that is no file of the user's own, SettingsError for a file that cannot be changed.
    """
    if not path.is_file() or is_shipped(path):
        raise UsageError(f"{path}: is no pipeline file of your own: copy it, and write relevance: {word} there")
    try:
        text = path.read_bytes().decode()
        changed, found = re.subn(r"""(?m)^(relevance:[ \t]*)["']?(?:answer|subject)\b["']?""", rf"\g<1>{word}", text)
        if not found:
            changed = re.sub(r"(?m)^task:[^\r\n]*(\r?\n)", rf"\g<0>relevance: {word}\1", text, count=1)
        for other in RELEVANCE:
            about = "relevant: {} (or {})"
            changed = changed.replace(about.format(RELEVANCE[other], word), about.format(RELEVANCE[word], other))
        if parse_yaml(changed, Pipeline, str(path), path.resolve().parent).relevance != word:
            raise SettingsError([f"{path}: `relevance` stands in no line of its own: write relevance: {word} yourself"])
        with whole_file(path) as fresh:
            fresh.write_bytes(changed.encode())
    except OSError as error:
        raise disk_error(error) from error


def _voted(job: Job, store: Store, seed: int = 0) -> Iterator[tuple[_Found, bool]]:
    """The queries in drawn order with the kinds of their passages, and whether `answer` keeps them.

    Generated negatives are left out. Raises DatasetError for a job that is not finished, or whose labels are no votes.
    """
    pipeline, accepted, plan = job.pipeline, job.accepted(store), job.plan(store)
    if pipeline.control.judge.members:
        raise DatasetError(f"{job.path}: an LLM judges here, not votes: `airgen audit sample` checks its labels")
    if pipeline.queries is not None:
        raise DatasetError(f"{job.path}: the queries are your own, and `relevance` does not change the votes on them")
    if "decision" not in plan:
        raise DatasetError(f"{job.path}: the job is not finished: run it to its end first with `airgen run {job.path}`")
    made = {one.id for lineage in accepted.lineages for one in lineage.hard_negatives}
    for lineage in sorted(accepted.lineages, key=lambda one: text_key(f"relevance\x1f{seed}\x1f{one.final.key}")):
        stages = [f"prelabel:{place}" for place in range(len(pipeline.control.rerankers))]
        rows = [row for stage in stages for row in store.made(Prelabel, plan[stage], [lineage.final.key])]
        sources = [one.id for one in lineage.sources]
        whole = kinds(rows, sources) if len(rows) == len(stages) else {}  # else it came after the last finished run
        if found := {id_: kind for id_, kind in whole.items() if id_ not in made}:
            yield (lineage, found), first(rows, sources)
