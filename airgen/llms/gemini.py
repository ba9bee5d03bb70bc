"""Google's Gemini API, through the `google-genai` package.

llm: {backend: gemini, model: gemini-2.5-flash, api_key_env: GEMINI_API_KEY}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from airgen.llms.base import Backend, Rule
from airgen.llms.chat_backend import ChatBackend, EndpointSettings
from airgen.llms.dialect import Dialect
from airgen.llms.http import Endpoint
from airgen.llms.packages import NO_KEY, client_of, through
from airgen.llms.prices import Price, price
from airgen.registry import installed, load_extra
from airgen.settings.base import SPEED

URL = "https://generativelanguage.googleapis.com"
_FINISH = {"STOP": "stop", "MAX_TOKENS": "length"}
_BLOCKED = {"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE"}


class GeminiSettings(EndpointSettings):
    """`reasoning_effort` is the level of thinking; a thinking budget is set in `extra_body`."""

    backend: str = "gemini"
    api_key_env: Annotated[str | None, SPEED] = "GEMINI_API_KEY"


class GeminiBackend(ChatBackend):
    """One `generateContent` a call."""

    Settings = GeminiSettings

    @classmethod
    def make(cls, settings: GeminiSettings, *, folder: Path, rules: Mapping[str, Rule]) -> Backend:
        """A backend for live calls. Raises MissingExtra without the package."""
        return cls(settings)

    @classmethod
    def missing(cls, settings: GeminiSettings) -> list[str]:
        """The key and the package."""
        return [*settings.unset(), *installed("google.genai", "llm.backend gemini")]

    @classmethod
    def price(cls, settings: GeminiSettings) -> Price | None:
        """The price of the pipeline, or the published one."""
        return price(settings.model, settings.prices, settings.base_url or "")

    def __init__(self, settings: GeminiSettings) -> None:
        genai = load_extra("google.genai", "llm.backend gemini")
        endpoint = Endpoint(
            settings.base_url or URL, settings.api_key_env, settings.headers,
            query=settings.query, key_header="x-goog-api-key",
        )  # fmt: skip
        super().__init__(endpoint, Dialect(most_room=settings.thinking_tokens))
        self._effort, self._extra = settings.reasoning_effort, settings.extra_body
        options = {
            "base_url": endpoint.base_url,
            "httpx_async_client": client_of(endpoint, "Gemini"),
            "retry_options": {"attempts": 1},
        }
        self._client = genai.Client(api_key=NO_KEY, vertexai=False, http_options=options)

    async def post(self, body: dict[str, Any]) -> tuple[int, Mapping[str, str], bytes]:
        """Send the chat as contents. Raises what `Endpoint.post` raises."""
        system = "\n\n".join(part["content"] for part in body["messages"] if part["role"] == "system")
        contents = [
            {"role": "model" if part["role"] == "assistant" else "user", "parts": [{"text": part["content"]}]}
            for part in body["messages"]
            if part["role"] != "system"
        ]
        config: dict[str, Any] = {"max_output_tokens": body["max_tokens"]}
        config |= {name: body[name] for name in ("temperature", "top_p", "seed") if name in body}
        if system:
            config["system_instruction"] = system
        if stop := body.get("stop"):
            config["stop_sequences"] = stop if isinstance(stop, list) else [stop]
        if body.get("logprobs"):
            config |= {"response_logprobs": True, "logprobs": body.get("top_logprobs", 1)}
        if form := body.get("response_format"):
            config["response_mime_type"] = "application/json"
            if form["type"] == "json_schema":
                config["response_json_schema"] = form["json_schema"]["schema"]
        if self._effort:
            config["thinking_config"] = {"thinking_level": self._effort}
        if self._extra:
            config["http_options"] = {"extra_body": self._extra}
        return await through(
            lambda: self._client.aio.models.generate_content(model=body["model"], contents=contents, config=config),
            "Gemini",
        )

    def read(self, payload: Any) -> Any:
        """Generated content as a chat completion."""
        try:
            usage = payload.get("usageMetadata") or {}
            thought = usage.get("thoughtsTokenCount") or 0
            counted = {
                "prompt_tokens": usage.get("promptTokenCount"),
                "completion_tokens": (usage.get("candidatesTokenCount") or 0) + thought,
                "prompt_tokens_details": {"cached_tokens": usage.get("cachedContentTokenCount")},
                "completion_tokens_details": {"reasoning_tokens": thought},
            }
            if blocked := (payload.get("promptFeedback") or {}).get("blockReason"):
                choice: dict[str, Any] = {"message": {"content": str(blocked)}, "finish_reason": "content_filter"}
                return {"choices": [choice], "usage": counted}
            found = payload["candidates"][0]
            parts = (found.get("content") or {}).get("parts") or []
            reason = str(found.get("finishReason"))
            choice = {
                "message": {
                    "content": "".join(part.get("text", "") for part in parts if not part.get("thought")),
                    "reasoning": "".join(part.get("text", "") for part in parts if part.get("thought")),
                },
                "finish_reason": "content_filter" if reason in _BLOCKED else _FINISH.get(reason, reason),
                "logprobs": _logprobs(found.get("logprobsResult")),
            }
        except (TypeError, KeyError, IndexError, AttributeError):
            return payload  # which is no chat completion: the caller says so, and what it cost
        return {"choices": [choice], "usage": counted}


def _logprobs(result: Any) -> dict[str, Any] | None:
    """Log-probabilities in the format of chat completions."""
    if not result:
        return None
    chosen, top = result["chosenCandidates"], result.get("topCandidates") or []
    tokens = [{"token": one["token"], "logprob": one["logProbability"]} for one in chosen]
    for token, one in zip(tokens, top, strict=False):
        token["top_logprobs"] = [{"token": a["token"], "logprob": a["logProbability"]} for a in one["candidates"]]
    return {"content": tokens}
