"""Is the judge right? A judge on pairs of human-labelled collections; resumable like any job.

runs/calibrate/
    work.duckdb      recall, pre-labels and every answer of the LLM: asked once, whatever judge is tried next
    embeddings/      vectors by content and model
    JUDGE.md, .json  the figures of the last time that this judge was tried
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airgen.dataset.files import write_text
from airgen.errors import UsageError
from airgen.llms.base import Llm
from airgen.pipeline.ask_each import ask_about
from airgen.pipeline.control.combined_judge import (
    BY_RERANKERS,
    FEATURES,
    SOURCE,
    Combination,
    load_combination,
    shipped,
)
from airgen.pipeline.control.judge import judge_identity, judge_name, judge_pair
from airgen.pipeline.control.judge_kinds import Verdict, kind_of_prompt
from airgen.pipeline.progress import Display
from airgen.pipeline.stage import Refusal, Tools
from airgen.pipeline.stages import Flow
from airgen.prompts import PromptSet
from airgen.quality.judge.assess import Assessment, Opinion, as_dict, assess, assessments_markdown
from airgen.quality.judge.evidence import Evidence, Selection, gather
from airgen.quality.judge.fit import applied, fit_combination, leave_one_out
from airgen.quality.judge.labelled_pairs import CalibrationPair
from airgen.settings import JudgeSettings, Pipeline
from airgen.store import Store

__all__ = ["FITTED", "Calibration", "JudgeTrial", "calibrate", "default_pipeline"]

FITTED = ("combined", "rerankers")

_SHORT = {"judge_yes_no": "small/judge_yes_no", "rubric": "judge_rubric"}

Verdicts = Mapping[tuple[str, str, str], Verdict | Refusal]  # by collection, query and passage


@dataclass(frozen=True)
class JudgeTrial:
    """How a judge is tried: the pipeline with its models, its prompts, and the folder that keeps all answers.

    words: an LLM reads at most so many words of a document. beside: the folder where a combination's file is.
    """

    pipeline: Pipeline
    prompts: PromptSet
    work: Path
    words: int | None = None
    budget_usd: float | None = None
    beside: Path = Path()


@dataclass(frozen=True)
class Calibration:
    """What came out: tables by title, a collection a row; the combined judge brings its coefficients."""

    judge: str
    about: str
    tables: Mapping[str, list[Assessment]]
    combination: Combination | None = None
    refusals: Mapping[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        found: dict[str, Any] = {"judge": self.judge, "about": self.about, "refusals": dict(self.refusals)}
        found["tables"] = {title: [as_dict(one) for one in table] for title, table in self.tables.items()}
        if self.combination is not None:
            found["combination"] = self.combination.as_dict()
        return found

    def as_markdown(self) -> str:
        """The report."""
        text = f"# Calibration of `{self.judge}`\n\n{self.about}\n"
        for title, table in self.tables.items():
            text += f"\n## {title}\n\n{assessments_markdown(table)}"
        if self.refusals:
            text += "\nNo opinion: " + "; ".join(f"{count} x {why}" for why, count in self.refusals.items()) + "\n"
        if self.combination is not None:
            fitted = json.dumps(self.combination.as_dict(), indent=1, ensure_ascii=False)
            text += f"\n## Coefficients\n\n```json\n{fitted}\n```\n"
        return text


def default_pipeline() -> Pipeline:
    """The quickstart's models, for judging without a pipeline: the embedded LLM, MiniLM, MaxSim, SPLADE, BM25."""
    control = {
        "recall": {"model": "all-minilm-l6-v2-int8", "top_k": 100},
        "rerankers": ["maxsim", "splade", "bm25"],
        "judge": {"kind": "yes-no"},
    }
    values = {"name": "calibrate", "task": "qa", "corpus": "none", "target": 1, "llm": {"backend": "embedded"}}
    return Pipeline.model_validate({**values, "control": control})


