"""Compare BM25 with bm25s and numba: indexing with tokenisation, and search at k = 10, 100 and 1,000.

    python benchmarks/bm25.py [--passages 10000 200000 1000000] [--queries 1000] [--rounds 5]

Both get the same synthetic passages (Zipf-distributed words of a seeded vocabulary, so any machine makes the same
text), Lucene's BM25 with k1 0.9 and b 0.4, and a Porter-family stemmer with 33 stop words. They take turns, and
the ratios of the turns are printed: of processor time on one thread, because the machine may be busy, of wall time on
several. Scores are compared on equal terms: bm25s is given airgen's term ids. Where tantivy is installed, it indexes
the same passages with one thread and its own English stemmer.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import multiprocessing
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from airgen.retrievers.lexical.bm25 import BM25
from airgen.retrievers.passages import Passages

SYLLABLES = [first + vowel for first in "bcdfghjklmnprstvwz" for vowel in "aeiou"]
SUFFIXES = ["", "", "", "s", "ed", "ing", "ation", "ly", "ment", "er"]


def vocabulary(size: int, random: np.random.Generator) -> list[str]:
    words: dict[str, None] = dict.fromkeys(["the", "of", "and", "to", "in", "a", "is", "that", "for", "it"])
    while len(words) < size:
        parts = random.integers(len(SYLLABLES), size=random.integers(2, 5))
        words["".join(SYLLABLES[part] for part in parts) + SUFFIXES[random.integers(len(SUFFIXES))]] = None
    return list(words)


def passages(count: int, length: int, words: list[str], random: np.random.Generator) -> list[str]:
    """Make sentences of words drawn by Zipf's law (exponent 1), with `length` words on average."""
    share = 1 / np.arange(1, len(words) + 1)
    edges = np.cumsum(share / share.sum())
    texts = []
    for size in random.poisson(length, count):
        drawn = np.minimum(np.searchsorted(edges, random.random(max(1, size))), len(words) - 1)
        parts = [words[number] for number in drawn]
        for stop in range(11, len(parts), 12):
            parts[stop] += "."
        texts.append(" ".join(parts).capitalize())
    return texts


def questions(count: int, words: list[str], random: np.random.Generator) -> list[str]:
    """Make queries of five to nine words, few of them frequent."""
    share = 1 / np.arange(1, len(words) + 1) ** 0.7
    edges = np.cumsum(share / share.sum())
    return [
        " ".join(words[number] for number in np.searchsorted(edges, random.random(random.integers(5, 10))))
        for _ in range(count)
    ]


def status_mb(field: str) -> float:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field)]
    return int(line.split()[1]) / 1e3


def peak_mb(work: Callable[[], Any]) -> float:
    """Return the maximum memory growth of a forked process during the work (Linux only)."""

    def measure(send: Connection) -> None:
        before = status_mb("VmRSS")
        kept = work()
        send.send(status_mb("VmHWM") - before)
        del kept

    gc.collect()
    receive, send = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=measure, args=(send,))
    child.start()
    found = float(receive.recv())
    child.join()
    return found


def timed(work: Callable[[], Any], clock: Callable[[], float] = time.process_time) -> tuple[float, Any]:
    gc.collect()
    start = clock()
    result = work()
    return clock() - start, result


def bm25s_index(texts: list[str]) -> tuple[Any, Any, Any]:
    import bm25s
    import Stemmer
    from bm25s.tokenization import Tokenizer

    # bm25s's faster tokenizer, with a C stemmer that is called once per distinct word, as in airgen.
    tokenizer = Tokenizer(stopwords="en", stemmer=Stemmer.Stemmer("porter"))
    tokens = tokenizer.tokenize(texts, return_as="tuple", show_progress=False)
    index = bm25s.BM25(method="lucene", k1=0.9, b=0.4, backend="numba")
    index.index(tokens, show_progress=False)
    return index, tokenizer, tokens


def airgen_index(texts: list[str], threads: int | None = None) -> BM25:
    index = BM25()
    index.threads = threads
    index.index(Passages([""] * len(texts), texts))
    return index


def tantivy_index(texts: list[str]) -> Any:
    """Build an index in a temporary folder with words and frequencies, as BM25 needs, without positions or stored
    texts."""
    import tantivy

    schema = tantivy.SchemaBuilder().add_text_field("text", tokenizer_name="en_stem", index_option="freq").build()
    with tempfile.TemporaryDirectory() as folder:
        index = tantivy.Index(schema, path=folder)
        writer = index.writer(heap_size=512 << 20, num_threads=1)
        for text in texts:
            writer.add_document(tantivy.Document(text=text))
        writer.commit()
        writer.wait_merging_threads()


