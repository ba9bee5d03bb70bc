"""Drafts of one query: which one is kept."""

from airgen.generation.drafts import best_of
from airgen.storage.records import Candidate


def draft(ordinal: int, score: float, problem: str = "") -> Candidate:
    return Candidate(f"c{ordinal}", "s", "f", ordinal, text=f"query {ordinal}", problem=problem, score=score)


def test_the_usable_draft_of_the_greatest_score_is_kept_and_of_equal_ones_the_first() -> None:
    drafts = [draft(0, -0.5), draft(1, 0.2), draft(2, 0.2), draft(3, 0.9, "copies the document")]
    assert best_of(drafts) == best_of(drafts[::-1]) == drafts[1]


def test_no_draft_is_kept_where_each_has_a_problem() -> None:
    assert best_of([draft(0, 0.0, "wrong length")]) is None and best_of([]) is None
