"""The consistency filter of E5 (section 3): a pair stays if a first model finds its passage among random ones.

    kept = filter_pairs(Path("data/pairs"), Path("data/filtered"), load_embedder("models/noisy"), k=2)

Each pair's passage is ranked for its query against a pool of random passages of the same corpus (E5: a million) and
the pair kept if it is within the top k (E5: 2). A model that is trained on noisy pairs learns what is regular in them
before it memorises the rest, so what it does not find is more often noise. Passages known to be relevant to the query,
equal texts, and the query itself (of neighbours and citations) do not count as rivals.

Pairs are read, embedded and ranked in chunks; the pool's vectors stand in a temporary file. Memory holds ids, one chunk
and one block of the pool, whatever the number of pairs.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.batches import batched
from airgen.dataset.atomic import building
from airgen.errors import DatasetError
from airgen.keys import rng, text_key
from airgen.retrievers.base import Embedder
from airgen.training.mining.pair_files import PAIRS, LabelledPair, PairFiles

__all__ = ["Filtered", "Pool", "filter_pairs", "ranks"]

_CHUNK = 512  # pairs embedded and ranked at once
_BLOCK = 16_384  # pool vectors compared at once


@dataclass(frozen=True)
class Filtered:
    """What a filter did: `kinds` is {kind: (kept, all)}, `pool` the number of random passages."""

    out: Path
    kept: int
    pairs: int
    pool: int
    kinds: dict[str, tuple[int, int]]


class Pool:
    """Vectors of passages in a file, fp16, with a key of each text."""

    def __init__(self, folder: Path, texts: Iterable[str], size: int, embedder: Embedder) -> None:
        self.keys = np.zeros(size, np.uint64)
        self.vectors = np.memmap(folder / "pool.f16", np.float16, "w+", shape=(size, embedder.dim))
        at = 0
        for batch in batched(texts, _CHUNK):
            self.vectors[at : at + len(batch)] = embedder.encode(batch, "passage")
            self.keys[at : at + len(batch)] = [_key(text) for text in batch]
            at += len(batch)
        self._order = np.argsort(self.keys, kind="stable")
        self._sorted = self.keys[self._order]

    def places(self, key: int) -> list[int]:
        """Where a text stands in the pool."""
        first, last = (np.searchsorted(self._sorted, np.uint64(key), side) for side in ("left", "right"))
        return [int(place) for place in self._order[int(first) : int(last)]]


def ranks(
    queries: NDArray[np.float32], passages: NDArray[np.float32], pool: Pool, own: list[set[int]]
) -> NDArray[np.int64]:
    """The rank from 1 of each passage for its query among the pool, (n,): 1 + how many score higher.

    `queries` and `passages` are (n, dim), compared in fp16 as the pool is kept; `own[i]` are the keys of texts that are
    no rivals of pair i.
    """
    rounded = passages.astype(np.float16).astype(np.float32)
    scores = np.einsum("ij,ij->i", queries, rounded)
    # A product of matrices adds in another order than einsum: what differs by rounding alone is no higher score.
    limit = scores + 1e-5 * np.maximum(1, np.abs(scores))
    higher = np.zeros(len(queries), np.int64)
    for first in range(0, len(pool.keys), _BLOCK):
        block = np.asarray(pool.vectors[first : first + _BLOCK], np.float32)
        higher += np.count_nonzero(queries @ block.T > limit[:, None], axis=1)
    for row, keys in enumerate(own):
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
) -> Filtered:
    """Write the pairs of a split that pass to OUT, a dataset with the same corpus; other splits are copied.

    `pool` is cut to the corpus. `progress` is told (pairs done, pairs). Labels of 0 and less are no pairs and stay as
    they are. Raises DatasetError where nothing is left, ModelError as the embedder does.
    """
    kept: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    with PairFiles(path, split) as files, tempfile.TemporaryDirectory(prefix="airgen-filter-") as scratch:
        total = len(files)
        chosen = _chosen(files.passages, pool, seed)
        vectors = Pool(Path(scratch), (files.passage(place)[1] for place in chosen.tolist()), len(chosen), embedder)
        relevant = _relevant(files)
        with building(out, PAIRS) as folder:
            (folder / "qrels").mkdir()
            asked: set[str] = set()
            with (folder / "qrels" / f"{split}.tsv").open("w", encoding="utf-8", newline="\n") as qrels:
                qrels.write("query-id\tcorpus-id\tscore\n")
                done = 0
                for chunk in batched(files.pairs(), _CHUNK):
                    for pair, stays in zip(chunk, _judged(chunk, embedder, vectors, relevant, k), strict=True):
                        if pair.label > 0:
                            seen[pair.kind] += 1
                            kept[pair.kind] += stays
                        if stays:
                            asked.add(pair.query_id)
                            qrels.write(f"{pair.query_id}\t{pair.passage_id}\t{pair.label:g}\n")
                    done += len(chunk)
                    if progress:
                        progress(done, total)
            if not kept.total():
                raise DatasetError(
                    f"{path}: none of {seen.total()} pairs is within the top {k} of {len(chosen)} passages"
                )
            _copy_rest(files, folder, split, asked)
            kinds = {kind: (kept[kind], seen[kind]) for kind in sorted(seen)}
            summary = {
                "info": dict(files.dataset.info),
                "model": dict(embedder.describe()),
                "k": k,
                "pool": len(chosen),
                "seed": seed,
                "pairs": kept.total(),
                "of_pairs": seen.total(),
                "kinds": {kind or "all": {"kept": one, "of": of} for kind, (one, of) in kinds.items()},
            }
            text = json.dumps(summary, ensure_ascii=False, indent=1, sort_keys=True)
            (folder / PAIRS).write_text(text, encoding="utf-8")
    return Filtered(out, kept.total(), seen.total(), len(chosen), kinds)


def _judged(
    chunk: list[LabelledPair], embedder: Embedder, pool: Pool, relevant: dict[int, set[int]], k: int
) -> list[bool]:
    asked = embedder.encode([pair.query for pair in chunk], "query")
    keys = [_key(pair.passage) for pair in chunk]
    found = _passages([pair.passage for pair in chunk], keys, embedder, pool)
    own = [relevant[_key(pair.query_id)] | {key, _key(pair.query)} for pair, key in zip(chunk, keys, strict=True)]
    within = ranks(asked, found, pool, own) <= k
    return [bool(one) or pair.label <= 0 for pair, one in zip(chunk, within.tolist(), strict=True)]


def _passages(texts: list[str], keys: list[int], embedder: Embedder, pool: Pool) -> NDArray[np.float32]:
    """(n, dim): the pool's vectors where a text stands in it, so that nothing is encoded twice; others are encoded."""
    places = [next(iter(pool.places(key)), -1) for key in keys]
    found = np.asarray(pool.vectors[np.maximum(places, 0)], np.float32)
    if fresh := [row for row, place in enumerate(places) if place < 0]:
        found[fresh] = embedder.encode([texts[row] for row in fresh], "passage")
    return found


