"""The Batch API: half the price, an answer within a day, and no second submission whenever the process dies.

    backend = BatchBackend(folder=Path("runs/python-reference/batches"), api_key_env="OPENAI_API_KEY")
    Engine(backend, store, concurrency=50_000, adaptive=False, timeout=DAY, price=lambda m: price(m).halved())

Requests are gathered until none has come for a moment, written to a file, uploaded and submitted. Each step is on
the disk before the next begins, and a batch carries its local name as metadata, so that a process killed between
submitting and noting it finds its batch again in the server's list. What expired or failed goes back to the
engine, which asks again; only that is submitted again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airgen.errors import AirgenError, LlmError
from airgen.llms.base import Reply, Request, Retry
from airgen.llms.batch_file import BatchFile
from airgen.llms.chat import chat_body, chat_reply
from airgen.llms.http import Endpoint, failure
from airgen.llms.openai import billed

__all__ = ["DAY", "BatchBackend"]

DAY = 26 * 3600.0  # seconds: the window of 24 hours, and time to fetch
ENDED = {"completed", "expired", "failed", "cancelled"}
TRIES = 8  # of one step, before the run stops


class BatchBackend:
    """Sends through `{base_url}/files` and `{base_url}/batches`.

    folder: where the state of each batch is kept; one folder belongs to one process at a time. gather: seconds
    without a new request before a batch is submitted. poll: seconds between looks at a batch; also the first pause
    after a failed step. max_requests, max_bytes: OpenAI's limits of one file. See `airgen.llms.http.Endpoint` for
    the rest.
    """

    def __init__(
        self,
        *,
        folder: Path,
        base_url: str = "https://api.openai.com/v1",
        api_key_env: str | None = None,
        headers: Mapping[str, str] | None = None,
        gather: float = 2.0,
        poll: float = 30.0,
        max_requests: int = 50_000,
        max_bytes: int = 190_000_000,
    ) -> None:
        self._endpoint = Endpoint(base_url, api_key_env, headers)
        self._folder, self._gather, self._poll = folder, gather, poll
        self._max_requests, self._max_bytes = max_requests, max_bytes
        self._asked: dict[str, tuple[Request, asyncio.Future[Reply]]] = {}
        self._unsent: dict[str, bytes] = {}
        self._unsent_bytes = 0
        self._results: dict[str, Reply | AirgenError] = {}
        self._out: dict[str, BatchFile] = {}  # key -> the batch that it is out with
        self._left: dict[str, tuple[BatchFile, set[str]]] = {}  # fetched batches, and answers nobody asked for yet
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._recovered = False

    async def send(self, request: Request) -> Reply:
        """The answer, once the batch that holds the request has ended. Raises Retry, Refused, LlmError."""
        key = request.key
        if not self._recovered:
            self._recovered = True
            for batch in BatchFile.unfinished(self._folder):
                self._follow(batch)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._asked[key] = (request, future)
        if key in self._results:
            self._deliver(key, self._results.pop(key))
        elif key not in self._out:
            self._gather_up(key, request)
        return await future

    async def close(self) -> None:
        """Stop looking. Batches that are out stay with the server and are found again by the next process."""
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # The engine commits what was delivered before it closes its backend: only now is a batch done.
        for batch, left in self._left.values():
            if not left:
                batch.note(state="done")
        await self._endpoint.close()

    # -- gathering -----------------------------------------------------------------------------------------------

    def _gather_up(self, key: str, request: Request) -> None:
        """Submit when no request has come for `gather` seconds, or when a file is full."""
        line = {"custom_id": key, "method": "POST", "url": "/v1/chat/completions", "body": chat_body(request)}
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
            self._follow(BatchFile.write(self._folder, lines))
        except AirgenError as error:
            for key in lines:
                self._deliver(key, error)

    def _follow(self, batch: BatchFile) -> None:
        self._out |= dict.fromkeys(batch.keys, batch)
        task = asyncio.get_running_loop().create_task(self._see_through(batch))
        self._tasks.add(task)
        task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        """A defect must leave nobody waiting for ever."""
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        for _, future in self._asked.values():
            if not future.done():
                future.set_exception(error)

    # -- one batch -----------------------------------------------------------------------------------------------

    async def _see_through(self, batch: BatchFile) -> None:
        """Upload, submit, wait, fetch, from wherever the batch stands; hand each outcome to whoever asked."""
        try:
            if batch.state["state"] == "prepared":
                await self._upload(batch)
            if batch.state["state"] == "uploaded":
                await self._create(batch)
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
            self._left[batch.name] = (batch, {key for key, got in outcomes.items() if isinstance(got, Reply)})
        for key, outcome in outcomes.items():
            # What expired here may be out again with a later batch: its failure is no news then.
            mine = self._out.get(key) is batch
            if mine:
                del self._out[key]
            if mine or isinstance(outcome, Reply):
                self._deliver(key, outcome)

    def _deliver(self, key: str, outcome: Reply | AirgenError) -> None:
        request, future = self._asked.pop(key, (None, None))
        if request is None or future is None:  # a batch of an earlier process: somebody may ask yet
            if isinstance(outcome, Reply):
                self._results[key] = outcome
            return
        if future.done():
            return
        if isinstance(outcome, Reply):
            for _, left in self._left.values():
                left.discard(key)
            future.set_result(billed(request, outcome))
        else:
            future.set_exception(outcome)

    async def _upload(self, batch: BatchFile) -> None:
        import aiohttp

        def form() -> aiohttp.FormData:
            data = aiohttp.FormData({"purpose": "batch"})
            data.add_field("file", batch.requests(), filename=f"{batch.name}.jsonl", content_type="application/jsonl")
            return data

        answer = await self._json("POST", "/files", form)
        batch.note(state="uploaded", file=str(answer["id"]))

    async def _create(self, batch: BatchFile) -> None:
        """Submit, unless an earlier process was killed right after it had."""
        found = await self._find(batch)
        if found is None:
            body = {
                "input_file_id": batch.state["file"],
                "endpoint": "/v1/chat/completions",
                "completion_window": "24h",
                "metadata": {"airgen": batch.name},
            }
            # One try: after a broken connection the server may have it, so the list is asked first.
            for attempt in range(TRIES):
                try:
                    found = await self._json("POST", "/batches", lambda: body, tries=1)
                    break
                except Retry:
                    if attempt + 1 == TRIES:
                        raise
                    await asyncio.sleep(self._poll * 2**attempt)
                    if (found := await self._find(batch)) is not None:
                        break
        assert found is not None
        batch.note(state="submitted", batch=str(found["id"]))

    async def _find(self, batch: BatchFile) -> dict[str, Any] | None:
        """The batch in the server's list, by the name in its metadata."""
        after = ""
        while True:
            page = await self._json("GET", f"/batches?limit=100{after}")
            items = page.get("data") or []
            for item in items:
                if (item.get("metadata") or {}).get("airgen") == batch.name:
                    return dict(item)
            if not page.get("has_more") or not items:
                return None
            after = f"&after={items[-1]['id']}"

    async def _wait(self, batch: BatchFile) -> dict[str, Any]:
        while True:
            said = await self._json("GET", f"/batches/{batch.state['batch']}")
            if said.get("status") in ENDED:
                return said
            await asyncio.sleep(self._poll)

    async def _fetch(self, batch: BatchFile, said: dict[str, Any]) -> dict[str, Reply | AirgenError]:
        """Each request's outcome; what has none is to be asked again."""
        status = said["status"]
        if status == "failed":
            batch.note(state="done")
            errors = (said.get("errors") or {}).get("data") or [{"message": "no reason given"}]
            raise LlmError(
                f"{self._endpoint.where} refuses the batch: {self._endpoint.scrub(str(errors[0]['message']))}"
            )
        outcomes: dict[str, Reply | AirgenError] = {
            key: Retry("batch_expired" if status == "expired" else "batch_lost") for key in batch.keys
        }
        for field in ("output_file_id", "error_file_id"):
            if not said.get(field):
                continue
            content = await self._patiently("GET", f"/files/{said[field]}/content")
            for line in content.splitlines():
                key, outcome = self._outcome(line)
                if key in outcomes:
                    outcomes[key] = outcome
        return outcomes

    def _outcome(self, line: bytes) -> tuple[str, Reply | AirgenError]:
        try:
            item = json.loads(line)
            key, response, error = str(item["custom_id"]), item.get("response"), item.get("error")
            status, body = (int(response["status_code"]), response["body"]) if response else (0, None)
        except (ValueError, KeyError, TypeError, RecursionError):
            return "", Retry("bad_body")
        if status == 200:
            try:
                return key, chat_reply(body)
            except AirgenError as problem:
                return key, problem
        if response:
            said = (body or {}).get("error") if isinstance(body, dict) else None
            words, code = (str(said.get("message")), str(said.get("code"))) if isinstance(said, dict) else ("", "")
            return key, failure(status, self._endpoint.scrub(words), code, {}, self._endpoint.where)
        code = str(error.get("code")) if isinstance(error, dict) else "batch_lost"
        return key, Retry(code if code.startswith("batch_") else f"batch_{code}")

    # -- HTTP ----------------------------------------------------------------------------------------------------

    async def _json(self, method: str, path: str, body: Any = None, tries: int = TRIES) -> dict[str, Any]:
        content = await self._patiently(method, path, body, tries)
        try:
            payload = json.loads(content)
        except ValueError:
            raise Retry("bad_body", detail=f"{path}: not JSON") from None
        if not isinstance(payload, dict):
            raise Retry("bad_body", detail=f"{path}: not a JSON object")
        return payload

    async def _patiently(self, method: str, path: str, body: Any = None, tries: int = TRIES) -> bytes:
        """The content of a successful answer. `body` makes the body anew for each of `tries` tries."""
        for attempt in range(tries):
            try:
                status, headers, content = await self._endpoint.call(method, path, body() if body else None)
                if status == 200:
                    return content
                raise self._endpoint.failure(status, headers, content, path)
            except Retry as error:
                if attempt + 1 == tries:
                    raise
                await asyncio.sleep(error.after or min(300.0, self._poll * 2**attempt))
        raise AssertionError("unreachable")
