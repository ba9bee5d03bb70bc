"""Approximate search with faiss, as used in production: HNSW, IVF, PQ, or any other factory string.

    {kind: dense, embedder: BAAI/bge-m3, index: "HNSW32", search: {efSearch: 64}}
    {kind: dense, embedder: BAAI/bge-m3, index: "IVF1024,PQ32", search: {nprobe: 16}, cache: ../indexes}

An index is trained on a seeded sample of the rows, filled in blocks, written to disk and memory-mapped. It can have
several parts (`parts`) of consecutive rows that share one training. Each part is filled and searched separately, on a
worker if there are any, and the best hits of all parts are merged. The hits thus depend on the number of parts, but not
on where they are. (faiss fills a graph with several threads in no fixed order, so two builds of HNSW differ slightly.)

Labels never depend on such an index: recall for labelling is exact.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.components.registry import load_extra
from airgen.compute import Work, cores, current
from airgen.errors import ModelError
from airgen.retrievers.dense.exact_search import Shard, merged, shard_of, shard_rows
from airgen.retrievers.hits import Hits

_BLOCK_BYTES = 1 << 26  # bytes of fp32 rows that are added at once
_SEED = 0
_ERROR_PREFIX = re.compile(r"^Error in .*? at \S+:\d+: (?:Error: )?")
_NOMINAL_DIM = 20_160  # dimensions, which most numbers of subquantizers divide
_LOCAL_PRODUCTS = 1 << 22  # queries times rows below which this process is faster than workers


@dataclass(frozen=True)
class AnnSpec:
    """Specification of an approximate index.

    Attributes:
        factory: faiss's factory string.
        build: Parameters to set before filling the index.
        search: Parameters to set before searching the index.
        sample: Number of rows on which the index is trained.
        parts: Number of parts.
    """

    factory: str
    build: tuple[tuple[str, float], ...] = ()
    search: tuple[tuple[str, float], ...] = ()
    sample: int = 65_536
    parts: int = 1

    def empty_index(self, dim: int) -> Any:
        """Create the empty index. Raises ModelError with faiss's message."""
        faiss = _faiss(self.factory)
        with _one_line_errors(f"index {self.factory!r}"):
            index = faiss.index_factory(dim, self.factory, faiss.METRIC_INNER_PRODUCT)
        for name, value in (*self.build, *self.search):
            with _one_line_errors(f"index {self.factory!r}: {name}: {value:g}"):
                faiss.ParameterSpace().set_index_parameter(index, name, value)
        return index

    def check(self, dim: int, passages: int) -> None:
        """Raise ModelError if the factory string does not suit the dimension or the number of passages."""
        needed = _vectors_needed(_faiss(self.factory), self.empty_index(dim))
        if passages < needed:
            raise ModelError(
                f"index {self.factory!r} learns {needed:,} centroids, but the corpus has only {passages:,} passages: "
                "choose a smaller one, such as HNSW32"
            )


@lru_cache(maxsize=64)
def spec_problem(spec: AnnSpec) -> str:
    """Return what is wrong with a specification regardless of the vectors, or "" (also if faiss is not installed)."""
    try:
        spec.empty_index(_NOMINAL_DIM)
    except ModelError as error:
        return "" if "multiple of the number of subquantizers" in str(error) else str(error)
    return ""


def _faiss(spec: str) -> Any:
    faiss = load_extra("faiss", f"the index {spec!r}")
    faiss.omp_set_num_threads(cores())
    return faiss


@contextmanager
def _one_line_errors(subject: str) -> Iterator[None]:
    """Convert faiss's errors to a one-line ModelError."""
    try:
        yield
    except (RuntimeError, ValueError, TypeError, AssertionError) as error:
        message = str(error).strip()
        reason = _ERROR_PREFIX.sub("", message.splitlines()[0] if message else type(error).__name__)
        raise ModelError(
            f"{subject} is refused by faiss ({reason[:200]}): see its wiki, `The index factory`"
        ) from error


def _layers(faiss: Any, index: Any) -> Iterator[Any]:
    """Yield an index and the indexes inside it, each as its own class."""
    index = faiss.downcast_index(index)
    yield index
    for name in ("index", "base_index", "storage", "quantizer"):
        if (inner := getattr(index, name, None)) is not None:
            yield from _layers(faiss, inner)


