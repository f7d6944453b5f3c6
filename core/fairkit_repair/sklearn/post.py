"""Post-processing methods as scikit-learn estimators, around an ONNX model or a fitted classifier."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.arrow_types import as_numpy
from fairkit.data.dataset import BATCH_ROWS
from fairkit.data.roles import Roles, Sensitive, value_text
from fairkit.data.sources import open_source
from fairkit.data.table import Groups, Table, intersect
from fairkit.errors import DataError, MissingExtraError, ParameterError
from fairkit.fitted import Run
from fairkit_onnx.file import OnnxModel
from fairkit_repair.postprocess import PostProcessor, RuleModel
from fairkit_repair.sklearn.base import Face, face, written

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.source import Source
    from fairkit_onnx.write.rules import GroupRule


def post_estimator(method: type[PostProcessor]) -> type[Any]:
    """Return a scikit-learn classifier class that repairs the decisions of a given model.

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
    bases = (_PostEstimator, ClassifierMixin, BaseEstimator)
    return face(method, bases, before={"model": None}, after={"random_state": 0})


class _PostEstimator(Face):
    """Binary classification; the second class, in sorted order, is the favorable one."""

    restores = staticmethod(post_estimator)
    model: Any
    random_state: int | None

    def fit(self, X: Any, y: Any, *, sensitive_features: Any, sample_weight: Any = None) -> Any:
        """Learn the rule; the model is not trained."""
        self.classes_, codes = np.unique(np.asarray(y), return_inverse=True)
        if len(self.classes_) != 2:
            raise DataError(f"y has {len(self.classes_)} values; {self._method.name} works on two")
        table = self._table(X, codes.astype(np.float64), sensitive_features, sample_weight)
        method, run = self._made(), Run(seed=int(self.random_state or 0))
        if self._is_classifier():
            self.rule_, solution = method.learn(self._classifier_scores(X), table, run)
            self.fitted_, self.details_, self.notes_ = None, dict(solution.details), solution.notes
            if not hasattr(self.model, "predict_proba"):
                self.notes_ = (*self.notes_, "Rows are ranked by decision_function, which is no probability.")
        else:
            base = self.model if isinstance(self.model, OnnxModel) else OnnxModel.load(self.model)
            self.fitted_ = method.fit(table, run, model=base)
            self.rule_, self.details_ = self.fitted_.rule, dict(self.fitted_.details)
            self.notes_ = self.fitted_.notes
        self.n_features_in_ = len(frame_columns(X))
        return self

    def decision_probability(self, X: Any, *, sensitive_features: Any) -> NDArray[np.float64]:
        """Return the chance of the favorable decision, shape [n]."""
        return self._predict(X, sensitive_features)[1]

    def predict_proba(self, X: Any, *, sensitive_features: Any) -> NDArray[np.float64]:
        """Return the chances of the two decisions, shape [n, 2]; the second is `decision_probability`."""
        chance = self.decision_probability(X, sensitive_features=sensitive_features)
        return np.column_stack([1.0 - chance, chance])

    def predict(self, X: Any, *, sensitive_features: Any, u: Any = None) -> NDArray[Any]:
        """Decide by chance: favorable where u < `decision_probability`."""
        chance = self.decision_probability(X, sensitive_features=sensitive_features)
        draws = np.random.default_rng(int(self.random_state or 0)).random(len(chance)) if u is None else u
        decided: NDArray[Any] = self.classes_[(np.asarray(draws) < chance).astype(int)]
        return decided

    def to_onnx(self, path: str | Path | None = None) -> bytes:
        """Return the model with the rule as one ONNX file's bytes, written to a path if one is given."""
        self._check_fitted()
        if not isinstance(self.fitted_, RuleModel):
            raise ParameterError(
                f"{type(self).__name__} was put on a classifier in memory, which has no graph to append the rule "
                "to; export the classifier to ONNX and give that file as model"
            )
        return written(self.fitted_.to_onnx(), path)

    def onnx_parser(self) -> Any:
        """Say to skl2onnx that a pipeline cannot hold it."""
        raise ParameterError(
            f"{type(self).__name__} reads `sensitive_features` when it predicts, and a pipeline's file has no input "
            "for them; export it by itself: estimator.to_onnx(path)"
        )

    def _predict(self, X: Any, sensitive: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        self._check_fitted()
        columns = frame_columns(X) | self._sensitive_columns(sensitive, len(X))
        if self.fitted_ is not None:
            prediction = self.fitted_.predict(columns)
            chance = prediction.decision_probability
            return prediction.score, np.zeros(0) if chance is None else chance
        rule: GroupRule = self.rule_
        codes = rule.keys.codes(columns)
        score = rule.adjust(self._classifier_scores(X), codes)
        return score, rule.probability(score, codes)

    def _check_fitted(self) -> None:
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "rule_")

    def _is_classifier(self) -> bool:
        if self.model is None:
            raise ParameterError(
                f"{self._method.name} repairs a model: give model=, an ONNX file or a fitted classifier"
            )
        ranks = hasattr(self.model, "predict_proba") or hasattr(self.model, "decision_function")
        if hasattr(self.model, "predict") and not ranks and not hasattr(self.model, "bind"):
            raise ParameterError(
                f"{self._method.name} ranks rows by a model's scores, and a {type(self.model).__name__} has neither "
                "predict_proba nor decision_function: give a classifier with one of them (a vote with voting='soft')"
            )
        return ranks

    def _classifier_scores(self, X: Any) -> NDArray[np.float64]:
        """Return the second class's probability; else decision_function, moved into [0, 1] in the same order."""
        name, rows = type(self.model).__name__, len(X)
        if not hasattr(self.model, "predict_proba"):
            margin = np.asarray(self.model.decision_function(X), dtype=np.float64)
            if margin.shape != (rows,):
                raise DataError(f"the decision_function of {name} has shape {margin.shape} for {rows:,} rows, not [n]")
            return np.asarray(0.5 * (1 + margin / (1 + np.abs(margin))))
        scores = np.asarray(self.model.predict_proba(X), dtype=np.float64)
        if scores.shape != (rows, 2):
            raise DataError(f"the predict_proba of {name} has shape {scores.shape} for {rows:,} rows, not [n, 2]")
        if not np.isfinite(scores).all() or scores.min() < 0 or scores.max() > 1:
            raise DataError("the classifier's predict_proba gives numbers outside [0, 1], or NaN")
        return scores[:, 1]

    def _table(self, X: Any, target: NDArray[np.float64], sensitive: Any, weights: Any) -> Table:
        features = frame_columns(X)
        if len(target) != len(X):
            raise DataError(f"y has {len(target)} rows, X has {len(X)}")
        self.sensitive_names_ = sensitive_names(sensitive)
        sensitive_columns = self._sensitive_columns(sensitive, len(target))
        splits = {
            name: Groups(Sensitive((name,), (None,)), *group_codes(values))
            for name, values in sensitive_columns.items()
        }
        crossed = intersect(splits) if len(splits) > 1 else next(iter(splits.values()))
        return Table(
            columns=features | sensitive_columns,
            features=tuple(features),
            target=target,
            groups={"+".join(sensitive_columns): crossed},
            weights=None if weights is None else np.asarray(weights, dtype=np.float64),
            classes=tuple(self.classes_.tolist()),
            roles=Roles(label="y", favorable=self.classes_.tolist()[-1]),
            name="X",
        )

    def _sensitive_columns(self, sensitive: Any, rows: int) -> dict[str, NDArray[Any]]:
        matrix = sensitive_matrix(sensitive, rows)
        if matrix.shape[1] != len(self.sensitive_names_):
            raise DataError(
                f"sensitive_features has {matrix.shape[1]} columns, but {len(self.sensitive_names_)} when it was fitted"
            )
        return {name: raw_column(matrix[:, index]) for index, name in enumerate(self.sensitive_names_)}