def calibrate(
    judge: str, collections: Sequence[tuple[Path, Selection]], trial: JudgeTrial, display: Display
) -> Calibration:
    """Try one judge on some collections, and write the report to the trial's folder.

    judge: a prompt's name (`judge`, `judge_yes_no`, `rubric`, ...), `pipeline` for the pipeline's own judge or
    panel, `combined`, `rerankers` (the same without an LLM), the name or file of a combination, or a re-ranker.
    Raises UsageError where there is no such judge, Stopped (resumable) where user or budget ends it.
    """
    pipeline, prompts, work = trial.pipeline, trial.prompts, trial.work
    saved = load_combination(judge, trial.beside) if judge in shipped() or judge.endswith(".json") else None
    if judge in FITTED and len(collections) < 2:
        raise UsageError(f"{judge}: it is fitted on some collections and tested on another: name at least two")
    if judge == "pipeline" and not pipeline.control.judge.members:
        raise UsageError("the pipeline's judge asks no LLM: calibrate `rerankers`, or its calibration by name")
    combines = saved is not None or judge in FITTED
    if not combines and any(how.source for _, how in collections):
        raise UsageError(
            "--source: only a combined judge weighs the likeness to a source: calibrate `combined` or `rerankers`"
        )
    wordless = judge == "rerankers" or (saved is not None and "llm" not in saved.weights)
    settings = pipeline.control.judge if combines or judge == "pipeline" else _prompt_judge(judge, pipeline, prompts)
    if settings is not None and not wordless and any(how.count is None for _, how in collections):
        raise UsageError("--every-pair: this judge would ask an LLM about every recalled passage: give --pairs instead")
    control = pipeline.control
    if not combines:
        control = control.model_copy(update={"rerankers": [judge] if settings is None else []})
    if settings is not None:
        own = control.model_copy(update={"judge": settings})
        pipeline = pipeline.model_copy(update={"control": own})
    if saved is not None:
        saved.check(judge_identity(pipeline, prompts))
    with Store.open(work / "work.duckdb") as store:
        found = [gather(store, folder, how, control, display, work / "embeddings") for folder, how in collections]
        names = Counter(one.name for one in found)
        if twice := [name for name, count in names.items() if count > 1]:
            raise UsageError(f"two collections are called {twice[0]!r}: their pairs could not be told apart")
        if settings is None:
            result = Calibration(judge, "A re-ranker, by its score.", {"By score": [_reranked(one) for one in found]})
        else:
            verdicts = _ask(store, replace(trial, pipeline=pipeline), [] if wordless else found, display)
            if combines:
                result = _combined(judge, saved, found, verdicts, judge_identity(pipeline, prompts))
            else:
                result = _llm(judge, pipeline, found, verdicts)
    for suffix, text in ((".md", result.as_markdown()), (".json", json.dumps(result.as_dict(), indent=1) + "\n")):
        write_text(work / f"{_file_name(judge)}{suffix}", text)
    return result


def _prompt_judge(judge: str, pipeline: Pipeline, prompts: PromptSet) -> JudgeSettings | None:
    """The settings for a prompt's name; None for anything else, which must be a re-ranker then."""
    name = _SHORT.get(judge, judge)
    if name not in prompts.names():
        return None
    prompt = prompts.get(name)
    if set(prompt.inputs) != {"query", "document"}:
        raise UsageError(f"the prompt {name!r} does not judge: it wants {', '.join(prompt.inputs)}")
    kind, own = kind_of_prompt(prompt), pipeline.control.judge
    values = {"prompt": name, "kind": kind, "llm": own.llm, "threshold": own.threshold, "need": own.need}
    return JudgeSettings.model_validate(values)


def _ask(store: Store, trial: JudgeTrial, found: Sequence[Evidence], display: Display) -> Verdicts:
    """Every pair's verdict. Pairs of one document stand together, so that a prefix cache serves them."""
    pairs = [(one, pair) for one in found for pair in sorted(one.pairs, key=lambda pair: (pair.id, pair.query))]

    async def one(engine: Llm, item: tuple[Evidence, CalibrationPair]) -> Verdict | Refusal:
        evidence, pair = item
        tools = Tools(trial.pipeline, trial.prompts, {}, engine)
        return await judge_pair(tools, evidence.queries[pair.query], _cut(evidence.documents[pair.id], trial.words))

    with display.stage("judgments", len(pairs)) as bar:
        verdicts = ask_about(
            pairs, one, trial.pipeline, store, budget_usd=trial.budget_usd,
            progress=lambda done: bar.advance(done - bar.done), rules=Flow().scripted,
        )  # fmt: skip
    keys = [(evidence.name, pair.query, pair.id) for evidence, pair in pairs]
    return dict(zip(keys, verdicts, strict=True))


