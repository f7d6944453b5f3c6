"""The built-in learners, and how one is fitted by name: for methods that take any, and for comparisons."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fairkit.commands import in_command
from fairkit.errors import DataError, FairkitError, MissingExtraError, ParameterError, PluginError
from fairkit.learners import LEARNERS, EncodedRows, Learner, find_learner
from fairkit.support.timings import phase
from fairkit_onnx.write.encode import Encoder, fit_encoder
from fairkit_onnx.write.export import TabularModel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from numpy.typing import NDArray

    from fairkit.data.table import Table
    from fairkit.data.task import Task
    from fairkit.fitted import Run
    from fairkit_onnx.write.encode import Encoding


__all__ = ["check_target", "encoder_for", "fit_estimator", "fit_learner"]


# From a table to a trained model: the encoder that suits a learner, and its training.


def fit_learner(
    name: str, table: Table, run: Run, *, settings: Mapping[str, Any] | None = None, encoder: Encoding | None = None
) -> TabularModel:
    """Encode a table, fit a learner, and give a model that can become ONNX.

    A ranker is a regression of the relevance, or a classifier of the relevant items where a label is favorable.

    `name`: one of `LEARNERS`, or one that a plugin brings; `table`: rows with target and weights; `run`: seed and
    threads; `settings`: parameters of the library itself, over our defaults; `encoder`: how raw columns become numbers;
    it goes into the ONNX file too. Default: what suits the learner.
    """
    check_target(table)
    if table.task == "ranking":
        task: Task = "regression" if table.roles.favorable is None else "binary"
        table = dataclasses.replace(table, task=task, classes=() if task == "regression" else (0, 1))
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
    learner = find_learner(name, table.task)
    return fit_encoder(
        table.columns,
        table.features,
        text=learner.text,
        standardise=learner.scaled,
        fill=learner.scaled,
        weights=table.weights,
    )


@phase("train")
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

    `name`: one of `LEARNERS`, or one that a plugin brings; `matrix`: shape [n, d]; `target`: shape [n]: 0 and 1, class
    codes, or values; `weights`: shape [n], or None; `task`, `run`: what to learn; seed and threads; `categorical`:
    columns of codes (LightGBM); `settings`: parameters of the library itself, over our defaults; returns an estimator
    that `fairkit_onnx.write.estimators` can score and export.
    """
    learner = find_learner(name, task)
    rows = EncodedRows(
        matrix=matrix, target=target, task=task, run=run.on(len(target)), weights=weights, categorical=list(categorical)
    )
    try:
        return learner().fit(rows, dict(settings or {}))
    except (FairkitError, MemoryError):
        raise
    except Exception as error:
        if name in LEARNERS:
            raise
        raise PluginError(
            f"the learner {name!r} of {learner.__module__} failed while it was trained "
            f"({type(error).__name__}: {' '.join(str(error).split())}); this is for its author to fix"
        ) from error


def check_target(table: Table) -> None:
    """Raise DataError where there is nothing to learn: one class, or no variation."""
    if len(table) == 0:
        raise DataError(f"{table.name} has no rows to learn from")
    if table.target.min() == table.target.max():
        label = table.roles.label or "the label"
        what = "the same value" if table.task == "regression" else "the same class"
        raise DataError(f"{table.name}: all {len(table)} training rows have {what} in {label!r}; nothing to learn")


# Learners of scikit-learn: linear models, a forest, a small network.


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
        kind = ensemble.RandomForestRegressor if rows.task == "regression" else ensemble.RandomForestClassifier
        return kind(**(defaults | settings)).fit(rows.matrix, _labels(rows), sample_weight=rows.weights)


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
        weights = {} if rows.weights is None else {"sample_weight": rows.weights}
        if weights and "sample_weight" not in inspect.signature(model.fit).parameters:
            raise ParameterError("the learner 'mlp' takes weights from scikit-learn 1.7 on; upgrade it or use another")
        return _quietly(lambda: model.fit(rows.matrix, _labels(rows), **weights))


def _labels(rows: EncodedRows) -> NDArray[Any]:
    return rows.target if rows.task == "regression" else rows.target.astype(np.int64)


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
            return model.fit(rows.matrix, _labels(rows), **weights)

    return Around


def _sklearn(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(f"sklearn.{module}")
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "sklearn") from error


# Boosted trees: LightGBM and XGBoost, with sensible defaults.


@functools.cache
def light_gbm(extra: str = "lightgbm") -> Any:
    """Import LightGBM; in a command without scikit-learn and pandas, which it loads for its faces (1.5 s).

    Who imports it later, such as a plugin, gets a whole one.
    """
    bare = in_command() and "lightgbm" not in sys.modules
    hidden = [name for name in ("sklearn", "pandas") if bare and name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden, cast("ModuleType", None)))  # which cannot be imported
    try:
        import lightgbm
    except ImportError as error:
        raise MissingExtraError("lightgbm", extra) from error
    finally:
        for name in [*hidden, *(name for name in sys.modules if hidden and name.partition(".")[0] == "lightgbm")]:
            del sys.modules[name]
    return lightgbm


class LightGBM(Learner):
    """Gradient boosting with categorical splits."""

    name = "lightgbm"
    text = "ordinal"

    def fit(self, rows: EncodedRows, settings: dict[str, Any]) -> Any:
        """Train; see `Learner.fit`."""
        lightgbm = light_gbm()
        params: dict[str, Any] = {"objective": rows.task, "verbosity": -1, "seed": rows.run.seed, "deterministic": True}
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


class XGBoost(Learner):
    """Gradient boosting by histograms."""

    name = "xgboost"

    def fit(self, rows: EncodedRows, settings: dict[str, Any]) -> Any:
        """Train; see `Learner.fit`."""
        try:
            import xgboost
        except ImportError as error:
            raise MissingExtraError("xgboost", "xgboost") from error
        objectives = {"binary": "binary:logistic", "multiclass": "multi:softprob", "regression": "reg:squarederror"}
        params: dict[str, Any] = {
            "objective": objectives[rows.task],
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


# Small torch networks for methods that train their own: their layers, where they compute, with how many threads.


SMALL = 2_000_000
"""Products of fewer numbers than this are done sooner by one thread than shared out."""


def device_for(name: str) -> Any:
    """Return the torch device: ``auto`` is a GPU where there is one."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("torch", "sensei") from error
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ParameterError(
            "device=cuda: torch finds no GPU here; use device=cpu, or auto to take one where there is one"
        )
    return torch.device(name)


@contextmanager
def one_pool(module: Any, batch: int, threads: int | None) -> Iterator[None]:
    """Set torch's threads for a training, and put the old number back."""
    import torch

    before = torch.get_num_threads()
    size = max((part.numel() for part in module.parameters()), default=0) * batch
    wanted = threads if threads is not None else 1 if size < SMALL else before
    torch.set_num_threads(max(1, wanted))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fully_connected(width: int, hidden: Sequence[int], outputs: int, *, seed: int) -> Any:
    """Make a network with ReLU between its layers."""
    import torch
    from torch import nn

    sizes = [width, *hidden, outputs]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers: list[Any] = []
        for before, after in itertools.pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
