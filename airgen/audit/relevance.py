"""Decide between `relevance: answer` and `subject` with people's answers.

The files are in runs/NAME/audit-relevance/, named as those of the audit of labels. People are asked about ten queries
with five passages each, besides the source: mostly passages that are relevant only with `subject`, because the settings
differ on these. Queries that `answer` would drop are used only if there are too few others.
"""

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from airgen.audit import answers as given
from airgen.audit.answers import Levels, Proportion
from airgen.audit.labels import people_who_answered
from airgen.audit.sample import (
    AuditItem,
    AuditSample,
    load_sample,
    write_sample,
    yes_or_no,
)
from airgen.components.keys import text_key
from airgen.control.judgment import current
from airgen.display.study import Shown, Table, columns
from airgen.errors import DatasetError, SettingsError, UsageError, disk_error
from airgen.job.job import Job
from airgen.settings import RELEVANCE, JudgeSettings, Pipeline
from airgen.settings.base import parse_yaml
from airgen.steps.judge import judge_kind
from airgen.steps.lineage import Lineage
from airgen.steps.text_pool import Pool
from airgen.steps.votes import WAY, first, relevant, voted
from airgen.storage.json_values import write_json
from airgen.storage.paths import is_shipped
from airgen.storage.records import Judgment, Prelabel
from airgen.storage.store import Store
from airgen.storage.whole_files import whole_file

QUERIES, PASSAGES = 10, 5
_QueryKinds = tuple[Lineage, dict[str, str]]  # a query, and the kinds of its passages
BOTH, WIDER, NEITHER = "relevant by both words", "relevant by subject alone", "relevant by neither word"
_LABELLED = {"answer": (BOTH,), "subject": (BOTH, WIDER)}
_ASKED = {WIDER: 3, BOTH: 1, NEITHER: 1}  # of five passages; if a kind has too few, the next kinds fill up
_ONE_SIDED_QUANTILE = 1.644854  # 95 %
_QUESTION = "If you had asked this, should a search find this document?"
_NOTE = (
    "You decide what is relevant: only documents that answer the query, or also documents about its subject. "
    "Judge all documents by the same rule."
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
            None: f"the answers are inconclusive: it may be more or less than {self.cut:.2f}",
        }[self.word]
        return (
            f"{self.queries} queries; {self.unanswered} passages without an answer are not counted"
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
        raise DatasetError(f"{job.path}: no query retrieves its source, so there is nothing to ask about")
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
            f"{folder}: the job no longer has any of the {len(drawn.items)} pairs in the sample: draw a new "
            f"sample with `airgen audit relevance`"
        )
    places = {number: place for place, number in enumerate(left, 1)}
    people = [
        {places[number]: level for number, level in person.answers.items() if number in places}
        for person in people_who_answered(answers, drawn)
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
    if not pipeline.generates:
        raise DatasetError(
            f"{job.path}: the queries are your own, and this audit is for generated ones: check their labels with "
            f"`airgen audit sample {job.words} 50`"
        )
    if "decision" not in plan:
        raise DatasetError(
            f"{job.path}: the job is not finished: run it to its end first with `airgen run {job.words}`"
        )
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
