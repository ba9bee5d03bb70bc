"""The thinking that a model writes before its answer: taken out of the text, and counted.

split_thinking("<think>Is it 2? Yes.</think>\n2")      # ("2", "Is it 2? Yes.")
split_thinking("<think>Is it 2? Or")                   # ("", "Is it 2? Or"): cut off while it was thinking
split_thinking("Is it 2? Yes.</think>2")               # ("2", "Is it 2? Yes."): the template wrote the first tag
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["first_of_answer", "split_thinking"]

_OPEN = re.compile(r"(?<!\s)\s*(?:<(think|thinking|thought)>|\[(THINK)\])", re.IGNORECASE)
_CLOSED = {tag: re.compile(rf"</{tag}>|\[/{tag}\]", re.IGNORECASE) for tag in ("think", "thinking", "thought")}
_ANY_CLOSED = re.compile(r"</(?:think|thinking|thought)>|\[/THINK\]", re.IGNORECASE)
_ANSWERS = ("{", "[", '"', "```")  # an answer that begins so may quote a closing tag; thinking does not begin so


def split_thinking(text: str) -> tuple[str, str]:
    """The answer without the thinking before it, and the thinking. Tags inside an answer are left alone."""
    place, thinking = 0, []
    while opening := _OPEN.match(text, place):
        closing = _CLOSED[(opening[1] or opening[2]).lower()].search(text, opening.end())
        thinking.append(text[opening.end() : closing.start() if closing else None])
        place = closing.end() if closing else len(text)
    if not thinking and not text.lstrip().startswith(_ANSWERS) and (closing := _ANY_CLOSED.search(text)):
        thinking.append(text[: closing.start()])
        place = closing.end()
    return (text[place:].lstrip(), "\n".join(thinking)) if thinking else (text, "")


def first_of_answer(answer: str, tokens: Sequence[str]) -> int:
    """The place of the first token that belongs to the answer, behind the thinking; `len(tokens)` if none is it."""
    wanted, length, place = answer.strip(), 0, len(tokens)
    while place and length < len(wanted):
        place -= 1
        length += len(tokens[place].strip() if length == 0 else tokens[place])
    return place if wanted and "".join(tokens[place:]).strip() == wanted else len(tokens)
