"""What a command returns: a value for programs, text for people, and the exit code."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from airgen.display.study import Study
from airgen.errors import AirgenError

T = TypeVar("T")

WORSE, UNSURE = 4, 5  # exit codes of gates: a score is worse or too low, or there are too few queries for a decision


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """The result of a command: a value for programs, and text for people.

    Attributes:
        value: What the Python function returns.
        text: What the command prints: text, lines, or a study.
        json: What `--json` prints, if not the value.
        code: The exit code of the shell.
        error: Error to raise after the result is printed. In Python, it is raised unless the value has a field
            `failed`, which gives the same information.
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
        """Return the text as one string."""
        if isinstance(self.text, Study):
            return self.text.text()
        return self.text if isinstance(self.text, str) else "\n".join(self.text)
