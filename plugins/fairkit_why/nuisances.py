"""Regressions on allowed columns: additive splines, boosted trees, and the mix of both that held-out rows prefer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

FOLDS = 5
KNOTS = 5
FEWEST = 20
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
        for place, values in enumerate(columns.values()):
            words = values.dtype.kind == "O"
            part, code = _dummies(values) if words else _splines(values.astype(np.float64))
            parts.append(part)
            owners += [place] * part.shape[1]
            codes.append(code)
            text.append(words)
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
        fit, found = folds != 0, []
        for place, name in enumerate(self.names):
            features = self.splines[:, self.of == place]
            said = _logistic(features, group.astype(np.float64), weights, fit)[~fit]
            found.append((_area(said, group[~fit]), name))
        area, name = max(found)
        return name, area


def _dummies(values: NDArray[Any]) -> tuple[Array, Array]:
    """Return a 0-1 column for each value, and a number for each row's; rare values, and missing ones, are one."""
    kinds, code, count = np.unique(values.astype(str), return_inverse=True, return_counts=True)
    rank = np.where(count >= FEWEST, np.arange(len(kinds)), -1)
    number = np.unique(rank[code.reshape(-1)], return_inverse=True)[1].reshape(-1)
    return np.eye(int(number.max()) + 1)[number], number.astype(np.float64)


def _splines(values: Array) -> tuple[Array, Array]:
    """Return a cubic spline with knots at quantiles, and a column for missing numbers where there are some."""
    from scipy.interpolate import BSpline

    gone = np.isnan(values)
    filled = np.where(gone, np.median(values[~gone]) if not gone.all() else 0.0, values)
    kinds = np.unique(filled)
    if len(kinds) <= KNOTS:
        found = (filled[:, None] == kinds).astype(np.float64)
    else:
        knots = np.unique(np.quantile(filled, np.linspace(0, 1, KNOTS)))
        ends = np.repeat(knots[0], 3), np.repeat(knots[-1], 3)
        found = BSpline.design_matrix(filled, np.concatenate([ends[0], knots, ends[1]]), 3).toarray()
    return (np.column_stack([found, gone]) if gone.any() else found), values


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
    from lightgbm import Dataset, train

    parameters = {
        "objective": "binary" if chances else "regression", "num_leaves": 8, "learning_rate": 0.1, "verbosity": -1,
        "deterministic": True, "num_threads": 1, "force_row_wise": True, "seed": 0,
    }  # fmt: skip
    text = [place for place, words in enumerate(design.text) if words]
    data = Dataset(design.codes[fit], outcome[fit], weight=weights[fit], categorical_feature=text, params=parameters)
    return np.asarray(train(parameters, data, 40).predict(design.codes))


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
