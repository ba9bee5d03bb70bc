"""The Batch API: half the price, answers within a day, and no second submission, whenever the process dies.

    backend = BatchBackend(endpoint, Path("runs/python-reference/batches"))

Requests are collected until the engine knows that no more can come, and are then uploaded and submitted. Each step is
saved before the next one begins, and a batch has its local name as metadata, so if the process is killed between
submitting a batch and recording it, the next process finds the batch in the server's list. Requests that expired or
failed are returned to the engine as temporary failures, so the next batch contains only those.

Where an account allows only so many enqueued tokens or requests, a batch that is too large is refused at no cost. Its
requests are then divided among smaller batches, which are sent one after the other. The limit is kept on disk.
"""

import asyncio
import io
import json
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from airgen.errors import AirgenError, LlmError, Stopped, StoreError, disk_error
from airgen.llms.accepted_parameters import Dialect, LearningBackend
from airgen.llms.base import CallFailed, Refused, Reply, Request, Retry
from airgen.llms.batch_file import BatchFile
from airgen.llms.chat import load_json, with_usage
from airgen.llms.endpoint import LARGEST_ANSWER, Endpoint, failure
from airgen.llms.error_bodies import error_in
from airgen.llms.money import Usage
from airgen.net.retrying import retrying_async
from airgen.storage.json_values import DAMAGE, read_json, write_json

if TYPE_CHECKING:
    from openai import AsyncOpenAI

ENDED = {"completed", "expired", "failed", "cancelled"}
POLL_SECONDS = 30.0  # seconds between two requests for a batch's status, and the first pause after a failed step
MAX_BATCH_SECONDS = 26 * 3600.0  # the 24 hours that a batch may take, plus time to end it
MAX_TRIES = 8  # attempts per step before the run stops
MAX_PAGES = 1_000  # pages of the server's list of batches
BATCH_REQUESTS, MAX_BYTES = 50_000, 190_000_000  # OpenAI's limits per file
BYTES_PER_TOKEN = 3  # of a line of a file; most texts have more, so that a file has fewer tokens than estimated
LIMITS = "limits.json"  # what a server accepts per batch
_TOO_LARGE = re.compile(
    r"token_?limit|enqueued|batch_?(?:queue|size)?_?limit|too[_ ]?many[_ ](?:tasks|requests in|lines)|"
    r"(?:batch|file)\b.{0,40}too[_ ]large|file_too_large|"
    r"(?:number of|maximum|max|limit of) (?:\w+ )?(?:tasks|requests|lines)",
    re.IGNORECASE,
)
_ENQUEUED = re.compile(r"enqueued|token_?limit_?exceeded", re.IGNORECASE)
_OF_REQUESTS = re.compile(r"\b(?:tasks|requests|lines)\b", re.IGNORECASE)
_STATED = re.compile(r"(?:limit|at most|equal to|maximum|max|up to|exceeds?)\D{0,40}(\d[\d,._']*)", re.IGNORECASE)
_KEY_SEARCH_BYTES = 1 << 16  # bytes of an oversized line that are searched for its key

T = TypeVar("T")


