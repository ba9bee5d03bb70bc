"""Accessibility rules, checked by axe-core, for browser tests."""

from pathlib import Path
from typing import Any

AXE = Path(__file__).parent.parent / "report" / "axe"
RULES = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}


def violations(page: Any) -> list[str]:
    """Return the rule violations of a page in its current state, with the element and the reason."""
    if not page.evaluate("'axe' in window"):
        page.evaluate((AXE / "axe.min.js").read_text())
    found = page.evaluate(
        "rules => axe.run(document, { runOnly: rules, resultTypes: ['violations'], preload: false })", RULES
    )
    return [
        f"{one['id']}: {node['html'][:200]} ({node['failureSummary'][:300]})"
        for one in found["violations"]
        for node in one["nodes"]
    ]
