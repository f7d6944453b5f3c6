"""Mitigators as scikit-learn estimators: ``fairkit.mitigator("fairgbm")`` is a class with fit and predict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.roles import Roles
from fairkit.data.table import Groups, Table
from fairkit.errors import DataError, MissingExtraError, ParameterError
from fairkit.fitted import Run
from fairkit.learners import as_learner
from fairkit.support.calls import checked
from fairkit_repair.mitigation.choose import find_mitigator
from fairkit_repair.sklearn.base import Face, face, written
from fairkit_repair.sklearn.columns import frame_columns, group_codes, sensitive_matrix, sensitive_names
from fairkit_repair.sklearn.converter import Converted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.fitted import FittedModel, Prediction
    from fairkit.mitigators import Mitigator


@checked
def mitigator(plugin: str | type[Mitigator]) -> type[Any]:
    """Return a scikit-learn classifier (or regressor) class made from a mitigator.

    Parameters
    ----------
    plugin
        The method's name, such as ``"fairgbm"``, or its class. A post-processing method's estimator takes
        ``model=``, and its predictions take ``sensitive_features``: see `fairkit_repair.sklearn.post`.

    Returns
    -------
    type
        Its keyword arguments are the method's parameters, and ``learner``, ``random_state``, ``n_jobs``.
        ``fit(X, y, sensitive_features=...)`` takes what pandas and numpy users have; without sensitive
        features the methods that need groups train on one group, as if nothing were asked of them.

    Raises
    ------
    PluginError
        There is no such method.
    ParameterError
        It repairs models, and is no `fairkit_repair.postprocess.PostProcessor`.

    Examples
    --------
    >>> Fair = fairkit.mitigator("fairgbm")                                           # doctest: +SKIP
    >>> Fair(n_estimators=200).fit(X, y, sensitive_features=s).predict_proba(X)       # doctest: +SKIP
    """
    method = find_mitigator(plugin)
    if method.stage == "post":
        return _post(method)
    try:
        from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "sklearn") from error
    # a method for both kinds of labels is what it names first
    classifier = method.tasks[0] != "regression"
    base: Any = ClassifierMixin if classifier else RegressorMixin
    kind = _Classifier if classifier else _Regressor
    run = {"learner": None, "random_state": 0, "n_jobs": None}
    return face(method, (kind, base, BaseEstimator), before={}, after=run)


def _post(method: type[Mitigator]) -> type[Any]:
    from fairkit_repair.postprocess import PostProcessor
    from fairkit_repair.sklearn.post import post_estimator

    if not issubclass(method, PostProcessor):
        raise ParameterError(f"{method.name} repairs a model; use fairkit.mitigate({method.name!r}, data, model=...)")
    return post_estimator(method)


class _Fitting(Converted, Face):
    """What classifiers and regressors share."""

    restores = staticmethod(mitigator)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        if tags.classifier_tags is not None:
            tags.classifier_tags.multi_class = "multiclass" in self._method.tasks
        return tags

    @property
    def model_(self) -> FittedModel:
        """The model behind the estimator; its ``details`` hold the path of training."""
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "fitted_")
        model: FittedModel = self.fitted_
        return model

    def to_onnx(self, path: str | Path | None = None) -> bytes:
        """Return the model as one ONNX file's bytes, written to a path if one is given.

        The inputs are the data frame's columns by name, or ``x0``, ``x1``, ... for a matrix.
        """
        from fairkit_onnx.write.export import embed_settings, settings_of

        proto = self.model_.to_onnx()
        embed_settings(proto, settings_of(self._blank))
        return written(proto, path)

    def _fit_table(
        self,
        columns: dict[str, NDArray[Any]],
        target: NDArray[np.float64],
        sensitive: Any,
        weights: NDArray[np.float64] | None,
        **more: Any,
    ) -> None:
        table = Table(
            columns=columns,
            features=tuple(columns),
            target=target,
            groups=_groups(sensitive, len(target)),
            weights=weights,
            name="X",
            **more,
        )
        method = self._made()
        run = Run(
            seed=_seed(self.random_state),
            threads=self.n_jobs if self.n_jobs != -1 else None,
            learner=as_learner(self.learner),
        )
        self.fitted_ = method.fit(table, run if self.n_jobs == -1 else run.on(len(target)))
        # what the file's metadata is made of; no row needs to be kept
        self._blank = table.take(np.arange(0))

    def _predict_table(self, X: Any) -> Prediction:
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "fitted_")  # not left to `model_`: its error is an AttributeError, too
        return self.model_.predict(_columns(self, X, reset=False))


class _Classifier(_Fitting):
    """A binary classifier; the second class, in sorted order, is the favorable one."""

    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None) -> Any:
        """Fit.

        Parameters
        ----------
        X
            Data frame or matrix, shape [n, d].
        y
            Labels of two values, shape [n]; the larger one is the favorable.
        sensitive_features
            Shape [n] or [n, k], a series or data frame: several columns are crossed. None: one group.
        sample_weight
            Shape [n], nonnegative.
        """
        from sklearn.utils.multiclass import check_classification_targets
        from sklearn.utils.validation import column_or_1d

        columns = _columns(self, X, reset=True)
        labels = column_or_1d(_required(y), warn=True)
        _check_lengths(columns, labels)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) > 2 and "multiclass" not in self._method.tasks:
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass, with "
                f"{len(self.classes_)} classes."
            )
        if len(self.classes_) < 2:
            raise ValueError(f"Classifier can't train when only one class is present: {self.classes_[0]!r}")
        task = "binary" if len(self.classes_) == 2 else "multiclass"
        weights = _weights(sample_weight, len(labels))
        if weights is not None and len(np.unique(codes[weights > 0])) < 2:
            raise ValueError("all rows with a weight above 0 have one class; there is nothing to learn")
        self._fit_table(
            columns,
            codes.astype(np.float64),
            sensitive_features,
            weights,
            task=task,
            classes=tuple(self.classes_.tolist()),
            roles=Roles(label="y", favorable=self.classes_.tolist()[-1] if task == "binary" else None),
        )
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the classes' probabilities, shape [n, 2]."""
        score = self._predict_table(X).score
        return score if score.ndim == 2 else np.stack([1 - score, score], axis=1)

    def decision_probability(self, X: Any) -> NDArray[np.float64]:
        """Return the chance of the favorable decision, shape [n]: 0 or 1 unless the model is randomized."""
        chance = self._predict_table(X).decision_probability
        if chance is None:
            raise DataError("there is no favorable decision in a multiclass task")
        return chance

    def predict(self, X: Any) -> NDArray[Any]:
        """Return labels, shape [n]; of a randomized model the likelier decision."""
        found = self._predict_table(X)
        chance = found.decision_probability
        places = found.score.argmax(axis=1) if chance is None else (chance >= 0.5).astype(np.int64)
        labels: NDArray[Any] = self.classes_[places]
        return labels


