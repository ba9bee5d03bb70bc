"""The errors that airgen raises. A message says what was wrong, where, and what to do. The command `airgen` prints
it on one line and exits with the error's `exit_code`.

    except SettingsError as error:
        error.code, error.where, error.names     # "unknown_key", "pipeline.yaml:7", ("name", "task", ...)

Programs and tests ask for these fields, because the wording of a message may change.
"""

import errno
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self


class SettingProblem(str):
    """One line of a message about a setting, `where: setting: words`, with its parts as fields.

    Args:
        words: What is wrong, and what to do.
        code: The kind of problem, such as `missing` or `unknown_key`.
        where: The file and line, or the function, that has the setting; "" if that is known without it.
        setting: The setting, such as `llm.budget_usd`.
        names: As of an `AirgenError`.
    """

    words: str
    code: str
    where: str
    setting: str
    names: tuple[str, ...]

    def __new__(cls, words: str, *, code: str, where: str = "", setting: str = "", names: Iterable[str] = ()) -> Self:
        """Join the parts that are given."""
        problem = super().__new__(cls, ": ".join(filter(None, (where, setting, words))))
        problem.words, problem.code, problem.where, problem.setting = words, code, where, setting
        problem.names = tuple(names)
        return problem

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, Any]]:
        """Copy and pickle the problem with its parts."""
        return (self.words,), {name: getattr(self, name) for name in ("code", "where", "setting", "names")}

    def changed(self, **parts: str) -> "SettingProblem":
        """Return the problem with some other parts."""
        (words,), same = self.__getnewargs_ex__()
        return SettingProblem(**{"words": words, **same, **parts})


class AirgenError(Exception):
    """Base class of all errors that airgen raises.

    Attributes:
        problems: The lines of the message.
        code: The kind of error in one word, such as `unknown_column`; by default, that of its class.
        where: The file, table or function that it is about, with a line or row if there is one.
        names: For `unknown_name`, `unknown_key` and `unknown_column`, the names that would be known; for other codes,
            the names that the error is about.
    """

    exit_code = 1
    code = "failed"
    was_printed = False  # a log has already reported it, so the command line does not print it again

    def __init__(self, message: str = "", *, code: str = "", where: object = "", names: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.problems: list[str] = message.splitlines()
        self.code, self.where, self.names = code or type(self).code, str(where), tuple(names)

    def reword(self, words: Callable[[str], str]) -> None:
        """Replace each line of the message, for callers who know other names for what it mentions."""
        self.problems = [words(problem) for problem in self.problems]
        self.args = ("\n".join(self.problems),)

    def _render_traceback_(self) -> list[str]:
        """Show only the message in a notebook, without a traceback."""
        return [f"{type(self).__name__}: {line}" for line in self.problems]


class UsageError(AirgenError):
    """Arguments are invalid or contradict each other."""

    exit_code = 2
    code = "usage"


class SettingsError(AirgenError):
    """One or more problems in a YAML file, all reported at once.

    `problems` holds one line each: `file:line: path: what is wrong (did you mean ...?)`. `code`, `where` and `names`
    are those of the first `SettingProblem`.
    """

    code = "settings"

    def __init__(self, problems: Sequence[str]) -> None:
        first = next((problem for problem in problems if isinstance(problem, SettingProblem)), None)
        super().__init__("\n".join(problems))
        self.problems = list(problems)
        if first is not None:
            self.code, self.where, self.names = first.code, first.where, first.names

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the problems, from which the rest follows."""
        return type(self), (self.problems,)


class MissingExtra(AirgenError):
    """A package required by an optional feature is not installed."""

    code = "missing_package"

    def __init__(self, feature: str, package: str, extra: str) -> None:
        self.package, self.command = package, f"pip install 'airgen-bench[{extra}]'"
        super().__init__(f"{feature} needs the package {package}: {self.command}", where=feature, names=[package])


class FetchError(AirgenError):
    """A download failed, is damaged, or does not match its checksum."""

    code = "fetch"


class CorpusError(AirgenError):
    """A corpus cannot be read or used."""

    code = "corpus"


class PromptError(AirgenError):
    """A prompt template is missing, malformed, or was given the wrong variables."""

    code = "prompt"


class StoreError(AirgenError):
    """The work database cannot be opened or written."""

    code = "store"


class ModelError(AirgenError):
    """A local model is missing, incomplete, or does not have the expected hash."""

    code = "model"


class LlmError(AirgenError):
    """An LLM endpoint refuses permanently, or all of its answers are rejected. The message quotes the server."""

    code = "llm"


class DatasetError(AirgenError):
    """A dataset directory, run file or qrels file cannot be used."""

    code = "dataset"


class TrainingError(AirgenError):
    """Training cannot start or continue. The message says how far it got and which setting to change."""

    code = "training"


class Stopped(AirgenError):
    """The job stopped cleanly; the same command resumes it."""

    exit_code = 3
    code = "stopped"


class BudgetSpent(Stopped):
    """The next call could have exceeded the budget, so it was not sent."""

    code = "budget_spent"


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
