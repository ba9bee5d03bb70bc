"""What a job will cost, before the first paid token: calls, tokens and money by stage.

Prompts are rendered on real passages of the corpus and counted. How long answers are, how many tries a stage takes
and how many samples are accepted is taken from the job's own answers where there are some, else from `PRIORS`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from airgen.corpus import prepare
from airgen.errors import CorpusError
from airgen.llms.prices import price, unknown_price
from airgen.llms.tokens import count_messages
from airgen.pipeline.job import Job
from airgen.pipeline.stage import prompt_name
from airgen.pipeline.stages.attributes import INFORMATION_TEXT, LENGTH_TEXT, STYLE_TEXT, TYPE_TEXT
from airgen.prompts import Prompt
from airgen.records import Passage
from airgen.settings import LlmSettings
from airgen.text.words import LANGUAGES

__all__ = ["Estimate", "StageEstimate", "estimate"]

PASSAGES = 50  # rendered to learn the mean length of a prompt
RUBRIC = 60  # answer tokens of a judge that gives a reason


@dataclass(frozen=True)
class Prior:
    """What is expected before the job has answers of its own.

    answers: stage -> (answer tokens, answers a piece of work; for hard negatives the tokens of one document).
    passed, accepted: shares of the samples whose query passes the checks, and whose document is judged to answer it.
    pairs: judgments a query beyond its own document, what a majority of three ranks within 10 or 20.
    """

    answers: Mapping[str, tuple[float, float]]
    passed: float
    accepted: float
    pairs: float = 8.0


# By the prompts of the pipeline: large models do as they are told, small ones are asked again. Measured on the
# quickstart with the scripted model (default), there and on three collections with the embedded one (small).
PRIORS = {
    "default": Prior(
        {
            "character": (45, 1.0),
            "scenario": (60, 1.0),
            "query": (25, 1.2),
            "rewrite": (25, 1.6),
            "hard_negative": (100, 1.0),
            "judgment": (1, 1.0),
        },
        passed=1.0,
        accepted=0.75,
    ),
    "small": Prior(
        {
            "character": (22, 1.0),
            "scenario": (37, 1.0),
            "query": (24, 1.7),
            "rewrite": (18, 2.0),
            "hard_negative": (53, 1.5),
            "judgment": (1, 1.0),
        },
        passed=0.75,
        accepted=0.6,
    ),
}


@dataclass(frozen=True)
class StageEstimate:
    """One stage's calls and tokens; `usd` is None where the model's price is unknown."""

    stage: str
    calls: int
    prompt_tokens: int
    completion_tokens: int
    usd: float | None


@dataclass(frozen=True)
class Estimate:
    """The whole job. `samples` is how many documents will be tried; `passages` how many the corpus sample had."""

    stages: list[StageEstimate]
    samples: int
    mean_passage_tokens: float
    warnings: list[str]

    @property
    def usd(self) -> float | None:
        """The sum, or None where a price is unknown."""
        costs = [stage.usd for stage in self.stages]
        return None if any(cost is None for cost in costs) else sum(cost or 0.0 for cost in costs)


def estimate(job: Job) -> Estimate:
    """Calls, tokens and money of a job from its beginning. Raises CorpusError where the corpus cannot be read."""
    pipeline = job.pipeline
    rows = islice((row for row in prepare(job.corpus, pipeline.task) if isinstance(row, Passage)), PASSAGES)
    documents = [f"{row.title}\n\n{row.text}" if row.title else row.text for row in rows]
    if not documents:
        raise CorpusError(f"corpus {pipeline.corpus}: no passage is left after cleaning")
    seen = _observed(job)
    generation, prior = pipeline.generation, PRIORS[pipeline.generation.prompts]
    accepted = seen.get("accepted", prior.accepted if pipeline.control.judge.members else prior.passed)
    samples = round(pipeline.target / accepted)
    queries = samples * max(prior.passed, accepted)  # a rewrite and a judgment follow each that passed its checks
    negatives = sum(generation.generated_negatives) / 2
    judge = pipeline.control.judge
    prompt = {name: job.prompts.get(prompt_name(pipeline, name)) for name in prior.answers if name != "judgment"}
    work: dict[str, tuple[float, Prompt, LlmSettings]] = {
        "character": (samples, prompt["character"], pipeline.llm),
        "scenario": (samples, prompt["scenario"], pipeline.llm),
        "query": (samples, prompt["query"], pipeline.llm),
        "rewrite": (queries * generation.rewrites, prompt["rewrite"], pipeline.llm),
        "hard_negative": (pipeline.target if negatives else 0, prompt["hard_negative"], pipeline.llm),
    }
    for place, one in enumerate(judge.members):
        pairs = queries + pipeline.target * seen.get("pairs", prior.pairs)
        name = "judgment" if place == 0 else f"judgment {place + 1}"
        work[name] = (pairs, job.prompts.get(one.prompt), one.llm or pipeline.llm)
    stages, warnings = [], []
    for name, (count, template, llm) in work.items():
        words: float
        words, tries = prior.answers[name.partition(" ")[0]]
        words = RUBRIC if template.schema and name.startswith("judgment") else words
        words *= max(negatives, 1) if name == "hard_negative" else 1
        words, tries = seen.get(f"{name} tokens", words), seen.get(f"{name} tries", tries)
        calls = round(count * tries)
        mean = statistics.fmean(_prompt_tokens(template, document, pipeline.language) for document in documents)
        # A second try carries the first answer and what was wrong with it.
        prompt_tokens = round(count * (mean * tries + max(0.0, tries - 1) * (words + 30)))
        completion = round(calls * words)
        cost = _cost(llm, prompt_tokens, completion)
        if cost is None and (warning := unknown_price(llm.model)) not in warnings:
            warnings.append(warning)
        stages.append(StageEstimate(name, calls, prompt_tokens, completion, cost))
    return Estimate(stages, samples, statistics.fmean(len(document) / 4 for document in documents), warnings)


def _cost(llm: LlmSettings, prompt_tokens: int, completion_tokens: int) -> float | None:
    if llm.backend != "openai" and llm.model not in llm.prices:
        return 0.0
    found = price(llm.model, llm.prices, llm.base_url or "")
    if found is None:
        return None
    return found.usd(prompt_tokens, completion_tokens) * (0.5 if llm.mode == "batch" else 1.0)


def _prompt_tokens(prompt: Prompt, document: str, language: str) -> int:
    values: dict[str, Any] = {
        "language_name": LANGUAGES[language],
        "document": document,
        "title": "a title of five words",
        "character": "a student of the subject",
        "scenario": "Preparing for an examination and looking for one fact that was missed in class.",
        "query": "a query of some eight words or so",
        "count": 3,
        "length": LENGTH_TEXT["lt10"],
        "length_class": "lt10",
        "type": TYPE_TEXT["question"],
        "type_class": "question",
        "information": INFORMATION_TEXT["overall"],
        "information_class": "overall",
        "style": STYLE_TEXT["casual"],
        "style_class": "casual",
    }
    return count_messages(prompt.render(**values))


def _observed(job: Job) -> dict[str, float]:
    """What the job's own answers say: answer tokens and tries by stage, share accepted, pairs a query."""
    if not (job.directory / "work.duckdb").exists():
        return {}
    with job.open_store(read_only=True) as store:
        found: dict[str, float] = {}
        for stage, calls, tokens in store.query(
            "SELECT stage, count(*), avg(completion_tokens) FROM answer WHERE error = '' GROUP BY stage"
        ):
            if calls >= 5:
                found[f"{stage} tokens"] = float(tokens)
        tries = (("query", "query"), ("rewrite", "rewrite"))
        for stage, table in tries:
            rows = store.query(f"SELECT count(*), avg(attempts) FROM current_{table}")
            if rows[0][0] >= 5:
                found[f"{stage} tries"] = float(rows[0][1])
        accepted = job.accepted(store)
        done = len(accepted.lineages) + accepted.surplus + len(accepted.rejected)
        if done >= 5 and accepted.lineages:
            found["accepted"] = (len(accepted.lineages) + accepted.surplus) / done
    return found
