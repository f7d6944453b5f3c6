"""The frontier of loss against disparity over several bounds, and the price of one mixture."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError
from fairkit.intervals import student, two_sided
from fairkit.support.files import record_of
from fairkit.support.lazy_dataclass import dataclass
from fairkit_fair_regression.losses import disparities

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.mitigators import Table
    from fairkit_fair_regression.learning import Member
    from fairkit_fair_regression.losses import Loss, Scale

    Array = NDArray[np.float64]
    Matrix = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A mixture on some rows."""

    loss: float
    loss_interval: tuple[float, float]
    disparity: float
    disparity_interval: tuple[float, float]
    group: str  # where the disparity is reached

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return record_of(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One bound and its mixture; ``bound`` None is the predictor without constraints."""

    bound: float | None
    solution: Mapping[str, Any]
    mixture: Mapping[int, float]
    train: Measured
    test: Measured | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "bound": self.bound,
            **self.solution,
            "train": self.train.to_dict(),
            "test": None if self.test is None else self.test.to_dict(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """All mixtures of one run."""

    constraint: str  # what is bounded
    loss_name: str  # what is minimised
    chosen: float  # the bound of the mixture that was chosen
    points: tuple[Point, ...]  # the unconstrained predictor first, then one for each bound
    members: Mapping[int, Member]  # the predictors by number
    ruler: Ruler  # how mixtures are measured

    def with_test(self, matrix: Matrix, table: Table, confidence: float) -> Frontier:
        """Measure every point on other rows too."""
        measures = self.ruler.measure(
            self.members,
            [point.mixture for point in self.points],
            matrix,
            self.ruler.scale.to_unit(table.target),
            group_codes(table, self.ruler.sensitive, self.ruler.names),
            table.weights,
            confidence,
        )
        points = [dataclasses.replace(point, test=test) for point, test in zip(self.points, measures, strict=True)]
        return dataclasses.replace(self, points=tuple(points))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, schema ``fairkit.frontier/1``."""
        return {
            "schema": "fairkit.frontier/1",
            "constraint": self.constraint,
            "loss": self.loss_name,
            "chosen": self.chosen,
            "points": [point.to_dict() for point in self.points],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruler:
    """Measures mixtures on rows."""

    scale: Scale  # the label's unit
    loss: Loss
    sensitive: str | None  # the split
    names: tuple[str, ...]  # its groups
    parity: bool  # whether the disparity is that of distributions, or the worst group's loss

    @property
    def unit(self) -> float:
        """What ℓ is multiplied by to be the usual loss in the label's unit."""
        return float((self.scale.high - self.scale.low) ** self.loss.power / self.loss.unit)

    def measure(
        self,
        members: Mapping[int, Member],
        mixtures: Sequence[Mapping[int, float]],
        matrix: Matrix,
        labels: Array,
        codes: NDArray[np.int64],
        weights: Array | None,
        confidence: float,
    ) -> list[Measured]:
        """Measure mixtures, given as weights by member, on rows with labels in [0, 1].

        Every member predicts once; a row's loss is its expectation over the draw of the member.
        """
        rows = np.zeros((len(mixtures), len(labels)))
        masses = np.zeros((len(mixtures), len(self.names), self._levels))
        for index in sorted({member for mixture in mixtures for member in mixture}):
            predictions = self.scale.snapped(members[index].predict(matrix))
            losses = self.loss(labels, predictions) * self.unit
            mass = self._masses(predictions, codes, weights)
            for row, mixture in enumerate(mixtures):
                if index in mixture:
                    rows[row] += mixture[index] * losses
                    masses[row] += mixture[index] * mass
        return [self._measured(row, mass, codes, weights, confidence) for row, mass in zip(rows, masses, strict=True)]

    @property
    def _levels(self) -> int:
        return 1 if self.scale.grid is None else self.scale.grid.size + 1

    def _masses(self, predictions: Array, codes: NDArray[np.int64], weights: Array | None) -> Array:
        if self.scale.grid is None:
            return np.bincount(codes, weights, len(self.names)).astype(np.float64)[:, None]
        cells = codes * self._levels + self.scale.grid.levels(predictions)
        mass = np.bincount(cells, weights, len(self.names) * self._levels)
        return mass.astype(np.float64).reshape(len(self.names), self._levels)

    def _measured(
        self, rows: Array, mass: Array, codes: NDArray[np.int64], weights: Array | None, confidence: float
    ) -> Measured:
        loss, interval = mean_interval(rows, weights, confidence)
        present = [index for index in range(len(self.names)) if mass[index].sum() > 0]
        if self.parity:
            gaps = np.abs(disparities(mass[present])).max(axis=1)
            worst = present[int(gaps.argmax())]
            size = _effective(weights, codes == worst)
            half = float(np.sqrt(np.log(2 / (1 - confidence)) / (2 * size)))
            value = float(gaps.max())
            limits = (max(0.0, value - half), min(1.0, value + half))
        else:
            inside = [codes == index for index in present]
            intervals = [
                mean_interval(rows[member_rows], None if weights is None else weights[member_rows], confidence)
                for member_rows in inside
            ]
            best = int(np.argmax([value for value, _ in intervals]))
            worst, (value, limits) = present[best], intervals[best]
        return Measured(
            loss=loss, loss_interval=interval, disparity=value, disparity_interval=limits, group=self.names[worst]
        )


def group_codes(table: Table, sensitive: str | None, names: tuple[str, ...]) -> NDArray[np.int64]:
    """Return each row's place among the training groups."""
    groups = table.only_groups(sensitive)
    unknown = [name for index, name in enumerate(groups.names) if name not in names and (groups.codes == index).any()]
    if unknown:
        raise DataError(f"{table.name}: the group {unknown[0]!r} does not occur in the training rows")
    places = np.array([names.index(name) if name in names else -1 for name in groups.names], dtype=np.int64)
    return places[groups.codes]


def mean_interval(rows: Array, weights: Array | None, confidence: float) -> tuple[float, tuple[float, float]]:
    """Return a weighted mean with its Student interval."""
    mean = float(np.average(rows, weights=weights))
    size = np.ones(len(rows)) if weights is None else weights
    error = float(np.sqrt((size**2 * (rows - mean) ** 2).sum()) / size.sum())
    quantile = float(student(two_sided(confidence), np.array([float(len(rows))]))[0])
    return mean, (mean - quantile * error, mean + quantile * error)


def price(
    labels: Array, before: Array, members: Array, shares: Sequence[float], weights: Array | None, confidence: float
) -> dict[str, Any]:
    """Return the price of the constraint in root mean squared error, with a paired interval."""
    first = (before - labels) ** 2
    second = ((members - labels[:, None]) ** 2) @ np.array(shares)
    roots = [float(np.sqrt(np.average(rows, weights=weights))) for rows in (first, second)]
    scaled = second / (2 * max(roots[1], 1e-300)) - first / (2 * max(roots[0], 1e-300))
    mean, (low, high) = mean_interval(scaled, weights, confidence)
    difference = roots[1] - roots[0]
    return {
        "metric": "root_mean_squared_error",
        "before": roots[0],
        "after": roots[1],
        "difference": difference,
        "interval": [difference + low - mean, difference + high - mean],
        "confidence": confidence,
    }


def price_sentence(found: Mapping[str, Any]) -> str:
    """Return the result of `price` as a sentence."""
    low, high = found["interval"]
    return (
        f"On the held-out rows the root mean squared error goes from {found['before']:.5g} without the constraint "
        f"to {found['after']:.5g}: a price of {found['difference']:.3g} [{low:.3g}, {high:.3g}]."
    )


def _effective(weights: Array | None, inside: NDArray[np.bool_]) -> float:
    if weights is None:
        return float(inside.sum())
    weights_inside = weights[inside]
    return float(weights_inside.sum() ** 2 / (weights_inside**2).sum())
