"""What is left of a gap between people who are alike in allowed columns W: doubly robust, cross-fitted.

Toward a group a: ``U = E_a[D] - E_a[μ_b(W)]``, μ_b(W) being the mean of the reference at W. It is estimated by
``mean_a(D - μ̂_b) - Σ_b r (D - μ̂_b)``, r in proportion to e/(1-e), e = P(a | W) (Robins, Rotnitzky & Zhao 1994), with
nuisances fitted on the other folds (Chernozhukov et al. 2018). Toward the overlap people count with e(1-e) (Li,
Morgan & Zaslavsky 2018).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.hashing import mixed
from fairkit.intervals import guarded, student, two_sided
from fairkit.support.lazy_dataclass import dataclass
from fairkit_why.permutation_walks import by_cluster, clustered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fairkit_why.audit_rows import People

    Array = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]


CLIP = 0.01
FAR, MOST_FAR = 20.0, 0.05
"""A density ratio from which a person has no counterpart, and the share of such people from which nothing is said."""
FEWEST = 50
"""Effective rows below which nothing is said."""


@dataclass(frozen=True, slots=True)
class Left:
    """One version of the number."""

    value: float  # what is left of the gap
    error: float  # its standard error
    degrees: float  # the degrees of freedom
    refused: str | None  # why it is not printed; None where it is
    effective: float  # the effective rows of the weighted group
    far: float  # the share of people without a counterpart
    explained: float = float("nan")  # the standard error of the rest of the gap; NaN where it is not known

    def interval(self, confidence: float) -> tuple[float, float]:
        """Return the interval."""
        z = two_sided(guarded(confidence))
        half = float(student(z, np.array([self.degrees + 1]))[0]) * self.error
        return self.value - half, self.value + half


@dataclass(frozen=True, slots=True)
class Unexplained:
    """What is left toward the group, toward the reference, and toward the overlap; and the nuisances' facts."""

    toward_group: Left  # each the group's number less the reference's
    toward_reference: Left
    overlap: Left
    learners: dict[str, float | str]  # what the outcome was fitted with, and the share of boosted trees in the mix
    separating: tuple[str, float]  # the allowed column that separates the groups best, and its area under the curve


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Rows of two groups."""

    design: Design  # allowed columns
    group: NDArray[np.bool_]  # whether a row is of the group (else of the reference), shape [n]
    outcome: Array  # decisions or predictions, shape [n]
    weights: Array  # shape [n]
    clusters: Array | None  # buckets of clusters; None where rows are independent
    folds: Ints  # each row's fold, shape [n]
    names: tuple[str, str]  # of the group and of the reference

    @classmethod
    def of(
        cls,
        parts: Sequence[tuple[People, Ints, Array]],
        group: NDArray[np.bool_],
        columns: Sequence[str],
        names: tuple[str, str],
    ) -> Comparison:
        """Take rows of people, each part with its outcomes; folds never cut a cluster, or else equal rows."""
        weights = [np.ones(len(rows)) if p.weights is None else p.weights[rows] for p, rows, _ in parts]
        known = [c[rows] for p, rows, _ in parts if (c := p.number("clusters")) is not None]
        clusters = np.concatenate(known) if len(known) == len(parts) else None
        keys = np.concatenate([p.hashes[rows] for p, rows, _ in parts])
        keys = keys if clusters is None else clusters.astype(np.uint64)
        values = {name: np.concatenate([p.column(name)[rows] for p, rows, _ in parts]) for name in columns}
        return cls(
            design=Design.make(values),
            group=group,
            outcome=np.concatenate([outcome for *_, outcome in parts]),
            weights=np.concatenate(weights),
            clusters=clusters,
            folds=(mixed(keys) % np.uint64(FOLDS)).astype(np.int64),
            names=names,
        )


def unexplained(comparison: Comparison) -> Unexplained:
    """Estimate what is left of a gap."""
    size, sides = len(comparison.outcome), (comparison.group, ~comparison.group)
    chance, said = np.empty(size), np.empty((2, 2, size))
    for fold in range(FOLDS):
        out = comparison.folds == fold
        if not out.any():
            continue
        chance[out] = fit_propensity(comparison.design, comparison.group.astype(np.float64), comparison.weights, ~out)[
            out
        ]
        for index, mine in enumerate(sides):
            said[index][:, out] = fit_outcome(comparison.design, comparison.outcome, comparison.weights, ~out & mine)[
                :, out
            ]
    (mean_a, first), (mean_b, second) = (
        mix(said[position], comparison.outcome, comparison.weights, mine) for position, mine in enumerate(sides)
    )
    toward_a = _toward(comparison, comparison.group, chance, mean_b, comparison.names)
    toward_b = _toward(comparison, ~comparison.group, 1 - chance, mean_a, comparison.names[::-1])
    back = Left(-toward_b.value, toward_b.error, toward_b.degrees, toward_b.refused, toward_b.effective, toward_b.far)
    over = _overlap(comparison, chance, mean_a, mean_b, toward_a.refused)
    learners: dict[str, float | str] = {
        "propensity": "logistic, cells" if comparison.design.saturated else "logistic, splines",
        "outcome": "cells" if comparison.design.saturated else "splines and boosted trees",
        "boosted": (first + second) / 2,
    }
    return Unexplained(
        toward_a,
        back,
        over,
        learners,
        comparison.design.separating(comparison.group, comparison.weights, comparison.folds),
    )


def _finish(
    comparison: Comparison,
    value: float,
    pulls: Array,
    effective: float,
    far: float,
    refused: str | None,
    rest: Array | None = None,
) -> Left:
    """Return a number with the noise of its influence function, and of that of the rest of the gap."""
    both = np.stack([pulls, np.full_like(pulls, np.nan) if rest is None else rest], axis=1)
    if comparison.clusters is not None:
        variance, degrees = clustered(by_cluster(both, comparison.clusters), comparison.clusters)
        freedom = float(degrees[0])
    else:
        variance, freedom = (both**2).sum(axis=0), max(effective - 1, 1.0)
    error, explained = np.sqrt(variance)
    return Left(value, float(error), freedom, refused, effective, far, float(explained))


def _toward(
    comparison: Comparison, mine: NDArray[np.bool_], chance: Array, other_mean: Array, names: tuple[str, str]
) -> Left:
    """Return ``E_mine[D] - E_mine[μ_other(W)]``; `chance` is that of being of `mine`."""
    w, d, others = comparison.weights, comparison.outcome, ~mine
    away = d - other_mean
    clipped = np.clip(chance, CLIP, 1 - CLIP)
    # weights e / (1 - e) give the other group this one's distribution of the allowed columns
    odds = w * others * clipped / (1 - clipped)
    ratio = odds / odds.sum()
    shares = w * mine / (w * mine).sum()
    here, there = float(shares @ away), float(ratio @ away)
    # influence function of the augmented estimator, doubly robust (Robins, Rotnitzky & Zhao 1994)
    pulls = shares * (away - here) - ratio * (away - there)
    base = w * others / (w * others).sum()
    rest = shares * (d - shares @ d) - base * (d - base @ d) - pulls
    effective = float(1 / (ratio**2).sum())
    with np.errstate(divide="ignore"):
        density = chance / (1 - chance) * (w @ others) / (w @ mine)
    far = float(shares @ (density > FAR))
    refused = None
    if far > MOST_FAR:
        refused = (
            f"{far:.0%} of group {names[0]} have no counterpart in group {names[1]}: their values of the allowed "
            f"columns are more than {FAR:.0f} times as common in the one as in the other"
        )
    elif effective < FEWEST:
        refused = f"only {effective:.0f} rows of group {names[1]} are like group {names[0]}"
    return _finish(comparison, here - there, pulls, effective, far, refused, rest)


def _overlap(comparison: Comparison, chance: Array, mean_a: Array, mean_b: Array, refused: str | None) -> Left:
    """Return the difference between the groups where people count with e(1-e)."""
    w, d = comparison.weights, comparison.outcome
    # overlap weights e (1 - e) (Li, Morgan & Zaslavsky 2018)
    both = w * chance * (1 - chance)
    both = both / both.sum()
    first, second = w * comparison.group * (1 - chance), w * ~comparison.group * chance
    first, second = first / first.sum(), second / second.sum()
    modelled = float(both @ (mean_a - mean_b))
    left_a, left_b = float(first @ (d - mean_a)), float(second @ (d - mean_b))
    pulls = both * (mean_a - mean_b - modelled) + first * (d - mean_a - left_a) - second * (d - mean_b - left_b)
    effective = float(1 / max((first**2).sum(), (second**2).sum()))
    return _finish(comparison, modelled + left_a - left_b, pulls, effective, 0.0, refused)


# Regressions on allowed columns: additive splines, boosted trees, and the mix of both that held-out rows prefer.


FOLDS = 5
KNOTS = 5
FEWEST_ROWS = 20
"""Rows of a value of text, below which it joins the other rare ones; and of a cell of a saturated regression."""
RIDGE = 0.1
_STEPS = 25
_MIX = np.linspace(0.0, 1.0, 11)


@dataclass(frozen=True, eq=False)
class Design:
    """Allowed columns as features."""

    names: tuple[str, ...]  # the columns
    of: Ints  # by feature of `splines`, the number of its column
    splines: Array  # for linear regressions, shape [n, p]
    codes: Array  # for trees: numbers as they are, text as whole numbers, shape [n, columns]
    text: tuple[bool, ...]  # which columns are text
    saturated: bool  # whether each row's cell is one feature: one column of text

    @classmethod
    def make(cls, columns: Mapping[str, NDArray[Any]]) -> Design:
        """Encode columns."""
        parts, owners, codes, text = [], [], [], []
        for index, values in enumerate(columns.values()):
            is_text = values.dtype.kind == "O"
            part, code = _dummies(values) if is_text else _splines(values.astype(np.float64))
            parts.append(part)
            owners += [index] * part.shape[1]
            codes.append(code)
            text.append(is_text)
        return cls(
            tuple(columns),
            np.array(owners, dtype=np.int64),
            np.concatenate(parts, axis=1),
            np.stack(codes, axis=1),
            tuple(text),
            len(text) == 1 and text[0],
        )

    def separating(self, group: Bools, weights: Array, folds: Ints) -> tuple[str, float]:
        """Return the column by which the groups are told apart best, and the area under its curve on held-out rows."""
        fit, separated = folds != 0, []
        for index, name in enumerate(self.names):
            features = self.splines[:, self.of == index]
            said = _logistic(features, group.astype(np.float64), weights, fit)[~fit]
            separated.append((_area(said, group[~fit]), name))
        area, name = max(separated)
        return name, area


def _dummies(values: NDArray[Any]) -> tuple[Array, Array]:
    """Return a 0-1 column for each value, and a number for each row's; rare values, and missing ones, are one."""
    kinds, code, count = np.unique(values.astype(str), return_inverse=True, return_counts=True)
    rank = np.where(count >= FEWEST_ROWS, np.arange(len(kinds)), -1)
    number = np.unique(rank[code.reshape(-1)], return_inverse=True)[1].reshape(-1)
    return np.eye(int(number.max()) + 1)[number], number.astype(np.float64)


