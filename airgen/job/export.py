"""Make a dataset from decisions, in three steps: labels, queries and the corpus.

Control characters and escape sequences from documents and models are kept out of the dataset.
"""

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airgen.components.keys import rng
from airgen.control.decision import DECISIONS
from airgen.control.label_agreement import label_agreement
from airgen.control.mined_negative import mined_by_query
from airgen.corpus.cleaning.filters import normalise, normalise_line
from airgen.corpus.cleaning.mask_personal_data import is_unmasked, what_remains
from airgen.corpus.readers.metadata import metadata_of
from airgen.dataset.beir import BeirDataset
from airgen.dataset.content import (
    ANSWERED,
    FILTER,
    MEAN_OVERLAP,
    NAMED_OVERLAP,
    OVERLAP,
    RESERVED,
    TITLE_OVERLAP,
    WORDING,
    AnswerRow,
    CorpusRow,
    DatasetContent,
    DatasetInfo,
    FunnelStep,
    ModelUse,
    ParentRow,
    QrelRow,
    QueryRow,
    WordingRow,
)
from airgen.dataset.human_labels import AGREEMENT, NOTE, PEOPLE, PersonsLabel, override
from airgen.dataset.manifest import MANIFEST, Manifest
from airgen.dataset.write import write_dataset
from airgen.errors import DatasetError, UsageError
from airgen.evaluation.systems import model_or_kind
from airgen.generation.generate import judged_away
from airgen.generation.wording import choose
from airgen.job.audit_answers import LABELS, checked, labels_in_force
from airgen.job.funnel import funnel
from airgen.job.job import Job
from airgen.job.real_queries import named_queries, real_overlap
from airgen.job.refresh import next_version
from airgen.job.typography import HouseStyle
from airgen.job.unanswerable import DECOYS, HeldOut, hold_out
from airgen.llms.prompts import Prompt
from airgen.retrievers.model_facts import shown_name
from airgen.retrievers.model_setup import kept_setups
from airgen.safety.escaping import one_line, plain_text
from airgen.settings import LlmSettings, Pipeline
from airgen.settings.languages import language_name
from airgen.settings.spec import Spec
from airgen.steps.accepted import Accepted
from airgen.steps.ask import money
from airgen.steps.judge import judge_kind
from airgen.steps.lineage import Lineage
from airgen.steps.public_ids import PublicIds
from airgen.steps.step import Plan, stage_prompt
from airgen.steps.votes import FEW, SOURCE_LABEL, least_share, source_label
from airgen.storage.records import Character, Decision, HardNegative, Passage, ReferenceAnswer, Rewrite, Scenario
from airgen.storage.store import Store
from airgen.text.mistyping import AS_WRITTEN, mistyped
from airgen.text.overlap import Overlap, overlap
from airgen.text.token_counts import load_tokenizer

ABLATIONS = ("control", "correction", "negatives", "rewrite")

Labels = Mapping[str, Sequence[Decision]]
"""Decisions by the key of the final query."""


def export_dataset(job: Job, store: Store, accepted: Accepted, out: Path, without: Collection[str] = ()) -> Manifest:
    """Write the dataset from the rows in the work database.

    `without` selects an ablation from Table 5 of the paper. Without `control`, all candidates are kept, including those
    judged bad. Without `correction`, only accepted candidates are kept, with the labels from generation. Without
    `rewrite`, queries have their original text and the labels of the rewritten query. Without `negatives`, there are no
    hard negatives. Raises DatasetError if no query is left, and UsageError if quality control has not run with these
    settings.
    """
    plan = job.plan(store)
    if DECISIONS.name not in plan:
        raise UsageError(f"{job.path}: quality control has not run with these settings: run `airgen run` first")
    content = assemble(job, store, plan=plan, accepted=accepted, without=without)
    if out == job.dataset and not without:
        content = next_version(store, plan["corpus"], content, out)
    return write_dataset(out, content)


def exported_queries(dataset: Path) -> dict[str, tuple[str, bool]]:
    """Return the split of each query in a finished dataset, and whether it has an answer; empty if there is none."""
    if not (dataset / MANIFEST).is_file():
        return {}
    queries = BeirDataset.open(dataset).queries()
    return {
        id_: (str(query.metadata.get("split", "")), query.metadata.get(ANSWERED) is not False)
        for id_, query in queries.items()
    }


