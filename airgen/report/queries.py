"""The queries in a report: a table of all queries, and the life of each query, in blocks.

`d0/queries` has the table with its filters, and `block`, the number of lives in a block. The life of query number n is
element n % block of the list `d0/lives-XXX`, where XXX is n // block. Documents have the ids that they have in the
dataset.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from sqlite3 import Connection
from typing import Any

from airgen.audit.sample import address_of
from airgen.dataset.beir import BeirQuery, typed_rows
from airgen.dataset.content import ANSWERED, RESERVED, WORDING
from airgen.errors import DatasetError, StoreError
from airgen.evaluation.dataset_split import LINEAGE, commonest, shown_value
from airgen.evaluation.result import read_scores
from airgen.job.job import Job
from airgen.job.show import lives
from airgen.report.best_lines import BestLines
from airgen.report.query_tables import asked_of, is_positive, queries_table, systems_on_query, tags_of
from airgen.report.report_files import Pack
from airgen.report.source import ReportSource, SystemRanks
from airgen.storage.records import OwnQuery
from airgen.storage.sql_connections import on_disk
from airgen.storage.store import Store

LONGEST = 4000
"""Maximum number of characters of a document in a report; the others are only counted."""


_SCHEMA = "CREATE TABLE document (id TEXT PRIMARY KEY, row TEXT)"  # both as JSON, which takes any text


Text = tuple[str, str, str, str]
"""Id, title, text and address of a document; an empty address if it has none for a browser."""


def _put(texts: Connection, rows: Iterable[Text]) -> None:
    """Keep documents."""
    every = (
        (id_, [title[:LONGEST], text[:LONGEST], max(0, len(text) - LONGEST), address])
        for id_, title, text, address in rows
    )
    packed = ((json.dumps(id_), json.dumps(row)) for id_, row in every)
    texts.executemany("INSERT OR REPLACE INTO document VALUES (?, ?)", packed)


def _shown(texts: Connection, lengths: Mapping[str, int], best: BestLines) -> dict[str, dict[str, Any]]:
    """Return {id: title, text and, if truncated, the number of missing characters}, omitting unknown ids.

    `lengths` contains the desired number of characters for each id. `best` finds the part of the text with the most
    query words, with which a truncated text begins.
    """
    shown = {}
    for id_, longest in lengths.items():
        for (row,) in texts.execute("SELECT row FROM document WHERE id = ?", (json.dumps(id_),)):
            title, text, more, address = json.loads(row)
            start = best.start(text, min(longest, _HIT_CHARACTERS))
            place = {"best": start} if start else {}
            if longest < len(text):
                text, before = text[start:], start
                place = {"before": before} if before else {}
            more += max(0, len(text) - longest)
            shown[id_] = {"title": title, "text": text[:longest], **({"more": more} if more else {}), **place}
            if address:
                shown[id_]["address"] = address
    return shown


BLOCK = 32
_HIT_CHARACTERS = 400  # characters of a document without a label
_MOST_HITS = (
    20_000  # queries times systems, at least ten, from which texts are shortened: 10,000 queries and 30 systems
)
_SHORT = 400  # characters of a document with a label then; other hits have no text
_COLUMNS = ("id", "text", "split", "outcome", "why", "positives", "negatives", "score", "count", "attributes")
_KNOWN = {"id", "outcome", "document", "second", "skips", "lines", "query", "rewrites", "character", "scenario"}
_KNOWN |= {"answer", "hard_negatives", "labels", "own"}

Life = dict[str, Any]
Systems = Mapping[str, list[tuple[str, dict[str, float], dict[str, SystemRanks]]]]
"""By split: the name of each system, its scores and its rankings by query."""


def write_queries(source: ReportSource, pack: Pack) -> dict[str, Any]:
    """Write the table and the lives of the queries, if there are any, and return their part of the summary."""
    rows: list[dict[str, Any]] = []
    systems = _systems(source)
    block: list[Life] = []
    number = 0

    def flush() -> None:
        nonlocal number
        pack.write(f"{source.key}/lives-{number:03}", block)
        block.clear()
        number += 1

    with on_disk(_SCHEMA, "the texts of a report") as texts:
        for life in _lives(source, texts, systems):
            rows.append({name: life.get(name) for name in _COLUMNS})
            block.append(life)
            if len(block) == BLOCK:
                flush()
        if block:
            flush()
    if not rows:
        return {"queries": 0}
    pack.write(f"{source.key}/queries", {"block": BLOCK, "table": queries_table(source.key, rows)})
    return {"queries": len(rows), "kept": sum(row["outcome"] == "kept" for row in rows)}


def _lives(source: ReportSource, texts: Connection, systems: Systems) -> Iterator[Life]:
    if source.job is not None:
        try:
            with source.store() as store:
                every = list(_of_job(source, source.job, store, texts))
                yield from _complete(source, every, texts=texts, systems=systems, store=store)
            return
        except StoreError as error:
            if source.dataset is None and not source.job.running:
                raise
            source.notes.append(f"{error}; so the steps before the dataset are not shown")
    yield from _complete(source, list(_of_dataset(source)), texts, systems)


def _systems(source: ReportSource) -> Systems:
    systems: dict[str, list[tuple[str, dict[str, float], dict[str, SystemRanks]]]] = {}
    for split, every in source.results.items():
        if source.is_private(split):
            continue
        rankings = source.rankings(split, unanswered=True)
        for result in every:
            scores: dict[str, float] = {}
            try:
                scores = read_scores(result.paths.scores, result.headline)
            except DatasetError as error:
                source.notes.append(f"{result.name}: its scores by query are not shown: {error}")
            if scores or result.name in rankings:
                systems.setdefault(split, []).append((result.name, scores, rankings.get(result.name, {})))
    return systems


def _ranked(systems: Systems, split: str, query: str) -> list[dict[str, Any]]:
    """Return each system's score and ranking for a query, best first."""
    rows = []
    for name, scores, rankings in systems.get(split, systems.get("all", [])):
        ranking = rankings.get(query)
        top, ranks = (list(ranking.top), dict(ranking.ranks)) if ranking else ([], {})
        score = scores.get(query)
        rows.append({"name": name, "score": None if score is None else round(score, 5), "top": top, "ranks": ranks})
    return sorted(rows, key=lambda row: (-(row["score"] or 0.0), str(row["name"])))


