"""The consistency filter of E5 (section 3): keep a pair if a first model finds its passage among random passages.

    filtered = filter_pairs(Path("data/pairs"), Path("data/filtered"), load_embedder("models/noisy"), k=2)

The passage of each pair is ranked for its query against a pool of random passages of the same corpus (E5: a million),
and the pair is kept if its passage is within the top k (E5: 2). A model that is trained on noisy pairs learns their
regularities before it memorises the rest, so pairs that it does not find are more often noise. These passages do not
compete: those labelled relevant to the query, equal texts, and the query itself if it is a passage.

Pairs are read, embedded and ranked in chunks, and the vectors of the pool are kept in a temporary file. So memory holds
ids, one chunk and one block of the pool, for any number of pairs.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import tee
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.dataset.files import building
from airgen.errors import DatasetError
from airgen.exact import inner_products
from airgen.keys import rng, text_key
from airgen.retrievers.base import Embedder
from airgen.retrievers.on_workers import encoded
from airgen.sequences import batched
from airgen.training.mining.pair_files import PAIRS, PairFiles, StoredPair

_CHUNK = 512  # pairs embedded and ranked at once
_BLOCK = 16_384  # pool vectors compared at once


@dataclass(frozen=True)
class FilteredPairs:
    """The result of a filter. `kinds` is {kind: (kept, all)}, `pool` the number of random passages."""

    out: Path
    kept: int
    pairs: int
    pool: int
    kinds: dict[str, tuple[int, int]]


class PassagePool:
    """Vectors of passages in a file, as fp16, with a key of each text."""

    def __init__(self, folder: Path, texts: Iterable[str], size: int, embedder: Embedder) -> None:
        self.keys = np.zeros(size, np.uint64)
        self.vectors = np.memmap(folder / "pool.f16", np.float16, "w+", shape=(size, embedder.dim))
        at = 0
        batches, sent = tee(batched(texts, _CHUNK))
        for batch, vectors in zip(batches, encoded(embedder.encode, sent, "passage"), strict=True):
            self.vectors[at : at + len(batch)] = vectors
            self.keys[at : at + len(batch)] = [_key(text) for text in batch]
            at += len(batch)
        self._order = np.argsort(self.keys, kind="stable")
        self._sorted = self.keys[self._order]

    def places(self, key: int) -> list[int]:
        """The places of a text in the pool."""
        first, last = (np.searchsorted(self._sorted, np.uint64(key), side) for side in ("left", "right"))
        return [int(place) for place in self._order[int(first) : int(last)]]


def ranks(
    queries: NDArray[np.float32], passages: NDArray[np.float32], pool: PassagePool, excluded: list[set[int]]
) -> NDArray[np.int64]:
    """The rank of each passage for its query among the pool, (n,): 1 + the number of passages that score higher.

    `queries` and `passages` are (n, dim); passages are rounded to fp16 as in the pool. `excluded[i]` are the keys of
    texts that do not compete with passage i.
    """
    rounded = passages.astype(np.float16).astype(np.float32)
    scores = inner_products(queries, rounded).astype(np.float32)
    # A product of matrices adds in an order of its own, so scores that differ by rounding count as equal.
    limit = scores + 1e-5 * np.maximum(1, np.abs(scores))
    higher = np.zeros(len(queries), np.int64)
    for first in range(0, len(pool.keys), _BLOCK):
        block = np.asarray(pool.vectors[first : first + _BLOCK], np.float32)
        higher += np.count_nonzero(queries @ block.T > limit[:, None], axis=1)
    for row, keys in enumerate(excluded):
        places = [place for key in sorted(keys) for place in pool.places(key)]
        found = np.asarray(pool.vectors[places], np.float32) @ queries[row]
        higher[row] = max(0, higher[row] - np.count_nonzero(found > limit[row]))
    return higher + 1


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
    """Write the pairs of a split that the filter keeps to `out`, a dataset with the same corpus; copy other splits.

    `pool` is at most the size of the corpus. `progress` is called with (pairs done, pairs in all). Labels of 0 and less
    are copied. Raises DatasetError if no pair is kept, and the embedder's ModelError.
    """
    kept: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    with PairFiles(path, split) as files, tempfile.TemporaryDirectory(prefix="airgen-filter-") as scratch:
        total = len(files)
        chosen = _chosen(files.passages, pool, seed)
        vectors = PassagePool(
            Path(scratch), (files.passage(place)[1] for place in chosen.tolist()), len(chosen), embedder
        )
        relevant = _relevant(files)
        with building(out, PAIRS) as folder:
            (folder / "qrels").mkdir()
            queries: set[str] = set()
            with (folder / "qrels" / f"{split}.tsv").open("w", encoding="utf-8", newline="\n") as qrels:
                qrels.write("query-id\tcorpus-id\tscore\n")
                done = 0
                for chunk, within in _ranked(files, embedder, vectors, relevant, k):
                    for pair, close in zip(chunk, within, strict=True):
                        stays = close or pair.label <= 0
                        if pair.label > 0:
                            seen[pair.kind] += 1
                            kept[pair.kind] += stays
                        if stays:
                            queries.add(pair.query_id)
                            qrels.write(f"{pair.query_id}\t{pair.passage_id}\t{pair.label:g}\n")
                    done += len(chunk)
                    if progress:
                        progress(done, total)
            if not kept.total():
                raise DatasetError(
                    f"{path}: none of {seen.total()} pairs is within the top {k} of {len(chosen)} passages: "
                    "raise --k, or train a better first model"
                )
            _copy_rest(files, folder, split, queries)
            kinds = {kind: (kept[kind], seen[kind]) for kind in sorted(seen)}
            summary = {
                "info": dict(files.dataset.info),
                "model": dict(embedder.describe()),
                "k": k,
                "pool": len(chosen),
                "seed": seed,
                "pairs": kept.total(),
                "of_pairs": seen.total(),
                "kinds": {kind or "all": {"kept": one, "of": total} for kind, (one, total) in kinds.items()},
            }
            text = json.dumps(summary, ensure_ascii=False, indent=1, sort_keys=True)
            (folder / PAIRS).write_text(text, encoding="utf-8")
    return FilteredPairs(out, kept.total(), seen.total(), len(chosen), kinds)


def _ranked(
    files: PairFiles, embedder: Embedder, pool: PassagePool, relevant: dict[int, set[int]], k: int
) -> Iterator[tuple[list[StoredPair], list[bool]]]:
    """The pairs in chunks, and whether each passage is within the top k for its query.

    The files are read three times: what is to be encoded is ahead of what is ranked, so that all workers have work.
    """
    queries = encoded(embedder.encode, ([pair.query for pair in chunk] for chunk in _chunks(files)), "query")
    fresh = encoded(embedder.encode, (_fresh(chunk, pool) for chunk in _chunks(files)), "passage")
    for chunk, asked, new in zip(_chunks(files), queries, fresh, strict=True):
        keys = [_key(pair.passage) for pair in chunk]
        excluded = [
            relevant[_key(pair.query_id)] | {key, _key(pair.query)} for pair, key in zip(chunk, keys, strict=True)
        ]
        yield chunk, (ranks(asked, _vectors(keys, new, pool), pool, excluded) <= k).tolist()


def _chunks(files: PairFiles) -> Iterator[list[StoredPair]]:
    return batched(files.pairs(), _CHUNK)


def _fresh(chunk: list[StoredPair], pool: PassagePool) -> list[str]:
    """The passages that are not in the pool."""
    return [pair.passage for pair in chunk if not pool.places(_key(pair.passage))]


def _vectors(keys: list[int], fresh: NDArray[np.float32] | None, pool: PassagePool) -> NDArray[np.float32]:
    """The vectors of passages, (n, dim): those of the pool, and `fresh` ones for the others."""
    places = np.array([next(iter(pool.places(key)), -1) for key in keys])
    found = np.asarray(pool.vectors[np.maximum(places, 0)], np.float32)
    if fresh is not None:
        found[places < 0] = fresh
    return found


def _relevant(files: PairFiles) -> dict[int, set[int]]:
    """{key of a query: keys of the passages that are relevant to it}."""
    found: dict[int, set[int]] = {}
    for pair in files.pairs():
        of_query = found.setdefault(_key(pair.query_id), set())
        if pair.label > 0:
            of_query.add(_key(pair.passage))
    return found


def _chosen(passages: int, pool: int, seed: int) -> NDArray[np.int64]:
    """The places of the pool's passages in the corpus, ascending, so that the file is read in order."""
    order = np.random.default_rng(rng("pool", seed).getrandbits(64)).permutation(passages)
    return np.sort(order[:pool])


def _copy_rest(files: PairFiles, folder: Path, split: str, queries: set[str]) -> None:
    """Copy the corpus, the qrels of other splits, and the queries that any split still uses."""
    shutil.copyfile(files.dataset.file("corpus"), folder / "corpus.jsonl")
    for name in files.dataset.splits:
        if name != split:
            source = files.dataset.qrels_file(name)
            shutil.copyfile(source, folder / "qrels" / source.name)
            queries |= set(files.dataset.qrels(name).labels)
    source = files.dataset.file("queries")
    with source.open(encoding="utf-8") as rows, (folder / "queries.jsonl").open("w", encoding="utf-8") as left:
        left.writelines(row for row in rows if row.strip() and str(json.loads(row).get("_id")) in queries)


def _key(text: Any) -> int:
    return int(text_key(str(text))[:16], 16)