def moved_queries(before: Mapping[str, tuple[str, bool]], after: Mapping[str, tuple[str, bool]]) -> Iterator[str]:
    """Say which earlier queries are in another split, or have gained or lost their answer; see `exported_queries`."""
    both = before.keys() & after.keys()
    for query in sorted(both):
        if before[query][0] != after[query][0]:
            yield f"query {query} moved from {before[query][0]} to {after[query][0]}, so that the ratio is exact"
    for answered, words in ((False, "no longer have an answer"), (True, "have an answer now")):
        changed = sorted(query for query in both if before[query][1] is not answered is after[query][1])
        if changed:
            more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
            yield f"earlier queries that {words} (generation.unanswerable): {', '.join(changed[:5])}{more}"


def assemble(job: Job, store: Store, plan: Plan, accepted: Accepted, without: Collection[str]) -> DatasetContent:
    """Assemble the content of the dataset. `accepted` are the queries that generation accepted."""
    pipeline, ids = job.pipeline, job.ids
    judged: dict[str, list[Decision]] = {}
    for row in store.rows_of(Decision, plan["decision"], accepted.keys):
        judged.setdefault(row.parent, []).append(row)
    labels = _labels(pipeline, accepted, judged, without)
    sure = source_label(pipeline) if labels is judged else 1
    lineages, steps = _queries(pipeline, accepted, labels, without), list[FunnelStep]()
    held = _held_out(ids, accepted, judged)
    answered = [lineage for lineage in lineages if lineage.final.key not in held.queries]
    if held.queries:
        lost = len(lineages) - len(answered)
        reasons = {"their relevant passages were taken out": lost} if lost else {}
        steps.append(FunnelStep("queries with an answer", len(lineages), len(answered), reasons))
    worded = _worded(job, store, plan, lineages, judged)  # the same in every ablation
    rows = list(_query_rows(ids, lineages, labels, held, worded, original="rewrite" in without))
    if rows and not any(row.metadata.get(ANSWERED, True) for row in rows):
        raise DatasetError(
            f"none of the {len(rows)} queries has a relevant passage: inspect some with `airgen show`, and try "
            f"another judge, or more retrievers (control.pools)"
        )
    negatives = _negatives(accepted, lineages, labels) - held.passages
    if "negatives" in without:
        # A negative that was generated for one query may have become another's positive; it is removed as well.
        negatives, generated = set(), _negatives_of(lineages)
        labels = {key: [row for row in rows_ if row.id not in generated] for key, rows_ in labels.items()}
    gone = held.passages | (_negatives_of(accepted.lineages) - negatives)  # not in the corpus of the dataset
    mined = {} if without else mined_by_query(store, plan, [lineage.final.key for lineage in lineages])
    tokenizer = load_tokenizer(job.corpus.tokenizer, pipeline.language)
    qrels = list(_qrels(answered, labels, mined=mined, gone=gone, ids=ids, sure=sure))
    uses, notes, people, old = list[ModelUse](), dict[str, Any](), list[PersonsLabel](), 0
    if not without:
        people, old = labels_in_force(job.directory, store, plan=plan, accepted=accepted, ids=ids)
    if people or old:
        absent, before = {ids.document(id_) for id_ in gone}, len(rows)
        qrels, rows, change = override(qrels, rows, people, pipeline.control.judge.relevant_from, absent=absent)
        left = {row.id for row in rows}
        answered = [lineage for lineage in answered if ids.query(lineage) in left]
        reasons = {"people find none of its passages relevant": before - len(rows)} if len(rows) < before else {}
        steps.append(FunnelStep("people's labels", before, len(rows), reasons))
        uses.append(ModelUse("labels", PEOPLE))
        notes[NOTE] = {**change.as_note(), **({"of other texts, left out": old} if old else {})}
        if not rows:
            raise DatasetError(
                f"by people's answers no query has a relevant passage: see {job.directory / LABELS}; a file that is "
                "moved away counts no more"
            )
    systems = [system.name for system in job.recall_systems or ()]
    decisions = [row for judged_rows in labels.values() for row in judged_rows]
    if agreed := label_agreement(store, plan, pipeline.control, decisions):
        notes[AGREEMENT] = agreed
    return DatasetContent(
        info=_info(job),
        corpus=_corpus(
            store, plan, lineages=[*accepted.lineages, *lineages], gone=gone, ids=ids
        ),  # a dropped query's negatives remain
        queries=rows,
        qrels=qrels,
        provenance=[*provenance(job, systems), *uses],
        funnel=[*funnel(store, job.flow, plan=plan, accepted=accepted, decisions=decisions), *steps],
        pipeline_yaml=job.text,
        secret=job.secret.keep() if pipeline.export.secret else None,
        audit=None if without else checked(job.directory, plan["decision"]),
        notes={
            **notes,
            **({"passages taken out": _taken_out(held)} if held.queries else {}),
            **({OVERBILLED: "; ".join(map(str, overbilled))} if (overbilled := money(store).overbilled) else {}),
        },
        wordings=[row for lineage in answered for row in worded[lineage.final.key].rows(ids.query(lineage))],
        lineage=list(_lineage(answered, mined, ids)),
        answers=list(_answers(answered, gone, ids)),
        parents=_parents(store, plan, gone, ids) if job.corpus.chunk is not None and pipeline.task == "qa" else (),
        count_tokens=lambda text: tokenizer.count([text])[0],
    )


