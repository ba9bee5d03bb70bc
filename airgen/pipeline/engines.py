"""From the pipeline's settings to the engine that its stages ask."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from airgen.llms.base import Rule, backend_class
from airgen.llms.budget import Budget
from airgen.llms.call_queue import Connection
from airgen.llms.engine import Engine
from airgen.settings import LlmSettings, Pipeline
from airgen.settings.llm import own_answer_settings
from airgen.store import Store

__all__ = ["connect", "make_engine", "workers_of"]


def connect(llm: LlmSettings, folder: Path, rules: Mapping[str, Rule]) -> Connection:
    """The connection to one LLM. `folder` and `rules`: see `Backend.make`. Raises SettingsError without its key."""
    kind = backend_class(llm)
    backend = kind.make(llm, folder=folder, rules=rules)
    return Connection(backend, kind.limits(llm), kind.price(llm), own_answer_settings(llm))


def workers_of(*llms: LlmSettings) -> int:
    """How many items to work on at a time: enough for the LLM of these that can have the most calls in flight."""
    return max(llm.workers for llm in llms)


def make_engine(
    pipeline: Pipeline,
    store: Store,
    *,
    budget_usd: float | None = None,
    retry_failed: bool = False,
    rules: Mapping[str, Rule] | None = None,
) -> Engine:
    """One engine, one budget, for the generator and the judges. `rules`: stage -> answer of the scripted backend."""
    folder = store.path.parent / "batches"
    llms = {where: connect(llm, folder, rules or {}) for where, llm in pipeline.llms.items()}
    (spent,) = store.query("SELECT coalesce(sum(cost_usd), 0) FROM answer")[0]
    budget = Budget(budget_usd if budget_usd is not None else pipeline.llm.budget_usd, float(spent))
    return Engine(store, llms, budget=budget, retry_failed=retry_failed)
