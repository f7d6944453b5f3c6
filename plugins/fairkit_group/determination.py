"""R²: the squared error against the target's variance, with limits that hold for small groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fairkit.limits.means import heavy, student, tilted, unseen, widened
from fairkit.metrics import HEAVY, Estimate, Headline, Metric, Term
from fairkit.statistics import Rows, Statistic, Sums

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit.results.values import Better

    Array = NDArray[np.float64]

_SMALLEST = float(np.finfo(np.float64).eps)
_POWERS = [(i, j) for j in range(4) for i in range(7 - 2 * j)]  # of the target and of the squared error
_COLUMNS = ((0, 0), (1, 0), (2, 0), (0, 1))


@dataclass(frozen=True, slots=True)
class ErrorSums(Sums):
    """Sums of (1, target, target², squared error), and what variance and skewness of R² are made from."""

    powers: Array  # Σ w² y^i e^(2j) for i + 2j ≤ 6, shape [G, 16]
    most: Array  # the largest squared error of any row, shape [1]

    def __add__(self, other: Sums) -> Sums:
        plain = Sums.__add__(self, other)
        if not isinstance(other, ErrorSums):
            return plain
        most = np.maximum(self.most, other.most)
        return ErrorSums(plain.count, plain.first, plain.second, self.powers + other.powers, most)

    def pooled(self) -> ErrorSums:
        """All groups as one."""
        plain = Sums.pooled(self)
        powers = self.powers.sum(axis=0, keepdims=True)
        return ErrorSums(plain.count, plain.first, plain.second, powers, self.most)


class ErrorPowers(Statistic):
    """Sums of powers of the target and of the squared error."""

    key = "powers of errors"

    def collect(self, rows: Rows, groups: NDArray[np.int64], n_groups: int) -> ErrorSums:
        """Sum by group."""
        y = rows.outcome - rows.origin
        e2 = rows.expected(_squared_errors)
        e4, e6 = (e2**2, e2**3) if rows.members is None else (rows.expected(_fourth), rows.expected(_sixth))
        errors = (None, e2, e4, e6)
        weights = rows.weights

        def total(parts: Array) -> Array:
            return np.asarray(np.bincount(groups, parts, n_groups), dtype=np.float64)

        targets = [np.ones_like(y)]
        for _ in range(6):
            targets.append(targets[-1] * y)

        def monomial(i: int, j: int) -> Array:
            error = errors[j]
            return targets[i] if error is None else targets[i] * error

        square = 1.0 if weights is None else weights**2
        powers = np.stack([total(square * monomial(i, j)) for i, j in _POWERS], axis=1)
        if weights is None:
            first = np.stack([powers[:, _POWERS.index(column)] for column in _COLUMNS], axis=1)
        else:
            first = np.stack([total(weights * monomial(*column)) for column in _COLUMNS], axis=1)
        pairs = [[_POWERS.index((a[0] + b[0], a[1] + b[1])) for b in _COLUMNS] for a in _COLUMNS]
        count = np.bincount(groups, minlength=n_groups).astype(np.float64)
        most = np.array([e2.max()]) if len(e2) else np.zeros(1)
        return ErrorSums(count, first, powers[:, np.array(pairs)], powers, most)


def _squared_errors(rows: Rows) -> Array:
    if rows.score is None:
        raise ValueError("this metric needs scores")
    return (rows.score - rows.outcome) ** 2


def _fourth(rows: Rows) -> Array:
    return _squared_errors(rows) ** 2


def _sixth(rows: Rows) -> Array:
    return _squared_errors(rows) ** 3


class R2Score(Metric):
    """One minus the squared error over the target's variance in the group."""

    name: ClassVar[str] = "r2_score"
    term: ClassVar[Term | None] = Term(
        "explained variance", "How much better the predictions are than the mean; 1 is perfect, 0 is no better."
    )
    headline: ClassVar[Headline] = Headline(performance=7, column=9)
    better: ClassVar[Better] = "higher"
    range: ClassVar[tuple[float, float]] = (-np.inf, 1.0)
    meaning: ClassVar[str] = "0: no better than the group's mean; 1: every prediction is right."
    needs: ClassVar[frozenset[str]] = frozenset({"score"})
    tasks: ClassVar[frozenset[Task]] = frozenset({"regression"})
    between: ClassVar[frozenset[str]] = frozenset({"difference", "extreme"})

    def contributions(self, rows: Rows) -> Array:
        """Return (1, target, target², squared error), the target from an origin amid the data."""
        target = rows.outcome - rows.origin
        return np.column_stack([np.ones_like(target), target, target**2, _squared_errors(rows)])

    @property
    def statistic(self) -> Statistic:
        """The sums of the contributions, and of their products."""
        return ErrorPowers()

    def compute(self, sums: Array) -> Array:
        """Compare the squared error with that of the mean."""
        variance = sums[..., 2] - sums[..., 1] ** 2 / sums[..., 0]
        rounding = 16 * _SMALLEST * sums[..., 2]  # a constant target has no variance but may leave this much
        return np.asarray(1 - sums[..., 3] / np.where(variance > rounding, variance, np.nan))

    def estimate(self, totals: Sums, rng: np.random.Generator) -> Estimate:
        """Compute R² in every group with limits on the scale of log(1 - R²).

        A row moves log(error / variance) by ψ = e² / mean(e²) - (y - mean)² / variance. Its variance and skewness
        give the limits, as for a gamma variable (`tilted`), with half the degrees of freedom of a mean: two
        variances are estimated. Unseen rows with the largest error widen the lower end. Heavy tails put the
        interval in doubt.
        """
        if not isinstance(totals, ErrorSums):
            raise TypeError("the totals of r2_score are not those of its statistic")
        with np.errstate(all="ignore"):
            value = self.compute(totals.first)
            n = totals.first[:, 0] ** 2 / totals.powers[:, 0]
            square, cube = _influence(totals)
            skewness = np.where(square > 0, cube / square**1.5, 0.0)
            error = np.sqrt(square * n / np.maximum(n - 1, 1)) / totals.first[:, 0]
            tail = _tail_of_errors(totals)
            largest = totals.most[0] / (totals.first[:, 3] / totals.first[:, 0])  # over the mean squared error

        def limits(z: float) -> tuple[Array, Array]:
            with np.errstate(all="ignore"):
                down, up = tilted(skewness / 1.5, student(z, n / 2))
                share = unseen(n, z)  # of rows with the largest error, which moves their targets too
                hidden = np.log1p(share * largest) - np.log1p(share * largest * np.clip(1 - value, 0, 1))
                more = widened(error * up, hidden, tail / 1.3, n)
                return 1 - (1 - value) * np.exp(more), 1 - (1 - value) * np.exp(-error * down)

        shaky = heavy(1.25 * skewness, n) | heavy(tail / 1.4, n)
        doubts = dict.fromkeys(np.flatnonzero(shaky & np.isfinite(value)).tolist(), HEAVY)
        for place in np.flatnonzero(value >= 1).tolist():
            doubts[place] = "no prediction is wrong, so that nothing tells how large errors are"
        return Estimate(value, limits, sizes=n, doubts=doubts)


