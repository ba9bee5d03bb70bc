"""An inspection as a table for the terminal, as JSON, and as one HTML page with the look of the report.

The page has no scripts and nothing from outside; texts from files are escaped.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from airgen.dataset.files import write_text
from airgen.kept import write_json
from airgen.quality.inspection.finding import STATES, Finding
from airgen.quality.inspection.inspect_dataset import Inspection
from airgen.quality.inspection.measures import SystemRow
from airgen.study import Column, Html, Table, columns
from airgen.text.display import html_text, one_line

_MOST = 160  # characters of a text from outside
_TAGS = {"bad": "bad", "look": "look", "good": "good", "unknown": ""}


def inspection_page(found: Inspection) -> str:
    """The page's text."""
    name, split = html_text(found.dataset, _MOST), html_text(found.split, _MOST)
    worst = found.findings[0].state if found.findings else "unknown"
    allowed = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{allowed}'; base-uri 'none'; form-action 'none'"
    facts = {
        "queries": f"{found.queries:,}",
        "passages": f"{found.passages:,}",
        "split": split,
        "language": html_text(found.language),
        "systems": f"{len(found.systems)}",
        "measure": html_text(found.measure),
    }
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>Inspection of {name}, {split}</title>
<style>{_style()}</style>
</head>
<body>
<main>
<header>
<h1>Inspection of <span class="foreign">{name}</span></h1>
<p class="verdict {worst}">{html_text(found.verdict)}</p>
<dl class="facts">{"".join(f"<div><dt>{term}</dt><dd>{text}</dd></div>" for term, text in facts.items())}</dl>
</header>
<section><h2>Findings</h2>
<div class="findings">{Table(found.findings, _FINDINGS).html()}</div></section>
{_advice(found.findings)}
<section><h2>Systems</h2>
<p>{html_text(found.measure)} with its 95 % interval (bootstrap over queries). The grey line is what a random order of
the corpus scores, {found.floor:.4f}.</p>
<div class="systems">{_systems(found)}</div>
{_left_out(found.left_out)}</section>
<section><h2>Languages found</h2>
<p>Passages: {_languages(found.passage_languages)}. Queries: {_languages(found.query_languages)}.</p></section>
<section><h2>Checks, limits and their sources</h2>
<dl class="checks">
{"".join(_definition(one) for one in found.findings)}</dl></section>
</main>
<footer id="foot">Made by airgen study inspect. inspect.json has all figures.</footer>
</body>
</html>
"""


_FINDINGS = (
    Column("State", lambda one: Html(f'<span class="tag {_TAGS[one.state]}">{STATES[one.state]}</span>')),
    Column("Check", lambda one: Html(f'<a href="#{_anchor(one)}">{html_text(one.check.title)}</a>'), left=True),
    Column("Value", lambda one: one.check.shown(one.value)),
    Column("What was found", lambda one: one.detail, left=True),
)


def _anchor(one: Finding) -> str:
    return one.name.replace(" ", "-")


def _advice(findings: Sequence[Finding]) -> str:
    parts = []
    for one in findings:
        if one.state in ("bad", "look"):
            examples = "".join(f'<li class="foreign">{html_text(text, _MOST)}</li>' for text in one.examples)
            parts.append(
                f"<h3>{html_text(one.check.title)} "
                f'<span class="tag {one.state}">{html_text(one.check.shown(one.value))}</span></h3>\n'
                f"<p>{_code(one.check.advice)}</p>\n"
                + (f'<p class="quiet small">For example:</p><ul class="ids">{examples}</ul>\n' if examples else "")
            )
    return f"<section><h2>What to do</h2>\n{''.join(parts)}</section>" if parts else ""


def _definition(one: Finding) -> str:
    return (
        f'<dt id="{_anchor(one)}">{html_text(one.check.title)}</dt><dd>{_code(one.check.meaning)} '
        f'<span class="quiet">Limits: {html_text(one.check.limits)}. '
        f"Source: {html_text(one.check.source)}.</span></dd>\n"
    )


def _code(text: str) -> str:
    """Our own words, with commands as code."""
    return re.sub("`([^`]*)`", r"<code>\1</code>", html_text(text))


def _systems(found: Inspection) -> str:
    def bar(row: SystemRow) -> Html:
        left, width, mean = row.low * 100, max((row.high - row.low) * 100, 0.6), row.mean * 100
        return Html(
            '<svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
            '<rect class="rail" x="0" y="3.7" width="100" height=".6"></rect>'
            f'<rect class="floor" x="{found.floor * 100:.2f}" y="0" width=".4" height="8"></rect>'
            f'<rect class="range" x="{left:.2f}" y="2" width="{width:.2f}" height="4"></rect>'
            f'<rect class="mean" x="{mean - 0.25:.2f}" y="0" width=".5" height="8"></rect></svg>'
        )

    shown = [
        Column("System", lambda row: row.name),
        Column("Mean", lambda row: row.mean, ".3f"),
        Column("95 %", lambda row: (row.low, row.high), ".3f"),
        Column("0 to 1", bar, left=True),
    ]
    return Table(found.systems, shown).html()


def _left_out(lines: Sequence[str]) -> str:
    items = "".join(f'<li class="foreign">{html_text(line, 300)}</li>' for line in lines)
    return f'<ul class="quiet small">{items}</ul>' if items else ""


def _languages(shares: Mapping[str, float]) -> str:
    if not shares:
        return "not measured (it needs the extra corpus)"
    return ", ".join(
        f"{html_text(name or 'none')} {share:.0%}" for name, share in list(shares.items())[:5] if share >= 0.005
    )


@cache
def _style() -> str:
    """The report's style and what only this page has."""
    return (Path(__file__).parent / "web" / "style.css").read_text(encoding="utf-8") + _OWN


