"""From decisions to a dataset: the finished queries, corpus and qrels as `airgen.dataset` takes them.

Documents and models may give control characters and escape sequences: they do not enter the dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airgen.corpus.cleaning.filters import normalise, normalise_line
from airgen.corpus.settings import CorpusSettings
from airgen.dataset.content import (
    ANSWERED,
    UNSURE,
    AnswerRow,
    CorpusRow,
    DatasetContent,
    DatasetInfo,
    FunnelStep,
    ModelUse,
    ParentRow,
    QrelRow,
    QueryRow,
)
from airgen.errors import DatasetError, UsageError
from airgen.evaluation.systems import model_name
from airgen.languages import language_name
from airgen.pipeline.control.judge import NEED, judge_kind
from airgen.pipeline.control.quality_control import mined_by_query
from airgen.pipeline.export_rules import HeldOut, HouseStyle, PublicIds, hold_out, saturated_queries
from airgen.pipeline.funnel import funnel
from airgen.pipeline.generate import Accepted, judged_away
from airgen.pipeline.stage import Lineage, Plan, stage_prompt
from airgen.pipeline.stages import Flow
from airgen.prompts import Prompt, PromptSet
from airgen.records import Character, Decision, HardNegative, Passage, ReferenceAnswer, Scenario
from airgen.settings import Pipeline
from airgen.settings.base import Spec
from airgen.store import Store
from airgen.text.display import plain_text
from airgen.text.tokens import load_tokenizer

ABLATIONS = ("control", "correction", "negatives", "rewrite")


@dataclass(frozen=True)
class Source:
    """What a dataset is assembled from: the settings of a job, its stages, and the plan of its rows.

    `seed` is the number that samples were drawn with, None if they were drawn with a secret. Relative paths of the
    pipeline start at `folder`. `systems` are the names of the user's own systems in the recall.
    """

    pipeline: Pipeline
    corpus: CorpusSettings
    prompts: PromptSet
    flow: Flow
    plan: Plan
    pipeline_yaml: str
    ids: PublicIds
    seed: int | None
    folder: Path
    systems: Sequence[str] = ()


def assemble(store: Store, source: Source, accepted: Accepted, without: Collection[str] = ()) -> DatasetContent:
    """The content of the dataset.

    `without` leaves out quality control or the hard negatives, for the ablations of the paper's Table 5, at no further
    cost. Without `control`, all candidates are there, those that were judged bad, too; without `correction` only the
    accepted ones, and the labels that generation gave them. Without `rewrite`, queries have their original text and
    the labels of the rewritten one. Raises DatasetError where no query is left.
    """
    pipeline, plan = source.pipeline, source.plan
    decisions: dict[str, list[Decision]] = {}
    for row in store.made(Decision, plan.get("decision", ""), accepted.keys):
        decisions.setdefault(row.parent, []).append(row)
    uncorrected = [name for name in ("control", "correction") if name in without]
    if uncorrected and pipeline.queries is not None:
        raise UsageError(f"--without {uncorrected[0]}: the labels of your own queries come from quality control alone")
    judged = decisions
    if uncorrected:
        decisions = {one.final.key: _undecided(one) for one in accepted.lineages}
    ids, tokenizer = source.ids, load_tokenizer(source.corpus.tokenizer, pipeline.language)
    every, steps = accepted, []
    # Votes drop a query whose own document they do not find.
    fallen = {row.parent for rows in decisions.values() for row in rows if row.action == "drop_query"}
    accepted = replace(every, lineages=[one for one in every.lineages if one.final.key not in fallen])
    if pipeline.export.drop_saturated is not None:
        dropped = saturated_queries(store, plan, decisions, pipeline.export.drop_saturated)
        accepted = replace(accepted, lineages=[one for one in accepted.lineages if one.final.key not in dropped])
        if dropped and not accepted.lineages:
            raise DatasetError(
                f"all {len(dropped)} queries are saturated: raise export.drop_saturated, or leave it out"
            )
        counts = (len(every.lineages) - len(fallen), len(accepted.lineages))
        steps = [FunnelStep("queries with room", *counts, {"saturated": counts[0] - counts[1]} if dropped else {})]
    if "control" in without:
        bad = judged_away(every, pipeline.target)
        decisions |= {one.final.key: _undecided(one) for one in bad}
        accepted = replace(accepted, lineages=[*accepted.lineages, *bad])
    held = _held_out(every, judged, pipeline)
    if held.queries:
        answered = sum(one.final.key not in held.queries for one in accepted.lineages)
        lost = len(accepted.lineages) - answered
        reasons = {"their relevant passages were taken out": lost} if lost else {}
        steps.append(FunnelStep("queries with an answer", len(accepted.lineages), answered, reasons))
    queries = list(_queries(ids, accepted, decisions, held, original="rewrite" in without))
    if pipeline.queries is not None and not any(row.metadata[ANSWERED] for row in queries):
        raise DatasetError(
            f"none of the {len(queries)} queries has a relevant passage: look at some with `airgen show`, and try "
            "another judge, or more retrievers (control.pools)"
        )
    generated = {one.id for lineage in accepted.lineages for one in lineage.hard_negatives}
    made = {one.id for lineage in every.lineages for one in lineage.hard_negatives}
    kept = {row.id for rows in decisions.values() for row in rows if row.action == "keep_negative"}
    removed = {row.id for rows in decisions.values() for row in rows if row.action == "drop_negative"}
    left = [lineage for lineage in every.lineages if lineage.final.key in fallen]
    kept |= {one.id for lineage in left for one in lineage.hard_negatives} - removed  # they stay, unlabelled
    mined = {} if without else mined_by_query(store, plan, accepted.keys)  # quality control chose them
    kept |= {row.id for rows in decisions.values() for row in rows if row.action == "unsure"} & generated
    kept -= held.passages
    accepted = replace(accepted, lineages=[one for one in accepted.lineages if one.final.key not in held.queries])
    if "negatives" in without:
        # A negative that was generated for one query may have become another's positive: it goes, too.
        kept = set()
        decisions = {key: [row for row in rows if row.id not in generated] for key, rows in decisions.items()}
    gone = {ids.document(one) for one in held.passages}
    return DatasetContent(
        info=_info(source),
        corpus=_corpus(store, plan, every, kept, held, ids),  # a dropped query's negatives stay, unlabelled
        queries=queries,
        qrels=[row for row in _qrels(accepted, decisions, kept, mined, made, ids) if row.document not in gone],
        provenance=provenance(pipeline, source.prompts, source.flow, source.folder, source.systems),
        funnel=[*funnel(store, source.flow, plan, every, [row for rows in decisions.values() for row in rows]), *steps],
        pipeline_yaml=source.pipeline_yaml,
        secret=ids.secret,
        lineage=list(_lineage(accepted, mined, ids)),
        answers=list(_answers(accepted, ids)),
        parents=_parents(store, plan, held, ids) if source.corpus.chunk is not None and pipeline.task == "qa" else (),
        count_tokens=lambda text: tokenizer.count([text])[0],
        notes={UNSURE: list(pipeline.control.judge.unsure)} if pipeline.control.judge.unsure else {},
    )


def _info(source: Source) -> DatasetInfo:
    pipeline, corpus = source.pipeline, source.corpus
    return DatasetInfo(
        name=pipeline.name, task=pipeline.task, domain=pipeline.domain, language=pipeline.language,
        source_licence=corpus.licence, labels_licence=pipeline.export.licence, version=pipeline.export.version,
        seed=source.seed, splits=dict(pipeline.export.splits),
        source=corpus.source,
        relevant_from=pipeline.control.judge.relevant_from, tokenizer=corpus.tokenizer,
        levels=_levels(pipeline), **_two_languages(pipeline),
    )  # fmt: skip


def _two_languages(pipeline: Pipeline) -> dict[str, Any]:
    """What the dataset says of itself where its queries are in another language than its corpus."""
    if not pipeline.cross_lingual:
        return {}
    asked, found = language_name(pipeline.query_language), language_name(pipeline.language)
    return {
        "languages": (pipeline.language, pipeline.query_language),
        "description": f"Cross-lingual retrieval: queries in {asked}, documents in {found}.",
    }


def _levels(pipeline: Pipeline) -> dict[int, str]:
    """What a level means where it is not Table 8's wording: a probability, cut in four, or votes."""
    judge = pipeline.control.judge
    if not judge.members:
        way = "every re-ranker puts it near the source of the query"
        return {0: f"not so: {way}", judge.relevant_from: way}
    if judge.panel or judge_kind(judge).GRADED:
        return {}
    what, threshold = "Yes", judge.threshold
    middle = (1 + threshold) / 2
    return {
        0: f"probability of {what} below {threshold / 2:.2f}",
        1: f"probability of {what} from {threshold / 2:.2f} to {threshold:.2f}",
        2: f"probability of {what} from {threshold:.2f} to {middle:.2f}",
        3: f"probability of {what} from {middle:.2f}",
    }


