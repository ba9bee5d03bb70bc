"""Select a part of a document, in whole sentences, for a model that reads slowly.

excerpt("Wings\\n\\nA wing bends. It has ribs.", "en")           # the beginning
excerpt(text, "en", rng(key, "part"))                          # a part that the generator draws
"""

import re
from random import Random

from airgen.settings.languages import SPACELESS

LETTERS, LETTERS_SPACELESS = 1200, 420  # of a part: some 200 words
_SENTENCE = re.compile(r"(?<=[.!?؟۔।])\s+(?=[^\s])|(?<=[。！？])|\n+")


def excerpt(document: str, language: str, random: Random | None = None) -> str:
    """Return the title and a part of the text, of at most `LETTERS` characters: its beginning, or a part drawn by
    `random`.

    If the sentences are too long, a part ends in the middle of a sentence.
    """
    most = LETTERS_SPACELESS if language in SPACELESS or language in ("ja", "zh") else LETTERS
    title, blank, text = document.partition("\n\n")
    if not blank or len(title) > most // 4:
        title, text = "", document
    if len(text) <= most * 1.25:
        return document
    starts = [0, *(match.end() for match in _SENTENCE.finditer(text))]
    ends = [*starts[1:], len(text)]
    last = [start for start in starts if len(text) - start >= most // 2]
    start = 0 if random is None else random.choice(last or [0])
    fitting = [end for end in ends if start < end <= start + most]
    part = text[start : fitting[-1] if fitting and fitting[-1] - start >= most // 3 else start + most].strip()
    return f"{title}{blank}{part}" if title else part
