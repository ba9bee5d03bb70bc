"""Let the LLM judge every (query, passage) pair that Table 2 requires (paper 2.4)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

from airgen.components.keys import row_key, text_key
from airgen.control.prelabel import prelabels_of
from airgen.control.query_set import OWN, Control
from airgen.control.table2 import BROUGHT, Pair, median_ranks, pairs_to_judge, ranked
from airgen.evaluation.document_level import PageLookup
from airgen.steps.ask import health_of
from airgen.steps.judge import judge_kind, judge_name, judge_pair, judgment_parts, scripted_judge
from airgen.steps.lineage import R
from airgen.steps.loops import pending_of, walk_each
from airgen.steps.step import Problem, Step, Tools
from airgen.storage.records import HardNegative, Judgment, Query, Row, Skip
from airgen.storage.store import Store

GROUP = 1000  # pairs whose documents are read from the work database at once

CHECKED = 50
"""The most pairs with a label of the user's that the LLM judges too."""


@dataclass(frozen=True)
class PairToJudge:
    """A pair to judge, with the rows made from it.

    Attributes:
        key: Identifies the pair; see `pair_name`.
        document: Function that returns the text of the passage.
    """

    key: str
    pair: Pair
    query: str
    document: Callable[[], str] = field(compare=False, default=str)
    rows: tuple[Row, ...] = ()
    skips: Mapping[str, Skip] = field(default_factory=dict)

    def every(self, kind: type[R]) -> tuple[R, ...]:
        """Return all rows of a type."""
        return tuple(row for row in self.rows if isinstance(row, kind))

    def parent_key(self, reads: Sequence[type[Row]]) -> str:
        """Return the key of the pair."""
        return self.key

    def extended(self, rows: Sequence[Row]) -> "PairToJudge":
        """Return the pair with the rows of a step."""
        skips = {row.stage: row for row in rows if isinstance(row, Skip)}
        made = tuple(row for row in rows if not isinstance(row, Skip))
        return replace(self, rows=(*self.rows, *made), skips={**self.skips, **skips})


async def _work(parent: PairToJudge, tools: Tools) -> list[Row] | Problem:
    verdict = await judge_pair(tools, parent.query, parent.document())
    if isinstance(verdict, Problem):
        return verdict
    fp, pair = tools.plan["judgment"], parent.pair
    row = Judgment(
        key=row_key("judgment", parent.key, fp),
        parent=pair.query,
        fingerprint=fp,
        ordinal=0,
        id=pair.id,
        level=verdict.level,
        probability=verdict.probability,
        judge=judge_name(tools.pipeline),
        reason=verdict.reason,
    )
    return [row]


JUDGMENT = Step("judgment", (Query,), Judgment, 2, work=_work, parts=judgment_parts, scripted=scripted_judge)
"""The judgment of a pair. A query's own document is judged by the same step, before the hard negatives."""


def pairs_of(control: Control, labels: Sequence[Judgment]) -> list[Pair]:
    """Return the pairs to judge but for those that the user has labelled, in the best order for a prefix cache."""
    prelabels = prelabels_of(control)
    pairs: list[Pair] = []
    for lineage in control.accepted.lineages:
        negatives = [negative.id for negative in lineage.every(HardNegative)]
        key = lineage.final.key
        thresholds = control.settings.thresholds
        pairs += pairs_to_judge(key, lineage.passage.id, negatives, prelabels[key], thresholds=thresholds)
    labelled = {(row.parent, row.id) for row in labels}
    pairs = [pair for pair in pairs if (pair.query, pair.id) not in labelled]
    # Calls with the same beginning should follow each other.
    query_first = any(judge_kind(member).QUERY_FIRST for member in control.settings.judge.members[:1])
    return sorted(pairs, key=lambda pair: (pair.query, pair.id) if query_first else (pair.id, pair.query))


def pairs_to_check(labels: Sequence[Judgment], relevant_from: int) -> list[Pair]:
    """Return labelled pairs for the LLM to judge, half of them relevant if there are enough of each. Adding labels
    changes few of them."""
    sides: tuple[list[Pair], list[Pair]] = ([], [])
    for row in sorted(labels, key=lambda row: text_key(f"check\x1f{row.parent}\x1f{row.id}")):
        sides[row.level >= relevant_from].append(Pair(row.parent, row.id))
    others, relevant = sides
    half = CHECKED // 2
    return [*relevant[: max(half, CHECKED - len(others))], *others[: max(half, CHECKED - len(relevant))]]


