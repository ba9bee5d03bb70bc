"""The overview of a dataset: the funnel from samples to labels, the cost, the models and their roles, and the coverage.

    overview(source)                      # data/d0/overview
    together(sources, boards)             # data/together: several datasets, and human labels beside generated ones

Figures of a job come from its work database, whatever its state, and those of a dataset from its manifest.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from airgen.dataset.content import OVERLAP, WORDING, FunnelStep, ModelUse
from airgen.dataset.human_labels import AGREEMENT, NOTE, agreement_text, note_text
from airgen.errors import AirgenError
from airgen.evaluation.breakdown import overlap_class
from airgen.job.export import provenance
from airgen.job.funnel import funnel_so_far
from airgen.job.job import Job
from airgen.report.compared_systems import Board, rank_slopes
from airgen.report.first_page import answers, brought_labels, commands_of, labels_in_words, made_by, next_steps
from airgen.report.overview_tables import (
    costs_table,
    funnel_table,
    models_table,
    slope_table,
    splits_table,
    together_table,
)
from airgen.report.page_table import page_table
from airgen.report.source import ReportSource
from airgen.settings.languages import language_name
from airgen.steps.accepted import Accepted
from airgen.steps.ask import money
from airgen.storage.json_values import DAMAGE, plain, read_json
from airgen.storage.records import Rewrite
from airgen.storage.store import Store
from airgen.studies.agree.rankings import RankGain
from airgen.studies.diversity.measure import ATTRIBUTES, profile_dataset
from airgen.studies.rank_correlation import average_ranks, spearman

_CALLS = """
SELECT stage, model, count(*), count(*) FILTER (error <> ''), sum(prompt_tokens), sum(cached_tokens),
       sum(completion_tokens), sum(cost_usd) FROM answer GROUP BY stage, model ORDER BY min(rowid)
