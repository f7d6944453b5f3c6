"""Learners behind the oracles: named ones and any scikit-learn estimator, fitted to numbers or to chances."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fairkit.errors import ParameterError
from fairkit.support.lazy_dataclass import dataclass, field
from fairkit_fair_regression.losses import PIECES, STEEPNESS, Rates, fit_hinge, from_probability
from fairkit_onnx.write.encode import fit_encoder
from fairkit_onnx.write.estimators import add_estimator, score_estimator
from fairkit_repair.learners import encoder_for, fit_estimator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit.mitigators import Run, Table
    from fairkit_onnx.write.encode import Encoder
    from fairkit_onnx.write.graph import GraphBuilder

    Array = NDArray[np.float64]
    Matrix = NDArray[np.float32]


REGRESSORS = ("linear", "lightgbm", "xgboost", "forest")
CLASSIFIERS = ("logistic", "lightgbm", "xgboost", "forest")
_SOFT: Mapping[str, str] = {"lightgbm": "cross_entropy", "xgboost": "binary:logistic"}
"""Objectives that take labels between 0 and 1, so that no row is needed twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner:
    """What fits: a learner's name or an estimator of scikit-learn's kind, which is cloned for every fit."""

    base: Any  # the name or the estimator
    run: Run  # seed and threads
    settings: Mapping[str, Any] = field(default_factory=dict)  # parameters of the library itself (named learners)
    categorical: Sequence[int] = ()  # columns of codes (LightGBM)

    @property
    def name(self) -> str:
        """The learner's name, or the estimator's type."""
        return self.base if isinstance(self.base, str) else type(self.base).__name__

    @property
    def gives_numbers(self) -> bool:
        """Whether it can do regression."""
        if isinstance(self.base, str):
            return self.base in REGRESSORS
        return not hasattr(self.base, "predict_proba")

    @property
    def gives_chances(self) -> bool:
        """Whether it can do classification with probabilities."""
        if isinstance(self.base, str):
            return self.base in CLASSIFIERS
        return hasattr(self.base, "predict_proba")

    def fit_values(self, matrix: Matrix, targets: Array, weights: Array | None) -> Values:
        """Least squares: fit numbers in [0, 1], shape [n], with weights [n] or none."""
        if not self.gives_numbers:
            raise ParameterError(
                f"fair-regression: the learner {self.name} predicts classes, and the oracle 'ls' needs a regression; "
                f"use one of {', '.join(REGRESSORS)}, or oracle=loss with loss=logistic"
            )
        return Values(self._fit(matrix, targets, weights, "regression", {}))

    def fit_chances(self, matrix: Matrix, chances: Array, weights: Array | None) -> Chances:
        """Logistic loss: fit probabilities in [0, 1], shape [n], with weights [n] or none.

        A learner that takes hard labels only sees every row twice: as 1 with weight p, as 0 with weight 1 - p.
        """
        if not self.gives_chances:
            raise ParameterError(
                f"fair-regression: the learner {self.name} predicts numbers, and the logistic loss needs chances; "
                f"use one of {', '.join(CLASSIFIERS)}, or oracle=ls"
            )
        soft = _SOFT.get(self.base) if isinstance(self.base, str) else None
        hard = bool(((chances == 0) | (chances == 1)).all())
        if soft is not None or hard:
            settings = {"objective": soft} if soft is not None and not hard else {}
            return Chances(self._fit(matrix, chances, weights, "binary", settings))
        # few columns: Newton's method needs a handful of steps where others need hundreds, for the same optimum
        newton = self.base == "logistic" and matrix.shape[1] <= _NEWTON
        settings = {"solver": "newton-cholesky"} if newton else {}
        return Chances(self._fit(*_twice(matrix, chances, weights), "binary", settings))

    def fit_quantile(self, matrix: Matrix, targets: Array, weights: Array | None, quantile: float) -> Values:
        """Pinball loss: fit a quantile of numbers in [0, 1], shape [n]."""
        from importlib import import_module

        choices: Mapping[str, Mapping[str, Any]] = {
            "lightgbm": {"objective": "quantile", "alpha": quantile},
            "xgboost": {"objective": "reg:quantileerror", "quantile_alpha": quantile},
        }
        if isinstance(self.base, str) and self.base in choices:
            return Values(self._fit(matrix, targets, weights, "regression", choices[self.base]))
        if self.base == "linear":
            model = import_module("sklearn.linear_model").QuantileRegressor(
                **({"quantile": quantile, "alpha": 0.0} | dict(self.settings))
            )
            return Values(model.fit(matrix.astype(np.float64), targets, sample_weight=weights))
        if not isinstance(self.base, str) and self.gives_numbers:
            # the estimator is taken to minimise the loss that was asked for
            return self.fit_values(matrix, targets, weights)
        raise ParameterError(
            f"fair-regression: the learner {self.name} cannot minimise the absolute or quantile loss; "
            "use linear, lightgbm or xgboost, or oracle=ls"
        )

    def fit_rates(
        self, matrix: Matrix, targets: Array, weights: Array | None, rates: Rates, *, squared: bool = False
    ) -> Logs:
        """Poisson deviance, or squared error: fit rates from 0, shape [n], with weights [n] or none.

        LightGBM, XGBoost and linear models minimise the deviance with a logarithmic link, the forest splits by
        it. Any other regression is taken to give rates.
        """
        from importlib import import_module

        if not self.gives_numbers:
            raise ParameterError(
                f"fair-regression: the learner {self.name} predicts classes, and the Poisson loss needs rates; "
                f"use one of {', '.join(REGRESSORS)}"
            )
        if squared or not isinstance(self.base, str):
            return Logs(self._fit(matrix, targets, weights, "regression", {}), rates, logged=False)
        if self.base == "linear":
            linear = import_module("sklearn.linear_model")
            defaults = {"alpha": 1e-6, "solver": "newton-cholesky", "max_iter": 1_000}
            poisson = linear.PoissonRegressor(**(defaults | dict(self.settings)))
            poisson.fit(matrix.astype(np.float64), targets, sample_weight=weights)
            logs = linear.LinearRegression()
            logs.coef_, logs.intercept_ = poisson.coef_, float(poisson.intercept_)
            logs.n_features_in_ = matrix.shape[1]
            return Logs(logs, rates, logged=True)
        choices = {
            "lightgbm": {"objective": "poisson"},
            "xgboost": {"objective": "count:poisson"},
            "forest": {"criterion": "poisson"},
        }
        fitted = self._fit(matrix, targets, weights, "regression", choices.get(str(self.base), {}))
        return Logs(fitted, rates, logged=False)

    def fit_hinge(self, matrix: Matrix, costs: Array) -> Values:
        """Hinge loss of the classifiers 1[f(x) >= z] of a linear f (appendix G); see `hinge.fit_hinge`."""
        if self.base != "linear" or self.settings:
            raise ParameterError(
                "fair-regression: oracle=hinge is a linear program of its own: use the learner linear, without settings"
            )
        if costs.size > PIECES:
            raise ParameterError(
                f"fair-regression: oracle=hinge is a linear program with {costs.size:,} pieces (rows times "
                f"thresholds), and {PIECES:,} are the most; use oracle=ls or loss, fewer rows, or a smaller grid"
            )
        return Values(fit_hinge(matrix, costs))

    def fit_thresholds(self, matrix: Matrix, costs: Array, step: float) -> Counted:
        """Weighted classification of (row, threshold) pairs (section 3): label 1[c <= 0], weight |c|."""
        if not self.gives_chances:
            raise ParameterError(
                f"fair-regression: the learner {self.name} predicts numbers, and the oracle 'cs' needs a classifier; "
                f"use one of {', '.join(CLASSIFIERS)}"
            )
        rows, count = costs.shape
        if rows * count * (matrix.shape[1] + 1) > _CELLS:
            raise ParameterError(
                f"fair-regression: oracle=cs learns from {rows * count:,} rows (rows times thresholds) of "
                f"{matrix.shape[1] + 1} columns, which is too much; use oracle=ls or loss, or a smaller grid"
            )
        pairs = with_thresholds(matrix, count, step)
        flat = costs.ravel()
        nonzero = np.abs(flat) > 0
        weights = np.abs(flat[nonzero])
        labels = (flat[nonzero] <= 0).astype(np.float64)
        if len(labels) == 0 or labels.min() == labels.max():
            labels, weights, nonzero = np.array([0.0, 1.0]), np.array([1.0, 1.0]), np.array([0, len(flat) - 1])
        model = self._fit(pairs[nonzero], labels, weights / weights.mean(), "binary", {})
        return Counted(model, count)

    def _fit(
        self, matrix: Matrix, target: Array, weights: Array | None, task: Task, settings: Mapping[str, Any]
    ) -> Any:
        if isinstance(self.base, str):
            return self._fit_named(matrix, target, weights, task, {**settings, **self.settings})
        from sklearn.base import clone

        model = clone(self.base)
        labels = target if task == "regression" else target.astype(np.int64)
        if weights is None:
            return model.fit(matrix, labels)
        if "sample_weight" not in inspect.signature(model.fit).parameters:
            raise ParameterError(
                f"fair-regression: {self.name}.fit takes no sample_weight, and this problem needs weights; use an "
                "estimator that takes them, or constraint=statistical_parity with oracle=ls on rows without weights"
            )
        return model.fit(matrix, labels, sample_weight=weights)

    def _fit_named(
        self, matrix: Matrix, target: Array, weights: Array | None, task: Task, settings: Mapping[str, Any]
    ) -> Any:
        try:
            return fit_estimator(
                self.base,
                matrix,
                target,
                weights=weights,
                task=task,
                run=self.run,
                categorical=self.categorical,
                settings=settings,
            )
        except TypeError as error:
            if not self.settings:
                raise
            raise ParameterError(
                f"fair-regression: the learner {self.name} does not take the settings {sorted(self.settings)}: {error}"
            ) from error


