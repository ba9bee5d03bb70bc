"""The analyser of a component: chosen by its settings, and made for the language of the corpus."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import WrapValidator

from airgen.retrievers.base import Component
from airgen.text.analysis import Analyser, AnalyserSettings
from airgen.text.analysis import analyser as make_analyser


def _made_or_settings(value: Any, check: Any) -> Any:
    return value if isinstance(value, Analyser) else check({} if value is None else value)


class Analysing(Component):
    """A component that splits texts into terms."""

    class Settings(Component.Settings):
        """`analyser`: settings such as {stem: false}; in Python also an Analyser."""

        analyser: Annotated[AnalyserSettings, WrapValidator(_made_or_settings)] = AnalyserSettings()

    settings: Settings
    _analyser: Analyser | None = None

    @property
    def analyser(self) -> Analyser:
        """The analyser in use; that of the corpus's language once a corpus was seen, before that English."""
        return self._analyser or self.analyser_for("en")

    def analyser_for(self, language: str) -> Analyser:
        """The analyser that the settings ask for."""
        chosen: AnalyserSettings | Analyser = self.settings.analyser
        if isinstance(chosen, Analyser):
            return chosen
        return make_analyser(language, self.folder, **dict(chosen))

    def fix_language(self, language: str) -> Analyser:
        """From now on use the analyser of this language, unless one is in use already."""
        self._analyser = self._analyser or self.analyser_for(language)
        return self._analyser
