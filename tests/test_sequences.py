"""Sequences by place, against a list."""

from __future__ import annotations

import pytest

from airgen.sequences import Indexed


class Squares(Indexed[int]):
    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def _item(self, place: int) -> int:
        assert 0 <= place < self.size
        return place * place


@pytest.mark.parametrize("size", [0, 1, 7])
def test_places_and_slices_are_those_of_a_list(size: int) -> None:
    made, expected = Squares(size), [place * place for place in range(size)]
    assert list(made) == expected and list(reversed(made)) == expected[::-1]
    assert [made[place] for place in range(-size, size)] == expected * 2
    for part in (slice(None), slice(1, -1), slice(None, None, -2), slice(-3, 99), slice(5, 2)):
        assert made[part] == expected[part]
    for beyond in (size, -size - 1):
        with pytest.raises(IndexError):
            made[beyond]
