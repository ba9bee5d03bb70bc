"""The secret of a dataset: ids, splits and order of what is published depend on it, so private labels stay private.

    secret = load_secret(Path("runs/NAME/secret.key"))
    secret.text("query", row_key)                # 64 hex digits that nobody computes without the secret

The secret is an input: the same rows and the same secret give the same bytes. It lies in `secret.key` (mode 0600) of
the job and in `private/secret.key` of the dataset, and never in a public file, a log, a row or an error.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

from airgen.dataset.atomic import whole_file
from airgen.errors import DatasetError
from airgen.keys import text_key

SECRET_FILE = "secret.key"
_SIZE = 32  # bytes
_ID_LENGTH = 15  # hex digits: 60 bits


class Secret:
    """32 random bytes, and what is derived from them with HMAC-SHA256. Its repr shows the public name alone."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        if len(key) != _SIZE:
            raise ValueError(f"a secret has {_SIZE} bytes, not {len(key)}")
        self._key = key

    def __repr__(self) -> str:
        return f"Secret({self.name})"

    def text(self, *parts: str) -> str:
        """The HMAC of the parts: 64 hex digits."""
        message = "\x1f".join(parts).encode("utf-8", "surrogatepass")
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()

    @property
    def name(self) -> str:
        """16 hex digits by which the parts of one dataset recognise each other. They can be public."""
        return self.text("name")[:16]

    @property
    def hex(self) -> str:
        """The secret itself as 64 hex digits, for its file."""
        return self._key.hex()


def new_secret() -> Secret:
    """A fresh secret from the system's random numbers."""
    return Secret(secrets.token_bytes(_SIZE))


def load_secret(path: Path) -> Secret:
    """Read a secret's file. Raises DatasetError, without its content, if it does not hold 64 hex digits."""
    try:
        return Secret(bytes.fromhex(path.read_text(encoding="ascii").strip()))
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError:
        raise DatasetError(
            f"{path} does not hold {2 * _SIZE} hex digits: put the file back from a copy or from the private repository"
        ) from None


def write_secret(path: Path, secret: Secret) -> None:
    """Write a secret's file that only its owner can read, whole or not at all.

    Raises FileExistsError if there is one: a secret is never replaced.
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
    """The secret of a whole dataset or of its private part; None for a dataset without one."""
    path = dataset / "private" / SECRET_FILE
    return load_secret(path) if path.is_file() else None


def opaque_document_id(dataset: str, own: str, secret: Secret | None) -> str:
    """The public id of the document with this id in the corpus. Without a secret anyone can compute it."""
    if secret is None:
        return "d" + text_key(f"{dataset}\x1f{own}")[:_ID_LENGTH]
    return "d" + secret.text(dataset, "document", own)[:_ID_LENGTH]
