"""Extract rows from a JSON value in any of the forms that other tools export.

json_rows([{"query": "login fails"}])                       # a list of objects, or of texts
json_rows({"tests": [{"vars": {"question": ".."}}]})        # an object with such a list
json_rows({"q1": "login fails"})                            # texts by id
json_rows({"query": ["a", "b"], "id": [1, 2]})              # columns
json_rows({"q1": {"d7": 1}})                                # labels, as pytrec_eval and ranx take them
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from airgen.tables.frames import frame_rows
from airgen.tables.vocabulary import folded, yes_or_no

Row = dict[str, Any]
_MAX_LEVELS = 3  # of objects around {name: {inner name: number}}
_SHOWN = 8  # names in an error
KEY, VALUE, INNER = "key", "value", "inner key"
"""The columns of rows made from an object's members: name, value, and the name inside the value."""
_LABELS = ("ratings", "judgments", "judgements", "labels")  # members that hold the labels of a query
_RATINGS = {"rating", "judgment", "judgement", "score", "grade", "relevance", "label", "gain", VALUE}


def list_of_rows(value: Any) -> tuple[str, list[Row]]:
    """Return the location of the rows and the rows in a JSON value: the value itself, or its longest list of
    objects."""
    if isinstance(value, list):
        return "", [row for row in value if isinstance(row, dict)]
    members = value if isinstance(value, dict) else {}
    lists = {name: member for name, member in members.items() if isinstance(member, list)}
    if not lists:
        return "", []
    name = max(lists, key=lambda name: (len(lists[name]), name))
    return name, [row for row in lists[name] if isinstance(row, dict)]


def flat(row: Mapping[str, Any], depth: int = 3) -> Row:
    """Return a row with dotted names for nested values, as readers use them: {"body": {"text": ..}} has body.text."""
    values: Row = {}
    for name, value in row.items():
        levels = 0 if name == "filter" else depth - 1  # what is in a filter must be a value
        inner = flat(value, levels) if isinstance(value, Mapping) and depth else {}
        values.update({f"{name}.{below}": part for below, part in inner.items()} or {name: value})
    return values


def json_rows(value: Any, wanted: Sequence[str] = (), known: Collection[str] = (), *, pairs: bool = False) -> list[Row]:
    """Return the flattened rows of a JSON value. A list of plain values has a single column, `value`.

    Args:
        value: The parsed value.
        wanted: Names of the members that contain the rows, if the value is an object with several.
        known: Usual names of columns, folded.
        pairs: Whether {name: {inner name: number}} and {name: [inner names]} are pairs, also inside of other objects.

    Raises:
        ValueError: The value contains no rows.
    """
    if pairs and (tables := pairs_in(value, known)):
        if len(tables) > 1:
            raise ValueError(f"has {len(tables)} tables ({', '.join(list(tables)[:_SHOWN])}): give one of them")
        return [
            {KEY: key, INNER: inner, **({VALUE: row[inner]} if isinstance(row, Mapping) else {})}
            for key, row in next(iter(tables.values())).items()
            for inner in row
        ]
    if (rows := frame_rows(value, known)) is not None:
        return [flat(row) for row in rows]
    if isinstance(value, list):
        return [row for place, element in enumerate(value) for row in _rows(element, place)]
    if not isinstance(value, dict):
        raise ValueError(f"holds {type(value).__name__} where a list of rows was expected")
    if questions := _reading_comprehension(value):
        return questions
    for name in wanted:
        if isinstance(value.get(name), list | dict):
            return json_rows(value[name], wanted, known)
    if value and all(isinstance(member, list) for member in value.values()):
        columns = dict(value)
        plain = not any(isinstance(item, dict) for items in columns.values() for item in items[:5])
        if plain and (len(columns) > 1 or any(map(str.isdigit, *columns))):  # the relevant documents of each query
            return [{KEY: name, INNER: item} for name, items in columns.items() for item in items]
    if len(value) == 1 and _are_texts(inner := next(iter(value.values())), known):
        return json_rows(inner, wanted, known)  # texts by id, in a split
    if value and all(isinstance(member, dict) for member in value.values()):
        return _of_objects(value)
    _, rows = list_of_rows(value)
    if rows:
        return [flat(row) for row in rows]
    texts = [(name, items) for name, items in value.items() if isinstance(items, list) and items]
    if texts:
        _, items = max(texts, key=lambda pair: len(pair[1]))
        return json_rows(items, known=known)
    if value and all(not isinstance(member, list | dict) for member in value.values()):
        return [{KEY: name, VALUE: member} for name, member in value.items()]
    raise ValueError("has no list of rows")


