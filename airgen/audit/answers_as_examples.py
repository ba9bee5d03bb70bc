"""Use people's answers as examples for the judge, and measure on the other answers whether they help.

found = choose(answered, 4)                   # few pairs with a reason, on which the judge errs first
measured = measure(job, examples, held_out)   # the judge with and without them on the other pairs
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from airgen.audit.answers import Proportion, middle_levels, read_answers, same_texts
from airgen.audit.labels import audited_items
from airgen.audit.sample import AuditItem, earlier_samples, load_sample
from airgen.components.keys import text_key
from airgen.display.study import Shown, Table, columns
from airgen.errors import DatasetError
from airgen.evaluation.significance import sign_test
from airgen.generation.flow import Flow
from airgen.job.job import Job
from airgen.llms.base import Llm
from airgen.settings import JudgeExample, Pipeline
from airgen.steps.ask import ask_about
from airgen.steps.judge import Verdict, judge_pair
from airgen.steps.judge_examples import LONGEST, replaced, write_examples
from airgen.steps.step import Problem, Tools
from airgen.storage.records import prompt_text

FEWEST = 10
"""Minimum number of held-out answers for the measurement."""


@dataclass(frozen=True, slots=True)
class AnsweredPair:
    """A pair in a sample, with people's level and reason."""

    item: AuditItem
    level: int
    why: str


@dataclass(frozen=True)
class ExamplesAudit(Shown):
    """The judge's agreement with people with and without examples, on answers that are not examples.

    `better` and `worse` count the pairs on which only the prompt with examples, or only the plain prompt, agrees with
    people. `p` is from the sign test between them. `refused` counts pairs without both verdicts, which are ignored.
    """

    examples: int
    without: Proportion
    with_them: Proportion
    better: int
    worse: int
    p: float
    refused: int
    file: Path

    def as_text(self) -> str:
        """Return the text for a terminal."""
        relevance = {"without": self.without, "with": self.with_them}
        rows = [[name, f"{share:.2f}", share.count] for name, share in relevance.items()]
        table = Table(rows, columns("examples", "people's relevance", "pairs held out")).text()
        if self.better > self.worse and self.p <= 0.05:
            advice = "they help: set control.judge.examples: audit"
        elif self.better < self.worse and self.p <= 0.05:
            advice = "they do harm: leave them out"
        else:
            advice = "there are too few answers to tell whether they help: ask about more pairs, or decide by the table"
        return (
            f"{table}\n{self.better} pairs are right only with the examples, {self.worse} only without "
            f"(p {self.p:.3f}); {advice}"
        )


