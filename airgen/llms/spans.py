"""A span of OpenTelemetry for each attempt at an LLM call, where its API is installed and something listens.

    opentelemetry-instrument airgen run pipeline.yaml      # spans go to the configured exporter

Names and attributes are those of its conventions for generative AI, with `airgen.stage` and `airgen.attempt`. Texts of
prompts and answers are left out unless OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT is true, which is the name
that these conventions give; keys and addresses are never in a span.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airgen.llms.base import Request
from airgen.records import Answer

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


def _tracer() -> Any:
    """Return what makes spans; None if the package is missing or not configured."""
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None  # a span that nothing records still costs a twentieth of a call
    return trace.get_tracer("airgen")


class Spans:
    """Spans of one engine's calls."""

    def __init__(self) -> None:
        self._tracer = _tracer()
        self._texts = os.environ.get(CAPTURE, "").strip().lower() == "true"

    @contextmanager
    def attempt(self, request: Request, number: int) -> Iterator["Attempt"]:
        """The span of one attempt at a call."""
        if self._tracer is None:
            yield Attempt(None, texts=False)
            return
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": request.model,
            "airgen.endpoint": request.endpoint,
            "airgen.stage": request.stage,
            "airgen.attempt": number,
        }
        if self._texts:
            texts = [{"role": message.role, "content": message.content} for message in request.messages]
            attributes["gen_ai.input.messages"] = json.dumps(texts, ensure_ascii=False)
        with self._tracer.start_as_current_span(
            f"chat {request.model}", attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            yield Attempt(span, texts=self._texts)


class Attempt:
    """What is known of an attempt when it has ended."""

    def __init__(self, span: Any, *, texts: bool) -> None:
        self._span, self._texts = span, texts

    def ended(self, answer: Answer | None) -> None:
        """Add tokens, cost and the reason of a failure.

        Args:
            answer: None if the call is tried again.
        """
        if self._span is None or not self._span.is_recording():
            return
        problem = "retried" if answer is None else answer.error
        if answer is not None:
            self._span.set_attribute("gen_ai.usage.input_tokens", answer.prompt_tokens)
            self._span.set_attribute("gen_ai.usage.output_tokens", answer.completion_tokens)
            self._span.set_attribute("airgen.cost_usd", answer.cost_usd)
            if answer.finish_reason:
                self._span.set_attribute("gen_ai.response.finish_reasons", [answer.finish_reason])
            if self._texts and not answer.error:
                text = json.dumps([{"role": "assistant", "content": answer.text}], ensure_ascii=False)
                self._span.set_attribute("gen_ai.output.messages", text)
        if problem:
            from opentelemetry.trace import StatusCode

            self._span.set_attribute("error.type", problem)
            self._span.set_status(StatusCode.ERROR)
