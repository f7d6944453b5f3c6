"""The gap from totals alone: the parts of base rates, true positive rates and false positive rates.

With base rate π, true positive rate t and false positive rate f a selection rate is ``s = π t + (1 - π) f``, and
``s_a - s_b = Δπ (t̄ - f̄) + Δt π̄ + Δf (1 - π̄)``, bars being the means of both groups: Kitagawa's (1955) symmetric
form, which is the Shapley value of the three factors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit.intervals import two_sided
from fairkit_why.limits import GUARD, by_cluster, clustered, effective

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

NAMES = ("base_rate_part", "true_positive_rate_part", "false_positive_rate_part")


@dataclass(frozen=True, slots=True)
class Cells:
    """A group's shares of (outcome 0, no), (outcome 0, yes), (outcome 1, no), (outcome 1, yes), and how many rows.

    Attributes
    ----------
    counts
        Shape [4]; under weights scaled to the effective number of rows.
    """

    counts: Array

    @classmethod
    def of(cls, outcome: Array, decision: Array, weights: Array | None) -> Cells:
        """Count rows; a chance of a favorable decision counts as such."""
        w = np.ones(len(outcome)) if weights is None else weights
        sums = [w @ ((outcome == y) * (decision if yes else 1 - decision)) for y in (0, 1) for yes in (0, 1)]
        return cls(np.array(sums) * effective(weights, len(outcome)) / w.sum())

    def rates(self, added: float = 0.0) -> Array:
        """Return π, t, f, shape [3], with so much added to every cell; NaN where a rate is over no rows."""
        no_no, no_yes, yes_no, yes_yes = self.counts + added
        with np.errstate(all="ignore"):
            return np.array([
                (yes_no + yes_yes) / (self.counts.sum() + 4 * added),
                yes_yes / (yes_no + yes_yes),
                no_yes / (no_no + no_yes),
            ])  # fmt: skip

    def variances(self, added: float) -> Array:
        """Return the variances of π, t, f."""
        rates = self.rates(added)
        positives = self.counts[2] + self.counts[3] + 2 * added
        negatives = self.counts[0] + self.counts[1] + 2 * added
        over = np.array([positives + negatives, positives, negatives])
        return np.asarray(rates * (1 - rates) / over)


def divided(a: Array, b: Array) -> Array:
    """Return the three parts of ``s_a - s_b`` from π, t, f of both groups, shape [3]."""
    (pi, t, f), (d_pi, d_t, d_f) = (a + b) / 2, a - b
    return np.array([d_pi * (t - f), d_t * pi, d_f * (1 - pi)])


def _gradients(a: Array, b: Array) -> tuple[Array, Array]:
    """Return how the three parts change with π, t, f of a and of b, shapes [3, 3]."""
    (pi, t, f), (d_pi, d_t, d_f) = (a + b) / 2, a - b
    half = np.array([[0.0, d_pi / 2, -d_pi / 2], [d_t / 2, 0.0, 0.0], [-d_f / 2, 0.0, 0.0]])
    own = np.diag([t - f, pi, 1 - pi])
    return half + own, half - own


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts with their intervals.

    Attributes
    ----------
    values
        From the raw counts, so that they add up to the gap; shape [3].
    middles, errors
        With half a count in every cell, and their standard errors, shapes [3].
    """

    values: Array
    middles: Array
    errors: Array

    def interval(self, place: int, confidence: float) -> tuple[float, float]:
        """Return a part's interval, which contains its value."""
        z = two_sided(1 - GUARD * (1 - confidence))
        middle, half, value = self.middles[place], z * self.errors[place], self.values[place]
        return float(min(middle - half, value)), float(max(middle + half, value))


def parts_of(cells: tuple[Cells, Cells], design: Sequence[float] = (1.0, 1.0, 1.0)) -> Parts:
    """Divide a gap.

    Parameters
    ----------
    cells
        Of the group, and of the reference.
    design
        By which the variances are multiplied where rows depend on each other.
    """
    a, b = (one.rates(0.5) for one in cells)
    by_a, by_b = _gradients(a, b)
    variance = by_a**2 @ cells[0].variances(0.5) + by_b**2 @ cells[1].variances(0.5)
    raw = divided(cells[0].rates(), cells[1].rates())
    return Parts(raw, divided(a, b), np.sqrt(variance * np.asarray(design)))


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
    error = float(np.sqrt(sum((1 - p) / (p * n) for p, n in zip(base, sizes, strict=True))))
    z = two_sided(1 - GUARD * (1 - confidence))
    ratio = base[low] / base[1 - low]
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
    for y, d, w, (pi, t, f), by in zip(outcome, decision, weights, rates, _gradients(*rates), strict=True):
        share = np.ones(len(y)) / len(y) if w is None else w / w.sum()
        own = np.stack([y - pi, y * (d - t) / pi, (1 - y) * (d - f) / (1 - pi)], axis=1)
        pulls.append(share[:, None] * own @ by.T)
    every = np.concatenate(clusters)
    variance, _ = clustered(by_cluster(np.concatenate(pulls), every), every)
    plain = parts_of(cells).errors ** 2
    with np.errstate(all="ignore"):
        found = np.nan_to_num(np.maximum(variance / plain, 1.0), nan=1.0, posinf=1.0)
    return [float(value) for value in found]
