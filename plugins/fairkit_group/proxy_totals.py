"""What group probabilities add up to: sums in cells of about equal probabilities, in constant memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit.data.clusters import BUCKETS
from fairkit.data.proxies import known_shares
from fairkit_dependent import SCORE_BUCKETS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.statistics import Rows

    Array = NDArray[np.float64]

LEVELS = {2: 40, 3: 20, 4: 12, 5: 8, 6: 6, 7: 5}
"""Into how many steps probabilities are cut, by the number of groups: some 500 cells at most; 4 steps beyond."""

LEAST_CELL = 100
"""Cells with fewer rows are put together with others of the same most probable group."""


@dataclass(frozen=True, slots=True)
class ProxyTotals:
    """What group probabilities and decisions add up to."""

    keys: NDArray[np.int64]  # cells of about equal probabilities, increasing, shape [Z]
    rows: Array  # rows of each, shape [Z]
    sums: Array
    second: Array
    joint: Array  # Σ w p_a c, shape [K, 4], and Σ w² p_a² c c', shape [K, K, 4, 4]
    joint_second: Array  # Σ w p_a c, shape [K, 4], and Σ w² p_a² c c', shape [K, K, 4, 4]
    thresholded: Array  # confusion cells by each row's most probable group, shape [K, 4]
    absent: int  # rows without probabilities
    known: Array  # of rows of a known group, by group and tenth of its probability: rows, Σ p, hits, Σ p (1 - p)
    buckets: Array | None = None
    joint_buckets: Array | None = None  # `joint` by bucket, shape [B, K, 4]

    def __add__(self, other: ProxyTotals) -> ProxyTotals:
        keys = np.union1d(self.keys, other.keys)

        def total(mine: Array, others: Array) -> Array:
            both = np.zeros((len(keys), *mine.shape[1:]))
            both[np.searchsorted(keys, self.keys)] += mine
            both[np.searchsorted(keys, other.keys)] += others
            return both

        return ProxyTotals(
            keys,
            total(self.rows, other.rows),
            total(self.sums, other.sums),
            total(self.second, other.second),
            self.joint + other.joint,
            self.joint_second + other.joint_second,
            self.thresholded + other.thresholded,
            self.absent + other.absent,
            self.known + other.known,
            None if self.buckets is None or other.buckets is None else total(self.buckets, other.buckets),
            None
            if self.joint_buckets is None or other.joint_buckets is None
            else self.joint_buckets + other.joint_buckets,
        )

    def coarse(self) -> tuple[Array, Array, Array | None]:
        """Return sums, products and buckets with small cells put together: that can only widen what is possible."""
        groups = self.joint.shape[0]
        small = self.rows < LEAST_CELL
        place = np.where(small, -1 - self.sums[:, :groups].argmax(axis=1), np.arange(len(self.rows)))
        _, order = np.unique(place, return_inverse=True)

        def joined(part: Array) -> Array:
            whole = np.zeros((order.max() + 1, *part.shape[1:]))
            np.add.at(whole, order, part)
            return whole

        buckets = None if self.buckets is None else joined(self.buckets)
        return joined(self.sums), joined(self.second), buckets


def proxy_totals(
    rows: Rows, shares: Array, clusters: NDArray[np.int64] | None = None, groups_known: NDArray[np.int64] | None = None
) -> ProxyTotals:
    """Add up one batch; `groups_known` has the places of the groups that are known, -1 where none is."""
    has_proxy = np.isfinite(shares[:, 0])
    groups = shares.shape[1]
    p = shares[has_proxy]
    weights = np.ones(len(p)) if rows.weights is None else rows.weights[has_proxy]
    decision = np.zeros(len(p)) if rows.decision is None else rows.decision[has_proxy]
    favorable = rows.outcome[has_proxy] > 0.5
    no, yes = 1 - decision, decision
    cells = np.column_stack([~favorable * no, ~favorable * yes, favorable * no, favorable * yes])
    keys, inverse = np.unique(_keys(p), return_inverse=True)
    every = np.hstack([p, cells]) * weights[:, None]
    width = groups + 4
    sums, second = np.zeros((len(keys), width)), np.zeros((len(keys), width, width))
    for i in range(width):
        sums[:, i] = np.bincount(inverse, every[:, i], len(keys))
        for j in range(i, width):
            second[:, i, j] = second[:, j, i] = np.bincount(inverse, every[:, i] * every[:, j], len(keys))
    buckets: Array | None = None
    joint_buckets: Array | None = None
    weighted = p * weights[:, None]
    if clusters is not None:
        bucket = clusters[has_proxy] // (BUCKETS // SCORE_BUCKETS)
        cell = inverse * SCORE_BUCKETS + bucket
        parts = [np.bincount(cell, column, len(keys) * SCORE_BUCKETS) for column in every.T]
        buckets = np.stack(parts, axis=1).astype(np.float64).reshape(len(keys), SCORE_BUCKETS, width)
        products = (weighted[:, :, None] * cells[:, None, :]).reshape(len(p), groups * 4)
        joint = [np.bincount(bucket, column, SCORE_BUCKETS) for column in products.T]
        joint_buckets = np.stack(joint, axis=1).astype(np.float64).reshape(SCORE_BUCKETS, groups, 4)
    most = np.zeros_like(p)
    most[np.arange(len(p)), p.argmax(axis=1)] = weights
    joint_second = np.zeros((groups, groups, 4, 4))
    for c in range(4):
        for d in range(c, 4):
            part = (weighted * (cells[:, c] * cells[:, d])[:, None]).T @ weighted
            joint_second[:, :, c, d] = joint_second[:, :, d, c] = part
    return ProxyTotals(
        keys=keys,
        rows=np.bincount(inverse, minlength=len(keys)).astype(np.float64),
        sums=sums,
        second=second,
        joint=weighted.T @ cells,
        joint_second=joint_second,
        thresholded=most.T @ cells,
        absent=int((~has_proxy).sum()),
        known=known_shares(p, None if groups_known is None else groups_known[has_proxy]),
        buckets=buckets,
        joint_buckets=joint_buckets,
    )


def _keys(p: Array) -> NDArray[np.int64]:
    """Return the cell of each row's probabilities, shape [n]."""
    levels = LEVELS.get(p.shape[1], 4)
    key = np.zeros(len(p), dtype=np.int64)
    for column in p.T[:-1]:
        key = key * (levels + 1) + np.round(column * levels).astype(np.int64)
    return key
