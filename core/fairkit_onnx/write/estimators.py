"""Estimators of other libraries: scored in memory, and added to a graph so that both give the same."""

from __future__ import annotations

import tempfile
import warnings
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairkit.errors import MissingExtraError, ModelError
from fairkit_onnx.write import trees
from fairkit_onnx.write.encode import absent
from fairkit_onnx.write.graph import ML_OPSET, OPSET, first_line
from fairkit_onnx.write.trees import Node, round_down

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit_onnx.write.graph import GraphBuilder
    from fairkit_onnx.write.trees import Tree


_FORESTS = {"RandomForestClassifier", "ExtraTreesClassifier", "RandomForestRegressor", "ExtraTreesRegressor"}
_TREES = {"DecisionTreeClassifier", "DecisionTreeRegressor", "ExtraTreeClassifier", "ExtraTreeRegressor"}
_LOGISTIC = {"LogisticRegression", "LinearDiscriminantAnalysis"}
_MARGINS = {*_LOGISTIC, "LinearSVC", "RidgeClassifier", "SGDClassifier", "Perceptron", "PassiveAggressiveClassifier"}
"""Linear classifiers: by probabilities, and by their `decision_function`."""
_MLPS = {"MLPClassifier", "MLPRegressor"}
_ACTIVATIONS = {"relu": "Relu", "tanh": "Tanh", "logistic": "Sigmoid"}
_EXACT_ROWS = 65_536


class GraphEstimator(ABC):
    """An estimator that brings its own way into a graph, for libraries that fairkit does not know.

    What it adds must give what `score` gives, up to single precision: every export is compared with the model in
    memory.
    """

    @abstractmethod
    def score(self, matrix: NDArray[np.float32], task: Task) -> NDArray[np.float64]:
        """Return the scores of rows of shape [n, d], as `score_estimator` does."""

    @abstractmethod
    def add_to(self, graph: GraphBuilder, matrix: str, task: Task, width: int) -> str:
        """Add nodes that read the matrix [rows, width] and return the name of what `add_estimator` returns.

        `GraphBuilder.inline` puts a graph of the library's own in place.
        """


def score_estimator(estimator: Any, matrix: NDArray[np.float32], task: Task) -> NDArray[np.float64]:
    """Return scores: the second class's probability [n], probabilities [n, k], or values [n] in regression.

    `estimator` is a LightGBM or XGBoost booster or estimator, a scikit-learn one with classes in ascending order, a
    torch module that gives logits (one, or one for each class), or a `GraphEstimator`; `matrix` is float32, [n, d].
    """
    if isinstance(estimator, GraphEstimator):
        return np.asarray(estimator.score(matrix, task), dtype=np.float64)
    inner = _unwrapped(estimator)
    library = _library(inner)
    if library == "lightgbm":
        margins = inner.predict(matrix, raw_score=True)
        return np.exp(margins) if task == "regression" and _has_log_link(inner) else _linked(margins, task)
    if library == "xgboost":
        import xgboost

        rounds, missing = _xgboost_settings(estimator)
        cells = xgboost.DMatrix(matrix, missing=missing)
        margins = inner.predict(cells, output_margin=True, iteration_range=(0, rounds or 0)).astype(np.float64)
        return np.exp(margins) if task == "regression" and _has_log_link(inner) else _linked(margins, task)
    if library == "torch":
        return _linked(_torch_outputs(inner, matrix), task)
    if task == "regression":
        return np.asarray(inner.predict(matrix), dtype=np.float64).reshape(len(matrix))
    proba = np.asarray(inner.predict_proba(matrix), dtype=np.float64)
    return proba[:, 1] if task == "binary" else proba


