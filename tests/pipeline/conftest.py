"""The small job, and one document with a model that answers as a test says."""

from job_maker import folder, run
from stage_world import world

__all__ = ["folder", "run", "world"]
