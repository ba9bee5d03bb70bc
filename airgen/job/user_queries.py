"""Rows and lineages for the user's own queries, which replace generated queries, and for existing labels.

    run_whole(OWN_QUERIES, QueriesSource(...))            # once per state of the files
    accepted = own_accepted(store, flow, plan, pipeline)                      # the input of quality control

The key of a query depends on its text alone, so votes and judgments stay valid when the file grows. The order in which
queries are drawn depends on their keys, counts and the seed, so that a larger `target` keeps the earlier queries. A
label refers to a query by its id, as in qrels, or by its text, as in Quepid and OpenSearch.
"""

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from airgen.components.keys import file_sha256, rng, row_key, text_key
from airgen.control.query_set import OWN
from airgen.control.table2 import BROUGHT
from airgen.corpus.cleaning.filters import CleanResult, Item, has_list, judge_offensive, normalise_line
from airgen.corpus.settings import CorpusSettings
from airgen.errors import DatasetError
from airgen.evaluation.document_level import NamedDocuments, Pages
from airgen.generation.flow import Flow
from airgen.job.user_query_files import Line, files_behind, read_queries
from airgen.safety.escaping import one_line
from airgen.settings import LabelFile, Labelling, Pipeline, QueriesSettings
from airgen.settings.base import answer_settings
from airgen.settings.control import NONE
from airgen.steps.accepted import Accepted
from airgen.steps.lineage import NO_PASSAGE, Lineage
from airgen.steps.load_lineages import with_rows
from airgen.steps.step import Plan, RowBatch, Whole, WholeStep, unless_read
from airgen.storage.records import Document, Judgment, OwnQuery, Query, Row, Sample, Skip
from airgen.storage.store import Store
from airgen.tables.labels import rated_pairs
from airgen.text.language_check import wrong_language
from airgen.text.near_duplicates import NearDuplicateIndex, folded_words, word_counts

NO_LABEL = "without a label"
"""The reason to leave out a query if only labels count."""

RELEVANT = 3  # the level of a relevant label if the settings map no levels: above any relevant_from


@dataclass(frozen=True, slots=True)
class Label:
    """One label: `query` is an id or a text, `level` is 0 to 3, `where` is its file and line."""

    query: str
    document: str
    level: int
    where: str


def read_labels(
    settings: LabelFile,
    path: Path,
    language: str,
    *,
    queries: Collection[str] = (),
    documents: Container[str] = (),
    about: Callable[[str], object] = len,
) -> Iterator[Label]:
    """Yield the labels of a file in order, without unrated pairs.

    The ids in `queries` and `documents` identify columns with unknown names. The roles of the columns are added to
    `about`.

    Raises DatasetError if the file cannot be read, or if a rating is not a number or not in `levels`, and UsageError if
    a column is missing.
    """
    known = ", ".join(f"{level:g}" for level in sorted(settings.levels))
    columns = {name: getattr(settings, f"{name}_column") for name in ("query", "document", "rating")}
    found = rated_pairs(path, language=language, queries=queries, documents=documents, columns=columns)
    about(found.about)
    if not settings.levels and "relevant_from" not in settings.model_fields_set:
        found.check_scale()
    for where, query, document, rating in found.pairs:
        if not settings.levels:
            level = RELEVANT if rating >= settings.relevant_from else 0
        elif rating in settings.levels:
            level = settings.levels[rating]
        elif rating in found.means:
            level = settings.levels[min(settings.levels, key=lambda label: (abs(label - rating), label))]
        else:
            words = f"{where}: the label {rating:g} is not in queries.labels.levels (it has {known})"
            raise DatasetError(words, code="unknown_rating", where=where, names=[f"{rating:g}"])
        yield Label(query, document, level, where)


LABELS = "own_label"
"""The stage of skipped labels."""