def pairs_in(
    value: Any, known: Collection[str] = (), *, lists: bool = True, words: bool = True
) -> dict[str, Mapping[str, Any]]:
    """Return the objects {name: {inner name: number}} in a value, by dotted path: "" for the value itself.

    Args:
        value: The parsed value.
        known: Usual names of columns, folded. An object of them is a table of columns.
        lists: Whether {name: [inner names]} counts, too.
        words: Whether booleans and texts count as numbers, as for labels.
    """
    found: dict[str, Mapping[str, Any]] = {}

    def search(inner: Any, name: str, levels: int) -> None:
        if _is_nested(inner, words) or (lists and _is_of_names(inner)):
            below = (key for row in inner.values() for key in row)
            if not any(folded(str(key)) in known for key in (*inner, *below)):
                found[name] = inner
        elif isinstance(inner, Mapping) and levels:
            for key, member in inner.items():
                search(member, f"{name}.{key}" if name else str(key), levels - 1)

    search(value, "", _MAX_LEVELS)
    return found


def _is_nested(value: Any, words: bool) -> bool:
    """Return whether a value is {name: {inner name: number}}; a name may have none, but not all of them."""
    if not isinstance(value, Mapping) or not value:
        return False
    rows = list(value.values())
    cells = [cell for row in rows if isinstance(row, Mapping) for cell in row.values()]
    return (
        bool(cells) and all(isinstance(row, Mapping) for row in rows) and all(_is_cell(cell, words) for cell in cells)
    )


def _is_of_names(value: Any) -> bool:
    if not isinstance(value, Mapping) or not value or not all(isinstance(row, list) for row in value.values()):
        return False
    items = [item for row in value.values() for item in row]
    return bool(items) and all(isinstance(item, str | int) and not isinstance(item, bool) for item in items)


def _is_cell(value: Any, words: bool) -> bool:
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return words and yes_or_no(value) is not None
        return True
    return words if value is None or isinstance(value, bool) else isinstance(value, int | float)


def _are_texts(value: Any, known: Collection[str]) -> bool:
    """Return whether a value is an object of two texts or more, whose names are no usual names of columns."""
    if not isinstance(value, dict) or len(value) < 2 or any(folded(name) in known for name in value):
        return False
    return all(isinstance(member, str) for member in value.values())


def _reading_comprehension(value: Mapping[str, Any]) -> list[Row]:
    """Return the questions in SQuAD's format, which nests them in articles and paragraphs; nothing for any other
    format."""
    articles = value.get("data")
    if not isinstance(articles, list):
        return []
    paragraphs = [part for article in articles if isinstance(article, dict) for part in article.get("paragraphs") or ()]
    questions = [question for part in paragraphs if isinstance(part, dict) for question in part.get("qas") or ()]
    return [flat(question) for question in questions if isinstance(question, dict)]


def _rows(item: Any, place: int) -> list[Row]:
    """Return the row of a list item or, for a query with a list of labels as in search engines, one row per label."""
    if not isinstance(item, dict):
        return [{VALUE: item}]
    name = next((name for name in _LABELS if isinstance(item.get(name), list | dict)), None)
    if name is None:
        return [flat(item)]
    others = flat({key: member for key, member in item.items() if key != name})
    labels = item[name]
    if isinstance(labels, dict):
        labels = [{"docId": document, "rating": label} for document, label in labels.items()]
    if not all(isinstance(label, dict) and label.keys() & _RATINGS for label in labels):
        raise ValueError(f"judgment {place}: needs query and {name} of docId and rating")
    return [{**others, **flat(label)} for label in labels]


def _of_objects(value: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """Return the rows of an object of objects: labels by pair, or rows by id."""
    cells = [cell for row in value.values() for cell in row.values()]
    if cells and all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in cells):
        return [{KEY: name, INNER: inner, VALUE: cell} for name, row in value.items() for inner, cell in row.items()]
    return [{KEY: name, **flat(row)} for name, row in value.items()]
