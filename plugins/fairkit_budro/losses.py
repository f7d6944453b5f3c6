"""The logistic loss of margins, and its derivatives under label weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_similarity.search.tree import Floats


def class_losses(margins: Floats) -> Floats:
    """Return every row's loss under each label, ℓ(f, k) = -log p_k(f)."""
    if margins.ndim == 1:
        return np.stack([np.logaddexp(0.0, margins), np.logaddexp(0.0, -margins)])
    top = margins.max(axis=1, keepdims=True)
    total = top + np.log(np.exp(margins - top).sum(axis=1, keepdims=True))
    return np.ascontiguousarray((total - margins).T)


def derivatives(margins: Floats, weights: Floats) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return gradient and hessian of Σ_ik w(i, k) ℓ(f_i, k) in the margins (BuDRO eq. 2.6)."""
    mass = weights.sum(axis=1)
    if margins.ndim == 1:
        chance = 0.5 * (1.0 + np.tanh(0.5 * margins))
        gradient = mass * chance - weights[:, 1]
        hessian = mass * chance * (1.0 - chance)
    else:
        chance = np.exp(margins - margins.max(axis=1, keepdims=True))
        chance /= chance.sum(axis=1, keepdims=True)
        gradient = mass[:, None] * chance - weights
        hessian = 2.0 * mass[:, None] * chance * (1.0 - chance)
    return gradient.astype(np.float32), hessian.astype(np.float32)
