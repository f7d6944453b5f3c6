"""The cost-sensitive oracle in its hinge form: a linear model by one linear program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import FairkitError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

PIECES = 400_000
"""The most rows times thresholds: 10,000 rows at 40 thresholds."""

LIMIT = 1.0
"""The most that a coefficient may be, in absolute value; the intercept is free."""


def hinge_slopes(costs: Array) -> Array:
    """Return the slopes of φ(f) = Σ_z |c(z)| max(0, α/2 - s_z (f - z)), where s_z is 1 for c(z) <= 0 and else -1.

    The hinge loss of the classifiers 1[f >= z] (appendix G). Its kinks are the N + 1 middles between thresholds,
    α/2, 3α/2, ..., 1 + α/2, so that it is linear on N + 2 pieces; it is convex.
    """
    raised, lowered = np.maximum(-costs, 0.0), np.maximum(costs, 0.0)
    slopes = np.zeros((len(costs), costs.shape[1] + 2))
    # below the kink z + α/2 a threshold to reach still pulls up; above z - α/2 one to miss pulls down
    slopes[:, 1:] += np.cumsum(np.pad(lowered, ((0, 0), (0, 1))), axis=1)
    slopes[:, :-1] -= np.cumsum(np.pad(raised, ((0, 0), (1, 0)))[:, ::-1], axis=1)[:, ::-1]
    return slopes


def fit_hinge(matrix: NDArray[np.float32], costs: Array) -> Any:
    """Minimise Σ_i φ_i(β·x_i + b) over |β_j| <= 1 (appendix G), by the solver HiGHS."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix, hstack
    from sklearn.linear_model import LinearRegression

    rows, step = len(costs), 1 / costs.shape[1]
    slopes = hinge_slopes(costs)
    slopes /= max(float(np.abs(slopes).max()), 1e-300)
    # f = α/2 - first + the other pieces, each of them filled from the steepest descent to the steepest ascent
    width = matrix.shape[1]
    signs = np.ones(slopes.shape[1])
    signs[0] = -1.0
    places = np.repeat(np.arange(rows), len(signs))
    pieces = csr_matrix((np.tile(-signs, rows), (places, np.arange(len(places)))), (rows, len(places)))
    features = csr_matrix(np.column_stack([matrix.astype(np.float64), np.ones(rows)]))
    ends = np.full(len(signs), step)
    ends[[0, -1]] = np.inf
    bounds = np.zeros((width + 1 + len(places), 2))
    bounds[:width] = (-LIMIT, LIMIT)
    bounds[width] = (-np.inf, np.inf)
    bounds[width + 1 :, 1] = np.tile(ends, rows)
    solution = linprog(
        np.concatenate([np.zeros(width + 1), (slopes * signs).ravel()]),
        A_eq=hstack([features, pieces], format="csc"),
        b_eq=np.full(rows, step / 2),
        bounds=bounds,
        method="highs",
    )
    if solution.x is None or solution.status != 0:
        raise FairkitError(
            f"fair-regression: the linear program of oracle=hinge has no optimum ({solution.message}); use oracle=ls"
        )
    model = LinearRegression()
    model.coef_, model.intercept_ = solution.x[:width], float(solution.x[width])
    model.n_features_in_ = width
    return model
