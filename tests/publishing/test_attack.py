"""The attack: somebody with airgen's code, the public part, the corpus and the original ids looks for test labels.

Each way of it gives guesses (query, source document). A way is closed if its guesses are right no more often than
chance. The first test shows that the attack works: on a dataset without a secret it finds every source.
"""

import dataclasses
import functools
import hashlib
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from dataset_maker import make_content
from job_maker import CORPUS, LEXICAL, make_corpus, run_quietly

from airgen.components.keys import row_key, text_key
from airgen.corpus import prepare
from airgen.corpus.cleaning.filters import normalise
from airgen.dataset.derive import derive
from airgen.dataset.manifest import load_manifest
from airgen.dataset.secret import Secret, split_of
from airgen.dataset.write import write_dataset
from airgen.generation.attributes import draw, query_attributes
from airgen.job import Job
from airgen.job.export import export_dataset
from airgen.publishing.withhold import public_part, secrecy_problems
from airgen.steps.public_ids import PublicIds
from airgen.storage.records import Passage

Guesses = dict[str, set[str]]  # query id: original ids of documents that may be its source

PASSAGES, TARGET = 50, 15


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus, which the adversary has too, and what two pipelines made of it."""
    return made_in(tmp_path_factory.mktemp("attack"), TARGET)


def made_in(path: Path, target: int) -> Path:
    make_corpus(path / "small.jsonl", PASSAGES)
    (path / "small.yaml").write_text(CORPUS, encoding="utf-8")
    made = {"open": "seed: 42\nexport: {secret: false}\n", "default": "seed: 42\n"}
    for name, more in made.items():
        text = LEXICAL.replace("name: job", f"name: {name}").replace("target: 4", f"target: {target}") + more
        (path / f"{name}.yaml").write_text(text, encoding="utf-8")
        job = Job(path / f"{name}.yaml", path / "runs")
        run_quietly(job)
        public_part(job.dataset, path / "public" / name, ["test"])
    return path


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class Adversary:
    """What the adversary has: the public part, the corpus with its original ids, and airgen's code."""

    def __init__(self, home: Path, name: str, seed: int = 42) -> None:
        self.public = home / "public" / name
        self.queries = {row["_id"]: row for row in rows(self.public / "queries.jsonl")}
        self.corpus = rows(self.public / "corpus.jsonl")
        # The pipeline as it was published; the corpus that it names is public. A missing seed is guessed.
        value = yaml.safe_load((self.public / "pipeline.yaml").read_text(encoding="utf-8"))
        value = {**value, "seed": value.get("seed", seed), "export": {**value.get("export", {}), "secret": False}}
        path = home / f"guess-{name}-{seed}.yaml"
        path.write_text(yaml.safe_dump(value), encoding="utf-8")
        self.job = Job(path, home / "guess")
        corpus = [one for one in prepare(self.job.corpus, "qa") if isinstance(one, Passage)]
        self.original = {passage.text: passage.id for passage in corpus}
        self.published = {row["_id"]: self.original.get(row["text"]) for row in self.corpus}

    @functools.cached_property
    def chains(self) -> list[tuple[str, str, str]]:
        """(original id, sample's key, key of a possible final query) of every passage, without an LLM call."""
        plan, found = self.job.fingerprints, []
        for passage in prepare(self.job.corpus, self.job.pipeline.task):
            assert isinstance(passage, Passage)
            sample = key = row_key("sample", passage.key, plan["sample"], 0)
            for stage in ("character", "scenario", "query"):
                key = row_key(stage, key, plan[stage], 0)
            for turn in range(4):
                final = key if turn == 0 else row_key("rewrite", key, plan["rewrite"], turn)
                found.append((passage.id, sample, final))
        return found

    def by_row_keys(self) -> Guesses:
        """A query's id is the beginning of its row's key."""
        found = {"q" + key[:15]: source for source, _, key in self.chains}
        return {query: {found[query]} for query in self.queries if query in found}

    def by_attributes(self) -> Guesses:
        """The first samples of the permutation, by the attributes that were drawn for them and published."""
        generation, guesses = self.job.pipeline.generation, {}
        for query, row in self.queries.items():
            about = row["metadata"]
            wanted = (about["length"], about["type"], about["information"])
            guesses[query] = {
                source
                for sample, source in {(sample, source) for source, sample, _ in self.chains}
                if query_attributes(generation, sample) == wanted
                and about["style"] in [draw(generation.styles, sample, "style", turn) for turn in (1, 2)]
            }
        return guesses

    def by_order(self) -> Guesses:
        """The i-th query is of the passages at that place of the corpus, without those that were generated."""
        known = [source for source in self.published.values() if source]
        every, size = len(self.queries), 6
        places = {query: place * (len(known) - size) // max(every - 1, 1) for place, query in enumerate(self.queries)}
        return {query: set(known[place : place + size]) for query, place in places.items()}

    def by_splits(self) -> Guesses:
        """Those passages whose sample has the query's split."""
        ratios = self.job.pipeline.export.splits
        split = {source: split_of(sample, ratios) for source, sample, _ in self.chains}
        return {
            query: {source for source, other in split.items() if other == row["metadata"]["split"]}
            for query, row in self.queries.items()
        }

    def by_dev_labels(self) -> Guesses:
        """Documents that dev labels name, for the queries of test: a document may have several queries."""
        labels = rows(self.public / "qrels" / "dev.jsonl")
        named = {self.published[row["corpus-id"]] for row in labels} - {None}
        return {query: {str(one) for one in named} for query in self.queries}


WAYS: dict[str, Callable[[Adversary], Guesses]] = {
    "row keys": Adversary.by_row_keys,
    "attributes": Adversary.by_attributes,
    "order": Adversary.by_order,
    "splits": Adversary.by_splits,
    "dev labels": Adversary.by_dev_labels,
}


def right(home: Path, name: str, guesses: Guesses) -> tuple[int, int, float]:
    """(test queries, those whose source is among the guesses, probability that chance gives as many or more)."""
    dataset = home / "runs" / name / "dataset"
    splits = {row["_id"]: row["metadata"]["split"] for row in rows(dataset / "queries.jsonl")}
    sources = {row["query"]: row["source"] for row in rows(dataset / "private" / "lineage.jsonl")}
    test = [query for query, split in splits.items() if split == "test"]
    shares = [len(guesses.get(query, ())) / PASSAGES for query in test]
    found = sum(sources[query] in guesses.get(query, ()) for query in test)
    counts = np.ones(1)  # the distribution of the number of right ones, one query after the other
    for share in shares:
        counts = np.convolve(counts, [1 - share, share])
    return len(test), found, float(counts[found:].sum())


def test_without_a_secret_the_attack_finds_every_source(home: Path) -> None:
    adversary = Adversary(home, "open")
    queries, found, _ = right(home, "open", adversary.by_row_keys())
    assert queries >= 12
    assert found == queries
    _, found, chance = right(home, "open", adversary.by_attributes())
    assert found > queries / 3 and chance < 1e-9  # and most of them again, by the attributes alone
    ids = {"d" + text_key(f"open\x1f{id_}")[:15] for id_ in adversary.original.values()}
    assert ids == {row["_id"] for row in adversary.corpus if row["text"] in adversary.original}
    assert {one.kind for one in secrecy_problems(home / "runs" / "open" / "dataset")} == {"not-secret"}


def test_with_a_secret_no_way_finds_more_than_chance(home: Path) -> None:
    for seed in (42, 0, 1):
        adversary = Adversary(home, "default", seed)
        for way, guess in WAYS.items():
            assert right(home, "default", guess(adversary))[2] > 0.001, way
    assert secrecy_problems(home / "runs" / "default" / "dataset") == []


def test_public_files_name_neither_seed_nor_secret_nor_counts(home: Path) -> None:
    public, dataset = home / "public" / "default", home / "runs" / "default" / "dataset"
    secret = (dataset / "private" / "secret.key").read_text(encoding="ascii").strip()
    keys = {one for row in rows(dataset / "private" / "lineage.jsonl") for one in (row["source"], row["character"])}
    assert len(secret) == 64
    for path in (one for one in public.rglob("*") if one.is_file()):
        text = path.read_text(encoding="utf-8")
        assert secret not in text
        assert "seed: " not in text and '"seed": 42' not in text
        assert not [key for key in keys if f'"{key}"' in text]
    manifest = load_manifest(public)
    assert manifest.info.seed is None
    assert manifest.statistics.splits["test"].positives is None
    assert manifest.statistics.splits["dev"].positives
    assert not {"positives", "hard negatives"} & {step.stage for step in manifest.funnel}
    assert manifest.notes["pair of parts"] not in ("", load_manifest(dataset).digest)
    assert {path.stat().st_mtime for path in public.rglob("*") if path.is_file()} == {315532800.0}
    key = home / "runs" / "default" / "secret.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert (dataset / "private" / "secret.key").stat().st_mode & 0o777 == 0o600


def test_the_public_part_does_not_change_with_the_withheld_labels(tmp_path: Path) -> None:
    parts = []
    for name, change in (("one", 0), ("two", 1)):
        content = make_content()
        qrels = []
        for row in content.qrels:
            if int(row.query[2:]) % 3 != 2 and change:  # of test: another document, another level, one label less
                row = dataclasses.replace(row, document=f"doc{int(row.document[3:]) + 3:03d}", level=3, gain=0.5)
                if row.query == "q-04" and not row.score:
                    continue
            qrels.append(row)
        write_dataset(tmp_path / name, dataclasses.replace(content, qrels=qrels))
        public_part(tmp_path / name, tmp_path / f"{name}-public", ["test"])
        pair = str(load_manifest(tmp_path / f"{name}-public").notes["pair of parts"])
        files = {path.name: path for path in (tmp_path / f"{name}-public").rglob("*") if path.is_file()}
        texts = {path: one.read_text(encoding="utf-8").replace(pair, "PAIR") for path, one in files.items()}
        card = hashlib.sha256(files["README.md"].read_bytes()).hexdigest()
        texts["manifest.json"] = texts["manifest.json"].replace(card, "CARD")
        parts.append((pair, texts, {path: one.stat().st_size for path, one in files.items()}))
    assert parts[0][0] != parts[1][0]
    assert parts[0][1:] == parts[1][1:]


# What `verify` does not ask of a row alone.
FEATURES: dict[str, Callable[[dict[str, Any], int], float]] = {
    "id": lambda row, place: int(row["_id"][1:], 16),
    "length of the id": lambda row, place: len(row["_id"]),
    "place in the file": lambda row, place: place,
    "not normalised": lambda row, place: normalise(row["text"]) != row["text"],
    "parity of the length": lambda row, place: len(row["text"]) % 2,
}


def test_generated_passages_have_no_mark_besides_their_text(home: Path) -> None:
    """The area under the curve of each feature is within three standard errors of chance."""
    adversary = Adversary(home, "default")
    generated = [row["text"] not in adversary.original for row in adversary.corpus]
    assert PASSAGES == generated.count(False) < len(generated) - TARGET
    for name, feature in FEATURES.items():
        values = [feature(row, place) for place, row in enumerate(adversary.corpus)]
        high, low = (
            [value for value, of in zip(values, generated, strict=True) if of is kind] for kind in (True, False)
        )
        n, m = len(high), len(low)
        area = sum((a > b) + (a == b) / 2 for a in high for b in low) / (n * m)
        assert abs(area - 0.5) <= 3 * math.sqrt((n + m + 1) / (12 * n * m)), name


def test_trimmed_versions_do_not_tell_what_is_judged(tmp_path: Path) -> None:
    """Without a secret the trimming is computed forward: what stays against its order stays because it is judged."""
    home = made_in(tmp_path, target=3)  # few queries, so that many passages are not judged
    told = {}
    for name in ("open", "default"):
        dataset = home / "runs" / name / "dataset"
        judged = {row["corpus-id"] for path in (dataset / "qrels").glob("*.jsonl") for row in rows(path)}
        every = [row["_id"] for row in rows(dataset / "corpus.jsonl")]
        free = sorted(set(every) - judged, key=lambda id_: hashlib.blake2b(id_.encode(), digest_size=8).digest())
        assert len(free) >= 12  # so that no order is guessed by chance
        size = len(judged) + len(free) // 2  # where all that is not judged stays, its order shows nothing
        derive(dataset, tmp_path / name, max_passages=size)
        derive(dataset, tmp_path / f"{name}-2", max_passages=size - 1)
        kept = {row["_id"] for row in rows(tmp_path / name / "corpus.jsonl")}
        assert {row["_id"] for row in rows(tmp_path / f"{name}-2" / "corpus.jsonl")} < kept
        told[name] = kept - judged == set(free[: len(free) // 2])
    assert told == {"open": True, "default": False}


def test_all_queries_of_a_document_are_in_one_split(home: Path) -> None:
    """Else a dev label names the source of a test query of the same document."""
    job = Job(home / "default.yaml", home / "runs")
    with job.open_store(read_only=True) as store:
        lineages = job.accepted(store).lineages
    for one in lineages:
        second = dataclasses.replace(one.sample, key=text_key(one.sample.key), ordinal=1)
        other = dataclasses.replace(one, sample=second)
        assert job.ids.split(other) == job.ids.split(one)
    assert set(map(job.ids.split, lineages)) == {"dev", "test"}


def test_the_same_secret_gives_the_same_bytes_and_another_gives_other_ids(home: Path, tmp_path: Path) -> None:
    job = Job(home / "default.yaml", home / "runs")
    with job.open_store() as store:
        export_dataset(job, store, job.accepted(store), tmp_path / "again")
        same = {path.name: path.read_bytes() for path in (tmp_path / "again").glob("*.jsonl")}
        assert same == {path.name: path.read_bytes() for path in job.dataset.glob("*.jsonl")}
        ids = {job.ids.query(one) for one in job.accepted(store).lineages}
        other = PublicIds(job.pipeline, Secret(bytes(32)))
        assert not ids & {other.query(one) for one in job.accepted(store).lineages}


def test_a_version_with_more_queries_changes_nothing_of_the_earlier_one(home: Path, tmp_path: Path) -> None:
    """Old rows keep ids and order, and what is new in the corpus is generated: no source of a new query is marked."""
    shutil.copytree(home / "runs" / "default", tmp_path / "runs" / "default")
    job = Job(home / "default.yaml", tmp_path / "runs", target=TARGET + 8)
    run_quietly(job)
    public_part(job.dataset, tmp_path / "newer", ["test"])
    old, new = home / "public" / "default", tmp_path / "newer"
    for name in ("corpus.jsonl", "queries.jsonl"):
        before, after = rows(old / name), rows(new / name)
        known = {row["_id"] for row in before}
        assert len(after) > len(before)
        assert [row for row in after if row["_id"] in known] == before
    original = {row["text"] for row in rows(home / "small.jsonl")}
    added = {row["_id"]: row["text"] for row in rows(new / "corpus.jsonl")}
    for row in rows(old / "corpus.jsonl"):
        added.pop(row["_id"])
    assert not original & set(added.values())
    queries = {row["_id"] for row in rows(new / "queries.jsonl")} - {row["_id"] for row in rows(old / "queries.jsonl")}
    places = [place for place, row in enumerate(rows(new / "queries.jsonl")) if row["_id"] in queries]
    assert len(queries) == 8 and max(places) - min(places) > 8  # they are among the old ones
