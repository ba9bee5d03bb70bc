"""Split a text into sentences, in any language: `sentences("He left. It rained.", "en")`."""

from functools import cache

import regex

# The ends of sentences. A full-width or Indic stop always ends a sentence. A Latin or Arabic stop does so only before a
# space, so that 3.5 and example.org remain whole.
_CLOSE = r"[\"'”’»›)\]）」』】〉》]*+"
_LOOSE = rf"(?<![.!?։۔؛…])[.!?։۔؛…]++{_CLOSE}(?=\s)"
_BREAKS = {
    "zh": rf"[。！？｡…；]++{_CLOSE}|{_LOOSE}",
    "ja": rf"[。！？｡…]++{_CLOSE}|{_LOOSE}",
    "th": rf"{_LOOSE}|(?<=\p{{LB=SA}})\s{{2,}}",
}
_DEFAULT = rf"[。！？｡؟।॥]++{_CLOSE}|{_LOOSE}"
_PARAGRAPH = r"\n\s*\n"
# A full stop after these does not end a sentence. Initials and forms like `e.g.` are recognised by their shape.
_ABBREVIATIONS = regex.compile(
    r"(?:^|[\s(\[“\"])(?:\p{L}|(?:\p{L}\.)+\p{L}|Mr|Mrs|Ms|Dr|Prof|St|Mt|Jr|Sr|vs|etc|cf|al|ca|approx|[Ff]igs?|[Ee]qs?"
    r"|[Ss]ec|[Cc]h|[Vv]ol|pp|eds?|Gen|Col|Sgt|Rev|Hon|Inc|Ltd|Co|Corp|Nr|Bd|bzw|usw|evtl|ggf|Abs|Art|Abb|Hr|Fr|Sra"
    r"|Sr|Dra|Ud|Uds|núm|pág|Mme|Mlle|MM|г|гг|им|т|ул|стр|руб|тыс|млн|млрд|см|др|проф|dll|dsb|dst|hlm|Jl|Bpk)$"
)
_NUMBERED = regex.compile(r"(?:^|\s)(?:[Nn]os?|[Aa]rts?)$")  # `no.` is an abbreviation only before a number


@cache
def _breaks(language: str) -> regex.Pattern[str]:
    return regex.compile(rf"(?:{_BREAKS.get(language, _DEFAULT)})|{_PARAGRAPH}")


def sentences(text: str, language: str) -> list[str]:
    """Return the stripped, non-empty sentences of `text` in order, which together contain all its visible characters.

    Sentences end with the terminators of each language (。？！ ؟ ۔ । ॥) or at a blank line.
    """
    pieces, start = [], 0
    for stop in _breaks(language).finditer(text):
        if stop[0].rstrip("\"'”’»›)]").endswith(".") and _is_abbreviation(text, start, stop.start(), stop.end()):
            continue
        pieces.append(text[start : stop.end()].strip())
        start = stop.end()
    pieces.append(text[start:].strip())
    return [sentence for sentence in pieces if sentence]


def _is_abbreviation(text: str, start: int, stop: int, end: int) -> bool:
    """Return whether the full stop at `stop` belongs to an abbreviation or to an ordinal before a lower-case word."""
    after = text[end : end + 40].lstrip()[:1]
    if after.islower():
        return True
    before = text[max(start, stop - 24) : stop]
    return bool(_ABBREVIATIONS.search(before) or (after.isdigit() and _NUMBERED.search(before)))