def _labels(pipeline: Pipeline, accepted: Accepted, judged: Labels, without: Collection[str]) -> Labels:
    """Return the labels, or those from generation alone, where a query's source is positive and its negatives are
    not."""
    uncorrected = [name for name in ("control", "correction") if name in without]
    if not uncorrected:
        return judged
    if not pipeline.generates:
        raise UsageError(f"--without {uncorrected[0]}: the labels of your own queries come from quality control alone")
    labels = {}
    for lineage in [*accepted.lineages, *(judged_away(accepted, pipeline.target) if "control" in without else ())]:
        key, (source, *further) = lineage.final.key, lineage.sources
        actions = [(source.id, "keep_query"), *((more.id, "add_positive") for more in further)]
        actions += [(negative.id, "keep_negative") for negative in lineage.hard_negatives]
        labels[key] = [
            Decision(key="", parent=key, fingerprint="", ordinal=0, id=id_, action=action, reason="no control")
            for id_, action in actions
        ]
    return labels


def _queries(pipeline: Pipeline, accepted: Accepted, labels: Labels, without: Collection[str]) -> list[Lineage]:
    """Return the queries that were not dropped, or all queries without quality control."""
    fallen = _of_action(labels, "drop_query", "parent")
    left = [lineage for lineage in accepted.lineages if lineage.final.key not in fallen]
    return [*left, *(judged_away(accepted, pipeline.target) if "control" in without else ())]


def _held_out(ids: PublicIds, accepted: Accepted, judged: Labels) -> HeldOut:
    """Return the queries whose answers are left out, the same in every ablation."""
    share = ids.pipeline.unanswerable
    if not share:
        return HeldOut()
    dropped, decoys = _of_action(judged, "drop_query", "parent"), 0 if ids.secret is None else DECOYS
    return hold_out(accepted.lineages, judged, share=share, dropped=dropped, place=ids.place, decoys=decoys)


def _taken_out(held: HeldOut) -> str:
    answers = len(held.passages) - held.decoys
    more = f"; {held.decoys} of queries that others answer, so that a gap tells nothing" if held.decoys else ""
    return f"{answers} that answer {len(held.queries)} queries{more}"


def _negatives(accepted: Accepted, lineages: Sequence[Lineage], labels: Labels) -> set[str]:
    """Return the generated passages to keep: negatives, unlabelled passages, and those of which only the query was
    dropped.
    """
    fallen = _of_action(labels, "drop_query", "parent")
    unlabelled = _negatives_of([lineage for lineage in accepted.lineages if lineage.final.key in fallen])
    return _of_action(labels, "keep_negative", "id") | (unlabelled - _of_action(labels, "drop_negative", "id"))