def _parts(pipeline: Labelling, corpus: CorpusSettings, folder: Path, *, plan: Plan) -> dict[str, Any]:
    """Return everything that the list of queries depends on: the files, the settings, the corpus's cleaners and the
    seed; with labels, also the corpus, which must contain their documents. Raises DatasetError for a missing file."""
    settings = answer_settings(pipeline.queries)
    settings.pop("file")
    settings["labels"] = [
        {name: value for name, value in {**label, "file": Path(label["file"]).name}.items() if value != ""}
        for label in settings["labels"]
    ]
    clean = corpus.clean
    return {
        "settings": settings,
        "language": pipeline.query_language,
        "seed": plan["sample"],
        "files": [file_sha256(path) for path in files_behind(pipeline.queries, folder)],
        "clean": [clean.personal_data, corpus.identity["clean"]["names"], clean.offensive_share],
        "corpus": plan["corpus"] if pipeline.brings_labels else None,
        **({"judge": NONE} if pipeline.control.judge.labels_only else {}),
    }


@dataclass
class _Group:
    """Lines of the same query. The first has its text and id."""

    line: Line
    key: str = ""
    count: int = 0
    lines: int = 0
    names: list[str] = field(default_factory=list)  # ids and normalised texts of all its lines


@dataclass(frozen=True, kw_only=True)
class QueriesSource(Whole):
    """The files of a pipeline's own queries and labels. Relative paths are resolved against `folder`."""

    pipeline: Labelling
    corpus: CorpusSettings
    folder: Path


def _work(source: QueriesSource, model: Any) -> Iterator[RowBatch]:
    """Yield the rows of the file and the labels, in one transaction.

    Raises the errors of `read_queries` and `read_labels`, and DatasetError if no query is left or no label matches.
    """
    store, pipeline, plan, say = source.store, source.pipeline, source.plan, source.display.say
    settings, fp = pipeline.queries, source.fingerprint
    groups, left_out = _read(pipeline, source.corpus, source.folder, say)
    skips = [_skip(OWN, f"line {line.line}", fp, reason) for line, reason in left_out]
    names = {name: group.key for group in groups for name in group.names}
    for line, _ in left_out:
        for name in _names(line, normalise_line(line.text), pipeline.query_language):
            names.setdefault(name, "")
    labels = list(_labels(store, pipeline, plan=plan, folder=source.folder, names=names, skips=skips, say=say))
    lines = len(left_out) + sum(group.lines for group in groups)
    if pipeline.control.judge.labels_only:
        labelled = {label.parent for label in labels}
        skips += [
            _skip(OWN, f"line {group.line.line}{f', repeat {repeat}' if repeat else ''}", fp, NO_LABEL)
            for group in groups
            if group.key not in labelled
            for repeat in range(group.lines)
        ]
        groups = [group for group in groups if group.key in labelled]
    rows = _rows(groups, settings, plan, fp)
    note = f"{len(rows):,} queries" + (f", {len(labels):,} labels" if settings.labels else "")
    yield RowBatch([*rows, *skips, *labels], lines, note)


def _complete(store: Store, fingerprint: str) -> bool:
    return bool(store.rows(OwnQuery, "t.fingerprint = ?", [fingerprint]))


OWN_QUERIES = WholeStep(
    OWN, (), OwnQuery, 2, label="own queries", work=_work, parts=_parts, pending=unless_read(_complete)
)


def queries_of(pipeline: Labelling, corpus: CorpusSettings, folder: Path) -> list[str]:
    """Return the texts of the queries that will be drawn, or of as many others, for the estimate before a run."""
    groups, _ = _read(pipeline, corpus, folder)
    return [group.line.text for group in groups][: pipeline.target]


def answers_of_ids(pipeline: Labelling, folder: Path) -> dict[str, set[str]]:
    """Return {id of a query in its file: its relevant documents according to the label files}."""
    settings = pipeline.queries
    path, *labels = files_behind(settings, folder)
    lines = read_queries(settings, path, pipeline.query_language).lines
    answers: dict[str, set[str]] = {line.id: set() for line in lines if line.id}
    for file, path in zip(settings.labels, labels, strict=True):
        for label in read_labels(file, path, pipeline.query_language, queries=answers):
            if label.level and label.query in answers:
                answers[label.query].add(label.document)
    return answers


