"""A loopback server for chat completions, files and batches, which fails as its settings say.

    python tests/makers/llm_server.py '{"latency": 0.05, "rate": 100, "faults": {"http_500": 0.1}}'

prints its port, then serves until its standard input is closed. Settings: latency (seconds); rate and burst
(requests a second, size of the bucket); retry_after (seconds, sent with 429); slots (calls served at a time; others
wait); faults (name -> share, chosen by the request and its attempt); fault_attempts (attempts that can have faults);
always (one fault for every call); scripted (answers of airgen's scripted model); die_after (nobody
listens after so many answers); batch_seconds; batch_expire (n: every n-th line expires the first time); batch_bomb
(results: n MB of zeros, compressed); batch_long (the first result has n MB more); batch_breaks (n: so often the
connection breaks within the results).
What today's models do: thinks (tokens of thinking before each answer, billed and under the maximum) and thinks_in
(where they show: hidden in the usage, silent, beside the completion tokens, text in <think>, field reasoning_content);
refuse (parameters that are refused); refuse_system; refuse_as ([status, words] of these two, with {name} for the name);
batch_most ([tokens or requests, most per batch, code, words], and one batch at a time); most_tokens (largest maximum);
needs_query and needs_headers (name -> value, else 404 and 401).
GET /stats returns what was asked; POST /settings changes settings while it runs.
"""

import asyncio
import hashlib
import json
import os
import sys
import time
import zlib
from collections import Counter
from typing import Any

from aiohttp import web

Json = dict[str, Any]


