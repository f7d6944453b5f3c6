"""A gap in selection rates from totals alone: the parts of base rates, true and false positive rates.

With base rate π, true positive rate t and false positive rate f a selection rate is ``s = π t + (1 - π) f``, and
``s_a - s_b = Δπ (t̄ - f̄) + Δt π̄ + Δf (1 - π̄)``, bars being the means of both groups: Kitagawa's (1955) symmetric
form, which is the Shapley value of the three factors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit.intervals import guarded, two_sided

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

NAMES = ("base_rate_part", "true_positive_rate_part", "false_positive_rate_part")


@dataclass(frozen=True, slots=True)
class Cells:
    """A group's shares of (outcome 0, no), (outcome 0, yes), (outcome 1, no), (outcome 1, yes), and how many rows."""

    counts: Array  # shape [4]; under weights scaled to the effective number of rows

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


def gradients(a: Array, b: Array) -> tuple[Array, Array]:
    """Return how the three parts change with π, t, f of a and of b, shapes [3, 3]."""
    (pi, t, f), (d_pi, d_t, d_f) = (a + b) / 2, a - b
    half = np.array([[0.0, d_pi / 2, -d_pi / 2], [d_t / 2, 0.0, 0.0], [-d_f / 2, 0.0, 0.0]])
    own = np.diag([t - f, pi, 1 - pi])
    return half + own, half - own


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts with their intervals."""

    values: Array  # from the raw counts, so that they add up to the gap; shape [3]
    middles: Array  # with half a count in every cell, and their standard errors, shapes [3]
    errors: Array  # with half a count in every cell, and their standard errors, shapes [3]

    def less(self, former: Parts) -> Parts:
        """Return how the parts changed since another period, of other rows."""
        return Parts(self.values - former.values, self.middles - former.middles, np.hypot(self.errors, former.errors))

    def interval(self, place: int, confidence: float) -> tuple[float, float]:
        """Return a part's interval, which contains its value."""
        z = two_sided(guarded(confidence))
        middle, half, value = self.middles[place], z * self.errors[place], self.values[place]
        return float(min(middle - half, value)), float(max(middle + half, value))


def parts_of(cells: tuple[Cells, Cells], design: Sequence[float] = (1.0, 1.0, 1.0)) -> Parts:
    """Divide a gap."""
    a, b = (one.rates(0.5) for one in cells)
    by_a, by_b = gradients(a, b)
    variance = by_a**2 @ cells[0].variances(0.5) + by_b**2 @ cells[1].variances(0.5)
    raw = divided(cells[0].rates(), cells[1].rates())
    return Parts(raw, divided(a, b), np.sqrt(variance * np.asarray(design)))
