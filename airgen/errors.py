"""The errors that airgen raises. A message says what was wrong, where, and what to do. The command `airgen` prints
it on one line and exits with the error's `exit_code`.
"""

import errno
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path


class AirgenError(Exception):
    """Base class of all errors that airgen raises."""

    exit_code = 1
    was_printed = False  # a log has already reported it, so the command line does not print it again

    def reword(self, words: Callable[[str], str]) -> None:
        """Replace the message, for callers who know other names for what it mentions."""
        self.args = (words(str(self)),)

    def _render_traceback_(self) -> list[str]:
        """Show only the message in a notebook, without a traceback."""
        return [f"{type(self).__name__}: {line}" for line in str(self).splitlines()]


class UsageError(AirgenError):
    """Arguments are invalid or contradict each other."""

    exit_code = 2


class SettingsError(AirgenError):
    """One or more problems in a YAML file, all reported at once.

    `problems` holds one line each: `file:line: path: what is wrong (did you mean ...?)`.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(self.problems))

    def reword(self, words: Callable[[str], str]) -> None:
        """Replace each problem."""
        self.problems = [words(problem) for problem in self.problems]
        self.args = ("\n".join(self.problems),)


class MissingExtra(AirgenError):
    """A package required by an optional feature is not installed."""

    def __init__(self, feature: str, package: str, extra: str) -> None:
        self.package, self.command = package, f"pip install 'airgen-bench[{extra}]'"
        super().__init__(f"{feature} needs the package {package}: {self.command}")


class FetchError(AirgenError):
    """A download failed, is damaged, or does not match its checksum."""


class CorpusError(AirgenError):
    """A corpus cannot be read or used."""


class PromptError(AirgenError):
    """A prompt template is missing, malformed, or was given the wrong variables."""


class StoreError(AirgenError):
    """The work database cannot be opened or written."""


class ModelError(AirgenError):
    """A local model is missing, incomplete, or does not have the expected hash."""


class LlmError(AirgenError):
    """An LLM endpoint refuses permanently, or all of its answers are rejected. The message quotes the server."""


class DatasetError(AirgenError):
    """A dataset directory, run file or qrels file cannot be used."""


class TrainingError(AirgenError):
    """Training cannot start or continue. The message says how far it got and which setting to change."""


class Stopped(AirgenError):
    """The job stopped cleanly; the same command resumes it."""

    exit_code = 3


class BudgetSpent(Stopped):
    """The next call could have exceeded the budget, so it was not sent."""


def disk_error(error: OSError, kind: type[AirgenError] = AirgenError) -> AirgenError:
    """Convert an operating system error into a one-line error that says what failed, where, and what to do."""
    reason = error.strerror or str(error) or type(error).__name__
    if error.errno == errno.ENOENT and not error.filename and _is_gone():
        return kind("the current folder no longer exists: change to another one")
    where = f"{error.filename}: " if error.filename else ""
    advice = next((words for codes, words in _ADVICE.items() if error.errno in codes), "")
    if error.errno in DISK_FULL and tempfile.tempdir and str(error.filename).startswith(tempfile.tempdir):
        advice = (
            f"free some space in {tempfile.tempdir}, or set TMPDIR to another folder, and run the same command again"
        )
    return kind(f"{where}{reason}" + (f": {advice}" if advice else ""))


def _is_gone() -> bool:
    """Return whether the current folder was removed."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""`OSError` codes for a full disk or an exhausted quota."""

_ADVICE = {
    DISK_FULL: "free some space and run the same command again",
    (errno.EROFS,): "this file system is read-only: choose another folder",
    (errno.EACCES, errno.EPERM): "change the permissions, or choose another folder",
    (errno.ENOTDIR, errno.EEXIST): "a file is in the way of the folder: choose another folder",
    (errno.EISDIR,): "a folder is in the way of the file: move it away",
    (errno.EMFILE,): "too many files are open: raise the limit with `ulimit -n`",
}