"""
_CALL = ("stage", "model", "calls", "failed", "prompt_tokens", "cached_tokens", "completion_tokens", "usd")
_FAILURES = "SELECT stage, error, count(*) FROM answer WHERE error <> '' GROUP BY ALL ORDER BY 3 DESC, 1, 2 LIMIT 20"
_RANKED = "SELECT model, count(*), sum(len(ids)) FROM {table} WHERE fingerprint IN (SELECT unnest(?)) GROUP BY model"
_JUDGED = "SELECT level, count(*) FROM judgment WHERE fingerprint IN (SELECT unnest(?)) GROUP BY level ORDER BY level"
_PROFILED_PASSAGES = 5000  # passages of a corpus whose words are counted; more would take seconds
_LEAST_SLOPE_SYSTEMS = 3  # minimum number of systems for a slope graph
_GENERATION = {"type": "types", "length": "lengths", "information": "information", "style": "styles"}


def overview(source: ReportSource, boards: Sequence[Board] = ()) -> dict[str, Any]:
    """Return the facts about a dataset or job. Unknown parts are missing or empty."""
    overview_: dict[str, Any] = {"facts": _facts(source), "funnel": [], "stages": [], "models": [], "notes": []}
    manifest, job = source.manifest, source.job
    coverage = _of_queries(source)
    uses: Sequence[ModelUse] = () if manifest is None else manifest.provenance
    steps: Sequence[FunnelStep] = ()
    if manifest is not None:
        steps = manifest.funnel
        overview_["audit"] = dict(manifest.audit) if manifest.audit else None
    if job is not None:
        try:
            with source.store() as store:
                accepted = job.accepted(store)
                overview_["stages"], overview_["money"] = _costs(store)
                overview_["failures"] = [list(row) for row in store.query(_FAILURES)]
                work = _work(store, job, overview_["stages"])
                prints = [value for stage, value in job.plan(store).items() if stage == "judgment"]
                overview_["judged"] = [list(row) for row in store.query(_JUDGED, [prints])]
                overview_["relevant_from"] = job.pipeline.control.judge.relevant_from
                if source.state == "running" or manifest is None:
                    steps, overview_["so_far"] = funnel_so_far(job, store, accepted), True
                    coverage = _of_lineages(accepted)
        except AirgenError as error:
            overview_["notes"].append(f"what the job did is not shown: {error}")
        else:
            uses = provenance(job)
            roles = ["judgment" if use.role.startswith("judge (") else use.role for use in uses]
            overview_["models"] = [
                {**asdict(use), "did": work.get(role, "")} for use, role in zip(uses, roles, strict=True)
            ]
    overview_["models"] = overview_["models"] or [{**asdict(use), "did": ""} for use in uses]
    overview_["funnel"] = [asdict(step) for step in steps]
    overview_["unchecked"] = bool(overview_["models"]) and not overview_.get("audit") and not brought_labels(job)
    generates = job is None or job.pipeline.generates
    overview_["facts"]["generated"] = bool(overview_["models"]) and generates  # else a label 0 is no hard negative
    todo, making = next_steps(source, boards), made_by(source, uses)
    overview_["tables"] = {
        "next": None if todo is None else page_table("What to do next", todo),
        "made_by": None if making is None else page_table("How it was made", making),
        "funnel": funnel_table(steps),
        "splits": splits_table(overview_["facts"].get("splits") or {}, made=overview_["facts"]["generated"]),
        "costs": costs_table(overview_["stages"]),
        "models": models_table(overview_["models"]),
    }
    board = next((board for board in boards if board.comparison is not None and len(board.results) > 1), None)
    overview_["commands"] = commands_of(source)
    notes = {} if source.withheld or manifest is None else manifest.notes
    agreement = agreement_text(notes.get(AGREEMENT))
    overview_["answers"] = answers(board, labels_in_words(source), todo, agreement)
    told = "How sure is that?" in [question for question, *_ in overview_["answers"]]
    overview_["labels_by_people"] = [text for text in (note_text(notes.get(NOTE)), "" if told else agreement) if text]
    overview_["coverage"] = _coverage(coverage, source)
    overview_["diversity"] = _diversity(source)
    overview_["agreement"] = _agreement(source)
    return overview_


def _facts(source: ReportSource) -> dict[str, Any]:
    """Return the most important facts, none of which needs computation."""
    info, manifest = source.info, source.manifest
    facts = {
        name: info.get(name)
        for name in (
            "task",
            "language",
            "domain",
            "version",
            "source",
            "source_url",
            "source_licence",
            "labels_licence",
            "description",
        )
    }
    language = language_name(str(info.get("language") or ""))
    what = {"qa": "the passages of many documents", "long-doc": "the parts of one long document"}.get(
        str(facts["task"])
    )
    facts["kind"] = f"Search in {what}{f', in {language}' if language else ''}" if what else language
    if manifest is not None:
        facts["digest"] = manifest.digest
        facts["passages"] = manifest.statistics.passages
        facts["splits"] = {
            name: {
                "queries": split.queries,
                "positives": None if name in source.withheld else split.positives,
                "negatives": None if name in source.withheld else split.hard_negatives,
            }
            for name, split in manifest.statistics.splits.items()
        }
    elif source.dataset is not None:
        splits: dict[str, dict[str, int]] = {}
        for name in source.splits:
            labels = source.labels(name)
            positive = [label > 0 for row in labels.values() for label in row.values()]
            splits[name] = {
                "queries": len(labels),
                "positives": sum(positive),
                "negatives": len(positive) - sum(positive),
            }
        facts["splits"] = splits
    if facts.get("passages") is None:
        facts["passages"] = next(
            (result.about.get("passages") for results in source.results.values() for result in results), None
        )
    if source.job is not None and (target := source.job.pipeline.asked_for) is not None:
        facts["target"] = target
    return facts


def _costs(store: Store) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the calls, tokens and US dollars by stage and model, and the total cost of the job."""
    stages = [dict(zip(_CALL, row, strict=True)) for row in store.query(_CALLS)]
    spent = money(store)
    answers = sum(row["usd"] for row in stages)
    return stages, {
        "spent": spent.spent,
        "without_answer": max(0.0, spent.paid - answers),
        "lost": spent.lost,
        "overbilled": [str(overbilled) for overbilled in spent.overbilled],
    }