class BatchBackend(LearningBackend):
    """Sends requests through `{base_url}/files` and `{base_url}/batches`.

    `folder` holds the state of this LLM's batches, and only one process at a time may use it. `answer_key` returns the
    key under which the engine saves the answer to a request (`Connection.key`). `dialect` is what live calls have
    learnt, because refusals in a batch come too late to learn from.
    """

    RECOVERS: ClassVar[bool] = True
    COLLECTS: ClassVar[bool] = True

    def __init__(
        self,
        endpoint: Endpoint,
        folder: Path,
        *,
        answer_key: Callable[[Request], str] = lambda request: request.key,
        dialect: Dialect | None = None,
    ) -> None:
        super().__init__(dialect)
        self._endpoint, self._folder, self._key = endpoint, folder, answer_key
        self._asked: dict[str, tuple[Request, asyncio.Future[Reply]]] = {}
        self._unsent: dict[str, bytes] = {}
        self._unsent_bytes = 0
        self._results: dict[str, Reply | AirgenError] = {}  # replies that have not been requested in this process
        self._submitted: dict[str, BatchFile] = {}  # key -> the batch that holds the request
        self._undelivered: dict[str, tuple[BatchFile, set[str]]] = {}  # fetched batches, and keys not asked for yet
        self._tasks: set[asyncio.Task[None]] = set()
        self._recovered = self._left = False
        self._limits = self._read_limits()
        self._turn = asyncio.Lock()  # where there is a limit, one batch at a time
        self._under_way = self._pauses = 0

    async def send(self, request: Request) -> Reply:
        """Return the answer once the batch with the request has ended. Raises Retry, Refused or LlmError."""
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
        self.collected()
        try:
            return await future
        finally:
            if self._asked.get(key) == (request, future):  # abandoned by its caller
                del self._asked[key]

    @property
    def waiting(self) -> int:
        """Return the number of calls without an outcome."""
        return len(self._asked)

    def _recover(self) -> None:
        """Continue the batches of an earlier process."""
        batches, base_url = BatchFile.unfinished(self._folder), self._endpoint.base_url
        for batch in batches:
            if batch.state["url"] != base_url:
                raise LlmError(
                    f"{self._folder}: batch {batch.name} is at {batch.state['url']}, and llm.base_url is {base_url}: "
                    "set it back to continue the batch, or delete this folder to pay for its requests again"
                )
        for batch in batches:
            self._start(batch)

    def leave(self) -> list[str]:
        """Drop requests that were not submitted, at no cost. The next process fetches the results of the others."""
        lines = [
            f"batch {batch.name} of {len(batch.keys):,} requests continues at {self._endpoint.where}: run the "
            f"same command later to get its answers"
            for batch in dict.fromkeys(self._submitted.values())
            if batch.state.get("state") == "submitted" and not self._left
        ]
        self._left = True
        for key, (_, future) in list(self._asked.items()):
            if future.done():
                continue
            if key in self._submitted:
                future.cancel()
            else:
                future.set_exception(
                    Stopped("stopped before the batch was submitted: run the same command again to continue")
                )
        self._unsent, self._unsent_bytes = {}, 0
        return lines

    async def close(self) -> None:
        """Stop polling. Submitted batches stay with the server, and the next process finds them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # The engine commits delivered answers before it closes its backend, so only now is a batch done.
        for batch, left in self._undelivered.values():
            if not left:
                batch.note(state="done")
        await self._endpoint.close()

    # -- collecting ----------------------------------------------------------------------------------------------

    def _collect(self, key: str, request: Request) -> None:
        """Add a request to the next batch, and submit the batch if its file is full."""
        data = self._line(key, request)
        most = min(MAX_BYTES, self._limits.get("tokens", MAX_BYTES) * BYTES_PER_TOKEN)
        if self._unsent_bytes + len(data) > most:
            self.send_collected()
        self._unsent[key] = data
        self._unsent_bytes += len(data)
        if len(self._unsent) >= min(BATCH_REQUESTS, self._limits.get("requests", BATCH_REQUESTS)):
            self.send_collected()

    def _line(self, key: str, request: Request) -> bytes:
        line = {"custom_id": key, "method": "POST", "url": "/v1/chat/completions", "body": self.dialect.body(request)}
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"

    def _size(self, batch: BatchFile) -> int:
        """Return the bytes of the requests of a batch, as far as they are asked for again."""
        return sum(len(self._line(key, self._asked[key][0])) for key in batch.keys & self._asked.keys())

    def _read_limits(self) -> dict[str, int]:
        try:
            kept = read_json(self._folder / LIMITS)
        except DAMAGE:  # nothing is known, or it is learnt again
            return {}
        return {name: kept[name] for name in ("tokens", "requests") if type(kept.get(name)) is int and kept[name] > 0}

    async def _divide(self, batch: BatchFile, size: int, message: str) -> None:
        """Learn from the refusal of a batch of `size` bytes that it was too large, and send its requests in smaller
        batches.

        Where the batch was far below the limit that the server states, other batches of the account use it up, so the
        requests are sent again after a pause.
        """
        where, count = self._endpoint.where, len(batch.keys)
        of_requests = bool(_OF_REQUESTS.search(message)) and "token" not in message.lower()
        name, used = ("requests", count) if of_requests else ("tokens", size // BYTES_PER_TOKEN)
        match = _STATED.search(message)
        stated = int(re.sub(r"\D", "", match[1])[:15]) if match else 0
        if 2 * used <= stated and self._pauses < MAX_TRIES:
            self._pauses += 1
            self.say(f"{where} takes no batch now ({message}): the {count:,} requests are sent again later")
            await asyncio.sleep(min(POLL_SECONDS * 2**self._pauses, 60 * POLL_SECONDS))
        elif count == 1 or 2 * used <= stated:
            raise LlmError(
                f"{where} refuses a batch of {count:,} requests ({message}): if other batches of this account are in "
                "progress, run the same command again when they have ended"
            )
        else:
            limit = stated if 0 < stated < used else max(1, used // 2)
            self._limits[name] = min(limit, self._limits.get(name, limit))
            try:
                write_json(self._folder / LIMITS, self._limits)
            except OSError as error:
                raise disk_error(error, StoreError) from error
            self.say(
                f"{where} refuses a batch of {count:,} requests ({message}): from now on, at most "
                f"{self._limits[name]:,} {name} per batch, one after the other"
            )
        for key in batch.keys:
            if self._submitted.get(key) is batch:
                del self._submitted[key]
        if self._left:  # the next process sends them
            return
        for key in sorted(batch.keys & self._asked.keys() - self._submitted.keys()):
            request, future = self._asked[key]
            if not future.done():
                self._collect(key, request)
        self.send_collected()

    def send_collected(self) -> None:
        """Submit the collected requests as one batch."""
        lines, self._unsent, self._unsent_bytes = self._unsent, {}, 0
        if lines:
            state = {"url": self._endpoint.base_url, "keys": sorted(lines)}
            self._start(BatchFile(self._folder, f"airgen-{secrets.token_hex(8)}", state), b"".join(lines.values()))

    def _start(self, batch: BatchFile, requests: bytes = b"") -> None:
        self._submitted |= dict.fromkeys(batch.keys, batch)
        task = asyncio.get_running_loop().create_task(self._finish(batch, requests))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Pass an unexpected error on to every caller, so that none of them waits forever."""
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        waiting, self._asked = self._asked, {}
        for _, future in waiting.values():
            if not future.done():
                future.set_exception(error)

    # -- one batch -----------------------------------------------------------------------------------------------

    async def _finish(self, batch: BatchFile, requests: bytes) -> None:
        """Upload, submit, wait and fetch, starting from the batch's state, then deliver each outcome."""
        outcomes: Mapping[str, Reply | AirgenError]
        try:
            try:
                outcomes = await self._in_turn(batch, requests)
            except TooLarge as refusal:
                batch.note(state="done")
                await self._divide(batch, len(requests) or self._size(batch), str(refusal))
                return
        except Retry as error:
            problem = LlmError(
                f"{self._endpoint.where} does not answer ({error}): batch {batch.name} is kept; run the same command "
                "again to continue it"
            )
            outcomes = dict.fromkeys(batch.keys, problem)
        except Malformed as error:
            problem = LlmError(
                f"{self._endpoint.where} does not follow the Batch API: {error} has an unexpected form; batch "
                f"{batch.name} is kept: {batch.remedy}"
            )
            outcomes = dict.fromkeys(batch.keys, problem)
        except AirgenError as error:
            outcomes = dict.fromkeys(batch.keys, error)
        else:
            self._undelivered[batch.name] = (
                batch,
                {key for key, result in outcomes.items() if isinstance(result, Reply)},
            )
        for key, outcome in outcomes.items():
            # A request that expired in this batch may be in a later batch by now, so only a reply counts.
            current = self._submitted.get(key) is batch
            if current:
                del self._submitted[key]
            if current or isinstance(outcome, Reply):
                self._deliver(key, outcome)

    async def _in_turn(self, batch: BatchFile, requests: bytes) -> Mapping[str, Reply | AirgenError]:
        """Take all steps of a batch, once no other is under way if the server has a limit."""
        if not (self._limits and requests):
            return await self._steps(batch, requests)
        async with self._turn:
            while self._under_way:
                await asyncio.sleep(POLL_SECONDS)
            return await self._steps(batch, requests)

    async def _steps(self, batch: BatchFile, requests: bytes) -> Mapping[str, Reply | AirgenError]:
        self._under_way += 1
        try:
            if requests:
                await self._upload(batch, requests)
            if batch.state["state"] == "uploaded":
                await self._create(batch)
            if batch.state["state"] == "done":  # no caller needed it
                return dict.fromkeys(batch.keys, Retry("batch_lost"))
            return await self._fetch(batch, await self._wait(batch))
        finally:
            self._under_way -= 1

    def _deliver(self, key: str, outcome: Reply | AirgenError) -> None:
        request, future = self._asked.pop(key, (None, None))
        if request is None or future is None:  # from a batch of an earlier process, which may need it later
            if isinstance(outcome, Reply):
                self._results[key] = outcome
            return
        if future.done():
            return
        if isinstance(outcome, Reply):
            for _, left in self._undelivered.values():
                left.discard(key)
            reply = with_usage(request, outcome)
            if self.dialect.cut_off(request, reply):
                future.set_exception(Retry("thinking", detail="thinking used up its tokens", usage=reply.usage))
            else:
                future.set_result(reply)
        else:
            future.set_exception(outcome)

    async def _upload(self, batch: BatchFile, requests: bytes) -> None:
        def upload(api: "AsyncOpenAI") -> Awaitable[Any]:
            file = (f"{batch.name}.jsonl", io.BytesIO(requests), "application/jsonl")
            return api.files.with_raw_response.create(file=file, purpose="batch")

        batch.note(state="uploaded", file=_id(await self._call(upload, "/files")))

    async def _create(self, batch: BatchFile) -> None:
        """Submit the batch, unless an earlier process has already done so, or no caller needs the answers any
        longer."""

        def create(api: "AsyncOpenAI") -> Awaitable[Any]:
            return api.batches.with_raw_response.create(
                input_file_id=batch.state["file"],
                endpoint="/v1/chat/completions",
                completion_window="24h",
                metadata={"airgen": batch.name},
            )

        async def find_or_create() -> Mapping[str, Any] | None:
            # After a broken connection, the server may have the batch, so its list is read before each attempt.
            if (server_batch := await self._find(batch)) is None and batch.keys & self._asked.keys():
                server_batch = await self._call(create, "/batches", tries=1)
            return server_batch

        if (server_batch := await self._again(find_or_create)) is None:  # a prompt has changed: no caller wants answers
            batch.note(state="done")
        else:
            batch.note(state="submitted", batch=_id(server_batch))

    async def _find(self, batch: BatchFile) -> Mapping[str, Any] | None:
        """Find the batch in the server's list by the name in its metadata."""
        seen: set[str] = set()
        after = ""
        for _ in range(MAX_PAGES):
            page = await self._call(partial(_listed, after), "/batches", tries=1)
            listed = page.get("data") or []
            if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
                raise Malformed("the list of batches")
            for entry in listed:
                metadata = entry.get("metadata")
                if isinstance(metadata, dict) and metadata.get("airgen") == batch.name:
                    return entry  # type: ignore[no-any-return]
            if not listed or page.get("has_more") is not True:
                return None
            after = _id(listed[-1])
            if after in seen:
                raise Malformed("the list of batches (a page that repeats an earlier one)")
            seen.add(after)
        raise Malformed(f"the list of batches ({MAX_PAGES} pages and no end)")

    async def _wait(self, batch: BatchFile) -> Mapping[str, Any]:
        clock = asyncio.get_running_loop().time
        began = clock()
        while clock() - began < MAX_BATCH_SECONDS:
            server_batch: Mapping[str, Any] = await self._call(
                lambda api: api.batches.with_raw_response.retrieve(batch.state["batch"]), "/batches", batch=batch
            )
            if not isinstance(status := server_batch.get("status"), str):
                raise Malformed("the status of a batch")
            if status in ENDED:
                return server_batch
            await asyncio.sleep(POLL_SECONDS)
        raise LlmError(
            f"{self._endpoint.where}: batch {batch.name} has not ended within {MAX_BATCH_SECONDS / 3600:g} h: it is "
            "kept; run the same command again to keep waiting for it"
        )

    async def _fetch(self, batch: BatchFile, ended: Mapping[str, Any]) -> dict[str, Reply | AirgenError]:
        """Return the outcome of each request. A request without a result is a temporary failure."""
        if ended["status"] == "failed":
            words, code = _reason(ended)
            words = self._endpoint.scrub(words)
            if _TOO_LARGE.search(f"{code} {words}"):
                raise TooLarge(words)
            batch.note(state="done")
            raise LlmError(f"{self._endpoint.where} refuses the batch: {words}")
        expired = ended["status"] == "expired"
        outcomes: dict[str, Reply | AirgenError] = {}
        for field in ("output_file_id", "error_file_id"):
            if ended.get(field):
                file = _id(ended, field)
                await self._again(partial(self._read_results, file, batch, outcomes))
        lost = {
            key: Retry("batch_expired") if expired else Retry("batch_lost", usage=Usage())
            for key in batch.keys - outcomes.keys()
        }
        return outcomes | lost

    async def _read_results(self, file: str, batch: BatchFile, outcomes: dict[str, Reply | AirgenError]) -> None:
        """Add the outcomes in a file from the server. If there are several for one request, an answer takes precedence
        over a refusal, and a refusal over a temporary failure, so that nothing paid for is lost.
        """
        async for line, whole in self._lines(file, batch):
            key, outcome = self._outcome(line, whole)
            if key in batch.keys and _weight(outcome) > _weight(outcomes.get(key)):
                outcomes[key] = outcome

    async def _lines(self, file: str, batch: BatchFile) -> AsyncIterator[tuple[bytes, bool]]:
        """Yield (line, whether it is complete) for a file on the server. A line too long for an answer is truncated."""
        line, skipping = bytearray(), False
        async for piece in self._endpoint.pieces(file, batch.remedy):
            *ended, rest = piece.split(b"\n")
            for end in ended:
                if not skipping:
                    yield bytes(line + end), True
                line, skipping = bytearray(), False
            if not skipping:
                line += rest
                if len(line) > LARGEST_ANSWER:
                    yield bytes(line[:_KEY_SEARCH_BYTES]), False
                    line, skipping = bytearray(), True
        if line:
            yield bytes(line), True

    def _outcome(self, line: bytes, whole: bool) -> tuple[str, Reply | AirgenError]:
        """Return the key of a request and its outcome, without raising. A line without a key belongs to no request."""
        if not whole:
            named = re.search(rb'"custom_id"\s*:\s*"([0-9a-zA-Z_-]{1,200})"', line)
            detail = f"{self._endpoint.where} sends an answer of more than {LARGEST_ANSWER >> 20} MB"
            return named[1].decode() if named else "", Refused("too_large", detail, Usage())
        key = ""
        try:
            item = load_json(line)
            key = str(item["custom_id"])
            return key, self._result(item.get("response"), item.get("error"))
        except CallFailed as problem:
            return key, problem
        except Exception as error:  # noqa: BLE001  # the line is text from outside: it can be anything
            return key, Retry("bad_body", detail=f"not a result ({type(error).__name__})", usage=Usage())

    def _result(self, response: Any, error: Any) -> Reply | AirgenError:
        status, body = (int(response["status_code"]), response["body"]) if response else (0, None)
        if status == 200:
            return self._endpoint.reply(body)
        if response:
            message, code = error_in(body)
            return failure(status, self._endpoint.scrub(message), code, headers={}, where=self._endpoint.where)
        code = re.sub(r"\W+", "_", self._endpoint.scrub(str(error.get("code"))))[:40] if error else "lost"
        return Retry(f"batch_{code.removeprefix('batch_')}")

    # -- calls ---------------------------------------------------------------------------------------------------

    async def _call(
        self,
        work: "Callable[[AsyncOpenAI], Awaitable[Any]]",
        path: str,
        tries: int | None = None,
        batch: BatchFile | None = None,
    ) -> dict[str, Any]:
        """Call a method of the package and return the JSON object in the response.

        `path` names it in messages. `batch` is the batch that cannot continue without the result.
        """

        async def once() -> dict[str, Any]:
            status, headers, content = await self._endpoint.call(work)
            if status != 200:
                remedy = batch.remedy if batch else ""
                raise self._endpoint.failure(status, headers, content, path, remedy=remedy)
            try:
                payload = load_json(content)
            except ValueError:
                raise Retry("bad_body", detail="not JSON") from None
            if not isinstance(payload, dict):
                raise Malformed(f"what {path} answers")
            return payload

        return await self._again(once, tries)

    async def _again(self, work: Callable[[], Awaitable[T]], tries: int | None = None) -> T:
        """Repeat a step as long as its failures are temporary."""
        try:
            return await retrying_async(
                work,
                tries or MAX_TRIES,
                lambda error: isinstance(error, Retry) and not _ENQUEUED.search(error.detail),
                first=POLL_SECONDS,
                longest=300.0,
                requested_wait=lambda error: getattr(error, "after", None) or 0.0,
            )
        except Retry as problem:
            raise TooLarge(problem.detail) if _ENQUEUED.search(problem.detail) else problem from None
        except Refused as problem:  # not an error of a single request
            too_large = problem.reason == "too_large"
            if not too_large and _TOO_LARGE.search(problem.detail):
                raise TooLarge(problem.detail) from None
            raise LlmError(
                problem.detail if too_large else f"{self._endpoint.where} refuses the batch ({problem})"
            ) from None


