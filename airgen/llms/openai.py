"""Any OpenAI-compatible endpoint over HTTP: OpenAI, vLLM, Ollama, llama.cpp's server, most gateways.

    backend = OpenAIBackend(base_url="http://localhost:8000/v1")
    backend = OpenAIBackend(api_key_env="OPENAI_API_KEY")

The hot path is aiohttp: the openai client's own transport reaches less than half of the ideal rate at 64
connections.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping

from airgen.llms.base import Reply, Request, Retry
from airgen.llms.chat import FORMATS, chat_body, chat_reply
from airgen.llms.http import Endpoint, error_of, server_limits, status_in

__all__ = ["OpenAIBackend", "billed"]


class OpenAIBackend:
    """`POST {base_url}/chat/completions`, once a call; the engine above repeats, limits and pays.

    See `airgen.llms.http.Endpoint` for the parameters and what they raise.
    """

    def __init__(
        self,
        base_url: str = "https://api.openai.com/v1",
        api_key_env: str | None = None,
        headers: Mapping[str, str] | None = None,
        connect_timeout: float = 15.0,
    ) -> None:
        self._endpoint = Endpoint(base_url, api_key_env, headers, connect_timeout)
        self._forms: dict[str, int] = {}
        self._max_tokens: dict[str, str] = {}

    async def send(self, request: Request) -> Reply:
        """Send one request once, or again without a form that the server has just refused.

        Raises Retry, Refused, LlmError.
        """
        while True:
            form = self._forms.get(request.model, 0)
            limit = self._max_tokens.get(request.model, "max_tokens")
            body = chat_body(request, form=FORMATS[form], max_tokens=limit)
            status, headers, content = await self._endpoint.call("POST", "/chat/completions", body)
            if status == 200:
                return self._reply(request, headers, content)
            if status in (400, 422) and self._learn(request, form, limit, " ".join(error_of(content))):
                continue
            raise self._endpoint.failure(status, headers, content, request.model)

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()

    def _reply(self, request: Request, headers: Mapping[str, str], content: bytes) -> Reply:
        try:
            payload = json.loads(content)
        except (ValueError, RecursionError):
            kind = headers.get("Content-Type", "no type")
            raise Retry("bad_body", detail=f"not JSON ({kind}, {len(content)} bytes)") from None
        if isinstance(payload, dict) and payload.get("error") and not payload.get("choices"):
            # some gateways send errors with status 200
            raise self._endpoint.failure(status_in(payload), headers, content, request.model)
        return dataclasses.replace(billed(request, chat_reply(payload)), limits=server_limits(headers))

    def _learn(self, request: Request, form: int, limit: str, words: str) -> bool:
        """Whether the refusal was of a form that there is another of; remembered for the model."""
        if "max_completion_tokens" in words and limit == "max_tokens" and "max_tokens" in request.params:
            self._max_tokens[request.model] = "max_completion_tokens"
            return True
        named = re.search(r"response_format|json_schema|json_object|guided|grammar|structured output", words, re.I)
        if request.schema is not None and named and form + 1 < len(FORMATS):
            self._forms[request.model] = max(form + 1, self._forms.get(request.model, 0))
            return True
        return False


def billed(request: Request, reply: Reply) -> Reply:
    """The reply with what it used estimated where the server did not say, so that a budget still holds."""
    prompt, completion = reply.prompt_tokens, reply.completion_tokens
    if prompt and (completion or not reply.text):
        return reply
    from airgen.llms.tokens import count_messages, count_tokens

    return dataclasses.replace(
        reply,
        prompt_tokens=prompt or count_messages(request.messages),
        completion_tokens=completion or count_tokens(reply.text),
    )
