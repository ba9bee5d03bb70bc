"""AIR-Bench 24.05 as a suite: all 69 datasets load, are estimated without a download, and match the table in the docs.

`python tests/publishing/test_airbench.py` writes the table of docs/airbench-24.05.md.
"""

import functools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import call, invoke
from job_maker import LEXICAL
from refusals import refused

from airgen.corpus import load_corpus_settings
from airgen.corpus.settings import CorpusSettings
from airgen.errors import SettingsError, UsageError
from airgen.job import Job
from airgen.job.check_suite import check_suite
from airgen.settings import Pipeline, load_pipeline
from airgen.settings.languages import LANGUAGES
from airgen.settings.suite import Suite, load_suite
from airgen.storage.paths import data_dir

SUITE = data_dir("pipelines") / "airbench-24.05.yaml"
PAGE = data_dir("docs") / "airbench-24.05.md"
BEGIN, END = "<!-- made by tests/publishing/test_airbench.py -->\n", "<!-- end -->\n"
DOUBLES: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parents[1] / "corpus" / "hub_sets.yaml").read_text(encoding="utf-8")
)


@functools.cache
def datasets() -> list[tuple[str, Pipeline, CorpusSettings, Any]]:
    suite = load_suite(SUITE)
    found = []
    for key, one in suite.datasets.items():
        pipeline = Pipeline.model_validate(suite.values(key))
        found.append((key, pipeline, load_corpus_settings(pipeline.corpus), one))
    return found


def state(corpus: CorpusSettings) -> str:
    if corpus.fetch is None or corpus.fetch.kind != "hub":
        return "a file that you provide"
    return f"Hub; schema confirmed by {DOUBLES[corpus.fetch.package]['schema']}"