def _read(
    pipeline: Labelling, corpus: CorpusSettings, folder: Path, say: Callable[[str], object] = len
) -> tuple[list[_Group], list[tuple[Line, str]]]:
    """Return the queries of the file, and the lines left out, each with the reason. The roles of the columns are passed
    to `say`."""
    settings, language = pipeline.queries, pipeline.query_language
    path = files_behind(settings, folder)[0]
    own = read_queries(settings, path, language)
    lines = own.lines
    say(f"queries of {path.name}: {own.about}")
    cleaned, left_out = _cleaned(lines, settings, language, corpus)
    as_written = {line.line: normalise_line(line.text) for line in lines if len(line.text) <= 2 * settings.max_length}
    if masked := sum(as_written[line.line] != line.text for line in cleaned):
        say(f"queries of {path.name}: personal data is masked in {masked:,}")
    if not cleaned:
        reasons = Counter(reason for _, reason in left_out)
        why = ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common())
        raise DatasetError(f"{path}: no query is left of {len(lines):,} lines ({why})")
    groups = _joined(cleaned, settings, language)
    _clean_metadata(groups, corpus, language)
    return groups, left_out


def _clean_metadata(groups: Sequence[_Group], corpus: CorpusSettings, language: str) -> None:
    """Treat personal data and offensive words in the metadata as in queries: they are masked, or the value is left
    out."""
    steps, cleaned = list(_steps(corpus, language)), dict[str, str]()
    for group in groups if steps else ():
        values = dict(group.line.metadata)
        for name, value in group.line.metadata.items():
            if not isinstance(value, str):
                continue
            if value not in cleaned:
                item = Item(Document("", value))
                kept = all(step(item).keep for step in steps)
                cleaned[value] = normalise_line(item.document.text) if kept else ""
            values[name] = cleaned[value]
        group.line = replace(group.line, metadata={name: value for name, value in values.items() if value != ""})


def _cleaned(
    lines: Sequence[Line], settings: QueriesSettings, language: str, corpus: CorpusSettings
) -> tuple[list[Line], list[tuple[Line, str]]]:
    """Return the lines with cleaned texts, and the lines left out, each with the reason."""
    left_out: list[tuple[Line, str]] = []
    remaining: list[tuple[Line, Item]] = []
    for line in lines:
        text = normalise_line(line.text) if len(line.text) <= 2 * settings.max_length else line.text
        if not text:
            left_out.append((line, "empty"))
        elif not line.count:
            left_out.append((line, "never asked"))
        elif len(text) > settings.max_length:
            left_out.append((line, "too long"))
        elif settings.other_language == "skip" and wrong_language(text, language):
            left_out.append((line, "other language"))
        else:
            remaining.append((line, Item(Document(str(line.line), text))))
    for step in _steps(corpus, language):
        verdicts = [step(item) for _, item in remaining]
        left_out += [(line, v.reason) for (line, _), v in zip(remaining, verdicts, strict=True) if not v.keep]
        remaining = [pair for pair, verdict in zip(remaining, verdicts, strict=True) if verdict.keep]
    return [replace(line, text=normalise_line(item.document.text)) for line, item in remaining], left_out


def _steps(corpus: CorpusSettings, language: str) -> Iterator[Callable[[Item], CleanResult]]:
    """Yield the corpus's cleaners that apply to a query: for personal data and offensive words."""
    clean = corpus.clean
    if clean.personal_data != "off":
        from airgen.corpus.cleaning.mask_personal_data import judge_personal, mask_item

        judge = mask_item if clean.personal_data == "mask" else judge_personal
        yield partial(judge, names=corpus.names, language=language)
    if (share := clean.offensive_share) is not None and has_list(language):
        yield lambda item: judge_offensive(item.document.text, language, share)


def _form(text: str, language: str) -> str:
    """Return a query's normal form: its words in lower case and NFKC, or the text itself if it has no words."""
    return " ".join(folded_words(text, language)) or text.casefold()


def _names(line: Line, text: str, language: str) -> list[str]:
    """Return the names by which a label can refer to a line: its id, and its normal form after a character that no id
    contains.
    """
    return [*([line.id] if line.id else []), "\n" + _form(text, language)]


