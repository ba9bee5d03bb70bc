"""Late interaction on disk: memory-mapped token vectors in a few bits per dimension, searched in two steps.

    build_index(folder, texts, encode, bits=2, centroids=None)
    index = CompressedIndex.open(folder)
    index.search(query_vectors, k=100, probes=16, candidates=1024)

`ResidualCodec` follows ColBERTv2 (Santhanam et al. 2022, section 3.3): a vector is the nearest centroid plus the
residual in each dimension, rounded to one of a few levels; 384 dimensions at 2 bits take 100 bytes instead of 768. It
differs in two ways: each dimension is divided by its own spread, with levels that minimise the squared error (Lloyd and
Max) instead of quantiles; and a decoded vector gets the original vector's length. The result does not depend on the
number of threads.

The search follows PLAID (Santhanam et al. 2022). First, passages with a token in one of a query token's `probes` best
cells get the score of that cell's centroid; all other passages get the score of the best cell that was not probed (as
in WARP, Scheerer et al. 2025). Then the best `candidates` are scored by MaxSim over their decoded vectors. With all
probes and candidates, this is MaxSim over all decoded vectors.

A folder contains `meta.json`, the codec, the codes of all tokens by passage, and the passages of each cell.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from airgen.components.keys import canonical_json, file_sha256
from airgen.compute import cores
from airgen.errors import ModelError
from airgen.retrievers.dense.gpu_search import GpuLists, gpu_for
from airgen.retrievers.hits import Hits
from airgen.retrievers.lexical.postings import PostingsBuilder, count_postings
from airgen.retrievers.protocols import IndexProgress
from airgen.retrievers.top_k import top_k
from airgen.safety.interruptible import thread_pool
from airgen.storage.paths import sibling
from airgen.storage.sequences import batched

Floats = NDArray[np.float32]

_K_MEANS_ROUNDS = 6  # iterations of k-means; PLAID makes 4
_SEED = 42
_VECTORS_AT_ONCE = 1024  # vectors compared with the centroids at once
_CENTROIDS_AT_ONCE = 4096  # centroids compared at once: 32 MB of scores
_LONGEST_VECTOR = 4.0  # of a token vector: then sums of products of two fp16 vectors are exact in float64
_LEVEL_BITS, _QUERY_BITS = 20, 24  # after the point of a level and of a query: float64 holds their products' sums
_LEVEL_VALUES = 1 << 20  # residuals used to fit the levels
_LEVEL_ROUNDS = 50
_LARGEST_SCALE = np.float32(60_000)  # scales are fp16


@dataclass(frozen=True)
class Coded:
    """Encoded vectors: cells (n,), codes uint8 (n, bytes) and scales float16 (n,)."""

    cells: NDArray[Any]
    codes: NDArray[np.uint8]
    scales: NDArray[np.float16]

    def __getitem__(self, rows: Any) -> Coded:
        return Coded(self.cells[rows], self.codes[rows], self.scales[rows])


@dataclass(frozen=True)
class ResidualCodec:
    """A codec for vectors.

    Attributes:
        centroids: Centroids, (k, dim).
        spread: Standard deviation of the residuals, (dim,).
        levels: Ascending levels, (2 ** bits,).
    """

    centroids: Floats
    spread: Floats
    levels: Floats

    @property
    def bits(self) -> int:
        """Bits per dimension."""
        return len(self.levels).bit_length() - 1

    @property
    def kind(self) -> type[np.unsignedinteger[Any]]:
        """Return the dtype of centroid numbers."""
        return np.uint16 if len(self.centroids) <= 1 << 16 else np.uint32

    @property
    def cutoffs(self) -> Floats:
        """Return the boundaries between the levels, (2 ** bits - 1,), so that a value gets the nearest level."""
        return np.asarray((self.levels[1:] + self.levels[:-1]) / 2, np.float32)

    @classmethod
    def train(cls, sample: Floats, count: int, bits: int) -> ResidualCodec:
        """Fit a codec to vectors.

        Args:
            sample: Vectors similar to those to encode, float32 (n, dim), with n at least 1.
            count: Number of centroids.
            bits: Bits per dimension.
        """
        centroids = k_means(sample, min(count, len(sample)))
        residuals = sample - centroids[nearest(sample, centroids)]
        spread = np.maximum(residuals.std(axis=0, dtype=np.float64), 1e-6).astype(np.float32)
        values = (residuals / spread).ravel()
        if len(values) > _LEVEL_VALUES:
            values = values[np.random.default_rng(_SEED).choice(len(values), _LEVEL_VALUES, replace=False)]
        return cls(centroids, spread, _levels(values, 1 << bits))

    def encode(self, vectors: Floats) -> Coded:
        """Encode vectors (n, dim)."""
        cells = nearest(vectors, self.centroids)
        residuals = (vectors - self.centroids[cells]) / self.spread
        numbers = np.zeros((len(vectors), -(-vectors.shape[1] // self._per_byte) * self._per_byte), np.uint8)
        for cutoff in self.cutoffs:
            numbers[:, : residuals.shape[1]] += residuals > cutoff
        shifts = np.arange(self._per_byte, dtype=np.uint8) * np.uint8(self.bits)
        codes = (numbers.reshape(len(vectors), -1, self._per_byte) << shifts).sum(axis=2, dtype=np.uint8)
        raw = self.centroids[cells] + self.rest(codes) * self.spread
        lengths = np.linalg.norm(raw, axis=1)
        ones = np.ones(len(raw), np.float32)
        scales = np.divide(np.linalg.norm(vectors, axis=1), lengths, out=ones, where=lengths > 0)
        return Coded(cells.astype(self.kind), codes, np.minimum(scales, _LARGEST_SCALE).astype(np.float16))

    def decode(self, coded: Coded) -> Floats:
        """Decode vectors, float32 (n, dim)."""
        raw = self.centroids[coded.cells] + self.rest(coded.codes) * self.spread
        return np.asarray(raw * coded.scales[:, None].astype(np.float32), np.float32)

    def rest(self, codes: NDArray[np.uint8]) -> Floats:
        """Return the residuals in units of the spread, (n, dim)."""
        unpacked = np.take(self._of_byte, codes, axis=0).reshape(len(codes), -1)
        return unpacked[:, : len(self.spread)]

    @property
    def _per_byte(self) -> int:
        return 8 // self.bits

    @cached_property
    def _of_byte(self) -> Floats:
        """Return the levels in each byte, (256, dimensions per byte)."""
        shifts = np.arange(self._per_byte) * self.bits
        levels: Floats = self.levels[(np.arange(256)[:, None] >> shifts) & (len(self.levels) - 1)]
        return levels


def k_means(sample: Floats, count: int) -> Floats:
    """Cluster vectors (n, dim) by Lloyd's algorithm, starting with `count` drawn vectors; returns the centroids (count,
    dim).

    A centroid that is not nearest to any vector is kept unchanged.
    """
    draw = np.random.default_rng(_SEED)
    centroids = sample[np.sort(draw.choice(len(sample), count, replace=False))].copy()
    for _ in range(_K_MEANS_ROUNDS):
        cells = nearest(sample, centroids)
        order = np.argsort(cells, kind="stable")
        used, starts, sizes = np.unique(cells[order], return_index=True, return_counts=True)
        # Only some cells at a time, because the sorted copy of the sample is large.
        for first in range(0, len(used), _CENTROIDS_AT_ONCE):
            block = slice(first, first + _CENTROIDS_AT_ONCE)
            begin = int(starts[first])
            end = int(starts[block][-1] + sizes[block][-1])
            sums = np.add.reduceat(sample[order[begin:end]], starts[block] - begin, axis=0)
            centroids[used[block]] = (sums / sizes[block, None]).astype(np.float16)
    return centroids


@cache
def _libraries() -> ThreadpoolController:
    """Return the control over the libraries' threads. Finding the libraries takes half a millisecond or more."""
    return ThreadpoolController()


