"""The parts of rates from rows: counts of both groups, what dependent rows add, and label errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairkit.intervals import guarded, two_sided
from fairkit_watch.rate_parts import Cells, gradients, parts_of
from fairkit_why.limits import by_cluster, clustered, effective

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


def cells_of(outcome: Array, decision: Array, weights: Array | None) -> Cells:
    """Count rows; a chance of a favorable decision counts as such, and weights as the effective number of rows."""
    w = np.ones(len(outcome)) if weights is None else weights
    sums = [w @ ((outcome == y) * (decision if yes else 1 - decision)) for y in (0, 1) for yes in (0, 1)]
    return Cells(np.array(sums) * effective(weights, len(outcome)) / w.sum())


def label_error(cells: tuple[Cells, Cells], confidence: float) -> dict[str, float | str] | None:
    """Return the share of one group's positives that, recorded as negative, would make the whole base-rate part.

    Where a share λ of the positives of the group with the smaller base rate p was recorded negative, its base rate is
    ``p / (1 - λ)``, the other's at λ = 1 - p/p'. None where a group has no positives.
    """
    base = np.array([one.rates()[0] for one in cells])
    if not (base > 0).all():
        return None
    low = int(np.argmin(base))
    sizes = [one.counts.sum() for one in cells]
    # delta method: Var log p = (1 - p) / (p n), of both base rates
    error = float(np.sqrt(sum((1 - p) / (p * n) for p, n in zip(base, sizes, strict=True))))
    z = two_sided(guarded(confidence))
    ratio = base[low] / base[1 - low]
    with np.errstate(over="ignore"):  # of a group that is one row's weight nothing is known
        ends = [1 - ratio * np.exp(z * error), 1 - ratio * np.exp(-z * error)]
    return {
        "of": "group" if low == 0 else "reference",
        "share": float(1 - ratio),
        "low": float(max(ends[0], 0.0)),
        "high": float(max(ends[1], 0.0)),
    }


def design_effects(
    outcome: tuple[Array, Array],
    decision: tuple[Array, Array],
    weights: tuple[Array | None, Array | None],
    clusters: tuple[Array, Array],
    cells: tuple[Cells, Cells],
) -> list[float]:
    """Return by how much clusters multiply the variances of the three parts (at least 1)."""
    rates = [one.rates(0.5) for one in cells]
    pulls = []
    for y, d, w, (pi, t, f), by in zip(outcome, decision, weights, rates, gradients(*rates), strict=True):
        share = np.ones(len(y)) / len(y) if w is None else w / w.sum()
        # a row's influence on base rate, true positive rate and false positive rate
        own = np.stack([y - pi, y * (d - t) / pi, (1 - y) * (d - f) / (1 - pi)], axis=1)
        pulls.append(share[:, None] * own @ by.T)
    every = np.concatenate(clusters)
    variance, _ = clustered(by_cluster(np.concatenate(pulls), every), every)
    plain = parts_of(cells).errors ** 2
    with np.errstate(all="ignore"):
        found = np.nan_to_num(np.maximum(variance / plain, 1.0), nan=1.0, posinf=1.0)
    return [float(value) for value in found]