class TooLarge(Exception):
    """A batch with more tokens or requests than the server takes."""


class Malformed(Exception):
    """A response from the server lacks something or has a value of the wrong type."""


def _listed(after: str, api: "AsyncOpenAI") -> Awaitable[Any]:
    """Return a page of the server's batches, newest first."""
    batches = api.batches.with_raw_response
    return batches.list(limit=100, after=after) if after else batches.list(limit=100)


def _id(payload: Mapping[str, Any], field: str = "id") -> str:
    """Return an id from the server. Raises Malformed if it could not be part of a URL."""
    value = payload.get(field)
    if not isinstance(value, str) or not re.fullmatch(r"[\w.:~@=-]{1,300}", value, re.ASCII) or set(value) <= {"."}:
        raise Malformed(f"{'an id' if field == 'id' else field}")
    return value


def _reason(ended: Mapping[str, Any]) -> tuple[str, str]:
    """Return why a batch failed, in the server's words, and its code."""
    errors = ended.get("errors")
    listed = errors.get("data") if isinstance(errors, dict) else errors
    first = listed[0] if isinstance(listed, list) and listed else listed
    words, code = error_in(first)
    return words or "no reason given", code


def _weight(outcome: Reply | AirgenError | None) -> int:
    """Rank the outcome of a request among several: the greatest counts."""
    if outcome is None:
        return 0
    return 3 if isinstance(outcome, Reply) else 1 if isinstance(outcome, Retry) else 2
