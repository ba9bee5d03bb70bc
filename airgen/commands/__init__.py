"""The command line, one module a command; each defines `app`, a Typer."""

from __future__ import annotations

__all__: list[str] = []
