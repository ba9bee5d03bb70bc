"""Read people's labels from a table: which column is which, what a rating means, and what several raters say together.

    found = rated_pairs("labels.csv", queries=ids)      # a file, rows, a data frame, {query: {document: rating}}, ...
    found.pairs             # [RatedPair("labels.csv:2", "login fails", "d7", 3.0), ...]: without unrated pairs
    found.about             # query = 'query', document = 'docid', rating = 'stars'
    found.check_scale()     # refuses stars from 1 to 4, none of which says "not relevant"

A rating is a number, or a word such as `yes` or `not relevant`. What is not understood is refused: only a table without
any column that may be a rating, such as a FAQ, says with each row that the document answers the query.
"""

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from airgen.errors import DatasetError
from airgen.safety.escaping import one_line
from airgen.tables.cells import HIGHEST_RATING, MOST_RATINGS, NO_RATINGS, as_rating, id_text, may_be_rating
from airgen.tables.choose_columns import Choice, Guess, Role, TableColumn, choose, columns_of, list_columns
from airgen.tables.pairs import label_rows, parts_of
from airgen.tables.read import UserTable, read
from airgen.tables.vocabulary import folded, is_named, names

Row = Mapping[str, Any]
_QUERY = ("query", "query id", "topic", "key", "search")
_DOCUMENT = ("document id", "document", "inner key", "page")
_RATING = ("rating", "value")
KNOWN_OF_PAIRS = frozenset(names(*_QUERY[:-1], *_DOCUMENT, "id", *_RATING)) - {"value"}
"""The usual names of the columns of labels, folded."""
_MEMBERS = ("_source", "judgmentRatings", "judgments", "requests", "qrels", "relevant_docs", "rows", "data")
_GUESSED = frozenset({"predictions", "suggestions"})  # members with what a model says, not a person
_GRADES = frozenset({"score", "rel", "relevance", "qrel", "gain", "value", "innerkey"})  # the columns of qrels
_SAMPLE_ROWS = 1000


class RatedPair(NamedTuple):
    """A pair and its rating, with its place for messages. `query` is an id or a text."""

    where: str
    query: str
    document: str
    rating: float


@dataclass(frozen=True)
class RatedPairs:
    """The rated pairs of a table, in its order. `about` describes the columns and the raters.

    Attributes:
        name: The table's name in messages.
        column: The column of the ratings, or "" if there is none.
        scale: Whether the ratings are answers on a scale that people were shown, so that 1 may be its lowest value.
        means: The ratings that are means of several people's.
    """

    name: str
    pairs: Sequence[RatedPair]
    about: str = ""
    column: str = ""
    scale: bool = False
    means: Collection[float] = ()

    def check_scale(self) -> None:
        """Raise DatasetError if it is not clear which ratings mean relevant: those from 1 to 5, or those below 1.

        Qrels may list only what is relevant, in two or three grades.
        """
        values = {pair.rating for pair in self.pairs}
        if not self.column or not values:
            return
        lowest, highest = min(values), max(values)
        named = folded(self.column.rpartition(".")[2])
        grades = highest < 4 and named in _GRADES and not self.scale
        if lowest >= 1 and ("star" in named or (len(values) > 1 and not grades)):
            problem = f"go from {lowest:g} to {highest:g}, and it is not clear which of them mean not relevant"
        elif 0 < highest < 1:
            problem = f"go only up to {highest:g}, but documents are relevant from 1 on"
        else:
            return
        raise DatasetError(
            f"{self.name}: the ratings in {self.column!r} {problem}: say which is the lowest that means relevant "
            "(--relevant-from N; in a pipeline, relevant_from in queries.labels), or write 1 for relevant documents "
            "and 0 for others",
            code="unclear_scale",
            where=self.name,
            names=[self.column],
        )