def nearest(vectors: Floats, centroids: Floats) -> NDArray[np.int64]:
    """Return the nearest centroid of each vector, (n,), or the first one in case of ties.

    All values are fp16 numbers, so products in float64 are exact. Those in float32 take half the time and select the
    centroids that may be nearest.
    """
    half = (centroids.astype(np.float64) ** 2).sum(axis=1) / 2
    longest = np.sqrt(2 * half.max()) * np.sqrt(
        np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64).max(initial=0)
    )
    slack = np.float32(2 * (vectors.shape[1] + 4) * 2.0**-24 * (longest + half.max()))  # of two scores' rounding errors
    cells = np.zeros(len(vectors), np.int64)
    best = np.full(len(vectors), -np.inf)
    for start in range(0, len(centroids), _CENTROIDS_AT_ONCE):
        some = slice(start, start + _CENTROIDS_AT_ONCE)
        columns = np.concatenate((centroids[some], -half[some, None]), axis=1, dtype=np.float32).T
        for first in range(0, len(vectors), _VECTORS_AT_ONCE):
            block = vectors[first : first + _VECTORS_AT_ONCE]
            scores = np.concatenate((block, np.ones((len(block), 1), np.float32)), axis=1) @ columns
            rows, places = np.arange(len(block)), scores.argmax(axis=1)
            least = scores[rows, places] - slack
            scores[rows, places] = -np.inf
            close = np.flatnonzero(scores.max(axis=1) >= least)
            again, others = np.nonzero(scores[close] >= least[close, None])
            rows, places = np.concatenate((rows, close[again])), np.concatenate((places, others)) + start
            exact = np.einsum("ij,ij->i", block[rows], centroids[places], dtype=np.float64) - half[places]
            order = np.lexsort((places, -exact, rows))
            order = order[np.searchsorted(rows[order], np.arange(len(block)))]
            better = exact[order] > best[first : first + len(block)]
            best[first : first + len(block)][better] = exact[order][better]
            cells[first : first + len(block)][better] = places[order][better]
    return cells


