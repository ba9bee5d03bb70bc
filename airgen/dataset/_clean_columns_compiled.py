"""The loops of `clean_columns` for numba. Import this only where numba is installed and a file is worth its loading."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from airgen.jit import jit

__all__ = ["Keys", "parse", "rehash"]

Keys = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64]]
"""The table, the hashes, the records' ends, the records and the number of the keys: see `_key`."""

_TENS = 10.0 ** np.arange(23)  # exact: the product or quotient of one with an exact whole number is rounded once
_EXACT = 1 << 53
_OFFSET = 40  # bits of a record's place; the upper 24 bits of a place of the table are a part of the hash


@jit
def _number(block: NDArray[np.uint8], begin: int, end: int) -> float:
    """The nearest float64 of a plain decimal number; NaN for all that this does not read for certain."""
    place = begin
    negative = block[place] == 45
    if negative:
        place += 1
    whole = 0
    digits = shift = 0
    point = False
    while place < end and (48 <= block[place] <= 57 or (block[place] == 46 and not point)):
        if block[place] == 46:
            point = True
        else:
            whole = whole * 10 + (block[place] - 48)
            digits += 1
            shift -= point
            if whole > _EXACT:
                return np.nan
        place += 1
    if digits == 0:
        return np.nan
    if place < end and (block[place] == 101 or block[place] == 69):
        place += 1
        less = place < end and block[place] == 45
        place += less
        exponent, start = 0, place
        while place < end and 48 <= block[place] <= 57 and exponent < 1000:
            exponent = exponent * 10 + (block[place] - 48)
            place += 1
        if place == start:
            return np.nan
        shift += -exponent if less else exponent
    if place < end or shift > 22 or shift < -22:
        return np.nan
    value = float(whole)
    value = value * _TENS[shift] if shift >= 0 else value / _TENS[-shift]
    return float(-value if negative else value)


@jit
def _whole(letters: NDArray[np.uint8], place: np.int64) -> int:
    """The number in four bytes."""
    low, high = letters[place] | letters[place + 1] << 8, letters[place + 2] | letters[place + 3] << 8
    return int(low | high << 16)


@jit
def _key(
    block: NDArray[np.uint8],
    begin: int,
    end: int,
    table: NDArray[np.uint64],
    hashes: NDArray[np.uint64],
    ends: NDArray[np.int64],
    letters: NDArray[np.uint8],
    count: NDArray[np.int64],
) -> int:
    """The number of a key, in the order of first appearance. `count`, (1,), is how many there are.

    A place of the table holds a part of the hash and where the key's record is: its number, its length, its letters.
    So a known key costs two places of memory.
    """
    code = np.uint64(14695981039346656037)
    for place in range(begin, end):
        code = (code ^ np.uint64(block[place])) * np.uint64(1099511628211)  # FNV-1a
    code ^= code >> np.uint64(32)
    mask = np.uint64(len(table) - 1)
    part = code >> np.uint64(_OFFSET) << np.uint64(_OFFSET)
    slot = code & mask
    length = end - begin
    while table[slot] != 0:
        known = table[slot]
        if (known ^ part) >> np.uint64(_OFFSET) == 0:
            start = np.int64(known & np.uint64((1 << _OFFSET) - 1)) - 1
            if _whole(letters, start + 4) == length:
                place = 0
                while place < length and letters[start + 8 + place] == block[begin + place]:
                    place += 1
                if place == length:
                    return _whole(letters, start)
        slot = (slot + np.uint64(1)) & mask
    new = count[0]
    start = ends[new]
    table[slot] = part | np.uint64(start + 1)
    hashes[new] = code
    for byte in range(4):
        letters[start + byte] = new >> 8 * byte & 255
        letters[start + 4 + byte] = length >> 8 * byte & 255
    for place in range(length):
        letters[start + 8 + place] = block[begin + place]
    ends[new + 1] = start + 8 + length
    count[0] = new + 1
    return int(new)


@jit
def rehash(table: NDArray[np.uint64], hashes: NDArray[np.uint64], ends: NDArray[np.int64], count: int) -> None:
    """Fill a larger, empty table."""
    mask = np.uint64(len(table) - 1)
    for known in range(count):
        slot = hashes[known] & mask
        while table[slot] != 0:
            slot = (slot + np.uint64(1)) & mask
        table[slot] = hashes[known] >> np.uint64(_OFFSET) << np.uint64(_OFFSET) | np.uint64(ends[known] + 1)


@jit
def parse(
    block: NDArray[np.uint8],
    gap: int,
    columns: int,
    first: int,
    second: int,
    number: int,
    first_keys: Keys,
    second_keys: Keys,
    rows: NDArray[np.int32],
    values: NDArray[np.float64],
    hard: NDArray[np.int64],
) -> tuple[int, int]:
    """Read whole lines into `rows`, (lines, 2), and `values`. Returns how many, -1 where one is not clean.

    The second number is how many hard lines there are: their number is not read, and `hard` gets (line, begin, end) of
    its cell.
    """
    table, hashes, ends, letters, count = second_keys
    line = hards = 0
    place = 0
    size = len(block)
    last_begin = last_end = last = -1
    while place < size:
        if block[place] == 10:  # an empty line
            place += 1
            continue
        for column in range(columns):
            begin = place
            while place < size and block[place] != gap and block[place] != 10:
                letter = block[place]
                odd = letter < 32 or (letter > 126 and column != first and column != second)
                if odd and (letter != 13 or (place + 1 < size and block[place + 1] != 10)):
                    return -1, 0
                place += 1
            end = place
            if column == columns - 1:
                if place < size and block[place] != 10:
                    return -1, 0
                end -= end > begin and block[end - 1] == 13
            elif place >= size or block[place] == 10:
                return -1, 0
            place += 1
            if end == begin:
                return -1, 0
            if column == first:
                same = last >= 0 and last_end - last_begin == end - begin
                for other in range(end - begin):
                    if not same or block[begin + other] != block[last_begin + other]:
                        same = False
                        break
                if not same:
                    last = _key(block, begin, end, *first_keys)
                last_begin, last_end = begin, end
                rows[line, 0] = last
            elif column == second:
                rows[line, 1] = _key(block, begin, end, table, hashes, ends, letters, count)
            elif column == number:
                value = _number(block, begin, end)
                values[line] = value
                if np.isnan(value):
                    hard[hards, 0], hard[hards, 1], hard[hards, 2] = line, begin, end
                    hards += 1
        line += 1
    return line, hards
