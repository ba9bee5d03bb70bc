"""Jobs to report on."""

from job_maker import folder, run

__all__ = ["folder", "run"]