def token_rows(vectors: NDArray[Any]) -> NDArray[np.float16]:
    """Convert token vectors to fp16. Raises ModelError if a vector's length is far from 1.

    fp16 numbers are multiples of 2**-24, so an inner product of two such vectors is a multiple of 2**-48 and below 32.
    float64 represents all of its partial sums exactly, so BLAS returns the same bits in any order.
    """
    rows = vectors.astype(np.float16)
    longest = np.sqrt((rows.astype(np.float64) ** 2).sum(axis=1)).max(initial=0)
    if longest > _LONGEST_VECTOR:
        raise ModelError(f"a token vector has the length {longest:,.1f}: late interaction takes vectors of length 1")
    return rows


def _levels(values: Floats, count: int) -> Floats:
    """Fit `count` ascending levels to the values by least squared error (Lloyd and Max)."""
    ordered = np.sort(values).astype(np.float64)
    sums = np.concatenate(([0.0], np.cumsum(ordered)))
    levels = np.quantile(ordered, (np.arange(count) + 0.5) / count)
    for _ in range(_LEVEL_ROUNDS):
        edges = np.searchsorted(ordered, (levels[1:] + levels[:-1]) / 2, side="right")
        edges = np.concatenate(([0], edges, [len(ordered)]))
        sizes = np.diff(edges)
        levels = np.where(sizes > 0, np.diff(sums[edges]) / np.maximum(sizes, 1), levels)
    return (np.rint(np.sort(levels) * 2.0**_LEVEL_BITS) / 2.0**_LEVEL_BITS).astype(np.float32)


Encode = Callable[[Iterable[Sequence[str]]], Iterator[Any]]
"""A function from batches of passages to a list of arrays (tokens, dim) per batch, or None if it is empty."""

BATCH = 64  # passages given to the model at once

_SAMPLE_FACTOR = 40  # multiplied by the root of the number of passages: those whose vectors train the codec
_LEAST_SAMPLE = 256  # passages, if the corpus has that many
_VECTORS_PER_CENTROID = 40  # maximum token vectors of the sample per centroid
_TOKENS_AT_ONCE = 4096  # vectors decoded at once: 6 MB at 384 dimensions
_META = "meta.json"
_CODEC = ("centroids", "spread", "levels")
_PARTS = ("starts", "list_starts", "list_passages")
_CODES = ("cells", "codes", "scales")


def usual_centroids(tokens: float) -> int:
    """Return the default number of centroids: a power of two, at most 4 times the square root of the number of tokens,
    which is a quarter of PLAID's and faster to train.
    """
    return 1 << max(0, int(math.log2(max(1.0, 4 * math.sqrt(tokens)))))


