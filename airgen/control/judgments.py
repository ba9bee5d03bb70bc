"""Quality control of the accepted candidates (paper 2.4): judgments, decisions, and negatives out of the corpus itself.

Judgments are the LLM on every pair that Table 2 shows to it, decisions what Table 2 makes of them.

Mined negatives are passages high in recall that quality control found not relevant: an alternative or an addition to
the generated ones (paper 2.3, step 6), and free. What quality control knows decides:

- a passage that was judged not relevant, by the LLM or by votes, may be taken at any rank: these are the surest, and
  they come first. Most re-rankers have them within their thresholds, and those that most of them rank highest lead. By
  votes they are not even about the query's subject, for one re-ranker at least: a passage in between is no negative;
- a passage that was not judged may be taken within a window of ranks, if no re-ranker put it within its threshold. The
  window begins below the first ranks, where relevant passages without a label are likeliest (RocketQA, Qu et al. 2021,
  found 70 % of the unlabelled top passages to be relevant).
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from airgen.control.judge import judge_kind, judge_name, judge_pair
from airgen.control.recall import RECALL, prelabel_stages, prelabels_of
from airgen.control.set_stage import Control, SetStage, add_rows
from airgen.control.table2 import BROUGHT, Pair, decide, median_ranks, pairs_to_judge, ranked, votes
from airgen.control.votes import FEW, NOT_FOUND, PEOPLES, WAY, first, least_share, relevant, voted
from airgen.keys import fingerprint, rng, row_key
from airgen.records import Decision, HardNegative, Judgment, Prelabel, Recall, Skip
from airgen.sequences import batched
from airgen.settings import Thresholds
from airgen.settings.generation import MINED_RANKS
from airgen.steps.ask import ask_each, health_of, saw_answer
from airgen.steps.lineage import Lineage
from airgen.steps.stage import Plan, Problem, skip
from airgen.store import Store

OWN = "own_query"
"""The plan's name for the user's own queries and their labels; only a pipeline with `queries` has it."""

GROUP = 1000  # pairs whose documents are read from the work database at once
QUERIES = 500  # whose decisions are written at once


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


def pair_name(query: str, id_: str, keys: Mapping[str, str]) -> str:
    """What a judgment is of: a query, and the key of a passage, which is that of its text; a generated one has none."""
    return f"{query}/{keys.get(id_, id_)}"


def current(store: Store, corpus: str, rows: Sequence[Judgment]) -> list[Judgment]:
    """The judgments of texts that the documents have now, and the labels that the user brought, whatever the text."""
    keys = store.passages_named(corpus, {row.id for row in rows}, "t.key")
    return [
        row
        for row in rows
        if row.judge.startswith(BROUGHT)
        or row.key == row_key("judgment", pair_name(row.parent, row.id, keys), row.fingerprint)
    ]


async def add_judgments(control: Control) -> None:
    """Ask about every pair that has neither a judgment nor a skip; nobody where votes decide."""
    if not control.settings.judge.members:
        return
    tools, store, fp = control.tools, control.store, control.plan["judgment"]
    done = {row.key for row in store.made(Judgment, fp)}
    failed = {row.parent: row for row in store.rows(Skip, "t.stage = 'judgment' AND t.fingerprint = ?", [fp])}
    every = pairs_of(control)
    keys = store.passages_named(control.plan["corpus"], {pair.id for pair in every}, "t.key")
    pairs = {pair_name(pair.query, pair.id, keys): pair for pair in every}
    pending = {name: None for name in pairs if row_key("judgment", name, fp) not in done and name not in failed}
    health = health_of(tools.pipeline, store)
    for name in pairs:  # what is on the disk counts, so that a stopped run does not spend more when it starts again
        if name in failed:
            skipped = failed[name]
            health.saw("judgment", skipped.reason, skipped.detail, skipped.cause)
        elif name not in pending:
            health.saw("judgment")
    control.display.counts["judgments"] = health.counts
    if pending:
        health.check()
    order = list(pending)
    turns = {name: turn for turn, name in enumerate(order)}

    @lru_cache(maxsize=4)  # pairs are asked about nearly in their order
    def documents(group: int) -> dict[str, str]:
        return control.documents({pairs[name].id for name in order[group * GROUP : (group + 1) * GROUP]})

    with control.display.stage("judgments", len(pairs), len(pairs) - len(pending)) as bar:

        async def one(name: str) -> None:
            pair = pairs[name]
            document = documents(turns[name] // GROUP)[pair.id]
            found = await judge_pair(tools, control.queries[pair.query], document)
            saw_answer(health, "judgment", found)
            if isinstance(found, Problem):
                await store.commit([skip("judgment", name, tools, found)])
            else:
                key = row_key("judgment", name, fp)
                verdict = (found.level, found.probability, judge_name(tools.pipeline), found.reason)
                await store.commit([Judgment(key, pair.query, fp, 0, pair.id, *verdict)])
            bar.advance()
            health.check()

        await ask_each(list(pending), one, control.workers)


def _fingerprint(control: Control, model: Any) -> str:
    settings, pipeline = control.settings, control.tools.pipeline
    read = {
        stage: fp for stage, fp in control.plan.items() if stage.startswith("prelabel") or stage in ("judgment", OWN)
    }
    return fingerprint(
        stage="decision", version=2, relevant_from=settings.judge.relevant_from, plan=read,
        thresholds=settings.thresholds.model_dump(),
        votes=None
        if settings.judge.members
        else [pipeline.relevance, str(least_share(pipeline.relevance, len(settings.rerankers))), PEOPLES, FEW],
    )  # fmt: skip


def _work(control: Control, model: Any, fp: str, queries: Sequence[str]) -> Iterator[list[Decision]]:
    relevant_from, lineages = control.settings.judge.relevant_from, control.accepted.lineages
    negatives = {lineage.final.key: [one.id for one in lineage.every(HardNegative)] for lineage in lineages}
    judged = _judgments(control)
    dropped = {
        id_
        for key, ids in negatives.items()
        for id_ in ids
        if (found := judged.get(key, {}).get(id_)) and found.level >= relevant_from
    }
    voting = not control.settings.judge.members
    unjudged = NOT_FOUND[control.tools.pipeline.relevance] if voting else "its document was not judged"

    def of(lineage: Lineage) -> list[Decision]:
        key, own = lineage.final.key, lineage.passage.id if lineage.sources else None
        return decide(key, own, negatives[key], judged.get(key, {}), dropped, relevant_from, fp, unjudged)

    for batch in batched(lineages, QUERIES):
        yield [row for lineage in batch for row in of(lineage)]


def _judgments(control: Control) -> dict[str, dict[str, Judgment]]:
    """Judgments by query and document: of the LLM or by votes, and over them the user's own labels.

    Judgments that an earlier threshold or re-ranker asked for stay on the disk, and are not read here.
    """
    found = _of_llm(control) if control.settings.judge.members else _by_votes(control)
    for row in own_labels(control):
        found.setdefault(row.parent, {})[row.id] = row
    return found


def _of_llm(control: Control) -> dict[str, dict[str, Judgment]]:
    asked = {(pair.query, pair.id) for pair in pairs_of(control)}
    asked |= {(key, id_) for key, ids in control.sources.items() for id_ in ids}
    rows = control.store.made(Judgment, control.plan["judgment"], control.queries)
    found: dict[str, dict[str, Judgment]] = {}
    for row in current(control.store, control.plan["corpus"], [row for row in rows if (row.parent, row.id) in asked]):
        found.setdefault(row.parent, {})[row.id] = row
    return found


def _by_votes(control: Control) -> dict[str, dict[str, Judgment]]:
    """What the votes say of the pairs that an LLM would judge, of the sources, and of every relevant passage.

    The sources of a user's own query are the passages that somebody labelled relevant. Where there is none, or where
    the re-rankers do not find them, nothing is judged.
    """
    cut = control.settings.judge.relevant_from
    known: dict[str, list[str]] = {}
    for row in own_labels(control):
        if row.level >= cut:
            known.setdefault(row.parent, []).append(row.id)
    pairs: dict[str, set[str]] = {}
    for pair in pairs_of(control):
        pairs.setdefault(pair.query, set()).add(pair.id)
    found: dict[str, dict[str, Judgment]] = {}
    written = {one.id for lineage in control.accepted.lineages for one in lineage.every(HardNegative)}
    fp, relevance = control.plan["judgment"], control.tools.pipeline.relevance
    for key, rows in prelabels_of(control).items():
        made = control.sources.get(key)
        if made and relevance == "answer" and not first(rows, made, written):
            continue
        shares = voted(rows, own := made or known.get(key, []))
        if made:
            least, doubtful = least_share(relevance, len(rows)), WAY["subject"]
            chosen = relevant({id_: shares[id_] for id_ in shares if id_ not in written}, made, relevance, len(rows))
            chosen |= {id_ for id_ in shares.keys() & written if shares[id_] >= least}
        else:
            doubtful, chosen = PEOPLES, {id_ for id_, share in shares.items() if share >= PEOPLES or id_ in own}
        for id_, share in shares.items():
            # What may be about a generated query's subject is not called irrelevant: a mined negative must be sure.
            if id_ in chosen or (share < doubtful and id_ in pairs.get(key, ())):
                level, name = cut if id_ in chosen else 0, row_key("vote", f"{key}/{id_}", fp)
                found.setdefault(key, {})[id_] = Judgment(name, key, fp, 0, id_, level, None, "votes")
    return found


DECISIONS = SetStage("decision", Decision, "decisions", _fingerprint, _work, always=True)


MINED_NAME = "mined_negative"


def mined_by_query(store: Store, plan: Plan, queries: Collection[str] | None = None) -> dict[str, list[HardNegative]]:
    """The mined negatives by the key of their query, in their order; of some queries where they are given."""
    found: dict[str, list[HardNegative]] = {}
    for row in store.made(HardNegative, plan[MINED_NAME], queries) if MINED_NAME in plan else ():
        found.setdefault(row.parent, []).append(row)
    return found


def _mined_fingerprint(control: Control, model: Any) -> str:
    settings, decision = control.tools.pipeline.generation, control.plan["decision"]
    return fingerprint(stage=MINED_NAME, version=2, decision=decision, range=settings.hard_negatives, ranks=MINED_RANKS)


def _mined_work(control: Control, model: Any, fp: str, queries: Sequence[str]) -> Iterator[list[HardNegative | Skip]]:
    settings = control.tools.pipeline.generation
    recalls, prelabels = control.rows("recall", Recall), prelabels_of(control)
    recalled = {id_ for recall in recalls.values() for id_ in recall.ids} - set(control.pool.negatives)
    titles = control.store.passages_named(control.plan["corpus"], recalled, "t.title")
    decisions: dict[str, dict[str, Decision]] = {}
    for decision in control.store.made(Decision, control.plan["decision"], control.queries):
        decisions.setdefault(decision.parent, {})[decision.id] = decision

    def of(lineage: Lineage) -> list[HardNegative | Skip]:
        key = lineage.final.key
        count = rng(lineage.sample.key, "mined negatives").randint(*settings.hard_negatives)
        found: list[HardNegative | Skip] = [*mine(
            recalls[key], prelabels[key], decisions.get(key, {}), titles,
            ranks=MINED_RANKS, count=count, relevant_from=control.settings.judge.relevant_from,
            thresholds=control.settings.thresholds, fingerprint=fp, never={one.id for one in lineage.sources},
        )]  # fmt: skip
        if len(found) < count:
            key_of_skip = row_key(f"skip/{MINED_NAME}", key, fp)
            figures = f"{len(found)} of {count} found"
            found.append(Skip(key_of_skip, key, fp, 0, MINED_NAME, "fewer than drawn", figures, "control"))
        return found

    for batch in batched(control.accepted.lineages, QUERIES):
        yield [row for lineage in batch for row in of(lineage)]


def mine(
    recall: Recall,
    prelabels: Sequence[Prelabel],
    decisions: Mapping[str, Decision],
    passages: Mapping[str, str],
    *,
    ranks: tuple[int, int],
    count: int,
    relevant_from: int,
    thresholds: Thresholds,
    fingerprint: str,
    never: Collection[str] = (),
) -> list[HardNegative]:
    """At most `count` negatives of the query `recall.parent`: judged ones first, by the median of their ranks in the
    recall and by each re-ranker, so that most systems see them high; then the others, best recalled first.

    decisions: the query's, by document id. passages: titles by id of what may be taken. ranks: the first and the last
    of the window, from 1. never: ids that must not be taken. Rows carry no text: it stands in the corpus.
    """
    allowed = [id_ for id_ in recall.ids if id_ in passages and id_ not in never]
    # Both words count, the action and the level: another cut between levels may have made the decision.
    ignored = {row.id: row.level for row in decisions.values() if row.action == "ignore" and row.level is not None}
    near = median_ranks([recall.ids, *map(ranked, prelabels)])
    judged = sorted(
        (id_ for id_ in allowed if ignored.get(id_, relevant_from) < relevant_from), key=lambda id_: near[id_]
    )
    voted = votes(prelabels, thresholds, set())
    window = set(recall.ids[ranks[0] - 1 : ranks[1]])
    unjudged = [id_ for id_ in allowed if id_ in window and id_ not in decisions and id_ not in voted]
    return [
        HardNegative(
            row_key("mined_negative", recall.parent, fingerprint, place), recall.parent, fingerprint, place,
            id_, "", passages[id_], "mined",
        )
        for place, id_ in enumerate([*judged, *unjudged][:count], 1)
    ]  # fmt: skip


MINED = SetStage(MINED_NAME, HardNegative, "mined negatives", _mined_fingerprint, _mined_work, always=True)


async def control_quality(control: Control) -> Plan:
    """Append the rows of recall, pre-labels, judgments, decisions and mined negatives; returns the plan with their
    fingerprints. Set-wise work never waits, so it runs in a thread: Ctrl-C is heard meanwhile."""
    for stage in (RECALL, *prelabel_stages(control)):
        control = await asyncio.to_thread(add_rows, stage, control)
    await add_judgments(control)
    pipeline = control.tools.pipeline
    mines = pipeline.queries is None and pipeline.generation.negatives != "generated"
    for stage in (DECISIONS, MINED) if mines else (DECISIONS,):
        control = await asyncio.to_thread(add_rows, stage, control)
    return control.plan
