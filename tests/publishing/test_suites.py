"""Suites: resumable, one budget, versions that never change, trimming that keeps what is judged."""

import csv
import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import call, invoke
from dataset_maker import INFO, make_content

from airgen.dataset.beir import BeirDataset
from airgen.dataset.content import DatasetContent
from airgen.dataset.derive import derive
from airgen.dataset.manifest import count_words_and_characters, load_manifest
from airgen.dataset.verify import verify
from airgen.dataset.write import write_dataset
from airgen.errors import BudgetSpent, DatasetError, SettingsError, UsageError
from airgen.publishing.suites import FinishedPipeline, build, datasets_of, versions
from airgen.settings.suite import Suite, load_suite
from airgen.studies.compare_versions import changes_between, changes_text


def make(
    name: str, *, task: str = "qa", domain: str = "science", documents: int = 30, **changes: Any
) -> DatasetContent:
    info = dataclasses.replace(INFO, name=name, task=task, domain=domain, version="1")
    return make_content(n_documents=documents, info=info, **changes)


class Runner:
    """Stands for `airgen run`: writes the dataset whose content is registered under the pipeline's file name."""

    def __init__(self, home: Path, contents: dict[str, DatasetContent], price: float = 1.0) -> None:
        self.home, self.contents, self.price = home, contents, price
        self.calls: list[tuple[str, float | None]] = []
        self.before: Callable[[str], None] = lambda _: None

    def __call__(self, path: Path, budget_usd: float | None) -> FinishedPipeline:
        self.calls.append((path.name, budget_usd))
        self.before(path.name)
        if budget_usd is not None and budget_usd < self.price:
            raise BudgetSpent("the budget is spent")
        out = self.home / path.name
        if not out.exists():
            write_dataset(out, self.contents[path.name])
        return FinishedPipeline(out, self.price)


def suite(*members: Any, version: str = "26.11", **changes: Any) -> Suite:
    return Suite.model_validate({"name": "notes", "version": version, "pipelines": list(members), **changes})


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    contents = {
        "a": make("alpha"),
        "b": make("beta", domain="law"),
        **{f"book{i}": make(f"book-{i}", task="long-doc", domain="book") for i in range(3)},
    }
    return Runner(tmp_path / "runs", contents)


def test_build_collects_datasets_with_statistics(tmp_path: Path, runner: Runner) -> None:
    built = build(suite("a", "b", "book0", "book1"), tmp_path / "suites", runner)
    assert built.directory == tmp_path / "suites" / "notes" / "26.11"
    assert sorted(built.datasets) == [
        "long-doc_book_en/book-0",
        "long-doc_book_en/book-1",
        "qa_law_en/beta",
        "qa_science_en/alpha",
    ]
    for key, manifest in built.datasets.items():
        assert verify(built.directory / key) == []
        assert manifest.info.version == "26.11"
    # Long-Doc: whole datasets, one dev in the domain; QA: both splits in each.
    splits = {key: sorted(manifest.statistics.splits) for key, manifest in built.datasets.items()}
    assert sorted(splits[key][0] for key in splits if key.startswith("long")) == ["dev", "test"]
    assert splits["qa_law_en/beta"] == ["dev", "test"]
    rows = list(csv.DictReader((built.directory / "statistics.csv").read_text().splitlines()))
    assert [(row["dataset"], row["split"], row["queries"]) for row in rows if row["task"] == "qa"] == [
        ("beta", "dev", "2"),
        ("beta", "test", "4"),
        ("alpha", "dev", "2"),
        ("alpha", "test", "4"),
    ]
    assert datasets_of(built.directory) == built.datasets
    assert built.spent_usd == 4.0


def test_long_doc_queries_and_labels_all_come_along(tmp_path: Path, runner: Runner) -> None:
    built = build(suite({"path": "book0", "split": "dev"}), tmp_path / "suites", runner)
    home = built.directory / "long-doc_book_en/book-0"
    source = BeirDataset.open(tmp_path / "runs" / "book0")
    assert BeirDataset.open(home).qrels("dev").labels == {**source.qrels("dev").labels, **source.qrels("test").labels}
    assert not (home / "qrels/test.tsv").exists()
    statistics = load_manifest(home).statistics.splits["dev"]
    assert (statistics.queries, statistics.positives, statistics.hard_negatives) == (6, 12, 6)


