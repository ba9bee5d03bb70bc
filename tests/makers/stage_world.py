"""Run stages like the runner, with the scripted model and the test's own rules."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from airgen.generation.flow import Flow
from airgen.llms.base import Refused, Request, Rule
from airgen.llms.prompts import PromptSet
from airgen.llms.scripted import ScriptedBackend
from airgen.settings import Pipeline
from airgen.steps.lineage import Lineage
from airgen.steps.step import Step, Tools
from airgen.storage.records import Answer, Character, Passage, Query, Row, Sample, Scenario

DOCUMENT = (
    "Honey bees collect nectar from flowers and carry it to the hive in a stomach of its own. There, workers pass it "
    "from mouth to mouth until most of the water is gone, and fan it with their wings before they seal the cell."
)
PROMPTS = PromptSet()


class Direct:
    """The scripted backend as an `Llm`, without a store; it records its requests."""

    def __init__(self, rules: Mapping[str, Rule], faults: Mapping[str, float]) -> None:
        self.backend = ScriptedBackend(rules={**Flow().scripted, **rules}, faults=faults)
        self.requests = list[Request]()

    async def ask(self, request: Request) -> Answer:
        """Return an answer, or the refusal as the engine would store it."""
        self.requests.append(request)
        try:
            reply = await self.backend.send(request)
        except Refused as refused:
            return Answer(request.key, request.stage, request.model, request.endpoint, "", error=str(refused))
        return Answer(
            request.key, request.stage, request.model, request.endpoint, reply.text, finish_reason=reply.finish_reason
        )


class World:
    """A document, a pipeline, and a model whose answers the test sets."""

    def __init__(self) -> None:
        self.llm = Direct({}, {})
        self.meaning: Any = None

    def answers(self, **rules: Callable[[Request], str] | object) -> "World":
        """Set the model's answers by stage: a function of the request, or a value that is sent as JSON."""
        self.llm = Direct(
            {
                stage: rule if callable(rule) else (lambda _, rule=rule: json.dumps(rule, ensure_ascii=False))
                for stage, rule in rules.items()
            },
            {},
        )  # type: ignore[arg-type]
        return self

    def fails(self, fault: str) -> "World":
        """Make every call end in a fault of `airgen.llms.scripted`."""
        self.llm = Direct({}, {fault: 1.0})
        return self

    def pipeline(self, language: str = "en", **generation: Any) -> Pipeline:
        """A pipeline with these settings of generation; queries of fewer than ten words unless they say otherwise."""
        return Pipeline.model_validate(
            {
                "name": "p", "task": "qa", "corpus": "c", "target": 1, "language": language,
                "llm": {"backend": "scripted"},
                "generation": {"lengths": {"lt10": 1}, "types": {"question": 1}, "rewrites": 1, **generation},
            }
        )  # fmt: skip

    def lineage(
        self, query: str = "how do bees make honey", document: str = DOCUMENT, key: str = "k", title: str = "Honey"
    ) -> Lineage:
        """A lineage that has everything up to the original query, or to the scenario where that is empty."""
        passage = Passage("p" + key, "id" + key, 0, document, title)
        rows: list[Row] = [
            Character("c" + key, "s" + key, "f", 0, "a beekeeper", ["a beekeeper"]),
            Scenario("z" + key, "c" + key, "f", 0, "Preparing for winter.", ["Preparing for winter."]),
        ]
        rows += [Query("q" + key, "z" + key, "f", 0, query, "lt10", "question", "overall")] if query else []
        return Lineage(passage, Sample("s" + key, passage.key, "f", 0), tuple(rows))

    def run(self, stage: Step, lineage: Lineage | None = None, pipeline: Pipeline | None = None) -> list[Row]:
        """Return the rows that the stage makes from the lineage."""
        pipeline, prompts = pipeline or self.pipeline(), PROMPTS
        fingerprints = {one.name: one.fingerprint(pipeline, prompts) for one in Flow().every}
        tools = Tools(pipeline, prompts, fingerprints, self.llm, self.meaning)
        return asyncio.run(stage.run(lineage or self.lineage(), tools))


@pytest.fixture
def world() -> World:
    """Provide a new world for each test."""
    return World()
