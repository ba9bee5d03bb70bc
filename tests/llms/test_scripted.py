"""The backend without a model."""

from __future__ import annotations

import asyncio
import json

import pytest

from airgen.errors import SettingsError
from airgen.llms.base import Message, Refused, Reply, Request
from airgen.llms.scripted import FAULTS, ScriptedBackend
from airgen.pipeline.stages import Flow

TEXT = "Photosynthesis converts sunlight into chemical energy inside chloroplasts of leaves, releasing oxygen."
OTHER = "Parliament debated taxation yesterday evening, with ministers defending lower budgets."


def ask(
    stage: str, text: str = TEXT, tail: str = "Write it.", backend: ScriptedBackend | None = None, **more: object
) -> Reply:
    message = Message("user", f"Read.\n\n<document>\n{text}\n</document>\n\n{tail}")
    request = Request("scripted", (message,), stage=stage, **more)  # type: ignore[arg-type]
    return asyncio.run((backend or ScriptedBackend(rules=Flow().scripted)).send(request))


def test_an_answer_depends_on_the_request_alone() -> None:
    assert ask("query") == ask("query")
    assert len({ask("character", sample=sample).text for sample in range(5)}) > 1


def test_stages_answer_in_their_form() -> None:
    assert len(json.loads(ask("character").text)["characters"]) == 3
    assert len(json.loads(ask("scenario").text)["scenarios"]) == 3
    assert json.loads(ask("query").text)["query"]


def test_a_query_is_made_of_the_documents_words() -> None:
    words = set(json.loads(ask("query").text)["query"].lower().split())
    assert len(words & set(TEXT.lower().replace(",", "").replace(".", "").split())) >= 3


def test_the_judge_compares_words() -> None:
    query = "<query>\nphotosynthesis sunlight chloroplasts energy\n</query>"
    own = ask("judgment", TEXT, query, params={"logprobs": True})
    foreign = ask("judgment", OTHER, query, params={"logprobs": True})
    assert (own.text, foreign.text) == ("Yes", "No")
    assert dict(own.logprobs[0])["Yes"] > dict(own.logprobs[0])["No"]
    assert dict(foreign.logprobs[0])["No"] > dict(foreign.logprobs[0])["Yes"]
    assert int(ask("judgment", TEXT, query).text) > int(ask("judgment", OTHER, query).text)


def test_a_rule_replaces_the_default() -> None:
    backend = ScriptedBackend(rules={"query": lambda request: request.stage.upper()})
    assert ask("query", backend=backend).text == "QUERY"


def test_faults_strike_the_same_requests_every_time_and_about_as_many_as_asked() -> None:
    def struck(seed: int) -> list[int]:
        backend = ScriptedBackend(faults={"prose": 0.2, "refuse": 0.1}, seed=seed)
        hit = []
        for i in range(300):
            try:
                if ask("query", f"{TEXT} {i}", backend=backend).text.startswith("I am sorry"):
                    hit.append(i)
            except Refused:
                hit.append(-i)
        return hit

    assert struck(1) == struck(1) != struck(2)
    assert 60 < len(struck(1)) < 125
    assert 15 < sum(i < 0 for i in struck(1)) < 50


@pytest.mark.parametrize("fault", sorted(set(FAULTS) - {"refuse"}))
def test_a_fault_changes_the_answer(fault: str) -> None:
    backend = ScriptedBackend(rules=Flow().scripted, faults={fault: 1.0})
    assert ask("character", backend=backend).text != ask("character").text


def test_an_unknown_fault_is_named() -> None:
    with pytest.raises(SettingsError, match=r"'prosa' \(did you mean 'prose'\?\)"):
        ScriptedBackend(faults={"prosa": 1.0})
