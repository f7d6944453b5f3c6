"""Randomized thresholds by group from a linear program: parity, equal opportunity or equalized odds."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import fairkit
from fairkit.errors import DataError, MissingExtraError
from fairkit.mitigators import Capability
from fairkit.parameters import parameter
from fairkit.support.lazy_dataclass import dataclass
from fairkit_onnx.write.rules import Piece
from fairkit_repair.postprocess import PostParameters, PostProcessor, Solution

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit.mitigators import Run
    from fairkit_repair.scored_rows import ScoredRows

ConstraintName = Literal["demographic_parity", "equal_opportunity", "equalized_odds"]
_NEGLIGIBLE = 1e-10
_PRICE = 100.0
"""What a share of people by which the rate to keep is missed costs, in units of the most that a decision brings."""
_VALUES = 200
"""Cutoffs beside the hull's corners, where gains or rules on rates do not follow from the outcomes."""
_CHOICES = 40_000
"""Choices of one cutoff for each group that are compared; on small data these are all."""


@dataclass(frozen=True, slots=True)
class Hull:
    """Threshold rules of a group: the corners of its ROC convex hull, or all."""

    thresholds: NDArray[np.float64]
    accepted_good: NDArray[np.float64]
    accepted_bad: NDArray[np.float64]
    gain: NDArray[np.float64]  # the sum of what accepted rows bring
    bounds: NDArray[np.float64]  # what each rule on a rate is changed by, shape [B, V]

    @property
    def good(self) -> float:
        """The weight of all rows with the favorable outcome."""
        return float(self.accepted_good[-1])

    @property
    def bad(self) -> float:
        """The weight of all rows with the other outcome."""
        return float(self.accepted_bad[-1])

    @property
    def accepted(self) -> NDArray[np.float64]:
        """The weight of the accepted rows."""
        return self.accepted_good + self.accepted_bad

    def measures(self, constraint: ConstraintName) -> list[NDArray[np.float64]]:
        """Return the rates that shall be equal between groups, at every corner: each [V], in [0, 1]."""
        if constraint == "demographic_parity":
            return [self.accepted / (self.good + self.bad)]
        hits = self.accepted_good / self.good
        return [hits] if constraint == "equal_opportunity" else [hits, self.accepted_bad / self.bad]

    def at(self, places: NDArray[np.int64]) -> Hull:
        """Return some of the rules."""
        good, bad = self.accepted_good[places], self.accepted_bad[places]
        return Hull(self.thresholds[places], good, bad, self.gain[places], self.bounds[:, places])