_CELLS = 200_000_000
_NEWTON = 500


def learner_encoder(base: Any, table: Table) -> Encoder:
    """Fit the encoder that suits a learner."""
    if isinstance(base, str):
        import dataclasses

        task: Task = "binary" if base == "logistic" else "regression"
        return encoder_for(base, dataclasses.replace(table, task=task))
    return fit_encoder(table.columns, table.features, text="onehot", standardise=True, fill=True, weights=table.weights)


def _twice(matrix: Matrix, chances: Array, weights: Array | None) -> tuple[Matrix, Array, Array]:
    base = np.ones(len(chances)) if weights is None else weights
    both = np.concatenate([base * chances, base * (1 - chances)])
    labels = np.concatenate([np.ones(len(chances)), np.zeros(len(chances))])
    keep = both > 0
    return np.concatenate([matrix, matrix])[keep], labels[keep], both[keep]


# Predictors of a mixture: predictions in [0, 1] from encoded rows, in memory and in a graph.


class Member(Protocol):
    """One predictor."""

    def predict(self, matrix: Matrix) -> Array:
        """Return predictions, shape [n]; they may leave [0, 1] and are clipped by whoever uses them."""
        ...

    def add_to(self, graph: GraphBuilder, matrix: str, width: int) -> str:
        """Put the predictor into a graph; gives predictions of shape [rows, 1]."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """The same prediction for everybody: in parity by itself."""

    value: float

    def predict(self, matrix: Matrix) -> Array:
        """Return the value, shape [n]."""
        return np.full(len(matrix), self.value)

    def add_to(self, graph: GraphBuilder, matrix: str, width: int) -> str:
        """Return as many values as there are rows."""
        zeros = graph.node("MatMul", [matrix, graph.constant(np.zeros((width, 1)))])
        finite = graph.node("Where", [graph.node("IsNaN", [zeros]), 0.0, zeros])
        return graph.node("Add", [finite, self.value])


@dataclass(frozen=True, slots=True)
class Values:
    """A regression."""

    estimator: Any

    def predict(self, matrix: Matrix) -> Array:
        """Return the regression's values, shape [n]."""
        return score_estimator(self.estimator, matrix, "regression")

    def add_to(self, graph: GraphBuilder, matrix: str, width: int) -> str:
        """Return the regression's values."""
        return add_estimator(graph, matrix, self.estimator, "regression", width=width)