def _of_action(labels: Labels, action: str, of: str) -> set[str]:
    return {getattr(row, of) for rows in labels.values() for row in rows if row.action == action}


def _negatives_of(lineages: Iterable[Lineage]) -> set[str]:
    return {negative.id for lineage in lineages for negative in lineage.hard_negatives}


def _info(job: Job) -> DatasetInfo:
    pipeline, corpus, more = job.pipeline, job.corpus, dict[str, Any]()
    if pipeline.cross_lingual:
        asked, documents_language = language_name(pipeline.query_language), language_name(pipeline.language)
        more["languages"] = (pipeline.language, pipeline.query_language)
        more["description"] = f"Cross-lingual retrieval: queries in {asked}, documents in {documents_language}."
    return DatasetInfo(
        name=pipeline.name,
        task=pipeline.task,
        domain=pipeline.domain,
        language=pipeline.language,
        source_licence=corpus.licence,
        labels_licence=pipeline.export.licence,
        version=pipeline.export.version,
        seed=None if pipeline.export.secret or pipeline.seed == "secret" else pipeline.seed,
        splits=dict(pipeline.export.splits),
        source=corpus.source,
        relevant_from=pipeline.control.judge.relevant_from,
        tokenizer=corpus.tokenizer,
        levels=_levels(pipeline),
        personal_data=what_remains(corpus, pipeline.task),
        unmasked=is_unmasked(corpus, pipeline.task),
        **more,
    )


def _levels(pipeline: Pipeline) -> dict[int, str]:
    """Return the meaning of levels that are not worded as in Table 8: quarters of a probability, or votes."""
    judge = pipeline.control.judge
    if judge.labels_only:
        return {0: "not relevant by the labels given", judge.relevant_from: "relevant by the labels given"}
    if not judge.members:
        meaning = "every re-ranker scores it close to the source of the query"
        if math.isinf(least_share(pipeline.relevance, len(pipeline.control.rerankers))):
            meaning += "; for a generated query only the source, as one re-ranker is not a majority"
        elif pipeline.relevance == "answer":
            meaning += f"; for a generated query only the source if more than {FEW} others are as near"
        more = f"; the source has the label {SOURCE_LABEL}" if source_label(pipeline) > 1 else ""
        return {0: f"not so: {meaning}", judge.relevant_from: meaning + more}
    if judge.panel or judge_kind(judge).GRADED:
        return {}
    threshold = judge.threshold
    middle = (1 + threshold) / 2
    return {
        0: f"probability of Yes below {threshold / 2:.2f}",
        1: f"probability of Yes from {threshold / 2:.2f} to {threshold:.2f}",
        2: f"probability of Yes from {threshold:.2f} to {middle:.2f}",
        3: f"probability of Yes from {middle:.2f}",
    }


def _corpus(
    store: Store, plan: Plan, lineages: Sequence[Lineage], gone: Set[str], ids: PublicIds
) -> Iterator[CorpusRow]:
    style = HouseStyle()
    for passage in store.passages(plan["corpus"]):
        style.see(passage.title, passage.text)
        if passage.id not in gone:
            yield CorpusRow(
                ids.document(passage.id), plain_text(passage.title), plain_text(passage.text), _metadata(passage)
            )
    written = {negative.id: (lineage.passage, negative) for lineage in lineages for negative in lineage.hard_negatives}
    yield from _generated([row for id_, row in sorted(written.items()) if id_ not in gone], ids.document, style)


def _generated(
    negatives: Iterable[tuple[Passage, HardNegative]], name_of: Callable[[str], str], style: HouseStyle
) -> Iterator[CorpusRow]:
    """Make generated documents, each with its source. Only their words distinguish them from passages: they have the
    characters and typography of the corpus, and a title if and only if their source has one.
    """
    for source, negative in negatives:
        text = normalise(style.text(normalise(negative.text)))
        title = normalise_line(style.title(normalise_line(negative.title), text)) if source.title else ""
        yield CorpusRow(name_of(negative.id), plain_text(title), plain_text(text), _metadata(source))


def _metadata(passage: Passage) -> dict[str, Any] | None:
    """Return the metadata of a passage that the corpus YAML names. A generated document has its source's."""
    metadata = metadata_of(passage.metadata)
    return {name: _text_of(value) for name, value in metadata.items()} or None


