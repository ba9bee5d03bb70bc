"""A corpus that changes: only what is new or changed is judged, the version goes up, and the earlier one is kept."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from beir_folder import data_files, read_rows, write_rows
from command_line import call
from job_maker import CORPUS, job_of, make_corpus, run_quietly

from airgen.dataset.beir import BeirDataset
from airgen.dataset.manifest import Manifest, load_manifest
from airgen.dataset.verify import verify
from airgen.errors import DatasetError
from airgen.job import Job
from airgen.llms.base import Request

BASE: dict[str, Any] = {
    "name": "job", "task": "qa", "corpus": "small.yaml", "target": 6,
    "llm": {"backend": "scripted", "concurrency": 4},
    "generation": {"hard_negatives": [1, 1], "rewrites": 0},
    "control": {"recall": {"pools_only": True, "top_k": 12}, "pools": ["bm25"], "rerankers": ["bm25"]},
    "export": {"ids": "original"},
}  # fmt: skip
Go = Callable[..., Job]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    make_corpus(tmp_path / "small.jsonl", 30)
    corpus = CORPUS.replace("kind: jsonl", "kind: jsonl, fields: {id: id, title: title}")
    (tmp_path / "small.yaml").write_text(corpus, encoding="utf-8")
    (tmp_path / "own.txt").write_text("bridges are measured near the coast\nyeast were described in winter\n")
    return tmp_path


@pytest.fixture
def go(home: Path) -> Go:
    def run(runs: str = "runs", **changes: Any) -> Job:
        job = job_of(home / "job.yaml", {**BASE, **changes}, home / runs)
        run_quietly(job)
        return job

    return run


def manifest(job: Job) -> Manifest:
    return load_manifest(job.dataset)


def test_own_queries_on_a_changed_corpus(go: Go, home: Path, asked: list[Request]) -> None:
    own = {"queries": {"file": "own.txt"}}
    go(**own)
    done, rows = len(asked), read_rows(home / "small.jsonl")
    rows[0] = {**rows[0], "text": "Bridges are measured near the coast, and yeast were described in winter."}
    write_rows(
        home / "small.jsonl",
        [*rows[:-1], {"id": "doc-new", "title": "Yeast", "text": "Yeast were described in winter near the coast."}],
    )
    second = go(**own)
    new = asked[done:]
    texts = [request.messages[0].content for request in new]
    assert new and all("near the coast, and yeast were" in text or "in winter near the coast" in text for text in texts)
    fresh = go("fresh", **own)
    assert data_files(fresh.dataset) == data_files(second.dataset)  # nothing of the earlier text is left in labels
    assert manifest(second).info.version == "0.2" and manifest(fresh).info.version == "0.1"
    note = manifest(second).notes["refreshed"]
    assert note["passages"] == {"before": 30, "now": 30, "added": 2, "gone": 2} and note["queries"]["kept"] == 2
    assert verify(second.dataset) == []
    write_rows(home / "small.jsonl", read_rows(home / "small.jsonl")[::-1])
    assert manifest(go(**own)).info.version == "0.2"  # another order is no other corpus


def test_queries_whose_document_is_gone_or_changed_are_retired(go: Go, home: Path, asked: list[Request]) -> None:
    first = go()
    gone, changed, *_ = read_rows(first.dataset / "private" / "lineage.jsonl")
    done = len(asked)
    rows = [row for row in read_rows(home / "small.jsonl") if row["id"] != gone["source"]]
    place = next(at for at, row in enumerate(rows) if row["id"] == changed["source"])
    rows[place] = {**rows[place], "text": rows[place]["text"] + " This was added later by careful hands."}
    write_rows(home / "small.jsonl", rows)
    second = go()
    note = manifest(second).notes["refreshed"]
    retired = note["queries"]["retired"]
    assert retired["its document is gone"] == 1 and retired["its document has changed"] == 1
    assert note["queries"]["kept"] + sum(retired.values()) == 6
    ids = set(BeirDataset.open(second.dataset).queries())
    assert gone["query"] not in ids and changed["query"] not in ids
    assert 0 < len(asked) - done < done
    kept = second.directory / "versions" / "0.1"
    assert verify(kept) == [] and {gone["query"], changed["query"]} <= set(BeirDataset.open(kept).queries())
    assert data_files(go("fresh").dataset) == data_files(second.dataset)
    # The next change is the next version; one that the author names counts.
    write_rows(home / "small.jsonl", rows[1:])
    third = go()
    assert manifest(third).info.version == "0.3" and (third.directory / "versions" / "0.2").is_dir()
    write_rows(home / "small.jsonl", rows[2:])
    assert manifest(go(export={"ids": "original", "version": "26.11"})).info.version == "26.11"


def test_another_title_is_another_passage_and_no_kept_version_is_overwritten(go: Go, home: Path) -> None:
    own = {"queries": {"file": "own.txt"}}
    go(**own)
    rows = read_rows(home / "small.jsonl")
    write_rows(home / "small.jsonl", [{**rows[0], "title": "Renamed"}, *rows[1:]])
    job = go(**own)
    assert next(iter(BeirDataset.open(job.dataset).passages())).title == "Renamed"
    assert manifest(job).info.version == "0.2"
    (job.directory / "versions" / "0.2").mkdir()
    write_rows(home / "small.jsonl", rows[1:])
    with pytest.raises(DatasetError, match=r"0\.2: another dataset is kept there"):
        go(**own)


def test_a_larger_target_is_no_new_version(go: Go, home: Path) -> None:
    go()
    job = go(target=8)
    assert manifest(job).info.version == "0.1" and not (job.directory / "versions").exists()
    write_rows(home / "small.jsonl", read_rows(home / "small.jsonl")[1:])
    assert manifest(go(target=8)).info.version == "0.2"
    again = manifest(go(target=9))
    assert again.info.version == "0.2" and again.notes["refreshed"]["from"] == "0.1"


def test_the_command_says_how_the_ranking_drifted(home: Path) -> None:
    systems = [{"name": name, "kind": "bm25", "k1": k1} for name, k1 in (("a", 0.1), ("b", 0.9), ("c", 3.0))]
    (home / "systems.yaml").write_text(yaml.safe_dump({"systems": systems}))
    values = {**BASE, "queries": {"file": "own.txt"}, "evaluate": {"systems": "systems.yaml", "split": "all"}}
    (home / "job.yaml").write_text(yaml.safe_dump(values))
    words = ("run", home / "job.yaml", "--runs", home / "runs", "--no-report")
    assert "has changed" not in call(*words)
    write_rows(home / "small.jsonl", read_rows(home / "small.jsonl")[1:])
    out = call(*words)
    assert "the corpus has changed: version 0.1 -> 0.2; passages: 0 added, 1 gone" in out
    found = json.loads((home / "runs" / "job" / "drift.json").read_text())
    assert [ranking["systems"] for ranking in found["rankings"]] == [["a", "b", "c"]]
    assert found["again"] == []  # the old scores are those that were reported then
    assert "has changed" in call(*words)  # a finished job says it again, and runs nothing


@pytest.mark.parametrize(
    "changes",
    [
        {"generation": {**BASE["generation"], "unanswerable": 0.25}},
        {
            "generation": {"hard_negatives": [3, 5], "rewrites": 0},
            "control": {
                **BASE["control"],
                "pools": ["bm25", "rm3"],
                "rerankers": ["bm25", {"kind": "bm25", "k1": 3.0}],
            },
            "export": {"ids": "original", "secret": False},
        },
    ],
    ids=["unanswerable", "two pools"],
)
def test_what_a_dataset_lacks_or_has_besides_its_corpus_is_no_change_of_it(
    go: Go, home: Path, changes: dict[str, Any]
) -> None:
    for target in (8, 5):  # other queries are held out, or dropped
        job = go(target=target, **changes)
        assert manifest(job).info.version == "0.1" and not (job.directory / "versions").exists()
    write_rows(home / "small.jsonl", read_rows(home / "small.jsonl")[1:])
    note = manifest(go(target=5, **changes)).notes["refreshed"]
    assert note["passages"] == {"before": 30, "now": 29, "added": 0, "gone": 1}