class _Regressor(_Fitting):
    """A regressor."""

    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None) -> Any:
        """Fit; see the classifier. `y` holds numbers."""
        from sklearn.utils.validation import column_or_1d

        columns = _columns(self, X, reset=True)
        target = column_or_1d(_required(y), warn=True).astype(np.float64)
        _check_lengths(columns, target)
        if not np.isfinite(target).all():
            raise ValueError("y contains NaN or infinity")
        weights = _weights(sample_weight, len(target))
        self._fit_table(columns, target, sensitive_features, weights, task="regression", roles=Roles(label="y"))
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return values, shape [n]."""
        return self._predict_table(X).score


def _required(y: Any) -> Any:
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    return y


def _seed(state: Any) -> int:
    """Read scikit-learn's random_state: None is 0, a generator gives a draw."""
    if state is None:
        return 0
    if isinstance(state, np.random.RandomState):
        return int(state.randint(2**31 - 1))
    return int(state)


def _columns(estimator: Any, X: Any, *, reset: bool) -> dict[str, NDArray[Any]]:
    """Return X as raw columns, checked as scikit-learn does."""
    from sklearn.utils.validation import _check_feature_names, _check_n_features, check_array

    if hasattr(X, "columns") and (hasattr(X, "dtypes") or hasattr(X, "schema")):
        _check_feature_names(estimator, X, reset=reset)
        _check_n_features(estimator, X, reset=reset)
        if len(X) == 0:
            raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required.")
        return frame_columns(X)
    _check_feature_names(estimator, X, reset=reset)
    matrix = check_array(X, dtype="numeric", ensure_all_finite="allow-nan", estimator=estimator)
    _check_n_features(estimator, matrix, reset=reset)
    if np.iscomplexobj(matrix):
        raise ValueError("Complex data not supported")
    return frame_columns(matrix)


def _groups(sensitive: Any, rows: int) -> dict[str, Groups]:
    if sensitive is None:
        return {"all": Groups(None, ("all",), np.zeros(rows, dtype=np.int64))}
    matrix = sensitive_matrix(sensitive, rows)
    return {name: Groups(None, *group_codes(matrix[:, place])) for place, name in enumerate(sensitive_names(sensitive))}


def _check_lengths(columns: dict[str, NDArray[Any]], labels: NDArray[Any]) -> None:
    from sklearn.utils.validation import check_consistent_length

    check_consistent_length(next(iter(columns.values())), labels)


def _weights(weights: Any, rows: int) -> NDArray[np.float64] | None:
    if weights is None:
        return None
    from sklearn.utils.validation import _check_sample_weight

    checked = _check_sample_weight(weights, np.empty((rows, 1)), dtype=np.float64)
    if (checked < 0).any():
        raise ValueError("Negative values in data passed to `sample_weight`")
    return np.asarray(checked)