def _of_job(source: ReportSource, job: Job, store: Store, texts: Connection) -> Iterator[Life]:
    """Yield the lives of all queries that the job has begun, accepted ones first, and add generated documents to
    `texts`."""
    accepted, public = job.accepted(store), job.ids
    finished, rejected = source.state == "finished", accepted.rejected
    steps = source.manifest.funnel if source.manifest is not None and finished else ()
    if len(steps) > 1:  # after a smaller target, the queries that its funnel counts
        rejected = rejected[: max(0, steps[1].entered - len(accepted.lineages))]
    every = [(lineage, "") for lineage in accepted.lineages] + [(row.lineage, row.words) for row in rejected]
    splits = public.splits(accepted.lineages)
    for (lineage, why_not), value in zip(every, lives(store, job, every), strict=True):
        query = value.get("query") or {}
        rewrites = value.get("rewrites", [])
        labels = [{**row, "id": row["published"], "own_id": row["id"]} for row in value.get("labels", ())]
        for row in labels:
            row.pop("published")
        decided = {row["decision"] for row in labels}
        fallen = next((row for row in labels if row["decision"] == "drop_query"), None)
        outcome, why = "kept", ""
        if why_not:
            outcome, why = "dropped", why_not
        elif fallen is not None:
            outcome, why = "dropped", f"quality control: {fallen['reason']}"
        elif decided <= {None} and not finished:
            outcome, why = "pending", "quality control has not seen it yet"
        generated = [row for row in value.get("hard_negatives", ()) if row["origin"] != "mined"]
        documents = [value[name] for name in ("document", "second") if name in value]
        _put(texts, ((public.document(row["id"]), row["title"], row["text"], "") for row in [*generated, *documents]))
        yield {
            "id": value["id"],
            "text": lineage.final.text if lineage.query is not None else "",
            "split": splits.get(lineage.final.key, "") if lineage.query is not None else "",
            "outcome": outcome,
            "why": why,
            "attributes": {name: query[name] for name in ("type", "length", "information") if name in query}
            | ({"style": rewrites[-1]["style"]} if rewrites else {})
            | (_published(source.queries[value["id"]]) if value["id"] in source.queries else {}),
            "count": None if lineage.own is None else lineage.own.count,
            "sources": [public.document(row["id"]) for row in documents],
            "character": value.get("character"),
            "scenario": value.get("scenario"),
            "original": query.get("original"),
            "attempts": query.get("attempts"),
            "rewrites": rewrites,
            "answer": value.get("answer"),
            "skips": value["skips"],
            "more": {name: part for name, part in value.items() if name not in _KNOWN},
            "log": "" if lineage.own is None else _in_the_log(lineage.own),
            "made": [public.document(row["id"]) for row in generated],
            "labels": labels,
        }


