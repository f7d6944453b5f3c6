"""FairGBM's constraints: which rates, over which rows, and how multipliers become gradient coefficients.

The constraints are ``max_{a != b} L_a - L_b <= tolerance`` for every group b, and ``L <= target`` overall.
The paper takes the maximum over all groups, b too, which asks for the same (a tolerance is not negative);
but then the constraint of the worst group is never slack by more than the tolerance, and its multiplier
stays where an earlier round left it. Over the *other* groups it falls as soon as its group is worst.

The proxy Lagrangian is ``sum loss + N sum_b lambda_b (proxy_j - proxy_b - tolerance)`` with j the worst group
other than b, plus ``N lambda (proxy - target)`` for every global target. Its derivative gives the rows of the
worst group j ``sum_{b != j} lambda_b - lambda_j``, those of the second worst also ``lambda_j``, and those of
every other group ``-lambda_b``, each times N / n_a, where n_a is the weight of the rows that the rate is over.

Which group is worst is told by the true rates, as the violations are. The paper takes the largest proxy; with
three groups or more that can be another group, and then the multipliers press on rows that they do not follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairkit.errors import DataError
from fairkit.support.lazy_dataclass import dataclass, field, replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

RateName = Literal["fnr", "fpr", "positive_rate"]
_ROWS_OF = {"fnr": "favorable labels", "fpr": "unfavorable labels", "positive_rate": "rows"}


@dataclass(frozen=True, slots=True)
class ConstraintCells:
    """Rows split by group and label."""

    codes: NDArray[np.unsignedinteger]
    weight: NDArray[np.float64]  # the weight of every cell, shape [2 * groups]
    counts: NDArray[np.int64]  # the rows of every cell, shape [2 * groups]
    names: tuple[str, ...]  # the groups' names

    @property
    def total(self) -> float:
        """The weight of all rows."""
        return float(self.weight.sum())


def make_cells(
    groups: NDArray[np.int64],
    labels: NDArray[np.float64],
    names: Sequence[str],
    weights: NDArray[np.float64] | None = None,
) -> ConstraintCells:
    """Split rows by group (codes from 0) and label (0 or 1)."""
    codes = 2 * groups + (labels > 0)
    kind = np.uint8 if len(names) <= 128 else np.uint32
    size = 2 * len(names)
    counts = np.bincount(codes, minlength=size)
    weight = np.bincount(codes, weights, minlength=size).astype(float)
    return ConstraintCells(codes.astype(kind), weight, counts, tuple(names))


@dataclass(frozen=True, slots=True)
class Rates:
    """Group rates and overall rates: each of shape [constraints, groups] and [targets]."""

    by_group: NDArray[np.float64]
    overall: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Constraints:
    """What must hold: group rates within a tolerance, and overall rates below a target."""

    rates: tuple[RateName, ...]  # to be equal between groups
    tolerances: tuple[float, ...]  # by how much each may differ
    targets: tuple[tuple[RateName, float], ...] = ()  # overall rates and their limits, such as (("fpr", 0.05),)
    two_sided: bool = False  # targets are approached from both sides: they are operating points, not only limits
    left_out: tuple[frozenset[int], ...] = ()
    needs_positive: bool = field(init=False)

    def __post_init__(self) -> None:
        wanted = {*self.rates, *(name for name, _ in self.targets)}
        object.__setattr__(self, "needs_positive", "positive_rate" in wanted)

    def among(
        self, cells: ConstraintCells, least: int, *, what: str, leave_out: bool = False
    ) -> tuple[Constraints, tuple[str, ...]]:
        """Return the constraints on the groups that have enough rows, and what the user must know of the others."""
        for name, _ in self.targets:
            if group_sizes(name, cells).sum() <= 0:
                raise DataError(f"{what}: there are no {_ROWS_OF[name]}, so there is no overall {name}")
        left_out, notes = [], []
        for name in self.rates:
            few = _few(name, cells, least) if len(cells.names) > 1 else {}  # one group is equal to itself
            listed = ", ".join(f"{cells.names[cell]!r} ({rows})" for cell, rows in few.items())
            alone = len(few) > len(cells.names) - 2
            if few and (not leave_out or (alone and not any(few.values()))):
                raise DataError(_refusal(what, listed, name, least, absent=not any(few.values())))
            if few and alone:
                raise DataError(
                    f"{what}: fewer than two groups have min_group={least} {_ROWS_OF[name]}; merge groups or "
                    "lower `min_group`"
                )
            if few:
                notes.append(
                    f"These groups have fewer than {least} {_ROWS_OF[name]} and are left out of the constraint on "
                    f"{name}: {listed}."
                )
            left_out.append(frozenset(few))
        return replace(self, left_out=tuple(left_out)), tuple(notes)

    def bound(self, groups: int) -> NDArray[np.bool_]:
        """Return which groups each constraint binds, shape [constraints, groups]."""
        bound = np.ones((len(self.rates), groups), dtype=np.bool_)
        for row, places in enumerate(self.left_out):
            bound[row, list(places)] = False
        return bound

    def resolution(self, cells: ConstraintCells) -> list[str]:
        """Say which tolerances are below what the group sizes can resolve (one row of the smallest group)."""
        notes = []
        bound = self.bound(len(cells.names))
        for row, (name, tolerance) in enumerate(zip(self.rates, self.tolerances, strict=True)):
            counts = np.where(bound[row], _over(name, cells.counts.astype(float)), np.inf)
            smallest = int(counts.argmin())
            step = 1 / counts[smallest]
            if 0 < tolerance < step:
                notes.append(
                    f"The tolerance {tolerance:g} for {name} is below what the groups can resolve: one row of "
                    f"group {cells.names[smallest]!r} ({int(counts[smallest])} {_ROWS_OF[name]}) moves the rate "
                    f"by {step:.2g}."
                )
        return notes

    def true_rates(self, positive: NDArray[np.float64], cells: ConstraintCells) -> Rates:
        """Return the rates at the threshold from the weight of positive predictions in every cell."""
        wrong = {
            "fnr": (cells.weight - positive)[1::2],
            "fpr": positive[0::2],
            "positive_rate": positive[0::2] + positive[1::2],
        }
        return self._rates(wrong, cells)

    def _rates(self, totals: dict[str, NDArray[np.float64]], cells: ConstraintCells) -> Rates:
        groups = len(cells.names)
        by_group = [_share(totals[name], group_sizes(name, cells)) for name in self.rates]
        overall = [totals[name].sum() / group_sizes(name, cells).sum() for name, _ in self.targets]
        known = np.where(self.bound(groups), np.array(by_group).reshape(-1, groups), np.nan)
        return Rates(known, np.array(overall, dtype=float))

    def violations(self, rates: Rates) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return ``max_{a != b} L_a - L_b - tolerance`` [constraints, groups] and ``L - target`` [targets]."""
        rates_known = np.nan_to_num(rates.by_group, nan=-np.inf)
        others = np.repeat(rates_known.max(axis=1, keepdims=True, initial=-np.inf), rates_known.shape[1], axis=1)
        for row, (worst, second) in enumerate(_two_largest(rates_known)):
            others[row, worst] = rates_known[row, second]
        by_group = others - rates.by_group - np.array(self.tolerances).reshape(-1, 1)
        return np.nan_to_num(by_group, nan=-1.0, neginf=-1.0), rates.overall - self._limits()

    def worst(self, rates: Rates) -> float:
        """Return the largest violation; at most 0 where everything holds."""
        by_group, overall = self.violations(rates)
        if self.two_sided:
            overall = np.abs(overall)
        return float(np.concatenate([by_group.ravel(), overall, [-1.0]]).max())

    def excess(self, rates: Rates, cells: ConstraintCells) -> float:
        """Return the largest violation less one standard error, by the binomial variances of its two rates.

        A rate's variance is that of its Agresti-Coull estimate, which a small group without errors has, too.
        """
        by_group, overall = self.violations(rates)
        largest = [-1.0]
        for row, name in enumerate(self.rates):
            counts = np.maximum(_over(name, cells.counts.astype(float)), 1)
            variance = _variance(rates.by_group[row], counts)
            worst, second = _two_largest(np.nan_to_num(rates.by_group, nan=-np.inf))[row]
            spread = np.full(len(counts), variance[worst])
            spread[worst] = variance[second]
            largest.append(float((by_group[row] - np.sqrt(variance + spread)).max()))
        for index, (name, _) in enumerate(self.targets):
            rate, count = rates.overall[index], max(_over(name, cells.counts.astype(float)).sum(), 1)
            miss = abs(overall[index]) if self.two_sided else overall[index]
            largest.append(float(miss - np.sqrt(_variance(rate, count))))
        return max(largest)

    def gap(self, rates: Rates) -> float:
        """Return the largest difference between two groups, in [0, 1]; 0 without group constraints."""
        by_group, _ = self.violations(rates)
        spread = by_group + np.array(self.tolerances).reshape(-1, 1)
        return max(0.0, float(spread.max())) if spread.size else 0.0

    def coefficients(
        self, multipliers: Multipliers, rates: Rates, cells: ConstraintCells
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Return each cell's coefficient of the error proxy and of the positive proxy, both [2 * groups]."""
        error = np.zeros(len(cells.weight))
        positive = np.zeros(len(cells.weight)) if self.needs_positive else None
        total = cells.total
        ranked = _two_largest(np.nan_to_num(rates.by_group, nan=-np.inf))
        for row, (name, (worst, second)) in enumerate(zip(self.rates, ranked, strict=True)):
            multipliers_of_row = multipliers.by_group[row]
            signed = -multipliers_of_row
            signed[worst] += multipliers_of_row.sum() - multipliers_of_row[worst]
            signed[second] += multipliers_of_row[worst]
            _spread(name, total * _share(signed, group_sizes(name, cells), none=0.0), error, positive)
        for value, (name, _) in zip(multipliers.overall, self.targets, strict=True):
            acts = name if value >= 0 else _OPPOSITE[name]
            size = group_sizes(acts, cells).sum()
            _spread(acts, np.full(len(cells.names), total * abs(value) / size), error, positive)
        return error, positive

    def _limits(self) -> NDArray[np.float64]:
        return np.array([limit for _, limit in self.targets], dtype=float)


@dataclass(frozen=True, slots=True)
class Multipliers:
    """The multipliers: [constraints, groups] and [targets]."""

    by_group: NDArray[np.float64]
    overall: NDArray[np.float64]

    @classmethod
    def zero(cls, constraints: Constraints, cells: ConstraintCells) -> Multipliers:
        """Start."""
        shape = (len(constraints.rates), len(cells.names))
        return cls(np.zeros(shape), np.zeros(len(constraints.targets)))

    def step(self, constraints: Constraints, rates: Rates, speed: Scale, limits: Scale) -> Multipliers:
        """Ascend: ``max(0, lambda + speed * violation)``, at most the limits, less the smallest group's.

        Not every group can have a lower rate than another, so one multiplier of every constraint belongs at 0.
        What all have in common acts on no difference between two groups, and with more it only feeds swings.

        A two-sided target's multiplier may be negative: it then presses on the opposite error.
        """
        by_group, overall = constraints.violations(rates)
        moved = np.clip(self.by_group + speed.by_group * by_group, 0, limits.by_group)
        bound = constraints.bound(moved.shape[1])
        least = np.where(bound, moved, np.inf).min(axis=1, keepdims=True, initial=np.inf)
        moved = np.where(bound, moved - least, 0.0)
        low = -limits.overall if constraints.two_sided else np.zeros_like(limits.overall)
        return Multipliers(moved, np.clip(self.overall + speed.overall * overall, low, limits.overall))


@dataclass(frozen=True, slots=True)
class Scale:
    """A size for the multipliers of every constraint [constraints, 1] and of every target [targets]."""

    by_group: NDArray[np.float64]
    overall: NDArray[np.float64]


def scale(constraints: Constraints, cells: ConstraintCells, size: float) -> Scale:
    """Return the multipliers at which a row of the smallest group feels `size` times its own loss.

    That is ``size * min_a n_a / N`` for a constraint and ``size * n / N`` for a target: in this unit one
    step size and one cap suit data of any number of rows and of any group sizes.
    """
    bound = constraints.bound(len(cells.names))
    by_group = [
        size * group_sizes(name, cells)[bound[row]].min() / cells.total for row, name in enumerate(constraints.rates)
    ]
    overall = [size * group_sizes(name, cells).sum() / cells.total for name, _ in constraints.targets]
    return Scale(np.array(by_group, dtype=float).reshape(-1, 1), np.array(overall, dtype=float))


def group_sizes(name: RateName, cells: ConstraintCells) -> NDArray[np.float64]:
    """Return the weight of the rows that the rate is over, for every group."""
    return _over(name, cells.weight)


_OPPOSITE: dict[RateName, RateName] = {"fpr": "fnr", "fnr": "fpr", "positive_rate": "fnr"}


def _over(name: RateName, weight: NDArray[np.float64]) -> NDArray[np.float64]:
    if name == "fnr":
        return weight[1::2]
    return weight[0::2] if name == "fpr" else weight[0::2] + weight[1::2]


def _spread(
    name: RateName, coefficient: NDArray[np.float64], error: NDArray[np.float64], positive: NDArray[np.float64] | None
) -> None:
    """Add a rate's coefficients to the cells that it is over."""
    if name == "fnr":
        error[1::2] += coefficient
        return
    error[0::2] += coefficient
    if name == "positive_rate" and positive is not None:
        positive[1::2] += coefficient


def _two_largest(rates: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Return the places of the largest and the second largest of every row (twice the only one's of one)."""
    order = np.argsort(-rates, axis=1, kind="stable")
    return [(int(row[0]), int(row[min(1, len(row) - 1)])) for row in order]


def _few(name: RateName, cells: ConstraintCells, least: int) -> dict[int, int]:
    """Return the groups, and their rows, that have no weight or too few rows for a rate."""
    counts = _over(name, cells.counts.astype(float)).astype(int)
    weight = group_sizes(name, cells)
    return {index: int(count) for index, count in enumerate(counts.tolist()) if count < least or weight[index] <= 0}


def _refusal(what: str, groups: str, name: RateName, least: int, *, absent: bool) -> str:
    rows = _ROWS_OF[name]
    if absent:
        return (
            f"{what}: group {groups.partition(' (')[0]} has no {rows}, so it has no {name}; "
            f"merge the group with another, drop its rows, or choose another constraint"
        )
    return (
        f"{what}: fewer than min_group={least} {rows} to constrain {name} by in the training rows of {groups}; merge "
        "groups, add rows, lower `min_group`, or leave them out with small_groups=unconstrained"
    )


def _variance(rate: Any, count: Any) -> Any:
    """Return the variance of a rate, from the estimate with one more success and one more failure."""
    better = (np.nan_to_num(rate) * count + 1) / (count + 2)
    return better * (1 - better) / (count + 2)


def _share(part: NDArray[np.float64], whole: NDArray[np.float64], *, none: float = np.nan) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = np.divide(part, whole, out=np.full(len(part), none), where=whole > 0)
    return shares
