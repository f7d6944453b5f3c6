"""The numerical kernels of FairGBM: one pass over the rows for counts, one for gradients, in parallel.

A row's *cell* is ``2 * group + label``. With s = +1 for label-positives and -1 for label-negatives,
``u = exp(-s f)`` and ``r = u / (1 + u)`` everything needs one exponential:

    loss            log(1 + u)                             derivative  -s r
    error proxy     2.5 r                                  derivative  -2.5 s r (1 - r)
    positive proxy  2.5 (1 - r), of label-positives        derivative  2.5 r (1 - r)

(for label-negatives the positive proxy is the error proxy). The paper's proxies are softplus functions,
log(1 + (e - 1) u), whose slope at the threshold is (e - 1)/e = .632; ours has .625 there. But softplus keeps a slope
of 1 on rows that were decided long ago, where the loss's hessian r (1 - r) has vanished, so that the Newton step of a
leaf with such rows explodes. Ours fades as the hessian does: the step that a proxy adds is at most 2.5 times its
coefficient.

The loss's logarithm is taken of products of many factors, not of each. Sums are made in a fixed number of blocks, so
that they do not depend on the threads.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numba
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCKS = 64
SLOPE = 2.5
"""Of a proxy, on the scale of the hessian r (1 - r)."""
_LARGEST = 100.0
"""Beyond this margin a row's derivatives no longer change in double precision."""
_FULL = 1e120
TILE = 512
_ROUNDER = 1.5 * 2.0**52
_PER_LOG2 = 1.0 / math.log(2.0)
_LOG2_HIGH = 0.693147180369123816490
_LOG2_LOW = 1.90821492927058770002e-10


@numba.njit(parallel=True, cache=True, error_model="numpy")
def _count(scores: NDArray[np.float64], cells: Any, weights: NDArray[np.float32], out: NDArray[np.float64]) -> None:
    n, weighted = len(scores), len(weights) > 0
    for block in numba.prange(BLOCKS):
        low, high = n * block // BLOCKS, n * (block + 1) // BLOCKS
        # two places for each cell instead of a branch, which would be mispredicted half the time
        sums = np.zeros(2 * out.shape[1])
        for i in range(low, high):
            sums[2 * cells[i] + (scores[i] > 0.0)] += weights[i] if weighted else 1.0
        out[block] = sums[1::2]


