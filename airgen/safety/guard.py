"""Guard calls of third-party code: turn any exception into a one-line error, so that everything else continues.

    with guarded("my_module:MyRetriever"):
        retriever.search(queries, 10)

A KeyError in line 12 of my_module.py is now a ModelError: "my_module:MyRetriever: my_module.py:12: KeyError: 'id'".
Calls of components (`Component`), readers, judges, users' functions and trainers are guarded. airgen's own errors pass
unchanged, because they already say what to do.
"""

import functools
import os
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from airgen.errors import DISK_FULL, AirgenError, ModelError, disk_error
from airgen.safety.mask_secrets import printable

P = ParamSpec("P")
T = TypeVar("T")

_MESSAGE_CHARACTERS = 300  # maximum characters of a foreign message
_PLACE_CHARACTERS = 200  # and of a path or the name of a class
_OWN = str(Path(__file__).parents[1]) + os.sep
_STDLIB = str(Path(sysconfig.get_path("stdlib"))) + os.sep
_INSTALLED = ("site-packages", "dist-packages")
_NO_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "cublas_status_alloc_failed",
    "failed to allocate memory",
    "unable to allocate",
)


@contextmanager
def guarded(
    subject: str, kind: type[AirgenError] = ModelError, *, passing: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Run third-party code, and turn any exception into one line with the subject, the location and the reason.

    airgen's errors, those in `passing`, Ctrl-C and task cancellation pass through. `SystemExit` does not, because no
    component may end the program.

    Args:
        subject: What the error is about; the message begins with it.
        kind: Class of the error to raise instead.
        passing: Exception classes to pass through unchanged.

    Raises:
        AirgenError: The code failed. The error is an instance of `kind`.
    """
    passing_errors: tuple[type[Exception], ...] = (AirgenError, *passing)
    try:
        yield
    except passing_errors as error:
        if isinstance(error, AirgenError) and not _can_be_shown(error):
            raise failure(error, subject, kind) from None
        raise
    except BaseException as error:
        if _ends_the_work(error):
            raise
        # A class that fails when it is shown would fail again as the cause.
        raise failure(error, subject, kind) from (error if _can_be_shown(error) else None)


def _ends_the_work(error: BaseException) -> bool:
    """Return whether an error ends the work itself, and is not a part's failure.

    If no event loop is running, nothing in airgen can be cancelled or closed in the middle of a call, so the
    cancellation or the exit of a generator comes from the called part.
    """
    import asyncio  # slow, and needed only here

    if _is(error, asyncio.CancelledError, GeneratorExit):
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return False
        return True
    return _is(error, KeyboardInterrupt)


def guarded_rows(rows: Callable[[], Iterable[T]], subject: str, kind: type[AirgenError] = ModelError) -> Iterator[T]:
    """Yield rows from third-party code, requesting each under the guard. The consumer of the rows is not guarded."""
    with guarded(subject, kind):
        iterator = iter(rows())
    while True:
        with guarded(subject, kind):
            try:
                row = next(iterator)
            except StopIteration:
                return
        yield row


def under_guard(method: Callable[P, T], subject: Callable[[Any], str]) -> Callable[P, T]:
    """Wrap a method so that it runs under the guard; `subject` names its object."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with guarded(subject(args[0])):
            return method(*args, **kwargs)

    return call


def failure(error: BaseException, subject: str, kind: type[AirgenError] = ModelError) -> AirgenError:
    """Convert an exception of third-party code to an airgen error of class `kind`, with one line.

    The exception may be of any class, whose methods and attributes may fail, too.
    """
    for words in (_reason, _place_and_class):
        try:
            return kind(f"{subject}: {words(error)}")
        except BaseException:  # noqa: BLE001  # it was the error's own class that failed
            continue
    return kind(f"{subject}: it raised an error that cannot be shown")


def _reason(error: BaseException) -> str:
    if is_out_of_memory(error):
        return f"out of memory ({_describe(error)}): lower batch_size or max_length, or set dtype: bf16"
    if _is(error, OSError):
        assert isinstance(error, OSError)
        if error.filename is not None or error.errno in DISK_FULL:
            return printable(str(disk_error(error)), _MESSAGE_CHARACTERS)
    if _is(error, SystemExit):
        assert isinstance(error, SystemExit)
        return f"{_place(error)}it called sys.exit({printable(f'{error.code!r:.40}')})"
    return f"{_place(error)}{_describe(error)}"


def _place_and_class(error: BaseException) -> str:
    return f"{_place(error)}{_class_name(error)}"


def _is(error: BaseException, *kinds: type[BaseException]) -> bool:
    """Return whether the error is of one of these classes. `isinstance` would believe what its `__class__` says."""
    return issubclass(type(error), kinds)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether the machine or a GPU ran out of memory. torch words this error in several ways."""
    if _is(error, MemoryError):
        return True
    return _is(error, RuntimeError) and any(words in _text(error).lower() for words in _NO_MEMORY)


def _describe(error: BaseException) -> str:
    """Return the class and message of an error on one line."""
    words = printable(_text(error), _MESSAGE_CHARACTERS)
    return f"{_class_name(error)}: {words}" if words else _class_name(error)


def _class_name(error: BaseException) -> str:
    return printable(type.__dict__["__name__"].__get__(type(error)), _PLACE_CHARACTERS)  # a metaclass may hide it


def _text(error: BaseException) -> str:
    try:
        return str.__str__(str(error))  # a subclass of str may have methods of its own
    except BaseException:  # noqa: BLE001  # the user's own class may fail even here
        return ""


def _can_be_shown(error: BaseException) -> bool:
    try:
        return isinstance(str(error), str) and bool(error.__class__)
    except BaseException:  # noqa: BLE001
        return False


def _place(error: BaseException) -> str:
    """Return where an error was raised, followed by a colon: the innermost user file, otherwise the library or the
    innermost frame."""
    trace = traceback.walk_tb(BaseException.__getattribute__(error, "__traceback__"))
    frames = [(frame.f_code.co_filename, line) for frame, line in trace]
    frames = [(file, line) for file, line in frames if not file.startswith("<") and file != __file__]
    if _is(error, SyntaxError):
        assert isinstance(error, SyntaxError)
        if isinstance(error.filename, str) and error.filename:
            frames.append((error.filename, error.lineno or 0))
    places = [(file, line) for file, line in frames if _library(file) is None and not file.startswith((_OWN, _STDLIB))]
    if not places and frames and (library := _library(frames[-1][0])):
        return f"in {library}: "
    shown = (places or frames)[-1:]
    return "".join(f"{printable(_display_path(file), _PLACE_CHARACTERS)}:{line}: " for file, line in shown)


def _library(file: str) -> str | None:
    """Return the name of the installed package to which a file belongs."""
    parts = Path(file).parts
    at = next((parts.index(name) for name in _INSTALLED if name in parts[:-1]), None)
    return None if at is None else parts[at + 1].removesuffix(".py")


def _display_path(file: str) -> str:
    """Return a file's path relative to the working directory if it is inside, and relative to the package for airgen's
    own modules."""
    if file.startswith(_OWN):
        return str(Path("airgen", Path(file).relative_to(_OWN)))
    try:
        return str(Path(file).resolve().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file
