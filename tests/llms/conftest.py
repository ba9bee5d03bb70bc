"""The helpers beside this file made importable; the loopback server itself is a fixture of `tests/conftest.py`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # pytest's importlib mode leaves it alone