def _joined(lines: Sequence[Line], settings: QueriesSettings, language: str) -> list[_Group]:
    """Merge repetitions into one query with the most frequent text."""
    groups: dict[str, _Group] = {}
    texts: Counter[str] = Counter()
    for line in sorted(lines, key=lambda entry: (-entry.count, entry.line)):
        form = _form(line.text, language)
        number = texts[line.text] if settings.duplicates == "keep" else 0
        texts[line.text] += 1
        name = f"{line.text}\x1f{number}" if settings.duplicates == "keep" else form
        wanted = _filter_text(line)  # the same words for another product are another query
        name += wanted
        group = groups.setdefault(name, _Group(line))
        text = f"{line.text}\x1f{number}" if number else line.text
        group.key = group.key or text_key(f"{text}\x1f{wanted}" if wanted else text)
        _add(group, line.count, 1, _names(line, line.text, language))
    if settings.duplicates != "near":
        return list(groups.values())
    counts = word_counts((group.line.text for group in groups.values()), language)
    joined: list[_Group] = []
    seen: dict[str, tuple[NearDuplicateIndex, list[_Group]]] = {}  # by filter
    for group in sorted(groups.values(), key=lambda group: (-group.count, group.line.line)):
        wanted = _filter_text(group.line)
        index, of_filter = seen.setdefault(wanted, (NearDuplicateIndex(language, counts=counts), []))
        if (place := index.find(group.line.text)) is None:
            index.add(group.line.text)
            of_filter.append(group)
            joined.append(group)
        else:
            _add(of_filter[place], group.count, group.lines, group.names)
    return joined


def _filter_text(line: Line) -> str:
    return json.dumps(line.filter, sort_keys=True, ensure_ascii=False) if line.filter else ""


def _add(group: _Group, count: int, lines: int, names: Sequence[str]) -> None:
    group.count += count
    group.lines += lines
    group.names += [name for name in names if name not in group.names[-2:]]


def _rows(groups: Sequence[_Group], settings: QueriesSettings, plan: Plan, fp: str) -> list[OwnQuery]:
    """Return the queries in the order of sampling. Weighted sampling without replacement sorts by exponential variables
    with the counts as rates (Efraimidis and Spirakis, Information Processing Letters 97, 2006)."""

    def time(group: _Group) -> float:
        weight = group.count if settings.draw_by == "count" else 1
        return -math.log(1 - rng("own query", plan["sample"], group.key).random()) / weight

    ordered = sorted(groups, key=lambda group: (time(group), group.key))
    return [
        OwnQuery(
            key=row_key(OWN, group.key, fp),
            parent=group.key,
            fingerprint=fp,
            ordinal=place,
            text=group.line.text,
            id=group.line.id,
            count=group.count,
            lines=group.lines,
            line=group.line.line,
            filter=_filter_text(group.line),
            metadata=json.dumps(group.line.metadata, ensure_ascii=False) if group.line.metadata else "",
        )
        for place, group in enumerate(ordered)
    ]


def _labels(
    store: Store,
    pipeline: Labelling,
    plan: Plan,
    folder: Path,
    names: Mapping[str, str],
    skips: list[Skip],
    say: Callable[[str], object],
) -> Iterator[Judgment]:
    """Yield the labels of kept queries and known passages or pages, once per pair: the first of two labels counts.

    The label of a page has the page's name in place of a passage's id (`airgen.control.judgment.own_labels`).
    """
    settings, fp, language = pipeline.queries, plan[OWN], pipeline.query_language
    known = {id_ for _, id_ in store.passage_names(plan["corpus"])} if settings.labels else set()
    pages, documents = Pages(known, {}), NamedDocuments(lambda: known)
    done: set[str] = set()
    forms: dict[str, str] = {}
    for file in settings.labels:
        path = Path(os.path.normpath(folder / Path(file.file).expanduser()))
        odd: dict[str, list[tuple[str, str]]] = {"unknown query": [], "unknown passage": []}
        about = partial(_say_labels, say, path.name)
        labels_read = list(read_labels(file, path, language, queries=names, documents=documents, about=about))
        count = len(labels_read)
        of_pages = _of_pages(file, pages, known, labels_read)
        divided = {id_ for id_, page in of_pages.items() if page not in known}
        if count_divided := sum(label.document in divided for label in labels_read):
            say(
                f"labels of {path.name}: {count_divided:,} name pages, and the corpus has passages of pages: a page's "
                "best passage takes its label"
            )
        for number, label in enumerate(labels_read, 1):
            document = of_pages.get(label.document, label.document)
            form = forms.get(label.query) or forms.setdefault(label.query, "\n" + _form(label.query, language))
            key = names.get(label.query, names.get(form))
            pair, reason = f"{key}/{document}", ""
            if key is None:
                reason = "unknown query"
                odd[reason].append((label.query, label.where))
            elif document not in known and label.document not in of_pages:
                reason = "unknown passage"
                odd[reason].append((label.document, label.where))
            elif not key:
                reason = "of a query that was left out"
            elif pair in done:
                reason = "repeats another one"
            if reason:
                skips.append(_skip(LABELS, f"{file.file} {number}", fp, reason))
                continue
            done.add(pair)
            yield Judgment(
                key=row_key(LABELS, pair, fp),
                parent=key or "",
                fingerprint=fp,
                ordinal=0,
                id=document,
                level=label.level,
                probability=None,
                judge=f"{BROUGHT}{path.name}",
            )
        lost = sum(map(len, odd.values()))
        for reason, labels in sorted(odd.items(), key=lambda item: -len(item[1])):
            if labels and (file.unknown == "error" or lost == count):
                where = "the corpus" if reason == "unknown passage" else "the queries"
                kind = f"{reason}s" if reason == "unknown passage" else "unknown queries"
                example, place = labels[0]
                shown = f"{one_line(repr(example), 80)} ({place})"
                raise DatasetError(
                    f"{path}: {len(labels):,} of {count:,} labels are of {kind}: {shown} is not in {where}; "
                    + _advice(store, plan, reason, example, pages, skips=file.unknown == "skip"),
                    code=reason.replace(" ", "_"),
                    where=place,
                    names=dict.fromkeys(name for name, _ in labels),
                )
            if labels:
                say(f"labels of {path.name}: {len(labels):,} of {count:,} left out: {reason}")