def curve(rows: ScoredRows) -> Hull:
    """Return every threshold rule on the rows, the strictest first."""
    weights = rows.row_weights
    values, inverse = np.unique(-rows.scores[weights > 0], return_inverse=True)

    def summed(each: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.append(0.0, np.cumsum(np.bincount(inverse.ravel(), each[weights > 0], len(values))))

    values = -values
    return Hull(
        thresholds=np.concatenate(([2.0], 0.5 * (values[:-1] + values[1:]), [0.0])),
        accepted_good=summed(weights * rows.favorable),
        accepted_bad=summed(weights * (1 - rows.favorable)),
        gain=summed(weights * rows.gains),
        bounds=np.array([summed(bound.accepted - bound.refused) for bound in rows.bounds]).reshape(-1, len(values) + 1),
    )


def hull_places(whole: Hull) -> NDArray[np.int64]:
    """Return where the ROC convex hull of all threshold rules has its corners.

    Its slopes are the decreasing isotonic regression of the outcome on the scores in decreasing order: its blocks end
    at the corners.
    """
    try:
        from scipy.optimize import isotonic_regression
    except ImportError as error:
        raise MissingExtraError("scipy", "threshold-optimizer") from error

    total, good = np.diff(whole.accepted), np.diff(whole.accepted_good)
    return np.asarray(isotonic_regression(good / total, weights=total, increasing=False).blocks, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Programme:
    """What is made best over threshold rules by group, and what is kept."""

    constraint: ConstraintName
    tolerance: float = 0.0
    rate: float | None = None  # the share of all to accept
    refused: tuple[float, ...] = ()  # by rule on a rate: its sum where everybody is refused

    @classmethod
    def of(cls, constraint: ConstraintName, tolerance: float, rows: ScoredRows) -> Programme:
        """Return the programme of an objective's rows."""
        return cls(constraint, tolerance, rows.rate, tuple(float(bound.refused.sum()) for bound in rows.bounds))


def mixtures(
    hulls: Sequence[Hull], programme: Programme, bounds: Sequence[tuple[float, float]] | None = None
) -> tuple[list[NDArray[np.float64]], list[float]]:
    """Mix each group's threshold rules so that the gain is highest under the constraint.

    The linear program over shares x of the corners v of every group g and common rates r, where s and t are how far
    the rate to keep and the rules on rates b are missed, at prices P < Q that no gain is worth::

        max Σ_g Σ_v x_gv gain_gv - P s - Q Σ_b t_b
        s.t. Σ_v x_gv = 1,  |Σ_v x_gv m_gv - r_m| ≤ ε/2 for every measure m,  x, s, t ≥ 0,
             |Σ_g Σ_v x_gv accepted_gv - rate| ≤ s,  Σ_g Σ_v x_gv b_gv + refused_b ≤ t_b
    """
    from scipy.optimize import linprog

    measures = [hull.measures(programme.constraint) for hull in hulls]
    count, kept = len(measures[0]), len(programme.refused)
    starts = np.concatenate(([0], np.cumsum([len(hull.thresholds) for hull in hulls])))
    shares, size = int(starts[-1]), shares_of(hulls)
    width = shares + count + 1 + kept
    gains = np.concatenate([hull.gain for hull in hulls]) / size
    price = _PRICE * worth(hulls)
    cost = np.concatenate((-gains, np.zeros(count), [price], np.full(kept, 10 * price)))
    ones = np.zeros((len(hulls), width))
    near, least = [], []
    for group in range(len(hulls)):
        rows_of_group = slice(int(starts[group]), int(starts[group + 1]))
        ones[group, rows_of_group] = 1.0
        for index, values in enumerate(measures[group]):
            for sign in (1.0, -1.0):
                row = np.zeros(width)
                row[rows_of_group], row[shares + index] = sign * values, -sign
                near.append(row)
                least.append(0.5 * programme.tolerance)
    if programme.rate is not None:
        for sign in (1.0, -1.0):
            row = np.zeros(width)
            row[:shares] = sign * np.concatenate([hull.accepted for hull in hulls]) / size
            row[shares + count] = -1.0
            near.append(row)
            least.append(sign * programme.rate)
    for index, refused in enumerate(programme.refused):
        row = np.zeros(width)
        row[:shares] = np.concatenate([hull.bounds[index] for hull in hulls])
        row[shares + count + 1 + index] = -1.0
        near.append(row)
        least.append(-refused)
    limits = [(0.0, None)] * shares + list(bounds or [(0.0, 1.0)] * count) + [(0.0, None)] * (1 + kept)
    solved: Any = linprog(
        cost, A_ub=np.array(near), b_ub=least, A_eq=ones, b_eq=np.ones(len(hulls)), bounds=limits, method="highs-ds"
    )
    if solved.x is None:
        raise DataError(f"the linear program of the thresholds has no solution: {solved.message}")
    mixed = [_cleaned(solved.x[a:b]) for a, b in itertools.pairwise(starts)]
    return mixed, [float(value) for value in solved.x[shares : shares + count]]


def shares_of(hulls: Sequence[Hull]) -> float:
    """Return the weight of all rows."""
    return sum(hull.good + hull.bad for hull in hulls)


def worth(hulls: Sequence[Hull]) -> float:
    """Return the most that accepting a row brings or costs, on average between two neighbouring corners."""
    slopes = [np.abs(np.diff(hull.gain)) / np.maximum(np.diff(hull.accepted), 1e-12) for hull in hulls]
    return max([float(slope.max()) for slope in slopes if len(slope)], default=1.0) or 1.0


def _cleaned(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    kept = np.where(shares > _NEGLIGIBLE, shares, 0.0)
    cleaned: NDArray[np.float64] = kept / kept.sum()
    return cleaned


class ThresholdOptimizer(PostProcessor):
    """Set thresholds by group so that their rates are equal and the objective is best.

    Unlike ``rto`` it needs outcomes to fit. It decides by chance between two or three fixed thresholds, or with
    ``randomized=false`` by one threshold for each group.
    """

    name = "threshold-optimizer"
    citation = "Hardt, Price and Srebro, Equality of opportunity in supervised learning, NeurIPS 2016"
    objectives = ("rate", "accuracy", "balanced_accuracy", "cost", "value")
    capabilities = tuple(
        Capability(
            constraints=(name,),
            settings={"constraint": name} if drawn else {"constraint": name, "randomized": False},
            dial="tolerance",
            reads_group=True,
            randomized=drawn,
            trainings=0,
        )
        for drawn in (True, False)
        for name in ("demographic_parity", "equal_opportunity", "equalized_odds")
    )

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters(PostParameters):
        """See `ThresholdOptimizer`."""

        constraint: Literal["demographic_parity", "equal_opportunity", "equalized_odds"] = parameter(
            "demographic_parity",
            help="Equal selection rates, equal true positive rates, or equal true and false positive rates.",
        )
        tolerance: float = parameter(
            0.0, help="The largest difference allowed between groups.", minimum=0, former={"epsilon": 1}
        )
        randomized: bool = parameter(
            True, help="Mix thresholds by chance; false: one threshold for each group, those nearest to what is asked."
        )

    def promises(self) -> Sequence[fairkit.Rule]:
        """Bound the difference of the constrained rates by the tolerance."""
        metric = f"{self.parameters.constraint}_difference"
        return (fairkit.Rule(metric=metric, max=self.parameters.tolerance),)

    def solve(self, rows: ScoredRows, validation: ScoredRows | None, run: Run) -> Solution:
        """Find the hulls, solve the program, and mix the pooled population's rules to the same rates."""
        programme = Programme.of(self.parameters.constraint, self.parameters.tolerance, rows)
        parts = [rows.take(rows.codes == group) for group in range(len(rows.names))]
        for name, part in zip(rows.names, parts, strict=True):
            _check_outcomes(name, part, programme.constraint)
        plain = run.objective.kind != "value" and not rows.bounds
        wholes = [curve(part) for part in (*parts, rows)]
        hulls = [whole.at(_corners(whole, plain=plain)) for whole in wholes]
        if not self.parameters.randomized:
            chosen = sharp_thresholds(wholes[:-1], programme, linear=run.objective.kind != "value")
            hulls = wholes
            shares = [np.eye(1, len(whole.thresholds), at)[0] for whole, at in zip(wholes[:-1], chosen, strict=True)]
            reached = [[m[at] for m in whole.measures(programme.constraint)]
                       for whole, at in zip(wholes[:-1], chosen, strict=True)]  # fmt: skip
            rates = np.mean(reached, axis=0).tolist()
            distance = sum(abs(m - r) for m, r in zip(wholes[-1].measures(programme.constraint), rates, strict=True))
            common = np.eye(1, len(wholes[-1].thresholds), int(np.argmin(distance)))[0]
        else:
            shares, rates = mixtures(hulls[:-1], programme)
            # one rule for all may not reach the groups' true positive rate at their false positive rate
            bounds = [(0.0, rates[0]), (rates[1], rates[1])] if len(rates) == 2 else [(rates[0], rates[0])]
            (common,), _ = mixtures(hulls[-1:], Programme(programme.constraint), bounds)
        pieces = [_pieces(hull, share) for hull, share in zip(hulls, [*shares, common], strict=True)]
        return Solution(pieces=tuple(pieces), details=_details(programme.constraint, rows, hulls[:-1], shares, rates))


def _corners(whole: Hull, *, plain: bool) -> NDArray[np.int64]:
    """Return the rules that are worth mixing: the hull's corners, and some between where gains have other tops."""
    corners = hull_places(whole)
    if plain:
        return corners
    last = len(whole.thresholds) - 1
    return np.unique(np.concatenate((corners, np.linspace(0, last, min(_VALUES, last + 1)).round().astype(np.int64))))


def sharp_thresholds(wholes: Sequence[Hull], programme: Programme, *, linear: bool = True) -> list[int]:
    """Choose one threshold for each group: the best gain among those that keep the constraint and the rate.

    The program of `mixtures` says about which rates groups get; all choices of the cutoffs nearest to them are
    compared: by how far the constraint, rules on rates and the rate to keep are missed, and then by the gain. On small
    data these are all cutoffs. With gains that are `linear` in the outcomes a cutoff is worth its place on the hull,
    which is what calibrated scores would say, so that no step of the sample's own noise is taken.
    """
    corners = [hull_places(whole) for whole in wholes]
    mixed, _ = mixtures([w.at(c) for w, c in zip(wholes, corners, strict=True)], programme)
    most = max(2, int(_CHOICES ** (1 / len(wholes))))
    near, options = [], []
    for whole, places, mixture in zip(wholes, corners, mixed, strict=True):
        distance = np.zeros(len(whole.thresholds))
        for values in whole.measures(programme.constraint):
            distance = distance + np.abs(values - float(values[places] @ mixture))
        nearest = np.sort(np.argsort(distance, kind="stable")[:most])
        near.append(nearest)
        option = whole.at(nearest)
        gain = np.interp(option.accepted, whole.accepted[places], whole.gain[places]) if linear else option.gain
        options.append((gain, option))
    grid = np.meshgrid(*(np.arange(len(nearest)) for nearest in near), indexing="ij")
    index = [axis.ravel() for axis in grid]
    size, price = shares_of(wholes), _PRICE * worth(wholes)

    def total(each: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        return np.asarray(sum(values[at] for values, at in zip(each, index, strict=True)))

    rank = -total([gain for gain, _ in options]) / size
    if programme.rate is not None:
        rank = rank + price * np.abs(total([option.accepted for _, option in options]) / size - programme.rate)
    for position, refused in enumerate(programme.refused):
        missed = total([option.bounds[position] for _, option in options]) + refused
        rank = rank + 10 * price * np.maximum(missed, 0.0)
    measured = [whole.measures(programme.constraint) for whole in wholes]
    apart = np.zeros(len(rank))
    for part in zip(*measured, strict=True):
        stacked = np.stack([values[nearest][at] for values, nearest, at in zip(part, near, index, strict=True)])
        apart = np.maximum(apart, np.ptp(stacked, axis=0))
    rank = rank + 100 * price * np.maximum(apart - programme.tolerance - _NEGLIGIBLE, 0.0)
    best = int(rank.argmin())
    return [int(nearest[at[best]]) for nearest, at in zip(near, index, strict=True)]


def _check_outcomes(name: str, part: ScoredRows, constraint: ConstraintName) -> None:
    good, bad = (part.favorable > 0).any(), (part.favorable <= 0).any()
    if (constraint != "demographic_parity" and not good) or (constraint == "equalized_odds" and not bad):
        raise DataError(
            f"group {name!r} has no rows with one of the outcomes, which {constraint} needs; "
            "merge groups, add rows, or use constraint=demographic_parity"
        )


def _pieces(hull: Hull, shares: NDArray[np.float64]) -> tuple[Piece, ...]:
    used = [v for v in np.flatnonzero(shares).tolist() if hull.thresholds[v] <= 1.0]
    return tuple(Piece(threshold=float(hull.thresholds[v]), weight=float(shares[v])) for v in used)


def _details(
    constraint: ConstraintName,
    rows: ScoredRows,
    hulls: Sequence[Hull],
    shares: Sequence[NDArray[np.float64]],
    rates: Sequence[float],
) -> dict[str, Any]:
    labels = {
        "demographic_parity": ["selection_rate"],
        "equal_opportunity": ["true_positive_rate"],
        "equalized_odds": ["true_positive_rate", "false_positive_rate"],
    }[constraint]
    reached = {
        label: {
            name: float(hull.measures(constraint)[index] @ share)
            for name, hull, share in zip(rows.names, hulls, shares, strict=True)
        }
        for index, label in enumerate(labels)
    }
    total = shares_of(hulls)
    right = sum(
        float((h.accepted_good - h.accepted_bad) @ share) + h.bad for h, share in zip(hulls, shares, strict=True)
    )
    accepted = sum(float(hull.accepted @ share) for hull, share in zip(hulls, shares, strict=True))
    return {
        "common": dict(zip(labels, rates, strict=True)),
        "rates": reached,
        "selection_rate_on_fit_rows": accepted / total,
        "expected_accuracy_on_fit_rows": right / total,
    }


@fairkit.hookimpl
def fairkit_mitigators() -> list[type[fairkit.Mitigator]]:
    """Offer the method."""
    return [ThresholdOptimizer]
