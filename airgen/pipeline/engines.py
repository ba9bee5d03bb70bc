"""From the pipeline's settings to the engine that its stages ask."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from airgen.errors import SettingsError
from airgen.keys import content_key
from airgen.llms.base import Rule, backend_class
from airgen.llms.batch_file import BatchFile
from airgen.llms.call_queue import Connection
from airgen.llms.engine import Engine
from airgen.llms.health import Health
from airgen.llms.money import Budget, unknown_price
from airgen.llms.probe import read_profiles
from airgen.records import Reservation
from airgen.settings import LlmSettings, Pipeline
from airgen.settings.llm import own_answer_settings
from airgen.store import Store
from airgen.text.display import dollars


def connect(llm: LlmSettings, folder: Path, rules: Mapping[str, Rule]) -> Connection:
    """The connection to one LLM. `rules`: see `Backend.make`. Raises SettingsError without its key.

    In `folder` each LLM has one of its own: what it left there is gone on with by nobody else, and with no other
    settings.
    """
    kind = backend_class(llm)
    backend = kind.make(llm, folder=folder / _own_folder(llm), rules=rules)
    return Connection(backend, kind.limits(llm), kind.price(llm), own_answer_settings(llm))


def _own_folder(llm: LlmSettings) -> str:
    return content_key({"endpoint": llm.endpoint, "model": llm.model, **own_answer_settings(llm)})[:16]


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
    say: Callable[[str], None] | None = None,
    live: bool = False,
) -> Engine:
    """One engine, one budget, for the generator and the judges.

    rules: stage -> answer of the scripted backend. say: see `Engine`. live: no batches. What was learnt of the models
    in the folder of `store` is remembered. Raises SettingsError for a budget on an LLM
    without a known price, UsageError for a budget below 0.
    """
    limit = budget_usd if budget_usd is not None else pipeline.llm.budget_usd
    if limit is not None and (problems := unpriced(pipeline)):
        raise SettingsError(problems)
    folder = store.path.parent / "batches"
    settings = {where: _live(llm) if live else llm for where, llm in pipeline.llms.items()}
    llms = {where: connect(llm, folder, rules or {}) for where, llm in settings.items()}
    owned = {_own_folder(llm) for llm in settings.values()}
    for left in sorted(path for path in folder.glob("*") if path.is_dir() and path.name not in owned):
        if say and any(batch.state["state"] != "prepared" for batch in BatchFile.unfinished(left)):
            say(f"{left}: a batch of an LLM or of settings that the pipeline no longer has; its server may bill it")
    for where, profile in read_profiles(store.path.parent, settings.values()).items():
        llms[where].backend.remember(profile.known)
    found, still_there = money(store), defaultdict[str, list[Reservation]](list)
    for one in found.open:
        where = (one.endpoint, one.model)
        if where in llms and llms[where].backend.RECOVERS:
            still_there[one.answer].append(one)
    options = {} if say is None else {"say": say}
    return Engine(store, llms, budget=Budget(limit, found.spent, still_there), retry_failed=retry_failed, **options)


def _live(llm: LlmSettings) -> LlmSettings:
    return llm.model_copy(update={"mode": "live"}) if "mode" in type(llm).model_fields else llm


def health_of(pipeline: Pipeline, store: Store) -> Health:
    """What stops a job whose stages reject everything; it knows what they have cost."""

    def cost(stage: str) -> str:
        where, values = ("WHERE stage = ?", [stage]) if stage else ("", [])
        (usd,) = store.query(f"SELECT coalesce(sum(usd), 0) FROM payment {where}", values)[0]
        (calls,) = store.query(f"SELECT count(*) FROM answer {where}", values)[0]
        return f"{int(calls)} calls cost {dollars(float(usd))}"

    return Health(pipeline.generation.prompts, cost)


def unpriced(pipeline: Pipeline) -> list[str]:
    """One line for each LLM of the job on which no budget can rest, because its price is unknown or only assumed."""
    prices = {llm.model: backend_class(llm).price(llm) for llm in pipeline.llms.values()}
    wrong = [model for model, price in prices.items() if price is None or price.assumed]
    return [f"a budget needs prices: {unknown_price(model)}" for model in wrong]


@dataclass(frozen=True)
class Money:
    """What a job has cost, in US dollars, over all its processes.

    paid: attempts whose cost is known. open: reservations that a kill or a crash left without an outcome; their calls
    may have been billed.
    """

    paid: float
    open: list[Reservation]

    @property
    def lost(self) -> float:
        """The most that the open reservations can have cost."""
        return math.fsum(one.usd for one in self.open)

    @property
    def spent(self) -> float:
        """What counts against the budget."""
        return self.paid + self.lost


def money(store: Store) -> Money:
    """The money in a work database. While a process works on it, its calls in flight are among the open ones."""
    (paid,) = store.query("SELECT coalesce(sum(usd), 0) FROM payment")[0]
    return Money(float(paid), store.rows(Reservation, "NOT EXISTS (FROM payment p WHERE p.key = t.key)"))
