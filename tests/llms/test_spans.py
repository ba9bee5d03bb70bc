"""Spans of calls by the real SDK of OpenTelemetry, with its exporter in memory."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from packages import package
from simulation import MemoryStore, Simulated, outcomes_of, requests, simulated

from airgen.llms import spans
from airgen.llms.base import Refused, Request, Retry

package("opentelemetry.sdk")


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What exports spans; the provider is this test's alone."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(spans, "_tracer", lambda: provider.get_tracer("airgen"))
    monkeypatch.delenv(spans.CAPTURE, raising=False)
    yield exporter
    provider.shutdown()


@simulated
async def ask_three(server: Callable[[], Simulated] = Simulated) -> None:
    answers, _ = await outcomes_of(server(), 3, MemoryStore())
    assert len(answers) == 3


def test_each_attempt_has_a_span_without_texts(exported: Any) -> None:
    def behave(request: Request, attempt: int) -> None:
        if request == requests(3)[1]:
            raise Refused("refusal")
        if request == requests(3)[2] and attempt == 1:
            raise Retry("http_500")

    ask_three(lambda: Simulated(behave=behave))
    found = exported.get_finished_spans()
    assert len(found) == 4 and {one.name for one in found} == {f"chat {requests(1)[0].model}"}
    by_error = sorted(str(one.attributes.get("error.type", "")) for one in found)
    assert by_error == ["", "", "refusal", "retried"]
    good = next(one for one in found if "error.type" not in one.attributes)
    assert good.attributes["gen_ai.usage.output_tokens"] > 0 and good.attributes["airgen.stage"] == "query"
    assert sorted(one.attributes["airgen.attempt"] for one in found) == [1, 1, 1, 2]
    told = json.dumps([[one.name, dict(one.attributes), str(one.events)] for one in found], default=str)
    assert not [one for one in requests(3) if one.messages[0].content in told] and "messages" not in told


def test_texts_are_in_it_where_they_are_asked_for(exported: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(spans.CAPTURE, "true")
    ask_three()
    texts = {json.loads(one.attributes["gen_ai.input.messages"])[0]["content"] for one in exported.get_finished_spans()}
    assert texts == {one.messages[0].content for one in requests(3)}
    assert all("gen_ai.output.messages" in one.attributes for one in exported.get_finished_spans())


def test_without_the_package_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "_tracer", lambda: None)
    ask_three()
