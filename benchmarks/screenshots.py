"""Take screenshots of a report's pages, light and dark, 1440 and 390 pixels wide.

    python benchmarks/screenshots.py runs/quickstart/report/index.html screenshots
    python benchmarks/screenshots.py report/index.html screenshots --page /d0/systems --page /d0/compare/bm25/minilm

Without --page: the first page, and the queries, the first query, the systems and the two best of each dataset. It needs
Playwright and a Chromium (`--browser`).
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

THEMES, WIDTHS = ("light", "dark"), (1440, 390)


def pages_of(page: Any) -> list[str]:
    """Return the addresses of a report's pages, according to its data."""
    datasets = page.evaluate(
        """async () => Promise.all((await get("report")).datasets.map(async (one) => ({
            key: one.key, has: one.has,
            query: one.has.includes("queries") ? (await get(`${one.key}/queries`)).id[0] : null,
            best: one.has.includes("systems")
                ? (await get(`${one.key}/systems`)).boards[0].systems.slice(0, 2).map((system) => system.name) : [],
        })))"""
    )
    found = ["/"]
    for one in datasets:
        link = "({parts}) => link(...parts).slice(1)"
        parts = [[one["key"], name] for name in ("queries", "systems") if name in one["has"]]
        parts += [[one["key"], "query", one["query"]]] if one["query"] else []
        parts += [[one["key"], "compare", *one["best"]]] if len(one["best"]) == 2 else []
        found += [page.evaluate(link, {"parts": each}) for each in parts]
    return found


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--page", action="append")
    parser.add_argument("--browser", default=shutil.which("chromium") or shutil.which("google-chrome"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    index = given.report.resolve().as_uri()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=given.browser)
        for theme in THEMES:
            for width in WIDTHS:
                context = browser.new_context(
                    viewport={"width": width, "height": 900 if width > 600 else 844}, color_scheme=theme
                )
                page = context.new_page()
                page.goto(index)
                page.wait_for_selector("main:not([aria-busy]) h1")
                for address in given.page or pages_of(page):
                    page.goto(f"{index}#{address}")
                    page.wait_for_selector("main:not([aria-busy]) h1")
                    page.wait_for_timeout(200)
                    name = "-".join(part for part in address.split("/") if part) or "overview"
                    path = given.out / f"{name[:60]}-{width}-{theme}.png"
                    page.screenshot(path=str(path))
                    print(path)
                context.close()
        browser.close()


if __name__ == "__main__":
    main()
