"""The report of a large dataset: `python benchmarks/report.py`. Needs Chromium and playwright.

A dataset of 10,000 queries and 1,000,000 passages is written, and three runs of 100 hits a query are scored. Printed
are the seconds and the memory of `make_report`, the size of the page and of its data, and in a real browser, from
`file://`: the seconds until the overview and the table of queries are drawn after a fresh start, the milliseconds until
the table is drawn again after a search, a filter and a sort (median and most of several), and the seconds until a
query's page is there.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

from airgen.evaluation import EvaluationOptions, evaluate
from airgen.evaluation.systems import SystemSettings
from airgen.report.report import make_report

WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in ("a", "e", "io", "ou") for c in ("r", "ne", "st", "lling")]
TYPES, STYLES, LENGTHS = ("question", "claim", "problem"), ("casual", "formal", "concise"), ("lt10", "10to20", "ge20")
# Dispatches an event and gives the milliseconds until the table has been drawn again.
DRAWN = """async ([selector, value, event]) => {
  const field = document.querySelector(selector);
  if (value !== null) field.value = value;
  const began = performance.now();
  field.dispatchEvent(event === 'click' ? new MouseEvent('click', {bubbles: true}) : new Event(event, {bubbles: true}));
  await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
  return performance.now() - began;
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--chromium", default=shutil.which("chromium"))
    sizes = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        page = made(Path(folder), sizes.queries, sizes.passages)
        browsed(page, sizes.rounds, sizes.chromium)


def made(folder: Path, queries: int, passages: int) -> Path:
    random = np.random.default_rng(0)
    data = folder / "large"
    (data / "qrels").mkdir(parents=True)

    def text(words: int) -> str:
        return " ".join(WORDS[place] for place in random.integers(0, len(WORDS), words))

    with (data / "corpus.jsonl").open("w") as out:
        for number in range(passages):
            out.write(json.dumps({"_id": f"d{number}", "title": text(3), "text": text(60)}) + "\n")
    with (data / "queries.jsonl").open("w") as out, (data / "qrels" / "test.tsv").open("w") as labels:
        labels.write("query-id\tcorpus-id\tscore\n")
        for number in range(queries):
            about = {"type": TYPES[number % 3], "style": STYLES[number // 3 % 3], "length": LENGTHS[number // 9 % 3]}
            out.write(json.dumps({"_id": f"q{number}", "text": text(12), "metadata": about}) + "\n")
            for place, document in enumerate(dict.fromkeys(random.integers(0, passages, 8).tolist())):
                labels.write(f"q{number}\td{document}\t{int(place < 2)}\n")
    systems = []
    for name in ("one", "two", "three"):
        with (folder / f"{name}.run").open("w") as out:
            for number in range(queries):
                hits = dict.fromkeys(random.integers(0, passages, 100).tolist())
                out.writelines(f"q{number} Q0 d{one} {rank} {-rank} {name}\n" for rank, one in enumerate(hits, 1))
        systems.append(SystemSettings(name=name, kind="run", path=str(folder / f"{name}.run")))  # type: ignore[call-arg]
    evaluate(data, systems, folder / "results", EvaluationOptions(top=100, folder=folder))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    page = make_report([data, folder / "results"], folder / "report")
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    own = sum(path.stat().st_size for path in page.parent.rglob("*") if path.is_file() and "data" not in path.parts)
    chunks = [path.stat().st_size for path in (page.parent / "data").rglob("*.js")]
    print(f"written in {seconds:.1f} s; memory at most {after / 1024:.0f} MB ({before / 1024:.0f} MB before)")
    print(f"page {own / 1e6:.3f} MB; data {sum(chunks) / 1e6:.1f} MB in {len(chunks)} files, largest {max(chunks):,} B")
    return page


def browsed(path: Path, rounds: int, program: str) -> None:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--disable-gpu", "--disable-dev-shm-usage"])
        for name, hash_, selector in (
            ("overview", "#/", "main .page h1"),
            ("queries", "#/d0/queries", "table.virtual td.main a"),
            ("a query", "#/d0/query/q77", "article.doc"),
        ):
            seconds = []
            for _ in range(3):
                page = browser.new_context().new_page()
                began = time.perf_counter()
                page.goto(path.as_uri() + hash_)
                page.wait_for_selector(selector)
                seconds.append(time.perf_counter() - began)
                page.close()
            print(f"{name}: there after {statistics.median(seconds):.2f} s (median of {len(seconds)})")
        page = browser.new_page()
        page.goto(path.as_uri() + "#/d0/queries")
        page.wait_for_selector("table.virtual td.main a")
        searches = ["b", "bar", "bar dene", "zzz", "q77", "la", ""]
        actions = {
            "search": [["input[type=search]", text, "input"] for text in searches],
            "filter": [['select[data-name="type"]', one, "change"] for one in ("claim", "", "problem", "")],
            "sort": [["thead th:nth-child(1) button", None, "click"], ["thead th:nth-child(2) button", None, "click"]],
        }
        for name, each in actions.items():
            found = [page.evaluate(DRAWN, one) for _ in range(rounds) for one in each]
            print(f"{name}: {statistics.median(found):.0f} ms (median of {len(found)}, most {max(found):.0f} ms)")
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
