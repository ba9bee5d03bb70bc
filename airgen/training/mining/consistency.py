"""E5's consistency filter (section 3): keep a pair if a first model retrieves its passage from among random passages.

The passage of each pair is ranked for its query against a pool of random passages from the same corpus (E5: a million),
and the pair is kept if its passage is within the top k (E5: 2). A model trained on noisy pairs learns their
regularities before memorising the rest, so pairs that it does not retrieve are more often noise. The pool excludes
passages labelled as relevant to the query, equal texts, and the query itself if it is a passage.

Pairs are read, embedded and ranked in chunks, and the vectors of the pool are stored in a temporary file.
"""

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from airgen.components.keys import rng
from airgen.compute.exact_arithmetic import inner_products
from airgen.dataset.beir import BeirDataset
from airgen.errors import DatasetError, UsageError
from airgen.retrievers.dense.retriever import Dense
from airgen.retrievers.encoding_cache import encoded
from airgen.retrievers.protocols import Embedder, TextKind
from airgen.storage.sequences import batched
from airgen.storage.whole_files import building
from airgen.training.data import RESERVED
from airgen.training.dataset_columns import DatasetColumns, KeyPlaces, key_of, part_of
from airgen.training.mining.sources import HEAD, PAIRS

_CHUNK_PAIRS = 4096  # pairs embedded and ranked at once
_BATCH_TEXTS = 256  # texts for a worker at once


@dataclass(frozen=True)
class FilteredPairs:
    """The result of filtering. `kinds` is {kind: (kept, all)}, and `pool` is the number of random passages."""

    out: Path
    kept: int
    pairs: int
    pool: int
    kinds: dict[str, tuple[int, int]]


def filter_pairs(
    path: Path,
    out: Path,
    embedder: Embedder,
    *,
    k: int = 2,
    pool: int = 1_000_000,
    split: str = "train",
    seed: int = 42,
    progress: Callable[[int, int], None] | None = None,
) -> FilteredPairs:
    """Write the pairs of a split that pass the filter to `out`, a dataset with the same corpus. Other splits are
    copied.

    `pool` is limited to the size of the corpus. `progress` is called with (pairs done, all pairs). Labels of 0 and less
    are copied. Raises UsageError for a split that is reserved for testing, of which every query counts, DatasetError if
    no pair is kept, and the embedder's ModelError.
    """
    if split.lower() in RESERVED:
        raise UsageError(f"--split {split} is for testing: its queries must all stay; filter a training split")
    pairs = _Pairs(path, split)
    with tempfile.TemporaryDirectory(prefix="airgen-filter-") as scratch, building(out, PAIRS) as folder:
        chosen = np.random.default_rng(rng("pool", seed).getrandbits(64)).permutation(len(pairs.corpus))
        places = np.sort(chosen[:pool])  # ascending, so that the texts are read in order
        near = _Near(pairs, embedder, places, folder=Path(scratch), k=k)
        kept: Counter[str] = Counter()
        seen: Counter[str] = Counter()
        queries: set[str] = set()
        (folder / "qrels").mkdir()
        with (folder / "qrels" / f"{split}.tsv").open("w", encoding="utf-8", newline="\n") as qrels:
            qrels.write(HEAD)
            done = 0
            for chunk in pairs.chunks():
                within = near(chunk)
                for query, passage, label, close in zip(*(part.tolist() for part in chunk), within, strict=True):
                    passes = close or label <= 0
                    if label > 0:
                        seen[pairs.kinds[query]] += 1
                        kept[pairs.kinds[query]] += passes
                    if passes:
                        key = pairs.columns.query_ids[query]
                        queries.add(key)
                        qrels.write(f"{key}\t{pairs.corpus.ids[passage]}\t{label:g}\n")
                done += len(within)
                if progress:
                    progress(done, pairs.count)
        if not kept.total():
            raise DatasetError(
                f"{path}: none of {seen.total()} pairs is within the top {k} of {len(places)} passages: "
                "raise --k, or train a better first model"
            )
        _copy_rest(pairs.dataset, folder, split, queries)
        kinds = {kind: (kept[kind], seen[kind]) for kind in sorted(seen)}
        summary = {
            "info": dict(pairs.dataset.info),
            "model": dict(embedder.describe()),
            "k": k,
            "pool": len(places),
            "seed": seed,
            "pairs": kept.total(),
            "of_pairs": seen.total(),
            "kinds": {kind or "all": {"kept": count, "of": total} for kind, (count, total) in kinds.items()},
        }
        text = json.dumps(summary, ensure_ascii=False, indent=1, sort_keys=True)
        (folder / PAIRS).write_text(text, encoding="utf-8")
    return FilteredPairs(out, kept=kept.total(), pairs=seen.total(), pool=len(places), kinds=kinds)


_Chunk = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]
"""Some lines of a qrels file: positions of queries and passages, and labels."""


