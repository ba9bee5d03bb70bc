"""One retry policy for everything, based on tenacity: growing pauses with jitter, or as long as the server asks.

    found = retrying(ask, 5, is_temporary)                                   # a function
    found = await retrying_async(ask, 5, is_temporary, first=30, longest=300)  # a coroutine function

Only the queue of LLM calls differs (`airgen.llms.call_queue`): a pausing call gives back its slot and its reserved
budget, so the queue itself waits, for `spread_pause` seconds.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tenacity import RetryCallState

T = TypeVar("T")

Passes = Callable[[BaseException], bool]
"""A function that says whether an error may be temporary."""


def retrying(
    work: Callable[[], T],
    tries: int | Callable[[int, BaseException], bool],
    passes: Passes,
    *,
    first: float = 1.0,
    longest: float = 60.0,
    requested_wait: Callable[[BaseException], float] = lambda error: 0.0,
    say: Callable[[BaseException, float], object] = lambda error, pause: None,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Repeat the work until it succeeds.

    Args:
        work: The function to call.
        tries: The maximum number of attempts, or a function of the attempt's number and its error that returns whether
            to stop.
        passes: Returns whether to retry after an error.
        first: Length of the first pause in seconds; each further pause is twice as long.
        longest: The maximum length of a pause, in seconds.
        requested_wait: Returns the seconds that the server asks to wait, read from the error.
        say: Called with the error and the seconds before each pause.
        sleep: Function that waits for a number of seconds.

    Returns:
        The return value of `work`.

    Raises:
        Exception: The error of the last attempt.
    """
    from tenacity import Retrying

    options = _options(tries, passes, first=first, longest=longest, requested_wait=requested_wait, say=say)
    return Retrying(sleep=sleep, **options)(work)


async def retrying_async(
    work: Callable[[], Awaitable[T]],
    tries: int | Callable[[int, BaseException], bool],
    passes: Passes,
    *,
    first: float = 1.0,
    longest: float = 60.0,
    requested_wait: Callable[[BaseException], float] = lambda error: 0.0,
) -> T:
    """Retry a coroutine function in the same way, in an event loop."""
    from tenacity import AsyncRetrying

    async def tried() -> T:  # tenacity awaits only coroutine functions
        return await work()

    options = _options(
        tries, passes, first=first, longest=longest, requested_wait=requested_wait, say=lambda error, pause: None
    )
    return await AsyncRetrying(**options)(tried)


def spread_pause(attempt: int, first: float, longest: float) -> float:
    """Return how many seconds one of many calls that fail together pauses after an attempt, counted from 1.

    It is half to one and a half times as long as `first`, which doubles with each attempt up to `longest`, so that the
    calls do not return together.
    """
    from tenacity import RetryCallState, wait_exponential, wait_random_exponential

    state = RetryCallState(None, None, (), {})  # type: ignore[arg-type]  # a wait looks only at the attempt's number
    state.attempt_number = attempt
    spread = wait_random_exponential(multiplier=first, max=longest)
    return (wait_exponential(multiplier=first / 2, max=longest / 2) + spread)(state)


def _options(
    tries: int | Callable[[int, BaseException], bool],
    passes: Passes,
    *,
    first: float,
    longest: float,
    requested_wait: Callable[[BaseException], float],
    say: Callable[[BaseException, float], object],
) -> dict[str, Any]:
    from tenacity import retry_if_exception, wait_exponential, wait_random

    growing = wait_exponential(multiplier=first, max=longest) + wait_random(0, first / 2)

    def error_of(state: RetryCallState) -> BaseException:
        error = state.outcome.exception() if state.outcome else None
        assert error is not None
        return error

    def enough(state: RetryCallState) -> bool:
        if isinstance(tries, int):
            return state.attempt_number >= tries
        return tries(state.attempt_number, error_of(state))

    return {
        "retry": retry_if_exception(passes),
        "stop": enough,
        "wait": lambda state: max(growing(state), requested_wait(error_of(state))),
        "before_sleep": lambda state: say(error_of(state), state.next_action.sleep if state.next_action else 0.0),
        "reraise": True,
    }