@numba.njit(parallel=True, cache=True, error_model="numpy")
def _losses(scores: NDArray[np.float64], cells: Any, weights: NDArray[np.float32], out: NDArray[np.float64]) -> None:
    n, weighted = len(scores), len(weights) > 0
    for block in numba.prange(BLOCKS):
        total = 0.0
        for i in range(n * block // BLOCKS, n * (block + 1) // BLOCKS):
            # log(1 + e^-m) for a margin m of either sign, without overflow
            margin = scores[i] if cells[i] & 1 else -scores[i]
            loss = math.log1p(math.exp(-margin)) if margin > 0.0 else math.log1p(math.exp(margin)) - margin
            total += loss * weights[i] if weighted else loss
        out[block] = total


@numba.njit(cache=True, error_model="numpy", inline="always")
def _exp_tile(z: NDArray[np.float64], shifted: NDArray[np.float64], count: int) -> None:
    """Replace z by exp(z), |z| at most 100, in steps that the compiler turns into vector instructions.

    z = n log 2 + r; adding `_ROUNDER` rounds z / log 2 to the integer n and leaves it in the low bits, from
    where it goes to the exponent of 2^n; exp(r) is its Taylor polynomial, |r| <= log(2) / 2, to 2e-16.
    """
    bits = shifted.view(np.int64)
    for j in range(count):
        shifted[j] = z[j] * _PER_LOG2 + _ROUNDER
        n = shifted[j] - _ROUNDER
        r = (z[j] - n * _LOG2_HIGH) - n * _LOG2_LOW
        low = 1 / 720 + r * (1 / 5040 + r * (1 / 40320 + r * (1 / 362880)))
        high = 1 / 3628800 + r * (1 / 39916800 + r * (1 / 479001600))
        r2 = r * r
        middle = 1 / 6 + r * (1 / 24 + r * (1 / 120))
        r4 = r2 * r2
        z[j] = 1.0 + r + r2 * 0.5 + r2 * r * middle + r4 * r2 * (low + r4 * high)
    for j in range(count):
        bits[j] = (bits[j] << 52) + (1023 << 52)
    for j in range(count):
        z[j] *= shifted[j]


@numba.njit(parallel=True, cache=True, error_model="numpy")
def _gradients(
    scores: NDArray[np.float64],
    cells: Any,
    weights: NDArray[np.float32],
    base: NDArray[np.float64],
    error: NDArray[np.float64],
    positive: NDArray[np.float64],
    gradient: NDArray[np.float32],
    hessian: NDArray[np.float32],
    out: NDArray[np.float64],
) -> None:
    n, weighted, with_positive = len(scores), len(weights) > 0, len(positive) > 0
    for block in numba.prange(BLOCKS):
        stop = n * (block + 1) // BLOCKS
        u, work, signs, bases, errors = (np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty(TILE))
        total, product = 0.0, 1.0
        for start in range(n * block // BLOCKS, stop, TILE):
            count = min(TILE, stop - start)
            for j in range(count):
                cell = cells[start + j]
                sign = 2.0 * (cell & 1) - 1.0
                w = weights[start + j] if weighted else 1.0
                signs[j], bases[j], errors[j] = -sign, w * base[cell], w * error[cell] * SLOPE
                u[j] = min(max(-sign * scores[start + j], -_LARGEST), _LARGEST)
            _exp_tile(u, work, count)
            for j in range(count):
                r = u[j] / (1.0 + u[j])
                # u = e^-m: r = u / (1 + u) = 1 - σ(m), curve = r (1 - r)
                curve = r / (1.0 + u[j])
                gradient[start + j] = signs[j] * (bases[j] * r + errors[j] * curve)
                hessian[start + j] = bases[j] * curve
            if with_positive:
                for j in range(count):
                    w = weights[start + j] if weighted else 1.0
                    one = 1.0 + u[j]
                    # σ'(s) = u / (1 + u)², for either sign of the margin
                    gradient[start + j] += w * positive[cells[start + j]] * SLOPE * (u[j] / (one * one))
            if weighted:
                for j in range(count):
                    total += weights[start + j] * math.log1p(u[j])
            else:
                for j in range(0, count - 1, 2):
                    # Σ log(1 + u) = log Π (1 + u): one logarithm for many rows, before the product overflows
                    product *= (1.0 + u[j]) * (1.0 + u[j + 1])
                    if product > _FULL:
                        total += math.log(product)
                        product = 1.0
                if count & 1:
                    product *= 1.0 + u[count - 1]
        out[block] = total + math.log(product)


def count_positive(
    scores: NDArray[np.float64], cells: NDArray[Any], weights: NDArray[np.float32] | None, cell_count: int
) -> NDArray[np.float64]:
    """Return the weight of the rows with a positive score in each cell, shape [cell_count]."""
    out = np.empty((BLOCKS, cell_count))
    _count(scores, cells, _plain(weights), out)
    return np.asarray(out.sum(axis=0))


def total_loss(scores: NDArray[np.float64], cells: NDArray[Any], weights: NDArray[np.float32] | None) -> float:
    """Return the weighted sum of the rows' cross-entropy."""
    out = np.empty(BLOCKS)
    _losses(scores, cells, _plain(weights), out)
    return float(out.sum())


def gradients(
    scores: NDArray[np.float64],
    cells: NDArray[Any],
    weights: NDArray[np.float32] | None,
    *,
    base: NDArray[np.float64],
    error: NDArray[np.float64],
    positive: NDArray[np.float64] | None,
    gradient: NDArray[np.float32],
    hessian: NDArray[np.float32],
) -> float:
    """Write the Lagrangian's gradient and the loss's hessian, and return the loss."""
    out = np.empty(BLOCKS)
    pressed = np.empty(0) if positive is None else positive
    _gradients(scores, cells, _plain(weights), base, error, pressed, gradient, hessian, out)
    return float(out.sum())


def _plain(weights: NDArray[np.float32] | None) -> NDArray[np.float32]:
    return np.empty(0, dtype=np.float32) if weights is None else weights
