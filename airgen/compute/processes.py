"""Workers that are processes of this machine, each with its share of the cores.

A worker is `python -m airgen.compute.worker`: it shares nothing with this process, which may hold locks and threads,
and the user's own script is not run a second time. Calls and answers are pickles on its standard input and output.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from airgen.compute.calls import Returned, Worker, WorkerLost
from airgen.compute.threads import cores, thread_limits
from airgen.compute.worker_pool import WorkerPool
from airgen.settings.compute import ComputeSettings


class Processes(WorkerPool):
    """`workers` processes."""

    def __init__(self, settings: ComputeSettings) -> None:
        super().__init__(settings.batch_seconds)
        self.workers = settings.workers or cores()
        self._threads = settings.cpus_per_worker or max(1, cores() // self.workers)

    def start(self) -> list[Worker]:
        """All processes at once."""
        return [self.start_one() for _ in range(self.workers)]

    def start_one(self) -> Worker:
        """One process."""
        return _Process(self._threads)


class _Process(Worker):
    def __init__(self, threads: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "airgen.compute.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **thread_limits(threads), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        # The thread waits for the answer of one call; the next call waits for the thread.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="airgen worker")
        self.ready = self._thread.submit(self._hello)

    def _hello(self) -> None:
        self._read()

    def send(self, make: bytes, batch: list[Any]) -> Future[Returned]:
        """See `Worker`."""
        return self._thread.submit(self._call, make, batch)

    def _call(self, make: bytes, batch: list[Any]) -> Returned:
        call = pickle.dumps((make, batch), protocol=5)
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(call)
            self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise WorkerLost(self._end()) from error
        found = self._read()
        assert isinstance(found, Returned)
        return found

    def _read(self) -> Any:
        try:
            assert self._process.stdout is not None
            return pickle.load(self._process.stdout)
        except (EOFError, OSError, ValueError, pickle.UnpicklingError) as error:
            raise WorkerLost(self._end()) from error

    def _end(self) -> str:
        code = self._process.wait()
        return f"process {self._process.pid} ended with " + (f"signal {-code}" if code < 0 else f"exit code {code}")

    def kill(self) -> None:
        """See `Worker`."""
        self._process.kill()
        self._thread.shutdown(wait=True, cancel_futures=False)
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):  # what was not written would go to a process that is dead
                assert pipe is not None
                pipe.close()
        self._process.wait()