def test_a_finished_version_never_changes_and_the_next_has_what_it_had(tmp_path: Path, runner: Runner) -> None:
    build(suite("a", "b"), tmp_path / "suites", runner)
    runner.contents["c"] = runner.contents["a"]
    for members, version, words in (
        ("a", "26.11", "finished versions do not change: raise the version"),
        ("a", "26.9", r"version 26\.9 would come after 26\.11"),
        ("a", "26.12", "lacks qa_law_en/beta"),
        ("ac", "26.12", "a and c make the same dataset qa_science_en/alpha"),
    ):
        with pytest.raises(DatasetError, match=words):
            build(suite(*members, version=version), tmp_path / "suites", runner)

    def stop(name: str) -> None:
        if name == "b":
            raise BudgetSpent("stopped")

    runner.before = stop
    with pytest.raises(BudgetSpent):
        build(suite("a", "b", version="26.12"), tmp_path / "suites", runner)
    assert versions(tmp_path / "suites", "notes") == ["26.11"]
    runner.before = lambda _: None
    build(suite("a", "b", version="26.12"), tmp_path / "suites", runner)  # it goes on
    assert versions(tmp_path / "suites", "notes") == ["26.11", "26.12"]


def test_one_budget_for_all(tmp_path: Path, runner: Runner) -> None:
    with pytest.raises(BudgetSpent):
        build(suite("a", "b", "book0", budget_usd=2.5), tmp_path / "suites", runner)
    assert runner.calls == [("a", 2.5), ("b", 1.5), ("book0", 0.5)]
    build(suite("a", "b", "book0", budget_usd=2.5), tmp_path / "suites", runner, budget_usd=3.0)


def test_growth_moves_no_long_doc_dataset(tmp_path: Path, runner: Runner) -> None:
    first = build(suite("book0", "book1"), tmp_path / "suites", runner)
    second = build(suite("book0", "book1", "book2", version="26.12"), tmp_path / "suites", runner)
    for key, manifest in first.datasets.items():
        assert list(second.datasets[key].statistics.splits) == list(manifest.statistics.splits)
    assert list(second.datasets["long-doc_book_en/book-2"].statistics.splits) == ["test"]
    moved = [{"path": name, "split": "test"} for name in ("book0", "book1")]
    with pytest.raises(
        DatasetError, match="was 'dev' in an earlier version: the only possible change is from test to dev"
    ):
        build(suite(*moved, "book2", version="27.1"), tmp_path / "suites", runner)


def test_a_test_set_may_be_opened_for_development(tmp_path: Path, runner: Runner) -> None:
    """AIR-Bench 24.05 does so with four Long-Doc sets of 24.04 and with MS MARCO."""
    old = build(suite({"path": "book0", "split": "test"}), tmp_path / "suites", runner)
    new = build(suite({"path": "book0", "split": "dev"}, "book1", version="26.12"), tmp_path / "suites", runner)
    splits = {key: list(manifest.statistics.splits) for key, manifest in new.datasets.items()}
    assert splits == {"long-doc_book_en/book-0": ["dev"], "long-doc_book_en/book-1": ["test"]}
    opened, _ = changes_between(old.directory, new.directory)
    assert opened.details == ("6 queries of test are dev queries now: their labels are public",)
    closed, _ = changes_between(new.directory, old.directory)
    assert "6 queries changed split" in closed.details[0] and "should never happen" in closed.details[0]


