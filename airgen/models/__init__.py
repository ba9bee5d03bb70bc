"""Local models by name: `path` finds one, `fetch` downloads it, `verify` checks it, `catalogue` lists all."""

from airgen.models.catalogue import GROUPS, ModelEntry, ModelFile, catalogue, entry, expand, identity
from airgen.models.fetching import (
    FetchProgress,
    OnHub,
    fetch,
    fetched,
    give_up_silent_hub,
    in_hub_cache,
    on_hub,
    path,
    retry_silent_hub,
    verify,
)
from airgen.storage.paths import cache_dir

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
    "give_up_silent_hub",
    "identity",
    "in_hub_cache",
    "on_hub",
    "path",
    "retry_silent_hub",
    "verify",
]