def _splines(values: Array) -> tuple[Array, Array]:
    """Return a cubic spline with knots at quantiles, and a column for missing numbers where there are some."""
    from scipy.interpolate import BSpline

    gone = np.isnan(values)
    filled = np.where(gone, np.median(values[~gone]) if not gone.all() else 0.0, values)
    kinds = np.unique(filled)
    if len(kinds) <= KNOTS:
        basis = (filled[:, None] == kinds).astype(np.float64)
    else:
        knots = np.unique(np.quantile(filled, np.linspace(0, 1, KNOTS)))
        ends = np.repeat(knots[0], 3), np.repeat(knots[-1], 3)
        basis = BSpline.design_matrix(filled, np.concatenate([ends[0], knots, ends[1]]), 3).toarray()
    return (np.column_stack([basis, gone]) if gone.any() else basis), values


def _logistic(features: Array, outcome: Array, weights: Array, fit: Bools) -> Array:
    """Fit chances on some rows by Newton's steps, with a small ridge; return those of all."""
    from fairkit_why.kernels import logistic_slope

    x, y, w = np.column_stack([features, np.ones(len(features))]), outcome[fit], weights[fit]
    mine, w, width = x[fit], w / w.mean(), x.shape[1]
    ridge = np.append(np.full(width - 1, RIDGE), 1e-9)
    slope, curve, beta = np.empty(width), np.empty((width, width)), np.zeros(width)
    now, step = np.inf, np.zeros(width)
    for _ in range(_STEPS):
        after = logistic_slope(mine, y, w, beta, slope, curve) + float(ridge @ beta**2) / 2
        if after > now + 1e-9:  # too far: half of the step
            step = step / 2
            beta = beta + step
            continue
        if now - after < 1e-8 * max(after, 1.0):
            break
        whole = curve + np.tril(curve, -1).T + np.diag(ridge)
        now, step = after, np.linalg.solve(whole, slope + ridge * beta)
        beta = beta - step
    return expit(x @ beta)


