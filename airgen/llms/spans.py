"""Create an OpenTelemetry span for each attempt at an LLM call, if its API is installed and configured.

    opentelemetry-instrument airgen run pipeline.yaml      # spans go to the configured exporter

Names and attributes follow its conventions for generative AI, with the addition of `airgen.stage` and `airgen.attempt`.
The texts of prompts and answers are omitted unless the conventions' environment variable
OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT is true. Keys and URLs are never in a span.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airgen.llms.base import Request
from airgen.storage.records import Answer

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


def _tracer() -> Any:
    """Return the tracer, or None if the package is missing or not configured."""
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None  # a span costs a twentieth of a call even if nothing records it
    return trace.get_tracer("airgen")


class Spans:
    """The spans of one engine's calls."""

    def __init__(self) -> None:
        self._tracer = _tracer()
        self._texts = os.environ.get(CAPTURE, "").strip().lower() == "true"

    @contextmanager
    def attempt(self, request: Request, number: int) -> Iterator["Attempt"]:
        """Open the span of one attempt at a call."""
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
    """Records the outcome of an attempt."""

    def __init__(self, span: Any, *, texts: bool) -> None:
        self._span, self._texts = span, texts

    def ended(self, answer: Answer | None) -> None:
        """Add the tokens, the cost and the reason for a failure.

        Args:
            answer: The answer, or None if the call will be retried.
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