def add_estimator(
    graph: GraphBuilder,
    matrix: str,
    estimator: Any,
    task: Task,
    *,
    width: int,
    double: bool = False,
    margin: bool = False,
) -> str:
    """Add an estimator to a graph, to give what `score_estimator` gives; return the scores, [rows, 1] or [rows, k].

    The matrix is float32, [rows, width]; with `double` it holds doubles, which only histogram gradient boosting
    compares as they are. With `margin` the scores are those of a classifier's ``decision_function``, [rows, 1].
    """
    if isinstance(estimator, GraphEstimator):
        return estimator.add_to(graph, matrix, task, width)
    inner = _unwrapped(estimator)
    library, kind = _library(inner), type(inner).__name__
    if library == "catboost":
        return _add_catboost(graph, inner, matrix, task)
    if library == "lightgbm":
        sums = _add_lightgbm(graph, matrix, inner)
    elif library == "xgboost":
        sums = _add_xgboost(graph, matrix, inner, task, *_xgboost_settings(estimator))
    elif library == "torch":
        sums = _add_torch(graph, matrix, inner, width)
    elif kind in _MLPS and getattr(inner, "out_activation_", "") in ("logistic", "softmax", "identity"):
        sums = _add_mlp(graph, matrix, inner)
    elif kind in NAMES:
        sums = _add_histograms(graph, matrix, inner, double=double)
    elif _is_linear(inner, task) or (margin and hasattr(inner, "coef_") and kind in _MARGINS):
        sums = add_linear(graph, matrix, inner.coef_, inner.intercept_)
    else:
        forest = kind in _FORESTS | _TREES
        if forest and not margin:
            return _favorable(graph, _add_forest(graph, matrix, inner), task)
        return _favorable(graph, add_sklearn(graph, matrix, inner, task, width, margin=margin)[0], task)
    if library in ("lightgbm", "xgboost") and task == "regression" and _has_log_link(inner):
        return graph.node("Exp", [sums])
    return sums if margin else add_link(graph, sums, task)


def add_link(graph: GraphBuilder, margin: str, task: Task) -> str:
    """Turn margins into scores: sigmoid in a binary task, softmax in a multiclass one."""
    if task == "binary":
        return graph.node("Sigmoid", [margin])
    return graph.node("Softmax", [margin], axis=1) if task == "multiclass" else margin


def add_linear(graph: GraphBuilder, matrix: str, coefficients: Any, intercept: Any) -> str:
    """Add ``x @ coefficients.T + intercept``; coefficients have shape [k, d] or [d]."""
    weights = np.atleast_2d(np.asarray(coefficients, dtype=float))
    bias = np.broadcast_to(np.asarray(intercept, dtype=float).reshape(1, -1), (1, len(weights)))
    product = graph.node("MatMul", [matrix, graph.constant(weights.T)])
    return graph.node("Add", [product, graph.constant(bias)])


def _library(estimator: Any) -> str:
    if any(base.__module__.split(".")[0] == "torch" for base in type(estimator).__mro__):
        return "torch"
    return type(estimator).__module__.split(".")[0]


def _unwrapped(estimator: Any) -> Any:
    """LightGBM's and XGBoost's scikit-learn classes hold a booster."""
    library = type(estimator).__module__.split(".")[0]
    if library == "lightgbm" and hasattr(estimator, "booster_"):
        return estimator.booster_
    if library == "xgboost" and hasattr(estimator, "get_booster"):
        return estimator.get_booster()
    return estimator


def _xgboost_settings(estimator: Any) -> tuple[int | None, float]:
    """Return how many rounds count (after early stopping not all), and which number is a missing value."""
    if not hasattr(estimator, "get_booster"):
        return None, float("nan")
    best = estimator.get_booster().attr("best_iteration")
    missing = getattr(estimator, "missing", None)
    return None if best is None else int(best) + 1, float("nan") if missing is None else float(missing)


def _has_log_link(booster: Any) -> bool:
    """Whether a booster's sums are the logarithms of what it predicts."""
    import json

    if hasattr(booster, "save_config"):
        objective = str(json.loads(booster.save_config())["learner"]["objective"]["name"])
    else:
        objective = str(booster.dump_model(num_iteration=1).get("objective", "")).partition(" ")[0]
    return objective in ("count:poisson", "reg:gamma", "reg:tweedie", "poisson", "gamma", "tweedie")