# What scikit-learn's users have, as raw columns: frames, matrices, and sensitive features beside them.


def frame_columns(X: Any) -> dict[str, NDArray[Any]]:
    """Return the raw columns of a data frame, ``x0``, ``x1``, ... of a matrix, ``text`` of texts, each of shape [n]."""
    if type(X).__module__.partition(".")[0] in ("polars", "pyarrow"):
        source = open_source(X, "X")
        return {name: _whole(source, name) for name in source.columns}
    if hasattr(X, "columns"):
        return {str(name): raw_column(X[name]) for name in X.columns}
    matrix = np.asarray(X) if np.ndim(X) else np.empty((0, 0))
    if matrix.ndim == 1:  # a series or a list of texts
        return {str(getattr(X, "name", None) or "text"): raw_column(X if hasattr(X, "dtype") else matrix)}
    return {f"x{index}": matrix[:, index] for index in range(matrix.shape[1])}


def raw_column(values: Any) -> NDArray[Any]:
    """Return text as objects with None where missing, and numbers as they are; from a series or an array."""
    if values.dtype.kind in "iufb":
        return np.asarray(values)
    cells = np.array(values, dtype=object)
    missing = np.asarray(values.isna()) if hasattr(values, "isna") else _missing(cells)
    numbers = cells[~missing]
    if len(numbers) and all(isinstance(value, (int, float, np.number)) for value in numbers):
        return np.array([np.nan if gone else float(value) for gone, value in zip(missing, cells, strict=True)])
    return np.array([None if gone else str(value) for gone, value in zip(missing, cells, strict=True)], dtype=object)


def sensitive_names(sensitive: Any) -> tuple[str, ...]:
    """Return the names of sensitive features: a frame's columns, a series' name, or ``sensitive``, numbered."""
    if hasattr(sensitive, "column_names"):
        return tuple(sensitive.column_names)
    if hasattr(sensitive, "columns"):
        return tuple(str(name) for name in sensitive.columns)
    values = np.asarray(sensitive)
    if values.ndim > 1 and values.shape[1] > 1:
        return tuple(f"sensitive_{index}" for index in range(values.shape[1]))
    return (str(getattr(sensitive, "name", None) or "sensitive"),)


def sensitive_matrix(sensitive: Any, rows: int) -> NDArray[Any]:
    """Return sensitive features as objects, shape [rows, k]."""
    values = np.asarray(sensitive, dtype=object)
    if len(values) != rows:
        raise DataError(f"sensitive_features has {len(values)} rows, X has {rows}")
    return values.reshape(rows, -1)


def group_codes(values: NDArray[Any]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the groups' names, sorted, and each row's group, shape [n]."""
    texts = np.array([value_text(value) for value in values.tolist()])
    distinct, codes = np.unique(texts, return_inverse=True)
    return tuple(distinct.tolist()), codes.astype(np.int64)


def _whole(source: Source, name: str) -> NDArray[Any]:
    """Return one column as a CSV or Parquet file's would be read."""
    cells = [as_numpy(batch.column(0)) for batch in source.batches([name], BATCH_ROWS)]
    return np.concatenate(cells) if cells else np.empty(0)


def _missing(cells: NDArray[Any]) -> NDArray[np.bool_]:
    return np.array([value is None or value != value for value in cells.tolist()], dtype=bool)  # noqa: PLR0124 -- only NaN differs from itself
