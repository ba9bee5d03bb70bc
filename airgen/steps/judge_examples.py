"""Few-shot examples for the judge: pairs with a level and a reason from a person.

    control: {judge: {examples: audit}}        # those that `airgen audit examples` has chosen

They come before the pair to judge, in the part of the prompt that is the same for all pairs, so that a server can cache
them. They are part of the judge's fingerprint: if they change, all pairs are judged again.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from airgen.errors import SettingsError
from airgen.llms.base import Message
from airgen.llms.prompts import fenced
from airgen.safety.escaping import json_text
from airgen.settings import JudgeExample, OneJudge, Pipeline
from airgen.settings.control import AUDIT
from airgen.storage.whole_files import write_text

FILE = Path("audit") / "examples.jsonl"
"""The path of the examples in a job's work directory."""

LONGEST = 1500
"""Maximum number of characters of a passage in an example, since every pair pays for the examples."""


def write_examples(directory: Path, examples: Sequence[JudgeExample]) -> Path:
    """Write the examples of a job, and return the file."""
    path = directory / FILE
    write_text(path, (json_text(example.model_dump()) + "\n" for example in examples))
    return path


def read_examples(path: Path) -> list[JudgeExample]:
    """Read the examples in a file. Raises SettingsError if it is missing or damaged."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
        return [JudgeExample.model_validate(json.loads(line)) for line in lines if line.strip()]
    except FileNotFoundError:
        raise SettingsError(
            [
                f"control.judge.examples: audit: {path} does not exist: remove `examples`, choose them with "
                f"`airgen audit examples PIPELINE ANSWERS`, and set it again"
            ]
        ) from None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise SettingsError([f"{path}: no examples for the judge ({str(error)[:200]}): choose them again"]) from error


def with_examples(pipeline: Pipeline, directory: Path) -> Pipeline:
    """Replace `examples: audit` in a pipeline with the examples in the job's directory. Raises SettingsError."""
    judge = pipeline.control.judge
    if all(member.examples != AUDIT for member in (judge, *judge.panel)):
        return pipeline
    examples = read_examples(directory / FILE)

    def filled(member: OneJudge) -> OneJudge:
        return member.model_copy(update={"examples": examples}) if member.examples == AUDIT else member

    return replaced(pipeline, filled(judge), [filled(member) for member in judge.panel])


def replaced(pipeline: Pipeline, judge: OneJudge, panel: Sequence[OneJudge]) -> Pipeline:
    """Return the pipeline with another judge and panel."""
    whole = judge.model_copy(update={"panel": list(panel)})
    return pipeline.model_copy(update={"control": pipeline.control.model_copy(update={"judge": whole})})


def shown_to(
    messages: Sequence[Message], examples: Sequence[JudgeExample], relevant_from: int, *, graded: bool
) -> tuple[Message, ...]:
    """Add examples to a judge's messages, at the end of the system message or before everything else.

    Args:
        graded: Whether the judge answers with a level rather than Yes or No.
    """
    if not examples:
        return tuple(messages)
    parts = ["A person has judged these pairs. Judge the pair that you are asked about as this person does."]
    for number, example in enumerate(examples, 1):
        verdict = str(example.level) if graded else "Yes" if example.level >= relevant_from else "No"
        reason = f", because: {' '.join(example.why.split())}" if example.why.strip() else ""
        passage, query = fenced(example.passage, "document"), fenced(example.query, "query")
        parts.append(f"Example {number}\n{passage}\n{query}\nThe person says: {verdict}{reason}")
    text = "\n\n".join(parts)
    first, *rest = messages
    content = f"{first.content}\n\n{text}" if first.role == "system" else f"{text}\n\n{first.content}"
    return (Message(first.role, content), *rest)
