"""Read users' tables of documents, queries, labels and scores, and choose their columns.

table = DelimitedTable(lines, known={"query", "count"})     # detects delimiter, quotes and header once
for row in table: ...                                       # TableRow(2, {"query": "login fails", "count": "7"})
json_rows(value)                                            # the rows in a JSON value, whatever its form
choose(columns_of(rows), ROLES, where="log.csv")            # which column is which, by name and by content
"""

from airgen.tables.choose_columns import Choice, Guess, Role, TableColumn, choose, columns_of, whole_number
from airgen.tables.delimited import DelimitedTable, TableDialect, TableRow
from airgen.tables.frames import frame_rows, is_usual
from airgen.tables.values import flat, json_rows, list_of_rows
from airgen.tables.vocabulary import folded

__all__ = [
    "Choice",
    "DelimitedTable",
    "Guess",
    "Role",
    "TableColumn",
    "TableDialect",
    "TableRow",
    "choose",
    "columns_of",
    "flat",
    "folded",
    "frame_rows",
    "is_usual",
    "json_rows",
    "list_of_rows",
    "whole_number",
]
