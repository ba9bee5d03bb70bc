"""Make `corpus_maker` importable: pytest's importlib mode leaves sys.path alone."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