_OWN = """
/* the inspection */
main { max-width: 1040px } footer#foot { max-width: 1040px }
.verdict { max-width: none; padding: 8px 12px; border-inline-start: 3px solid var(--good); margin: 8px 0 16px;
  background: var(--good-soft) }
.verdict.look { border-color: var(--c2); background: var(--warn-soft) }
.verdict.bad { border-color: var(--bad); background: var(--bad-soft) }
.tag.look { background: var(--warn-soft); color: var(--ink) }
.findings a { color: inherit }
.findings td:nth-child(2) { white-space: nowrap }
.findings td:last-child { color: var(--quiet) }
h3 .tag { font-weight: 400; vertical-align: 1px }
ul { margin: 0 0 12px; padding-inline-start: 20px; max-width: 75ch }
ul.ids { font-size: 14px; line-height: 20px }
.systems { max-width: 720px }
.systems td:last-child { width: 45%; min-width: 120px; vertical-align: middle; padding-inline-end: 0 }
svg { display: block; width: 100%; height: 16px }
.rail { fill: var(--line) } .floor { fill: var(--quiet) } .range { fill: var(--c5) } .mean { fill: var(--c1) }
dl.checks { max-width: 75ch } dl.checks dt { font-weight: 600; margin-top: 16px } dl.checks dd { margin: 0 }
dl.checks dt:target { background: var(--mark); color: var(--mark-ink) }
html { scroll-padding-top: 16px }
@media (max-width: 720px) {
  .findings table, .findings tbody, .findings tr { display: block }
  .findings thead { display: none }
  .findings tr { display: grid; grid-template-columns: 100px 1fr auto; gap: 0 12px; padding: 8px 0;
    border-bottom: 1px solid var(--line) }
  .findings td { border: 0; padding: 2px 0 }
  .findings td:nth-child(2) { white-space: normal } .findings td:last-child { grid-column: 2 / -1; font-size: 14px }
  .systems td, .systems th { padding: 6px 8px 6px 0 } .systems td:last-child { width: auto; min-width: 72px }
}
@media print { .verdict { border: 1px solid var(--line) } }
"""


def write_inspection(found: Inspection, out: Path) -> list[Path]:
    """Write `inspect.html` and `inspect.json` to the folder `out`, which is made. Older ones are replaced."""
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "inspect.html", inspection_page(found))
    write_json(out / "inspect.json", found)
    return [out / "inspect.html", out / "inspect.json"]


def inspection_text(found: Inspection) -> str:
    """The table of findings, what to do about those that are not good, and the verdict."""
    rows = [
        (STATES[one.state], one.check.title, one.check.shown(one.value), one_line(one.detail, 90))
        for one in found.findings
    ]
    parts = [Table(rows, columns("", "check", "value", "what was found", left=(1, 3))).text()]
    for one in found.findings:
        if one.state in ("bad", "look"):
            limits = one.check.limits
            lines = [f"{one.check.title} ({one.check.shown(one.value)}; {limits}): {one.check.advice}"]
            if one.examples:
                lines.append(f"  for example: {one_line('; '.join(one.examples), 160)}")
            parts.append("\n".join(lines))
    parts += [one_line(line, 200) for line in found.left_out]
    return "\n\n".join([*parts, f"{one_line(found.dataset, 100)}, {found.split}: {found.verdict}"])
