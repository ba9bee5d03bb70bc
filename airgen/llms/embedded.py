"""Run a model on this machine's CPU with llama.cpp (through xllamacpp), without a key or a network.

    backend = EmbeddedBackend("qwen2.5-coder-1.5b")       # after `airgen fetch qwen2.5-coder-1.5b`

**The same request always gets the same answer.** Floating-point sums depend on how tokens are grouped into batches, so
with llama.cpp's prefix cache and parallel slots, an answer depends on earlier calls: of 8 greedy answers of 24 tokens,
2 changed with the cache, and 1 or 2 with two slots. This backend therefore runs one call at a time, computes prompts in
blocks of `BLOCK` tokens, and reuses a cached prefix only up to a block boundary. Every number thus comes from the same
batches as in a new process, and most of the prefix still comes from the cache. Several slots keep the prefixes of
several prompts, for alternating calls about different documents.

The messages before the last one, a prompt's instructions and worked examples, are the same for all documents. If they
are long, they are computed on their own, so the blocks of the rest begin after them, and the state after them is on
disk for the next process (`SavedPrefixes`).

**Documents are data.** Message contents are tokenised without special tokens, so a document that contains `<|im_end|>`
cannot end its message.
"""

import asyncio
import http.client
import importlib.util
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field

from airgen import models
from airgen.components.keys import content_key
from airgen.components.registry import missing_extras
from airgen.compute import cores
from airgen.errors import LlmError, MissingExtra, ModelError
from airgen.llms import llama_server
from airgen.llms.base import Backend, Refused, Reply, Request, Retry, Rule
from airgen.llms.chat import chat_reply, closed
from airgen.llms.saved_prefixes import SavedPrefixes
from airgen.settings.base import MODEL, SPEED
from airgen.settings.llm import Concurrency, LlmSettings, Seconds
from airgen.storage.paths import cache_dir

DEFAULT_MODEL = "qwen2.5-coder-1.5b"
BLOCK = 64  # tokens per prompt batch; cached prefixes are reused in whole blocks. Blocks of 32 read 5 to 20% slower
CONSTANT_TOKENS = 256  # least tokens of a prompt's constant messages to compute on their own: 5 s of two cores
MAX_TOKENS = 1024  # for a request without a limit, because a small model may never stop by itself

_OPEN, _CLOSE = "\ue000", "\ue001"  # private use: they mark a message's place while the template is rendered
# By default, OpenMP threads spin while they wait for each other. On a busy machine, this makes two threads ten times
# slower than one.
_SLEEP_WHILE_WAITING = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
_SAME_NAME = ("temperature", "top_p", "top_k", "min_p", "seed", "stop", "frequency_penalty", "presence_penalty")


class EmbeddedSettings(LlmSettings):
    """Settings of the embedded backend. Calls run one at a time, and the timeout includes waiting for earlier calls."""

    backend: Annotated[str, SPEED] = "embedded"
    model: Annotated[str, MODEL] = DEFAULT_MODEL
    concurrency: Concurrency = 1
    timeout_seconds: Seconds = 3600.0
    threads: Annotated[int | None, SPEED, Field(ge=1)] = None  # None: all cores, at most 8; one where they are busy


