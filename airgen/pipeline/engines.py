"""From the pipeline's settings to the engine that its stages ask: backends, prices, budget."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from airgen.llms.base import Backend, Reply, Request
from airgen.llms.batch import DAY
from airgen.llms.engine import Engine
from airgen.llms.prices import Price, price
from airgen.llms.scripted import Rule
from airgen.registry import resolve
from airgen.settings import LlmSettings, Pipeline
from airgen.store import Store

__all__ = ["make_backend", "make_engine", "workers_of"]

BATCH_WORKERS = 50_000  # what one batch file of OpenAI's may hold


class Router:
    """Several backends as one, by (endpoint, model): a judge may be another model than the generator."""

    def __init__(self, backends: Mapping[tuple[str, str], Backend]) -> None:
        self._backends = backends

    async def send(self, request: Request) -> Reply:
        """Send through the backend of the request's endpoint and model."""
        return await self._backends[request.endpoint, request.model].send(request)

    async def close(self) -> None:
        """Close every backend once."""
        for backend in {id(backend): backend for backend in self._backends.values()}.values():
            await backend.close()


def make_backend(llm: LlmSettings, folder: Path, rules: Mapping[str, Rule]) -> Backend:
    """The backend of one LLM; batches keep their state in `folder`. Raises SettingsError where its key is not set."""
    made: Backend
    if llm.backend == "scripted":
        made = resolve("llm", "scripted")(rules=rules, faults=llm.faults, latency=llm.latency)
    elif llm.backend == "embedded":
        made = resolve("llm", "embedded")(llm.model, slots=llm.concurrency, threads=llm.threads)
    else:
        url = {} if llm.base_url is None else {"base_url": llm.base_url}
        if llm.mode == "batch":
            poll = llm.batch_poll_seconds
            times = {"poll": poll, "gather": min(2.0, poll)}
            made = resolve("llm", "batch")(folder=folder, **url, api_key_env=llm.api_key_env, **times)
        else:
            made = resolve("llm", "openai")(**url, api_key_env=llm.api_key_env)
    return made


def workers_of(llm: LlmSettings) -> int:
    """How many items are worked on at a time: in batch mode all, so that a whole stage goes into one batch."""
    return BATCH_WORKERS if llm.mode == "batch" else llm.concurrency


def make_engine(
    pipeline: Pipeline,
    store: Store,
    *,
    budget_usd: float | None = None,
    retry_failed: bool = False,
    rules: Mapping[str, Rule] | None = None,
) -> Engine:
    """One engine, one budget, for the generator and the judge."""
    llms = [pipeline.llm, *pipeline.control.judge.llms]
    by_model = {(llm.endpoint, llm.model): llm for llm in llms}
    backend = Router(
        {where: make_backend(llm, store.path.parent / "batches", rules or {}) for where, llm in by_model.items()}
    )
    first = pipeline.llm
    (spent,) = store.query("SELECT coalesce(sum(cost_usd), 0) FROM answer")[0]

    def price_of(model: str) -> Price | None:
        llm = next(llm for llm in llms if llm.model == model)
        if llm.backend != "openai" and model not in llm.prices:
            return Price(0.0, 0.0, 0.0)
        found = price(model, llm.prices, llm.base_url or "")
        return found.halved() if found is not None and llm.mode == "batch" else found

    batch = first.mode == "batch"
    return Engine(
        backend, store, adaptive=not batch,
        concurrency=workers_of(first), budget_usd=budget_usd if budget_usd is not None else first.budget_usd,
        spent_usd=float(spent), price=price_of, requests_per_minute=first.requests_per_minute,
        tokens_per_minute=first.tokens_per_minute, max_failures=first.max_failures, retry_failed=retry_failed,
        max_retries=first.retries, timeout=DAY if batch else first.timeout_seconds,
    )  # fmt: skip
