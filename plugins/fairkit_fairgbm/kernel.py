"""The numerical kernels of FairGBM: one pass over the rows for counts, one for gradients, a tile of rows at a time.

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
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SLOPE = 2.5
"""Of a proxy, on the scale of the hessian r (1 - r)."""
_LARGEST = 100.0
"""Beyond this margin a row's derivatives no longer change in double precision."""
TILE = 8_192
"""Rows whose intermediate numbers stay in the cache."""


def count_positive(
    scores: NDArray[np.float64], cells: NDArray[Any], weights: NDArray[np.float32] | None, cell_count: int
) -> NDArray[np.float64]:
    """Return the weight of the rows with a positive score in each cell, shape [cell_count]."""
    weight = 1.0 if weights is None else weights.astype(np.float64)
    return np.asarray(np.bincount(cells, weight * (scores > 0.0), cell_count), np.float64)


def total_loss(scores: NDArray[np.float64], cells: NDArray[Any], weights: NDArray[np.float32] | None) -> float:
    """Return the weighted sum of the rows' cross-entropy."""
    # log(1 + e^-m) for a margin m of either sign, without overflow
    losses = np.logaddexp(0.0, np.where(cells & 1, -scores, scores))
    return float(losses.sum() if weights is None else losses @ weights)


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
    loss = 0.0
    for start in range(0, len(scores), TILE):
        tile = slice(start, start + TILE)
        cell = cells[tile]
        sign = 2.0 * (cell & 1) - 1.0
        u = np.exp(np.clip(-sign * scores[tile], -_LARGEST, _LARGEST))
        term = 1.0 + u
        # u = e^-m: r = u / (1 + u) = 1 - σ(m), curve = r (1 - r) = σ'(s), for either sign of the margin
        r = u / term
        curve = r / term
        base_gradient, pressed = base[cell], SLOPE * error[cell]
        if weights is not None:
            base_gradient, pressed = base_gradient * weights[tile], pressed * weights[tile]
        gradient[tile] = -sign * (base_gradient * r + pressed * curve)
        hessian[tile] = base_gradient * curve
        if positive is not None:
            raised = SLOPE * positive[cell] * curve
            gradient[tile] += raised if weights is None else raised * weights[tile]
        losses = np.log(term)
        loss += float(losses.sum() if weights is None else losses @ weights[tile])
    return loss
