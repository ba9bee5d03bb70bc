"""Run a job, from the corpus to the evaluated dataset, and store its results on disk."""

from typing import TYPE_CHECKING

from airgen.components.first_use import names_on_first_use

if TYPE_CHECKING:
    from airgen.job.job import Job
    from airgen.job.run_job import run_job, run_pipeline
    from airgen.job.run_result import RunResult
else:
    __getattr__ = names_on_first_use(
        __name__, {"Job": ".job", "RunResult": ".run_result", "run_job": ".run_job", "run_pipeline": ".run_job"}
    )

__all__ = ["Job", "RunResult", "run_job", "run_pipeline"]
