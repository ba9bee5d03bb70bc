"""Which withheld queries have no answer: `benchmarks/unanswered.py` finds them no better than SECURITY.md says."""

import importlib.util
import json
import math
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from job_maker import CORPUS, LEXICAL, run_quietly

from airgen.components.keys import rng
from airgen.dataset.secret import Secret
from airgen.job import Job
from airgen.job import export as export_module
from airgen.job.export import export_dataset, exported_queries, moved_queries
from airgen.publishing.withhold import public_part
from airgen.steps.public_ids import PublicIds

ROOT = Path(__file__).resolve().parents[2]
PASSAGES, TARGET, DRAWS = 160, 80, 4


@pytest.fixture(scope="module")
def benchmark() -> Iterator[ModuleType]:
    name = "benchmark_of_unanswered"
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / "unanswered.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules[name]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A finished job; two documents have a subject, and all share 120 words, so that some queries have many answers."""
    folder, random = tmp_path_factory.mktemp("unanswered"), rng("words of the attack", 0)
    syllables = [first + second for first in "bdfgklmnprstvz" for second in "aeiou"]
    words = sorted({"".join(random.choice(syllables) for _ in range(3)) + random.choice("lnrst") for _ in range(400)})
    random.shuffle(words)
    with (folder / "small.jsonl").open("w", encoding="utf-8") as out:
        for number in range(PASSAGES):
            random, place = rng("document of the attack", number), number // 2 % 40 * 3
            sentences = []
            for _ in range(4):
                chosen = random.sample(words[120:240], 7) + random.sample(words[place : place + 3], 2)
                random.shuffle(chosen)
                sentences.append(f"The {' '.join(chosen)} was seen.")
            out.write(json.dumps({"id": f"doc-{number}", "title": words[place], "text": " ".join(sentences)}) + "\n")
    (folder / "small.yaml").write_text(CORPUS, encoding="utf-8")
    text = LEXICAL.replace("target: 4", f"target: {TARGET}").replace("top_k: 20", "top_k: 40")
    (folder / "job.yaml").write_text(text + "generation: {unanswerable: 0.2}\n", encoding="utf-8")
    made = Job(folder / "job.yaml", folder / "runs")
    run_quietly(made)
    return made


def exports(job: Job, folder: Path) -> Iterator[Path]:
    """Export the job with other draws of its queries without an answer, as other secrets give."""
    for number in range(DRAWS):
        ids = PublicIds(job.pipeline, Secret(bytes([number]) * 32))
        with pytest.MonkeyPatch.context() as patch, job.open_store() as store:
            patch.setattr(Job, "ids", ids)
            export_dataset(job, store, job.accepted(store), folder / str(number))
        yield folder / str(number)


def stated() -> tuple[int, int]:
    """The most guesses that SECURITY.md says are right, and of how many."""
    text = " ".join((ROOT / "SECURITY.md").read_text(encoding="utf-8").split())
    ((right, of),) = re.findall(r"more than (\d+) of the first (\d+) guesses", text)
    return int(right), int(of)


def test_the_attack_is_no_better_than_stated(
    job: Job, benchmark: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, (most, guesses) = benchmark.original_of(job.directory), stated()

    def right(every: list[Any]) -> dict[str, int]:
        each = guesses // DRAWS
        return {
            way: sum(benchmark.first_right(one.ways[way], one.truth, each) for one in every) for way in benchmark.WAYS
        }

    attacked = [benchmark.attack(dataset, original) for dataset in exports(job, tmp_path / "decoys")]
    assert max(right(attacked).values()) <= most, right(attacked)
    assert max(right(attacked).values()) > guesses / 4  # by chance: about one in five

    answered, unanswered = (sum(int((one.truth == kind).sum()) for one in attacked) for kind in (False, True))
    error = math.sqrt((answered + unanswered + 1) / (12 * answered * unanswered))
    for mark in benchmark.MARKS:
        area = np.mean([benchmark.auc(one.marks[mark], one.truth) for one in attacked])
        assert abs(area - 0.5) <= 3 * error, mark

    monkeypatch.setattr(export_module, "DECOYS", 0)
    without = [benchmark.attack(dataset, original) for dataset in exports(job, tmp_path / "none")]
    assert max(right(without).values()) > most  # what the limit notices


def test_a_larger_target_keeps_which_queries_have_an_answer(job: Job, tmp_path: Path) -> None:
    """Without generated documents, which can change the labels of earlier queries."""
    for name in ("small.jsonl", "small.yaml"):
        shutil.copy(job.folder / name, tmp_path / name)
    text = job.path.read_text(encoding="utf-8").replace(
        "unanswerable: 0.2", "unanswerable: 0.2, hard_negatives: [0, 0]"
    )
    (tmp_path / "job.yaml").write_text(text, encoding="utf-8")
    before: dict[str, tuple[str, bool]] = {}
    for target in (12, 32):
        made = Job(tmp_path / "job.yaml", tmp_path / "runs", target=target)
        run_quietly(made)
        after = exported_queries(made.dataset)
        assert len(after) == target and not [*moved_queries(before, after)]
        new = [answered for query, (_, answered) in after.items() if query not in before]
        assert False in new and True in new
        before = after


def test_two_versions_are_no_better_than_one(job: Job, benchmark: ModuleType, tmp_path: Path) -> None:
    """More passages are taken out of a version with more queries. The attacker has both, and not the original."""
    shutil.copytree(job.directory.parent, tmp_path / "runs")
    larger = Job(job.path, tmp_path / "runs", target=TARGET + 20)
    run_quietly(larger)
    texts = {}
    for dataset in (job.dataset, larger.dataset):
        rows = map(json.loads, (dataset / "corpus.jsonl").read_text(encoding="utf-8").splitlines())
        texts |= {row["_id"]: benchmark.text_of(row["title"], row["text"]) for row in rows}
    ways = [way for way in benchmark.WAYS if "missing" in way or way.startswith("fall")]
    assert len(ways) == 3
    for dataset in (job.dataset, larger.dataset):
        attacked = benchmark.attack(dataset, texts)
        unanswered, every = int(attacked.truth.sum()), len(attacked.truth)
        error = math.sqrt((every + 1) / (12 * unanswered * (every - unanswered)))
        for way in ways:
            assert benchmark.auc(attacked.ways[way], attacked.truth) < 0.5 + 3 * error, way


def test_the_overlap_with_positives_is_not_published(job: Job, tmp_path: Path) -> None:
    """A query without an answer has none, and for others it tells how close the positives are."""
    names = {"overlap", "overlap_mean", "overlap_names", "overlap_title"}
    public_part(job.dataset, tmp_path / "public", ["test"])
    for folder, expected in ((job.dataset, names), (tmp_path / "public", set())):
        lines = (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()
        metadata = [json.loads(line)["metadata"] for line in lines]
        assert all({name for name in values if name.startswith("overlap")} == expected for values in metadata)
    for path in (tmp_path / "public").rglob("*.*"):
        assert "overlap" not in path.read_text(encoding="utf-8"), path.name
