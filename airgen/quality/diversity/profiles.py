"""The profiles of several datasets, with labels of an LLM if a pipeline is given; what `airgen diversity` runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from airgen.dataset.beir import BeirDataset
from airgen.errors import UsageError
from airgen.quality.diversity.labels import label_queries
from airgen.quality.diversity.measure import Profile, profile_dataset

__all__ = ["profile_datasets"]


def profile_datasets(
    paths: Sequence[Path],
    out: Path,
    *,
    language: str | None = None,
    pipeline: Path | None = None,
    most: int | None = None,
    budget_usd: float | None = None,
) -> tuple[list[Profile], Mapping[str, int]]:
    """Measure the datasets; returns their profiles, and how many queries got no label, by reason.

    language: of corpora whose manifest does not say it. pipeline: the LLM of this YAML labels types and styles; its
    answers and `labels.jsonl` are kept in `out`. most: how many queries of a dataset are labelled. Raises UsageError
    for `most` or a budget without a pipeline, and what reading a dataset and asking an LLM raise.
    """
    if pipeline is None and (most is not None or budget_usd is not None):
        raise UsageError("--most and --budget limit the labels of an LLM: give --label-with as well")
    opened = [BeirDataset.open(path) for path in paths]
    labels: list[dict[str, dict[str, str]]] = [{} for _ in opened]
    failed: Mapping[str, int] = {}
    if pipeline is not None:
        texts = [{key: query.text for key, query in dataset.queries().items()} for dataset in opened]
        labels, failed = label_queries(pipeline, out, texts, most=most, budget_usd=budget_usd)
        rows = [
            {"dataset": dataset.name, "query": key, **values}
            for dataset, labelled in zip(opened, labels, strict=True)
            for key, values in labelled.items()
        ]
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (out / "labels.jsonl").write_text(lines, encoding="utf-8", errors="surrogatepass")
    profiles = [
        profile_dataset(dataset, language=None if dataset.info.get("language") else language, labels=labelled)
        for dataset, labelled in zip(opened, labels, strict=True)
    ]
    return profiles, failed
