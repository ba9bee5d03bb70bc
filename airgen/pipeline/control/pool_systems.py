"""What the user's own systems find joins the recall: search services, run files, any system of a systems YAML.

Each system's first `control.recall.top_k` hits are fused with those of recall. A run file names queries by the ids of
the finished dataset, and passages by their ids there or in the corpus.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from airgen.evaluation.own_ids import IdLookup
from airgen.evaluation.run import Run
from airgen.evaluation.run_system import FinishedRun, RunContext, run_system
from airgen.evaluation.systems import load_systems
from airgen.keys import file_sha256
from airgen.retrievers.base import Corpus, Hits
from airgen.settings.parts import files_of, identity_of, located
from airgen.settings.yaml_file import find_yaml


def systems_path(name: str, folder: Path | None) -> Path:
    """The systems YAML that a pipeline in `folder` names. Raises SettingsError."""
    return find_yaml("pipelines", name, folder)


def systems_identity(name: str, folder: Path | None) -> list[dict[str, Any]]:
    """All that the hits depend on: the systems' settings, and the content of the files that they name."""
    path = systems_path(name, folder)
    base = path.resolve().parent
    found = []
    for system in load_systems(path):
        files = [
            file_sha256(place)
            for _, _, part in system.parts(base)
            for _, value, _ in files_of(part)
            if (place := located(value, base)).is_file()
        ]
        found.append(
            {"name": system.name, "kind": system.kind, **identity_of(system.options(base), base), "files": files}
        )
    return found


def search_systems(
    name: str, folder: Path | None, corpus: Corpus, queries: Mapping[str, str], dataset: str, top: int
) -> list[tuple[str, Hits]]:
    """(name, hits) of each system for the queries {id: text}, in their order. Raises what the systems raise."""
    path = systems_path(name, folder)
    base = path.resolve().parent
    done: dict[str, FinishedRun] = {}
    context = RunContext(corpus, queries, top, dataset, "all", base, done, IdLookup(corpus.ids), timed=False)
    systems = load_systems(path)
    for system in systems:
        done[system.name] = run_system(system, context)
    places = {id_: place for place, id_ in enumerate(corpus.ids)}
    return [(system.name, _hits(done[system.name].run, list(queries), places, top)) for system in systems]


def _hits(run: Run, queries: Sequence[str], places: Mapping[str, int], top: int) -> Hits:
    hits = Hits.none(len(queries), top)
    rows = {query: row for row, query in enumerate(queries)}
    for query, found in run.ranked().items():
        if query not in rows:
            continue
        known = [(places[id_], score) for id_, score in found if id_ in places][:top]
        hits.positions[rows[query], : len(known)] = [place for place, _ in known]
        hits.scores[rows[query], : len(known)] = np.asarray([score for _, score in known], np.float32)
    return hits
