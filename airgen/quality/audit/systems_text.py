"""What `airgen audit compare` prints of people's answers."""

from __future__ import annotations

import math

from airgen.quality.audit.decision import PairDecision
from airgen.quality.audit.system_audit import SystemAudit
from airgen.text.display import figure, p_value, terminal_table

_LONGEST = 20  # decisions that are printed one by one


def audit_text(found: SystemAudit) -> str:
    """For a terminal: the verdicts, the corrected ranking, and whether the judge favours a family."""
    people = "1 person" if found.people == 1 else f"{found.people} people"
    lines = [f"{found.dataset} {found.split}: {found.answers} pairs answered by {people}, {found.queries} queries"]
    if found.later:
        lines.append(f"{found.later} answers do not count: a pair before them has no answer. Answer it and ask again.")
    if found.unclear:
        lines.append(f"{found.unclear} pairs nobody could judge: the intervals have room for either answer.")
    if found.twice:
        lines.append(
            f"kappa of two people {figure(found.kappa, '.2f', 'undefined')} on {found.twice} pairs; a pair with "
            "several answers has their mean"
        )
    decided = {pair: one for pair, one in found.decisions.items() if one.verdict != "open"}
    if len(found.decisions) > _LONGEST:
        lines.append(f"{len(decided)} of {len(found.decisions)} pairs of systems are decided:")
    shown = found.decisions if len(found.decisions) <= _LONGEST else decided
    lines += [decision_text(first, second, one) for (first, second), one in shown.items()]
    if any(one.answers for one in found.decisions.values()):
        lines.append(
            f"(mean DCG@10 over these {found.queries} queries, 95 % at all looks together; `airgen compare` says what "
            "other queries would change)"
        )
    if len(found.ranking) > 2:
        rows = [["#", "system", "DCG@10", "rank", "by the judge", "by people", "±"]]
        rows += [
            [str(at), row.name, f"{row.score:.3f}", f"{row.low}" if row.low == row.high else f"{row.low}–{row.high}",
             f"{row.judge:.3f}", f"{row.people:.3f}", f"{1.96 * row.error:.3f}"]
            for at, row in enumerate(found.ranking, 1)
        ]  # fmt: skip
        lines += ["", "corrected by people, as far as their answers can be told from chance:"]
        lines.append(terminal_table(rows, left=(1,)))
    if found.favours:
        rows = [["does the judge favour", "DCG@10", "95 %", "p, Holm"]]
        rows += [
            [row.group, f"{row.value:+.3f}", f"{row.low:+.3f} to {row.high:+.3f}", p_value(row.p)]
            for row in found.favours
        ]
        lines += ["", terminal_table(rows)]
    return "\n".join(lines)


def decision_text(first: str, second: str, one: PairDecision) -> str:
    """One comparison in one line."""
    if not one.answers:
        return f"{first}, {second}: no batch is complete: {one.more} answers more are needed first"
    interval = f"{one.low:+.3f} to {one.high:+.3f}"
    judge = f"the judge alone says {one.judge:+.3f}"
    if one.low == one.high == 0:
        return f"{first} and {second} do not differ: people's answers change nothing"
    if one.verdict == "equal":
        return (
            f"{first} and {second} differ by less than {one.bound:.3f} ({interval}; margin {one.margin:.3f}; {judge})"
        )
    if one.verdict == "open":
        far = "" if math.isinf(one.bound) else f" They differ by less than {one.bound:.3f}."
        return (
            f"{first}, {second}: your {one.answers} labels cannot decide this yet: about {one.more} more would."
            f"{far} ({interval}; {judge})"
        )
    better, worse = (first, second) if one.verdict == "first" else (second, first)
    return (
        f"{better} is better than {worse} by {abs(one.value):.3f}, known after {one.decided_at} answers ({first} less "
        f"{second}: {interval}; {judge})"
    )