def build_index(
    folder: Path,
    texts: Sequence[str],
    encode: Encode,
    *,
    bits: int,
    centroids: int | None = None,
    progress: IndexProgress | None = None,
    batch: int = BATCH,
) -> None:
    """Write the index of all texts to `folder`, atomically. Each text is encoded once.

    Args:
        folder: Folder of the index. An existing index is replaced.
        texts: The passages.
        encode: Function that encodes batches of passages to token vectors.
        bits: Bits per dimension.
        centroids: Number of centroids. Default: proportional to the square root of the number of tokens.
        progress: Called with the numbers of encoded passages and of all passages.
        batch: Number of passages to encode at once.

    Raises:
        ModelError: The vectors have different dimensions, or are much longer than 1.
    """
    partial = sibling(folder, ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        _write(
            partial,
            texts,
            encode,
            bits=bits,
            centroids=centroids,
            progress=progress or (lambda done, total: None),
            batch=batch,
        )
        files = {path.name: file_sha256(path) for path in sorted(partial.iterdir())}
        (partial / _META).write_text(canonical_json({"version": 1, "files": files}), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write(
    folder: Path,
    texts: Sequence[str],
    encode: Encode,
    *,
    bits: int,
    centroids: int | None,
    progress: IndexProgress,
    batch: int,
) -> None:
    total = len(texts)
    wanted = max(_LEAST_SAMPLE, math.ceil(_SAMPLE_FACTOR * math.sqrt(total)), math.ceil((centroids or 0) / 2))
    sample = np.sort(np.random.default_rng(_SEED).choice(total, min(total, wanted), replace=False)).tolist()
    starts, done = [0], 0
    with (folder / "sample").open("wb") as spool:  # so that no passage is encoded twice
        for arrays in encode([texts[place] for place in places] for places in batched(sample, batch)):
            for array in map(token_rows, arrays):
                spool.write(array.tobytes())
                starts.append(starts[-1] + len(array))
            done += len(arrays)
            progress(done, total)
    drawn = rows = np.memmap(folder / "sample", np.float16, "r").reshape(starts[-1], -1)
    count = centroids or usual_centroids(len(rows) / len(sample) * total)
    if len(rows) > (most := _VECTORS_PER_CENTROID * count):
        drawn = rows[np.sort(np.random.default_rng(_SEED).choice(len(rows), most, replace=False))]
    codec = ResidualCodec.train(drawn.astype(np.float32), count, bits)
    sampled = {place: rows[starts[row] : starts[row + 1]] for row, place in enumerate(sample)}
    blocks = [range(first, min(first + batch, total)) for first in range(0, total, batch)]
    new = ([texts[place] for place in block if place not in sampled] for block in blocks)
    lists = PostingsBuilder(count_postings)
    with ExitStack() as stack:
        files = {name: stack.enter_context((folder / f"{name}.bin").open("wb")) for name in _CODES}
        for block, encodings in zip(blocks, encode(new), strict=True):
            fresh = iter(encodings or ())
            vectors = [sampled[place] if place in sampled else token_rows(next(fresh)) for place in block]
            coded = codec.encode(np.concatenate(vectors).astype(np.float32))
            for name, file in files.items():
                file.write(getattr(coded, name).tobytes())
            lists.add(coded.cells.astype(np.int32), np.array([len(array) for array in vectors], np.int64))
            done += sum(place not in sampled for place in block)
            progress(done, total)
    (folder / "sample").unlink()
    field = lists.field(len(codec.centroids))
    arrays_by_name = {name: getattr(codec, name) for name in _CODEC}
    arrays_by_name |= {"starts": np.concatenate(([0], np.cumsum(field.lengths)))}
    arrays_by_name |= {"list_starts": field.starts, "list_passages": field.positions}
    for name, array in arrays_by_name.items():
        np.save(folder / f"{name}.npy", array)


@dataclass(frozen=True)
class CompressedIndex:
    """An index built by `build_index`. Its arrays are memory-mapped, so pages are read when a query needs them."""

    codec: ResidualCodec
    starts: NDArray[np.int64]
    tokens: Coded
    list_starts: NDArray[np.int64]
    list_passages: NDArray[np.int32]
    bytes: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    @classmethod
    def open(cls, folder: Path) -> CompressedIndex:
        """Open an index and check its files. Raises ModelError, naming what is damaged or missing."""
        try:
            files = json.loads((folder / _META).read_text(encoding="utf-8"))["files"]
            if broken := [name for name, wanted in files.items() if file_sha256(folder / name) != wanted]:
                raise ModelError(f"{folder}: {', '.join(broken)} damaged: delete this folder to index again")
            loaded = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in _PARTS}
            codec = ResidualCodec(*(np.load(folder / f"{name}.npy") for name in _CODEC))
            kinds: tuple[Any, ...] = (codec.kind, np.uint8, np.float16)
            files_of = zip(_CODES, kinds, strict=True)
            cells, codes, scales = (np.memmap(folder / f"{name}.bin", kind, "r") for name, kind in files_of)
            tokens = Coded(cells, codes.reshape(len(cells), -1), scales)
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise ModelError(
                f"{folder} is not an index of token vectors ({error}): delete it to index again"
            ) from error
        size = sum((folder / name).stat().st_size for name in files)
        return cls(
            codec=codec,
            starts=loaded["starts"],
            tokens=tokens,
            list_starts=loaded["list_starts"],
            list_passages=loaded["list_passages"],
            bytes=size,
        )

    def search(
        self,
        queries: Sequence[NDArray[Any]],
        k: int,
        *,
        probes: int,
        candidates: int,
        lists: GpuLists | None = None,
    ) -> Hits:
        """Return the k best passages of each query by MaxSim over decoded vectors.

        Args:
            queries: The token vectors of each query, (tokens, dim).
            k: Number of hits per query.
            probes: Number of cells to visit per query token.
            candidates: Number of passages to decode, at least k.
            lists: The cells in GPU memory, if the GPU should select the candidates, which are the same.

        Returns:
            The hits, with arrays of shape (n, k).
        """
        hits = Hits.none(len(queries), k)
        centroids = self.codec.centroids.astype(np.float64)

        def search_one(row: int) -> None:
            query = token_rows(queries[row]).astype(np.float64)
            cells = (centroids @ query.T).astype(np.float32)
            passages = np.arange(len(self), dtype=np.int32)
            if (most := max(k, candidates)) < len(self):
                chosen = (
                    lists.best(cells, probes, most)
                    if lists
                    else top_k(self._approximate_scores(cells, probes), most)[0]
                )
                passages = np.sort(chosen)
            order, values = top_k(self._maxsim(query, cells, passages), k)
            hits.put(row, passages[order], values)

        # A query's products are small: threads within them wait for each other most of the time.
        workers = 1 if lists else min(cores(), max(1, len(queries)))
        with _libraries().limit(limits=1, user_api="blas"), thread_pool(workers) as pool:
            list(pool.map(search_one, range(len(queries))))
        return hits

    def on_gpu(self) -> GpuLists | None:
        """Load the passages of the cells into GPU memory if they fit."""
        device = gpu_for(self.list_passages.size, self.list_passages.itemsize)
        return None if device is None else GpuLists(self.list_starts, self.list_passages, len(self), device)

    def _approximate_scores(self, cells: Floats, probes: int) -> Floats:
        """Score every passage by its cells. `cells` are the scores of the centroids, (k, query tokens)."""
        total = np.zeros(len(self), np.float32)
        probes = min(probes, len(cells))
        for scores in np.ascontiguousarray(cells.T):
            best, values = top_k(scores, probes + 1)
            of_token = np.full(len(self), values[-1], np.float32)  # what was not looked at is not better than this
            nearest_cells = best[:probes][::-1]  # ascending, so the last value that a passage gets is its best
            parts = [self.list_passages[self.list_starts[cell] : self.list_starts[cell + 1]] for cell in nearest_cells]
            sizes = [len(part) for part in parts]
            of_token[np.concatenate(parts)] = np.repeat(scores[nearest_cells], sizes)
            total += of_token
        return total

    def _maxsim(self, query: NDArray[np.float64], cells: Floats, passages: NDArray[np.int32]) -> Floats:
        """Compute MaxSim over the decoded vectors of passages, (n,)."""
        # In units of the spread, rounded so that its products with levels are also exact.
        scaled_query = (np.rint(query * self.codec.spread * 2.0**_QUERY_BITS) / 2.0**_QUERY_BITS).T
        begins, ends = self.starts[passages], self.starts[passages + 1]
        scores = np.zeros(len(passages), np.float32)
        edges = np.concatenate(([0], np.cumsum(ends - begins)))
        first = 0
        while first < len(passages):
            last = max(first + 1, int(np.searchsorted(edges, edges[first] + _TOKENS_AT_ONCE, side="right")) - 1)
            starts = edges[first:last] - edges[first]
            sizes = ends[first:last] - begins[first:last]
            places = np.arange(int(sizes.sum())) + np.repeat(begins[first:last] - starts, sizes)
            coded = self.tokens[places]
            # <q, (c + r) s> = (<q, c> + <q, r>) s, where the centroids' part is already known.
            products = (self.codec.rest(coded.codes).astype(np.float64) @ scaled_query).astype(np.float32)
            products += cells[coded.cells]
            products *= coded.scales[:, None].astype(np.float32)
            scores[first:last] = np.maximum.reduceat(products, starts, axis=0).sum(axis=1)
            first = last
        return scores