def _text_of(value: Any) -> Any:
    return plain_text(value) if isinstance(value, str) else value


def _parents(store: Store, plan: Plan, gone: Set[str], ids: PublicIds) -> Iterator[ParentRow]:
    """Yield the documents that passages are chunks of, and the positions of the chunks."""
    for passage in store.passages(plan["corpus"]):
        if passage.id not in gone:
            yield ParentRow(ids.document(passage.id), ids.document(passage.document), passage.start, passage.end)


@dataclass(frozen=True)
class _Worded:
    """The texts of a query by wording, with their overlaps, and the wording that was chosen.

    A query that was not generated from a need has one text, whose wording has no name.
    """

    texts: Mapping[str, str]
    overlaps: Mapping[str, Overlap | None]
    sources: Mapping[str, Overlap | None]
    chosen: str = ""

    @property
    def text(self) -> str:
        """Return the text of the chosen wording."""
        return self.texts[self.chosen]

    @property
    def about(self) -> dict[str, str | float | None]:
        """Return the metadata of the query: the overlap of its text and, for a need, the name of its wording."""
        measured = self.overlaps[self.chosen]
        shares: dict[str, float | None] = dict.fromkeys((OVERLAP, NAMED_OVERLAP, TITLE_OVERLAP, MEAN_OVERLAP))
        if measured is not None:
            values = (measured.best, measured.named, measured.title, measured.mean)
            shares = {name: round(value, 3) for name, value in zip(shares, values, strict=True)}
        return {
            **shares,
            **({WORDING: self.chosen} if self.chosen else {}),
        }

    def best(self, name: str) -> float | None:
        """Return the overlap of a wording with the answering passage that has most of its words."""
        measured = self.overlaps[name]
        return None if measured is None else round(measured.best, 3)

    def of_source(self, name: str) -> float | None:
        """Return the overlap of a wording with the passages that its need was written from."""
        measured = self.sources[name]
        return None if measured is None else round(measured.best, 3)

    def rows(self, query: str) -> Iterator[WordingRow]:
        """Yield all wordings of the query with this id."""
        for name, text in self.texts.items() if self.chosen else ():
            yield WordingRow(query, name, plain_text(text), self.of_source(name))


def _worded(job: Job, store: Store, plan: Plan, lineages: Sequence[Lineage], labels: Labels) -> dict[str, _Worded]:
    """Return the wordings of each query by its key, measured against all passages that answer it."""
    pipeline, settings = job.pipeline, job.pipeline.generation.wording
    positive = {
        lineage.final.key: [
            *(source.id for source in lineage.sources),
            *(row.id for row in labels.get(lineage.final.key, ()) if _SCORES.get(row.action)),
        ]
        for lineage in lineages
    }
    texts: dict[str, tuple[str, str]] = {
        row.id: (row.title, row.text) for lineage in lineages for row in lineage.hard_negatives
    }
    texts |= store.passages_named(plan["corpus"], {id_ for ids in positive.values() for id_ in ids}, "t.title, t.text")

    def measured(named: Mapping[str, str], ids: Iterable[str]) -> dict[str, Overlap | None]:
        passages = [texts[id_] for id_ in dict.fromkeys(ids) if id_ in texts]
        if pipeline.cross_lingual:
            return dict.fromkeys(named)
        return {name: overlap(text, passages, pipeline.language) for name, text in named.items()}

    worded = []
    for lineage in lineages:
        named = lineage.wordings or {"": lineage.final.text}
        sources = [source.id for source in lineage.sources]
        worded.append(_Worded(named, measured(named, positive[lineage.final.key]), measured(named, sources)))
    keys = [lineage.final.key for lineage in lineages]
    if pipeline.generation.method != "needs":
        return dict(zip(keys, worded, strict=True))
    target = None if named_queries(pipeline) is None else real_overlap(job, store, plan)
    chosen = choose([{name: row.of_source(name) for name in row.texts} for row in worded], settings, keys, target)
    return {key: replace(row, chosen=name) for key, row, name in zip(keys, worded, chosen, strict=True)}


