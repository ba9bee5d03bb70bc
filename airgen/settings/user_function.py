"""Settings that refer to a user's function or object by its name and version.

{kind: python, name: my_search, version: 5c9e0f12ab34cd56, place: "mine:my_search"}
"""

from pathlib import Path
from typing import Annotated, Any

from airgen.components.user_functions import find
from airgen.errors import UsageError
from airgen.settings.base import SPEED, Settings

PYTHON = "python"
"""The kind of a component, system, judge or backend that is a user's function."""


class OwnSettings(Settings):
    """Identity of a Python function, as returned by `airgen.components.user_functions.named`.

    Attributes:
        place: `module:name`, if another process can import it.
    """

    name: str
    version: str
    place: Annotated[str, SPEED] = ""

    def missing(self, folder: Path | None) -> list[str]:
        """Return one line if the function is neither known to this process nor importable."""
        try:
            self.found(folder)
        except UsageError as error:
            return [str(error)]
        return []

    def found(self, folder: Path | None = None) -> Any:
        """Return the function or object itself. Raises UsageError."""
        return find(self.name, self.version, self.place, folder)