def test_two_groups_can_have_a_dataset_of_one_name(tmp_path: Path, runner: Runner) -> None:
    runner.contents["c"] = make("alpha", domain="law", documents=31)
    home = build(suite("a", "c"), tmp_path / "suites", runner).directory
    call("export", "layout", home, "air-bench", "--out", tmp_path / "out")
    named = json.loads((tmp_path / "out/layout.json").read_text())["datasets"]
    assert named == {key: manifest.digest for key, manifest in datasets_of(home).items()}
    assert len(named) == 2
    (tmp_path / "systems.yaml").write_text("systems: [{name: bm25, kind: bm25}]\n", encoding="utf-8")
    arguments = ("--systems", tmp_path / "systems.yaml", "--out", tmp_path / "results")
    for place in (home, tmp_path / "out/AIR-Bench"):
        said = call("evaluate", place, *arguments)
        assert "qa_law_en_alpha (test)" in said and "qa_science_en_alpha (test)" in said
    folders = [home / key for key in named]
    with pytest.raises(UsageError, match="are both named 'alpha': evaluate them separately"):
        call("evaluate", *folders, *arguments)


def test_trimming_keeps_the_judged_and_smaller_is_part_of_larger(tmp_path: Path) -> None:
    write_dataset(tmp_path / "d", make_content(n_documents=50))
    source = BeirDataset.open(tmp_path / "d")
    texts = {row.id: row for row in source.passages()}
    judged = {doc for split in ("dev", "test") for docs in source.qrels(split).labels.values() for doc in docs}
    kept: dict[int, set[str]] = {}
    for size in (8, 20, 35):
        manifest = derive(tmp_path / "d", tmp_path / f"t{size}", max_passages=size)
        trimmed = {row.id: row for row in BeirDataset.open(tmp_path / f"t{size}").passages()}
        assert len(trimmed) == size == manifest.statistics.passages
        assert all(texts[key] == row for key, row in trimmed.items())
        assert judged <= set(trimmed)
        assert verify(tmp_path / f"t{size}") == []
        assert manifest.notes["passages before trimming"] == 50
        words = [count_words_and_characters(f"{row.title} {row.text}") for row in trimmed.values()]
        assert manifest.statistics.mean_tokens == pytest.approx(sum(words) / size)
        kept[size] = set(trimmed)
    assert kept[8] < kept[20] < kept[35]
    with pytest.raises(DatasetError, match="8 passages are judged, so its corpus cannot be trimmed to 7"):
        derive(tmp_path / "d", tmp_path / "x", max_passages=7)
    assert not (tmp_path / "x").exists()


def test_a_source_edited_by_hand_is_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path / "d", make_content())
    with (tmp_path / "d" / "queries.jsonl").open("a") as file:
        file.write('{"_id": "x", "text": "y", "metadata": {"split": "dev"}}\n')
    with pytest.raises(DatasetError, match="differs from the manifest"):
        derive(tmp_path / "d", tmp_path / "x", version="2")


def test_diff_says_what_changed(tmp_path: Path, runner: Runner) -> None:
    first = build(suite("a", "b"), tmp_path / "suites", runner)
    runner.contents["c"] = make("gamma", domain="news")
    write_dataset(tmp_path / "runs" / "b", make("beta", domain="law", documents=30, n_queries=9))
    second = build(suite({"path": "a", "max_passages": 20}, "b", "c", version="26.12"), tmp_path / "suites", runner)
    changes = {change.dataset: change for change in changes_between(first.directory, second.directory)}
    assert changes["qa_news_en/gamma"].kind == "added"
    assert changes["qa_science_en/alpha"].details == ("passages: 30 -> 20 (trimmed)",)
    assert changes["qa_law_en/beta"].details == ("queries: 3 added, 0 removed", "positives: 12 -> 18")
    text = changes_text(list(changes.values()))
    assert text.splitlines()[0] == "changed: qa_law_en/beta"
    assert text.splitlines()[-1] == "0 unchanged"
    write_dataset(second.directory / "qa_news_en/gamma", make("gamma", domain="news", documents=31))
    with pytest.raises(DatasetError, match="was changed after the version was finished"):
        changes_between(first.directory, second.directory)


