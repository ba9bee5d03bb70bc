"""Chunkers compared on one set of labels: labels point at characters of documents, so they score any chunks."""

from __future__ import annotations