def expit(values: Array) -> Array:
    """Return the logistic function."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * values)))


def _linear(features: Array, outcome: Array, weights: Array, fit: Bools) -> Array:
    """Fit numbers by least squares with a small ridge on some rows; return those of all."""
    w = weights[fit, None] / weights[fit].mean()
    middle = float(np.average(outcome[fit], weights=weights[fit]))
    mine = features[fit]
    curve = (w * mine).T @ mine + RIDGE * np.eye(features.shape[1])
    return np.asarray(middle + features @ np.linalg.solve(curve, (w * mine).T @ (outcome[fit] - middle)))


def _boosted(design: Design, outcome: Array, weights: Array, fit: Bools, *, chances: bool) -> Array:
    from fairkit_repair.learners import light_gbm

    lightgbm = light_gbm("why")
    parameters = {
        "objective": "binary" if chances else "regression", "num_leaves": 8, "learning_rate": 0.1, "verbosity": -1,
        "deterministic": True, "num_threads": 1, "force_row_wise": True, "seed": 0,
    }  # fmt: skip
    text = [index for index, is_text in enumerate(design.text) if is_text]
    data = lightgbm.Dataset(
        design.codes[fit], outcome[fit], weight=weights[fit], categorical_feature=text, params=parameters
    )
    return np.asarray(lightgbm.train(parameters, data, 40).predict(design.codes))


def _cells(design: Design, outcome: Array, weights: Array, fit: Bools) -> Array:
    """Return the mean of each row's cell among the rows of the fit."""
    total = (weights[fit, None] * design.splines[fit]).sum(axis=0)
    mean = (weights * outcome)[fit] @ design.splines[fit]
    everybody = float(np.average(outcome[fit], weights=weights[fit]))
    return design.splines @ np.where(total > 0, mean / np.maximum(total, 1e-300), everybody)