class EmbeddedBackend(Backend):
    """Chat with a GGUF model, which is loaded at the first call and answers one call at a time.

    Raises ModelError if the model has not been fetched, and MissingExtra if xllamacpp is missing.

    Args:
        model: A name listed by `airgen show models`.
        threads: Number of threads. Default: `free_threads`.
        context: Maximum number of tokens of a prompt and its answer together.
        slots: Number of alternating callers. The prefixes of one more prompt are kept, each of which takes memory for
            `context` tokens (230 MB for 8,192 tokens of the default model).
    """

    Settings = EmbeddedSettings
    SMALL = True
    SERIAL = True

    @classmethod
    def make(cls, settings: EmbeddedSettings, *, folder: Path, rules: Mapping[str, Rule]) -> Backend:
        """Return a backend with one slot per concurrent call."""
        return cls(settings.model, slots=settings.concurrency, threads=settings.threads)

    @classmethod
    def missing(cls, settings: EmbeddedSettings) -> list[str]:
        """Return a line for the missing package or model file."""
        problems = missing_extras(["xllamacpp"], "llm.backend embedded")
        if settings.model not in models.catalogue():
            problems.append(
                f"llm.model: the embedded backend has no model named {settings.model!r}: see `airgen show models`"
            )
        elif not models.fetched(settings.model):
            problems.append(f"the model {settings.model} is not on this machine: airgen fetch {settings.model}")
        return problems

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        threads: int | None = None,
        context: int = 8192,
        slots: int = 1,
    ) -> None:
        if importlib.util.find_spec("xllamacpp") is None:
            raise MissingExtra("the embedded LLM", "xllamacpp", "embedded")
        self.model, self._path = model, _gguf(models.path(model))
        self._threads = threads or free_threads(cores(), _load())
        self._context, self._slots = context, min(max(1, slots), 7) + 1
        self._workers = ThreadPoolExecutor(1, thread_name_prefix="airgen-llama")
        self._loading = asyncio.Lock()
        self._server: subprocess.Popen[str] | None = None
        self._address = ""
        self._secret = secrets.token_hex(16)
        self._frames: dict[tuple[str, ...], list[str]] = {}
        self._framed: dict[str, list[int]] = {}
        # The tokens in each slot, the least recently used slot first.
        self._held: dict[int, list[int]] = {slot: [] for slot in range(self._slots)}
        self._saved = SavedPrefixes(cache_dir("prefixes"))
        self._build = ""

    async def send(self, request: Request) -> Reply:
        """Answer a request. Raises Refused if the prompt exceeds the context, and LlmError if it is for another
        model."""
        if request.model != self.model:
            raise LlmError(f"the embedded backend has loaded {self.model!r}, not {request.model!r}")
        loop = asyncio.get_running_loop()
        async with self._loading:
            if self._server is None:
                await loop.run_in_executor(self._workers, self._load)
        return await loop.run_in_executor(self._workers, self._answer, request)

    async def close(self) -> None:
        """Wait for the call in flight, then end the model's process."""
        await asyncio.get_running_loop().run_in_executor(None, self._workers.shutdown)
        if self._server is not None:
            self._server.communicate()  # closes its standard input, which ends it
            self._server = None

    # -- in the worker's thread --------------------------------------------------------------------------------

    def _load(self) -> None:
        server = subprocess.Popen(
            [sys.executable, "-P", llama_server.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**_SLEEP_WHILE_WAITING, **os.environ},
        )
        assert server.stdin is not None and server.stdout is not None
        wanted = {
            "path": str(self._path),
            "context": self._context,
            "slots": self._slots,
            "block": BLOCK,
            "threads": self._threads,
            "key": self._secret,
            "states": f"{self._saved.folder}{os.sep}",
        }
        server.stdin.write(json.dumps(wanted) + "\n")
        server.stdin.flush()
        answer = json.loads(server.stdout.readline() or '{"error": "its process ended"}')
        if "error" in answer:
            server.communicate()
            raise ModelError(f"{self._path}: llama.cpp cannot load it: {answer['error']}")
        self._server, self._address, self._build = server, urlsplit(answer["address"]).netloc, answer["build"]

    def _answer(self, request: Request) -> Reply:
        parts = self._parts(request)
        tokens = _joined(parts)
        body = _parameters(request)
        if len(tokens) >= self._context:
            raise Refused("context_length", f"{len(tokens)} tokens, but the context is limited to {self._context}")
        slot, keep = self._align(tokens, self._read_constant(_joined(parts[:-2])))
        payload = self._complete(slot, {**body, "prompt": tokens, "cache_prompt": keep > 0})
        self._held[slot] = tokens
        # A text completion differs from a chat completion in the position of the text.
        choice = payload["choices"][0]
        return chat_reply({**payload, "choices": [{**choice, "message": {"content": choice.get("text", "")}}]})

    def _align(self, tokens: list[int], start: int) -> tuple[int, int]:
        """Return the slot to use, and how many of its tokens to keep: those with which `tokens` begins, in whole blocks
        from `start`."""
        common = {}
        for slot, slot_tokens in self._held.items():
            pairs = enumerate(zip(slot_tokens, tokens, strict=False))
            differ = (place for place, (held_token, token) in pairs if held_token != token)
            same = min(next(differ, len(slot_tokens)), len(tokens) - 1) - start
            common[slot] = start + same // BLOCK * BLOCK if same >= 0 else 0
        slot = max(common, key=lambda slot: common[slot])  # among equals, the least recently used
        keep = common[slot]
        if keep:
            # A token that differs from the prompt's next token: the server then forgets everything after `keep`, and
            # the prompt's own computation starts exactly there.
            self._read(slot, [*tokens[:keep], (tokens[keep] + 1) % 1000], cached=True)
        return slot, keep

    def _read_constant(self, constant: list[int]) -> int:
        """Have a slot hold the constant beginning of a prompt, from disk if it was read before, and return its length;
        0 if it is too short to be computed on its own."""
        if len(constant) < CONSTANT_TOKENS:
            return 0
        if not any(held[: len(constant)] == constant for held in self._held.values()):
            slot = next(iter(self._held))
            model = {"name": self.model, "identity": models.identity(self.model), "file": self._path.stat().st_size}
            key = content_key({"model": model, "build": self._build, "block": BLOCK, "tokens": constant})
            state = self._saved.find(key)
            if state is None or "n_restored" not in self._http(f"/slots/{slot}?action=restore", {"filename": state}):
                self._read(slot, [*constant, 0], cached=False)
                written = f"{key}-{os.getpid()}.tmp"
                if "n_saved" in self._http(f"/slots/{slot}?action=save", {"filename": written}):
                    self._saved.keep(key, written)
            self._held.pop(slot)
            self._held[slot] = constant
        return len(constant)

    def _read(self, slot: int, tokens: list[int], *, cached: bool) -> None:
        self._complete(slot, {"prompt": tokens, "max_tokens": 1, "temperature": 0, "cache_prompt": cached})

    def _complete(self, slot: int, body: dict[str, Any]) -> dict[str, Any]:
        self._held.pop(slot)
        self._held[slot] = []  # until the caller knows what the slot holds; it is now the last used slot
        payload = self._http("/v1/completions", {**body, "id_slot": slot})
        if "choices" not in payload:
            problem = payload.get("error", {})
            message = str(problem.get("message", payload))
            if problem.get("type") == "exceed_context_size_error":
                raise Refused("context_length", message)
            if problem.get("type") == "invalid_request_error":
                raise Refused("invalid_request", message)
            raise Retry("llama", detail=message)
        return payload

    def _tokens(self, request: Request) -> list[int]:
        return _joined(self._parts(request))

    def _parts(self, request: Request) -> list[list[int]]:
        """Tokenise the prompt: the model's chat template around contents that cannot contain special tokens. Each
        message is two parts, and the last part follows them."""
        roles = tuple(message.role for message in request.messages)
        if roles not in self._frames:
            stand_ins = [{"role": role, "content": f"{_OPEN}{index}{_CLOSE}"} for index, role in enumerate(roles)]
            prompt = self._http("/apply-template", {"messages": stand_ins})["prompt"]
            pieces = []
            for index in range(len(roles)):
                before, marker, prompt = prompt.partition(f"{_OPEN}{index}{_CLOSE}")
                if not marker:
                    raise LlmError(f"the chat template of {self.model} drops or moves messages of the roles {roles}")
                pieces.append(before)
            self._frames[roles] = [*pieces, prompt]
        frame = self._frames[roles]
        parts: list[list[int]] = []
        for piece, message in zip(frame, request.messages, strict=False):
            parts.append(self._special(piece))
            parts.append(self._http("/tokenize", {"content": message.content, "parse_special": False})["tokens"])
        return [*parts, self._special(frame[-1])]

    def _special(self, piece: str) -> list[int]:
        if piece not in self._framed:
            self._framed[piece] = self._http("/tokenize", {"content": piece, "parse_special": True})["tokens"]
        return self._framed[piece]

    def _http(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request to the model's process on its loopback port. The key keeps out other users of the machine."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._secret}"}
        try:
            with closing(http.client.HTTPConnection(self._address)) as connection:
                connection.request("POST", path, json.dumps(body), headers)
                payload: dict[str, Any] = json.load(connection.getresponse())  # the name of an error too
                return payload
        except (http.client.HTTPException, OSError, ValueError) as error:
            ended = self._server.poll() if self._server is not None else None
            if ended is None:
                raise Retry("llama", detail=f"{path}: {error}") from error
            raise LlmError(f"the process of {self.model} ended with status {ended}; it may be out of memory") from error


def _joined(parts: Iterable[list[int]]) -> list[int]:
    return list(chain.from_iterable(parts))


def free_threads(cores: int, load: float) -> int:
    """Return the number of threads to use: all cores up to 8, or 1 on a busy machine.

    With more than 8, memory bandwidth is the limit. If the load is more than twice the number of cores, one thread is
    faster, because threads wait for each other at each layer of the model: on two cores with a load of 25, a call of
    100 tokens took 40 to 50 s with two threads, and 25 to 35 s with one. The answers are the same.
    """
    return 1 if load >= 2 * cores else min(8, cores)


def _load() -> float:
    """Return the system's load in the last minute, or 0 if it is unknown."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return 0.0


# No line breaks between the parts of an answer, because they cost time, and a small model may write hundreds of them.
_COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def _parameters(request: Request) -> dict[str, Any]:
    """Convert the request's parameters to llama.cpp's names for text completions."""
    given = request.params
    body: dict[str, Any] = {name: given[name] for name in _SAME_NAME if name in given}
    body["max_tokens"] = int(given.get("max_tokens") or MAX_TOKENS)
    # Sampling is seeded by the request, so that the same request gets the same answer.
    body.setdefault("seed", int(request.key[:8], 16) % (2**31 - 1))
    if given.get("logprobs"):
        body["logprobs"] = int(given.get("top_logprobs") or 1)
    if request.schema is not None:
        body["json_schema"] = {**closed(request.schema), "x-guidance": _COMPACT}
    return body


def _gguf(path: Path) -> Path:
    """Return the GGUF file of a fetched model, which may be in its own folder."""
    files = sorted(path.glob("*.gguf")) if path.is_dir() else [path]
    if not files:
        raise ModelError(f"{path}: contains no GGUF file")
    return files[0]
