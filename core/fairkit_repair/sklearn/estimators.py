"""Mitigators as scikit-learn estimators: ``fairkit.mitigator("fairgbm")`` is a class with fit and predict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairkit.data.roles import Roles
from fairkit.data.table import Groups, Table
from fairkit.errors import DataError, MissingExtraError, ModelError, ParameterError
from fairkit.fitted import Run
from fairkit.learners import as_learner
from fairkit.support.calls import checked
from fairkit_onnx.write.graph import ML_OPSET, OPSET, GraphBuilder
from fairkit_repair.mitigation.choose import find_mitigator
from fairkit_repair.postprocess import PostProcessor
from fairkit_repair.sklearn.base import Face, face, written
from fairkit_repair.sklearn.post import frame_columns, group_codes, post_estimator, sensitive_matrix, sensitive_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import onnx
    from numpy.typing import NDArray

    from fairkit.fitted import FittedModel, Prediction
    from fairkit.mitigators import Mitigator
    from fairkit_onnx.write.graph import ElementType


# What skl2onnx asks an estimator of ours: its outputs, their shapes, its graph.


_TENSORS: dict[str, ElementType] = {
    "FloatTensorType": "float",
    "DoubleTensorType": "double",
    "Int64TensorType": "int64",
    "StringTensorType": "string",
}
_WANTED = {1: "float", 7: "int64", 8: "string", 11: "double"}


class _Column(NamedTuple):
    """Where a column of the estimator comes from: a tensor of the pipeline and the place in it."""

    tensor: str
    place: int
    kind: ElementType


def _declared(estimator: Any, scope: Any) -> list[Any]:
    from skl2onnx.common.data_types import FloatTensorType

    if not hasattr(estimator, "classes_"):
        return [scope.declare_local_variable("variable", FloatTensorType())]
    return [
        scope.declare_local_variable("label", _label_type(estimator)()),
        scope.declare_local_variable("probabilities", FloatTensorType()),
    ]


def _label_type(estimator: Any) -> Any:
    from skl2onnx.common.data_types import Int64TensorType, StringTensorType

    return Int64TensorType if estimator.classes_.dtype.kind in "biu" else StringTensorType


def _shaped(estimator: Any, operator: Any) -> None:
    from skl2onnx.common.data_types import FloatTensorType

    rows = operator.inputs[0].get_first_dimension()
    if not hasattr(estimator, "classes_"):
        operator.outputs[0].type = FloatTensorType([rows, 1])
        return
    operator.outputs[0].type = _label_type(estimator)([rows])
    operator.outputs[1].type = FloatTensorType([rows, len(estimator.classes_)])


def _convert(estimator: Any, operator: Any, container: Any) -> None:
    """Put the estimator's own graph into the pipeline's, column by column."""
    from onnx import compose, version_converter

    columns = [input_column for variable in operator.inputs for input_column in _input_columns(variable)]
    if len(columns) != estimator.n_features_in_:
        raise ModelError(
            f"{type(estimator).__name__} was fitted on {estimator.n_features_in_} columns and gets {len(columns)}"
        )
    inner = _graph(estimator, columns)
    opset = max(int(container.target_opset), OPSET)
    inner = version_converter.convert_version(inner, opset) if opset != OPSET else inner
    prefix = f"{operator.full_name}/"
    inner = compose.add_prefix(inner, prefix)
    for position, column in enumerate(columns):
        index = f"{prefix}place{position}"
        container.add_initializer(index, 7, [1], [column.place])
        container.add_node(
            "Gather", [column.tensor, index], f"{prefix}column{position}", name=f"{prefix}take{position}", axis=1
        )
    container.initializers.extend(inner.graph.initializer)
    container.nodes.extend(inner.graph.node)
    # what the nodes are written for; skl2onnx takes the highest version of each domain
    container.node_domain_version_pair_sets.update({("", opset), ("ai.onnx.ml", ML_OPSET)})
    for variable, output in zip(operator.outputs, inner.graph.output, strict=True):
        container.add_node("Identity", output.name, variable.full_name, name=f"{output.name}/out")


def _input_columns(variable: Any) -> list[_Column]:
    kind = _TENSORS.get(type(variable.type).__name__)
    width = variable.type.shape[1] if len(variable.type.shape) > 1 else None
    if kind is None or not isinstance(width, int):
        raise ModelError(
            f"the step before gives {variable.type}: fairkit's estimators take numbers, integers and text, in a "
            "known number of columns"
        )
    return [_Column(variable.full_name, index, kind) for index in range(width)]


def _graph(estimator: Any, columns: Sequence[_Column]) -> onnx.ModelProto:
    """Return a graph from ``column0``, ``column1``, ... to the outputs that skl2onnx knows."""
    import onnx

    proto = onnx.load_from_string(estimator.to_onnx())
    graph = GraphBuilder()
    inputs = [graph.input(f"column{index}", column.kind) for index, column in enumerate(columns)]
    outputs = graph.inline(
        proto, {entry.name: _fed(graph, estimator, entry, inputs, columns) for entry in proto.graph.input}
    )
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        graph.output("variable", outputs["score"], "float", 1)
        return graph.build()
    if len(classes) > 2:
        probabilities = outputs["probabilities"]
        places = graph.node("ArgMax", [probabilities], axis=1, keepdims=0)
    else:
        score = outputs["score"]
        rest = graph.node("Sub", [1.0, score])
        probabilities = graph.node("Concat", [rest, score], axis=1)
        chance = graph.reshape(outputs["decision_probability"], (-1,))
        unlikely = graph.node("Less", [chance, graph.constant([0.5])])
        places = graph.cast(graph.node("Not", [unlikely]), np.int64)
    texts = classes.dtype.kind not in "biu"
    labels = graph.constant([str(label) for label in classes] if texts else classes, object if texts else np.int64)
    graph.output("label", graph.node("Gather", [labels, places]), "string" if texts else "int64", None)
    graph.output("probabilities", probabilities, "float", len(classes))
    return graph.build()


def _fed(graph: GraphBuilder, estimator: Any, entry: Any, inputs: Sequence[str], columns: Sequence[_Column]) -> str:
    """Return the column that an input of the estimator's file takes, in its type."""
    names = [str(name) for name in getattr(estimator, "feature_names_in_", [f"x{i}" for i in range(len(inputs))])]
    if entry.name not in names:  # a randomized model's draws, which neither labels nor probabilities follow from
        return graph.constant([[0.5]])
    index, wanted = names.index(entry.name), entry.type.tensor_type.elem_type
    if (columns[index].kind == "string") != (_WANTED[wanted] == "string"):
        raise ModelError(
            f"the column {entry.name!r} was {_WANTED[wanted]} when {type(estimator).__name__} was fitted, and the step "
            f"before gives {columns[index].kind}"
        )
    return graph.node("Cast", [inputs[index]], to=wanted)


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
        if not issubclass(method, PostProcessor):
            raise ParameterError(
                f"{method.name} repairs a model; use fairkit.mitigate({method.name!r}, data, model=...)"
            )
        return post_estimator(method)
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


