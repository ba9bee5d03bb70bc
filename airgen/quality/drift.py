"""How the ranking of a pipeline's systems has changed since the earlier version of its dataset.

text = drift_since(job, "0.1")          # what `airgen suite compare` says of versions/0.1 and dataset
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from airgen.dataset.files import write_text
from airgen.evaluation.rank_correlation import LEAST_SYSTEMS
from airgen.evaluation.result import without_nan
from airgen.evaluation.systems import load_systems
from airgen.pipeline.job import Job
from airgen.quality.versions import Anchors, compare_versions
from airgen.quality.versions_report import versions_text
from airgen.text.display import json_text


def drift_since(job: Job, version: str, say: Callable[[str], None] = lambda _: None) -> str:
    """The report, which is kept in `runs/NAME/drift.json`; with fewer than three systems only what was carried over.

    The systems run on the earlier version as well. Raises what `compare_versions` raises.
    """
    path = job.systems_file
    systems = [] if path is None else load_systems(path)
    anchors = None
    if path is not None and len(systems) >= LEAST_SYSTEMS:
        anchors = Anchors(systems, path.resolve().parent, job.directory / "drift")
    earlier = job.directory / "versions" / version
    found = compare_versions(earlier, job.dataset, anchors, split=job.pipeline.evaluate.split, say=say)
    write_text(job.directory / "drift.json", json_text(without_nan(asdict(found)), indent=1) + "\n")
    return f"since version {version}:\n{versions_text(found)}"