def rated_pairs(
    source: Any,
    *,
    name: str = "labels",
    language: str = "en",
    queries: Collection[str] = (),
    documents: Container[str] = (),
    columns: Mapping[str, str] | None = None,
) -> RatedPairs:
    """Read labels from anything that holds them, without unrated pairs.

    Args:
        source: A path, or what `airgen.tables.read` takes.
        name: Name in messages of a source that is no file.
        language: Language of the texts.
        queries: Known ids of queries, which identify a column without a usual name.
        documents: The same for documents.
        columns: Columns without usual names, by role: query, document, rating. An empty name counts as none.

    Raises:
        DatasetError: The source cannot be read, or a rating is not understood.
        UsageError: There is no column of queries or documents, or none of a given name.
    """
    table = read(
        source,
        name=name,
        language=language,
        known=KNOWN_OF_PAIRS,
        members=_MEMBERS,
        absorbing=names("query"),
        pairs=True,
    )
    if table.form == "lines" and isinstance(source, str | Path):  # columns separated by spaces, as TREC writes them
        pairs = [RatedPair(str(where), *pair) for where, *pair in label_rows(Path(source))]  # type: ignore[arg-type]
        pairs, agreement, means = _agreed(pairs, by_people=False)
        return RatedPairs(table.name, pairs, agreement, means=means)
    return _of_table(table, queries, documents, columns or {})


def _of_table(
    table: UserTable, queries: Collection[str], documents: Container[str], named: Mapping[str, str]
) -> RatedPairs:
    rows = [(table.where(number), inner) for number, row in table.rows for inner in parts_of(_unpacked(row))]
    sample = [{name: _one_of(value) for name, value in row.items()} for _, row in rows[:_SAMPLE_ROWS]]
    columns = columns_of(sample, table.names, invented=table.invented)
    roles = {
        "query": Role("the query (call it `query` or `query_id`)", names(*_QUERY), guess=_known_or(queries, 0)),
        "document": Role(
            "the document's id (call it `doc_id`, or name it: --label-column; in a pipeline, document_column)",
            names(*_DOCUMENT),
            _is_short,
            _known_or(documents, 1, "id"),
        ),
    }
    roles = {role: Role(spec.what, spec.names, spec.fits, spec.guess, needed=True) for role, spec in roles.items()}
    if named.get("rating"):
        roles["rating"] = Role("the rating")
    choice = choose(columns, roles, named=named, where=table.name)
    query, document = choice["query"] or "", choice["document"] or ""
    free = [column for column in columns if column.name not in (query, document)]
    raters = [named["rating"]] if named.get("rating") else [column.name for column in _rating_columns(table, free)]
    line = Choice({**choice.columns, "rating": raters[0] if raters else None}, choice.known)
    pairs: list[RatedPair] = []
    lists = False
    for where, row in rows:
        values = [row.get(rater) for rater in raters] if raters else [1]
        lists = lists or any(isinstance(value, list) for value in values)
        for value in [item for cell in values for item in (cell if isinstance(cell, list) else [cell])]:
            if (rating := rating_of(value, where)) is not None:
                key = _known_id(row.get(query), queries, where)
                ids = _several(row.get(document))
                pairs += [RatedPair(where, key, _known_id(value, documents, where), rating) for value in ids]
    by_people = len(raters) > 1 or lists or any(is_named(column.name, "rater") for column in free)
    pairs, agreement, means = _agreed(pairs, by_people=by_people)
    about = [line.line(), *([f"ratings of {list_columns(raters)}"] if len(raters) > 1 else []), *table.notes]
    about += [agreement] if agreement else [] if raters else ["no ratings: each row's document answers its query"]
    column = "" if not raters else "score" if table.invented else raters[0]
    return RatedPairs(table.name, pairs, "; ".join(about), column, lists, means)


def rating_of(value: Any, where: str) -> float | None:
    """Return a rating as a number: 1 and 0 for words such as `yes` and `not relevant`; None for an empty cell.

    Raises DatasetError for anything else.
    """
    if value is None or value != value or (isinstance(value, str) and not value.strip()):
        return None
    number = as_rating(value)
    if number is None:
        raise DatasetError(
            f"{where}: the rating {one_line(repr(value), 60)} is not a number, nor a word such as yes, no, relevant or "
            "not relevant: write numbers, 0 for not relevant",
            code="unknown_rating",
            where=where,
            names=[str(value)],
        )
    return number


# -- columns ------------------------------------------------------------------------------------------------