def _held_out(every: Accepted, decisions: Mapping[str, Sequence[Decision]], pipeline: Pipeline) -> HeldOut:
    """The queries whose answers are left out, the same ones in every ablation. One's own queries keep theirs."""
    if not pipeline.generation.unanswerable or pipeline.queries is not None:
        return HeldOut()
    fallen = {row.parent for rows in decisions.values() for row in rows if row.action == "drop_query"}
    left = [one for one in every.lineages if one.final.key not in fallen]
    others = [one for one in every.lineages if one.final.key in fallen]
    return hold_out(left, decisions, pipeline.generation.unanswerable, others)


def _corpus(
    store: Store, plan: Plan, accepted: Accepted, kept: Collection[str], held: HeldOut, ids: PublicIds
) -> Iterator[CorpusRow]:
    style = HouseStyle()
    for passage in store.passages(plan["corpus"]):
        style.see(passage.title, passage.text)
        if passage.id in held.passages:
            continue
        yield CorpusRow(ids.document(passage.id), plain_text(passage.title), plain_text(passage.text))
    negatives = {
        one.id: (lineage.passage, one)
        for lineage in accepted.lineages
        for one in lineage.hard_negatives
        if one.id in kept
    }
    yield from _generated([row for _, row in sorted(negatives.items())], ids.document, style)


