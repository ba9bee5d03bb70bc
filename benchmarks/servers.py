"""A small job on servers that nobody here wrote: llama.cpp's HTTP server, and LiteLLM's proxy in front of it.

    airgen fetch qwen2.5-coder-1.5b
    python -m venv LITELLM && LITELLM/bin/pip install 'litellm[proxy]'
    python benchmarks/servers.py --litellm LITELLM/bin/litellm

llama.cpp's server runs in a process of its own, with the model that the quickstart uses, and is reached as any other
endpoint: backend openai. LiteLLM stands in front of it on loopback. Each gets the quickstart's settings with target 2.
Printed: what the probe said, accepted queries, calls, failures and retries by reason, tokens, seconds, and how many
tokens the server counted for one that is counted here. Nothing outside this machine is reached.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from airgen import models
from airgen.errors import AirgenError
from airgen.llms.embedded import _gguf
from airgen.llms.probe import read_profiles
from airgen.pipeline import Job
from airgen.pipeline.run import run_pipeline
from airgen.pipeline.show import read_report
from airgen.prompts import data_dir

KEY = "sk-" + secrets.token_hex(32)  # of both servers; LiteLLM wants one of this form
LLM = "{backend: embedded, model: qwen2.5-coder-1.5b, temperature: 0.7, max_tokens: 512}"


@contextlib.contextmanager
def llama_cpp(model: str, threads: int) -> Iterator[str]:
    """The base URL of a llama.cpp server of its own process."""
    wanted = {
        "path": str(_gguf(models.path(model))),
        "context": 8192, "slots": 2, "block": 512, "threads": threads, "key": KEY,
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "airgen.llms.llama_server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, env={**os.environ, "OMP_WAIT_POLICY": "passive"},
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(json.dumps(wanted) + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        if "error" in answer:
            raise SystemExit(f"llama.cpp: {answer['error']}")
        yield f"{answer['address']}/v1"
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def litellm(program: Path, behind: str, model: str, folder: Path) -> Iterator[str]:
    """The base URL of LiteLLM's proxy in front of an endpoint."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = folder / "litellm.yaml"
    config.write_text(
        f"model_list:\n- model_name: {model}\n  litellm_params:\n    model: openai/{model}\n"
        f"    api_base: {behind}\n    api_key: os.environ/LOOPBACK_KEY\nlitellm_settings: {{telemetry: false}}\n"
    )
    environment = {
        **os.environ,
        "LITELLM_MASTER_KEY": KEY,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_MODE": "PRODUCTION",
    }
    with (folder / "litellm.log").open("w") as log:
        process = subprocess.Popen(
            [str(program), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)],
            stdout=log, stderr=log, env=environment,
        )  # fmt: skip
        try:
            url = f"http://127.0.0.1:{port}"
            for _ in range(600):
                if process.poll() is not None:
                    raise SystemExit(f"LiteLLM ended: {(folder / 'litellm.log').read_text()[-2000:]}")
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"{url}/health/liveliness", timeout=5).close()
                    break
                time.sleep(0.5)
            yield f"{url}/v1"
        finally:
            process.kill()
            process.wait()


def job(name: str, url: str, model: str, target: int, folder: Path) -> dict[str, object]:
    """Run the quickstart's job on an endpoint; returns what it did."""
    text = (data_dir("pipelines") / "quickstart.yaml").read_text()
    assert LLM in text
    own = f"{{model: {model}, base_url: '{url}', api_key_env: LOOPBACK_KEY, temperature: 0.7, max_tokens: 512, "
    text = text.replace(LLM, own + "concurrency: 2, timeout_seconds: 900}").replace("target: 8 ", f"target: {target} ")
    path = folder / f"{name}.yaml"
    path.write_text(text.replace("name: quickstart", f"name: {name}"))
    found: dict[str, object] = {"server": name}
    began = time.monotonic()
    try:
        result = run_pipeline(path, runs=folder / "runs", evaluate=False, console=Console(stderr=True))
        splits = result.manifest.statistics.splits.values() if result.manifest else ()
        found["queries"] = sum(split.queries for split in splits)
        usage = result.usage.values()
        for kind in ("calls", "prompt_tokens", "cached_tokens", "completion_tokens"):
            found[kind] = sum(stage[kind] for stage in usage)
        for kind in ("failures", "retries"):
            found[kind] = {reason: count for stage in usage for reason, count in stage[kind].items()}
    except AirgenError as error:
        found["error"] = str(error)[:500]
    found["seconds"] = round(time.monotonic() - began)
    this = Job(path, folder / "runs")
    for profile in read_profiles(this.directory, this.pipeline.llms.values()).values():
        found["probe"] = profile.about()
        found["learnt"] = profile.known
    with contextlib.suppress(AirgenError):
        found["skips"] = read_report(this).get("skips")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--litellm", type=Path, help="the program `litellm` of an environment of its own")
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--target", type=int, default=2)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    os.environ["LOOPBACK_KEY"] = KEY
    with tempfile.TemporaryDirectory() as name, llama_cpp(options.model, options.threads) as url:
        folder = Path(name)
        print(json.dumps(job("llama-cpp", url, options.model, options.target, folder)), flush=True)
        if options.litellm:
            with litellm(options.litellm, url, options.model, folder) as proxy:
                print(json.dumps(job("litellm", proxy, options.model, options.target, folder)), flush=True)


if __name__ == "__main__":
    main()
