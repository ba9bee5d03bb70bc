"""The losses of E5 (section 4): InfoNCE over in-batch and other negatives, and distillation from a teacher.

All take a matrix of scores, (queries, candidates), that is already divided by the temperature.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.registry import load_extra


def info_nce(scores: Any, targets: Any, masked: Any = None) -> Any:
    """Minus the mean log softmax of each row's target (E5, equation 1).

    `masked`, bool of the same shape, marks candidates that are left out. The target of a row must not be masked.
    """
    torch = load_extra("torch", "training")
    if masked is not None:
        scores = scores.masked_fill(masked, -torch.inf)
    return torch.nn.functional.cross_entropy(scores, targets)


def distillation(student: Any, teacher: Any, masked: Any = None) -> Any:
    """The mean over rows of KL(p_teacher, p_student) (E5, section 4.2), from scores of the same candidates."""
    torch = load_extra("torch", "training")
    functional = torch.nn.functional
    if masked is not None:
        student, teacher = student.masked_fill(masked, -torch.inf), teacher.masked_fill(masked, -torch.inf)
    wanted = functional.log_softmax(teacher, -1)
    gap = wanted - functional.log_softmax(student, -1)
    if masked is not None:  # probability 0 on both sides: 0 times (-inf - -inf) would be nan, its limit is 0
        gap = gap.masked_fill(masked, 0.0)
    return (wanted.exp() * gap).sum(-1).mean()


def false_negatives(
    queries: NDArray[np.int64],
    candidates: NDArray[np.int64],
    relevant: list[frozenset[int]],
    targets: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """The candidates that must not be negatives of a query, bool (queries, candidates).

    `queries` and `candidates` are ids of texts (equal texts have one id); `relevant[i]` are the texts known to be
    relevant to query i. Those are masked, and so is a candidate that is the query's own text: a neighbour can be the
    query of one pair and the passage of another. The column `targets[i]` of query i's positive is not masked.
    """
    masked: NDArray[np.bool_] = candidates[None, :] == queries[:, None]
    places: dict[int, list[int]] = {}
    for column, text in enumerate(candidates.tolist()):
        places.setdefault(text, []).append(column)
    for row, texts in enumerate(relevant):
        for text in texts:
            masked[row, places.get(text, [])] = True
    masked[np.arange(len(queries)), targets] = False
    return masked