def _in_the_log(own: OwnQuery) -> str:
    """Return where a query is in the user's file, and how often it was searched for."""
    lines = f", and {own.lines - 1:,} more with the same words" if own.lines > 1 else ""
    times = f"; searched for {own.count:,} times" if own.count > 1 else ""
    return f"line {own.line:,}{lines}{times}"


def _of_dataset(source: ReportSource) -> Iterator[Life]:
    """Yield the lives based on published files and, with the private lineage, how each query was made."""
    home = None if source.public or source.dataset is None else source.dataset.path
    rows = typed_rows(home / LINEAGE, {"query": str}) if home is not None else ()
    lineage = {row["query"]: row for _, row in rows}
    for key, query in source.queries.items():
        split = source.split_of.get(key, "")
        row = lineage.get(key, {})
        hidden = split in source.withheld
        life: Life = {
            "id": key,
            "text": query.text,
            "split": split,
            "outcome": "kept",
            "why": "its labels are private" if hidden else "",
            "attributes": _published(query, hidden=hidden),
            "count": query.metadata.get("count"),
            "sources": [row[name] for name in ("positive", "second") if name in row],
            "character": {"chosen": row["character"], "options": []} if row.get("character") else None,
            "scenario": {"chosen": row["scenario"], "options": []} if row.get("scenario") else None,
            "original": row.get("original"),
            "rewrites": [{"text": text, "style": ""} for text in row.get("rewrites", ())],
            "skips": {},
            "more": {},
            "made": row.get("negatives", []),
            "labels": [],
        }
        kinds = dict.fromkeys(row.get("mined", ()), "mined") | dict.fromkeys(life["made"], "negative")
        kinds |= dict.fromkeys(life["sources"], "own document")
        for id_ in source.labels(split).get(key, {}):
            life["labels"].append({"id": id_, "kind": kinds.get(id_, "other")})
        yield life


def _published(query: BeirQuery, *, hidden: bool = False) -> dict[str, Any]:
    """Return the metadata of a query that its filters and tags show; `hidden` if its labels are withheld."""
    shown = {
        name: value
        for name, value in query.metadata.items()
        if name not in RESERVED - {WORDING} and isinstance(value, str | int | float) and not isinstance(value, bool)
    }
    answered = None if hidden else query.metadata.get(ANSWERED)
    return shown | ({ANSWERED: "yes" if answered else "no"} if isinstance(answered, bool) else {})


