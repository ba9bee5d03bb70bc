"""Folds for cross-validation, and the wording of a query: what is held out shares no wording with the rest.

held_out, rows = folded(dataset, "test", Fold(1, 5))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from airgen.dataset.beir import BeirDataset
from airgen.errors import DatasetError
from airgen.keys import text_key
from airgen.training.recipe import Fold


def folded(
    dataset: BeirDataset, split: str, fold: Fold | None
) -> tuple[dict[str, dict[str, float]], Iterable[tuple[str, str, float]]]:
    """The labels of the fold's queries, and the rows of all others; without a fold, those of the split as a stream.

    Raises DatasetError for more parts than the split has wordings.
    """
    if fold is None:
        return {}, dataset.label_rows(split)
    texts = {query.id: query.text for query in dataset.each_query()}
    held_out, rest = _held_out(dataset.qrels(split).labels, texts, fold)
    return held_out, ((query, passage, label) for query, row in rest.items() for passage, label in row.items())


def _held_out(
    labels: dict[str, dict[str, float]], texts: Mapping[str, str], fold: Fold
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    """(held out, rest). Queries of one wording stay together. The split does not depend on a seed."""
    wordings = {query: wording(texts.get(query, query)) for query in labels}
    ordered = sorted(set(wordings.values()), key=lambda text: (text_key(f"fold\x1f{text}"), text))
    if len(ordered) < fold.parts:
        raise DatasetError(
            f"{len(ordered)} queries cannot be divided into {fold.parts} folds: use --fold 1/{len(ordered)}"
        )
    chosen = set(ordered[fold.number - 1 :: fold.parts])
    inside = {query: of_query for query, of_query in labels.items() if wordings[query] in chosen}
    return inside, {query: of_query for query, of_query in labels.items() if query not in inside}


def wording(text: str) -> str:
    """A query in lower case with single spaces, by which equal wordings are recognised."""
    return " ".join(text.casefold().split())
