"""Run a program in its own process, which a test may kill: `python -c CODE WORDS` without the time for imports.

Children are forks of a server that has only imported airgen: it has one thread, no open files from tests, and no
monkeypatches.
"""

import multiprocessing
import os
import signal
import sys
import traceback
from dataclasses import dataclass
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import IO

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["pytest", "airgen.cli", "airgen.job.run_job", "airgen.storage.store"])


class Child:
    """A running program. `with start(...) as child` kills what is still running at the end."""

    def __init__(self, code: str, words: tuple[object, ...], cwd: Path | None, env: dict[str, str]) -> None:
        ends = [os.pipe(), os.pipe()]
        files = [DupFd(write) for _, write in ends]
        told = (code, [str(word) for word in words], cwd or Path.cwd(), {**os.environ, **env})
        self._process = _SERVER.Process(target=_program, args=(*told, *files), daemon=True)
        self._process.start()
        for _, write in ends:
            os.close(write)
        self.stdout, self.stderr = (os.fdopen(read, encoding="utf-8") for read, _ in ends)

    @property
    def returncode(self) -> int | None:
        """The exit code, once it has ended; -9 after SIGKILL."""
        return self._process.exitcode

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the program if it is running, and wait for it; its output is discarded."""
        self._process.kill()
        self.wait()
        self._close()

    def _close(self) -> None:
        self.stdout.close()
        self.stderr.close()

    def wait(self, seconds: float = 300) -> int:
        """Wait for the program, and return its exit code."""
        self._process.join(seconds)
        assert self._process.exitcode is not None, "it does not end"
        return self._process.exitcode

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        if sys.exc_info()[0] is not None:
            self._process.kill()
        self.wait()
        self._close()


AIRGEN = "import sys\nfrom airgen.cli import main\nmain(sys.argv[1:])"


def start(code: str, *words: object, cwd: Path | None = None, **env: str) -> Child:
    """Start a program. `words` are its `sys.argv[1:]`, and `env` is added to the environment."""
    return Child(code, words, cwd, env)


@dataclass(frozen=True)
class Ended:
    """The output of a program, and its exit code."""

    returncode: int
    stdout: str
    stderr: str


def finish(code: str, *words: object, cwd: Path | None = None, **env: str) -> Ended:
    """Run a program to its end. Its standard error must fit into a pipe."""
    with start(code, *words, cwd=cwd, **env) as child:
        out, err = child.stdout.read(), child.stderr.read()
    return Ended(child.wait(), out, err)


def kill_at_line(number: int, code: str, *words: object, **env: str) -> None:
    """Kill a program as soon as it has written `number` lines to standard output."""
    with start(code, *words, **env) as child:
        for _ in range(number):
            assert child.stdout.readline(), child.stderr.read()
        child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL


def _program(code: str, words: list[str], cwd: Path, env: dict[str, str], out: DupFd, err: DupFd) -> None:
    for number, file in ((1, out), (2, err)):
        end = file.detach()
        os.dup2(end, number)
        os.close(end)
    sys.stdout, sys.stderr = (_writer(number) for number in (1, 2))
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["-c", *words]
    try:
        exec(compile(code, "<child>", "exec"), {"__name__": "__main__"})
        end = 0
    except SystemExit as leave:
        end = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    except BaseException:  # noqa: BLE001  # as an interpreter ends
        traceback.print_exc()
        end = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(end)


def _writer(number: int) -> IO[str]:
    return os.fdopen(number, "w", buffering=1, encoding="utf-8", closefd=False)
