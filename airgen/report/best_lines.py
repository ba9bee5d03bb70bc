"""Find the lines of a passage that contain the most words of a query, to show them first.

best = BestLines("how long does a token live", stopwords)
best.start("Tokens ... (a page) ... A token lives for an hour.", 400)     # where the last sentence begins
"""

import re
from collections.abc import Collection

from airgen.text.near_duplicates import folded_words

_SHORTEST_STEM_LETTERS = 4  # minimum letters of a word that also matches longer words with the same beginning
_BREAK_CHARACTERS = 120  # maximum characters back to the beginning of a sentence
_BREAK = re.compile(r"[.!?。！？]\s+|\n")


class BestLines:
    """The words of a query except stop words. Each counts once in a window."""

    def __init__(self, query: str, stopwords: Collection[str], language: str = "en") -> None:
        words = [word for word in dict.fromkeys(folded_words(query, language)) if word not in stopwords]
        stems = dict.fromkeys(word[: max(_SHORTEST_STEM_LETTERS, len(word) - 2)] for word in words)
        self._words = (
            re.compile("|".join(map(re.escape, sorted(stems, key=len, reverse=True))), re.I) if stems else None
        )

    def start(self, text: str, length: int) -> int:
        """Return where the window of `length` characters with the most query words begins.

        It begins with a sentence or line if one begins nearby. Returns 0 if the beginning of the text is as good.
        """
        if self._words is None or len(text) <= length:
            return 0
        places = [(match.start(), match[0].casefold()) for match in self._words.finditer(text)]
        best, count, first = 0, 0, 0
        within: dict[str, int] = {}
        for place, word in places:
            within[word] = within.get(word, 0) + 1
            while place - places[first][0] > length * 0.8:
                gone = places[first][1]
                within[gone] -= 1
                if not within[gone]:
                    del within[gone]
                first += 1
            if len(within) > count:
                best, count = places[first][0], len(within)
        if best < length // 2:
            return 0
        before = text[max(0, best - _BREAK_CHARACTERS) : best]
        breaks = [match.end() for match in _BREAK.finditer(before)]
        if breaks:
            return best - len(before) + breaks[-1]
        return best - len(before) + before.find(" ") + 1 if " " in before else best
