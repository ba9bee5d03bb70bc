"""The compiled scan: code points in, token ids out, each distinct token kept once. Import only with numba.

The rules of `boundaries.tokens` as a state machine over `boundaries.classes`, and a hash table whose keys live
in one array of code points (the arena), so that a token costs no Python object unless it is new.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from airgen.retrievers._jit import jit
from airgen.retrievers.analysis.boundaries import CLASSES, MAX_TOKEN

__all__ = ["State", "intern", "new_state"]

LETTER, DIGIT, KATAKANA, JOINER = (CLASSES[name] for name in ("letter", "digit", "katakana", "joiner"))
MID_LETTER, MID_DIGIT, MID_BOTH = (CLASSES[name] for name in ("mid_letter", "mid_digit", "mid_both"))
MARK, ZWJ, SINGLE, SOUTH_EAST = (CLASSES[name] for name in ("mark", "zwj", "single", "south_east_asian"))
EMOJI, PICTOGRAPH, FLAG, CJK = (CLASSES[name] for name in ("emoji", "pictograph", "flag", "cjk"))
_VARIATION = 0xFE0F  # asks for the coloured form of a pictograph

State = tuple[NDArray[np.int32], NDArray[np.uint64], NDArray[np.int64], NDArray[np.uint32], int]
"""Slots of the hash table (-1: free), and for each token its hash, its end in the arena; the arena; the count."""


def new_state() -> State:
    """An empty table."""
    return (
        np.full(1 << 14, -1, np.int32),
        np.empty(1 << 13, np.uint64),
        np.empty(1 << 13, np.int64),
        np.empty(1 << 16, np.uint32),
        0,
    )


@jit
def _past_marks(text: NDArray[np.uint32], table: NDArray[np.uint8], place: int, stop: int) -> int:
    while place < stop and (table[text[place]] == MARK or table[text[place]] == ZWJ):
        place += 1
    return place


@jit
def _word_end(text: NDArray[np.uint32], table: NDArray[np.uint8], place: int, stop: int) -> tuple[int, bool]:
    """Where the word that begins at `place` ends, and whether it holds more than joiners."""
    last, filled = JOINER, False
    while place < stop:
        kind = table[text[place]]
        if LETTER <= kind <= DIGIT:
            if last == KATAKANA:
                break
            filled = True
        elif kind == KATAKANA:
            if LETTER <= last <= DIGIT:
                break
            filled = True
        elif kind != JOINER:
            # A point or an apostrophe stays inside only between two letters or two digits.
            joins = (last == LETTER and MID_LETTER <= kind <= MID_BOTH) or (
                last == DIGIT and MID_BOTH <= kind <= MID_DIGIT
            )
            if not joins:
                break
            after = _past_marks(text, table, place + 1, stop)
            if after >= stop or table[text[after]] != last:
                break
            place = after
            continue
        last = kind
        place = _past_marks(text, table, place + 1, stop)
    return place, filled


@jit
def _next(
    text: NDArray[np.uint32], table: NDArray[np.uint8], first: int, place: int, stop: int
) -> tuple[int, int, int]:
    """The next token from `place` on in the text [first, stop): its start, its end, where to go on."""
    while place < stop:
        kind = table[text[place]]
        if LETTER <= kind <= JOINER:
            end, filled = _word_end(text, table, place, stop)
            if filled:
                return place, end, end
            place = end
            continue
        after = _past_marks(text, table, place + 1, stop)
        if kind == SINGLE:
            return place, after, after
        if kind == CJK:
            if after < stop and table[text[after]] == CJK:
                return place, _past_marks(text, table, after + 1, stop), after
            before = place - 1
            while before >= first and (table[text[before]] == MARK or table[text[before]] == ZWJ):
                before -= 1
            if before < first or table[text[before]] != CJK:
                return place, after, after
        elif kind == SOUTH_EAST:
            while after < stop and table[text[after]] == SOUTH_EAST:
                after = _past_marks(text, table, after + 1, stop)
            return place, after, after
        elif kind == EMOJI or (kind == PICTOGRAPH and place + 1 < stop and text[place + 1] == _VARIATION):
            while (
                after < stop
                and table[text[after - 1]] == ZWJ
                and (table[text[after]] == EMOJI or table[text[after]] == PICTOGRAPH)
            ):
                after = _past_marks(text, table, after + 1, stop)
            return place, after, after
        elif kind == FLAG and after < stop and table[text[after]] == FLAG:
            end = _past_marks(text, table, after + 1, stop)
            return place, end, end
        place = after
    return stop, stop, stop


@jit
def intern(
    text: NDArray[np.uint32], bounds: NDArray[np.int64], table: NDArray[np.uint8], state: State
) -> tuple[NDArray[np.int32], NDArray[np.int64], State]:
    """The tokens of several texts, text i being `text[bounds[i]:bounds[i + 1]]` in code points.

    Returns token ids (all texts one after another), how many each text has, and the grown state.
    """
    slots, hashes, ends, arena, count = state
    ids = np.empty(len(text) + 1, np.int32)  # untouched pages cost nothing
    counts = np.empty(len(bounds) - 1, np.int64)
    found = 0
    for number in range(len(bounds) - 1):
        before = found
        first, stop = bounds[number], bounds[number + 1]
        place = first
        while place < stop:
            begin, finish, place = _next(text, table, first, place, stop)
            while begin < finish:
                end = min(finish, begin + MAX_TOKEN)
                code = np.uint64(14695981039346656037)  # FNV-1a over code points
                for letter in range(begin, end):
                    code = (code ^ np.uint64(text[letter])) * np.uint64(1099511628211)
                code ^= code >> np.uint64(29)
                mask = np.int64(len(slots) - 1)
                slot = np.int64(code) & mask
                while True:
                    token = slots[slot]
                    if token < 0:
                        break
                    if hashes[token] == code:
                        origin = ends[token - 1] if token > 0 else 0
                        if ends[token] - origin == end - begin:
                            same = True
                            for letter in range(end - begin):
                                if arena[origin + letter] != text[begin + letter]:
                                    same = False
                                    break
                            if same:
                                break
                    slot = (slot + 1) & mask
                if token < 0:
                    token = np.int32(count)
                    slots[slot] = token
                    origin = ends[count - 1] if count > 0 else 0
                    if count == len(hashes):
                        hashes = np.concatenate((hashes, np.empty_like(hashes)))
                        ends = np.concatenate((ends, np.empty_like(ends)))
                    if origin + end - begin > len(arena):
                        arena = np.concatenate((arena, np.empty_like(arena)))
                    hashes[count] = code
                    ends[count] = origin + end - begin
                    for letter in range(end - begin):
                        arena[origin + letter] = text[begin + letter]
                    count += 1
                    if 2 * count > len(slots):  # at most half full
                        slots = np.full(2 * len(slots), -1, np.int32)
                        mask = np.int64(len(slots) - 1)
                        for other in range(count):
                            slot = np.int64(hashes[other]) & mask
                            while slots[slot] >= 0:
                                slot = (slot + 1) & mask
                            slots[slot] = other
                ids[found] = token
                found += 1
                begin = end
        counts[number] = found - before
    return ids[:found].copy(), counts, (slots, hashes, ends, arena, count)
