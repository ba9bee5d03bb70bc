"""The compiled scan from code points to token ids. Import this module only with numba.

It implements the rules of `boundaries.tokens` as a state machine over `boundaries.classes`, with a hash table whose
keys are in one array of code points (the arena), so that only new tokens need a Python object.
"""

import numpy as np
from numpy.typing import NDArray

from airgen.compute.exact_arithmetic import jit
from airgen.text.analysis.tokenizer import CLASSES, MAX_TOKEN

LETTER, DIGIT, KATAKANA, JOINER = (CLASSES[name] for name in ("letter", "digit", "katakana", "joiner"))
MID_LETTER, MID_DIGIT, MID_BOTH = (CLASSES[name] for name in ("mid_letter", "mid_digit", "mid_both"))
MARK, ZWJ, SINGLE, SOUTH_EAST = (CLASSES[name] for name in ("mark", "zwj", "single", "south_east_asian"))
PICTOGRAPH, FLAG, CJK = (CLASSES[name] for name in ("pictograph", "flag", "cjk"))

State = tuple[NDArray[np.uint64], NDArray[np.uint32], int, int]
"""The hash table, the arena, the used length of the arena, and the number of tokens.

A slot is 0 or (high half of the token's hash, place of its record in the arena + 1). A record is the token's id, its
length, its hash in two halves, and its code points. So a known token costs only two reads of distant memory.
"""

_HEADER = 4
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


def new_state() -> State:
    """Return an empty table."""
    return np.zeros(1 << 14, np.uint64), np.empty(1 << 16, np.uint32), 0, 0


@jit
def _past_marks(text: NDArray[np.uint32], table: NDArray[np.uint8], place: int, stop: int) -> int:
    while place < stop and (table[text[place]] == MARK or table[text[place]] == ZWJ):
        place += 1
    return place


@jit
def _word_end(text: NDArray[np.uint32], table: NDArray[np.uint8], place: int, stop: int) -> tuple[int, bool]:
    """Return the end of the word that begins at `place`, and whether it contains more than joiners."""
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
            # A point or an apostrophe is part of a word only between two letters or two digits.
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
    """Return the next token at or after `place` in the text [first, stop): its start, its end, and where to
    continue."""
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
        elif kind == PICTOGRAPH:
            while after < stop and table[text[after - 1]] == ZWJ and table[text[after]] == PICTOGRAPH:
                after = _past_marks(text, table, after + 1, stop)
            return place, after, after
        elif kind == FLAG and after < stop and table[text[after]] == FLAG:
            end = _past_marks(text, table, after + 1, stop)
            return place, end, end
        place = after
    return stop, stop, stop


@jit
def _grown(slots: NDArray[np.uint64], arena: NDArray[np.uint32], used: int) -> NDArray[np.uint64]:
    """Return a table of twice the size with the same tokens."""
    larger = np.zeros(2 * len(slots), np.uint64)
    mask = np.uint64(len(larger) - 1)
    place = 0
    while place < used:
        code = (np.uint64(arena[place + 3]) << _HALF) | np.uint64(arena[place + 2])
        slot = code & mask
        while larger[slot] != 0:
            slot = (slot + np.uint64(1)) & mask
        larger[slot] = (code & ~_LOW) | np.uint64(place + 1)
        place += _HEADER + arena[place + 1]
    return larger


@jit
def _find(
    text: NDArray[np.uint32],
    begin: int,
    end: int,
    code: np.uint64,
    slots: NDArray[np.uint64],
    arena: NDArray[np.uint32],
) -> tuple[np.int64, np.uint64]:
    """Return the id of the token text[begin:end], or -1, and its slot."""
    mask = np.uint64(len(slots) - 1)
    slot = code & mask
    while slots[slot] != 0:
        if (slots[slot] ^ code) >> _HALF == 0:
            record = np.int64(slots[slot] & _LOW) - 1
            if arena[record + 1] == end - begin:
                same = True
                for letter in range(end - begin):
                    if arena[record + _HEADER + letter] != text[begin + letter]:
                        same = False
                        break
                if same:
                    return np.int64(arena[record]), slot
        slot = (slot + np.uint64(1)) & mask
    return np.int64(-1), slot


@jit
def intern(
    text: NDArray[np.uint32], bounds: NDArray[np.int64], table: NDArray[np.uint8], state: State
) -> tuple[NDArray[np.int32], NDArray[np.int64], tuple[NDArray[np.int32], NDArray[np.int32]], State]:
    """Tokenise several texts. Text i is `text[bounds[i]:bounds[i + 1]]` in code points.

    Returns the token ids of all texts in order, the number of tokens per text, where each new token begins and ends,
    and the grown state.
    """
    slots, arena, used, count = state
    room = len(text) + 1  # no more tokens than code points; untouched pages cost nothing
    ids, codes = np.empty(room, np.int32), np.empty(room, np.uint64)
    begins, ends = np.empty(room, np.int32), np.empty(room, np.int32)
    counts = np.empty(len(bounds) - 1, np.int64)
    total = 0
    for number in range(len(bounds) - 1):
        before = total
        first, stop = bounds[number], bounds[number + 1]
        place = first
        while place < stop:
            begin, finish, place = _next(text, table, first, place, stop)
            while begin < finish:
                end = min(finish, begin + MAX_TOKEN)
                code = np.uint64(14695981039346656037)  # FNV-1a over code points
                for letter in range(begin, end):
                    code = (code ^ np.uint64(text[letter])) * np.uint64(1099511628211)
                begins[total], ends[total], codes[total] = begin, end, code ^ (code >> np.uint64(29))
                total += 1
                begin = end
        counts[number] = total - before
    fresh = 0
    # Separate from the scan, so that the processor can wait for many look-ups at once.
    for index in range(total):
        start, past, code = int(begins[index]), int(ends[index]), codes[index]
        known, slot = _find(text, start, past, code, slots, arena)
        ids[index] = known
        if known < 0:
            ids[index] = count
            begins[fresh], ends[fresh] = start, past  # these positions are already read
            fresh += 1
            need = used + _HEADER + past - start
            while need > len(arena):
                arena = np.concatenate((arena, np.empty_like(arena)))
            slots[slot] = (code & ~_LOW) | np.uint64(used + 1)
            arena[used], arena[used + 1] = count, past - start
            arena[used + 2], arena[used + 3] = np.uint32(code & _LOW), np.uint32(code >> _HALF)
            arena[used + _HEADER : need] = text[start:past]
            used = need
            count += 1
            if 2 * count > len(slots):  # at most half full
                slots = _grown(slots, arena, used)
    news = begins[:fresh].copy(), ends[:fresh].copy()
    return ids[:total].copy(), counts, news, (slots, arena, used, count)