def _relevant(files: PairFiles) -> dict[int, set[int]]:
    """The keys of the passages relevant to each query, by the query's key."""
    found: dict[int, set[int]] = {}
    for pair in files.pairs():
        of_query = found.setdefault(_key(pair.query_id), set())
        if pair.label > 0:
            of_query.add(_key(pair.passage))
    return found


def _chosen(passages: int, pool: int, seed: int) -> NDArray[np.int64]:
    """Places of the pool's passages, ascending, so that the corpus is read from end to end."""
    order = np.random.default_rng(rng("pool", seed).getrandbits(64)).permutation(passages)
    return np.sort(order[:pool])


def _copy_rest(files: PairFiles, folder: Path, split: str, asked: set[str]) -> None:
    """The corpus as it is, the other splits' qrels, and the queries that some split still asks."""
    shutil.copyfile(files.dataset.file("corpus"), folder / "corpus.jsonl")
    for name in files.dataset.splits:
        if name != split:
            source = files.dataset.qrels_file(name)
            shutil.copyfile(source, folder / "qrels" / source.name)
            asked |= set(files.dataset.qrels(name).labels)
    source = files.dataset.file("queries")
    with source.open(encoding="utf-8") as rows, (folder / "queries.jsonl").open("w", encoding="utf-8") as left:
        left.writelines(row for row in rows if row.strip() and str(json.loads(row).get("_id")) in asked)


def _key(text: Any) -> int:
    return int(text_key(str(text))[:16], 16)
