"""Axes in which a fair metric is diagonal: some cost nothing to move along, the others cost a squared distance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from fairkit.errors import DataError

if TYPE_CHECKING:
    from fairkit_similarity.encode import Floats


FREE = 1e-6
"""Directions of a price below this share of the largest count as free, so that nobody is moved along them for miles."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Geometry:
    """Where a row may be moved, and what that costs: x' = x + s freeᵀ + t paidᵀ, d²(x, x') = Σ_k price_k t_k².

    Moves along `free`, the sensitive directions, cost nothing; they are bounded by the range that the rows have
    there. Moves along `paid` are no longer than `reach`.
    """

    free: Floats
    low: Floats  # shape (r,): the range of x · free over the rows
    high: Floats  # shape (r,): the range of x · free over the rows
    paid: Floats  # shape (d, m), orthonormal, r + m = d
    price: Floats  # shape (m,), positive: squared distance per squared length
    reach: float  # the root mean squared distance of two rows drawn at random: a row is never moved farther

    @classmethod
    def learn(cls, features: Floats, matrix: Floats) -> Self:
        """Find the axes of d²(x, x') = ‖(x - x') · matrix‖²."""
        features = np.asarray(features, dtype=np.float64)
        matrix = np.asarray(matrix, dtype=np.float64)
        if features.ndim != 2 or not len(features):
            raise DataError(f"features have the shape {features.shape}; give a matrix of at least one row")
        width = features.shape[1]
        if matrix.ndim != 2 or len(matrix) != width:
            raise DataError(
                f"the fair metric is for {len(matrix)} features, but there are {width}: learn the metric on the "
                "features that the network gets"
            )
        for what, values in (("features", features), ("the fair metric's matrix", matrix)):
            if not np.isfinite(values).all():
                raise DataError(f"{what} hold numbers that are not finite; replace or drop them")
        # ‖(x - x') M‖² = Σ_k σ_k² t_k² along the left singular vectors of M
        axes, size, _ = np.linalg.svd(matrix, full_matrices=True)
        rank = int((size**2 > FREE * max(size.max(initial=0.0) ** 2, 1e-300)).sum())
        free = _principal(features, axes[:, rank:])
        along = features @ free
        z = (features - features.mean(axis=0)) @ matrix
        return cls(
            free=free,
            low=along.min(axis=0),
            high=along.max(axis=0),
            paid=np.ascontiguousarray(axes[:, :rank]),
            price=size[:rank] ** 2,
            # E ‖z - z'‖² = 2 tr Cov(z)
            reach=float(np.sqrt(2.0 * (z**2).mean(axis=0).sum())),
        )

    @property
    def width(self) -> int:
        """The number of features d."""
        return len(self.free)


def _principal(features: Floats, basis: Floats) -> Floats:
    """Turn an orthonormal basis to the rows' principal axes in its span, widest first, signs fixed."""
    if not basis.shape[1]:
        return np.ascontiguousarray(basis)
    along = (features - features.mean(axis=0)) @ basis
    _, turn = np.linalg.eigh(along.T @ along)
    turned = basis @ turn[:, ::-1]
    largest = np.abs(turned).argmax(axis=0)
    signs = np.sign(turned[largest, np.arange(turned.shape[1])])
    return np.ascontiguousarray(turned * np.where(signs == 0.0, 1.0, signs))
