"""The order of training: which examples an epoch has, in which batches.

    epoch_batches(5, 2, seed=42, epoch=0)                                       # [[3, 0], [4, 1], [2]]
    epoch_batches(5, 2, seed=42, epoch=0, shares=[Share(3, 1.0), Share(2, 0.5)])

With several datasets each has a weight: the number of times that an epoch has each of its examples. Of a dataset of
weight 0.3 an epoch has a random 30 %, another one each time, as E5 weighs S2ORC (its appendix A); of one of weight 2 it
has all examples twice. Equal seeds and epochs give equal orders, so a resumed training goes on with the same batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from airgen.keys import rng


@dataclass(frozen=True, slots=True)
class Share:
    """A run of `count` examples that are one dataset's, and its weight."""

    count: int
    weight: float


def epoch_batches(count: int, size: int, seed: int, epoch: int, shares: Sequence[Share] = ()) -> list[list[int]]:
    """The numbers 0 to count - 1 in a random order of that epoch, in batches of `size`; with `shares`, as they weigh.

    A last batch of one item is left out, because in-batch negatives need two. Every epoch has as many batches.
    """
    numbers = epoch_examples(shares, seed, epoch) if shares else np.arange(count)
    permuted = np.random.default_rng(rng("order", seed, epoch).getrandbits(64)).permutation(len(numbers))
    order = numbers[permuted].tolist()
    batches = [order[first : first + size] for first in range(0, len(order), size)]
    return batches[:-1] if len(batches) > 1 and len(batches[-1]) == 1 < size else batches


def epoch_examples(shares: Sequence[Share], seed: int, epoch: int) -> NDArray[np.int64]:
    """The numbers of an epoch's examples, in the order of the datasets; every epoch has as many of each."""
    found: list[NDArray[np.int64]] = []
    first = 0
    for place, share in enumerate(shares):
        whole, part = divmod(share.weight, 1.0)
        every = np.arange(first, first + share.count)
        found += [every] * int(whole)
        # By the place and not by the name of a dataset: folders are renamed.
        draw = np.random.default_rng(rng("share", seed, epoch, place).getrandbits(64))
        found.append(np.sort(draw.choice(every, round(part * share.count), replace=False)))
        first += share.count
    return np.concatenate(found)