def _linked(margin: NDArray[np.float64], task: Task) -> NDArray[np.float64]:
    if task == "regression":
        return margin.reshape(len(margin))
    if task == "binary" and margin.ndim == 2 and margin.shape[1] == 2:
        margin = margin[:, 1] - margin[:, 0]
    if task == "binary":
        return 0.5 * (1 + np.tanh(0.5 * margin.reshape(len(margin))))
    shifted = np.exp(margin - margin.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def _favorable(graph: GraphBuilder, probabilities: str, task: Task) -> str:
    """Keep the second class's column in a binary task."""
    if task != "binary":
        return probabilities
    return graph.node("Gather", [probabilities, graph.constant([1], np.int64)], axis=1)


def _add_lightgbm(graph: GraphBuilder, matrix: str, booster: Any) -> str:
    trees_read = trees.lightgbm_trees(booster)
    count = booster.num_model_per_iteration()
    outputs = [index % count for index in range(len(trees_read))]
    return trees.add_ensemble(graph, matrix, trees_read, outputs=outputs, base=[0.0] * count)


def _add_xgboost(graph: GraphBuilder, matrix: str, booster: Any, task: Task, rounds: int | None, missing: float) -> str:
    if not np.isnan(missing):
        matrix = graph.node("Where", [graph.node("Equal", [matrix, missing]), float("nan"), matrix])
    trees_read, outputs, base = trees.xgboost_trees(booster, rounds=rounds)
    count = max(outputs, default=0) + 1
    sums = trees.add_ensemble(
        graph, matrix, trees_read, outputs=outputs, base=base if len(base) == count else base * count
    )
    return graph.node("MatMul", [sums, graph.constant([[-1.0], [1.0]])]) if (task, count) == ("binary", 2) else sums


def _add_catboost(graph: GraphBuilder, model: Any, matrix: str, task: Task) -> str:
    """Add CatBoost's own graph, without the map that it makes of its probabilities."""
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        try:
            model.save_model(str(file), format="onnx")
        except Exception as error:  # CatBoost's own kind
            raise ModelError(f"CatBoost does not export this model: {first_line(error)}") from error
        proto = onnx.load(str(file))
    wanted = proto.graph.output[0].name
    for node in [node for node in proto.graph.node if node.op_type == "ZipMap"]:
        wanted = node.input[0]
        proto.graph.node.remove(node)
    del proto.graph.output[:]
    proto.graph.output.append(onnx.ValueInfoProto(name=wanted))
    scores = graph.inline(proto, {proto.graph.input[0].name: matrix})[wanted]
    return graph.reshape(scores, (-1, 1)) if task == "regression" else _favorable(graph, scores, task)


def _add_forest(graph: GraphBuilder, matrix: str, model: Any) -> str:
    members = getattr(model, "estimators_", [model])
    classifier = hasattr(model, "classes_")
    trees_read = trees.sklearn_trees(members, classifier=classifier)
    count = len(model.classes_) if classifier else 1
    sums = trees.add_ensemble(graph, matrix, trees_read, base=[0.0] * count)
    # divided last, as in memory: a tie of the votes stays exactly one half
    return sums if len(members) == 1 else graph.node("Div", [sums, float(len(members))])


def _add_histograms(graph: GraphBuilder, matrix: str, model: Any, *, double: bool) -> str:
    trees_read, outputs, base = histogram_trees(model, double=double)
    sums = trees.add_ensemble(graph, matrix, trees_read, outputs=outputs, base=base, double=double)
    return graph.node("Exp", [sums]) if link_of(model) == "log" else sums


def _add_mlp(graph: GraphBuilder, matrix: str, model: Any) -> str:
    value = matrix
    layers = list(zip(model.coefs_, model.intercepts_, strict=True))
    for index, (weights, bias) in enumerate(layers):
        value = add_linear(graph, value, weights.T, bias)
        if index + 1 < len(layers) and model.activation != "identity":
            value = graph.node(_ACTIVATIONS[model.activation], [value])
    return value


def _is_linear(model: Any, task: Task) -> bool:
    if type(model).__module__.split(".")[0] != "sklearn" or not hasattr(model, "coef_"):
        return False
    if task == "regression":
        return type(model).__name__ in ("LinearRegression", "Ridge", "Lasso", "ElasticNet", "QuantileRegressor")
    coefficients = np.atleast_2d(model.coef_)
    return type(model).__name__ in _LOGISTIC and (len(coefficients) == 1) == (task == "binary")


def add_sklearn(
    graph: GraphBuilder, matrix: str, model: Any, task: Task, width: int, *, margin: bool = False
) -> tuple[str, str]:
    """Add an estimator by skl2onnx; return probabilities (margins, values), and the label: a class's place."""
    try:
        from skl2onnx import to_onnx
        from skl2onnx.common.data_types import FloatTensorType
    except ImportError as error:
        raise MissingExtraError("skl2onnx", "sklearn") from error

    options = {"zipmap": False} if task != "regression" else None
    if margin:
        options = {"zipmap": False, "raw_scores": True}
    try:
        proto = to_onnx(
            model,
            initial_types=[("X", FloatTensorType([None, width]))],
            options=options,
            target_opset={"": OPSET, "ai.onnx.ml": ML_OPSET},
        )
    except Exception as error:
        raise ModelError(f"a {type(model).__name__} cannot be exported to ONNX: {first_line(error)}") from error
    outputs = graph.inline(proto, {"X": matrix})
    first, last = (outputs[proto.graph.output[index].name] for index in (0, -1))
    return last, first


def _torch_outputs(module: Any, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
    import torch

    training = module.training
    module.eval()
    with torch.no_grad():
        device = next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
        parts = [
            module(torch.from_numpy(matrix[start : start + _EXACT_ROWS]).to(device)).cpu().numpy()
            for start in range(0, len(matrix), _EXACT_ROWS)
        ]
    module.train(training)
    return np.asarray(np.concatenate(parts), dtype=np.float64)


def _add_torch(graph: GraphBuilder, matrix: str, module: Any, width: int) -> str:
    """Add a module's logits; two of them become their difference."""
    import io

    import onnx
    import torch

    copy = module.cpu().eval()
    example = torch.zeros(2, width)
    with torch.no_grad():
        shape = tuple(copy(example).shape)
    if not shape or shape[0] != len(example) or len(shape) > 2:
        raise ModelError(f"the torch module gives shape {shape} for 2 rows; it must give [2], [2, 1] or [2, k]")
    stream: Any = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            copy,
            (example,),
            stream,
            input_names=["X"],
            output_names=["Y"],
            dynamic_axes={"X": {0: "rows"}, "Y": {0: "rows"}},
            opset_version=OPSET,
            dynamo=False,
        )
    inner = graph.inline(onnx.load_model_from_string(stream.getvalue()), {"X": matrix})["Y"]
    if len(shape) == 1:
        return graph.node("Reshape", [inner, graph.constant([-1, 1], np.int64)])
    if shape[1] == 2:
        return graph.node("MatMul", [inner, graph.constant([[-1.0], [1.0]])])
    return inner


# The trees of scikit-learn's HistGradientBoosting, with missing values and categories, as one ONNX node.


NAMES = frozenset({"HistGradientBoostingClassifier", "HistGradientBoostingRegressor"})
_EXACT = 2**24
"""Whole numbers up to this are float32 numbers."""


class Categories(NamedTuple):
    """A categorical column."""

    column: int  # its place among the estimator's columns
    values: tuple[Any, ...]  # the value of each code; a missing one may be the last

    @property
    def is_text(self) -> bool:
        """Whether the values are texts: then the trees compare codes."""
        return any(isinstance(value, str) for value in self.values)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts, by code."""
        return tuple(str(value) for value in self.values if not absent(value))

    def number(self, code: int) -> float:
        """Return the number of a code that a tree compares with."""
        if self.is_text:
            return float(code)
        value = float(self.values[code])
        if float(np.float32(value)) != value:
            raise ModelError(
                f"the category {value!r} of column {self.column} is no number of single precision "
                f"(whole numbers up to {_EXACT:,} are); write its categories as texts or as codes"
            )
        return value


def categories_of(model: Any) -> list[Categories]:
    """Return the categorical columns of a fitted HistGradientBoosting, in the order of the columns."""
    flags = getattr(model, "is_categorical_", None)
    if flags is None or not np.any(flags):
        return []
    encoder = model._preprocessor.named_transformers_["encoder"]
    places = np.flatnonzero(flags).tolist()
    return [
        Categories(column, tuple(values.tolist())) for column, values in zip(places, encoder.categories_, strict=True)
    ]


def histogram_trees(model: Any, *, double: bool = False) -> tuple[list[Tree], list[int], list[float]]:
    """Read the trees of a HistGradientBoosting model.

    A row without a value, and one with a category that training did not see, goes where its split sends missing
    values.
    """
    categories = categories_of(model)
    flags = np.zeros(model.n_features_in_, dtype=bool)
    flags[[category.column for category in categories]] = True
    # scikit-learn puts the categorical columns first before it grows trees
    order = [*np.flatnonzero(flags).tolist(), *np.flatnonzero(~flags).tolist()]
    kinds = dict(enumerate(categories))
    trees, outputs = [], []
    for rounds in model._predictors:
        for output, predictor in enumerate(rounds):
            trees.append(_tree(predictor, order, kinds, double=double))
            outputs.append(output)
    return trees, outputs, np.asarray(model._baseline_prediction, dtype=float).reshape(-1).tolist()


def _tree(predictor: Any, order: Sequence[int], kinds: dict[int, Categories], *, double: bool) -> Tree:
    nodes = predictor.nodes
    tree: Tree = []

    def add(number: int) -> int:
        """Add a subtree and return its root's number."""
        node, first = nodes[number], len(tree)
        if node["is_leaf"]:
            tree.append(Node("LEAF", weights=(float(node["value"]),)))
            return first
        feature, missing_left = int(node["feature_idx"]), bool(node["missing_go_to_left"])
        if not node["is_categorical"]:
            tree.append(Node("LEAF"))
            threshold = float(node["num_threshold"])
            threshold = threshold if double else round_down(threshold)
            yes, no = add(int(node["left"])), add(int(node["right"]))
            tree[first] = Node("BRANCH_LEQ", order[feature], threshold, yes, no, missing_left)
            return first
        kind = kinds[feature]
        known = range(sum(not absent(value) for value in kind.values))
        left = predictor.raw_left_cat_bitsets[int(node["bitset_idx"])]
        # whatever equals no code of the chain, NaN among it, goes to the side of missing values
        codes = [code for code in known if bool((int(left[code // 32]) >> (code % 32)) & 1) != missing_left]
        tree.extend(Node("LEAF") for _ in codes)
        ends = {True: int(node["left"]), False: int(node["right"])}
        if not codes:
            return add(ends[missing_left])
        equal, rest = add(ends[not missing_left]), add(ends[missing_left])
        for index, code in enumerate(codes):
            following = first + index + 1 if index + 1 < len(codes) else rest
            tree[first + index] = Node("BRANCH_EQ", order[feature], kind.number(code), equal, following)
        return first

    add(0)
    return tree


def link_of(model: Any) -> str:
    """Return the link from the sum of a regressor's trees to its prediction: ``identity`` or ``log``."""
    name = type(getattr(getattr(model, "_loss", None), "link", None)).__name__
    return "log" if name == "LogLink" else "identity"