def _influence(totals: ErrorSums) -> tuple[Array, Array]:
    """Return Σ w² ψ² and Σ w² ψ³, group by group: ψ is a polynomial in the target and the squared error."""
    mass, y, yy, ee = (totals.first[:, i] for i in range(4))
    mean, mse = y / mass, ee / mass
    variance = yy / mass - mean**2
    psi = {(0, 0): -(mean**2) / variance, (1, 0): 2 * mean / variance, (2, 0): -1 / variance, (0, 1): 1 / mse}
    two = _product(psi, psi)
    sums = {power: totals.powers[:, place] for place, power in enumerate(_POWERS)}
    found = []
    for polynomial in (two, _product(two, psi)):
        found.append(np.sum([factor * sums[power] for power, factor in polynomial.items()], axis=0))
    return found[0], found[1]


def _product(one: dict[tuple[int, int], Array], two: dict[tuple[int, int], Array]) -> dict[tuple[int, int], Array]:
    found: dict[tuple[int, int], Array] = {}
    for (i, j), a in one.items():
        for (k, m), b in two.items():
            found[i + k, j + m] = found.get((i + k, j + m), 0.0) + a * b
    return found


def _tail_of_errors(totals: ErrorSums) -> Array:
    """Return the skewness of the mean squared error."""
    n, e2, e4, e6 = (totals.powers[:, _POWERS.index((0, j))] for j in range(4))
    m = e2 / n
    square = e4 - n * m**2
    return np.asarray(np.where(square > 0, (e6 - 3 * m * e4 + 2 * n * m**3) / square**1.5, 0.0))