def _rating_columns(table: UserTable, free: Sequence[TableColumn]) -> list[TableColumn]:
    """Return the column of ratings, one for each of several raters, or none if there are no ratings.

    Raises DatasetError if it is not clear whether a column holds ratings.
    """
    usual = names(*_RATING)
    places = sorted(
        ((place, column.place, column) for column in free if (place := column.named(usual)) is not None),
        key=lambda entry: entry[:2],
    )
    whole = [column for place, _, column in places if place < 2 * len(usual)]
    if whole:
        return [next((column for column in whole if _readable(column)), whole[0])]
    worded = [(place, column) for place, _, column in places if _readable(column)]
    if worded:
        same = [column for place, column in worded if place == worded[0][0]]
        return same if len(same) == 1 or all(may_be_rating(column.values) for column in same) else same[:1]
    if table.invented:
        return _without_header(free)
    candidates = [column for column in free if _may_hold_ratings(column)]
    if len(candidates) > 1 and all(map(_names_a_person, candidates)):
        return candidates
    if len(candidates) == 1:
        column = candidates[0]
        if column.counts and len(column.counts) == column.rows and min(column.counts) == 0:
            return candidates
        if len(free) == 1 and _readable(column):
            return candidates
    candidates = candidates or [column for column in free if not _says_no_rating(column)]
    if candidates:
        listed = list_columns([column.name for column in candidates])
        others = "it" if len(candidates) == 1 else "the others"
        raise DatasetError(
            f"{table.name}: {listed} may hold ratings: call the column of the ratings `rating`, name it "
            f"(--rating-column; in a pipeline, rating_column), or remove {others}; without ratings, every row would "
            "count as relevant",
            code="unread_ratings",
            where=table.name,
            names=[column.name for column in candidates],
        )
    return []


def _without_header(free: Sequence[TableColumn]) -> list[TableColumn]:
    """Return the column of ratings in a table without a header: one of few small numbers, which must not be constant if
    there is another. In TREC's qrels, the column before the document is always 0."""
    few = [
        column
        for column in free
        if len(column.counts) == column.rows
        and column.counts
        and len(set(column.counts)) <= MOST_RATINGS
        and max(column.counts) <= HIGHEST_RATING
    ]
    best = max(few, key=lambda column: (len(set(column.counts)) > 1, column.place), default=None)
    return [] if best is None else [best]


def _readable(column: TableColumn) -> bool:
    return bool(column.values) and all(as_rating(value) is not None for value in column.values)


def _may_hold_ratings(column: TableColumn) -> bool:
    if is_named(column.name, *NO_RATINGS) or not may_be_rating(column.values):
        return False
    constant = len(set(column.texts)) == 1 and bool(column.counts) and column.counts[0] > 0
    return not constant or column.rows == 1  # a version or the like, which is the same everywhere


def _says_no_rating(column: TableColumn) -> bool:
    """Return whether a column beside questions and documents is a text, a number of another kind, or has a name that
    says so. Short words under an unknown name may be verdicts."""
    if not column.values or is_named(column.name, *NO_RATINGS, "page", "query", "search", "document", "rater"):
        return True
    known = is_named(column.name, "text", "answer") and not may_be_rating(column.values)
    return column.plain and (known or column.length > 40 or column.like_ids or column.numbers == 1)


def _names_a_person(column: TableColumn) -> bool:
    """Return whether a column is called like a rater: `ann@example.org`, `Rater 2`, `annotator_b`."""
    return "@" in column.name or bool(column.words & {*names("rater")})


def _is_short(column: TableColumn) -> bool:
    return column.length <= 200


def _known_or(known: Container[str], place: int, role: str = "") -> Guess:
    """Return a guess of the column of ids: the one with most of the known ones; else one called like the role, or the
    first one from this place on in a table without a header."""

    def guess(columns: Sequence[TableColumn], chosen: Mapping[str, TableColumn]) -> TableColumn | None:
        columns = [column for column in columns if column.plain]
        best = max(columns, key=lambda column: (column.has(known), -column.place), default=None)
        if best is not None and best.has(known) > 0:
            return best
        named = (column for column in columns if role and is_named(column.name, role))
        return next(named, next((column for column in columns if column.invented and column.place >= place), None))

    return guess


def _several(value: Any) -> list[Any]:
    """Return the ids in a cell: one, or those of a list of the documents that answer a query."""
    return value if isinstance(value, list) and len(set(map(type, value))) == 1 else [value]


