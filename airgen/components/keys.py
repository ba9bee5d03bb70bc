"""Keys: the identity of a piece of work, and the identity of content.

>>> content_key({"b": 1, "a": "é"}) == content_key({"a": "é", "b": 1})
True
>>> len(content_key("anything"))
32

A row's key is `row_key(stage, parent, fingerprint, ordinal)`. It identifies the work, not its result, so pending work
is an anti-join, and no table has a status column. All sampling is seeded with such keys (`rng`), never by order of
arrival, so that concurrency and resuming do not change the result.
"""

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

_CANONICAL = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_HASH_BYTES = 16  # bytes of BLAKE2b: 128 bits, collision-free for any corpus that fits on a disk


def canonical_json(value: object) -> str:
    """Encode as JSON with sorted keys and no spaces: equal values give equal text.

    Raises ValueError for NaN and infinity, and TypeError for other values that JSON does not have.
    """
    return _CANONICAL.encode(value)


def text_key(text: str) -> str:
    """Return the 128-bit BLAKE2b hash of a text, as 32 hex digits. Lone surrogates are allowed."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES).hexdigest()


def key_of_pieces(pieces: Iterable[str]) -> str:
    """Return `text_key` of the joined pieces, holding only one of them in memory."""
    total = hashlib.blake2b(digest_size=_HASH_BYTES)
    for piece in pieces:
        total.update(piece.encode("utf-8", "surrogatepass"))
    return total.hexdigest()


def content_key(value: object) -> str:
    """Return the key of any JSON value: `text_key` of its canonical JSON."""
    return text_key(canonical_json(value))


def file_sha256(path: Path, progress: Callable[[int], object] | None = None) -> str:
    """Return the SHA-256 of a file in hex; `progress` is called with the bytes of each block read."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
            if progress:
                progress(len(block))
    return digest.hexdigest()


def fingerprint(**parts: object) -> str:
    """Hash everything that a stage's output depends on besides its input: template text, model, parameters and version.

    Timeouts, retries, concurrency and base URLs must never be among the parts.
    """
    return content_key(parts)[:16]


def row_key(stage: str, parent: str, fingerprint: str, ordinal: int = 0) -> str:
    """Return the key of a row: a hash of its stage, parent, fingerprint and ordinal."""
    return text_key(f"{stage}\x1f{parent}\x1f{fingerprint}\x1f{ordinal}")


def rng(*parts: object) -> random.Random:
    """Return a generator seeded by the parts alone: the same parts give the same draws on any machine.

    Mappings are converted to canonical JSON, all other values with `str`.
    """
    text = "\x1f".join(canonical_json(part) if isinstance(part, Mapping) else str(part) for part in parts)
    return random.Random(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=_HASH_BYTES).digest(), "big"))