def _parents(store: Store, plan: Plan, held: HeldOut, ids: PublicIds) -> Iterator[ParentRow]:
    """The documents that passages are chunks of, and where they stand there."""
    for passage in store.passages(plan["corpus"]):
        if passage.id in held.passages:
            continue
        yield ParentRow(ids.document(passage.id), ids.document(passage.document), passage.start, passage.end)


def _generated(
    negatives: Iterable[tuple[Passage, HardNegative]], name_of: Callable[[str], str], style: HouseStyle
) -> Iterator[CorpusRow]:
    """Generated documents, each with its source. Nothing but the words tells them from passages: they have the
    characters and the typography of the corpus, and a title exactly if their source has one.
    """
    for source, one in negatives:
        text = normalise(style.text(normalise(one.text)))
        title = normalise_line(style.title(normalise_line(one.title), text)) if source.title else ""
        yield CorpusRow(name_of(one.id), plain_text(title), plain_text(text))


def _queries(
    ids: PublicIds, accepted: Accepted, decisions: Mapping[str, Sequence[Decision]], held: HeldOut, *, original: bool
) -> Iterator[QueryRow]:
    for lineage in accepted.lineages:
        if lineage.own is not None:
            judged = decisions.get(lineage.final.key, ())
            answered = any(row.action == "add_positive" for row in judged)
            facts = {"count": lineage.own.count, ANSWERED: answered, "judged": len(judged)}
            yield QueryRow(ids.query(lineage), plain_text(lineage.own.text), ids.split(lineage), facts)
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
        text = lineage.query.text if original else lineage.final.text
        yield QueryRow(ids.query(lineage), plain_text(text), ids.split(lineage), metadata)


def _undecided(lineage: Lineage) -> list[Decision]:
    """What generation alone says: the source is positive, the generated negatives are not."""
    final = lineage.final
    rows = [Decision("", final.key, "", 0, lineage.passage.id, "keep_query", "no control")]
    rows += [Decision("", final.key, "", 0, one.id, "add_positive", "no control") for one in lineage.sources[1:]]
    rows += [Decision("", final.key, "", 0, one.id, "keep_negative", "no control") for one in lineage.hard_negatives]
    return rows


def _qrels(
    accepted: Accepted,
    decisions: dict[str, list[Decision]],
    kept: Collection[str],
    mined: Mapping[str, Sequence[HardNegative]],
    made: Collection[str],
    ids: PublicIds,
) -> Iterator[QrelRow]:
    zeros = ids.pipeline.control.judge.unsure is not None
    for lineage in accepted.lineages:
        chosen = {one.id for one in mined.get(lineage.final.key, ())}
        judged = {row.id: row for row in decisions.get(lineage.final.key, ())}
        if lineage.own is not None and not any(row.action == "add_positive" for row in judged.values()):
            continue  # nothing answers it: its mark says so, and no average counts it
        for negative in mined.get(lineage.final.key, ()):
            found = judged.get(negative.id)
            level, gain = (found.level, found.probability) if found else (None, None)
            yield QrelRow(ids.query(lineage), ids.document(negative.id), 0, level, gain)
        for row in judged.values():
            if row.action in ("keep_query", "add_positive"):
                yield QrelRow(ids.query(lineage), ids.document(row.id), 1, row.level, row.probability)
            elif zeros and row.action == "ignore" and row.level is not None and (row.id in kept or row.id not in made):
                # Where there is a third label, what was judged not relevant is told from what was not judged.
                if row.id not in chosen:
                    yield QrelRow(ids.query(lineage), ids.document(row.id), 0, row.level, row.probability)
            elif row.action == "unsure" and (row.id in kept or row.id not in made):
                yield QrelRow(ids.query(lineage), ids.document(row.id), 0, row.level, row.probability, unsure=True)
            elif row.action == "add_negative" or (row.action == "keep_negative" and row.id in kept):
                yield QrelRow(ids.query(lineage), ids.document(row.id), 0, row.level, row.probability)


