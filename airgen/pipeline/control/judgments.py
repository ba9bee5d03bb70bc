"""Judgments: the LLM on every pair that Table 2 shows to it (paper 2.4, step 3)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache

from airgen.keys import row_key
from airgen.pipeline.ask_each import ask_each
from airgen.pipeline.breaker import Breaker
from airgen.pipeline.control.judge import judge_kind, judge_name, judge_pair
from airgen.pipeline.control.need import Asker
from airgen.pipeline.control.prelabels import prelabels_of
from airgen.pipeline.control.set_stage import Control
from airgen.pipeline.control.table2 import BROUGHT, Pair, pairs_to_judge
from airgen.pipeline.stage import Refusal, skip
from airgen.records import HardNegative, Judgment, Skip
from airgen.store import Store

OWN = "own_query"
"""The plan's name for the user's own queries and their labels; only a pipeline with `queries` has it."""

GROUP = 1000  # pairs whose documents are read from the work database at once


def pairs_of(control: Control) -> list[Pair]:
    """The pairs to judge, in the order in which a prefix cache serves most of them."""
    prelabels = prelabels_of(control)
    pairs: list[Pair] = []
    for lineage in control.accepted.lineages:
        negatives = [one.id for one in lineage.every(HardNegative)]
        key = lineage.final.key
        pairs += pairs_to_judge(key, lineage.passage.id, negatives, prelabels[key], control.settings.thresholds)
    labelled = {(row.parent, row.id) for row in own_labels(control)}
    pairs = [pair for pair in pairs if (pair.query, pair.id) not in labelled]
    # Calls that begin alike should stand next to each other.
    query_first = any(judge_kind(member).QUERY_FIRST for member in control.settings.judge.members[:1])
    return sorted(pairs, key=lambda pair: (pair.query, pair.id) if query_first else (pair.id, pair.query))


def own_labels(control: Control) -> list[Judgment]:
    """The labels that the user brought, as judgments: nobody is asked about these pairs."""
    return control.store.made(Judgment, control.plan[OWN], control.queries) if OWN in control.plan else []


def changed_texts(store: Store, corpus: str) -> dict[str, str]:
    """By id, the key of each passage whose text or title was another one when the work database first had it."""
    if len(store.query("SELECT 1 FROM corpus LIMIT 2")) < 2:
        return {}  # there was one state of the corpus: no search through all passages
    sql = (
        "WITH versions AS (SELECT id, min(rowid) AS first FROM passage GROUP BY id HAVING count(*) > 1) "
        "SELECT t.id, t.key FROM versions v JOIN passage t ON t.id = v.id JOIN membership m ON m.key = t.key "
        "WHERE m.fingerprint = ? AND t.rowid <> v.first"
    )
    return dict(store.query(sql, [corpus]))


def pair_name(pair: Pair, changed: Mapping[str, str]) -> str:
    """What a judgment is of: query and document; of a document that has changed, its text."""
    name = f"{pair.query}/{pair.id}"
    return f"{name}@{changed[pair.id]}" if pair.id in changed else name


def is_current(row: Judgment, changed: Mapping[str, str], sources: Collection[str] = ()) -> bool:
    """Whether a judgment is of the text that its document has now.

    A query is made from one text of its `sources`; labels that the user brought are of documents, whatever their text.
    """
    if row.judge.startswith(BROUGHT):
        return True
    pair = Pair(row.parent, row.id)
    return row.key == row_key("judgment", pair_name(pair, {} if row.id in sources else changed), row.fingerprint)


async def add_judgments(control: Control) -> None:
    """Ask about every pair that has neither a judgment nor a skip; nobody where votes decide."""
    if not control.settings.judge.members:
        return
    tools, store, fp = control.tools, control.store, control.plan["judgment"]
    done = {row.key for row in store.made(Judgment, fp)}
    failed = {row.parent: row for row in store.rows(Skip, "t.stage = 'judgment' AND t.fingerprint = ?", [fp])}
    changed = changed_texts(store, control.plan["corpus"])
    pairs = {pair_name(pair, changed): pair for pair in pairs_of(control)}
    pending = {name: None for name in pairs if row_key("judgment", name, fp) not in done and name not in failed}
    breaker = Breaker(tools.pipeline, store)
    for name in pairs:  # what is on the disk counts, so that a stopped run does not spend more when it starts again
        if name in failed:
            skipped = failed[name]
            breaker.saw("judgment", skipped.reason, skipped.detail, usable=skipped.cause == "check")
        elif name not in pending:
            breaker.saw("judgment")
    control.display.counts["judgments"] = breaker.counts
    if pending:
        breaker.check()
    order = list(pending)
    askers = {lineage.final.key: Asker.of(lineage) for lineage in control.accepted.lineages}
    turns = {name: turn for turn, name in enumerate(order)}

    @lru_cache(maxsize=4)  # pairs are asked about nearly in their order
    def documents(group: int) -> dict[str, str]:
        return control.documents({pairs[name].id for name in order[group * GROUP : (group + 1) * GROUP]})

    with control.display.stage("judgments", len(pairs), len(pairs) - len(pending)) as bar:

        async def one(name: str) -> None:
            pair = pairs[name]
            document = documents(turns[name] // GROUP)[pair.id]
            found = await judge_pair(tools, control.queries[pair.query], document, askers[pair.query])
            breaker.saw_answer("judgment", found)
            if isinstance(found, Refusal):
                await store.commit([skip("judgment", name, tools, found.problem, found.answer)])
            else:
                key = row_key("judgment", name, fp)
                verdict = (found.level, found.probability, judge_name(tools.pipeline), found.reason)
                await store.commit([Judgment(key, pair.query, fp, 0, pair.id, *verdict)])
            bar.advance()
            breaker.check()

        await ask_each(list(pending), one, control.workers)