def _complete(
    source: ReportSource, every: list[Life], texts: Connection, systems: Systems, store: Store | None = None
) -> Iterator[Life]:
    """Yield the lives with labels, systems and the texts of all documents to which they refer."""
    tested = max(map(len, systems.values()), default=0)
    longest = (LONGEST, _HIT_CHARACTERS) if len(every) * max(tested, 10) <= _MOST_HITS else (_SHORT, 0)
    if not longest[1]:
        source.notes.append(
            f"the report has {len(every):,} queries, so the texts of documents are cut after {_SHORT} characters, and "
            "hits without a label have none: make one of fewer systems or of a sample to read more"
        )

    def ranked(life: Life) -> list[dict[str, Any]]:
        rows = _ranked(systems, life["split"], life["id"])
        return rows if source.labels(life["split"]).get(life["id"]) else [row for row in rows if row["top"]]

    wanted: set[str] = set()
    metadata: dict[str, Mapping[str, Any]] = {}
    for life in every:
        labels = source.labels(life["split"]).get(life["id"], {})
        people = source.peoples(life["split"]).get(life["id"], {}) if labels else {}
        known = {row["id"] for row in life["labels"]}
        life["labels"] += [{"id": id_, "kind": "other"} for id_ in labels if id_ not in known]
        for row in life["labels"]:
            row["label"] = labels.get(row["id"])
            if row["id"] in people:  # whose label it is
                row["by"] = int(people[row["id"]])
        if life["attributes"].get(ANSWERED) == "no" and not life["why"]:
            life["why"] = _why_unanswered(life)
        life["ranked"] = ranked(life) if longest[1] else None  # kept only if there are few
        wanted |= set(_documents(life, life["ranked"] or [], *longest))
    _put(texts, _texts(source, wanted, store, metadata))
    headlines = {split: of[-1].headline for split, of in source.results.items() if of and not source.is_private(split)}
    every.reverse()
    while every:  # a life is released when it is written: hits of all systems on all queries would fill the memory
        life = every.pop()
        labels = source.labels(life["split"]).get(life["id"], {})
        if life["ranked"] is None:
            life["ranked"] = ranked(life)
        life.update(_counts(life, labels, hidden=life["split"] in source.withheld))
        headline = headlines.get(life["split"]) or headlines.get("all")
        life["headline"] = headline
        if life["split"] not in source.withheld:
            life["attributes"] |= _of_relevant(life, metadata)
        life["docs"] = _shown(
            texts,
            _documents(life, life["ranked"], *longest),
            BestLines(life["text"], source.stopwords, source.language),
        )
        life |= {"tags": tags_of(life), "asked": asked_of(life["attributes"])}
        life["systems"] = systems_on_query(life["ranked"], life["labels"], headline or "Score")
        yield life


def _why_unanswered(life: Life) -> str:
    judged = sum(row.get("level") is not None for row in life["labels"])
    if judged:
        return f"Nothing answers it: none of the {judged:,} passages that were judged is relevant"
    return "Nothing answers it: no passage was judged, as the re-rankers rank none among their first"


def _counts(life: Life, labels: Mapping[str, float], *, hidden: bool) -> dict[str, Any]:
    scores = [ranking["score"] for ranking in life["ranked"] if ranking["score"] is not None]
    if labels:
        positives = sum(label > 0 for label in labels.values())
        negatives = len(labels) - positives
    else:
        actions = [row.get("decision") for row in life["labels"]]
        positives = sum(action in ("keep_query", "add_positive") for action in actions)
        negatives = actions.count("keep_negative")
    return {
        "positives": None if hidden else positives,
        "negatives": None if hidden else negatives,
        "score": sum(scores) / len(scores) if scores else None,
    }


def _documents(life: Life, ranked: Sequence[Mapping[str, Any]], labelled: int, hit: int) -> dict[str, int]:
    """Return {id: number of characters to show} for every document to which a life and its rankings refer: `labelled`
    for those with a label, `hit` for other hits, which are left out if it is 0."""
    hits = {id_: hit for ranking in ranked for id_ in ranking["top"]} if hit else {}
    return hits | dict.fromkeys([*(row["id"] for row in life["labels"]), *life["made"], *life["sources"]], labelled)


def _of_relevant(life: Life, metadata: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the most frequent metadata of the relevant documents, as `airgen evaluate --by` does."""
    rows = [metadata[label["id"]] for label in life["labels"] if is_positive(label) and label["id"] in metadata]
    return {
        f"metadata.{name}": value
        for name in dict.fromkeys(name for row in rows for name in row)
        if (value := commonest([shown for row in rows if (shown := shown_value(row.get(name)))]))
    }


def _texts(
    source: ReportSource, wanted: set[str], store: Store | None, metadata: dict[str, Mapping[str, Any]]
) -> Iterator[Text]:
    """Yield the texts of the wanted documents, and add their metadata to `metadata`."""
    if source.dataset is not None:
        for row in source.dataset.passages():
            if row.id in wanted:
                metadata[row.id] = row.metadata
                yield row.id, row.title, row.text, address_of(row.id, *row.metadata.values())
    elif source.job is not None and store is not None:
        public, plan = source.job.ids, source.job.plan(store)
        for passage in store.passages(plan["corpus"]):
            if (id_ := public.document(passage.id)) in wanted:
                yield id_, passage.title, passage.text, ""
