"""Exact top-k inner-product search on a GPU: fp32 products select candidates, and float64 in a fixed order decides.

    rows = GpuRows(matrix, "cuda:0")       # fp16 or fp32, (n, dim), in the GPU's memory
    rows.search(queries, 1000)             # the Hits of `exact_search.search`, to the last bit

Products in fp32 select slightly more than k rows per query. A product's error is less than e, whatever the order of the
additions, so each of the true k best rows has a product of at least the k-th best product minus 2 e. If the last
selected row is below that, no row is missing; the few other queries are searched on the CPU. The selected rows are
rescored with the additions of `exact_arithmetic.inner_products`, each an elementary IEEE 754 operation on float64, so a
score has the same bits on a GPU and a CPU. The same holds for MaxSim, whose sums are exact in float64 in any order
(`compressed_index.token_rows`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.components import devices
from airgen.components.registry import load_extra
from airgen.errors import ModelError
from airgen.retrievers.hits import Hits
from airgen.retrievers.top_k import top_k

_ROUNDING = 2.0**-24  # the relative error of rounding to fp32
_UNDERFLOW_LENGTH, _UNDERFLOW_ERROR = 1e-18, 1e-30  # more than the underflow loss of a length or a product
_LEAST_NUMBERS = 1 << 22  # numbers in an index below which the CPU is faster than sending it
_FREE_MEMORY_SHARE = 0.4  # share of the GPU's free memory that the rows may use
_PRODUCTS = 1 << 28  # fp32 products of queries and rows at once, a gigabyte
_TERMS = 1 << 26  # float64 terms at once, half a gigabyte


def gpu_for(numbers: int, item: int) -> str | None:
    """Return the GPU for searching an index of `numbers` numbers of `item` bytes each, or None for the CPU."""
    if numbers < _LEAST_NUMBERS or not devices.has_gpu():
        return None
    torch = load_extra("torch", "search on a GPU")
    free, _ = torch.cuda.mem_get_info()
    return devices.check_device(None, "search") if numbers * item <= _FREE_MEMORY_SHARE * free else None


@contextmanager
def _in_fp32(torch: Any) -> Iterator[None]:
    """Compute fp32 products without rounding to TF32, regardless of the current setting."""
    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, False
    try:
        with torch.inference_mode():
            yield
    finally:
        matmul.allow_tf32 = before


class GpuRows:
    """Rows in GPU memory. Raises ModelError if a row contains NaN or infinity."""

    def __init__(self, matrix: NDArray[Any], device: str, *, rows: NDArray[np.int64] | None = None) -> None:
        torch = self._torch = load_extra("torch", "search on a GPU")
        count, self._device = len(matrix) if rows is None else len(rows), device
        kind = torch.float16 if matrix.dtype == np.float16 else torch.float32
        self._rows = torch.empty((count, matrix.shape[1]), dtype=kind, device=device)
        step = max(1, _TERMS // max(1, matrix.shape[1]))
        longest = 0.0
        for first in range(0, count, step):
            chunk = matrix[first : first + step] if rows is None else matrix[rows[first : first + step]]
            part = torch.from_numpy(np.array(chunk)).to(device)
            squares = part.double().square().sum(dim=1)
            if not bool(squares.isfinite().all()):
                bad = int((~squares.isfinite()).nonzero()[0])
                raise ModelError(f"the embedding at position {first + bad} contains NaN or infinity")
            self._rows[first : first + step] = part
            longest = max(longest, float(squares.max().sqrt()))
        self._longest = longest

    def __len__(self) -> int:
        return int(self._rows.shape[0])

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[Hits, NDArray[np.int64]]:
        """Return the k best rows of each query, and the queries whose hits are uncertain and must be computed on the
        CPU.
        """
        torch, n = self._torch, len(self)
        width = min(k, n)
        hits, doubtful = Hits.none(len(queries), k), []
        spare = min(n - width, max(64, width // 4))
        block = max(1, min(len(queries), _PRODUCTS // max(1, n)))
        with _in_fp32(torch):
            for first in range(0, len(queries), block):
                block_queries = torch.from_numpy(np.ascontiguousarray(queries[first : first + block], np.float32))
                block_queries = block_queries.to(self._device)
                rough, places = self._select(block_queries, width + spare)
                lengths = block_queries.double().square().sum(dim=1).sqrt()
                share = 1.01 * _ROUNDING * (block_queries.shape[1] + 16)
                error = share * (lengths + _UNDERFLOW_LENGTH) * (self._longest + _UNDERFLOW_LENGTH) + _UNDERFLOW_ERROR
                sure = torch.full((len(block_queries),), width + spare == n, device=self._device)
                if width + spare < n:
                    # In float64, so that a difference of fp32 products has no relevant rounding error.
                    sure = rough[:, -1].double() < rough[:, width - 1].double() - 2.02 * error
                sure &= rough.isfinite().all(dim=1)
                best, scores = self._decide(block_queries, places, width)
                hits.positions[first : first + block, :width] = best.to(torch.int32).cpu().numpy()
                hits.scores[first : first + block, :width] = scores.cpu().numpy()
                doubtful += [first + place for place in (~sure).nonzero().flatten().tolist()]
        return hits, np.array(doubtful, np.int64)

    def _select(self, queries: Any, count: int) -> tuple[Any, Any]:
        """Return the products of the best `count` rows in fp32, best first, and their positions."""
        torch, n = self._torch, len(self)
        step = max(count, _PRODUCTS // max(1, len(queries)) // 4)
        best: Any = None
        for first in range(0, n, step):
            part = queries @ self._rows[first : first + step].float().T
            part = torch.nan_to_num(part, nan=torch.inf)  # not a number, so it is uncertain and must not be lost
            values, places = part.topk(min(count, part.shape[1]), dim=1)
            candidates = values, places + first
            best = (
                candidates
                if best is None
                else tuple(torch.cat(pair, dim=1) for pair in zip(best, candidates, strict=True))
            )
            if best[0].shape[1] > count:
                values, chosen = best[0].topk(count, dim=1)
                best = values, best[1].gather(1, chosen)
        return best[0], best[1]

    def _decide(self, queries: Any, places: Any, k: int) -> tuple[Any, Any]:
        """Return the k best of the selected rows by exact scores, in fp32. Ties are in order of position."""
        torch = self._torch
        places = places.sort(dim=1).values
        scores = torch.empty(places.shape, dtype=torch.float32, device=self._device)
        step = max(1, _TERMS // max(1, places.shape[1] * queries.shape[1]))
        for first in range(0, len(queries), step):
            block = slice(first, first + step)
            terms = self._rows[places[block]].double() * queries[block].double()[:, None, :]
            scores[block] = folded(terms).float() + 0.0  # -0.0 and 0.0 are the same score
        order = scores.sort(dim=1, descending=True, stable=True).indices[:, :k]
        return places.gather(1, order), scores.gather(1, order)


def folded(terms: Any) -> Any:
    """Sum over the last dimension with the additions of `exact_arithmetic.inner_products`, overwriting `terms`."""
    width = int(terms.shape[-1])
    if not width:
        return terms.sum(dim=-1)
    while width > 1:
        half = (width + 1) // 2
        terms[..., : width - half] += terms[..., half:width]
        width = half
    return terms[..., 0]


class GpuLists:
    """The passages of each cell of a compressed index in GPU memory, for selecting candidates.

    A passage's score is a sum over query tokens in order, with fp32 additions as on the CPU. A maximum does not depend
    on the order, and ties are in order of position. The candidates are therefore the same as on the CPU.
    """

    def __init__(self, starts: NDArray[np.int64], passages: NDArray[np.int32], count: int, device: str) -> None:
        self._torch = load_extra("torch", "search on a GPU")
        self._device, self._count = device, count
        self._starts = np.asarray(starts, np.int64)
        self._passages = self._torch.from_numpy(np.array(passages)).to(device)

    def best(self, cells: NDArray[np.float32], probes: int, most: int) -> NDArray[np.int32]:
        """Return the `most` best passages, in ascending order, by the scores of the cells, (k, query tokens)."""
        torch, n = self._torch, self._count
        ranked_cells = [top_k(scores, min(probes, len(cells)) + 1) for scores in np.ascontiguousarray(cells.T)]
        total = torch.zeros(n, dtype=torch.float32, device=self._device)
        step = max(1, _TERMS // max(1, n))
        with torch.inference_mode():
            for first in range(0, len(ranked_cells), step):
                for row in self._of_tokens(cells.T[first : first + step], ranked_cells[first : first + step], probes):
                    total += row
            order = total.sort(descending=True, stable=True).indices[:most]
            return np.asarray(order.sort().values.to(torch.int32).cpu().numpy())

    def _of_tokens(self, scores: NDArray[np.float32], ranked_cells: list[Any], probes: int) -> Any:
        """Return each query token's score for every passage, (tokens, passages)."""
        torch, n = self._torch, self._count
        floors = torch.from_numpy(np.array([values[-1] for _, values in ranked_cells], np.float32)).to(self._device)
        similarities = floors[:, None].repeat(1, n)
        places = [order[:probes] for order, _ in ranked_cells]
        rows = np.repeat(np.arange(len(ranked_cells)), [len(place) for place in places])
        cells = np.concatenate(places)
        sizes = self._starts[cells + 1] - self._starts[cells]
        ends = np.cumsum(sizes)
        shifts = self._starts[cells] - ends + sizes
        begins, lengths = (torch.from_numpy(array).to(self._device) for array in (shifts, sizes))
        at = torch.arange(int(ends[-1]) if len(ends) else 0, device=self._device)
        at += begins.repeat_interleave(lengths)
        flat = torch.from_numpy(rows * n).to(self._device).repeat_interleave(lengths) + self._passages[at].long()
        values = torch.from_numpy(np.ascontiguousarray(scores[rows, cells])).to(self._device).repeat_interleave(lengths)
        similarities.view(-1).scatter_reduce_(0, flat, values, "amax")
        return similarities


