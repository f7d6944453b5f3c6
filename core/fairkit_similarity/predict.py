"""Linear models that predict one column from the others: the directions that a subspace metric ignores.

Both solve for the optimum itself: the logistic models by Newton's method, whose matrices are counted and not
multiplied (`fairkit_similarity.design`), the ridge model by one eigendecomposition for all penalties.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_similarity.design import Design
    from fairkit_similarity.encode import Floats

TOGETHER = 8
"""So many one-against-rest models take their steps together: they share what does not depend on the weights."""

MOST_STEPS = 100

CLOSE = 1e-12
"""A model is done after a step that should lower its objective by less than this for each row. The next one would
lower it by about the square."""

STEEPEST = 500.0
"""Margins beyond this have no room in an exponential; their rows weigh nothing."""

PENALTIES = np.logspace(-3, 3, 7)


def logistic_directions(design: Design, targets: NDArray[np.bool_], strength: float) -> Floats:
    """Fit logistic models, one for each row of targets, that share the features.

    Each minimises Σ_i log(1 + exp(-t_i (x_i·w + b))) + ½ strength ‖w‖² over w and b, with t = ±1.
    """
    chunks = [targets[start : start + TOGETHER] for start in range(0, len(targets), TOGETHER)]
    return np.concatenate([_newton(design, chunk, strength) for chunk in chunks])


def ridge_direction(design: Design, target: Floats) -> Floats:
    """Fit a ridge regression whose penalty, one of `PENALTIES`, has the least leave-one-out error."""
    features = design.dense()
    features -= features.mean(axis=0)
    centred = target - target.mean()
    value, axes = np.linalg.eigh(features.T @ features)
    value = np.maximum(value, 0.0)
    turned = features @ axes
    along = turned.T @ centred
    errors = []
    for penalty in PENALTIES:
        shrunk = 1.0 / (value + penalty)
        left = centred - turned @ (along * shrunk)
        leverage = 1.0 / len(target) + turned**2 @ shrunk
        errors.append(float(np.mean((left / (1.0 - leverage)) ** 2)))
    best = PENALTIES[int(np.argmin(errors))]
    coefficients: Floats = axes @ (along / (value + best))
    return coefficients


def _newton(design: Design, targets: NDArray[np.bool_], strength: float) -> Floats:
    """Take Newton's steps in all models until none would gain from another."""
    penalty = np.full(design.width, strength)
    penalty[-1] = 0.0
    sign = np.where(targets, 1.0, -1.0)
    share = targets.mean(axis=1)
    models = np.zeros((len(targets), design.width))
    models[:, -1] = np.log(share / (1.0 - share))
    margin = sign * models[:, -1:]
    open_ = np.arange(len(targets))
    for _ in range(MOST_STEPS):
        wrong = 1.0 / (1.0 + np.exp(np.minimum(margin[open_], STEEPEST)))
        grams = design.grams(wrong * (1.0 - wrong))
        still = []
        for place, model in enumerate(open_):
            slope = penalty * models[model] - design.transposed(sign[model] * wrong[place])
            step = -_solve(grams[place], penalty, slope)
            gain = -float(slope @ step)
            if gain > 0.0:
                _search(design, models[model], margin[model], sign[model], step, penalty, gain)
            if gain > CLOSE * design.rows:
                still.append(model)
        open_ = np.array(still, dtype=np.int64)
        if not len(open_):
            break
    return models[:, :-1]


def _search(
    design: Design, model: Floats, margin: Floats, sign: Floats, step: Floats, penalty: Floats, gain: float
) -> None:
    """Go along a step, half as far until the objective falls as it should; change model and margin in place."""
    along = sign * design.times(step)
    before = _objective(margin, model, penalty)
    length = 1.0
    while length > 1e-10:
        after = _objective(margin + length * along, model + length * step, penalty)
        if after <= before - 1e-4 * length * gain + 1e-12 * abs(before):
            model += length * step
            margin += length * along
            return
        length /= 2.0


def _objective(margin: Floats, model: Floats, penalty: Floats) -> float:
    """Return Σ log(1 + exp(-margin)) + ½ Σ penalty w²."""
    return float(np.logaddexp(0.0, -margin).sum() + 0.5 * (penalty * model**2).sum())


def _solve(gram: Floats, penalty: Floats, slope: Floats) -> Floats:
    """Solve (gram + diag(penalty)) x = slope, by least squares where that is singular."""
    matrix = gram + np.diag(penalty)
    try:
        found: Floats = np.linalg.solve(matrix, slope).astype(np.float64, copy=False)
    except np.linalg.LinAlgError:
        found = np.linalg.lstsq(matrix, slope, rcond=None)[0].astype(np.float64, copy=False)
    return found
