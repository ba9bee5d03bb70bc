"""What a user's judge, backend, stage or reader returns is checked where it is called; the error names the part."""

import asyncio
import dataclasses
import math
from collections.abc import Iterator
from typing import Any, cast

import pytest

from airgen.corpus.requirements import read_documents
from airgen.errors import AirgenError, CorpusError, LlmError
from airgen.llms.base import Backend, Reply, Request
from airgen.steps.judge import Verdict, _checked
from airgen.steps.step import Problem, Step
from airgen.storage.records import Document, Sample


class Liar:
    """An object that passes for a verdict."""

    __class__ = Verdict  # type: ignore[assignment]


ODD = [None, 10**400, math.nan, "text", [[1]], object(), {"a": 1}, b"x", (1, 2), Verdict, Reply, True, Liar(), [None]]


async def replying(value: Any) -> Reply:
    """Call a user's backend that returns this."""

    class Odd(Backend):
        async def send(self, request: Request) -> Reply:
            return cast(Reply, value)

    return await Odd().send(Request("m", ()))


@pytest.mark.parametrize("value", ODD)
def test_anything_but_what_a_part_must_return_is_named(value: Any) -> None:
    async def work(parent: Any, tools: Any) -> Any:
        return value

    step = Step("subject", reads=(), writes=Sample, version=1, work=work)
    for call in (
        lambda: asyncio.run(replying(value)),
        lambda: asyncio.run(step.run(cast(Any, None), cast(Any, None))),
        lambda: _checked(value, "mine:Judge"),
    ):
        with pytest.raises(
            AirgenError, match=r"(:Odd: send|^stage subject: work|^judge mine:Judge: read) returned .* but"
        ):
            call()


@pytest.mark.parametrize("value", [*ODD, Document(cast(Any, 3), "x"), Document("a", cast(Any, None))])
def test_what_a_reader_yields_is_checked(value: Any) -> None:
    class Odd:
        def read(self) -> Iterator[Any]:
            yield Document("a", "some words")
            yield value

    rows = read_documents(cast(Any, Odd()))
    assert next(rows) == Document("a", "some words")
    with pytest.raises(CorpusError, match=r"^reader tests\..*:.*Odd: read yielded "):
        next(rows)


def test_fields_of_other_types_are_named() -> None:
    for changes in ({"text": None}, {"text": b"x"}, {"finish_reason": 3}):
        with pytest.raises(LlmError, match=r":Odd: the text and the finish_reason"):
            asyncio.run(replying(dataclasses.replace(Reply("x"), **changes)))
    for counts in ({"prompt_tokens": math.nan}, {"cached_tokens": True}, {"thinking_tokens": "9"}):
        assert asyncio.run(replying(dataclasses.replace(Reply("x", completion_tokens=7), **counts))).estimated
    for values in (("2",), (2.0,), (True,), (None,), (2, "high"), (2, None, 3)):
        with pytest.raises(LlmError, match=r"^judge mine:Judge: a Verdict needs an int"):
            _checked(Verdict(*cast(Any, values)), "mine:Judge")
    for numbers in ((4,), (-1,), (10**400,), (2, math.nan), (2, 1.5), (2, math.inf), (2, 10**400)):
        assert isinstance(_checked(Verdict(*numbers), "mine:Judge"), Problem)
    assert _checked(Verdict(3, 1, "why"), "mine:Judge") == Verdict(3, 1, "why")
