"""Anthropic's Messages API, through the `anthropic` package.

llm: {backend: anthropic, model: claude-sonnet-4-5, api_key_env: ANTHROPIC_API_KEY}
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

URL = "https://api.anthropic.com"
_FINISH = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length"}


class AnthropicSettings(EndpointSettings):
    """`reasoning_effort` is the effort of the output; thinking is set in `extra_body`."""

    backend: str = "anthropic"
    api_key_env: Annotated[str | None, SPEED] = "ANTHROPIC_API_KEY"


class AnthropicBackend(ChatBackend):
    """One message a call. There are no log-probabilities and no seeds."""

    Settings = AnthropicSettings

    @classmethod
    def make(cls, settings: AnthropicSettings, *, folder: Path, rules: Mapping[str, Rule]) -> Backend:
        """A backend for live calls. Raises MissingExtra without the package."""
        return cls(settings)

    @classmethod
    def missing(cls, settings: AnthropicSettings) -> list[str]:
        """The key and the package."""
        return [*settings.unset(), *installed("anthropic", "llm.backend anthropic")]

    @classmethod
    def price(cls, settings: AnthropicSettings) -> Price | None:
        """The price of the pipeline, or the published one."""
        return price(settings.model, settings.prices, settings.base_url or "")

    def __init__(self, settings: AnthropicSettings) -> None:
        package = load_extra("anthropic", "llm.backend anthropic")
        endpoint = Endpoint(
            settings.base_url or URL, settings.api_key_env, settings.headers,
            query=settings.query, key_header="x-api-key",
        )  # fmt: skip
        dropped = ["logprobs", "top_logprobs", "seed"]
        super().__init__(endpoint, Dialect(dropped=dropped, most_room=settings.thinking_tokens))
        self._effort, self._extra = settings.reasoning_effort, settings.extra_body
        self._client = package.AsyncAnthropic(
            api_key=NO_KEY, base_url=endpoint.base_url, max_retries=0, http_client=client_of(endpoint, "Anthropic")
        )

    async def post(self, body: dict[str, Any]) -> tuple[int, Mapping[str, str], bytes]:
        """Send the chat as a message. Raises what `Endpoint.post` raises."""
        system = "\n\n".join(part["content"] for part in body["messages"] if part["role"] == "system")
        output: dict[str, Any] = {"effort": self._effort} if self._effort else {}
        if (form := body.get("response_format")) and form["type"] == "json_schema":
            output["format"] = {"type": "json_schema", "schema": form["json_schema"]["schema"]}
        asked: dict[str, Any] = {
            "model": body["model"],
            "max_tokens": body["max_tokens"],
            "messages": [part for part in body["messages"] if part["role"] != "system"],
            **({"system": system} if system else {}),
            **({"stop_sequences": stop if isinstance(stop, list) else [stop]} if (stop := body.get("stop")) else {}),
        }
        # newer versions of the package know these no longer; older models still take them
        sampling: dict[str, Any] = {name: body[name] for name in ("temperature", "top_p") if name in body}
        extra: dict[str, Any] = {**sampling, **({"output_config": output} if output else {}), **self._extra}
        return await through(
            lambda: self._client.messages.create(**asked, extra_body=extra, timeout=86_400.0), "Anthropic"
        )

    def read(self, payload: Any) -> Any:
        """A message as a chat completion. Raises Refused where the model refuses."""
        try:
            parts, usage = payload["content"], payload.get("usage") or {}
            cached = usage.get("cache_read_input_tokens") or 0
            prompt = usage.get("input_tokens", 0) + cached + (usage.get("cache_creation_input_tokens") or 0)
            details = usage.get("output_tokens_details") or {}
            counted = {
                "prompt_tokens": prompt,
                "completion_tokens": usage.get("output_tokens"),
                "prompt_tokens_details": {"cached_tokens": cached},
                "completion_tokens_details": {"reasoning_tokens": details.get("thinking_tokens")},
            }
            reason = str(payload.get("stop_reason"))
            message = {
                "content": "".join(part["text"] for part in parts if part.get("type") == "text"),
                "reasoning": "".join(part["thinking"] for part in parts if part.get("type") == "thinking"),
            }
        except (TypeError, KeyError, AttributeError):
            return payload  # which is no chat completion: the caller says so, and what it cost
        if reason == "refusal":
            message["refusal"] = message["content"] or "the model refuses"
        return {"choices": [{"message": message, "finish_reason": _FINISH.get(reason, reason)}], "usage": counted}
