"""Local models by name: `path` finds one, `fetch` downloads it, `verify` checks it, `catalogue` lists all."""

from __future__ import annotations

from airgen.models.catalogue import GROUPS, ModelEntry, ModelFile, catalogue, entry, expand, identity
from airgen.models.fetching import FetchProgress, fetch, fetched, path, verify
from airgen.paths import cache_dir

__all__ = [
    "GROUPS",
    "FetchProgress",
    "ModelEntry",
    "ModelFile",
    "cache_dir",
    "catalogue",
    "entry",
    "expand",
    "fetch",
    "fetched",
    "identity",
    "path",
    "verify",
]