def answered_pairs(job: Job, answers: Sequence[Path], folder: Path) -> list[AnsweredPair]:
    """Return a job's pairs with human answers and their current texts, leaving out changed pairs."""
    drawn = load_sample(folder / "sample.json")
    samples = {**earlier_samples(folder), drawn.key: drawn}
    now = {(item.query, item.document): item for item in audited_items(job)}
    people: dict[tuple[str, str], list[int]] = {}
    reasons: dict[tuple[str, str], str] = {}
    for path in answers:
        for sample in samples.values():
            try:
                person = read_answers(path, sample.key, len(sample.items), sample.levels)
            except DatasetError:
                continue  # it belongs to another sample
            for number, level in middle_levels([person.answers]).items():
                item = sample.items[number - 1]
                pair = (item.query, item.document)
                if pair in now and same_texts(item, now[pair]):
                    people.setdefault(pair, []).append(level)
                    reasons[pair] = person.reasons.get(number, "") or reasons.get(pair, "")
            break
        else:
            raise DatasetError(f"{path}: no answers to a sample of this job: its samples are in {folder}")
    return [
        AnsweredPair(now[pair], sorted(levels)[(len(levels) - 1) // 2], reasons[pair])
        for pair, levels in people.items()
    ]


def choose(pairs: Sequence[AnsweredPair], count: int, relevant_from: int, seed: int = 0) -> list[AnsweredPair]:
    """Choose at most `count` of the pairs with a reason, and at most a third of all pairs.

    Relevant and other pairs alternate, and pairs whose label the person contradicts come first. The order does not
    depend on the order of the answers.
    """
    known = [pair for pair in pairs if pair.why.strip() and pair.item.text.strip()]

    def place(pair: AnsweredPair) -> tuple[bool, str]:
        right = (pair.level >= relevant_from) == pair.item.relevant
        return right, text_key(f"example\x1f{seed}\x1f{pair.item.query}\x1f{pair.item.document}")

    good, bad = (
        sorted((pair for pair in known if (pair.level >= relevant_from) == side), key=place) for side in (True, False)
    )
    turns = [pair for both in zip(good, bad, strict=False) for pair in both]
    chosen = [*turns, *good[len(bad) :], *bad[len(good) :]]
    return chosen[: min(count, len(pairs) // 3)]


def measure_examples(
    job: Job, answers: Sequence[Path], folder: Path, *, count: int = 4, seed: int = 0, budget_usd: float | None = None
) -> ExamplesAudit:
    """Choose examples from people's answers, ask the judge about the other pairs with and without them, and save them
    for `examples: audit`.

    The judge's answers are saved in the job, so pairs that it has already judged cost nothing. Raises DatasetError if
    the job's judge is not an LLM or there are too few answers.
    """
    judge = job.pipeline.control.judge
    if not judge.members:
        raise DatasetError(
            f"{job.path}: this job's labels come from votes, not from an LLM judge, so there is no prompt for examples"
        )
    pairs = sorted(answered_pairs(job, answers, folder), key=lambda pair: (pair.item.query, pair.item.document))
    chosen = choose(pairs, count, judge.relevant_from, seed)
    held = [pair for pair in pairs if pair not in chosen]
    if not chosen:
        raise DatasetError(f"{answers[0]}: no answer has a reason: only answers with a reason can be examples")
    if len(held) < FEWEST:
        raise DatasetError(
            f"{answers[0]}: {len(held)} answers are left for the measurement, but {FEWEST} are needed: answer more"
        )
    examples = [
        JudgeExample(
            query=pair.item.query_text,
            passage=prompt_text(pair.item.title, pair.item.text)[:LONGEST],
            level=pair.level,
            why=pair.why,
        )
        for pair in chosen
    ]
    plain, shown = (_with(job.pipeline, shots) for shots in ([], examples))
    levels = [_levels(job, pipeline, held, budget_usd) for pipeline in (plain, shown)]
    cut = judge.relevant_from
    both = [
        (pair.level >= cut, before >= cut, after >= cut)
        for pair, before, after in zip(held, *levels, strict=True)
        if before is not None and after is not None
    ]
    better = sum(after == right != before for right, before, after in both)
    worse = sum(before == right != after for right, before, after in both)
    return ExamplesAudit(
        examples=len(examples),
        without=Proportion.of((before == right, 1.0) for right, before, _ in both),
        with_them=Proportion.of((after == right, 1.0) for right, _, after in both),
        better=better,
        worse=worse,
        p=sign_test(better, worse),
        refused=len(held) - len(both),
        file=write_examples(job.directory, examples),
    )


def _with(pipeline: Pipeline, examples: list[JudgeExample]) -> Pipeline:
    judge = pipeline.control.judge
    panel = [member.model_copy(update={"examples": examples}) for member in judge.panel]
    return replaced(pipeline, judge.model_copy(update={"examples": [] if panel else examples}), panel)


def _levels(job: Job, pipeline: Pipeline, pairs: Sequence[AnsweredPair], budget_usd: float | None) -> list[int | None]:
    """Return the judge's level for each pair, or None if it gives none."""

    async def judge(engine: Llm, pair: AnsweredPair) -> Verdict | Problem:
        tools = Tools(pipeline, job.prompts, {}, engine)
        return await judge_pair(tools, pair.item.query_text, prompt_text(pair.item.title, pair.item.text))

    with job.open_store() as store:
        verdicts = ask_about(pairs, judge, pipeline, store, budget_usd=budget_usd, rules=Flow().scripted)
    return [verdict.level if isinstance(verdict, Verdict) else None for verdict in verdicts]
