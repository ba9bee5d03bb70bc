"""Local models by name: `path` finds one, `fetch` downloads it, `verify` checks it, `catalogue` lists all."""

from airgen.models.catalogue import GROUPS, ModelEntry, ModelFile, catalogue, entry, expand, identity
from airgen.models.fetching import FetchProgress, OnHub, fetch, fetched, on_hub, path, verify
from airgen.paths import cache_dir

__all__ = [
    "GROUPS",
    "FetchProgress",
    "ModelEntry",
    "ModelFile",
    "OnHub",
    "cache_dir",
    "catalogue",
    "entry",
    "expand",
    "fetch",
    "fetched",
    "identity",
    "on_hub",
    "path",
    "verify",
]