@dataclass(frozen=True, slots=True)
class Chances:
    """A classifier, whose probabilities p stand for predictions (logit(p) / C + 1) / 2."""

    estimator: Any

    def predict(self, matrix: Matrix) -> Array:
        """Return predictions, shape [n]."""
        return from_probability(score_estimator(self.estimator, matrix, "binary"))

    def add_to(self, graph: GraphBuilder, matrix: str, width: int) -> str:
        """Return predictions; probabilities of 0 and 1 become the ends."""
        raw = add_estimator(graph, matrix, self.estimator, "binary", width=width)
        # onnxruntime adds a forest's trees in another order for one row than for many: the sum may exceed 1 by rounding
        chance = graph.node("Min", [graph.node("Max", [raw, 0.0]), 1.0])
        rest = graph.node("Sub", [1.0, chance])
        logit = graph.node("Sub", [graph.node("Log", [chance]), graph.node("Log", [rest])])
        scaled = graph.node("Mul", [logit, 0.5 / STEEPNESS])
        moved = graph.node("Add", [scaled, 0.5])
        return graph.node("Min", [graph.node("Max", [moved, 0.0]), 1.0])


@dataclass(frozen=True, slots=True)
class Logs:
    """A regression of rates, or of their logarithms, which stand for predictions (log μ - log low) / L."""

    estimator: Any  # a regression
    rates: Rates  # what predictions stand for
    logged: bool  # whether the regression gives logarithms

    def predict(self, matrix: Matrix) -> Array:
        """Return predictions, shape [n]."""
        scores = score_estimator(self.estimator, matrix, "regression")
        # a rate below the smallest one is clipped later anyway
        return self.rates.from_log(scores if self.logged else np.log(np.maximum(scores, self.rates.low / 2)))

    def add_to(self, graph: GraphBuilder, matrix: str, width: int) -> str:
        """Return predictions."""
        node = add_estimator(graph, matrix, self.estimator, "regression", width=width)
        if not self.logged:
            node = graph.node("Log", [graph.node("Max", [node, self.rates.low / 2])])
        centred = graph.node("Sub", [node, float(np.log(self.rates.low))])
        return graph.node("Mul", [centred, 1 / self.rates.span])