class _Fitting(Face):
    """What classifiers and regressors share; skl2onnx converts them wherever they stand in a pipeline."""

    restores = staticmethod(mitigator)

    def onnx_parser(self) -> Callable[..., list[Any]]:
        """Return the function that declares the outputs."""
        return lambda scope, inputs: _declared(self, scope)

    def onnx_shape_calculator(self) -> Callable[[Any], None]:
        """Return the function that sets the outputs' shapes."""
        return lambda operator: _shaped(self, operator)

    def onnx_converter(self) -> Callable[[Any, Any, Any], None]:
        """Return the function that adds the nodes."""
        return lambda scope, operator, container: _convert(self, operator, container)

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
        from sklearn.utils.validation import check_consistent_length, column_or_1d

        columns = _columns(self, X, reset=True)
        labels = column_or_1d(_required(y), warn=True)
        check_consistent_length(next(iter(columns.values())), labels)
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
        prediction = self._predict_table(X)
        chance = prediction.decision_probability
        places = prediction.score.argmax(axis=1) if chance is None else (chance >= 0.5).astype(np.int64)
        labels: NDArray[Any] = self.classes_[places]
        return labels


class _Regressor(_Fitting):
    """A regressor."""

    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None) -> Any:
        """Fit; see the classifier. `y` holds numbers."""
        from sklearn.utils.validation import check_consistent_length, column_or_1d

        columns = _columns(self, X, reset=True)
        target = column_or_1d(_required(y), warn=True).astype(np.float64)
        check_consistent_length(next(iter(columns.values())), target)
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

    _check_feature_names(estimator, X, reset=reset)
    if hasattr(X, "columns") and (hasattr(X, "dtypes") or hasattr(X, "schema")):
        _check_n_features(estimator, X, reset=reset)
        if len(X) == 0:
            raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required.")
        return frame_columns(X)
    matrix = check_array(X, dtype="numeric", ensure_all_finite="allow-nan", estimator=estimator)
    _check_n_features(estimator, matrix, reset=reset)
    if np.iscomplexobj(matrix):
        raise ValueError("Complex data not supported")
    return frame_columns(matrix)


def _groups(sensitive: Any, rows: int) -> dict[str, Groups]:
    if sensitive is None:
        return {"all": Groups(None, ("all",), np.zeros(rows, dtype=np.int64))}
    matrix = sensitive_matrix(sensitive, rows)
    return {name: Groups(None, *group_codes(matrix[:, index])) for index, name in enumerate(sensitive_names(sensitive))}


def _weights(weights: Any, rows: int) -> NDArray[np.float64] | None:
    if weights is None:
        return None
    from sklearn.utils.validation import _check_sample_weight

    checked = _check_sample_weight(weights, np.empty((rows, 1)), dtype=np.float64)
    if (checked < 0).any():
        raise ValueError("Negative values in data passed to `sample_weight`")
    return np.asarray(checked)
