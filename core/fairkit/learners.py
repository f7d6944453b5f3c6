"""Learners by name, with sensible defaults: for methods that take one, and for comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError, MissingExtraError, ParameterError, did_you_mean
from fairkit.onnx.write.encode import Encoder, fit_encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from fairkit.data.table import Table
    from fairkit.data.task import Task
    from fairkit.fitted import Run
    from fairkit.onnx.write.encode import Encoding
    from fairkit.onnx.write.export import TabularModel

LEARNERS = ("lightgbm", "xgboost", "logistic", "linear", "forest", "mlp")
"""Every learner's name. ``logistic`` is for classes, ``linear`` for regression, the others for all tasks."""


def fit_learner(
    name: str,
    table: Table,
    run: Run,
    *,
    settings: Mapping[str, Any] | None = None,
    encoder: Encoding | None = None,
) -> TabularModel:
    """Encode a table, fit a learner, and give a model that can become ONNX.

    Parameters
    ----------
    name
        One of `LEARNERS`.
    table
        Rows with target and weights.
    run
        Seed and threads.
    settings
        Parameters of the library itself, over our defaults.
    encoder
        How raw columns become numbers; it goes into the ONNX file too. Default: what suits the learner.

    Raises
    ------
    ParameterError
        An unknown learner, or one for another task.
    DataError
        The target has one class only.
    """
    from fairkit.onnx.write.export import TabularModel

    check_target(table)
    if encoder is None:
        encoder = encoder_for(name, table)
    estimator = fit_estimator(
        name,
        encoder.transform(table.columns),
        table.target,
        weights=table.weights,
        task=table.task,
        run=run,
        categorical=encoder.categorical,
        settings=settings,
    )
    return TabularModel(encoder=encoder, estimator=estimator, task=table.task)


def encoder_for(name: str, table: Table) -> Encoder:
    """Fit the encoder that suits a learner: codes for LightGBM, one-hot columns for the others."""
    _check_name(name, table.task)
    smooth = name in ("logistic", "linear", "mlp")
    return fit_encoder(
        table.columns,
        table.features,
        text="ordinal" if name == "lightgbm" else "onehot",
        standardise=smooth,
        fill=smooth,
        weights=table.weights,
    )


def fit_estimator(
    name: str,
    matrix: NDArray[np.float32],
    target: NDArray[np.float64],
    *,
    weights: NDArray[np.float64] | None,
    task: Task,
    run: Run,
    categorical: Sequence[int] = (),
    settings: Mapping[str, Any] | None = None,
) -> Any:
    """Fit a learner on encoded rows.

    Parameters
    ----------
    name
        One of `LEARNERS`.
    matrix
        Shape [n, d].
    target
        Shape [n]: 0 and 1, class codes, or values.
    weights
        Shape [n], or None.
    task, run
        What to learn; seed and threads.
    categorical
        Columns of codes (LightGBM).
    settings
        Parameters of the library itself, over our defaults.

    Returns
    -------
    object
        An estimator that `fairkit.onnx.write.estimators` can score and export.
    """
    _check_name(name, task)
    rows = _Rows(matrix, target, weights, task, run, list(categorical))
    return _FITTERS[name](rows, dict(settings or {}))


def check_target(table: Table) -> None:
    """Raise DataError where there is nothing to learn: one class, or no variation."""
    if len(table) == 0:
        raise DataError(f"{table.name} has no rows to learn from")
    if table.target.min() == table.target.max():
        label = table.roles.label or "the label"
        what = "the same value" if table.task == "regression" else "the same class"
        raise DataError(
            f"{table.name}: all {len(table)} training rows have {what} in {label!r}; nothing to learn"
        )


def _check_name(name: str, task: Task) -> None:
    if name not in LEARNERS:
        raise ParameterError(f"there is no learner {name!r}. {did_you_mean(name, LEARNERS, what='learners')}")
    if name == "linear" and task != "regression":
        raise ParameterError("the learner 'linear' predicts numbers; for classes use 'logistic'")
    if name == "logistic" and task == "regression":
        raise ParameterError("the learner 'logistic' predicts classes; for numbers use 'linear'")


