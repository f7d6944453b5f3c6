"""Do the strata agree? Tests of one odds ratio, or of one difference, in all strata."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fairkit_group.stratified.tables import Test, equal_odds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_STEPS = 200


def same_odds(yes: Array, rows: Array) -> Test:
    """Test that the odds ratios between groups are the same in all strata, from counts.

    Two groups: Breslow and Day's test with Tarone's correction. More: the score test of the model
    logit p_sg = α_s + β_g, which is Pearson's statistic of its fit.
    """
    if rows.shape[1] == 2:
        return equal_odds(np.stack([yes, rows - yes], axis=2))
    total, there = yes.sum(axis=1), rows.sum(axis=1)
    mixed = (total > 0) & (total < there)
    yes, rows = yes[mixed], rows[mixed]
    everybody = rows.sum(axis=0)
    known = (yes.sum(axis=0) > 0) & (yes.sum(axis=0) < everybody)
    yes, rows = yes[:, known], rows[:, known]
    degrees = int((rows > 0).sum()) - len(rows) - max(rows.shape[1] - 1, 0)
    if degrees < 1 or rows.shape[1] < 2:
        return Test(math.nan, max(degrees, 0), math.nan)
    fitted = _additive(yes, rows)
    variance = rows * fitted * (1 - fitted)
    off = np.where(rows > 0, yes - rows * fitted, 0.0)
    return Test.chi_square(float((off**2 / np.where(variance > 0, variance, 1.0)).sum()), degrees)


def _additive(yes: Array, rows: Array) -> Array:
    """Fit logit p_sg = α_s + β_g by maximum likelihood: Newton steps in one side after the other."""
    strata = np.zeros(len(rows))
    groups = np.zeros(rows.shape[1])
    for _ in range(_STEPS):
        before = groups.copy()
        strata += _step(yes, rows, strata, groups, 1)
        groups += _step(yes, rows, strata, groups, 0)
        # α and β are known up to a constant: β of the first group is 0
        groups -= groups[0]
        if np.abs(groups - before).max() < 1e-12:
            break
    return _logistic(strata[:, None] + groups)


def _step(yes: Array, rows: Array, strata: Array, groups: Array, axis: int) -> Array:
    fitted = _logistic(strata[:, None] + groups)
    slope = (rows * fitted * (1 - fitted)).sum(axis=axis)
    step = (yes - rows * fitted).sum(axis=axis) / np.maximum(slope, 1e-12)
    return np.asarray(np.clip(step, -2, 2))


def _logistic(value: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-np.clip(value, -500, 500))))


def same_difference(differences: Array, variances: Array) -> Test:
    """Test that a difference is the same in all strata (Cochran's Q)."""
    usable = np.isfinite(differences) & np.isfinite(variances) & (variances > 0)
    weight = 1 / variances[usable]
    degrees = int(usable.sum()) - 1
    if degrees < 1:
        return Test(math.nan, max(degrees, 0), math.nan)
    # Q = Σ w (d - d̄)² with w = 1 / variance (Cochran 1954)
    mean = (weight * differences[usable]).sum() / weight.sum()
    return Test.chi_square(float((weight * (differences[usable] - mean) ** 2).sum()), degrees)