def test_settings_name_every_problem(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("name: ../x\nversion: new\npipeline: []\n")
    with pytest.raises(SettingsError) as caught:
        load_suite(path)
    problems = "\n".join(caught.value.problems)
    assert len(caught.value.problems) == 4
    assert "did you mean 'pipelines'" in problems
    path.write_text('name: x\nversion: "26.11"\npipelines: [a.yaml, {path: b.yaml, split: dev}]\n')
    loaded = load_suite(path)
    assert [member.path for member in loaded.pipelines] == [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    assert loaded.pipelines[1].split == "dev"
    path.write_text('name: x\nversion: "26.11"\npipelines: [a.yaml, {path: ./b/../a.yaml, split: dev}]\n')
    with pytest.raises(SettingsError, match=r"a\.yaml is listed twice"):
        load_suite(path)


def test_commands(tmp_path: Path, runner: Runner) -> None:
    first = build(suite("a"), tmp_path / "suites", runner).directory
    second = build(suite("a", "b", version="26.12"), tmp_path / "suites", runner).directory
    assert [row["kind"] for row in json.loads(call("publish", "diff", first, second, "--json"))] == ["added", "same"]
    said = call("study", "compare", first, second, "--out", tmp_path / "compare")  # the same function, and the texts
    assert said.startswith(call("publish", "diff", first, second).rstrip("\n"))
    one = first / "qa_science_en/alpha"
    assert call("publish", "diff", one, second / "qa_science_en/alpha") == "1 unchanged\n"
    with pytest.raises(DatasetError, match="not a finished version or dataset"):
        call("publish", "diff", tmp_path / "suites", second)
    assert call("study", "stats", second).count("| qa |") == 4
    line = call("study", "stats", second / "qa_law_en/beta", "--csv").splitlines()[1]
    assert line.startswith("qa,law,en,beta,Weather notes,CC-BY-4.0,30,")
    out = tmp_path / "trec"
    assert "qa_law_en/beta/qrels.test.txt" in call("export", "layout", second, "trec", "--out", out).splitlines()
    assert (out / "qa_science_en/alpha/docs.tsv").read_text().count("\n") == 30
    assert call("publish", "verify", second).count(": whole") == 2
    (second / "qa_law_en/beta/corpus.jsonl").write_text("")
    assert call("publish", "verify", second, code=1).count(": whole") == 1
    (damaged, whole) = json.loads(call("publish", "verify", second, "--json", code=1)).values()
    assert {"hash", "count", "dangling"} <= {problem["kind"] for problem in damaged} and whole == []
    (second / "suite.json").write_text("{}")
    assert "[suite]" in call("publish", "verify", second, code=1)


@pytest.mark.parametrize("named", ["null", "7", '["qa_law_en/beta"]', '"qa_law_en/beta"', "true"])
def test_a_version_whose_list_of_datasets_is_none(tmp_path: Path, named: str) -> None:
    (tmp_path / "suite.json").write_text(f'{{"name": "notes", "version": "26.11", "datasets": {named}}}')
    for words in (("publish", "diff", tmp_path, tmp_path), ("study", "stats", tmp_path)):
        with pytest.raises(DatasetError, match=r"suite\.json: datasets is \w+, but must be an object"):
            call(*words)
    assert "[suite]" in call("publish", "verify", tmp_path, code=1)


def test_a_suite_is_evaluated_where_it_has_the_split(tmp_path: Path, runner: Runner) -> None:
    """Of two books one is dev, which must not end the evaluation of the others."""
    home = build(suite("a", "book0", "book1"), tmp_path / "suites", runner).directory
    (tmp_path / "systems.yaml").write_text("systems: [{name: bm25, kind: bm25}]\n", encoding="utf-8")
    said = invoke("evaluate", home, "--systems", tmp_path / "systems.yaml", "--out", tmp_path / "results", raises=True)
    assert re.search(rf"{home}: without book-[01], which have no split 'test'", said.stderr)
    assert len({path.parent.parent.name for path in (tmp_path / "results").glob("*/test/report.md")}) == 2
    with pytest.raises(DatasetError, match="no dataset has the split 'train'"):
        call("evaluate", home, "--systems", tmp_path / "systems.yaml", "--split", "train")