def table() -> str:
    """All datasets, as the suite and the manifests have them."""
    lines = ["| dataset | task | domain | language | corpus | licence | passages | tokens | dev | test | state |"]
    lines.append("|---|---|---|---|---|---|---|---|---|---|---|")
    for key, pipeline, corpus, one in datasets():
        published = one.published
        splits = [f"{split[0]:,}" if split else "" for split in (published.dev, published.test)]
        cells = [f"`{key}`", pipeline.task, pipeline.domain, pipeline.language, f"`{corpus.name}`", corpus.licence]
        cells += [f"{published.passages:,}", f"{published.tokens:,}", *splits, state(corpus)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def test_the_suite_has_the_papers_datasets() -> None:
    found = datasets()
    assert Counter(pipeline.task for _, pipeline, _, _ in found) == {"qa": 54, "long-doc": 15}
    assert {pipeline.domain for _, pipeline, _, _ in found} == {
        "arxiv", "book", "finance", "healthcare", "law", "news", "science", "web", "wiki",
    }  # fmt: skip
    assert {pipeline.language for _, pipeline, _, _ in found} == set(LANGUAGES) and len(LANGUAGES) == 13
    for key, pipeline, corpus, one in found:
        assert (corpus.language, corpus.domain, corpus.task) == (pipeline.language, pipeline.domain, pipeline.task), key
        assert pipeline.target == one.published.queries
        # Long-Doc has questions and claims only, no generated negatives and one split; MS MARCO is dev only.
        splits = {"dev": 1, "test": 4} if one.split is None else {one.split: 1}
        assert pipeline.export.splits == splits
        negatives = sum(split[3] for split in (one.published.dev, one.published.test) if split)
        assert (negatives == 0) == (pipeline.task == "long-doc") == (pipeline.generation.hard_negatives == (0, 0))
        clean = corpus.clean
        assert clean.max_tokens is None or clean.max_tokens >= one.published.tokens >= clean.min_tokens
    dev = [key for key, pipeline, _, one in found if pipeline.task == "long-doc" and one.split == "dev"]
    assert dev == ["llama2", "a-brief-history-of-time", "pubmed-100k-200k-3", "lex-files-300k-400k"]
    queries = {
        split: sum(getattr(one.published, split)[0] for *_, one in found if getattr(one.published, split))
        for split in ("dev", "test")
    }
    assert queries == {"dev": 25_792, "test": 76_185}
    assert len({pipeline.name for _, pipeline, _, _ in found}) == 69


def test_the_first_version_has_28_datasets_and_larger_corpora() -> None:
    """Table 16: all of them are in 24.05 as well, where four corpora were trimmed."""
    suite = load_suite(data_dir("pipelines") / "airbench-24.04.yaml")
    later = {key: (corpus, one.published) for key, _, corpus, one in datasets()}
    trimmed = {}
    for key, one in suite.datasets.items():
        pipeline = Pipeline.model_validate(suite.values(key))
        corpus, (corpus_then, then) = load_corpus_settings(pipeline.corpus), later[key]
        assert (corpus.language, corpus.domain, corpus.task) == (pipeline.language, pipeline.domain, pipeline.task), key
        assert corpus.reader == corpus_then.reader and corpus.clean == corpus_then.clean, key
        assert pipeline.export.splits == {"test": 1} and pipeline.target == one.published.queries == then.queries, key
        if one.published.passages != then.passages:
            trimmed[key] = (one.published.passages, then.passages)
            assert corpus.limit != corpus_then.limit and (corpus.limit or 10**9) > corpus_then.limit
    assert len(suite.datasets) == 28
    assert Counter(suite.values(key)["task"] for key in suite.datasets) == {"qa": 13, "long-doc": 15}
    assert trimmed == {
        "finance-zh": (2_398_095, 1_014_974), "web-en": (2_459_587, 1_012_910), "wiki-en": (6_738_498, 1_012_092),
        "wiki-zh": (1_161_226, 1_011_604),
    }  # fmt: skip


def test_the_docs_have_the_table_of_the_suite() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.partition(BEGIN)[2].partition(END)[0] == table(), "run: python tests/publishing/test_airbench.py"


@pytest.mark.parametrize(
    "names", [("law-de", "wiki-id", "gemini", "gpt3"), pytest.param((), marks=pytest.mark.nightly)]
)
def test_the_suite_is_priced_without_a_download(
    names: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of its datasets; each night, all."""
    suite, home = "airbench-24.05", tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("AIRGEN_CACHE", str(home / "cache"))
    if names:
        values = yaml.safe_load(SUITE.read_text(encoding="utf-8"))
        values["datasets"] = {name: values["datasets"][name] for name in names}
        suite = str(tmp_path / "some.yaml")
        (tmp_path / "some.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    result = invoke("check", suite, "--json")
    found = json.loads(result.output)
    count = len(names) or 69
    assert result.exit_code == 1 and len(found["datasets"]) == count
    assert any("OPENAI_API_KEY" in line and times == count for line, times in found["problems"].items())
    assert any("airgen fetch airbench-paper-gpt3 --from FILE" in line for line in found["problems"])
    assert found["usd"] == pytest.approx(sum(row["usd"] for row in found["datasets"]))
    assert 2 < found["usd"] < 1000 and (names or found["usd"] > 100)
    assert all(row["published"] for row in found["datasets"])
    rows = {row["name"]: row for row in found["datasets"]}
    assert rows["law-de"]["usd"] > 3 * rows["wiki-id"]["usd"]  # 3,361 and 451 tokens a passage
    # 249 queries, three re-rankers, all of 276 passages.
    assert (rows["gemini"]["reranked"], rows["gemini"]["embedded"]) == (249 * 276 * 3, 276 * 136)
    assert not list(home.iterdir())


def test_a_dataset_of_a_suite_is_a_pipeline_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SUITE.yaml#NAME is found, loaded and checked like a file with the same values."""
    monkeypatch.chdir(tmp_path)
    pipeline = load_pipeline(Path(f"{SUITE}#wiki-bn"))
    assert (pipeline.name, pipeline.corpus, pipeline.target) == ("airbench-wiki-bn", "hub-wikipedia-bn", 1820)
    job = Job(Path("airbench-24.05#wiki-bn"))
    values = yaml.safe_load(SUITE.read_text(encoding="utf-8"))["common"]
    values |= {"name": "airbench-wiki-bn", "domain": "wiki", "language": "bn", "corpus": "hub-wikipedia-bn"}
    (tmp_path / "same.yaml").write_text(yaml.safe_dump({**values, "target": 1820}))
    assert Job(tmp_path / "same.yaml").fingerprints == job.fingerprints
    said = invoke("check", "airbench-24.05#wiki-bn", "--stages").output
    assert (
        "airbench-wiki-bn: 1,820 queries" in said
        and ("its corpus is not on this machine: the estimate uses the") in said
    )
    assert "cannot be read" not in said and "in all" in said
    with refused(SettingsError, "unknown_name", "wiki-bn", where=SUITE):
        load_pipeline(Path(f"{SUITE}#wiki-bm"))
    with pytest.raises(UsageError, match="name a dataset of the suite"):
        call("check", "airbench-24.05", "--target", 5)


SMALL = """
name: small
version: "1"
common: {llm: {backend: scripted}, task: qa, control: {rerankers: [bm25]}}
datasets:
  one: {domain: test, corpus: small.yaml, target: 3, pipeline: {seed: 5}}
  two: {domain: test, language: de, corpus: far.yaml, published: {passages: 900, tokens: 100, test: [40, 9, 50, 60]}}
  three: {domain: test, corpus: far.yaml, target: 2}
"""


def test_a_suite_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A corpus that is here is read, one that is not is priced by what is published, else its price is unknown."""
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "suite.yaml").write_text(SMALL)
    common = "language: en, domain: test, licence: CC0-1.0, source: here, reader: {kind: jsonl, path: c.jsonl}"
    (tmp_path / "small.yaml").write_text(f"{{name: small, {common}, clean: {{language: off, min_tokens: 1}}}}")
    fetch = "fetch: {kind: file, url: 'https://example.org/c.jsonl'}"
    (tmp_path / "far.yaml").write_text(f"{{name: far, {common}, {fetch}}}")
    (tmp_path / "c.jsonl").write_text('{"_id": "1", "text": "Bees feed on nectar and on the pollen of flowers."}\n')
    found = check_suite(tmp_path / "suite.yaml", tmp_path / "runs")
    one, two, three = found.datasets
    assert (one.published, one.queries, one.passages) == (False, 3, None) and one.estimate is not None
    assert (two.published, two.queries, two.embedded, two.reranked) == (True, 40, 90_000, 40 * 900)
    assert two.estimate is not None and two.estimate.stages[0].prompt_tokens > 100 * two.estimate.samples
    assert three.estimate is None and found.usd is None
    assert [count for line, count in found.problems.items() if "get the file from https://example.org" in line] == [2]
    assert Suite.model_validate(yaml.safe_load(SMALL)).values("one")["seed"] == 5
    said = invoke("check", tmp_path / "suite.yaml").output.splitlines()
    assert said[0] == "small 1: 3 datasets, 45 queries"
    assert [line.split()[0] for line in said[2:5]] == ["one", "two", "three"]
    assert said[2].endswith("by its corpus") and said[4].split()[-1] == "unknown" and "> 0.00" in said[5]
    assert "900 passages (90,000 tokens) are encoded once" in said[6]


def test_a_suite_without_pipeline_files_is_built(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One job on a real corpus with the scripted model; the published pipeline is what the suite says of it."""
    monkeypatch.chdir(folder)
    common = yaml.safe_load(LEXICAL)
    name, target = common.pop("name"), 3
    del common["target"]
    suite = {"name": "both", "version": "1", "common": common, "datasets": {name: {"target": target, "domain": "test"}}}
    (folder / "suite.yaml").write_text(yaml.safe_dump(suite))
    said = call("run", "suite.yaml")
    home = folder / "suites" / "both" / "1" / "qa_test_en" / "both-job"
    assert str(home.relative_to(folder).parents[1]) in said and (home / "manifest.json").is_file()
    public = yaml.safe_load((home / "pipeline.yaml").read_text(encoding="utf-8"))
    assert (public["name"], public["target"], public["control"]) == ("both-job", target, common["control"])
    assert f"both-job: {target} queries" in call("check", "suite.yaml#job")


if __name__ == "__main__":
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.partition(END)[2], encoding="utf-8")
