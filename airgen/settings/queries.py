"""The user's own queries, and labels that exist already: `queries:` of a pipeline."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from airgen.settings.base import FILE, Settings

__all__ = ["LabelFile", "QueriesSettings"]


class LabelFile(Settings):
    """Labels that exist already: TREC or BEIR qrels, Quepid's CSV, an OpenSearch judgment list.

    A label of `relevant_from` or more is relevant. `levels` maps labels to the judge's levels (0 to 3) instead: those
    of `control.judge.relevant_from` and more are relevant.
    """

    file: Annotated[str, FILE]
    relevant_from: float = 1.0
    levels: dict[
        float, int
    ] = {}  # label -> level of 0 to 3, of which control.judge.relevant_from and more are relevant
    unknown: Literal["error", "skip"] = "error"  # labels of passages or queries that are not there

    @field_validator("levels")
    @classmethod
    def _known(cls, value: dict[float, int]) -> dict[float, int]:
        if wrong := [level for level in value.values() if not 0 <= level <= 3]:
            raise ValueError(f"{wrong[0]} is no level: levels are 0 to 3")
        return value

    @model_validator(mode="after")
    def _one_way(self) -> LabelFile:
        if self.levels and "relevant_from" in self.model_fields_set:
            raise ValueError("levels: has no use beside relevant_from: remove one of them")
        return self


class QueriesSettings(Settings):
    """Queries that are there already, in place of `generation`.

    `file` is a text with a query a line, a CSV, TSV or JSON Lines file, or a folder in BEIR format. Columns without a
    name here are found by usual names.
    """

    file: Annotated[str, FILE]
    column: str = ""  # the query's text
    id_column: str = ""
    count_column: str = ""  # how often the query was asked
    duplicates: Literal["near", "exact", "keep"] = "near"  # which repetitions become one query; their counts add up
    other_language: Literal["skip", "keep"] = "skip"
    draw_by: Literal["count", "equal"] = "count"  # `target` queries are drawn by how often they were asked, or equally
    max_length: int = Field(default=2000, ge=1, le=100_000)  # characters; longer ones are left out
    labels: list[LabelFile] = []
