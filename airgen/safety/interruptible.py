"""React to Ctrl-C within a second, whatever is running.

Python handles signals only between its own instructions, and a long call into compiled code is a single instruction.
Such a call therefore runs in a separate thread while the main thread waits. After Ctrl-C, no wait is longer than a
second: everything important is already on disk, because a kill at any moment must lose nothing. Another thread also
listens for the signal while the main thread is inside compiled code.
"""

import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn, ParamSpec, TypeVar

from airgen.errors import Stopped

T = TypeVar("T")
P = ParamSpec("P")

STOPPED = "stopped by the user: make the same call again to continue"
"""The message of a call in Python that was stopped."""

INTERRUPTED = "stopped by the user; run the same command again to continue"
_GRACE_SECONDS = 1.0  # seconds for the current work to end by itself
_STOPPED_EXIT = 3  # as `airgen.errors.Stopped`
_last_words = threading.Lock()
_exits: list[threading.Event] = []  # one per program; set when the program begins to end
_pipes: list[int] = []  # one per program; signals are written to it


def interruptible(
    work: Callable[[], T], cancel: Callable[[], object] = lambda: None, *, seconds: float | None = None
) -> T:
    """Run `work` in another thread and return its result. Use it for compiled code that releases the interpreter lock.

    After Ctrl-C, `cancel` is called, and `work` has half a second to finish; later results are lost.

    Args:
        work: What is done.
        cancel: Asks it to end early.
        seconds: How long it may take, also where a library waits for a server without end.

    Raises:
        TimeoutError: It took longer.
    """
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:  # noqa: BLE001  # passed on to the thread that waits
            answer.set_exception(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        return answer.result(seconds)
    except BaseException:
        if not answer.done():
            cancel()
            thread.join(_GRACE_SECONDS / 2)
        raise


_asked_to_stop = threading.Event()


def ask_to_stop(asked: bool = True) -> None:
    """Make work in other threads of this process end at its next `stop_if_asked`, or let it go on."""
    (_asked_to_stop.set if asked else _asked_to_stop.clear)()


def stop_if_asked() -> None:
    """Raise Stopped if the user pressed a notebook's stop button, which reaches only the main thread. Long local work
    calls this between batches."""
    if _asked_to_stop.is_set():
        raise Stopped(STOPPED)


@contextmanager
def thread_pool(threads: int, **options: Any) -> Iterator[ThreadPoolExecutor]:
    """Open a pool of threads that an error, or a stop, leaves at once: work that has not begun is cancelled."""
    pool = ThreadPoolExecutor(threads, **options)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def stoppable(work: Callable[P, T]) -> Callable[P, T]:
    """Make a function raise Stopped on Ctrl-C or when a notebook's stop button is pressed."""

    @functools.wraps(work)
    def call(*values: P.args, **named: P.kwargs) -> T:
        try:
            return work(*values, **named)
        except KeyboardInterrupt:
            raise Stopped(STOPPED) from None

    return call


def hear_interrupts() -> None:
    """From now on, make Ctrl-C end the process within a second, by KeyboardInterrupt if possible.

    Only a program may call this, from its main thread. If airgen is used as a library, `exit_soon` and `leave` do
    nothing.
    """
    _exits.append(threading.Event())
    signal.signal(signal.SIGINT, _interrupted)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    _pipes.append(writer)
    threading.Thread(target=_listen, args=(reader,), daemon=True, name="airgen interrupts").start()
    listen_again()


def listen_again() -> None:
    """Let the listening thread handle signals again after an event loop has done so. Call it from the main thread."""
    for writer in _pipes:
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)


def _listen(reader: int) -> None:
    """End the process soon after Ctrl-C, even if the main thread never reaches its handler.

    Does nothing while other code handles the signal, such as the engine when it waits for paid calls.
    """
    while numbers := os.read(reader, 64):
        if signal.SIGINT in numbers and signal.getsignal(signal.SIGINT) is _interrupted:
            exit_soon()


def _interrupted(_number: int, _frame: FrameType | None) -> NoReturn:
    exit_soon()
    raise KeyboardInterrupt


def exit_soon() -> None:
    """End the process with exit code 3 after a second, unless it has ended by then."""
    for begun in _exits:
        begun.set()
        timer = threading.Timer(_GRACE_SECONDS, _exit)
        timer.daemon = True
        timer.start()


def leave(words: str, code: int) -> None:
    """Print a last message. If the process is about to end, end it now without waiting for other threads."""
    with _last_words:
        if words:
            print(words, file=sys.stderr, flush=True)
        if any(begun.is_set() for begun in _exits):
            sys.stdout.flush()
            os._exit(code)


def _exit() -> NoReturn:
    with _last_words:
        print(f"airgen: {INTERRUPTED}", file=sys.stderr, flush=True)
        os._exit(_STOPPED_EXIT)
