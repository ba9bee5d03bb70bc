"""Read users' tables of documents, queries, labels and scores, and choose their columns.

read(source)                    # `read`: a file, rows, a data frame or a mapping, as a table of queries or labels
rated_pairs(source)             # `labels`: the labels in such a table, whatever its form
rows_of(frame)                  # `objects`: rows of documents, one after the other
guess_fields(rows)              # `documents`: the columns of id, title and text
names("rating")                 # `vocabulary`: the usual names of a column, in one list
choose(columns_of(rows), ROLES) # which column is which, by name and by content
"""

from airgen.tables.choose_columns import Choice, Role, TableColumn, choose, columns_of, whole_number
from airgen.tables.delimited import DelimitedTable, TableDialect, TableRow
from airgen.tables.vocabulary import folded

__all__ = [
    "Choice",
    "DelimitedTable",
    "Role",
    "TableColumn",
    "TableDialect",
    "TableRow",
    "choose",
    "columns_of",
    "folded",
    "whole_number",
]
