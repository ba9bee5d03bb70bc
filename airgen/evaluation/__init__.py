"""Evaluation of retrieval systems on any dataset in BEIR's layout, with no pipeline behind it.

from airgen.evaluation import evaluate, load_systems
results = evaluate("scifact", load_systems("pipelines/systems-quickstart.yaml"), "results")
"""

from typing import TYPE_CHECKING

from airgen.components.first_use import names_on_first_use

if TYPE_CHECKING:
    from airgen.evaluation.experiment import DEFAULT_MEASURES, EvaluationOptions, evaluate
    from airgen.evaluation.measures import AIR_BENCH, Measure, Scores, parse_measure, parse_measures, score
    from airgen.evaluation.result import Result
    from airgen.evaluation.result_tables import write_overview
    from airgen.evaluation.run import Run, read_run, run_from_dict, run_from_hits, write_run
    from airgen.evaluation.systems import SystemSettings, load_systems
else:
    __getattr__ = names_on_first_use(
        __name__,
        {
            "DEFAULT_MEASURES": ".experiment",
            "EvaluationOptions": ".experiment",
            "evaluate": ".experiment",
            "AIR_BENCH": ".measures",
            "Measure": ".measures",
            "Scores": ".measures",
            "parse_measure": ".measures",
            "parse_measures": ".measures",
            "score": ".measures",
            "Result": ".result",
            "write_overview": ".result_tables",
            "Run": ".run",
            "read_run": ".run",
            "run_from_dict": ".run",
            "run_from_hits": ".run",
            "write_run": ".run",
            "SystemSettings": ".systems",
            "load_systems": ".systems",
        },
    )

__all__ = [
    "AIR_BENCH",
    "DEFAULT_MEASURES",
    "EvaluationOptions",
    "Measure",
    "Result",
    "Run",
    "Scores",
    "SystemSettings",
    "evaluate",
    "load_systems",
    "parse_measure",
    "parse_measures",
    "read_run",
    "run_from_dict",
    "run_from_hits",
    "score",
    "write_overview",
    "write_run",
]
