"""A real model in the process: llama.cpp through xllamacpp, on the CPU, without a key, a server or a network.

    backend = EmbeddedBackend("qwen2.5-coder-1.5b")       # after `airgen models fetch qwen2.5-coder-1.5b`

**One answer a request, whatever came before.** A float sum depends on how tokens were grouped into batches, so
llama.cpp's prefix cache and parallel slots change answers with the order of arrival: of 8 greedy answers of 24
tokens, 2 changed with the cache, and 1 or 2 with two slots. Here calls are computed one at a time, prompts in blocks
of `BLOCK` tokens from position 0, and a cached prefix is only ever reused up to a block's edge: every number comes
out of the same batches as in a fresh process, and most of the prefix is still served from the cache. Several slots
keep the prefixes of several prompts, for calls about different documents that take turns.

**Text is text.** Message contents are tokenised without special tokens: a document that holds `<|im_end|>` cannot
end its message.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from airgen.errors import LlmError, ModelError
from airgen.llms.base import Refused, Reply, Request, Retry
from airgen.llms.chat import chat_reply, closed
from airgen.registry import load_extra

__all__ = ["BLOCK", "DEFAULT_MODEL", "EmbeddedBackend"]

DEFAULT_MODEL = "qwen2.5-coder-1.5b"
BLOCK = 32  # tokens of one prompt batch, and the grain of prefix reuse
MAX_TOKENS = 1024  # where a request names none: a small model may never stop by itself

_OPEN, _CLOSE = "\ue000", "\ue001"  # private use: stand for a message's content while the template is rendered
_SAME_NAME = ("temperature", "top_p", "top_k", "min_p", "seed", "stop", "frequency_penalty", "presence_penalty")


class EmbeddedBackend:
    """Chat with a GGUF model; loads at the first call, then answers one call at a time.

    model: a name of `airgen models list`. path: a GGUF file instead. threads: computing threads, all cores of this
    process by default. context: the most tokens of a prompt and its answer together. slots: how many callers take
    turns; the prefixes of one prompt more are kept, and each takes memory for `context` tokens (230 MB for 8,192 of
    the default model). Raises ModelError where the model was not fetched, MissingExtra without xllamacpp.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        path: Path | None = None,
        threads: int | None = None,
        context: int = 8192,
        slots: int = 1,
    ) -> None:
        if path is None:
            from airgen.models import path as fetched

            path = _gguf(fetched(model))
        self.model, self._path = model, path
        self._threads, self._context, self._slots = threads or _cores(), context, min(max(1, slots), 7) + 1
        self._workers = ThreadPoolExecutor(1, thread_name_prefix="airgen-llama")
        self._loading = asyncio.Lock()
        self._server: Any = None
        self._secret = secrets.token_hex(16)
        self._frames: dict[tuple[str, ...], list[str]] = {}
        self._framed: dict[str, list[int]] = {}
        # What each slot holds, the least recently used slot first.
        self._held: dict[int, list[int]] = {slot: [] for slot in range(self._slots)}

    async def send(self, request: Request) -> Reply:
        """Answer one request. Raises Refused for a prompt longer than the context, LlmError for another model."""
        if request.model != self.model:
            raise LlmError(f"the embedded backend has loaded {self.model!r}, not {request.model!r}")
        loop = asyncio.get_running_loop()
        async with self._loading:
            if self._server is None:
                await loop.run_in_executor(self._workers, self._load)
        return await loop.run_in_executor(self._workers, self._answer, request)

    async def close(self) -> None:
        """Wait for the call in flight, then unload the model."""
        await asyncio.get_running_loop().run_in_executor(None, self._workers.shutdown)
        self._server = None

    # -- in the worker's thread --------------------------------------------------------------------------------

    def _load(self) -> None:
        xllamacpp = _import_quietly()
        params = xllamacpp.CommonParams()
        params.model.path = str(self._path)
        params.n_ctx = self._context * self._slots
        params.n_parallel = self._slots
        params.n_batch = params.n_ubatch = BLOCK  # each block is computed alone, wherever a prompt starts
        params.kv_unified = False
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = self._threads
        params.cache_ram_mib = 0  # the server's own cache of old prompts would reuse them off the blocks' edges
        params.n_ctx_checkpoints = 0
        params.verbosity = -1
        params.endpoint_slots = params.ui = False
        params.api_keys = [self._secret]
        try:
            self._server = xllamacpp.Server(params)
        except (RuntimeError, ValueError) as error:
            raise ModelError(f"{self._path}: llama.cpp cannot load it: {error}") from error

    def _answer(self, request: Request) -> Reply:
        tokens = self._tokens(request)
        body = _parameters(request)
        if len(tokens) >= self._context:
            raise Refused("context_length", f"{len(tokens)} tokens, the context holds {self._context}")
        slot, keep = self._align(tokens)
        payload = self._complete(slot, {**body, "prompt": tokens, "cache_prompt": keep > 0})
        self._held[slot] = tokens
        # A text completion differs from a chat completion in where the text stands.
        choice = payload["choices"][0]
        return chat_reply({**payload, "choices": [{**choice, "message": {"content": choice.get("text", "")}}]})

    def _align(self, tokens: list[int]) -> tuple[int, int]:
        """The slot to use, cut to whole blocks that `tokens` begins with, and how many tokens of it are kept."""
        kept = {slot: min(_common(held, tokens), len(tokens) - 1) // BLOCK * BLOCK for slot, held in self._held.items()}
        slot = max(kept, key=lambda slot: kept[slot])  # of equals the least recently used
        keep = kept[slot]
        if keep:
            # One token that differs from the prompt's next: the server then forgets all behind `keep`, and the
            # prompt's own computation starts exactly there.
            prompt = [*tokens[:keep], (tokens[keep] + 1) % 1000]
            self._complete(slot, {"prompt": prompt, "max_tokens": 1, "temperature": 0, "cache_prompt": True})
        return slot, keep

    def _complete(self, slot: int, body: dict[str, Any]) -> dict[str, Any]:
        self._held.pop(slot)
        self._held[slot] = []  # until the caller knows better; the slot is now the last used one
        try:
            payload = self._server.handle_completions({**body, "id_slot": slot})
        except (RuntimeError, ValueError) as error:
            raise Retry("llama", detail=str(error)) from error
        if not isinstance(payload, dict) or "choices" not in payload:
            problem = payload.get("error", {}) if isinstance(payload, dict) else {}
            words = str(problem.get("message", payload))
            if problem.get("type") == "exceed_context_size_error":
                raise Refused("context_length", words)
            if problem.get("type") == "invalid_request_error":
                raise Refused("invalid_request", words)
            raise Retry("llama", detail=words)
        return payload

    def _tokens(self, request: Request) -> list[int]:
        """The prompt's tokens: the model's own chat template around contents that cannot hold special tokens."""
        roles = tuple(message.role for message in request.messages)
        if roles not in self._frames:
            stand_ins = [{"role": role, "content": f"{_OPEN}{i}{_CLOSE}"} for i, role in enumerate(roles)]
            prompt = self._http("/apply-template", {"messages": stand_ins})["prompt"]
            pieces = []
            for i in range(len(roles)):
                before, found, prompt = prompt.partition(f"{_OPEN}{i}{_CLOSE}")
                if not found:
                    raise LlmError(f"the chat template of {self.model} drops or moves messages of the roles {roles}")
                pieces.append(before)
            self._frames[roles] = [*pieces, prompt]
        frame = self._frames[roles]
        tokens: list[int] = []
        for piece, message in zip(frame, request.messages, strict=False):
            tokens += self._special(piece)
            tokens += self._http("/tokenize", {"content": message.content, "parse_special": False})["tokens"]
        return tokens + self._special(frame[-1])

    def _special(self, piece: str) -> list[int]:
        if piece not in self._framed:
            self._framed[piece] = self._http("/tokenize", {"content": piece, "parse_special": True})["tokens"]
        return self._framed[piece]

    def _http(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Template and tokenizer are only on the server's loopback port; the key keeps other users out."""
        request = urllib.request.Request(
            self._server.listening_address + path,
            json.dumps(body).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {self._secret}"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=60) as response:
                payload: dict[str, Any] = json.load(response)
        except (urllib.error.URLError, OSError, ValueError) as error:
            raise Retry("llama", detail=f"{path}: {error}") from error
        return payload


# No line breaks between the parts of an answer: they cost time, and a small model once begun writes hundreds.
_COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def _common(held: Sequence[int], wanted: Sequence[int]) -> int:
    """How many tokens the two begin with together."""
    for i, (one, other) in enumerate(zip(held, wanted, strict=False)):
        if one != other:
            return i
    return min(len(held), len(wanted))


def _parameters(request: Request) -> dict[str, Any]:
    """The request's parameters under llama.cpp's names for text completions."""
    given = request.params
    body: dict[str, Any] = {name: given[name] for name in _SAME_NAME if name in given}
    body["max_tokens"] = int(given.get("max_completion_tokens") or given.get("max_tokens") or MAX_TOKENS)
    # Draws belong to the request, not to the moment: the same request gives the same answer.
    body.setdefault("seed", int(request.key[:8], 16) % (2**31 - 1))
    if given.get("logprobs"):
        body["logprobs"] = int(given.get("top_logprobs") or 1)
    if request.schema is not None:
        body["json_schema"] = {**closed(request.schema), "x-guidance": _COMPACT}
    return body


def _import_quietly() -> Any:
    """xllamacpp, with its threads told to sleep while they wait for each other.

    OpenMP's default is to spin, which on a machine with other work makes two threads ten times slower than one.
    libgomp reads the variables once, when it is loaded.
    """
    wanted = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
    added = [name for name in wanted if name not in os.environ and "xllamacpp" not in sys.modules]
    os.environ.update({name: wanted[name] for name in added})
    try:
        return load_extra("xllamacpp", "the embedded LLM")
    finally:
        for name in added:
            os.environ.pop(name, None)


def _cores() -> int:
    """Cores that this process may use, at most 8: beyond, memory is what bounds."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(8, cores))


def _gguf(path: Path) -> Path:
    """The GGUF file of a fetched model, which may be kept in a folder of its own."""
    if path.is_dir():
        found: Sequence[Path] = sorted(path.glob("*.gguf"))
        if not found:
            raise ModelError(f"{path}: holds no GGUF file")
        return found[0]
    return path
