"""Randomized thresholds by group from a linear program: parity, equal opportunity or equalized odds."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import fairkit
from fairkit.errors import DataError, MissingExtraError
from fairkit.mitigators import Capability
from fairkit.parameters.declare import parameter
from fairkit_onnx.write.rules import Piece
from fairkit_repair.postprocess import PostParameters, PostProcessor, Solution

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit.mitigators import Run
    from fairkit_repair.scored_rows import ScoredRows

ConstraintName = Literal["demographic_parity", "equal_opportunity", "equalized_odds"]
_NEGLIGIBLE = 1e-10


@dataclass(frozen=True, slots=True)
class Hull:
    """The corners of a group's ROC convex hull: the threshold rules that a mixture is worth making of."""

    thresholds: NDArray[np.float64]
    accepted_good: NDArray[np.float64]
    accepted_bad: NDArray[np.float64]

    @property
    def good(self) -> float:
        """The weight of all rows with the favorable outcome."""
        return float(self.accepted_good[-1])

    @property
    def bad(self) -> float:
        """The weight of all rows with the other outcome."""
        return float(self.accepted_bad[-1])

    def measures(self, constraint: ConstraintName) -> list[NDArray[np.float64]]:
        """Return the rates that shall be equal between groups, at every corner: each [V], in [0, 1]."""
        if constraint == "demographic_parity":
            return [(self.accepted_good + self.accepted_bad) / (self.good + self.bad)]
        hits = self.accepted_good / self.good
        return [hits] if constraint == "equal_opportunity" else [hits, self.accepted_bad / self.bad]


def roc_hull(scores: NDArray[np.float64], favorable: NDArray[np.float64], weights: NDArray[np.float64]) -> Hull:
    """Find the corners of the ROC convex hull of threshold rules.

    The hull's slopes are the decreasing isotonic regression of the outcome on the scores in decreasing order:
    its blocks end at the corners.
    """
    try:
        from scipy.optimize import isotonic_regression
    except ImportError as error:
        raise MissingExtraError("scipy", "threshold-optimizer") from error

    values, place = np.unique(-scores, return_inverse=True)
    total = np.bincount(place, weights)
    good = np.bincount(place, weights * favorable)
    kept = total > 0
    values, total, good = -values[kept], total[kept], good[kept]
    blocks = isotonic_regression(good / total, weights=total, increasing=False).blocks
    ends = np.asarray(blocks[1:], dtype=np.int64) - 1
    below = np.append(0.5 * (values[:-1] + values[1:]), 0.0)
    below[-1] = 0.0
    return Hull(
        thresholds=np.append(2.0, below[ends]),
        accepted_good=np.append(0.0, np.cumsum(good)[ends]),
        accepted_bad=np.append(0.0, np.cumsum(total - good)[ends]),
    )


def mixtures(
    hulls: Sequence[Hull],
    constraint: ConstraintName,
    epsilon: float = 0.0,
    bounds: Sequence[tuple[float, float]] | None = None,
) -> tuple[list[NDArray[np.float64]], list[float]]:
    """Mix each group's threshold rules so that accuracy is highest under the constraint.

    The linear program over shares x of the corners v of every group g and common rates r::

        max Σ_g Σ_v x_gv (good accepted - bad accepted)
        s.t. Σ_v x_gv = 1,  |Σ_v x_gv m_gv - r_m| ≤ ε/2 for every measure m,  x ≥ 0
    """
    from scipy.optimize import linprog

    measures = [hull.measures(constraint) for hull in hulls]
    count = len(measures[0])
    sizes = [len(hull.thresholds) for hull in hulls]
    starts = np.concatenate(([0], np.cumsum(sizes)))
    gains = np.concatenate([hull.accepted_good - hull.accepted_bad for hull in hulls])
    cost = np.append(-gains / sum(hull.good + hull.bad for hull in hulls), np.zeros(count))
    ones = np.zeros((len(hulls), len(cost)))
    near = np.zeros((2 * len(hulls) * count, len(cost)))
    row = 0
    for group in range(len(hulls)):
        own = slice(int(starts[group]), int(starts[group + 1]))
        ones[group, own] = 1.0
        for place, values in enumerate(measures[group]):
            for sign in (1.0, -1.0):
                near[row, own], near[row, starts[-1] + place] = sign * values, -sign
                row += 1
    limits = [(0.0, None)] * int(starts[-1]) + list(bounds or [(0.0, 1.0)] * count)
    solved: Any = linprog(
        cost,
        A_ub=near,
        b_ub=np.full(len(near), 0.5 * epsilon),
        A_eq=ones,
        b_eq=np.ones(len(hulls)),
        bounds=limits,
        method="highs-ds",
    )
    if solved.x is None:
        raise DataError(f"the linear program of the thresholds has no solution: {solved.message}")
    shares = [_cleaned(solved.x[a:b]) for a, b in itertools.pairwise(starts)]
    return shares, [float(value) for value in solved.x[starts[-1] :]]


