"""Readers, one source format a file; `airgen.registry.REGISTRY["reader"]` names them."""

from __future__ import annotations

__all__: list[str] = []