@dataclass(frozen=True, slots=True)
class _Rows:
    """What every fitter gets: see `fit_estimator`."""

    matrix: NDArray[np.float32]
    target: NDArray[np.float64]
    weights: NDArray[np.float64] | None
    task: Task
    run: Run
    categorical: list[int]


def _fit_lightgbm(rows: _Rows, settings: dict[str, Any]) -> Any:
    try:
        import lightgbm
    except ImportError as error:
        raise MissingExtraError("lightgbm", "lightgbm") from error
    objective = {"binary": "binary", "multiclass": "multiclass", "regression": "regression"}[rows.task]
    params: dict[str, Any] = {
        "objective": objective,
        "verbosity": -1,
        "seed": rows.run.seed,
        "deterministic": True,
    }
    if rows.task == "multiclass":
        params["num_class"] = int(rows.target.max()) + 1
    if rows.run.threads is not None:
        params["num_threads"] = rows.run.threads
    rounds = settings.pop("n_estimators", 100)
    data = lightgbm.Dataset(
        rows.matrix,
        rows.target,
        weight=rows.weights,
        categorical_feature=rows.categorical,
        params=params | settings,
    )
    return lightgbm.train(params | settings, data, num_boost_round=rounds)


def _fit_xgboost(rows: _Rows, settings: dict[str, Any]) -> Any:
    try:
        import xgboost
    except ImportError as error:
        raise MissingExtraError("xgboost", "xgboost") from error
    objective = {
        "binary": "binary:logistic",
        "multiclass": "multi:softprob",
        "regression": "reg:squarederror",
    }[rows.task]
    params: dict[str, Any] = {
        "objective": objective,
        "eta": 0.1,
        "max_depth": 6,
        "tree_method": "hist",
        "seed": rows.run.seed,
        "verbosity": 0,
    }
    if rows.task == "multiclass":
        params["num_class"] = int(rows.target.max()) + 1
    if rows.run.threads is not None:
        params["nthread"] = rows.run.threads
    rounds = settings.pop("n_estimators", 150)
    data = xgboost.DMatrix(rows.matrix, rows.target, weight=rows.weights)
    return xgboost.train(params | settings, data, num_boost_round=rounds)


def _fit_logistic(rows: _Rows, settings: dict[str, Any]) -> Any:
    model = _sklearn("linear_model").LogisticRegression(**({"max_iter": 2000} | settings))
    return model.fit(rows.matrix.astype(np.float64), rows.target.astype(np.int64), sample_weight=rows.weights)


def _fit_linear(rows: _Rows, settings: dict[str, Any]) -> Any:
    # a trace of shrinkage: one-hot columns of one text column sum to one
    model = _sklearn("linear_model").Ridge(**({"alpha": 1e-3} | settings))
    return model.fit(rows.matrix.astype(np.float64), rows.target, sample_weight=rows.weights)


def _fit_forest(rows: _Rows, settings: dict[str, Any]) -> Any:
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


def _fit_mlp(rows: _Rows, settings: dict[str, Any]) -> Any:
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
        raise ParameterError(
            "the learner 'mlp' takes weights from scikit-learn 1.7 on; upgrade it or use another"
        )
    return _quietly(lambda: model.fit(rows.matrix, labels, sample_weight=rows.weights))


def _quietly(fit: Callable[[], Any]) -> Any:
    """Fit without the warning that the last epoch was reached: early stopping is the usual end."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fit()


def _sklearn(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(f"sklearn.{module}")
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "sklearn") from error


_FITTERS: dict[str, Callable[..., Any]] = {
    "lightgbm": _fit_lightgbm,
    "xgboost": _fit_xgboost,
    "logistic": _fit_logistic,
    "linear": _fit_linear,
    "forest": _fit_forest,
    "mlp": _fit_mlp,
}
