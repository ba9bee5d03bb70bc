"""The small job, what its model is asked, and one document with a model that answers as a test says."""

from job_maker import asked, configure, distinct, done, folder, model_says, run
from stage_world import world

__all__ = ["asked", "configure", "distinct", "done", "folder", "model_says", "run", "world"]
