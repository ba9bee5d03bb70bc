"""The Batch API: half the price, an answer within a day, and no second submission whenever the process dies.

    backend = BatchBackend(folder=Path("runs/python-reference/batches"), api_key_env="OPENAI_API_KEY")

Requests are collected until none has come for a moment, written to a file, uploaded and submitted. Each step is on
the disk before the next begins, and a batch carries its local name as metadata: a process killed between submitting
a batch and noting it finds that batch in the server's list. What expired or failed goes back to the engine as a
failure that may pass, so the next batch holds only that.

Files and batches go through the `openai` package: a few slow calls, so the speed of its transport does not matter.
Its own retries are off, because they give up after half a minute, and because a second `create` after a broken
connection could submit a batch twice.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airgen.errors import AirgenError, LlmError
from airgen.llms.base import Backend, Refused, Reply, Request, Retry, Usage
from airgen.llms.batch_client import batch_client, result_lines
from airgen.llms.batch_file import BatchFile
from airgen.llms.chat import load_json, with_usage
from airgen.llms.dialect import Dialect
from airgen.llms.http import LARGEST_ANSWER, OPENAI_URL, Endpoint, error_in, failure
from airgen.registry import load_extra

if TYPE_CHECKING:
    from openai.types import Batch


ENDED = {"completed", "expired", "failed", "cancelled"}
TRIES = 8  # of one step, before the run stops


class BatchBackend(Backend):
    """Sends requests through `{base_url}/files` and `{base_url}/batches`.

    folder: where the state of each batch of this LLM is kept, and of no other; only one process at a time may use it.
    answer_key: under which the engine keeps the answer to a request (`Connection.key`). gather: seconds without a
    new request before a batch is submitted. poll: seconds between two requests for a batch's status, and the first
    pause after a failed step. max_requests, max_bytes: OpenAI's limits of one file. See
    `airgen.llms.http.Endpoint` for the rest. Raises MissingExtra without the `openai` package.
    """

    RECOVERS: ClassVar[bool] = True

    def __init__(
        self,
        *,
        folder: Path,
        answer_key: Callable[[Request], str] = lambda request: request.key,
        base_url: str = OPENAI_URL,
        api_key_env: str | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        dialect: Dialect | None = None,
        gather: float = 2.0,
        poll: float = 30.0,
        max_requests: int = 50_000,
        max_bytes: int = 190_000_000,
    ) -> None:
        openai = self._openai = load_extra("openai", "llm.mode: batch")
        self._endpoint = Endpoint(base_url, api_key_env, headers, query=query)
        self._dialect = dialect or Dialect()
        self._client = batch_client(openai, self._endpoint)
        self._folder, self._key, self._gather, self._poll = folder, answer_key, gather, poll
        self._max_requests, self._max_bytes = max_requests, max_bytes
        self._asked: dict[str, tuple[Request, asyncio.Future[Reply]]] = {}
        self._unsent: dict[str, bytes] = {}
        self._unsent_bytes = 0
        self._results: dict[str, Reply | AirgenError] = {}  # replies that nobody has asked for in this process
        self._submitted: dict[str, BatchFile] = {}  # key -> the batch that holds the request
        self._undelivered: dict[str, tuple[BatchFile, set[str]]] = {}  # fetched batches, and keys not asked for yet
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._recovered = False

    def known(self) -> dict[str, Any]:
        """What was learnt of the model."""
        return {"": self._dialect.known()}

    def remember(self, known: Mapping[str, Any]) -> None:
        """Take over what live calls have learnt: refusals in a batch come too late to learn from them."""
        for learnt in known.values():
            if isinstance(learnt, dict):
                self._dialect.remember(learnt)

    def room(self, request: Request) -> int:
        """Tokens for thinking, for a model that was seen to think."""
        return self._dialect.room

    async def send(self, request: Request) -> Reply:
        """The answer, once the batch that holds the request has ended. Raises Retry, Refused, LlmError."""
        key = self._key(request)
        if not self._recovered:
            self._recover()
            self._recovered = True
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._asked[key] = (request, future)
        if key in self._results:
            self._deliver(key, self._results.pop(key))
        elif key not in self._submitted:
            self._collect(key, request)
        return await future

    def _recover(self) -> None:
        """Go on with the batches of an earlier process. One that was never uploaded is dropped: nobody has seen it."""
        batches = BatchFile.unfinished(self._folder)
        here = self._endpoint.base_url
        for batch in batches:
            if batch.state["state"] != "prepared" and batch.state["url"] != here:
                raise LlmError(
                    f"{self._folder}: batch {batch.name} is at {batch.state['url']}, and llm.base_url is {here}: "
                    "set it back to go on with the batch, or delete this folder to pay for its requests again"
                )
        for batch in batches:
            if batch.state["state"] == "prepared":
                batch.note(state="done")
            else:
                self._start(batch)

    async def close(self) -> None:
        """Stop polling. Submitted batches stay with the server, and the next process finds them."""
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # The engine commits what was delivered before it closes its backend: only now is a batch done.
        for batch, left in self._undelivered.values():
            if not left:
                batch.note(state="done")
        await self._client.close()

    # -- collecting ----------------------------------------------------------------------------------------------

    def _collect(self, key: str, request: Request) -> None:
        """Submit when no request has come for `gather` seconds, or when a file is full."""
        line = {"custom_id": key, "method": "POST", "url": "/v1/chat/completions", "body": self._dialect.body(request)}
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        if self._timer is not None:
            self._timer.cancel()
        if self._unsent_bytes + len(data) > self._max_bytes:
            self._submit()
        self._unsent[key] = data
        self._unsent_bytes += len(data)
        if len(self._unsent) >= self._max_requests:
            self._submit()
        else:
            self._timer = asyncio.get_running_loop().call_later(self._gather, self._submit)

    def _submit(self) -> None:
        lines, self._unsent, self._unsent_bytes = self._unsent, {}, 0
        if not lines:
            return
        try:
            self._start(BatchFile.write(self._folder, lines, self._endpoint.base_url))
        except AirgenError as error:
            for key in lines:
                self._deliver(key, error)

    def _start(self, batch: BatchFile) -> None:
        self._submitted |= dict.fromkeys(batch.keys, batch)
        task = asyncio.get_running_loop().create_task(self._finish(batch))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Pass an unexpected error on to every caller, so that none waits for ever."""
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        for _, future in self._asked.values():
            if not future.done():
                future.set_exception(error)

    # -- one batch -----------------------------------------------------------------------------------------------

    async def _finish(self, batch: BatchFile) -> None:
        """Upload, submit, wait and fetch, from the batch's state on; then deliver each outcome."""
        outcomes: Mapping[str, Reply | AirgenError]
        try:
            if batch.state["state"] == "prepared":
                await self._upload(batch)
            if batch.state["state"] == "uploaded":
                await self._create(batch)
            if batch.state["state"] == "done":  # nobody wanted it
                outcomes = dict.fromkeys(batch.keys, Retry("batch_lost"))
            else:
                outcomes = await self._fetch(batch, await self._wait(batch))
        except Retry as error:
            problem = LlmError(
                f"{self._endpoint.where} does not answer ({error}): batch {batch.name} is kept; run the same command "
                "to go on with it"
            )
            outcomes = dict.fromkeys(batch.keys, problem)
        except AirgenError as error:
            outcomes = dict.fromkeys(batch.keys, error)
        else:
            self._undelivered[batch.name] = (batch, {key for key, got in outcomes.items() if isinstance(got, Reply)})
        for key, outcome in outcomes.items():
            # A request that expired in this batch may be in a later one by now: then only a reply counts.
            current = self._submitted.get(key) is batch
            if current:
                del self._submitted[key]
            if current or isinstance(outcome, Reply):
                self._deliver(key, outcome)

    def _deliver(self, key: str, outcome: Reply | AirgenError) -> None:
        request, future = self._asked.pop(key, (None, None))
        if request is None or future is None:  # from a batch of an earlier process: it may be asked for later
            if isinstance(outcome, Reply):
                self._results[key] = outcome
            return
        if future.done():
            return
        if isinstance(outcome, Reply):
            for _, left in self._undelivered.values():
                left.discard(key)
            reply = with_usage(request, outcome)
            if self._dialect.cut_off(request, reply):
                future.set_exception(Retry("thinking", detail="its tokens were used up by thinking", usage=reply.usage))
            else:
                future.set_result(reply)
        else:
            future.set_exception(outcome)

    async def _upload(self, batch: BatchFile) -> None:
        file = (f"{batch.name}.jsonl", batch.requests(), "application/jsonl")
        uploaded = await self._call(lambda: self._client.files.create(file=file, purpose="batch"))
        batch.note(state="uploaded", file=str(uploaded.id))

    async def _create(self, batch: BatchFile) -> None:
        """Submit, unless an earlier process was killed right after it had, or nobody wants an answer any more."""

        def create() -> Awaitable[Batch]:
            found: Awaitable[Batch] = self._client.batches.create(
                input_file_id=batch.state["file"],
                endpoint="/v1/chat/completions",
                completion_window="24h",
                metadata={"airgen": batch.name},
            )
            return found

        for attempt in range(TRIES):
            # After a broken connection the server may have the batch, so its list is read before each try.
            if (found := await self._call(lambda: self._find(batch))) is not None:
                break
            if not batch.keys & self._asked.keys():  # a prompt was changed since: nobody wants these answers
                batch.note(state="done")
                return
            try:
                found = await self._call(create, tries=1)
                break
            except Retry:
                if attempt + 1 == TRIES:
                    raise
                await asyncio.sleep(self._poll * 2**attempt)
        batch.note(state="submitted", batch=str(found.id))

    async def _find(self, batch: BatchFile) -> Batch | None:
        """The batch in the server's list, by the name in its metadata."""
        found: Batch
        async for found in self._client.batches.list(limit=100):
            if (found.metadata or {}).get("airgen") == batch.name:
                return found
        return None

    async def _wait(self, batch: BatchFile) -> Batch:
        while True:
            found: Batch = await self._call(lambda: self._client.batches.retrieve(batch.state["batch"]))
            if found.status in ENDED:
                return found
            await asyncio.sleep(self._poll)

    async def _fetch(self, batch: BatchFile, ended: Batch) -> dict[str, Reply | AirgenError]:
        """Each request's outcome; one without a result is a failure that may pass."""
        if ended.status == "failed":
            batch.note(state="done")
            errors = (ended.errors and ended.errors.data) or []
            reason = str(errors[0].message) if errors else "no reason given"
            raise LlmError(f"{self._endpoint.where} refuses the batch: {self._endpoint.scrub(reason)}")
        outcomes: dict[str, Reply | AirgenError] = {
            key: Retry("batch_expired") if ended.status == "expired" else Retry("batch_lost", usage=Usage())
            for key in batch.keys
        }
        for file in (ended.output_file_id, ended.error_file_id):
            if not file:
                continue
            outcomes |= await self._call(lambda file=file: self._results_in(file, batch))  # type: ignore[misc]
        return outcomes

    async def _results_in(self, file: str, batch: BatchFile) -> dict[str, Reply | AirgenError]:
        """The outcomes in a file of the server."""
        found: dict[str, Reply | AirgenError] = {}
        async for line, whole in result_lines(self._openai, self._client, file):
            key, outcome = self._outcome(line) if whole else self._too_large(line)
            if key in batch.keys:
                found[key] = outcome
        return found

    def _too_large(self, beginning: bytes) -> tuple[str, Reply | AirgenError]:
        key = re.search(rb'"custom_id"\s*:\s*"([0-9a-zA-Z_-]{1,200})"', beginning)
        detail = f"{self._endpoint.where} sends an answer of more than {LARGEST_ANSWER >> 20} MB"
        return key[1].decode() if key else "", Refused("too_large", detail, Usage())

    def _outcome(self, line: bytes) -> tuple[str, Reply | AirgenError]:
        """The key of a request and what came of it; never raises. Without a key the line is nobody's."""
        key = ""
        try:
            item = load_json(line)
            key = str(item["custom_id"])
            return key, self._result(item.get("response"), item.get("error"))
        except (Retry, Refused) as problem:
            return key, problem
        except Exception as error:  # noqa: BLE001  # the line is text from outside: it can be anything
            return key, Retry("bad_body", detail=f"not a result ({type(error).__name__})", usage=Usage())

    def _result(self, response: Any, error: Any) -> Reply | AirgenError:
        status, body = (int(response["status_code"]), response["body"]) if response else (0, None)
        if status == 200:
            return self._endpoint.reply(body)
        if response:
            message, code = error_in(body)
            return failure(status, self._endpoint.scrub(message), code, {}, self._endpoint.where)
        code = str(error.get("code"))[:40] if isinstance(error, dict) else "batch_lost"
        return Retry(code if code.startswith("batch_") else f"batch_{code}")

    # -- calls ---------------------------------------------------------------------------------------------------

    async def _call(self, work: Callable[[], Awaitable[Any]], tries: int = TRIES) -> Any:
        """The result of a call of the `openai` package, which is made anew for each of `tries` tries."""
        for attempt in range(tries):
            try:
                try:
                    found = await work()
                except self._openai.OpenAIError as error:
                    raise self._problem(error) from None  # its errors carry the request, and with it the key
                if isinstance(found, str):  # the package returns the text of what is not JSON
                    raise Retry("bad_body", detail="not JSON")
                return found
            except Retry as problem:
                if attempt + 1 == tries:
                    raise
                await asyncio.sleep(problem.after or min(300.0, self._poll * 2**attempt))
        raise AssertionError("unreachable")

    def _problem(self, error: Exception) -> AirgenError:
        """An error of the `openai` package as one of ours."""
        if isinstance(error, self._openai.APIStatusError):
            response = error.response
            return self._endpoint.failure(response.status_code, response.headers, response.content, response.url.path)
        cause = error.__cause__ or error
        if isinstance(cause, AirgenError):  # of our bounds
            return cause
        message = self._endpoint.scrub(str(cause) or type(cause).__name__)
        return Retry("connection", detail=message)