def _known_id(value: Any, known: Container[str], where: str) -> str:
    """Return an id as text. `7.0`, as data frames write 7 beside a missing id, is 7 if that one is known.

    Raises DatasetError for a value that cannot be an id.
    """
    if isinstance(value, bool | list | dict):
        raise DatasetError(f"{where}: {one_line(repr(value), 60)} is no id: give {{query: {{document: rating}}}}")
    text = id_text(value)
    if text.endswith(".0") and text[:-2].isdigit() and text not in known and text[:-2] in known:
        return text[:-2]
    return text


# -- answers of several people ------------------------------------------------------------------------------


def _one_of(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value and not isinstance(value[0], Mapping) else value


def _unpacked(row: Row) -> Row:
    """Return a row with the answers of Argilla and Label Studio as columns: lists of what people answered."""
    if not any(isinstance(value, list) and value and isinstance(value[0], Mapping) for value in row.values()):
        return row
    unpacked: dict[str, Any] = {}
    for name, value in row.items():
        answers = _answers(value) if isinstance(value, list) and name not in _GUESSED else None
        if not answers:
            unpacked[name] = value if answers is None else []
        else:
            unpacked |= {f"{name}.{question}" if question else name: given for question, given in answers.items()}
    return unpacked


def _answers(items: Sequence[Any]) -> dict[str, list[Any]] | None:
    """Return {question: [answer of each person]} of a list of responses; None for another list.

    Drafts and skipped tasks are left out.
    """
    answers: dict[str, list[Any]] = {}
    for item in items:
        if not isinstance(item, Mapping):
            return None
        if item.get("status") in ("draft", "discarded") or item.get("was_cancelled"):
            continue
        if isinstance(values := item.get("values"), Mapping):  # Argilla's records
            parts = [(str(question), value) for question, value in values.items()]
        elif isinstance(result := item.get("result"), list):  # Label Studio's tasks
            parts = [(str(part.get("from_name", "")), part) for part in result if isinstance(part, Mapping)]
        elif "value" in item and "score" not in item:
            parts = [("", item)]
        else:
            return None
        for question, value in parts:
            answers.setdefault(question, []).append(_answer(value))
    return answers


def _answer(value: Any) -> Any:
    """Return the answer in the objects and lists of one member around it."""
    while True:
        if isinstance(value, Mapping):
            inner = next((value[name] for name in ("value", "choices", "rating") if name in value), None)
            if inner is None:
                return value
            value = inner
        elif isinstance(value, list) and len(value) == 1:
            value = value[0]
        else:
            return value


def _agreed(pairs: list[RatedPair], *, by_people: bool) -> tuple[list[RatedPair], str, set[float]]:
    """Return one rating for each pair that several people rated, how often they agree, and the ratings that are means.

    The majority decides if all ratings are 0 or 1, and a tie leaves the pair unlabelled; other ratings are averaged.
    Equal ratings of a pair stay as they are, unless several people are named.
    """
    ratings: dict[tuple[str, str], list[float]] = {}
    for pair in pairs:
        ratings.setdefault((pair.query, pair.document), []).append(pair.rating)
    several = {key: given for key, given in ratings.items() if len(given) > 1}
    if not several or (not by_people and all(len(set(given)) == 1 for given in several.values())):
        return pairs, "", set()
    binary = all(rating in (0.0, 1.0) for given in ratings.values() for rating in given)
    agreed: list[RatedPair] = []
    ties = 0
    done: set[tuple[str, str]] = set()
    for pair in pairs:
        key = pair.query, pair.document
        if key in done:
            continue
        done.add(key)
        mean = fmean(ratings[key])
        if binary and mean == 0.5:
            ties += 1
        else:
            agreed.append(pair._replace(rating=float(mean > 0.5) if binary else mean))
    same = [first == second for given in several.values() for first, second in combinations(given, 2)]
    rule = "the majority decides" if binary else "the mean counts"
    undecided = f", and {ties:,} ties are left without a label" if ties else ""
    text = (
        f"{len(several):,} pairs have several ratings, {fmean(same):.0%} of which agree two by two: {rule}{undecided}"
    )
    return agreed, text, set() if binary else {pair.rating for pair in agreed}