def _vectors_needed(faiss: Any, index: Any) -> int:
    """Return how many vectors the index needs to learn its centroids."""
    layers = list(_layers(faiss, index))
    return max(max(getattr(layer, "nlist", 1), getattr(_quantizer(layer), "ksub", 1)) for layer in layers)


def _quantizer(layer: Any) -> Any:
    return getattr(layer, "pq", None)


def _skip_slow_training(faiss: Any, index: Any, spec: AnnSpec) -> None:
    """Skip work that takes minutes without changing hits: ordering codes for polysemous search, which only `ht` needs.

    Also silence warnings about too few points per centroid, since `AnnSpec.check` decides what is too few.
    """
    for layer in _layers(faiss, index):
        if hasattr(layer, "do_polysemous_training"):
            layer.do_polysemous_training = "ht" in dict(spec.search)
        for clustering in (getattr(layer, "cp", None), getattr(_quantizer(layer), "cp", None)):
            if clustering is not None:
                clustering.min_points_per_centroid = 1


@dataclass(frozen=True)
class _PartFill:
    """A worker's task of building a part."""

    folder: Path
    rows: Path
    dim: int
    spec: AnnSpec
    trained: bytes

    def make(self) -> Callable[[tuple[int, Shard]], bool]:
        """Return the worker's function, which returns whether the worker could access the rows and the folder."""

        def work(item: tuple[int, Shard]) -> bool:
            number, shard = item
            opened = shard_rows(self.rows, self.dim, shard)
            if opened is None or not self.folder.is_dir():
                return False
            self.fill(number, *opened)
            return True

        return work

    def fill(self, number: int, matrix: Any, rows: NDArray[np.int64] | None) -> None:
        """Write the part for these rows of `matrix`, or for all of it."""
        faiss = _faiss(self.spec.factory)
        index = faiss.deserialize_index(np.frombuffer(self.trained, np.uint8))
        for name, value in self.spec.build:
            faiss.ParameterSpace().set_index_parameter(index, name, value)
        count, block = len(matrix) if rows is None else len(rows), max(1, _BLOCK_BYTES // (4 * self.dim))
        for first in range(0, count, block):
            places = slice(first, min(first + block, count))
            index.add(np.ascontiguousarray(matrix[places] if rows is None else matrix[rows[places]], np.float32))
        path = _part(self.folder, number)
        with _one_line_errors(f"{path}: writing"):
            faiss.write_index(index, str(path.with_suffix(".new")))
        path.with_suffix(".new").replace(path)


def _part(folder: Path, number: int) -> Path:
    return folder / f"part-{number:04d}.faiss"


def build_ann(
    folder: Path,
    spec: AnnSpec,
    matrix: NDArray[np.float32],
    *,
    rows: NDArray[np.int64] | None,
    file: tuple[Path, int] | None,
) -> None:
    """Build the index of some rows.

    Args:
        folder: An empty folder, which receives the parts of the index.
        spec: The kind of index.
        matrix: The rows, (n, dim).
        rows: The row of each passage in `matrix`, or None if there is one row per passage, in order.
        file: The file that contains `matrix`, and its first row in the file, or None if the rows are only in memory.

    Raises:
        ModelError: faiss refuses the index or the rows.
    """
    faiss = _faiss(spec.factory)
    count, dim = len(matrix) if rows is None else len(rows), matrix.shape[1]
    index = spec.empty_index(dim)
    if not index.is_trained:
        _skip_slow_training(faiss, index, spec)
        size = min(count, max(spec.sample, 64 * _vectors_needed(faiss, index)))
        places = np.sort(np.random.default_rng(_SEED).choice(count, size, replace=False))
        with _one_line_errors(f"index {spec.factory!r}: training"):
            index.train(np.ascontiguousarray(matrix[places if rows is None else rows[places]], np.float32))
    trained = faiss.serialize_index(index).tobytes()
    path, first = file if file is not None else (Path(), 0)
    fill = _PartFill(folder, rows=path.absolute(), dim=dim, spec=spec, trained=trained)
    items = [
        (number, (number, shard_of(matrix, start, end, first=first, rows=rows)))
        for number, (start, end) in enumerate(_part_bounds(count, spec.parts))
    ]

    def fill_here(item: tuple[int, Shard]) -> bool:
        start, end = _part_bounds(count, spec.parts)[item[0]]
        fill.fill(item[0], matrix[start:end] if rows is None else matrix, None if rows is None else rows[start:end])
        return True

    work: Work[tuple[int, Shard], bool] = Work("filling an index", fill_here, None if file is None else fill.make)
    for number, filled in current().map(work, items, least=2):
        if not filled or not _part(folder, number).exists():
            fill_here(items[number][1])


def _part_bounds(count: int, parts: int) -> list[tuple[int, int]]:
    """Return the first row and the end of each part. The sizes differ by at most one."""
    ends = [count * number // parts for number in range(parts + 1)]
    return [(start, end) for start, end in pairwise(ends) if end > start]


@dataclass(frozen=True)
class _PartSearch:
    """A worker's task of searching a part."""

    folder: Path
    search: tuple[tuple[str, float], ...]
    queries: NDArray[np.float32]
    k: int

    def make(self) -> Callable[[int], Hits | None]:
        """Return the worker's function, which returns None if the worker cannot access the index."""

        def work(number: int) -> Hits | None:
            return self.hits(number) if _part(self.folder, number).is_file() else None

        return work

    def hits(self, number: int) -> Hits:
        """Return the hits in one part, with positions from 0 in the part. Ties are in order of position."""
        index = _opened(_part(self.folder, number), self.search)
        hits = Hits.none(len(self.queries), self.k)
        k = min(self.k, index.ntotal)
        with _one_line_errors(f"{self.folder.name}: searching"):
            scores, positions = index.search(self.queries, k)
        scores = np.where(positions < 0, np.float32(-np.inf), scores)
        order = np.lexsort((positions, -scores), axis=1)
        hits.positions[:, :k] = np.take_along_axis(positions, order, axis=1)
        hits.scores[:, :k] = np.take_along_axis(scores, order, axis=1)
        return hits


@lru_cache(maxsize=256)
def _opened(path: Path, search: tuple[tuple[str, float], ...]) -> Any:
    """Memory-map a part, and move it to a GPU if this build of faiss has one that supports it."""
    faiss = _faiss(path.parent.name)
    with _one_line_errors(f"{path}: reading"):
        index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        for name, value in search:
            faiss.ParameterSpace().set_index_parameter(index, name, value)
    if getattr(faiss, "get_num_gpus", int)() == 0:
        return index
    try:
        moved = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)
        for name, value in search:
            faiss.GpuParameterSpace().set_index_parameter(moved, name, value)
    except RuntimeError:  # graphs and some codes do not exist on a GPU
        return index
    return moved


class AnnIndex:
    """An index on disk."""

    def __init__(self, folder: Path, spec: AnnSpec) -> None:
        self.folder, self.spec = folder, spec
        self._sizes = [_opened(path, spec.search).ntotal for path in sorted(folder.glob("part-*.faiss"))]

    @property
    def bytes(self) -> int:
        """Return the size of its files in bytes."""
        return sum(path.stat().st_size for path in self.folder.glob("part-*.faiss"))

    def search(self, queries: NDArray[np.float32], k: int) -> Hits:
        """Return the hits of each query, which are fewer than k if the index visited fewer passages.

        Args:
            queries: Vectors of m queries, float32 (m, dim).
            k: Number of hits per query.

        Returns:
            The hits, with arrays of shape (m, k).
        """
        ask = _PartSearch(self.folder.absolute(), self.spec.search, np.ascontiguousarray(queries, np.float32), k)
        best, start = Hits.none(len(queries), k), 0
        if not len(queries):
            return best
        small = sum(self._sizes) * len(queries) < _LOCAL_PRODUCTS
        work: Work[int, Hits | None] = Work("search of an index", ask.hits, None if small else ask.make)
        for number, result in current().map(work, ((number, number) for number in range(len(self._sizes))), least=2):
            part = result if result is not None else ask.hits(number)
            places = np.where(part.positions < 0, -1, part.positions + start)
            best = merged(best, Hits(places, part.scores))
            start += self._sizes[number]
        return best


def near_share(exact: NDArray[np.int32], hits: Hits) -> float:
    """Return the share of the n nearest passages that are among the first n hits.

    Args:
        exact: Positions of the nearest passages by exact search, (m, n).
        hits: The hits of the index for the same queries.
    """
    first = hits.positions[:, : exact.shape[1]]
    return float(np.mean([np.isin(near, row).mean() for near, row in zip(exact, first, strict=True)]))


def pairs(settings: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """Return parameters as pairs, sorted by name."""
    return tuple(sorted(settings.items()))
