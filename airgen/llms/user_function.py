"""Backends for an LLM or a judge that is a user's function: messages in, text out.

    llm: {backend: python, model: my_llm, version: 5c9e0f12ab34cd56}

The engine treats it like any endpoint, so its answers are saved and counted like others. airgen does not know their
cost, which counts as zero. Calls run one at a time unless `concurrency` is set.
"""

import asyncio
import json
import math
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from airgen.components.user_functions import find, foreign, takes
from airgen.errors import LlmError, UsageError
from airgen.llms.base import Backend, Refused, Reply, Request, Retry, Rule
from airgen.safety.escaping import one_line
from airgen.settings.base import SPEED
from airgen.settings.llm import Concurrency, LlmSettings
from airgen.settings.user_function import PYTHON


class OwnLlmSettings(LlmSettings):
    """Settings of an LLM that is a Python function.

    Attributes:
        model: Name of the function.
        place: `module:name`, if another process can import it.
    """

    backend: str = PYTHON
    version: str = ""
    place: Annotated[str, SPEED] = ""
    concurrency: Concurrency = 1


class OwnBackend(Backend):
    """Calls a function with the messages, `[{"role": ..., "content": ...}]`, and with any of these that it has as
    parameters: `schema` (the JSON schema of the answer), `temperature` and `max_tokens`.
    """

    Settings = OwnLlmSettings

    @classmethod
    def make(cls, settings: OwnLlmSettings, *, folder: Path, rules: Mapping[str, Rule]) -> Backend:
        """Return the backend of a function that this process knows or can import. Raises UsageError."""
        return cls(settings.model, find(settings.model, settings.version, settings.place))

    def __init__(self, name: str, function: Any) -> None:
        self._name, self._function = name, function
        self._worked, self._lock = False, threading.Lock()

    @classmethod
    def missing(cls, settings: OwnLlmSettings) -> list[str]:
        """Return one line if the function is missing."""
        try:
            find(settings.model, settings.version, settings.place)
        except UsageError as error:
            return [f"llm: {error}"]
        return []

    async def send(self, request: Request) -> Reply:
        """Call the function in a thread. An exception in the first call stops the job; later, it is a failed call."""
        try:
            text = await asyncio.to_thread(self._answer, request)
        except LlmError as error:
            if isinstance(error.__cause__, TimeoutError | ConnectionError):
                raise Retry("connection", detail=str(error)) from error
            if not self._worked:
                raise
            raise Refused("error", str(error)) from error
        self._worked = True
        return Reply(text, estimated=True)

    def _answer(self, request: Request) -> str:
        messages = [{"role": message.role, "content": message.content} for message in request.messages]
        known = {"schema": request.schema, **request.params}
        more = {name: value for name, value in known.items() if takes(self._function, name)}
        where = f"the LLM {self._name}"
        answer = foreign(lambda: self._function(messages, **more), where, LlmError)
        content = getattr(answer, "content", answer)  # of a message of LangChain
        if not isinstance(content, str):
            raise LlmError(f"{where} must return the text of the answer, but returned {one_line(repr(answer), 80)}")
        return content


class JudgeBackend(OwnBackend):
    """Calls a function of (query, passages) with one passage. It returns a level (0 to 3) or a probability."""

    Settings = OwnLlmSettings

    def _answer(self, request: Request) -> str:
        try:
            pair = json.loads(request.messages[-1].content)
        except ValueError as error:
            raise LlmError(
                f"the judge {self._name} only judges pairs of a query and a passage; it cannot write text"
            ) from error
        where = f"the judge {self._name}"
        returned = foreign(lambda: self._function(pair["query"], [pair["document"]]), where, LlmError)
        value = returned.tolist() if hasattr(returned, "tolist") else returned
        if isinstance(value, list | tuple) and len(value) == 1:
            value = value[0]
        if isinstance(value, bool):
            value = 3 if value else 0
        if isinstance(value, int) and 0 <= value <= 3:
            return json.dumps({"level": value})
        if isinstance(value, float) and math.isfinite(value) and 0 <= value <= 1:
            return json.dumps({"probability": value})
        raise LlmError(
            f"{where} must return, for each passage, a level of 0, 1, 2 or 3, a probability of 0.0 to 1.0, or whether "
            f"it is relevant, but returned {one_line(repr(returned), 80)}"
        )
