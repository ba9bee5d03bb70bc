"""A real Chromium for tests of pages, driven by Playwright.

    def test_a_page(browse, tmp_path):
        page = browse(tmp_path / "index.html")          # a file, or an address on this machine
        page.get_by_role("button", name="Save").click()

A test fails if one of its pages logs or raises an error, or requests anything external: only `file:`, `data:`, `blob:`
and the address of `open_to` are allowed. A test removes problems that it provokes on purpose from `browse.problems`.

One browser serves all tests of a process, and each page has a fresh profile. Between tests, Playwright's event loop is
hidden, so that jobs can call `asyncio.run`. Within a test, run the job first, or inside `browse.aside()`.
"""

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

__all__ = ["browse", "browser", "chromium"]

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--disable-dev-shm-usage", "--disable-gpu")
SECONDS = 20  # for anything that a page is waited for; it is hit only by a failure


def chromium() -> str | None:
    """Return the browser for tests: AIRGEN_CHROMIUM, or the first of the usual names on PATH."""
    return os.environ.get("AIRGEN_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A Chromium and Playwright's event loop, which runs only while a page is driven."""

    def __init__(self, program: str) -> None:
        from playwright.sync_api import sync_playwright

        self._manager = sync_playwright()
        driver = self._manager.start()
        self.chromium = driver.chromium.launch(executable_path=program, args=list(FLAGS))
        self._driver, self._loop = driver, asyncio.get_running_loop()

    @contextmanager
    def aside(self, away: bool = True) -> Iterator[None]:
        """Hide Playwright's event loop from asyncio in the block; with `away=False`, show it."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(None if away else self._loop)
        try:
            yield
        finally:
            asyncio._set_running_loop(before)

    def end(self) -> None:
        self.chromium.close()
        self._driver.stop()


class Browse:
    """Opens pages, each in its own profile, and records their problems."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self.aside = browser.aside
        self.problems: list[str] = []
        self.origins: list[str] = []
        self._open: list[Any] = []

    def __call__(self, where: Path | str, **options: Any) -> Any:
        """Open a new page at a file or address. `options` are those of a Playwright browser context, such as
        color_scheme or viewport."""
        page = self.context(**options).new_page()
        page.goto(where.resolve().as_uri() if isinstance(where, Path) else where)
        return page

    def open_to(self, address: str) -> None:
        """Allow requests to the host and port of this address."""
        self.origins.append("{0.scheme}://{0.netloc}".format(urlsplit(address)))

    def context(self, **options: Any) -> Any:
        """Create a fresh profile without cookies or storage, and with its own downloads."""
        context = self._browser.chromium.new_context(**{"viewport": {"width": 1440, "height": 900}, **options})
        self._open.append(context)
        context.set_default_timeout(SECONDS * 1000)
        context.on("console", self._said)
        context.on("weberror", lambda error: self.problems.append(f"error: {error.error}"))
        context.on("request", self._asked)
        context.route(lambda address: not self._inside(address), lambda route: route.abort())
        return context

    def until(self, page: Any, condition: Callable[[], bool]) -> None:
        """Let the page run until a condition holds; raises AssertionError after SECONDS."""
        end = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < end, f"it did not come: {self.problems}"
            page.wait_for_timeout(10)

    def close(self) -> None:
        """Close all pages, adding their last messages to `problems`."""
        for context in self._open:
            context.close()

    def _said(self, message: Any) -> None:
        if message.type == "error":
            self.problems.append(f"console: {message.text}")

    def _asked(self, request: Any) -> None:
        if not self._inside(request.url):
            self.problems.append(f"outside: {request.url}")

    def _inside(self, address: str) -> bool:
        parts = urlsplit(address)
        return parts.scheme in ("file", "data", "blob") or f"{parts.scheme}://{parts.netloc}" in self.origins


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Provide a real Chromium; tests that need it are skipped if there is none."""
    program = chromium()
    if program is None:
        pytest.skip("no Chromium is installed (AIRGEN_CHROMIUM names one elsewhere)")
    pytest.importorskip("playwright")
    started = Browser(program)
    asyncio._set_running_loop(None)
    yield started
    with started.aside(away=False):
        started.end()


@pytest.fixture
def browse(browser: Browser) -> Iterator[Browse]:
    """Open pages; the test fails if `Browse.problems` is not empty at the end."""
    pages = Browse(browser)
    with browser.aside(away=False):
        yield pages
        pages.close()
    assert pages.problems == []
