"""The secret of a dataset, on which public ids, splits and the order of rows depend, so that private labels stay
private.

It is an input: the same rows and the same secret give the same bytes. It is stored in the job's `secret.key` (mode
0600) and in the dataset's `private/secret.key`, and never in a public file, a log, a row or an error.

Splits follow appendix A.4 of the paper. For QA, dev to test is 1:4 by a hash of the query's key, so a query keeps its
split when others are added. For Long-Doc, one whole dataset per domain is dev, and the others are test; earlier
decisions are kept.
"""

import hashlib
import hmac
import math
import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from airgen.components.keys import text_key
from airgen.errors import DatasetError
from airgen.storage.whole_files import whole_file

SECRET_FILE = "secret.key"
_SECRET_BYTES = 32  # bytes
_ID_DIGITS = 15  # hex digits: 60 bits


class Secret:
    """32 random bytes, and values derived from them with HMAC-SHA256. The repr shows only the public name."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        if len(key) != _SECRET_BYTES:
            raise ValueError(f"a secret has {_SECRET_BYTES} bytes, not {len(key)}")
        self._key = key

    def __repr__(self) -> str:
        return f"Secret({self.name})"

    def text(self, *parts: str) -> str:
        """Return the HMAC of the parts as 64 hex digits."""
        message = "\x1f".join(parts).encode("utf-8", "surrogatepass")
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()

    @property
    def name(self) -> str:
        """Return the public name: 16 hex digits by which the parts of a dataset recognise each other."""
        return self.text("name")[:16]

    @property
    def hex(self) -> str:
        """Return the secret itself as 64 hex digits, for its file."""
        return self._key.hex()


def new_secret() -> Secret:
    """Draw a secret from the system's random number generator."""
    return Secret(secrets.token_bytes(_SECRET_BYTES))


def load_secret(path: Path) -> Secret:
    """Read a secret from a file. Raises DatasetError, without showing the content, if it is not 64 hex digits."""
    try:
        return Secret(bytes.fromhex(path.read_text(encoding="ascii").strip()))
    except PermissionError as error:
        raise DatasetError(
            f"{path} cannot be read: {error.strerror}: it is only for {_owner(path)}, who can share the report with "
            "you, or let a group work on the job (chmod g+r)"
        ) from error
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError:
        raise DatasetError(
            f"{path} does not hold {2 * _SECRET_BYTES} hex digits: put the file back from a copy or from the private "
            "repository"
        ) from None


def _owner(path: Path) -> str:
    try:
        return path.owner()
    except (OSError, KeyError, NotImplementedError):  # the user has no name, or the system no owners
        return "its owner"


def write_secret(path: Path, secret: Secret) -> None:
    """Write a secret atomically to a file that only its owner can read.

    Raises FileExistsError if the file exists, because a secret is never replaced.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as fresh:
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secret.hex + "\n")
            file.flush()
            os.fsync(handle)
        if path.exists():
            raise FileExistsError(path)
        with suppress(PermissionError, NotImplementedError):  # a file system without links has the renaming alone
            os.link(fresh, path)  # fails if another process was faster; renaming a file to its own link does nothing


def secret_of(dataset: Path) -> Secret | None:
    """Return the secret of a whole dataset or of its private part, or None if it has no secret."""
    path = dataset / "private" / SECRET_FILE
    return load_secret(path) if path.is_file() else None


def opaque_document_id(dataset: str, id_: str, secret: Secret | None) -> str:
    """Return the public id of a document. Without a secret, anyone can compute it."""
    if secret is None:
        return "d" + text_key(f"{dataset}\x1f{id_}")[:_ID_DIGITS]
    return "d" + secret.text(dataset, "document", id_)[:_ID_DIGITS]


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def split_of(query_key: str, ratios: Mapping[str, int]) -> str:
    """Return the split of a query, which depends only on its key and the ratios, not on their order.

    Raises ValueError for ratios that are negative or sum to 0.
    """
    total = sum(ratios.values())
    if total <= 0 or min(ratios.values()) < 0:
        raise ValueError(f"split ratios {dict(ratios)} must be whole numbers, at least one above 0")
    place = _hash(f"split\x1f{query_key}") % total
    for name in sorted(ratios):
        place -= ratios[name]
        if place < 0:
            return name
    raise AssertionError("unreachable: the ratios sum to the total")


def exact_splits(sources: Sequence[str], ratios: Mapping[str, int], place: Callable[[str], str]) -> dict[str, str]:
    """Assign sources to splits in exactly the requested ratio (appendix A.4: 346 to 1,385 of 1,731).

    Sources are processed in blocks whose size is the sum of the ratio (5 for 1:4). `place` decides which source of a
    block goes where, so a full block never changes when more sources follow. The last, shorter block gets what is
    missing from the rounded counts, and its sources may move while it fills.

    Args:
        sources: The sources, in an order to which further sources are only appended.
        ratios: The ratio of each split: whole numbers, of which at least one is positive.
        place: Function that returns the position of a source. If it depends on a secret, others cannot compute it.

    Returns:
        The split of each source.

    Raises:
        ValueError: A ratio is negative, or the ratios sum to 0.
    """
    if not ratios or min(ratios.values()) < 0 or not sum(ratios.values()):
        raise ValueError(f"split ratios {dict(ratios)} must be whole numbers, at least one above 0")
    divisor = math.gcd(*ratios.values())
    counts = {name: ratio // divisor for name, ratio in sorted(ratios.items())}
    size = sum(counts.values())
    result: dict[str, str] = {}
    for first in range(0, len(sources), size):
        block = sorted(sources[first : first + size], key=lambda source: (place(source), source))
        quotas = counts if len(block) == size else _rounded(counts, size, len(block))
        names = [name for name, quota in quotas.items() for _ in range(quota)]
        result |= dict(zip(block, names, strict=True))
    return result


def _rounded(counts: Mapping[str, int], size: int, total: int) -> dict[str, int]:
    """Round shares of `total` by rounding up the largest remainders and, among equal remainders, the larger share."""
    quotas = {name: count * total // size for name, count in counts.items()}
    missing = total - sum(quotas.values())
    order = sorted(counts, key=lambda name: (-(counts[name] * total % size), -counts[name], name))
    return {name: quota + (name in order[:missing]) for name, quota in quotas.items()}


def long_doc_splits(
    datasets: Iterable[tuple[str, str]], earlier: Mapping[tuple[str, str], str] | None = None
) -> dict[tuple[str, str], str]:
    """Return the split of each Long-Doc dataset, given as (domain, name): one dev dataset per domain, the others test.

    The decisions in `earlier` are kept. In a domain without dev, the new dataset with the lowest hash becomes dev,
    unless the domain has only one dataset, which is needed for test.
    """
    decided = dict(earlier or {})
    wanted = sorted(set(datasets))
    result = {pair: decided[pair] for pair in wanted if pair in decided}
    for domain in sorted({domain for domain, _ in wanted}):
        members = [pair for pair in wanted if pair[0] == domain]
        new = [pair for pair in members if pair not in decided]
        has_dev = any(split == "dev" for pair, split in decided.items() if pair[0] == domain)
        if not has_dev and len(members) > 1 and new:
            dev = min(new, key=lambda pair: (_hash(f"long-doc\x1f{pair[0]}\x1f{pair[1]}"), pair))
            result[dev] = "dev"
        for pair in new:
            result.setdefault(pair, "test")
    return result
