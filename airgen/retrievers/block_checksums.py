"""Checksums of a file's blocks: they name what a disk or a copy has damaged."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

BLOCK = 4 * 1024 * 1024  # bytes
_NAMED = 5  # of damaged blocks, in a message


def block_checksums(path: Path) -> list[int]:
    """The CRC-32 of each 4 MB of a file, the last of what is left."""
    return list(_checksums(path))


def damaged_blocks(path: Path, wanted: Sequence[int]) -> str:
    """Which blocks do not match `wanted`, in words, with the bytes that they begin at; empty where all match.

    Raises nothing: a file that cannot be read is damaged.
    """
    try:
        found = block_checksums(path)
    except OSError as error:
        return f"cannot be read ({error.strerror or error})"
    if len(found) != len(wanted):
        return f"has {len(found)} blocks instead of {len(wanted)}"
    bad = [place for place, pair in enumerate(zip(found, wanted, strict=True)) if pair[0] != pair[1]]
    named = ", ".join(f"{place} (from byte {place * BLOCK:,})" for place in bad[:_NAMED])
    rest = f" and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
    return f"{'block' if len(bad) == 1 else 'blocks'} {named}{rest} damaged" if bad else ""


def _checksums(path: Path) -> Iterator[int]:
    with path.open("rb") as file:
        while piece := file.read(BLOCK):
            yield zlib.crc32(piece)