@dataclass(frozen=True, slots=True)
class Counted:
    """A classifier of (row, threshold): the prediction is the share of thresholds that it lets the row reach."""

    estimator: Any
    count: int

    def predict(self, matrix: Matrix) -> Array:
        """Return predictions on the grid plus α/2, so that rounding cannot move them, shape [n]."""
        pairs = with_thresholds(matrix, self.count, 1 / self.count)
        reached = score_estimator(self.estimator, pairs, "binary").reshape(-1, self.count) >= 0.5
        return np.asarray(np.minimum((reached.sum(axis=1) + 0.5) / self.count, 1.0))

    def add_to(self, graph: GraphBuilder, matrix: str, width: int) -> str:
        """Repeat every row once for each threshold, classify, and count."""
        shape = graph.constant([1, self.count, 1], np.int64)
        rows = graph.node("Expand", [graph.node("Unsqueeze", [matrix, graph.constant([1], np.int64)]), shape])
        thresholds = np.float32(1 / self.count) * np.arange(1, self.count + 1, dtype=np.float32)
        first = graph.node("Slice", [rows, *(graph.constant([v], np.int64) for v in (0, 1, 2))])
        zeros = graph.node("Cast", [graph.node("IsNaN", [first])], to=1)
        none = graph.node("Mul", [zeros, graph.constant([0.0])])
        column = graph.node("Add", [none, graph.constant(thresholds.reshape(1, -1, 1))])
        pairs = graph.node("Concat", [rows, column], axis=2)
        flat = graph.node("Reshape", [pairs, graph.constant([-1, width + 1], np.int64)])
        chance = add_estimator(graph, flat, self.estimator, "binary", width=width + 1)
        reached = graph.node("Cast", [graph.node("GreaterOrEqual", [chance, 0.5])], to=1)
        table = graph.node("Reshape", [reached, graph.constant([-1, self.count], np.int64)])
        total = graph.node("MatMul", [table, graph.constant(np.full((self.count, 1), 1 / self.count))])
        return graph.node("Add", [total, 0.5 / self.count])


def with_thresholds(matrix: Matrix, count: int, step: float) -> Matrix:
    """Return every row once for each threshold, which becomes the last column: [n N, d + 1]."""
    thresholds = np.float32(step) * np.arange(1, count + 1, dtype=np.float32)
    repeated = np.repeat(matrix, count, axis=0)
    return np.column_stack([repeated, np.tile(thresholds, len(matrix))])