def own_labels(control: Control) -> list[Judgment]:
    """Return the user's own labels of passages as judgments. A judgment of these pairs changes nothing."""
    if OWN not in control.plan:
        return []
    rows = control.store.rows_of(Judgment, control.plan[OWN], control.queries)
    known = control.store.passages_named(control.plan["corpus"], {row.id for row in rows}, "t.key")
    passages: list[Judgment] = []
    documents: list[Judgment] = []
    for row in rows:
        (passages if row.id in known else documents).append(row)
    return [*passages, *_labels_of_parts(control, passages, documents)] if documents else passages


def _labels_of_parts(
    control: Control, passages: Sequence[Judgment], documents: Sequence[Judgment]
) -> Iterator[Judgment]:
    """Yield the labels of documents as those of passages.

    The passage that the re-rankers rank highest takes a document's label, or, if none is recalled, the one with most
    words of the query. The document's other passages are judged as any passage is, unless the document is not relevant.
    """
    pages, prelabels = PageLookup(control.corpus, {}, {}), prelabels_of(control)
    cut = control.settings.judge.relevant_from
    labelled = {(row.parent, row.id): row.level for row in passages}
    for row in documents:
        parts = [control.corpus.ids[place] for place in pages.places(row.id)]
        if row.level >= cut and any(labelled.get((row.parent, part), 0) >= cut for part in parts):
            continue
        of_query = prelabels[row.parent]
        free = {part for part in parts if (row.parent, part) not in labelled}
        ranks = median_ranks([[id_ for id_ in ranked(prelabel) if id_ in free] for prelabel in of_query])
        best = min(ranks, key=lambda id_: (ranks[id_], id_), default=None)
        chosen = {best or pages.best(row.id, row.parent, control.queries[row.parent])}
        if row.level < cut:
            judged = pairs_to_judge(row.parent, "", [], of_query, thresholds=control.settings.thresholds)
            chosen |= {pair.id for pair in judged} & free
        for id_ in sorted(chosen):
            if labelled.setdefault((row.parent, id_), row.level) == row.level:
                yield replace(row, id=id_, judge=f"{row.judge} (its page)")


def pair_name(query: str, id_: str, keys: Mapping[str, str]) -> str:
    """Return the identity of a pair: the query and the key of the passage's text. A generated passage has no key."""
    return f"{query}/{keys.get(id_, id_)}"


def current(store: Store, corpus: str, rows: Sequence[Judgment]) -> list[Judgment]:
    """Return the judgments of the documents' current texts, and the user's own labels regardless of the text."""
    keys = store.passages_named(corpus, {row.id for row in rows}, "t.key")
    return [
        row
        for row in rows
        if row.judge.startswith(BROUGHT)
        or row.key == row_key("judgment", pair_name(row.parent, row.id, keys), row.fingerprint)
    ]


async def add_judgments(control: Control) -> None:
    """Ask about every pair that has neither a judgment nor a skip. Does nothing if no LLM judges."""
    if not control.settings.judge.members:
        return
    tools, store = control.tools, control.store
    pairs = _with_rows(control)
    health = health_of(tools.pipeline, store)
    pending = pending_of(pairs, [JUDGMENT], health)
    control.display.counts["judgments"] = health.counts
    if pending:
        health.check()

    @lru_cache(maxsize=4)  # pairs are judged almost in order
    def documents(group: int) -> dict[str, str]:
        return control.documents({pair.pair.id for pair in pending[group * GROUP : (group + 1) * GROUP]})

    def document(place: int) -> str:
        return documents(place // GROUP)[pending[place].pair.id]

    asked = [replace(pair, document=partial(document, place)) for place, pair in enumerate(pending)]
    with control.display.stage("judgments", len(pairs), len(pairs) - len(pending)) as bar:
        await walk_each(
            asked,
            [JUDGMENT],
            tools=tools,
            store=store,
            health=health,
            workers=control.workers,
            ended=lambda pair: bar.advance(),
        )


def _with_rows(control: Control) -> list[PairToJudge]:
    """Return every pair to judge, with its judgment or skip, if any, and some of the pairs with a label of the
    user's."""
    store, fp = control.store, control.plan["judgment"]
    rows = {row.key: row for row in store.rows_of(Judgment, fp)}
    skips = {row.parent: row for row in store.rows(Skip, "t.stage = 'judgment' AND t.fingerprint = ?", [fp])}
    labels = own_labels(control)
    every = [*pairs_of(control, labels), *pairs_to_check(labels, control.settings.judge.relevant_from)]
    keys = store.passages_named(control.plan["corpus"], {pair.id for pair in every}, "t.key")
    named = {pair_name(pair.query, pair.id, keys): pair for pair in every}
    pairs = []
    for name, pair in named.items():
        row = rows.get(row_key("judgment", name, fp))
        known = [item for item in (row, skips.get(name)) if item is not None]
        pairs.append(PairToJudge(name, pair, control.queries[pair.query]).extended(known))
    return pairs