def _answers(accepted: Accepted, ids: PublicIds) -> Iterator[AnswerRow]:
    """Reference answers with their place in the text as it is exported."""
    for lineage in accepted.lineages:
        for row in lineage.every(ReferenceAnswer):
            source = next(one for one in lineage.sources if row.quote in plain_text(one.text))
            start = plain_text(source.text).index(row.quote)
            yield AnswerRow(
                ids.query(lineage), ids.document(source.id), plain_text(row.text),
                row.quote, start, start + len(row.quote),
            )  # fmt: skip


def provenance(
    pipeline: Pipeline,
    prompts: PromptSet,
    flow: Flow,
    folder: Path,
    systems: Sequence[str] = (),
) -> list[ModelUse]:
    """The models that a pipeline uses, what for, and with which prompts.

    `systems` are the user's own in the recall. Classes of the user's are looked up in `folder`.
    """
    uses = []
    for stage in flow.every:
        if stage.prompt is not None and stage.asks(pipeline):
            prompt = stage_prompt(pipeline, prompts, stage.prompt(pipeline))
            uses.append(ModelUse(stage.name.replace("_", " "), pipeline.llm.model, prompt.name, _version(prompt)))
    if pipeline.generation.meaning:
        uses.append(ModelUse("check of a rewrite's meaning", _model_name(pipeline.generation.meaning.model)))
    settings = pipeline.control.recall
    uses += [] if settings.pools_only else [ModelUse("recall", _part_name("embedder", settings.model, folder))]
    uses += [ModelUse("recall", _part_name("retriever", spec, folder)) for spec in pipeline.control.pools]
    uses += [ModelUse("recall, as a system of the user's", name) for name in systems]
    uses += [
        ModelUse("re-ranker (pre-label)", _part_name("reranker", one, folder)) for one in pipeline.control.rerankers
    ]
    if pipeline.control.judge.need:
        prompt = stage_prompt(pipeline, prompts, NEED)
        uses.append(ModelUse("need behind a query, for the judge", pipeline.llm.model, prompt.name, _version(prompt)))
    for judge in pipeline.control.judge.members:
        prompt, about = prompts.get(judge.prompt), judge_kind(judge).ABOUT.format(threshold=judge.threshold)
        model = (judge.llm or pipeline.llm).model
        uses.append(ModelUse(f"judge ({about})", model, prompt.name, _version(prompt)))
    return uses


def _version(prompt: Prompt) -> str:
    return f"{prompt.version} ({prompt.fingerprint[:8]})"


def _part_name(part: str, spec: Spec, folder: Path) -> str:
    """The model, after the kind where only the kind was named: `maxsim all-minilm-l6-v2-int8`."""
    said, model = _model_name(spec), model_name(part, spec, folder)
    return said if said == model else f"{said} {model}"


def _model_name(model: str | dict[str, Any]) -> str:
    return model if isinstance(model, str) else str(model.get("model") or model.get("name") or model.get("kind"))


def _lineage(
    accepted: Accepted, mined: Mapping[str, Sequence[HardNegative]], ids: PublicIds
) -> Iterator[dict[str, Any]]:
    for lineage in accepted.lineages:
        assert lineage.query is not None
        if lineage.own is not None:
            continue  # no document stands behind it
        yield {
            "query": ids.query(lineage),
            "positive": ids.document(lineage.passage.id),
            **({"second": ids.document(lineage.partner.id)} if lineage.partner is not None else {}),
            "source": lineage.passage.id,
            "character": plain_text(lineage.one(Character).text),
            "scenario": plain_text(lineage.one(Scenario).text),
            "original": plain_text(lineage.query.text),
            "rewrites": [plain_text(row.text) for row in lineage.rewrites],
            "negatives": [ids.document(row.id) for row in lineage.hard_negatives],
            "mined": [ids.document(row.id) for row in mined.get(lineage.final.key, ())],
        }