class Server:
    def __init__(self, settings: Json) -> None:
        self.settings: Json = {}
        self.runner: Any = None
        self.seen: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.statuses: Counter[str] = Counter()
        self.order: list[str] = []
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, Json] = {}
        self.batch_lines = 0
        self.bodies: list[Json] = []
        self.set(settings)

    def set(self, settings: Json) -> None:
        self.settings |= settings
        self.level = float(self.settings.get("burst", self.settings.get("rate", 0)))
        self.filled = time.monotonic()
        self.slots = asyncio.Semaphore(int(self.settings.get("slots", 1_000_000)))

    def __getattr__(self, name: str) -> Any:
        return self.settings.get(name)

    # -- chat ------------------------------------------------------------------------------------------------

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        key = hashlib.blake2b(json.dumps(body["messages"]).encode(), digest_size=8).hexdigest()
        self.seen[key] += 1
        self.order.append(body["messages"][-1]["content"] if body["messages"] else "")
        self.bodies.append({name: value for name, value in body.items() if name != "messages"})
        response = await self.serve(request, body, key)
        self.statuses[str(response.status)] += 1
        return response

    async def serve(self, request: web.Request, body: Json, key: str) -> web.StreamResponse:
        if refused := self.unauthorised(request):
            return refused
        if self.model and body["model"] != self.model:
            return problem(404, f"The model `{body['model']}` does not exist", "model_not_found")
        if self.refuse_schema and body.get("response_format", {}).get("type") in self.refuse_schema:
            return problem(400, f"response_format {body['response_format']['type']} is not supported")
        if self.refuse_max_tokens and "max_tokens" in body:
            return problem(400, "Unsupported parameter: use 'max_completion_tokens' instead.", "unsupported_parameter")
        if refused := self.parameter(body):
            return refused
        if self.rate and not self.take():
            headers = {"Retry-After": str(self.retry_after)} if self.retry_after else {}
            return problem(429, "slow down", "rate_limit_exceeded", headers)
        fault = self.always or self.fault(key)
        if fault in EARLY:
            return EARLY[fault]()
        async with self.slots:
            await asyncio.sleep(self.latency or 0)
        if fault == "drop":
            request.transport.close()  # type: ignore[union-attr]
            return web.Response()
        if fault == "hang":
            await asyncio.sleep(30)
        if self.die_after and sum(self.answered.values()) >= self.die_after:
            await die(self.runner)
        payload = await self.answer(body, key)
        if fault == "refusal":
            payload["choices"][0]["message"] = {"role": "assistant", "content": None, "refusal": "I cannot do that."}
        elif fault == "content_filter":
            payload["choices"][0]["finish_reason"] = "content_filter"
        elif fault == "no_usage":
            del payload["usage"]
        elif fault == "no_choices":
            payload["choices"] = []
        text = json.dumps(payload).encode()
        if fault == "slow_body":
            return await self.dribble(request, text)
        if fault == "drop_middle":
            response = web.StreamResponse(headers={"Content-Length": str(len(text))})
            await response.prepare(request)
            await response.write(text[:40])
            request.transport.close()  # type: ignore[union-attr]
            return response
        if fault == "truncated":
            return web.Response(body=text[: len(text) // 2], content_type="application/json")
        if fault == "html":
            return web.Response(text="<html><h1>Gateway</h1></html>", content_type="text/html")
        self.answered[key] += 1
        kind = "text/plain" if fault == "wrong_type" else "application/json"
        return web.Response(body=text, content_type=kind, headers=self.headers or {})

    def parameter(self, body: Json) -> web.Response | None:
        if self.refuse_as:
            status, words = self.refuse_as
            system = self.refuse_system and any(message["role"] == "system" for message in body["messages"])
            refused = [*(["system message"] if system else []), *(name for name in self.refuse or () if name in body)]
            return problem(status, words.replace("{name}", refused[0])) if refused else None
        for name in self.refuse or ():
            if name in body and not (name == "temperature" and body[name] == 1):
                words = f"Unsupported value: '{name}' does not support {body[name]} with this model."
                return problem(400, words, "unsupported_value")
        if self.refuse_system and any(message["role"] == "system" for message in body["messages"]):
            return problem(500, "System role not supported")
        wanted = body.get("max_tokens") or body.get("max_completion_tokens")
        if self.most_tokens and wanted > self.most_tokens:
            words = f"max_tokens is too large: {wanted}. This model supports at most {self.most_tokens} tokens."
            return problem(400, words, "invalid_value")
        return None

    def unauthorised(self, request: web.Request) -> web.Response | None:
        if dict(self.needs_query or {}).items() - request.query.items():
            return problem(404, "Resource not found")
        if any(request.headers.get(name) != value for name, value in (self.needs_headers or {}).items()):
            return problem(401, f"Access denied for {dict(request.headers)}")
        given = request.headers.get("Authorization")
        if not self.key or given == f"Bearer {self.key}":
            return None
        return problem(401, f"Incorrect API key provided: {given}", "invalid_api_key")

    async def dribble(self, request: web.Request, text: bytes) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for start in range(0, len(text), 64):
            await response.write(text[start : start + 64])
            await asyncio.sleep(0.005)
        self.answered["slow"] += 1
        return response

    def take(self) -> bool:
        now = time.monotonic()
        self.level = min(float(self.burst or self.rate), self.level + (now - self.filled) * self.rate)
        self.filled = now
        if self.level < 1:
            return False
        self.level -= 1
        return True

    def fault(self, key: str) -> str:
        attempt = self.seen[key]
        if attempt > (self.fault_attempts or 1):
            return ""
        draw = int(hashlib.blake2b(f"{key}{attempt}".encode(), digest_size=4).hexdigest(), 16) / 2**32
        for name, share in (self.faults or {}).items():
            if draw < share:
                return str(name)
            draw -= share
        return ""

    # -- batches ---------------------------------------------------------------------------------------------

    async def upload(self, request: web.Request) -> web.Response:
        if request.content_length is None:
            return web.json_response({"error": {"message": "Content-Length is required"}}, status=411)
        if refused := self.unauthorised(request):
            return refused
        fields = await request.post()
        file = fields["file"]
        name = f"file-{len(self.files)}"
        self.files[name] = file.file.read()  # type: ignore[union-attr]
        return web.json_response({"id": name, "object": "file", "filename": file.filename})  # type: ignore[union-attr]

    async def content(self, request: web.Request) -> web.StreamResponse:
        content = self.files[request.match_info["id"]]
        if self.batch_bomb:
            squeeze, zeros = zlib.compressobj(wbits=31), bytes(1 << 20)  # in parts: the tests count the memory
            content = b"".join([*(squeeze.compress(zeros) for _ in range(self.batch_bomb)), squeeze.flush()])
            return web.Response(body=content, headers={"Content-Encoding": "gzip"})
        if self.batch_breaks:
            self.settings["batch_breaks"] -= 1
            response = web.StreamResponse(headers={"Content-Length": str(len(content))})
            await response.prepare(request)
            await response.write(content[:-9])
            request.transport.abort()  # type: ignore[union-attr]
            return response
        if self.batch_long:
            first, rest = content.split(b"\n", 1)
            response = web.StreamResponse()
            await response.prepare(request)
            for part in (first[:-1] + b",", *[b" " * (1 << 20)] * self.batch_long, b'"x":1}\n' + rest):
                await response.write(part)
            return response
        return web.Response(body=content)

    async def create(self, request: web.Request) -> web.Response:
        body = await request.json()
        name = f"batch-{len(self.batches)}"
        lines = self.files[body["input_file_id"]].decode().splitlines()
        self.batch_lines += len(lines)
        self.bodies += [{**item["body"], "custom_id": item["custom_id"]} for item in map(json.loads, lines)]
        self.batches[name] = {"id": name, **body, "status": "in_progress", "due": time.monotonic()}
        return web.json_response(await self.shown(name))

    async def shown(self, name: str) -> Json:
        batch = self.batches[name]
        if batch["status"] == "in_progress" and self.batch_most:
            unit, most, code, words = self.batch_most
            lines = self.files[batch["input_file_id"]].decode().splitlines()
            running = [each for each in self.batches.values() if each["status"] == "in_progress" and each is not batch]
            size = sum(len(line) // 4 for line in lines) if unit == "tokens" else len(lines)
            if size > most or running:
                error = {"code": code, "message": words, "line": None, "param": None}
                batch |= {"status": "failed", "errors": {"object": "list", "data": [error]}}
                self.batches[name] = batch
        if batch["status"] == "in_progress" and time.monotonic() >= batch["due"] + self.batch_seconds:
            await self.finish(batch)
        return {key: value for key, value in batch.items() if key != "due"}

    async def finish(self, batch: Json) -> None:
        good, bad = [], []
        for number, line in enumerate(self.files[batch["input_file_id"]].decode().splitlines()):
            item = json.loads(line)
            key = hashlib.blake2b(json.dumps(item["body"]["messages"]).encode(), digest_size=8).hexdigest()
            self.seen[key] += 1
            if self.batch_expire and self.seen[key] == 1 and number % self.batch_expire == 0:
                error = {"code": "batch_expired", "message": "This request could not be executed in time."}
                bad.append({"custom_id": item["custom_id"], "response": None, "error": error})
                continue
            self.answered[key] += 1
            response = {"status_code": 200, "body": await self.answer(item["body"], key)}
            good.append({"custom_id": item["custom_id"], "response": response, "error": None})
        for field, rows in (("output_file_id", good), ("error_file_id", bad)):
            if rows:
                name = f"file-{len(self.files)}"
                self.files[name] = "\n".join(json.dumps(row) for row in rows).encode()
                batch[field] = name
        batch["status"] = "expired" if bad else "completed"

    async def batch(self, request: web.Request) -> web.Response:
        name = request.match_info["id"]
        if name not in self.batches:
            return problem(404, "no such batch")
        return web.json_response(await self.shown(name))

    async def listed(self, request: web.Request) -> web.Response:
        return web.json_response(
            {"data": [await self.shown(name) for name in reversed(self.batches)], "has_more": False}
        )

    async def answer(self, body: Json, key: str) -> Json:
        """A deterministic answer: the scripted model's if `scripted` is set, else always of one form."""
        if not self.scripted:
            return thinking(body, answer(body, key, self.text or ""), self.thinks or 0, self.thinks_in)
        from airgen.generation.flow import Flow
        from airgen.llms.base import Message, Request
        from airgen.llms.scripted import ScriptedBackend

        form = body.get("response_format", {}).get("json_schema", {})
        messages = tuple(Message(message["role"], message["content"]) for message in body["messages"])
        request = Request(body["model"], messages, {}, form.get("schema"), stage=form.get("name", "judgment"))
        text = (await ScriptedBackend(rules=Flow().scripted).send(request)).text
        return thinking(body, answer(body, key, text), self.thinks or 0, self.thinks_in)

    # -- about itself ----------------------------------------------------------------------------------------

    async def stats(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "requests": sum(self.seen.values()),
                "distinct": len(self.seen),
                "answered": sum(self.answered.values()),
                "answered_twice": sum(1 for count in self.answered.values() if count > 1),
                "statuses": self.statuses,
                "order": self.order,
                "batches": len(self.batches),
                "batch_lines": self.batch_lines,
                "bodies": self.bodies,
            }
        )

    async def change(self, request: web.Request) -> web.Response:
        self.set(await request.json())
        return web.json_response({})


def answer(body: Json, key: str, text: str) -> Json:
    """Return a deterministic answer with its usage, at four characters per token."""
    asked = sum(len(message["content"]) for message in body["messages"]) // 4
    message = {"role": "assistant", "content": text or json.dumps({"query": f"what is {key}?"})}
    choice: Json = {"index": 0, "message": message, "finish_reason": "stop"}
    if body.get("logprobs"):
        yes, no = {"token": "Yes", "logprob": -0.1}, {"token": "No", "logprob": -2.4}
        choice["logprobs"] = {"content": [{**yes, "top_logprobs": [yes, no]}]}
    usage: Json = {"prompt_tokens": asked, "completion_tokens": 10, "total_tokens": asked + 10}
    usage["prompt_tokens_details"] = {"cached_tokens": asked // 2}
    return {"id": "x", "object": "chat.completion", "model": body["model"], "choices": [choice], "usage": usage}


def thinking(body: Json, found: Json, tokens: int, place: str | None) -> Json:
    """Return the answer of a model that first thinks for a number of tokens, cut off at the maximum."""
    if not tokens:
        return found
    (choice,), usage = found["choices"], found["usage"]
    message, most = choice["message"], body.get("max_tokens") or body.get("max_completion_tokens") or 1 << 30
    cut = tokens + usage["completion_tokens"] > most
    spent = min(tokens, most)
    if cut:
        choice["finish_reason"], message["content"] = "length", ""
    thought, written = "hm, " * spent, 0 if cut else usage["completion_tokens"]
    if place == "text":
        message["content"] = f"<think>{thought}" + ("" if cut else f"</think>\n\n{message['content']}")
    elif place == "field":
        message["reasoning_content"] = thought
    elif place in (None, "hidden", "beside"):
        usage["completion_tokens_details"] = {"reasoning_tokens": spent}
    usage["completion_tokens"] = written if place == "beside" else spent + written
    usage["total_tokens"] = usage["prompt_tokens"] + spent + written
    if "logprobs" in choice and not cut:
        hm = {"token": "hm, ", "logprob": -0.5}
        before = [{**hm, "top_logprobs": [hm]} for _ in range(spent)]
        choice["logprobs"]["content"] = before + choice["logprobs"]["content"]
    return found


def problem(status: int, words: str, code: str = "", headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"error": {"message": words, "code": code}}, status=status, headers=headers)


EARLY = {
    "http_500": lambda: problem(500, "internal"),
    "http_503": lambda: problem(503, "overloaded", headers={"Retry-After": "0.05"}),
    "rate_limit": lambda: problem(429, "slow down", "rate_limit_exceeded"),
    "rate_limit_after": lambda: problem(429, "slow down", "rate_limit_exceeded", {"retry-after-ms": "50"}),
    "quota": lambda: problem(429, "You exceeded your current quota", "insufficient_quota"),
    "bad_request": lambda: problem(
        400, "This model's maximum context length is 8192 tokens", "context_length_exceeded"
    ),
    "bad_json": lambda: problem(400, "Failed to generate JSON. See 'failed_generation'.", "json_validate_failed"),
    "bad_parameter": lambda: problem(400, "Unsupported value: 'thinking' is not supported with this model."),
    "redirect": lambda: web.Response(status=307, headers={"Location": "http://127.0.0.1:9/elsewhere"}),
}


async def serve(settings: Json) -> tuple[web.AppRunner, int]:
    """Start a server in the running loop, and return its stop function and port."""
    server = Server({"batch_seconds": 0.1, **settings})
    app = web.Application(client_max_size=1 << 28)
    app.add_routes(
        [
            web.post("/v1/chat/completions", server.chat),
            web.post("/v1/files", server.upload),
            web.get("/v1/files/{id}/content", server.content),
            web.post("/v1/batches", server.create),
            web.get("/v1/batches", server.listed),
            web.get("/v1/batches/{id}", server.batch),
            web.get("/stats", server.stats),
            web.post("/settings", server.change),
        ]
    )
    server.runner = runner = web.AppRunner(app, access_log=None, handler_cancellation=False, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
    return runner, runner.addresses[0][1]


async def die(runner: web.AppRunner) -> None:
    """Act as if the server's process were killed: stop listening, and drop every connection."""
    for site in list(runner.sites):
        await site.stop()
    for connection in runner.server.connections if runner.server else ():
        if connection.transport is not None:
            connection.transport.abort()


async def main() -> None:
    _, port = await serve(json.loads(sys.argv[1] if len(sys.argv) > 1 else "{}"))
    print(port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    os._exit(0)  # its parent is gone, and calls that hang must not keep it


if __name__ == "__main__":
    asyncio.run(main())
