"""Check rows before they are written; the first bad row raises a DatasetError."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

from airgen.dataset.content import ANSWERED, SHORT_NAME, CorpusRow, QrelRow, QueryRow
from airgen.errors import DatasetError

_BAD_ID = re.compile(r"[\s\x00-\x1f\x7f\u2028\u2029\ufeff]")
_UNFIT = re.compile(r"[\s\x00-\x1f\x7f\u2028\u2029\ufeff\ud800-\udfff%]")
_SCALARS = (str, int, float, bool, type(None))


def check_id(identifier: str, what: str) -> None:
    """Check that an id fits into TSV and TREC files: not empty, without white space. Raises DatasetError."""
    if not isinstance(identifier, str) or not identifier or _BAD_ID.search(identifier):
        raise DatasetError(f"{what} id {identifier!r} is empty or holds white space: TREC files cannot carry it")
    try:
        identifier.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DatasetError(f"{what} id {identifier!r} is not Unicode text") from error


def fitting_id(own: str) -> str:
    """An id of a corpus as TSV and TREC files can carry it: `my file` becomes `my%20file`; most ids stay as they are.

    White space, control characters and lone surrogates become the `%XX` of URLs, and in such an id so does `%`.
    """
    try:
        own.encode("utf-8")
        if not _BAD_ID.search(own):
            return own
    except UnicodeEncodeError:
        pass
    return _UNFIT.sub(lambda found: quote(found[0], safe="", errors="surrogatepass"), own)


def check_document(row: CorpusRow) -> None:
    """Check that a document has a valid id and text. Raises DatasetError."""
    check_id(row.id, "document")
    if not row.text.strip():
        raise DatasetError(f"document {row.id!r} has no text: drop it before the export")


def check_queries(rows: Iterable[QueryRow]) -> list[QueryRow]:
    """The queries sorted by id, with valid unique ids, texts, splits and metadata. Raises DatasetError."""
    queries = sorted(rows, key=lambda row: row.id)
    if not queries:
        raise DatasetError("no query was accepted: there is nothing to export (see the funnel for why)")
    types: dict[str, type] = {}
    for before, row in zip([None, *queries], queries, strict=False):
        check_id(row.id, "query")
        if before is not None and before.id == row.id:
            raise DatasetError(f"query id {row.id!r} appears twice: ids must be unique")
        if not row.text.strip():
            raise DatasetError(f"query {row.id!r} has no text")
        if not SHORT_NAME.fullmatch(row.split):
            raise DatasetError(f"query {row.id!r} has the split {row.split!r}: use small letters, digits and '_'")
        _check_metadata(row, types)
    return queries


def _check_metadata(row: QueryRow, types: dict[str, type]) -> None:
    for key, value in row.metadata.items():
        if not isinstance(value, _SCALARS):
            raise DatasetError(f"query {row.id!r}: metadata {key!r} is a {type(value).__name__}, not a scalar")
        if value is not None and types.setdefault(key, type(value)) is not type(value):
            found, elsewhere = type(value).__name__, types[key].__name__
            raise DatasetError(f"query {row.id!r}: metadata {key!r} is a {found}, elsewhere a {elsewhere}")
    if row.metadata.get("split", row.split) != row.split:
        raise DatasetError(f"query {row.id!r}: metadata 'split' differs from its split {row.split!r}")


def check_qrels(rows: Iterable[QrelRow], queries: Iterable[QueryRow]) -> list[QrelRow]:
    """The labels sorted by query and document. Raises DatasetError.

    Pairs are unique and their queries known; scores are 0 or 1, levels 0 to 3, gains in [0, 1]; each query has a
    positive, or is marked as `answered: false` and has no label.
    """
    queries = list(queries)
    marked = {row.id for row in queries if row.metadata.get(ANSWERED) is False}
    qrels = sorted(rows, key=lambda row: (row.query, row.document))
    without: Mapping[str, None] = dict.fromkeys(row.id for row in queries)
    positives: set[str] = set()
    last = ("", "")
    for row in qrels:
        pair = (row.query, row.document)
        where = f"label of query {row.query!r} and document {row.document!r}"
        if row.query not in without:
            raise DatasetError(f"{where}: there is no such query")
        if pair == last:
            raise DatasetError(f"{where} appears twice")
        if row.query in marked:
            raise DatasetError(f"{where}: the query is marked as one that nothing answers")
        if row.score not in (0, 1):
            raise DatasetError(f"{where}: score {row.score!r} is neither 1 (relevant) nor 0 (hard negative)")
        if row.level is not None and row.level not in (0, 1, 2, 3):
            raise DatasetError(f"{where}: level {row.level!r} is not one of 0 to 3")
        if row.gain is not None and not (math.isfinite(row.gain) and 0 <= row.gain <= 1):
            raise DatasetError(f"{where}: gain {row.gain!r} is not in [0, 1]")
        if row.score:
            positives.add(row.query)
        last = pair
    for identifier in without:
        if identifier not in positives and identifier not in marked:
            raise DatasetError(f"query {identifier!r} has no relevant document: drop it before the export")
    return qrels
