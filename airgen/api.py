"""The Python API: `import airgen`, then `airgen.Corpus`, `airgen.generate`, `airgen.evaluate`, ...

    corpus = airgen.Corpus(frame, id="url", title="title", text="body", language="en")
    bench = airgen.generate(corpus, n=50, llm="gpt-4o-mini", budget=0.50, work="runs/handbook")
    results = airgen.evaluate(bench, {"bm25": "bm25", "new": airgen.Dense(model), "site": my_search})

Every command is also a function with the same arguments: `airgen study agree` is `airgen.study_agree`. It returns what
the command prints with `--json` as typed values, and raises errors from `airgen.errors`. Tables have `to_pandas()`.
Pass `quiet=True` to suppress progress output. `airgen.report` is a package; the function is `airgen.api.report`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airgen.commands.audit import audit_examples, audit_holes, audit_relevance, audit_sample, audit_score, audit_systems
from airgen.commands.check import check, check_prompts
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
    train_dpr,
    train_expand,
    train_explain,
    train_export,
    train_filter,
    train_genq,
    train_pairs,
    train_recipe,
)
from airgen.components.first_use import names_on_first_use
from airgen.python import VALUES

if TYPE_CHECKING:
    from airgen.components.user_functions import Function
    from airgen.display.study import Study
    from airgen.job.check_job import Check
    from airgen.python.benchmark import Benchmark, load
    from airgen.python.corpus import Corpus
    from airgen.python.generate import estimate, generate, label
    from airgen.python.recipe import JobRecipe
    from airgen.python.results import Results
    from airgen.retrievers.combine import Fused, RerankedRetriever
    from airgen.retrievers.dense.retriever import Dense
    from airgen.retrievers.lexical.bm25 import BM25
else:
    __getattr__ = names_on_first_use(__name__, VALUES)

__all__ = [
    "BM25",
    "Benchmark",
    "Check",
    "Corpus",
    "Dense",
    "Function",
    "Fused",
    "JobRecipe",
    "RerankedRetriever",
    "Results",
    "Study",
    "audit_examples",
    "audit_holes",
    "audit_relevance",
    "audit_sample",
    "audit_score",
    "audit_systems",
    "check",
    "check_prompts",
    "estimate",
    "evaluate",
    "evaluate_compare",
    "evaluate_measures",
    "evaluate_tune",
    "export",
    "export_labels",
    "export_layout",
    "fetch",
    "generate",
    "init",
    "label",
    "load",
    "publish",
    "publish_diff",
    "publish_leaderboard",
    "publish_score",
    "publish_submit",
    "publish_verify",
    "report",
    "run",
    "show",
    "show_collections",
    "show_corpus",
    "show_guide",
    "show_models",
    "show_prompts",
    "show_settings",
    "study_agree",
    "study_compare",
    "study_contamination",
    "study_correlate",
    "study_diversity",
    "study_gain",
    "study_inspect",
    "study_judge",
    "study_stats",
    "train",
    "train_dpr",
    "train_expand",
    "train_explain",
    "train_export",
    "train_filter",
    "train_genq",
    "train_pairs",
    "train_recipe",
]