def same_scores(texts: list[str], asked: list[str], k: int) -> float:
    """Return the largest difference from bm25s when both use airgen's terms."""
    import bm25s

    ours = airgen_index(texts)
    number = ours.vocabulary
    terms = [[number[term] for term in ours.analyser(text)] for text in texts]
    theirs = bm25s.BM25(method="lucene", k1=0.9, b=0.4, backend="numba")
    theirs.index((terms, dict(number)), show_progress=False)
    queries = [[number[term] for term in ours.analyser(query) if term in number] for query in asked]
    _, scores = theirs.retrieve(queries, k=k, show_progress=False)
    mine = np.maximum(ours.search(asked, k).scores, 0)
    return float(np.abs(mine - scores).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--passages", type=int, nargs="+", default=[200_000])
    parser.add_argument("--words", type=int, default=81)
    parser.add_argument("--vocabulary", type=int, default=200_000)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--index-rounds", type=int, default=2)
    settings = parser.parse_args()
    for size in settings.passages:
        compare(size, settings)


def compare(size: int, settings: argparse.Namespace) -> None:
    random = np.random.default_rng(20240917)
    words = vocabulary(settings.vocabulary, random)
    texts = passages(size, settings.words, words, random)
    asked = questions(settings.queries, words, random)
    airgen_index(texts[:2000]).search(asked[:20], 10)  # compile both before any clock runs
    index, tokenizer, _ = bm25s_index(texts[:2000])
    index.retrieve(tokenizer.tokenize(asked[:20], update_vocab=False, show_progress=False), k=10, show_progress=False)
    print(f"{len(texts)} passages, {len(asked)} queries")

    times: dict[str, list[float]] = {"bm25s": [], "airgen": []}
    has_tantivy = importlib.util.find_spec("tantivy") is not None
    theirs = ours = None
    for _ in range(settings.index_rounds):
        theirs = None
        seconds, theirs = timed(partial(bm25s_index, texts))
        times["bm25s"].append(seconds)
        ours = None
        seconds, ours = timed(partial(airgen_index, texts))
        times["airgen"].append(seconds)
        if has_tantivy:
            times.setdefault("tantivy", []).append(timed(partial(tantivy_index, texts))[0])
    report("indexing with tokenising", times, "s")

    index, tokenizer, _ = theirs
    # Both get analysed queries: bm25s as ids, airgen as terms.
    asked_terms = [Counter(ours.analyser(query)) for query in asked]
    asked_ids = tokenizer.tokenize(asked, update_vocab=False, return_as="ids", show_progress=False)
    for threads in dict.fromkeys((1, os.cpu_count() or 1)):
        ours.threads = threads
        clock = time.process_time if threads == 1 else time.perf_counter
        for k in (10, 100, 1000):
            times = {"bm25s": [], "airgen": []}
            for _ in range(settings.rounds):
                theirs_too = partial(index.retrieve, asked_ids, k=k, show_progress=False, n_threads=threads)
                times["bm25s"].append(timed(theirs_too, clock)[0])
                seconds, _ = timed(partial(ours.search_weighted, asked_terms, k), clock)
                times["airgen"].append(seconds)
            report(f"search, k = {k}, {threads} thread(s)", times, "s", len(asked))

    del theirs, index
    arrays = ours.index_bytes / 1e6
    del ours
    peaks = {"bm25s": peak_mb(partial(bm25s_index, texts)), "airgen": peak_mb(partial(airgen_index, texts))}
    print(
        f"peak memory of indexing beside the texts: bm25s {peaks['bm25s']:.0f} MB, airgen {peaks['airgen']:.0f} MB",
        end="",
    )
    print(f" ({arrays:.0f} MB of it the index)")

    few = texts[:20_000]
    print(f"largest difference of scores on {len(few)} passages: {same_scores(few, asked[:200], 1000):.1e}")


def report(what: str, times: dict[str, list[float]], unit: str, queries: int = 0) -> None:
    medians = {name: statistics.median(values) for name, values in times.items()}
    rates = ", ".join(
        f"{name} {value:.2f} {unit}" + (f" ({queries / value:,.0f} queries/s)" if queries else "")
        for name, value in medians.items()
    )
    for peer in times.keys() - {"airgen"}:
        ratios = sorted(theirs / ours for theirs, ours in zip(times[peer], times["airgen"], strict=True))
        spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        print(f"{what}: {statistics.median(ratios):.2f} ({spread}) times {peer}'s speed ({rates})", flush=True)


if __name__ == "__main__":
    main()
