"""Handle Ctrl-C and SIGTERM during calls to models: the calls in flight finish, and the job can be resumed."""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator
from functools import partial

from airgen.llms.engine import Engine
from airgen.safety.interruptible import exit_soon, listen_again

_WAKE_SECONDS = 0.2


@contextlib.contextmanager
def stopping_on_signals(engine: Engine) -> Iterator[threading.Event]:
    """Let the calls in flight finish after Ctrl-C or SIGTERM. Without such calls, or after a second signal, the process
    ends soon."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = signal.getsignal(signal.SIGINT)
    # asyncio.run's own handler only cancels the main task, and a task group that is just ending suppresses that.
    second = signal.default_int_handler if isinstance(before, partial) else before
    stopping = threading.Event()

    def release() -> None:
        for number in signals:
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                if loop.remove_signal_handler(number) and number == signal.SIGINT:
                    signal.signal(number, second)
        with contextlib.suppress(ValueError):  # not the main thread
            listen_again()

    def wake() -> None:
        """Check for a second interrupt: if another thread received it, nothing else wakes this thread."""
        loop.call_later(_WAKE_SECONDS, wake)

    def stop() -> None:
        stopping.set()
        release()
        wake()
        if not engine.busy:
            exit_soon()
        engine.stop("stopped by the user: run the same command again to continue")

    try:
        for number in signals:
            loop.add_signal_handler(number, stop)
    except (NotImplementedError, RuntimeError, ValueError):  # Windows, or not the main thread
        pass
    try:
        yield stopping
    finally:
        release()
