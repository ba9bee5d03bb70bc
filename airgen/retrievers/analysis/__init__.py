"""Text to index terms: `analyser("en")("Cats sat")` is ["cat", "sat"]."""

from __future__ import annotations

from airgen.retrievers.analysis.analyser import Analyser, analyser
from airgen.retrievers.analysis.encode import Encoder

__all__ = ["Analyser", "Encoder", "analyser"]
