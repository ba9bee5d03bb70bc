"""A Hub that nobody here wrote, read with the real clients: olah, a mirror, offline over git repositories.

It takes nothing: no upload, no account, no repository without a revision. What publishing sends is tried against
`tests/makers/fake_hub.py`, which answers the requests of the real client that it knows, and 404 to any other.
"""

import hashlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from child import AIRGEN, finish
from dataset_maker import make_content
from packages import package
from real_servers import started

from airgen.dataset.beir import BeirDataset
from airgen.dataset.verify import verify
from airgen.dataset.write import write_dataset
from airgen.publishing.publish import plan

package("datasets")
pytestmark = pytest.mark.servers
REPO, MODEL = "my-org/weather-notes", b"weights " * 4000


def as_repository(folder: Path, tag: str) -> None:
    for words in (("init", "-b", "main"), ("add", "-A"), ("commit", "-m", "a version"), ("tag", tag)):
        who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
        subprocess.run(["git", *who, "-C", str(folder), *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `airgen publish` would send for a dataset with private labels, as a folder."""
    folder = tmp_path_factory.mktemp("published")
    write_dataset(folder / "whole", make_content())
    *_, public = plan(folder / "whole", REPO, folder / "work", private_qrels=["test"])
    return public.directory


@pytest.fixture(scope="module")
def hub(published: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("olah")
    data, model = folder / "mirrors" / "datasets" / REPO, folder / "mirrors" / "models" / "someone" / "tiny"
    data.parent.mkdir(parents=True)
    (published / ".gitattributes").write_text("*.parquet filter=lfs\n")  # the Hub puts one into each repository
    published.rename(data)
    published.symlink_to(data)
    model.mkdir(parents=True)
    (model / "tiny-q4.gguf").write_bytes(MODEL)
    as_repository(data, "26.11")
    as_repository(model, "1")
    (folder / "olah.toml").write_text('[basic]\nmirrors-path = ["mirrors"]\n[accessibility]\noffline = true\n')
    with started("olah", folder) as url:
        yield url


@pytest.fixture
def environment(hub: str, tmp_path: Path) -> dict[str, str]:
    """For a child: huggingface_hub reads HF_ENDPOINT when it is imported."""
    home = {"HF_HOME": str(tmp_path / "home"), "AIRGEN_CACHE": str(tmp_path / "cache")}
    return {
        "HF_ENDPOINT": hub,
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        **home,
    }


def said(code: str, *words: object, cwd: Path | None = None, **env: str) -> Any:
    """The JSON in the last line that a program prints."""
    ended = finish("import datasets\ndatasets.disable_progress_bars()\n" + code, *words, cwd=cwd, **env)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return json.loads(ended.stdout.splitlines()[-1])


SNAPSHOT = """
import json, huggingface_hub, sys
repo, revision, folder = sys.argv[1:]
more = {"local_dir": folder} if folder else {}
print(json.dumps(huggingface_hub.snapshot_download(repo, repo_type="dataset", revision=revision, **more)))
"""


@pytest.mark.parametrize(("revision", "folder"), [("main", "here"), ("26.11", "here"), ("26.11", "")])
def test_a_snapshot_is_the_dataset_that_was_published(
    revision: str, folder: str, published: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    found = Path(said(SNAPSHOT, REPO, revision, folder and tmp_path / folder, **environment))
    for path in (path for path in published.resolve().rglob("*") if path.is_file()):
        name = path.relative_to(published.resolve())
        assert ".git" in name.parts or (found / name).read_bytes() == path.read_bytes()
    if folder:
        assert verify(found) == []
    else:
        assert {one.kind for one in verify(found)} == {"path"}  # the client's cache is a folder of links
    assert BeirDataset.open(found).splits == ["dev"]
    (tmp_path / "systems.yaml").write_text("systems: [{name: bm25, kind: bm25}]\n", encoding="utf-8")
    scores = []
    for place in (published, found):
        words = ("evaluate", place, "--systems", tmp_path / "systems.yaml", "--split", "dev", "--json")
        ended = finish(AIRGEN, *words, "--out", tmp_path / place.name)
        scores.append([row["means"] for row in json.loads(ended.stdout)])
    assert scores[0] == scores[1] and scores[0][0]


LOADED = """
import json, sys
def rows(config, split, **more):
    return [*datasets.load_dataset(sys.argv[1], config, split=split, **more)]
from mteb.abstasks.retrieval_dataset_loaders import RetrievalDatasetLoader
mteb = RetrievalDatasetLoader(sys.argv[1], revision="26.11", split="dev").load()
print(json.dumps({
    "corpus": rows("corpus", "corpus"), "streamed": rows("corpus", "corpus", streaming=True),
    "queries": rows("queries", "queries", revision="26.11"), "dev": rows("default", "dev"),
    "splits": sorted(datasets.load_dataset(sys.argv[1])), "mteb": mteb["relevant_docs"],
}))
"""


def test_datasets_and_mteb_load_it(published: Path, environment: dict[str, str]) -> None:
    found, dataset = said(LOADED, REPO, **environment), BeirDataset.open(published)
    passages = [(one.id, one.title, one.text) for one in dataset.passages()]
    for rows in (found["corpus"], found["streamed"]):
        assert [(row["_id"], row["title"], row["text"]) for row in rows] == passages
    assert {row["_id"]: row["text"] for row in found["queries"]} == {
        key: q.text for key, q in dataset.queries().items()
    }
    labels = dataset.qrels("dev").labels
    assert found["splits"] == ["dev"] and found["mteb"] == labels
    assert [(row["query-id"], row["corpus-id"], row["score"]) for row in found["dev"]] == [*dataset.label_rows("dev")]


CORPUS = """
import json
from pathlib import Path
from airgen.corpus.requirements import open_reader
from airgen.corpus.settings import load_corpus_settings
print(json.dumps([[one.id, one.title, one.text] for one in open_reader(load_corpus_settings("c.yaml")).read()]))
"""


def test_a_corpus_is_streamed_from_it(published: Path, environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "{name: c, language: en, domain: web, licence: CC0-1.0, source: a test, reader: {kind: datasets, "
        f"path: {REPO}, config: corpus, split: corpus, revision: '26.11', fields: {{id: _id}}}}}}",
        encoding="utf-8",
    )
    expected = [[one.id, one.title, one.text] for one in BeirDataset.open(published).passages()]
    assert said(CORPUS, cwd=tmp_path, **environment) == expected


FETCHED = """
import hashlib, json, sys
from airgen.errors import ModelError
from airgen.models.catalogue import ModelEntry, ModelFile
from airgen.models.fetching import fetch_entry
name, size, sha = sys.argv[1:]
file = ModelFile("model.gguf", int(size), sha, name)
try:
    place = fetch_entry(ModelEntry("tiny", "gguf", "", "", 1000, (), (file,), "someone/tiny"))
    print(json.dumps(hashlib.sha256(place.read_bytes()).hexdigest()))
except ModelError as error:
    print(json.dumps(str(error)))
"""


def test_a_model_is_fetched_by_its_hash(environment: dict[str, str], tmp_path: Path) -> None:
    sha = hashlib.sha256(MODEL).hexdigest()
    for name, size, wanted, words in (
        (
            "tiny-q4.gguf",
            len(MODEL),
            "0" * 64,
            "someone/tiny has a different tiny-q4.gguf; the download",
        ),
        ("tiny-q4.gguf", 7, sha, "someone/tiny has a different tiny-q4.gguf: 32,000 bytes instead of 7"),
        ("other.gguf", len(MODEL), sha, "no source provided model.gguf: the Hub: "),
        ("tiny-q4.gguf", len(MODEL), sha, sha),
    ):
        assert words in said(FETCHED, name, size, wanted, **environment)
    assert (tmp_path / "cache" / "models" / "tiny" / "model.gguf").read_bytes() == MODEL


def test_publishing_to_a_hub_that_takes_nothing(environment: dict[str, str], tmp_path: Path) -> None:
    write_dataset(tmp_path / "d", make_content())
    token = "hf_" + "a" * 34
    words = ("publish", tmp_path / "d", "--repo", REPO, "--private-qrels", "test", "--yes")
    ended = finish(AIRGEN, *words, HF_TOKEN=token, **environment)
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("airgen: my-org/") and "set HF_TOKEN" in last and token not in ended.stdout + ended.stderr