def _kept_columns(lineages: Sequence[Lineage]) -> dict[str, dict[str, Any]]:
    """Return {column of the user's queries: {key of a query: value}}. A column with values of several types is text."""
    columns: dict[str, dict[str, Any]] = {}
    for lineage in lineages:
        for name, value in json.loads((lineage.own and lineage.own.metadata) or "{}").items():
            if name not in RESERVED:
                columns.setdefault(plain_text(name), {})[lineage.final.key] = _text_of(value)
    return {
        name: values
        if len(set(map(type, values.values()))) == 1
        else {key: str(value) for key, value in values.items()}
        for name, values in columns.items()
    }


def _query_rows(
    ids: PublicIds,
    lineages: Sequence[Lineage],
    labels: Labels,
    held: HeldOut,
    worded: Mapping[str, _Worded],
    *,
    original: bool,
) -> Iterator[QueryRow]:
    splits = ids.splits(lineages)
    columns = _kept_columns(lineages)
    for lineage in lineages:
        split, wording = splits[lineage.final.key], worded[lineage.final.key]
        if lineage.own is not None:
            judged = labels.get(lineage.final.key, ())
            answered = any(row.action == "add_positive" for row in judged)
            facts = {name: values.get(lineage.final.key) for name, values in columns.items()}
            facts |= {"count": lineage.own.count, ANSWERED: answered, "judged": len(judged)}
            wanted = json.loads(lineage.own.filter or "{}")
            facts |= {f"{FILTER}{name}": value for name, value in wanted.items()} | wording.about
            yield QueryRow(ids.query(lineage), plain_text(lineage.own.text), split, facts)
            continue
        assert lineage.query is not None
        last = lineage.rewrites[-1] if lineage.rewrites else None
        metadata: dict[str, str | int | float | bool | None] = {
            "type": lineage.query.type,
            "length": lineage.query.length,
            "information": lineage.query.information,
            "style": last.style if last else "",
            "rewritten": last is not None,
        }
        if ids.pipeline.generation.multi_hop:
            metadata["hops"] = len(lineage.sources)
        if ids.pipeline.generation.unanswerable:
            metadata[ANSWERED] = lineage.final.key not in held.queries
        known = metadata_of(lineage.passage.metadata)
        metadata |= {f"{FILTER}{name}": _scalar(known.get(name)) for name in ids.pipeline.generation.filters}
        metadata |= wording.about
        text = lineage.query.text if original else wording.text
        if share := ids.pipeline.generation.mistyped:
            # After the labels are made, which are those of the intended query.
            random, metadata[TYPING] = rng(lineage.final.key, TYPING), AS_WRITTEN
            if random.random() < share:
                text, metadata[TYPING] = mistyped(text, ids.pipeline.query_language, random)
        yield QueryRow(ids.query(lineage), plain_text(text), split, metadata)


OVERBILLED = "bills above the maximum"
"""The manifest note for each model whose server billed calls above their maximum cost."""

TYPING = "typing"
"""The metadata field for the typing error of a query, if the pipeline generates errors."""


def _scalar(value: Any) -> str | int | float | bool | None:
    return value if value is None or isinstance(value, str | int | float | bool) else ", ".join(map(str, value))


_SCORES = {"keep_query": 1, "add_positive": 1, "keep_negative": 0, "add_negative": 0}
"""The labels for decisions; other decisions have no label."""


def _qrels(
    lineages: Sequence[Lineage],
    labels: Labels,
    mined: Mapping[str, Sequence[HardNegative]],
    gone: Set[str],
    ids: PublicIds,
    sure: int,
) -> Iterator[QrelRow]:
    """Yield the labels of queries. `sure` is the label of a source."""
    for lineage in lineages:
        judged = {row.id: row for row in labels.get(lineage.final.key, ()) if row.id not in gone}
        if lineage.own is not None and not any(row.action == "add_positive" for row in judged.values()):
            continue  # unanswerable: its metadata says so, and no mean includes it
        query, sources = ids.query(lineage), {source.id for source in lineage.sources}
        for id_ in (negative.id for negative in mined.get(lineage.final.key, ()) if negative.id not in gone):
            level, gain = (judged[id_].level, judged[id_].probability) if id_ in judged else (None, None)
            yield QrelRow(query=query, document=ids.document(id_), score=0, level=level, gain=gain)
        for row in judged.values():
            if row.action in _SCORES:
                score = _SCORES[row.action] * (sure if row.id in sources else 1)
                yield QrelRow(
                    query=query, document=ids.document(row.id), score=score, level=row.level, gain=row.probability
                )