def _cleaned(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    kept = np.where(shares > _NEGLIGIBLE, shares, 0.0)
    cleaned: NDArray[np.float64] = kept / kept.sum()
    return cleaned


class ThresholdOptimizer(PostProcessor):
    """Mix threshold rules in every group so that their rates are equal and accuracy is highest.

    Unlike ``rto`` it needs outcomes to fit, and decides by chance between two or three fixed thresholds.
    """

    name = "threshold-optimizer"
    citation = "Hardt, Price and Srebro, Equality of opportunity in supervised learning, NeurIPS 2016"
    capabilities = tuple(
        Capability(
            constraints=(name,),
            settings={"constraint": name} if drawn else {"constraint": name, "randomized": False},
            dial="tolerance",
            reads_group=True,
            randomized=drawn,
            trainings=0,
            level="rate",
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
        rate: float | None = parameter(
            None,
            help="The common selection rate or true positive rate, which the groups' rates are within half of the "
            "tolerance of; default: the most accurate one. Rates far from one half are known better from as many rows.",
            minimum=0,
            maximum=1,
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
        constraint, tolerance = self.parameters.constraint, self.parameters.tolerance
        rate = self.parameters.rate
        if not self.parameters.randomized:
            return _sharp(rows, constraint, tolerance, rate)
        hulls = [_hull_of(rows, group, constraint) for group in range(len(rows.names))]
        around = None if rate is None else [(rate, rate), *[(0.0, 1.0)] * (constraint == "equalized_odds")]
        shares, rates = mixtures(hulls, constraint, tolerance, around)
        pooled = roc_hull(rows.scores, rows.favorable, rows.row_weights)
        # one rule for all may not reach the groups' true positive rate at their false positive rate
        bounds = [(0.0, rates[0]), (rates[1], rates[1])] if len(rates) == 2 else [(rates[0], rates[0])]
        common, _ = mixtures([pooled], constraint, 0.0, bounds)
        pieces = [_pieces(hull, own) for hull, own in zip([*hulls, pooled], [*shares, *common], strict=True)]
        return Solution(pieces=tuple(pieces), details=_details(constraint, rows, hulls, shares, rates))


def curve(scores: NDArray[np.float64], favorable: NDArray[np.float64], weights: NDArray[np.float64]) -> Hull:
    """Return every threshold rule, not only those of the hull; see `roc_hull` for the arguments."""
    values, place = np.unique(-scores, return_inverse=True)
    total, good = np.bincount(place, weights), np.bincount(place, weights * favorable)
    values = -values
    below = np.append(0.5 * (values[:-1] + values[1:]), 0.0)
    return Hull(
        thresholds=np.append(2.0, below),
        accepted_good=np.append(0.0, np.cumsum(good)),
        accepted_bad=np.append(0.0, np.cumsum(total - good)),
    )


def sharp_thresholds(
    curves: Sequence[Hull], constraint: ConstraintName, tolerance: float, rate: float | None = None
) -> list[int]:
    """Choose one threshold for each group: the best accuracy among those whose rates differ by at most `tolerance`.

    A window of that width is moved through the first rate of all groups; inside it each group takes its best
    threshold, or the nearest where there is none. Where no choice keeps the tolerance in every rate, it is the one that
    is nearest to it. With a `rate` the window lies around it.
    """
    measures = [one.measures(constraint) for one in curves]
    gains = [one.accepted_good - one.accepted_bad for one in curves]
    starts = np.unique(np.round(np.concatenate([rates[0] for rates in measures]), 3))
    if rate is not None:
        starts = np.array([rate - 0.5 * tolerance])
    best: tuple[float, float, list[int]] | None = None
    for start in starts:
        chosen = [
            _in_window(rates[0], gain, float(start), float(start) + tolerance)
            for rates, gain in zip(measures, gains, strict=True)
        ]
        seen = np.array([[rate[at] for rate in rates] for rates, at in zip(measures, chosen, strict=True)])
        over = max(float(np.ptp(seen, axis=0).max()) - tolerance, 0.0)
        # accepted good less accepted bad: accuracy up to a constant
        gain = float(sum(one[at] for one, at in zip(gains, chosen, strict=True)))
        rank = (-round(over, 4), gain)
        if best is None or rank > best[:2]:
            best = (*rank, chosen)
    if best is None:
        raise DataError("there are no scores to choose thresholds from")
    return best[2]


def _in_window(rates: NDArray[np.float64], gain: NDArray[np.float64], low: float, high: float) -> int:
    """Return the place of the largest gain among rates in [low, high], else of the nearest rate; rates increase."""
    first, last = np.searchsorted(rates, low, "left"), np.searchsorted(rates, high, "right")
    if first < last:
        return int(first + gain[first:last].argmax())
    return int(np.abs(rates - 0.5 * (low + high)).argmin())


def _sharp(rows: ScoredRows, constraint: ConstraintName, tolerance: float, rate: float | None) -> Solution:
    """Return one threshold for each group, and one for the pooled population at their mean first rate."""
    hulls = [_hull_of(rows, group, constraint) for group in range(len(rows.names))]  # refuses what it cannot use
    parts = [rows.take(rows.codes == group) for group in range(len(rows.names))]
    curves = [curve(part.scores, part.favorable, part.row_weights) for part in parts]
    chosen = sharp_thresholds(curves, constraint, tolerance, rate)
    reached = [one.measures(constraint)[0][at] for one, at in zip(curves, chosen, strict=True)]
    pooled = curve(rows.scores, rows.favorable, rows.row_weights)
    common = int(np.abs(pooled.measures(constraint)[0] - np.mean(reached)).argmin())
    points = [*zip(curves, chosen, strict=True), (pooled, common)]
    shares = [np.eye(1, len(one.thresholds), at)[0] for one, at in zip(curves, chosen, strict=True)]
    means = [
        float(np.mean([one.measures(constraint)[place][at] for one, at in zip(curves, chosen, strict=True)]))
        for place in range(len(hulls[0].measures(constraint)))
    ]
    return Solution(
        pieces=tuple((Piece(threshold=float(one.thresholds[at])),) for one, at in points),
        details=_details(constraint, rows, curves, shares, means),
    )


def _hull_of(rows: ScoredRows, group: int, constraint: ConstraintName) -> Hull:
    part = rows.take(rows.codes == group)
    hull = roc_hull(part.scores, part.favorable, part.row_weights)
    lacks_good = constraint != "demographic_parity" and not hull.good
    lacks_bad = constraint == "equalized_odds" and not hull.bad
    if lacks_good or lacks_bad:
        raise DataError(
            f"group {rows.names[group]!r} has no rows with one of the outcomes, which {constraint} needs; "
            "merge groups, add rows, or use constraint=demographic_parity"
        )
    return hull


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
            name: float(hull.measures(constraint)[index] @ own)
            for name, hull, own in zip(rows.names, hulls, shares, strict=True)
        }
        for index, label in enumerate(labels)
    }
    gained = sum(float((hull.accepted_good - hull.accepted_bad) @ own) for hull, own in zip(hulls, shares, strict=True))
    refused = sum(hull.bad for hull in hulls)
    total = sum(hull.good + hull.bad for hull in hulls)
    return {
        "common": dict(zip(labels, rates, strict=True)),
        "rates": reached,
        "expected_accuracy_on_fit_rows": (gained + refused) / total,
    }


@fairkit.hookimpl
def fairkit_mitigators() -> list[type[fairkit.Mitigator]]:
    """Offer the method."""
    return [ThresholdOptimizer]