class _Pairs:
    """One split of a dataset as a stream of pairs, with texts on disk. Raises DatasetError if the split is missing."""

    def __init__(self, path: Path, split: str) -> None:
        self.dataset, self._split = BeirDataset.open(path), split
        for file in (self.dataset.file("corpus"), self.dataset.file("queries")):
            if file.suffix != ".jsonl":
                raise DatasetError(f"{file}: is compressed, but is copied as it is: unpack it")
        self.columns = DatasetColumns(self.dataset, "")
        self.corpus = self.columns.corpus
        self.kinds = [str(query.metadata.get("kind", "")) for query in self.dataset.each_query()]
        self.keys = np.fromiter(map(key_of, self.corpus.full_texts), np.int64, len(self.corpus))
        self.relevant: dict[int, set[int]] = {}
        self.count = 0
        for queries, passages, labels in self.chunks():
            self.count += len(labels)
            for query, key, label in zip(queries.tolist(), self.keys[passages], labels, strict=True):
                of_query = self.relevant.setdefault(query, set())
                if label > 0:
                    of_query.add(int(key))

    def chunks(self) -> Iterator[_Chunk]:
        """Yield the pairs in the order of the qrels file. Raises DatasetError if an id has no text."""
        for rows in batched(self.dataset.label_rows(self._split), _CHUNK_PAIRS):
            queries, passages, labels = zip(*rows, strict=True)
            places_of_pairs = self.columns.places_of(queries, passages)
            for keys, places, name in zip((queries, passages), places_of_pairs, ("queries", "corpus"), strict=True):
                if (places < 0).any():
                    key = keys[int(np.argmin(places))]
                    raise DatasetError(f"{self.dataset.file(name)}: has no row {key!r}, which the qrels refer to")
            yield *places_of_pairs, np.array(labels)


class _Near:
    """Tests whether a passage is within the top k for its query among the passages at `places`, whose vectors are on
    disk."""

    def __init__(self, pairs: _Pairs, embedder: Embedder, places: NDArray[np.int64], *, folder: Path, k: int) -> None:
        self._pairs, self._embedder, self._k = pairs, embedder, k
        self._dense = Dense(embedder, cache=folder)
        self._dense.index(part_of(pairs.corpus, places))
        self._keys = pairs.keys[places]
        self._places = KeyPlaces(self._keys)

    def __call__(self, chunk: _Chunk) -> list[bool]:
        pairs, keys = self._pairs, self._pairs.keys[chunk[1]]
        texts = [pairs.columns.query_texts[at] for at in chunk[0].tolist()]
        queries = self._encoded(texts, "query")
        places = self._places.find(keys)
        passages = self._dense.rows(np.maximum(places, 0).tolist())
        new = [pairs.corpus.full_text(at) for at in chunk[1][places < 0].tolist()]
        passages[places < 0] = self._encoded(new, "passage")
        pair_scores = inner_products(queries, passages).astype(np.float32)
        limit = pair_scores + 1e-5 * np.maximum(1, np.abs(pair_scores))  # scores that differ by rounding count as equal
        excluded = [
            [*(pairs.relevant[query] | {key, key_of(text)})]
            for query, key, text in zip(chunk[0].tolist(), keys.tolist(), texts, strict=True)
        ]
        hits = self._dense.nearest(queries, self._k + max(map(self._places.count, excluded)))
        higher = (hits.positions >= 0) & (hits.scores > limit[:, None])
        rivals = (
            ~np.isin(self._keys[positions], own_keys)
            for positions, own_keys in zip(hits.positions, excluded, strict=True)
        )
        return [int(np.count_nonzero(row & counts)) < self._k for row, counts in zip(higher, rivals, strict=True)]

    def _encoded(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """Encode texts on all workers."""
        parts = list(encoded(self._embedder.encode, batched(texts, _BATCH_TEXTS), kind))
        return np.concatenate(parts) if parts else np.zeros((0, self._embedder.dim), np.float32)


def _copy_rest(dataset: BeirDataset, folder: Path, split: str, queries: set[str]) -> None:
    """Copy the corpus, the qrels of other splits, and the queries that any split still uses."""
    shutil.copyfile(dataset.file("corpus"), folder / "corpus.jsonl")
    for name in dataset.splits:
        if name != split:
            source = dataset.qrels_file(name)
            if source.parent.name == "qrels":
                shutil.copyfile(source, folder / "qrels" / source.name)
            else:  # beside the corpus, where its name is another
                lines = (f"{query}\t{passage}\t{label:g}\n" for query, passage, label in dataset.label_rows(name))
                (folder / "qrels" / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
            queries |= set(dataset.qrels(name).labels)
    with (
        dataset.file("queries").open(encoding="utf-8") as rows,
        (folder / "queries.jsonl").open("w", encoding="utf-8") as left,
    ):
        left.writelines(row for row in rows if row.strip() and str(json.loads(row).get("_id")) in queries)
