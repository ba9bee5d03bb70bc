"""The LLM engine compared with a bare aiohttp loop, the openai client, and two generators of synthetic data.

    python benchmarks/llm_engine.py [--calls 2000] [--rounds 3] [--only airgen,aiohttp]
        [--python curator=ENV/bin/python]

A loopback server answers every call after 50 ms. Each contender makes the same calls, in turn, `--rounds` times. The
medians are printed with the ratio to the bare loop of the same round; only ratios can be compared between machines.
Then follow a job that is killed half way (how many calls are made twice), a finished job that is run again, and a
server that allows 100 requests a second. A contender whose package is missing is left out, with a message.
`--python` runs one in an environment of its own, where its pinned versions conflict with airgen's. curator and
data-designer count with tiktoken: on a machine without a network, set TIKTOKEN_CACHE_DIR to a folder with its files.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

SERVER = Path(__file__).resolve().parents[1] / "tests" / "makers" / "llm_server.py"
PROMPT = "<document>\n" + "word " * 100 + "\n</document>\n\nWrite a query, number {}."
KEEPS = ("airgen", "airgen-budget", "curator", "data-designer")  # they store answers, so a killed job can continue
PYTHONS: dict[str, str] = {}  # contender -> the interpreter of its own environment
PACKAGES = {
    "openai": "openai",
    "openai-aiohttp": "httpx_aiohttp",
    "curator": "bespokelabs.curator",
    "data-designer": "data_designer",
}


class Server:
    def __init__(self, **settings: Any) -> None:
        command = [sys.executable, str(SERVER), json.dumps(settings)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.root = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def stats(self) -> dict[str, Any]:
        with urllib.request.urlopen(self.root + "/stats") as response:
            return json.load(response)  # type: ignore[no-any-return]

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


# -- the contenders, each in a process of its own ---------------------------------------------------------


async def run_airgen(base_url: str, calls: int, concurrency: int, folder: Path, paid: bool = False) -> None:
    from airgen.llms.base import CallLimits, Message, Request
    from airgen.llms.call_queue import Connection
    from airgen.llms.engine import Engine
    from airgen.llms.money import FREE, Budget, Price
    from airgen.llms.openai import OpenAIBackend, OpenAISettings
    from airgen.storage.store import Store

    price, budget = (Price(0.15, 0.075, 0.6), Budget(1_000.0)) if paid else (FREE, None)
    with Store.open(folder / "work.duckdb") as store:
        backend = OpenAIBackend(OpenAISettings(model="m", base_url=base_url))
        llms = {("default", "m"): Connection(backend, CallLimits(concurrency), price)}
        async with Engine(store, llms, budget=budget) as engine:
            requests = [
                Request("m", (Message("user", PROMPT.format(i)),), {"max_tokens": 64}, stage="query")
                for i in range(calls)
            ]
            await engine.ask(Request("m", (Message("user", "first"),), {"max_tokens": 64}))  # imports the package
            begin()
            answers = await asyncio.gather(*(engine.ask(request) for request in requests))
            end(sum(not answer.error for answer in answers))


async def run_airgen_budget(base_url: str, calls: int, concurrency: int, folder: Path) -> None:
    """Run airgen with a budget: each attempt is reserved on disk before it is sent, and paid afterwards."""
    await run_airgen(base_url, calls, concurrency, folder, paid=True)


async def run_aiohttp(base_url: str, calls: int, concurrency: int, folder: Path) -> None:
    import aiohttp

    slots = asyncio.Semaphore(concurrency)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def call(i: int) -> str:
            body = {"model": "m", "messages": [{"role": "user", "content": PROMPT.format(i)}], "max_tokens": 64}
            async with slots, session.post(base_url + "/chat/completions", json=body) as response:
                return str((await response.json())["choices"][0]["message"]["content"])

        begin()
        end(len(await asyncio.gather(*(call(i) for i in range(calls)))))


async def run_openai(base_url: str, calls: int, concurrency: int, folder: Path, aiohttp: bool = False) -> None:
    import openai

    http = openai.DefaultAioHttpClient() if aiohttp else None
    slots = asyncio.Semaphore(concurrency)
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none", http_client=http) as client:

        async def call(i: int) -> str:
            async with slots:
                message: Any = {"role": "user", "content": PROMPT.format(i)}
                reply = await client.chat.completions.create(model="m", messages=[message], max_tokens=64)
                return reply.choices[0].message.content or ""

        begin()
        end(len(await asyncio.gather(*(call(i) for i in range(calls)))))


async def run_openai_aiohttp(base_url: str, calls: int, concurrency: int, folder: Path) -> None:
    await run_openai(base_url, calls, concurrency, folder, aiohttp=True)


def run_curator(base_url: str, calls: int, concurrency: int, folder: Path) -> None:
    from bespokelabs import curator

    os.environ["CURATOR_DISABLE_CACHE"] = "0"
    backend = {
        "base_url": base_url,
        "api_key": "none",
        "max_concurrent_requests": concurrency,
        "max_requests_per_minute": 10_000_000,
        "max_tokens_per_minute": 10_000_000_000,
        "require_all_responses": False,
    }
    llm = curator.LLM(model_name="m", backend="openai", backend_params=backend)
    begin()
    out = llm([PROMPT.format(i) for i in range(calls)], working_dir=str(folder))
    end(len(out.dataset if hasattr(out, "dataset") else out))


def run_data_designer(base_url: str, calls: int, concurrency: int, folder: Path) -> None:
    import data_designer.config as dd
    import pandas
    from data_designer.interface import DataDesigner

    provider = dd.ModelProvider(name="loopback", endpoint=base_url, api_key="none")
    inference = dd.ChatCompletionInferenceParams(max_tokens=64, max_parallel_requests=concurrency)
    model = dd.ModelConfig(
        alias="m", model="m", provider="loopback", inference_parameters=inference, skip_health_check=True
    )
    config = dd.DataDesignerConfigBuilder(model_configs=[model])
    config.with_seed_dataset(dd.DataFrameSeedSource(df=pandas.DataFrame({"i": range(calls)})))
    prompt = PROMPT.replace("{}", "{{ i }}")
    config.add_column(dd.LLMTextColumnConfig(name="query", prompt=prompt, model_alias="m"))
    designer = DataDesigner(artifact_path=folder, model_providers=[provider])
    begin()
    results = designer.create(config, num_records=calls, resume=dd.ResumeMode.IF_POSSIBLE)
    end(len(results.load_dataset()))


CONTENDERS = {
    "aiohttp": run_aiohttp,
    "airgen": run_airgen,
    "airgen-budget": run_airgen_budget,
    "openai-aiohttp": run_openai_aiohttp,
    "openai": run_openai,
    "curator": run_curator,
    "data-designer": run_data_designer,
}

_started = (0.0, 0.0)


def begin() -> None:
    global _started
    _started = (time.perf_counter(), time.process_time())


def end(done: int) -> None:
    seconds, cpu = time.perf_counter() - _started[0], time.process_time() - _started[1]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"done": done, "seconds": seconds, "cpu": cpu, "memory": memory}), flush=True)


def contend(name: str, base_url: str, calls: int, concurrency: int, folder: Path) -> subprocess.Popen[str]:
    command = [
        PYTHONS.get(name, sys.executable),
        __file__,
        "--contender",
        name,
        base_url,
        str(calls),
        str(concurrency),
        str(folder),
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def measure(name: str, calls: int, concurrency: int, **settings: Any) -> dict[str, Any]:
    """Run one contender against a fresh server, and return its own figures and the server's."""
    with Server(**{"latency": 0.05, **settings}) as server, tempfile.TemporaryDirectory() as folder:
        process = contend(name, server.root + "/v1", calls, concurrency, Path(folder))
        out, _ = process.communicate()
        lines = [line for line in out.splitlines() if line.startswith("{")]
        if not lines:
            return {}
        return {**json.loads(lines[-1]), "requests": server.stats()["requests"], "statuses": server.stats()["statuses"]}


