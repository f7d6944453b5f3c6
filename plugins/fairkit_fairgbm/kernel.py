"""The numerical kernels of FairGBM: one pass over the rows for counts, one for gradients, in parallel.

A row's *cell* is ``2 * group + label``. With s = +1 for label-positives and -1 for label-negatives,
``u = exp(-s f)`` and ``k = e - 1``, everything needs one exponential:

    loss            log(1 + u)                             derivative  -s u / (1 + u)
    error proxy     log(1 + k u)                           derivative  -s k u / (1 + k u)
    positive proxy  log(1 + k / u), of label-positives     derivative  k / (k + u)

(for label-negatives the positive proxy is the error proxy). Logarithms are taken of products of many
factors, not of each. Sums are made in a fixed number of blocks, so that they do not depend on the threads.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numba
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCKS = 64
K = math.e - 1.0
_LARGEST = 200.0
"""Beyond this margin a row's derivatives no longer change in double precision."""
_FULL = 1e150


@numba.njit(parallel=True, cache=True, error_model="numpy")
def _count(
    scores: NDArray[np.float64], cells: Any, weights: NDArray[np.float32], out: NDArray[np.float64]
) -> None:
    n, weighted = len(scores), len(weights) > 0
    for block in numba.prange(BLOCKS):
        low, high = n * block // BLOCKS, n * (block + 1) // BLOCKS
        # two places for each cell instead of a branch, which would be mispredicted half the time
        sums = np.zeros(2 * out.shape[1])
        for i in range(low, high):
            sums[2 * cells[i] + (scores[i] > 0.0)] += weights[i] if weighted else 1.0
        out[block] = sums[1::2]


@numba.njit(parallel=True, cache=True, error_model="numpy")
def _losses(
    scores: NDArray[np.float64], cells: Any, weights: NDArray[np.float32], out: NDArray[np.float64]
) -> None:
    n, weighted = len(scores), len(weights) > 0
    for block in numba.prange(BLOCKS):
        total = 0.0
        for i in range(n * block // BLOCKS, n * (block + 1) // BLOCKS):
            margin = scores[i] if cells[i] & 1 else -scores[i]
            loss = math.log1p(math.exp(-margin)) if margin > 0.0 else math.log1p(math.exp(margin)) - margin
            total += loss * weights[i] if weighted else loss
        out[block] = total


@numba.njit(parallel=True, cache=True, error_model="numpy")
def _gradients(
    scores: NDArray[np.float64],
    cells: Any,
    weights: NDArray[np.float32],
    error: NDArray[np.float64],
    positive: NDArray[np.float64],
    base: NDArray[np.float64],
    gradient: NDArray[np.float32],
    hessian: NDArray[np.float32],
    out: NDArray[np.float64],
) -> None:
    n, weighted, with_positive = len(scores), len(weights) > 0, out.shape[1] == 3
    cell_count = out.shape[2]
    for block in numba.prange(BLOCKS):
        low, high = n * block // BLOCKS, n * (block + 1) // BLOCKS
        sums = np.zeros((out.shape[1], cell_count))
        products = np.ones((out.shape[1], cell_count))
        for i in range(low, high):
            cell = cells[i]
            sign = 1.0 if cell & 1 else -1.0
            u = math.exp(-min(max(sign * scores[i], -_LARGEST), _LARGEST))
            r = u / (1.0 + u)
            g = -sign * (base[cell] * r + error[cell] * (K * u / (1.0 + K * u)))
            h = base[cell] * r * (1.0 - r)
            w = weights[i] if weighted else 1.0
            if with_positive:
                g += positive[cell] * (K / (K + u))
            gradient[i] = w * g
            hessian[i] = w * h
            if weighted:
                sums[0, cell] += w * math.log1p(u)
                sums[1, cell] += w * math.log1p(K * u)
                if with_positive:
                    sums[2, cell] += w * math.log1p(K / u)
            else:
                products[0, cell] *= 1.0 + u
                products[1, cell] *= 1.0 + K * u
                if with_positive:
                    products[2, cell] *= 1.0 + K / u
                if products[1, cell] > _FULL or (with_positive and products[2, cell] > _FULL):
                    for j in range(out.shape[1]):
                        sums[j, cell] += math.log(products[j, cell])
                        products[j, cell] = 1.0
        if not weighted:
            for j in range(out.shape[1]):
                for cell in range(cell_count):
                    sums[j, cell] += math.log(products[j, cell])
        out[block] = sums


def count_positive(
    scores: NDArray[np.float64], cells: NDArray[Any], weights: NDArray[np.float32] | None, cell_count: int
) -> NDArray[np.float64]:
    """Give the weight of the rows with a positive score in each cell, shape [cell_count]."""
    out = np.empty((BLOCKS, cell_count))
    _count(scores, cells, _plain(weights), out)
    return np.asarray(out.sum(axis=0))


def total_loss(
    scores: NDArray[np.float64], cells: NDArray[Any], weights: NDArray[np.float32] | None
) -> float:
    """Give the weighted sum of the rows' cross-entropy."""
    out = np.empty(BLOCKS)
    _losses(scores, cells, _plain(weights), out)
    return float(out.sum())


def gradients(
    scores: NDArray[np.float64],
    cells: NDArray[Any],
    weights: NDArray[np.float32] | None,
    *,
    error: NDArray[np.float64],
    positive: NDArray[np.float64] | None,
    base: NDArray[np.float64],
    gradient: NDArray[np.float32],
    hessian: NDArray[np.float32],
) -> NDArray[np.float64]:
    """Write the Lagrangian's gradient and the loss's hessian, and give the sums of loss and proxies.

    Parameters
    ----------
    scores
        Log-odds f, shape [n].
    cells
        ``2 * group + label``, shape [n], an unsigned integer type.
    weights
        Shape [n], or None.
    error, positive
        For each cell the coefficient of the error proxy's and of the positive proxy's derivative (the
        latter of label-positives; None where no constraint needs it), shape [cells].
    base
        For each cell the coefficient of the loss itself (1, but for LightGBM's scale_pos_weight), shape [cells].
    gradient, hessian
        Written, shape [n], float32.

    Returns
    -------
    ndarray
        Shape [2 or 3, cells]: weighted sums of loss, error proxy and (with `positive`) positive proxy.
    """
    out = np.empty((BLOCKS, 2 if positive is None else 3, len(error)))
    unused = np.zeros(len(error)) if positive is None else positive
    _gradients(scores, cells, _plain(weights), error, unused, base, gradient, hessian, out)
    return np.asarray(out.sum(axis=0))


def _plain(weights: NDArray[np.float32] | None) -> NDArray[np.float32]:
    return np.empty(0, dtype=np.float32) if weights is None else weights
