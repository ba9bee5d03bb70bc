"""The browser of the tests itself: a page that does what it must not do makes a test fail."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

PAGE = """<!doctype html>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'unsafe-inline' http: https: file:">
<title>A page</title>
<p id="at">here</p>
<script>%s</script>
"""


def write(folder: Path, script: str = "") -> Path:
    path = folder / "page.html"
    path.write_text(PAGE % script, encoding="utf-8")
    return path


PROBLEMS = {
    "console.error('a failure')": "console: a failure",
    "setTimeout(() => { throw new Error('nobody caught it') })": "error: nobody caught it",
    "Promise.reject(new Error('nobody waited'))": "error: nobody waited",
    "new Image().src = 'http://example.com/x.png'": "outside: http://example.com/x.png",
    "new Image().src = 'https://127.0.0.1:9/x.png'": "outside: https://127.0.0.1:9/x.png",
    "const one = document.createElement('script'); one.src = 'missing.js'; document.head.append(one)":
        "console: Failed to load resource: net::ERR_FILE_NOT_FOUND",
    "const one = document.createElement('p'); one.style = 'color: red'; eval('1')":
        "error: Evaluating a string as JavaScript violates",
}  # fmt: skip


def test_problems_are_seen_and_jobs_use_asyncio_beside_a_browser(browse: Any, loopback: Any, tmp_path: Path) -> None:
    for script, problem in PROBLEMS.items():
        page = browse(write(tmp_path, script))
        browse.until(page, lambda problem=problem: any(one.startswith(problem) for one in browse.problems))
        browse.problems.clear()
    page = browse(write(tmp_path), color_scheme="dark", viewport={"width": 390, "height": 844})
    assert page.evaluate("[innerWidth, matchMedia('(prefers-color-scheme: dark)').matches]") == [390, True]

    async def answer() -> int:
        return 42

    with pytest.raises(RuntimeError, match="running event loop"):
        asyncio.run(refused := answer())
    refused.close()
    with browse.aside():
        assert asyncio.run(answer()) == 42
    assert page.inner_text("#at") == "here" and browse.problems == []
    # One address of this machine can be inside.
    server = loopback()
    browse.open_to(server.root)
    assert browse(server.root + "/stats").inner_text("body")
    assert not [one for one in browse.problems if one.startswith("outside")]
    browse.problems = []  # the server has no favicon