def _cut(text: str, words: int | None) -> str:
    parts = text.split(" ")
    return text if words is None or len(parts) <= words else " ".join(parts[:words])


def _llm(judge: str, pipeline: Pipeline, found: Sequence[Evidence], verdicts: Verdicts) -> Calibration:
    table = []
    for one in found:
        own = [verdicts[one.name, pair.query, pair.id] for pair in one.pairs]
        table.append(assess(one.name, one.pairs, [_opinion(verdict) for verdict in own]))
    models = ", ".join((member.llm or pipeline.llm).model for member in pipeline.control.judge.members)
    about = f"The prompt {judge_name(pipeline)}, answered by {models}."
    return Calibration(judge, about, {"By the LLM": table}, None, _refusals(verdicts))


def _opinion(verdict: Verdict | Refusal) -> Opinion | None:
    if isinstance(verdict, Refusal):
        return None
    score = float(verdict.level) if verdict.probability is None else verdict.probability
    return Opinion(score, verdict.level, verdict.probability)


def _refusals(verdicts: Verdicts) -> dict[str, int]:
    return dict(Counter(one.reason for one in verdicts.values() if isinstance(one, Refusal)).most_common())


def _reranked(one: Evidence) -> Assessment:
    scores = []
    for pair in one.pairs:
        (row,) = one.prelabels[pair.query]
        scores.append(Opinion(row.scores[row.ids.index(pair.id)]))
    return assess(one.name, one.pairs, scores)


def _combined(
    judge: str, saved: Combination | None, found: Sequence[Evidence], verdicts: Verdicts, identity: Mapping[str, str]
) -> Calibration:
    def probability(name: str, pair: CalibrationPair) -> float | None:
        verdict = verdicts.get((name, pair.query, pair.id))
        return verdict.probability if isinstance(verdict, Verdict) else None

    refusals = _refusals(verdicts)
    if saved is not None:
        table = [applied(saved, one, probability) for one in found]
        return Calibration(judge, "A combined judge as it was saved.", {"As saved": table}, saved, refusals)
    llm, source = judge == "combined", any(one.likeness for one in found)
    names = tuple(name for name in FEATURES if (name != "llm" or llm) and (name != SOURCE or source))
    tried = {"LLM, scores, votes and likeness": FEATURES, "LLM, scores and votes": ("llm", *BY_RERANKERS)}
    tried |= {"Scores, votes and likeness": (*BY_RERANKERS, SOURCE), "Scores and votes alone": BY_RERANKERS}
    tried |= {"The LLM alone": ("llm",)}
    tables = {
        title: leave_one_out(found, probability, identity, some)
        for title, some in tried.items()
        if set(some) <= set(names)
    }
    about = (
        "Logistic regression over the LLM's yes/no logit (unless it is left out), the scores and votes of recall and "
        "re-rankers, and, with `--source`, the likeness to another relevant passage. Each row is a collection that "
        "neither the weights nor the threshold have seen; the coefficients are fitted on all."
    )
    fitted = fit_combination(found, probability, identity, names)
    notes = {f"on {one.collection}, when left out": _figures(one) for one in next(iter(tables.values()))}
    return Calibration(judge, about, tables, replace(fitted, notes={**fitted.notes, **notes}), refusals)


def _figures(one: Assessment) -> str:
    """The figures that a card shows of one collection."""
    area = one.auc.get("unjudged") or one.auc.get("all")
    shown = "no AUC" if area is None else f"AUC {area.value:.2f} ({area.low:.2f}–{area.high:.2f})"
    error = f"calibration error {one.error or 0:.3f} ({one.error_floor:.3f} by chance)"
    return f"{shown}, kappa {one.kappa.value:.2f}, {error}"


def _file_name(judge: str) -> str:
    return "".join(char if char.isalnum() or char in "-_" else "-" for char in judge.removesuffix(".json"))