# -- the tables --------------------------------------------------------------------------------------------------


def throughput(names: list[str], calls: int, concurrency: int, rounds: int) -> None:
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            runs[name].append(measure(name, calls, concurrency))
    print(f"\n{calls} calls at concurrency {concurrency}; the ideal is {concurrency / 0.05:,.0f} requests/s")
    print(f"{'':16}{'req/s':>8}{'of ideal':>10}{'of aiohttp':>12}{'CPU ms/call':>13}{'CPU of aiohttp':>20}{'MB':>6}")
    for name in names:
        good = [run for run in runs[name] if run]
        if not good:
            print(f"{name:16} failed")
            continue
        rate = statistics.median(run["done"] / run["seconds"] for run in good)
        pairs = [(run, bare) for run, bare in zip(runs[name], runs["aiohttp"], strict=True) if run and bare]
        ratio = statistics.median(bare["seconds"] / run["seconds"] for run, bare in pairs)
        costs = sorted(run["cpu"] / run["done"] / (bare["cpu"] / bare["done"]) for run, bare in pairs)
        of_bare = f"{statistics.median(costs):.2f} ({costs[0]:.2f} to {costs[-1]:.2f})"
        cpu = statistics.median(run["cpu"] / run["done"] * 1000 for run in good)
        memory = statistics.median(run["memory"] for run in good)
        print(
            f"{name:16}{rate:8,.0f}{rate * 0.05 / concurrency:10.2f}{ratio:12.2f}{cpu:13.2f}{of_bare:>20}{memory:6.0f}"
        )


