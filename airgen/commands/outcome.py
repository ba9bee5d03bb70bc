"""What a command returns: a value for programs, text for people, and how the shell ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from airgen.errors import AirgenError
from airgen.study import Study

T = TypeVar("T")

WORSE, UNSURE = 4, 5  # exit codes of gates: a score is worse or too low, or there are too few queries to tell


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """The result of a command: a value for programs, and text for people.

    Attributes:
        value: What the Python function returns.
        text: What the command prints: text, lines, or a study.
        json: What `--json` prints, if not the value.
        code: The exit code of the shell.
        error: Raised once the result is printed. In Python it is raised unless the value has a field `failed`, which
            tells the caller the same.
        hidden: Print nothing, not even JSON.
    """

    value: T
    text: str | Sequence[str] | Study = ""
    json: Any = None
    code: int = 0
    error: AirgenError | None = None
    hidden: bool = False

    @property
    def printed(self) -> str:
        """The text as one string."""
        if isinstance(self.text, Study):
            return self.text.text()
        return self.text if isinstance(self.text, str) else "\n".join(self.text)
