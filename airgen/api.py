"""What airgen does, as functions of Python: `import airgen`, then `airgen.check`, `airgen.run`, `airgen.evaluate`, ...

    print(airgen.check("pipeline.yaml").problems)
    result = airgen.run("pipeline.yaml", budget=5.0)
    for found in airgen.evaluate(result.directory / "dataset", "systems.yaml", split="all"):
        print(found.name, found.score)

`airgen study agree` is `airgen.study_agree`, with the same arguments; it returns what the command prints with `--json`,
as typed values. Tables have `to_pandas()`. A function raises an error of `airgen.errors`, and can be called in a
notebook. Where it takes `quiet=True` it then says nothing on the way. `airgen.report` is the package of that name: the
function is `airgen.api.report`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airgen.commands.audit import audit_holes, audit_relevance, audit_sample, audit_score, audit_systems
from airgen.commands.check import Check, check, check_prompts
from airgen.commands.evaluate import evaluate, evaluate_compare, evaluate_measures, evaluate_tune
from airgen.commands.export import export, export_labels, export_layout
from airgen.commands.fetch import fetch
from airgen.commands.init import init
from airgen.commands.publish import (
    publish,
    publish_diff,
    publish_leaderboard,
    publish_score,
    publish_submit,
    publish_verify,
)
from airgen.commands.report import report
from airgen.commands.run import run
from airgen.commands.show import (
    show,
    show_collections,
    show_corpus,
    show_guide,
    show_models,
    show_prompts,
    show_settings,
)
from airgen.commands.study import (
    study_agree,
    study_compare,
    study_contamination,
    study_correlate,
    study_diversity,
    study_gain,
    study_inspect,
    study_judge,
    study_stats,
)
from airgen.commands.train import (
    train,
    train_expand,
    train_explain,
    train_export,
    train_filter,
    train_genq,
    train_pairs,
    train_recipe,
)

if TYPE_CHECKING:
    from airgen.dataset.beir import BeirDataset

__all__ = [
    "Check", "audit_holes", "audit_relevance", "audit_sample", "audit_score", "audit_systems", "check",
    "check_prompts", "evaluate", "evaluate_compare", "evaluate_measures", "evaluate_tune", "export", "export_labels",
    "export_layout", "fetch", "init", "open_dataset", "publish", "publish_diff", "publish_leaderboard",
    "publish_score", "publish_submit", "publish_verify", "report", "run", "show", "show_collections", "show_corpus",
    "show_guide", "show_models", "show_prompts", "show_settings", "study_agree", "study_compare", "study_contamination",
    "study_correlate", "study_diversity", "study_gain", "study_inspect", "study_judge", "study_stats", "train",
    "train_expand", "train_explain", "train_export", "train_filter", "train_genq", "train_pairs", "train_recipe",
]  # fmt: skip


def open_dataset(path: str | Path) -> BeirDataset:
    """A dataset in BEIR format: its passages, queries and qrels. Raises DatasetError."""
    from airgen.dataset.beir import BeirDataset

    return BeirDataset.open(path)
