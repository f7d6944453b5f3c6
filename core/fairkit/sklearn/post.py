"""Post-processing methods as scikit-learn estimators, around an ONNX model or a fitted classifier."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.roles import Roles, Sensitive, value_text
from fairkit.data.table import Groups, Table, intersect
from fairkit.errors import DataError, MissingExtraError, ParameterError
from fairkit.fitted import Run
from fairkit.parameters.declare import current_names, parse_parameters
from fairkit.postprocess import PostProcessor, RuleModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.onnx.write.rules import GroupRule


def post_estimator(method: type[PostProcessor]) -> type[Any]:
    """Return a scikit-learn classifier class that repairs the decisions of a given model.

    Parameters
    ----------
    method
        A post-processing method.

    Returns
    -------
    type
        Its keyword arguments are ``model`` (an ONNX file's path, bytes or `OnnxModel`, or a fitted classifier
        with ``predict_proba``), the method's parameters, and ``random_state``. ``fit`` and the predictions take
        ``sensitive_features``: a series or data frame, shape [n] or [n, k].

    Examples
    --------
    >>> Fair = fairkit.mitigator("rto")                                                # doctest: +SKIP
    >>> fair = Fair(model=forest, gamma=0.05).fit(X, y, sensitive_features=sex)        # doctest: +SKIP
    >>> fair.decision_probability(X, sensitive_features=sex)                           # doctest: +SKIP
    """
    try:
        from sklearn.base import BaseEstimator, ClassifierMixin
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "sklearn") from error
    body = {
        "__init__": _initialiser(method),
        "__doc__": method.__doc__,
        "__module__": method.__module__,
        "_method": method,
    }
    return type(f"{method.__name__}Estimator", (_PostEstimator, ClassifierMixin, BaseEstimator), body)


def _initialiser(method: type[PostProcessor]) -> Any:
    """Make an ``__init__`` with explicit keyword arguments: scikit-learn reads its signature."""
    fields = dataclasses.fields(method.Parameters)
    defaults = {"model": None} | {field.name: field.default for field in fields} | {"random_state": 0}

    def __init__(self: Any, **values: Any) -> None:  # noqa: N807 -- it becomes a method
        values = current_names(method.Parameters, values, owner=method.name)
        for name, default in defaults.items():
            setattr(self, name, values.pop(name, default))
        if values:
            raise TypeError(f"{type(self).__name__} has no parameter {next(iter(values))!r}")

    own = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    own += [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=d) for n, d in defaults.items()]
    __init__.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    return __init__


def _restore(method: type[PostProcessor], state: dict[str, Any]) -> Any:
    """Unpickle: make the class again, then fill the instance."""
    estimator = post_estimator(method)()
    estimator.__dict__.update(state)
    return estimator


class _PostEstimator:
    """Binary classification; the second class, in sorted order, is the favorable one."""

    _method: type[PostProcessor]
    model: Any
    random_state: int | None

    def __reduce__(self) -> Any:
        return _restore, (self._method, dict(self.__dict__))

    def fit(self, X: Any, y: Any, *, sensitive_features: Any, sample_weight: Any = None) -> Any:
        """Learn the rule; the model is not trained.

        Parameters
        ----------
        X
            What the model takes: a data frame or matrix, shape [n, d]. Rows that it was not trained on.
        y
            Labels of two values, shape [n]; the larger one is the favorable.
        sensitive_features
            Shape [n] or [n, k]: several columns are crossed.
        sample_weight
            Shape [n], nonnegative.
        """
        self.classes_, codes = np.unique(np.asarray(y), return_inverse=True)
        if len(self.classes_) != 2:
            raise DataError(f"y has {len(self.classes_)} values; {self._method.name} works on two")
        table = self._table(X, codes.astype(np.float64), sensitive_features, sample_weight)
        method, run = self._make(), Run(seed=int(self.random_state or 0))
        if self._is_classifier():
            self.rule_, solution = method.learn(self._classifier_scores(X), table, run)
            self.fitted_, self.details_, self.notes_ = None, dict(solution.details), solution.notes
        else:
            self.fitted_ = method.fit(table, run, model=self._onnx_model())
            self.rule_, self.details_ = self.fitted_.rule, dict(self.fitted_.details)
            self.notes_ = self.fitted_.notes
        self.n_features_in_ = len(_columns(X))
        return self

    def decision_probability(self, X: Any, *, sensitive_features: Any) -> NDArray[np.float64]:
        """Return the chance of the favorable decision, shape [n]."""
        return self._predict(X, sensitive_features)[1]

    def predict_proba(self, X: Any, *, sensitive_features: Any) -> NDArray[np.float64]:
        """Return the chances of the two decisions, shape [n, 2]; the second is `decision_probability`."""
        chance = self.decision_probability(X, sensitive_features=sensitive_features)
        return np.column_stack([1.0 - chance, chance])

    def predict(self, X: Any, *, sensitive_features: Any, u: Any = None) -> NDArray[Any]:
        """Decide by chance: favorable where u < `decision_probability`.

        Parameters
        ----------
        X, sensitive_features
            As for `fit`; values of the sensitive columns that it did not see get the pooled rule.
        u
            Draws in [0, 1), shape [n]; by default from `random_state`.
        """
        chance = self.decision_probability(X, sensitive_features=sensitive_features)
        draws = np.random.default_rng(int(self.random_state or 0)).random(len(chance)) if u is None else u
        decided: NDArray[Any] = self.classes_[(np.asarray(draws) < chance).astype(int)]
        return decided

    def to_onnx(self, path: str | Path | None = None) -> bytes:
        """Return the model with the rule as one ONNX file's bytes, written to a path if one is given.

        Raises
        ------
        ParameterError
            The model is a classifier in memory: export it first, and give that file as ``model``.
        """
        from fairkit.files import write_atomic

        self._check_fitted()
        if not isinstance(self.fitted_, RuleModel):
            raise ParameterError(
                f"{type(self).__name__} was put on a classifier in memory, which has no graph to append the rule "
                "to; export the classifier to ONNX and give that file as model"
            )
        content: bytes = self.fitted_.to_onnx().SerializeToString(deterministic=True)
        if path is not None:
            write_atomic(Path(path), content)
        return content

    def _predict(self, X: Any, sensitive: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        self._check_fitted()
        columns = _columns(X) | self._sensitive_columns(sensitive, len(X))
        if self.fitted_ is not None:
            found = self.fitted_.predict(columns)
            chance = found.decision_probability
            return found.score, np.zeros(0) if chance is None else chance
        rule: GroupRule = self.rule_
        codes = rule.keys.codes(columns)
        score = rule.adjust(self._classifier_scores(X), codes)
        return score, rule.probability(score, codes)

    def _check_fitted(self) -> None:
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "rule_")

    def _make(self) -> PostProcessor:
        values = {
            field.name: getattr(self, field.name) for field in dataclasses.fields(self._method.Parameters)
        }
        return self._method(parse_parameters(self._method.Parameters, values, owner=self._method.name))

    def _is_classifier(self) -> bool:
        if self.model is None:
            raise ParameterError(
                f"{self._method.name} repairs a model: give model=, an ONNX file or a fitted classifier"
            )
        return hasattr(self.model, "predict_proba")

    def _onnx_model(self) -> Any:
        from fairkit.onnx.model import OnnxModel

        return self.model if isinstance(self.model, OnnxModel) else OnnxModel.load(self.model)

    def _classifier_scores(self, X: Any) -> NDArray[np.float64]:
        scores = np.asarray(self.model.predict_proba(X), dtype=np.float64)[:, 1]
        if not np.isfinite(scores).all() or scores.min() < 0 or scores.max() > 1:
            raise DataError("the classifier's predict_proba gives numbers outside [0, 1], or NaN")
        return scores

    def _table(self, X: Any, target: NDArray[np.float64], sensitive: Any, weights: Any) -> Table:
        features = _columns(X)
        if len(target) != len(X):
            raise DataError(f"y has {len(target)} rows, X has {len(X)}")
        self.sensitive_names_ = _names(sensitive)
        own = self._sensitive_columns(sensitive, len(target))
        splits = {name: _one_group(name, values) for name, values in own.items()}
        crossed = intersect(splits) if len(splits) > 1 else next(iter(splits.values()))
        return Table(
            columns=features | own,
            features=tuple(features),
            target=target,
            groups={"+".join(own): crossed},
            weights=None if weights is None else np.asarray(weights, dtype=np.float64),
            classes=tuple(self.classes_.tolist()),
            roles=Roles(label="y", favorable=self.classes_.tolist()[-1]),
            name="X",
        )

    def _sensitive_columns(self, sensitive: Any, rows: int) -> dict[str, NDArray[Any]]:
        values = np.asarray(sensitive)
        if len(values) != rows:
            raise DataError(f"sensitive_features has {len(values)} rows, X has {rows}")
        matrix = values.reshape(rows, -1)
        if matrix.shape[1] != len(self.sensitive_names_):
            raise DataError(
                f"sensitive_features has {matrix.shape[1]} columns, but {len(self.sensitive_names_)} when it was fitted"
            )
        return {name: _plain(matrix[:, place]) for place, name in enumerate(self.sensitive_names_)}


def _columns(X: Any) -> dict[str, NDArray[Any]]:
    if hasattr(X, "columns"):
        return {str(name): _plain(X[name].to_numpy()) for name in X.columns}
    matrix = np.asarray(X)
    return {f"x{place}": matrix[:, place] for place in range(matrix.shape[1])}


def _names(sensitive: Any) -> tuple[str, ...]:
    if hasattr(sensitive, "columns"):
        return tuple(str(name) for name in sensitive.columns)
    values = np.asarray(sensitive)
    if values.ndim > 1 and values.shape[1] > 1:
        return tuple(f"sensitive_{place}" for place in range(values.shape[1]))
    return (str(getattr(sensitive, "name", None) or "sensitive"),)


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    """Return text as objects with None where missing, and numbers as they are."""
    if values.dtype.kind in "iufb":
        return values
    cells = values.astype(object).tolist()
    missing = [value is None or value != value for value in cells]  # noqa: PLR0124 -- only NaN differs from itself
    if all(
        gone or isinstance(value, (int, float, np.number)) for gone, value in zip(missing, cells, strict=True)
    ):
        return np.array(
            [np.nan if gone else float(value) for gone, value in zip(missing, cells, strict=True)]
        )
    return np.array(
        [None if gone else str(value) for gone, value in zip(missing, cells, strict=True)], dtype=object
    )


def _one_group(name: str, values: NDArray[Any]) -> Groups:
    texts = np.array([value_text(value) for value in values.tolist()])
    found, codes = np.unique(texts, return_inverse=True)
    return Groups(Sensitive((name,), (None,)), tuple(found.tolist()), codes.astype(np.int64))
