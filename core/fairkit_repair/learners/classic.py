"""Learners of scikit-learn: linear models, a forest, a small network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import MissingExtraError, ParameterError
from fairkit.learners import EncodedRows, Learner

if TYPE_CHECKING:
    from collections.abc import Callable


class Logistic(Learner):
    """Logistic regression, for classes."""

    name = "logistic"
    tasks = ("binary", "multiclass")
    scaled = True

    def fit(self, rows: EncodedRows, settings: dict[str, Any]) -> Any:
        """Train; see `Learner.fit`."""
        model = _sklearn("linear_model").LogisticRegression(**({"max_iter": 2000} | settings))
        return model.fit(rows.matrix.astype(np.float64), rows.target.astype(np.int64), sample_weight=rows.weights)


class Linear(Learner):
    """Linear regression, for numbers."""

    name = "linear"
    tasks = ("regression",)
    scaled = True

    def fit(self, rows: EncodedRows, settings: dict[str, Any]) -> Any:
        """Train; see `Learner.fit`."""
        # a trace of shrinkage: one-hot columns of one text column sum to one
        model = _sklearn("linear_model").Ridge(**({"alpha": 1e-3} | settings))
        return model.fit(rows.matrix.astype(np.float64), rows.target, sample_weight=rows.weights)


class Forest(Learner):
    """A random forest."""

    name = "forest"

    def fit(self, rows: EncodedRows, settings: dict[str, Any]) -> Any:
        """Train; see `Learner.fit`."""
        defaults = {
            "n_estimators": 200,
            "min_samples_leaf": 5,
            "random_state": rows.run.seed,
            "n_jobs": rows.run.threads or -1,
        }
        ensemble = _sklearn("ensemble")
        if rows.task == "regression":
            model = ensemble.RandomForestRegressor(**(defaults | settings))
            return model.fit(rows.matrix, rows.target, sample_weight=rows.weights)
        model = ensemble.RandomForestClassifier(**(defaults | settings))
        return model.fit(rows.matrix, rows.target.astype(np.int64), sample_weight=rows.weights)


class MLP(Learner):
    """A network with one hidden layer."""

    name = "mlp"
    scaled = True

    def fit(self, rows: EncodedRows, settings: dict[str, Any]) -> Any:
        """Train; see `Learner.fit`."""
        defaults = {
            "hidden_layer_sizes": (64,),
            "early_stopping": len(rows.matrix) >= 1000,
            "max_iter": 50,
            "batch_size": min(len(rows.matrix), 256 if len(rows.matrix) < 50_000 else 1024),
            "random_state": rows.run.seed,
            "alpha": 1e-3,
        }
        network = _sklearn("neural_network")
        kind = network.MLPRegressor if rows.task == "regression" else network.MLPClassifier
        model = kind(**(defaults | settings))
        labels = rows.target if rows.task == "regression" else rows.target.astype(np.int64)
        if rows.weights is None:
            return _quietly(lambda: model.fit(rows.matrix, labels))
        import inspect

        if "sample_weight" not in inspect.signature(model.fit).parameters:
            raise ParameterError("the learner 'mlp' takes weights from scikit-learn 1.7 on; upgrade it or use another")
        return _quietly(lambda: model.fit(rows.matrix, labels, sample_weight=rows.weights))


def _quietly(fit: Callable[[], Any]) -> Any:
    """Fit without the warning that the last epoch was reached: early stopping is the usual end."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fit()


def around(estimator: Any) -> type[Learner]:
    """Return a learner that fits clones of an estimator; numbers are scaled and filled unless it takes missing ones."""
    from sklearn.base import clone, is_classifier
    from sklearn.utils import get_tags

    class Around(Learner):
        """An estimator of the user's."""

        name = type(estimator).__name__
        tasks = ("binary", "multiclass") if is_classifier(estimator) else ("regression",)
        scaled = not get_tags(estimator).input_tags.allow_nan

        def fit(self, rows: EncodedRows, settings: dict[str, Any]) -> Any:
            """Train; see `Learner.fit`."""
            model, steps = clone(estimator).set_params(**settings), getattr(estimator, "steps", None)
            if rows.task != "regression" and not hasattr(model, "predict_proba"):
                raise ParameterError(
                    f"the learner {self.name} gives no probabilities: put CalibratedClassifierCV around"
                )
            weighted = "sample_weight" if steps is None else f"{steps[-1][0]}__sample_weight"
            weights = {} if rows.weights is None else {weighted: rows.weights}
            target = rows.target if rows.task == "regression" else rows.target.astype(np.int64)
            return model.fit(rows.matrix, target, **weights)

    return Around


def _sklearn(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(f"sklearn.{module}")
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "sklearn") from error