def _work(store: Store, job: Job, stages: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return {role: description of its work}, for the roles in `provenance`."""
    work: dict[str, str] = {}
    for stage in dict.fromkeys(row["stage"] for row in stages):
        rows = [row for row in stages if row["stage"] == stage]
        calls, tokens = (sum(row[name] for row in rows) for name in ("calls", "completion_tokens"))
        work[stage.replace("_", " ")] = f"{calls:,} calls, {tokens:,} tokens written"
    plan = job.plan(store)
    for role, table in (("recall", "recall"), ("re-ranker (pre-label)", "prelabel")):
        prints = [value for stage, value in plan.items() if stage.partition(":")[0] == table]
        ranked = store.query(_RANKED.format(table=table), [prints])
        if ranked:
            queries, passages = max(row[1] for row in ranked), max(row[2] for row in ranked)
            work[role] = f"{passages:,} passages ranked for {queries:,} queries"
    return work


def _of_queries(source: ReportSource) -> dict[str, Counter[str]]:
    """Return {attribute: {value: queries}} for published queries, including the attribute `split`."""
    counts: dict[str, Counter[str]] = {}
    for key, query in source.queries.items():
        for name in (*ATTRIBUTES, "hops", "language", "domain", WORDING):
            value = query.metadata.get(name)
            if isinstance(value, str | int) and value != "":
                counts.setdefault(name, Counter())[str(value)] += 1
        if isinstance(share := query.metadata.get(OVERLAP), int | float):
            counts.setdefault(OVERLAP, Counter())[overlap_class(share)] += 1
        if split := source.split_of.get(key):
            counts.setdefault("split", Counter())[split] += 1
    return counts


def _of_lineages(accepted: Accepted) -> dict[str, Counter[str]]:
    """Return the same for the accepted queries of a job that has no dataset yet."""
    counts: dict[str, Counter[str]] = {}
    for lineage in accepted.lineages:
        query = lineage.query
        if query is None:
            continue
        values = {name: getattr(query, name) for name in ("type", "length", "information")}
        values["style"] = lineage.rewrites[-1].style if isinstance(lineage.final, Rewrite) else ""
        for name, value in values.items():
            if value:
                counts.setdefault(name, Counter())[value] += 1
    return counts


def _coverage(counts_of: Mapping[str, Counter[str]], source: ReportSource) -> list[dict[str, Any]]:
    """Return the counts, and the shares requested in the pipeline, for attributes with more than one value."""
    generation = source.job.pipeline.generation if source.job is not None else None
    shown = []
    for name, counts in counts_of.items():
        asked: Mapping[str, float] = getattr(generation, _GENERATION.get(name, ""), {}) if generation else {}
        total = sum(asked.values())
        wanted = {value: ratio / total for value, ratio in asked.items() if ratio}
        order = {value: at for at, value in enumerate(asked)}
        values = sorted({*counts, *wanted}, key=lambda value: (order.get(value, len(order)), -counts[value], value))
        values = sorted(values) if name == OVERLAP else values  # a histogram
        if len(values) > 1 and len(values) <= 40:
            rows = [{"value": value, "queries": counts[value], "asked": wanted.get(value)} for value in values]
            shown.append({"attribute": name, "values": rows})
    return shown


def _diversity(source: ReportSource) -> dict[str, Any] | None:
    """Return lengths, overlap with positives and near duplicates, or None if the corpus is large or has no labels."""
    if source.dataset is None or source.withheld or not source.queries:
        return None
    manifest = source.manifest
    passages = manifest.statistics.passages if manifest else sum(1 for _ in source.dataset.passages())
    if passages > _PROFILED_PASSAGES:
        return {"large": passages}
    try:
        profile = profile_dataset(source.dataset, language=source.language)
    except AirgenError as error:
        return {"note": str(error)}
    parts = ("query_words", "passage_words", "overlap", "duplicates", "length_classes", "query_vocabulary")
    return {name: plain(getattr(profile, name)) for name in parts}


def _agreement(source: ReportSource) -> dict[str, Any] | None:
    """Return the results of `airgen study agree` for this job: ranks by human labels and by generated labels."""
    if source.public or source.home is None:
        return None
    try:
        value = read_json(source.home / "agreement" / "agreement.json")
        gains = [
            RankGain(str(row["system"]), str(row["family"]), float(row["human"]), float(row["generated"]))
            for row in value["rank_gains"]
        ]
        rho = value["variants"][0]["agreement"]["all"]["spearman"]
        names = ("collection", "measure", "queries", "same_size_human", "notes")
        facts = {name: value[name] for name in names}
        scores = {side: dict(value["scores"][side]) for side in ("human", "generated")}
    except DAMAGE:
        return None  # it is missing or damaged
    rows = [_slope(gain, scores["human"].get(gain.system), scores["generated"].get(gain.system)) for gain in gains]
    title = f"Ranks of {len(gains)} systems on {facts['collection']}"
    table = slope_table(rows, str(facts["measure"]))
    return {**facts, "spearman": rho, "systems": rows, "drawings": rank_slopes(gains, title), "table": table}


def _slope(gain: RankGain, human: float | None, generated: float | None) -> dict[str, Any]:
    """Return one system of a slope graph."""
    return {**asdict(gain), "scores": [human, generated]}


def together(sources: Sequence[ReportSource], boards: Sequence[Sequence[Board]]) -> dict[str, Any] | None:
    """Return all boards of a report side by side, or None if there is only one.

    `columns` are the boards. `systems` are each system's main scores on them, and its mean over all boards of a
    measure if it is on all of them.
    `slopes` compare each board with human labels with each board with generated labels, if both have at least three
    systems.
    """
    columns = [(source, board) for source, every in zip(sources, boards, strict=True) for board in every]
    if len(columns) < 2:
        return None
    scores: dict[str, dict[int, float]] = {}
    families: dict[str, str] = {}
    for at, (_, board) in enumerate(columns):
        for result in board.results:
            scores.setdefault(result.name, {})[at] = result.score
            families.setdefault(result.name, result.family or result.kind)
    systems = [
        {
            "name": name,
            "family": families[name],
            "scores": [values.get(at) for at in range(len(columns))],
            "means": _means(values, [board.headline for _, board in columns]),
        }
        for name, values in scores.items()
    ]
    slopes = []
    for left, (human, human_board) in enumerate(columns):
        for right, (generated, _) in enumerate(columns):
            if _generated(human) is False and _generated(generated):
                both = {
                    name: (values[left], values[right])
                    for name, values in scores.items()
                    if left in values and right in values
                }
                if len(both) >= _LEAST_SLOPE_SYSTEMS:
                    slopes.append({"left": left, "right": right, **_slopes(both, families, human_board.headline)})
    shown = [
        {
            "key": source.key,
            "board": board.key,
            "name": source.name,
            "split": board.split,
            "headline": board.headline,
            "queries": board.results[0].queries,
            "generated": _generated(source),
            **{name: source.info.get(name) for name in ("task", "domain", "language")},
        }
        for source, board in columns
    ]
    return {"columns": shown, "systems": systems, "slopes": slopes, "table": together_table(shown, systems)}


def _means(scores: Mapping[int, float], headlines: Sequence[str]) -> dict[str, float | None]:
    """Return the mean over all boards with the same main measure, or None if a score is missing."""
    means: dict[str, float | None] = {}
    for headline in dict.fromkeys(headlines):
        known = [scores.get(at) for at, each in enumerate(headlines) if each == headline]
        values = [score for score in known if score is not None]
        means[headline] = sum(values) / len(values) if len(values) == len(known) else None
    return means


def _generated(source: ReportSource) -> bool | None:
    """Return whether a model wrote the queries, as recorded in airgen's own datasets, or None if the dataset is
    missing.
    """
    if source.job is not None:
        return True
    if source.dataset is None:
        return None
    named = source.manifest is not None and bool(source.manifest.provenance)
    return named or source.dataset.air_bench is not None


def _slopes(both: Mapping[str, tuple[float, float]], families: Mapping[str, str], measure: str) -> dict[str, Any]:
    """Return two rankings of the same systems by their scores."""
    values = np.array(list(both.values()))
    ranks = average_ranks(-values.T)
    gains = [RankGain(name, families[name], float(ranks[0, at]), float(ranks[1, at])) for at, name in enumerate(both)]
    gains.sort(key=lambda gain: (gain.human, gain.system))
    rho = float(spearman(values[:, 0], values[:, 1]))
    rows = [_slope(gain, *both[gain.system]) for gain in gains]
    drawings = rank_slopes(gains, f"Ranks of {len(gains)} systems")
    return {"spearman": rho, "systems": rows, "drawings": drawings, "table": slope_table(rows, measure)}