def _answers(lineages: Sequence[Lineage], gone: Set[str], ids: PublicIds) -> Iterator[AnswerRow]:
    """Return reference answers with their position in the exported text, except for texts that are not in the
    corpus."""
    for lineage in lineages:
        for row in lineage.every(ReferenceAnswer):
            source = next(source for source in lineage.sources if row.quote in plain_text(source.text))
            if source.id in gone:
                continue
            start = plain_text(source.text).index(row.quote)
            yield AnswerRow(
                query=ids.query(lineage),
                document=ids.document(source.id),
                text=plain_text(row.text),
                quote=row.quote,
                start=start,
                end=start + len(row.quote),
            )


def provenance(job: Job, systems: Sequence[str] = ()) -> list[ModelUse]:
    """Return the models of a job with their roles and prompts. `systems` are the user's own in the recall."""
    pipeline, prompts, uses = job.pipeline, job.prompts, []

    def asked(role: str, prompt: Prompt, llm: LlmSettings) -> ModelUse:
        return ModelUse(role, llm.model, prompt.name, f"{prompt.version} ({prompt.fingerprint[:8]})")

    for stage in job.flow.every:
        if stage.prompt is not None and stage.asks(pipeline):
            prompt = stage_prompt(pipeline, prompts, stage.prompt(pipeline))
            uses.append(asked(stage.name.replace("_", " "), prompt, pipeline.llm))
    if pipeline.generation.meaning:
        uses.append(ModelUse("check of a rewrite's meaning", pipeline.generation.meaning.model.name))
    recallers, voters = pipeline.control.recallers.values(), pipeline.control.voters.values()
    uses += [_ran("recall", spec, job.embeddings) for spec in recallers]
    uses += [ModelUse("recall, as a system of the user's", name) for name in (systems if recallers else ())]
    uses += [_ran("re-ranker (pre-label)", spec, job.embeddings) for spec in voters]
    for judge in pipeline.control.judge.members:
        about = judge_kind(judge).ABOUT.format(threshold=judge.threshold)
        uses.append(asked(f"judge ({about})", prompts.get(judge.prompt), judge.llm or pipeline.llm))
    return uses


def _ran(role: str, spec: Spec, root: Path) -> ModelUse:
    """Return a local model, with how it was run according to the step that ran it (below `root`)."""
    setups = kept_setups(root, spec)
    several = len(setups) > 1
    words = (f"{shown_name(setup.model)}: {setup.words}" if several else setup.words for setup in setups)
    return ModelUse(role, _part_name(spec), version=one_line(" + ".join(words), 1000))


def _part_name(spec: Spec) -> str:
    """Return the model, preceded by the kind if only the kind was given: `maxsim all-minilm-l6-v2-int8`."""
    model = model_or_kind(spec)
    return model if spec.name == model else f"{spec.name} {model}"


def _lineage(
    lineages: Sequence[Lineage], mined: Mapping[str, Sequence[HardNegative]], ids: PublicIds
) -> Iterator[dict[str, Any]]:
    for lineage in lineages:
        assert lineage.query is not None
        if lineage.own is not None:
            continue  # it has no document
        yield {
            "query": ids.query(lineage),
            "positive": ids.document(lineage.passage.id),
            **({"second": ids.document(lineage.partner.id)} if lineage.partner is not None else {}),
            "source": lineage.passage.id,
            "character": plain_text(lineage.one(Character).text),
            "scenario": plain_text(lineage.one(Scenario).text),
            "original": plain_text(lineage.query.text),
            "rewrites": [plain_text(row.text) for row in lineage.every(Rewrite)],
            "negatives": [ids.document(row.id) for row in lineage.hard_negatives],
            "mined": [ids.document(row.id) for row in mined.get(lineage.final.key, ())],
        }
