"""Errors by their fields: most tests do not care how a message is worded."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from airgen.errors import AirgenError


@contextmanager
def refused(kind: type[AirgenError], code: str, *names: str, where: object = "") -> Iterator[None]:
    """Expect an error of this kind and code that has these among its names, and `where` in its place."""
    with pytest.raises(kind) as caught:
        yield
    error = caught.value
    assert (error.code, [name for name in names if name not in error.names]) == (code, []), str(error)
    assert str(where) in error.where, str(error)