def _say_labels(say: Callable[[str], object], name: str, about: str) -> None:
    say(f"labels of {name}: {about}")


def _of_pages(file: LabelFile, pages: Pages, known: Collection[str], labels: Sequence[Label]) -> dict[str, str]:
    """Return {id in the file: page, or passage that is a page} for labels of pages rather than passages."""
    ids = {label.document for label in labels}
    if file.level == "passage" or (
        file.level == "auto" and not pages.named(ids, lambda id_: id_ if id_ in known else None)
    ):
        return {}
    return {id_: page for id_ in ids if id_ not in known and (page := pages.find(id_)) is not None}


def _advice(store: Store, plan: Plan, reason: str, example: str, pages: Pages, *, skips: bool) -> str:
    end = "" if skips else ", or set unknown: skip for these labels"
    if reason == "unknown query":
        return f"give the file of queries that they were made for{end}"
    ids = [id_ for _, id_ in store.passage_names(plan["corpus"])]
    if pages.find(example) is not None:
        return f"it is a page of the corpus: set level: document for these labels{end}"
    example_id = one_line(repr(ids[0]), 80) if ids else ""
    dropped = "`airgen show corpus --dropped` lists what its cleaners removed"
    return f"ids of the corpus look like {example_id} ({dropped}){end}"


def _skip(stage: str, parent: str, fp: str, reason: str) -> Skip:
    return Skip(
        key=row_key(f"skip/{stage}", parent, fp),
        parent=parent,
        fingerprint=fp,
        ordinal=0,
        stage=stage,
        reason=reason,
        detail="",
        cause="settings",
    )


def own_accepted(store: Store, flow: Flow, plan: Plan, pipeline: Pipeline) -> Accepted:
    """Return the drawn queries as lineages, with every row made from them. No query is rejected at this point."""
    order, target = "t.ordinal", pipeline.target
    rows = store.rows(OwnQuery, "t.fingerprint = ? AND t.ordinal < ?", [plan[OWN], target], order)
    ((every,),) = store.query("SELECT count(*) FROM own_query WHERE fingerprint = ?", [plan[OWN]]) if rows else ((0,),)
    lineages = with_rows(store, [_lineage(row) for row in rows], flow.every, plan)
    return Accepted(lineages, [], every - len(rows), False)


def _lineage(own: OwnQuery) -> Lineage:
    sample = Sample(own.parent, "", own.fingerprint, own.ordinal)
    rows: tuple[Row, ...] = (
        own,
        Query(
            key=own.parent,
            parent=own.parent,
            fingerprint=own.fingerprint,
            ordinal=0,
            text=own.text,
            length="",
            type="",
            information="",
        ),
    )
    return Lineage(NO_PASSAGE, sample, rows)