def killed(name: str, calls: int, concurrency: int) -> None:
    """Kill a run when half of the calls are answered, run it again, and run it a third time."""
    with Server(latency=0.05) as server, tempfile.TemporaryDirectory() as folder:
        process = contend(name, server.root + "/v1", calls, concurrency, Path(folder))
        while server.stats()["answered"] < calls // 2 and process.poll() is None:
            pass
        process.send_signal(signal.SIGKILL)
        process.communicate()
        contend(name, server.root + "/v1", calls, concurrency, Path(folder)).communicate()
        twice = server.stats()["requests"] - server.stats()["distinct"]
        before, started = server.stats()["requests"], time.perf_counter()
        contend(name, server.root + "/v1", calls, concurrency, Path(folder)).communicate()
        seconds, more = time.perf_counter() - started, server.stats()["requests"] - before
        print(f"{name:16} asked twice after SIGKILL: {twice}; run again: {more} calls, {seconds:.1f} s whole process")


def limited(name: str, concurrency: int) -> None:
    for retry_after in (0, 1):
        run = measure(name, 1000, concurrency, rate=100, retry_after=retry_after)
        if not run:
            print(f"{name:16} failed")
            continue
        waste = run["requests"] - run["done"]
        header = "with Retry-After" if retry_after else "without"
        print(f"{name:16} {header:17} {run['seconds']:6.1f} s (ideal 9.0), {waste} refused")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--contender", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contender:
        name, base_url, calls, concurrency, folder = arguments.contender
        work = CONTENDERS[name](base_url, int(calls), int(concurrency), Path(folder))  # type: ignore[operator]
        if work is not None:
            asyncio.run(work)
        return
    PYTHONS.update(one.split("=", 1) for one in arguments.python)
    names = [name for name in CONTENDERS if not arguments.only or name in {"aiohttp", *arguments.only.split(",")}]
    for name, package in PACKAGES.items():
        if name in names and name not in PYTHONS and importlib.util.find_spec(package.partition(".")[0]) is None:
            names.remove(name)
            print(f"{name}: left out, {package} is not installed")
    for concurrency in (64, 256):
        throughput(names, arguments.calls, concurrency, arguments.rounds)
    print()
    for name in names:
        if name in KEEPS:  # the others store nothing
            killed(name, arguments.calls, 64)
    for name in names:
        if name in KEEPS:
            limited(name, 64)


if __name__ == "__main__":
    main()