def fit_propensity(design: Design, group: Array, weights: Array, fit: Bools) -> Array:
    """Return each row's chance of being of the group, shape [n]."""
    if design.saturated:
        return np.clip(_cells(design, group, weights, fit), 1e-6, 1 - 1e-6)
    return _logistic(design.splines, group, weights, fit)


def fit_outcome(design: Design, outcome: Array, weights: Array, fit: Bools) -> Array:
    """Return each row's expected outcome by both learners, shape [2, n]."""
    if design.saturated:
        said = _cells(design, outcome, weights, fit)
        return np.stack([said, said])
    chances = bool(np.isin(outcome, (0.0, 1.0)).all())
    plain = (_logistic if chances else _linear)(design.splines, outcome, weights, fit)
    return np.stack([plain, _boosted(design, outcome, weights, fit, chances=chances)])


def mix(said: Array, outcome: Array, weights: Array, mine: Bools) -> tuple[Array, float]:
    """Return the mix of two learners' held-out predictions, shape [2, n], with the least loss, and its second share.

    The loss, of the rows `mine`, is logarithmic for chances and squared for numbers.
    """
    chances = bool(np.isin(outcome, (0.0, 1.0)).all())
    y, w = outcome[mine], weights[mine]
    loss = [_loss((1 - share) * said[0, mine] + share * said[1, mine], y, w, chances) for share in _MIX]
    share = float(_MIX[int(np.argmin(loss))])
    return (1 - share) * said[0] + share * said[1], share


def _loss(said: Array, outcome: Array, weights: Array, chances: bool) -> float:
    """Return the log loss of chances, or the squared error of numbers."""
    if not chances:
        return float(weights @ (outcome - said) ** 2)
    inside = np.clip(said, 1e-6, 1 - 1e-6)
    return -float(weights @ (outcome * np.log(inside) + (1 - outcome) * np.log(1 - inside)))


def _area(score: Array, positive: Bools) -> float:
    """Return the area under the ROC curve, at least 1/2; ties count half."""
    kinds, code = np.unique(score, return_inverse=True)
    yes = np.bincount(code.reshape(-1), positive, len(kinds))
    no = np.bincount(code.reshape(-1), ~positive, len(kinds))
    below = np.cumsum(no) - no
    area = float((yes @ (below + no / 2)) / max(yes.sum() * no.sum(), 1))
    return max(area, 1 - area)
