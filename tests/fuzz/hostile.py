"""Hostile inputs that every reader gets as they are, and what Hypothesis makes of good ones.

`broken(seed)` is a strategy: the bytes of a good file with pieces cut out, doubled, replaced, or put in from HOSTILE.
"""

import gzip
import io
import os
import time
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hypothesis import settings
from hypothesis import strategies as st

# `make test` tries some examples of each, `make nightly` many; `make fuzz` those of its profile (tests/conftest.py),
# again and again.
FUZZING = bool(os.environ.get("AIRGEN_FUZZ"))
few = settings() if FUZZING else settings(max_examples=15)

DEEP = 100_000 if FUZZING else 2_000
CPU_SECONDS = 10.0


@contextmanager
def quick() -> Iterator[None]:
    """Fails where one example of `make fuzz` takes more CPU time than any of these inputs may.

    It is no measurement: what grows faster than its input takes minutes for some of them.
    """
    began = time.process_time()
    yield
    seconds = time.process_time() - began
    assert not FUZZING or seconds < CPU_SECONDS, f"{seconds:.1f} s of CPU time for one input"


HOSTILE: list[bytes] = [
    b"",
    b"\x00",
    b"\xff\xfe\x00",
    b"\xef\xbb\xbf",
    b"\x1b[2J\x1b]0;owned\x07",
    "\u202egnp.exe \u2028 \u0085 \ufeff".encode(),
    b"\xed\xa0\x80",  # a lone surrogate, in a form that is not UTF-8
    rb'{"_id": "a", "text": "\ud800"}',
    b"[" * DEEP,
    b'{"a":' * DEEP,
    b"- " * 3_000,
    b"{a: " * 3_000,
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"9" * 5_000,
    b"0x_",
    b"2026-13-45",
    b"!!python/object/apply:os.system [ls]",
    b"&a [*a]",
    b"a: &a [1]\nb: {<<: *a}",
    b"? [a]\n: b",
    b"{{ 7 * 7 }}{% include '/etc/passwd' %}",
    b"../../../../etc/passwd",
    b"<!DOCTYPE x [<!ENTITY a SYSTEM 'file:///etc/passwd'>]><x>&a;</x>",
    b"<" * 3_000,
    b"%PDF-1.7\n1 0 obj\n<< /Length 99999999999 >>\nstream",
    b'"' + b"a," * 3_000,
    b"\x1f\x8b",
    b"\x1f\x8b\x08\x00" + b"\x00" * 30,
    gzip.compress(b'{"_id": "a", "text": "b"}\n')[:-6],
    gzip.compress(b"x" * 100)[:12] + b"\xff" * 20,
    zlib.compress(b"x" * 100),
    b"PK\x03\x04",
    b"PK\x05\x06" + b"\x00" * 18,
    b"a\tb\t" + b"9" * 5_000,
    b"q Q0 d 1 nan tag",
    b"q Q0 d 1 1e39 tag",
    b"q\td\tinf",
]


def archive(*entries: tuple[str, bytes]) -> bytes:
    """A zip with these entries."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in entries:
            file.writestr(name, data)
    return out.getvalue()


@st.composite  # here, because hypothesis parses the source of each function that it makes a strategy of
def _mutated(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.sampled_from([0, 1, 2, 7, 40])))
        piece = draw(
            st.sampled_from([b"", data[start:end] * 2, *(one for one in HOSTILE if len(one) < 200)])
            | st.binary(max_size=8)
        )
        data = data[:start] + piece + data[end:]
    return data


def broken(*seeds: bytes) -> st.SearchStrategy[bytes]:
    """Good files with up to four pieces changed, and any bytes at all."""
    return _mutated(seeds) | st.sampled_from(HOSTILE) | st.binary(max_size=60)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**400, -(10**60), 2**63])
    | st.floats()
    | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def replaced(draw: st.DrawFn, value: object, paths: st.SearchStrategy[object] = JSON) -> object:
    """A JSON value in which some parts, wherever they are, stand for other JSON."""

    def walk(part: object) -> object:
        if draw(st.integers(0, 9)) == 0:
            return draw(paths)
        if isinstance(part, dict):
            return {key: walk(child) for key, child in part.items() if draw(st.integers(0, 19))}
        if isinstance(part, list):
            return [walk(child) for child in part]
        return part

    return walk(value)
