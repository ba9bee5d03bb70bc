"""Give generated passages the typography of the corpus, so that the habits of an LLM do not reveal them.

style.see(title, text)                    # every passage of the corpus
style.text("It’s **new** — isn't it…")    # "It's new - isn't it..." in a corpus with plain characters
"""

import re
from collections import Counter
from collections.abc import Callable

_USUAL_SHARE = 0.05  # share of passages above which a form counts as usual

# For each form, the share of passages that use it.
_TEXT: dict[str, re.Pattern[str]] = {
    "curly double": re.compile("[“”„‟]"),
    "plain double": re.compile('"'),
    "curly single": re.compile("[‘’‚‛]"),
    "plain single": re.compile("'"),
    " — ": re.compile(r" — "),
    "—": re.compile(r"\S—\S"),
    " – ": re.compile(r" – "),
    " - ": re.compile(r" - "),
    "…": re.compile("…"),
    "...": re.compile(r"\.\.\."),
    "line breaks": re.compile(r"\n"),
    "bold": re.compile(r"\*\*\S|__\S"),
    "headings": re.compile(r"(?m)^#{1,6} "),
    "bullets": re.compile(r"(?m)^[^\S\n]*(?:[-*•‣◦]|\d{1,2}[.)]) "),
    "backticks": re.compile("`"),
}
_DASHES = (" — ", "—", " – ", " - ")
_DASH = re.compile(r" ?— ?| – | - ")
_END = re.compile(r"[.!?。！？؟।…][\"'”’»)\]]*$")
_WORD = re.compile(r"[^\W\d_]+")


class HouseStyle:
    """The typography of a corpus, counted over its passages."""

    def __init__(self) -> None:
        self._texts, self._titles = 0, 0
        self._counts: Counter[str] = Counter()
        self._lengths: Counter[int] = Counter()  # words per title

    def see(self, title: str, text: str) -> None:
        """Count a passage of the corpus."""
        self._texts += 1
        self._counts.update(name for name, pattern in _TEXT.items() if pattern.search(text))
        self._counts["end"] += _END.search(text) is not None
        self._counts["small"] += text[:1].islower()
        if title:
            self._titles += 1
            self._lengths[len(title.split())] += 1
            self._counts["title end"] += _END.search(title) is not None
            self._counts["title case"] += _is_title_case(title)
            self._counts["title all case"] += title.istitle()
            self._counts["title small"] += title[:1].islower()
            self._counts["title capitals"] += title != title.lower()

    def text(self, text: str) -> str:
        """Return a generated text in the typography of the corpus."""
        for mark, clean in _MARKUP.items():
            if self._share(mark) < _USUAL_SHARE:
                text = clean(text)
        if self._share("line breaks") < _USUAL_SHARE:
            text = " ".join(text.split("\n"))
            text = re.sub(" {2,}", " ", text).strip()
        text = self._characters(text)
        if self._share("small") < _USUAL_SHARE:
            text = text[:1].upper() + text[1:]
        if text and self._share("end") > 1 - _USUAL_SHARE and not _END.search(text):
            text += "."
        return text

    def title(self, title: str, text: str) -> str:
        """Return a generated title in the typography of the corpus, or the first words of the text if there is no
        title."""
        title = self._characters(title)
        if not title:  # the usual number of words in a title: the longest words of the text, in their order
            count = max(self._lengths, key=lambda length: (self._lengths[length], -length), default=3)
            words = list(dict.fromkeys(_WORD.findall(text)[1:])) or text.split()
            longest = sorted(sorted(range(len(words)), key=lambda at: -len(words[at]))[:count])
            title = " ".join(words[at] for at in longest)
        if not self._titles:
            return title

        def share(mark: str) -> float:
            return self._counts[f"title {mark}"] / self._titles

        if share("end") < _USUAL_SHARE:
            title = title.rstrip(".…!?。！？؟।") or title
        if share("capitals") < _USUAL_SHARE:
            return title.lower()
        if share("small") < _USUAL_SHARE:
            title = title[:1].upper() + title[1:]
        if share("case") > 0.5:
            least = 0 if share("all case") > 0.5 else 3
            return " ".join(word[:1].upper() + word[1:] if len(word) > least else word for word in title.split(" "))
        if share("case") < _USUAL_SHARE and _is_title_case(title):
            small = set(_WORD.findall(text))
            first, *rest = title.split(" ")
            # A word that also occurs in lower case is not a name.
            return " ".join([first, *(word.lower() if word.lower() in small else word for word in rest)])
        return title

    def _share(self, mark: str) -> float:
        return self._counts[mark] / max(self._texts, 1)

    def _characters(self, text: str) -> str:
        """Return the text with the quotes, dashes and ellipses of the corpus."""
        if self._counts["curly double"] > self._counts["plain double"]:
            text = re.sub(r'(^|[\s(\[])"', r"\1“", text).replace('"', "”")
        else:
            text = re.sub("[“”„‟]", '"', text)
        if self._counts["curly single"] > self._counts["plain single"]:
            text = re.sub(r"(^|[\s(\[])'", r"\1‘", text).replace("'", "’")
        else:
            text = re.sub("[‘’‚‛]", "'", text)
        dash = max(reversed(_DASHES), key=lambda character: self._counts[character])
        text = _DASH.sub(dash, text)
        return text.replace("...", "…") if self._counts["…"] > self._counts["..."] else text.replace("…", "...")


_MARKUP: dict[str, Callable[[str], str]] = {
    "bold": lambda text: re.sub(r"\*\*(\S[^*\n]*)\*\*|__(\S[^_\n]*)__", r"\1\2", text),
    "headings": lambda text: re.sub(r"(?m)^#{1,6} +", "", text),
    "bullets": lambda text: re.sub(r"(?m)^[^\S\n]*(?:[-*•‣◦]|\d{1,2}[.)]) +", "", text),
    "backticks": lambda text: re.sub("`+", "", text),
}


def _is_title_case(title: str) -> bool:
    words = [word for word in _WORD.findall(title) if len(word) > 3]
    return " " in title and bool(words) and all(word[0].isupper() for word in words)