class GpuTokens:
    """Token vectors of passages from `token_rows` in GPU memory. Passage i begins at `starts[i]`."""

    def __init__(self, tokens: NDArray[np.float16], starts: NDArray[np.int64], device: str) -> None:
        self._torch = load_extra("torch", "search on a GPU")
        self._device, self._starts = device, starts
        self._tokens = self._torch.from_numpy(np.array(tokens)).to(device)
        self._lengths = self._torch.from_numpy(np.diff(starts)).to(device)

    def scores(self, query: NDArray[np.float16]) -> NDArray[np.float64]:
        """Compute MaxSim of one query with every passage, (passages,)."""
        torch, starts = self._torch, self._starts
        scores = np.zeros(len(starts) - 1)
        most = max(1, _TERMS // (len(query) + int(self._tokens.shape[1])))  # tokens at once
        first = 0
        with torch.inference_mode():
            query_vectors = torch.from_numpy(np.array(query)).to(self._device).double()
            while first < len(scores):
                end = max(first + 1, int(np.searchsorted(starts, starts[first] + most, side="right")) - 1)
                tokens = self._tokens[int(starts[first]) : int(starts[end])].double()
                best = torch.segment_reduce(tokens @ query_vectors.T, "max", lengths=self._lengths[first:end], axis=0)
                scores[first:end] = folded(best).cpu().numpy()
                first = end
        return scores
