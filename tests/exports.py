"""Foreign files as people export them, with what the model in memory says: audit and repair read the same list."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import fairkit

ROWS = 2_400
NUMBERS = ("x0", "x1", "x2", "x3")
WEIGHTS, SHIFT = np.array([1.2, 0.8, 0.0, 0.4], np.float32), np.float32(-0.9)
ELEMENTS = {
    "float": TensorProto.FLOAT,
    "double": TensorProto.DOUBLE,
    "bool": TensorProto.BOOL,
    "int64": TensorProto.INT64,
}


@cache
def people() -> dict[str, Any]:
    """Rows with a default that four numbers and a text column tell something about, and the same as other labels."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(ROWS, 4)).astype(np.float32)
    default = (rng.random(ROWS) < p_default(x)).astype(int)
    return {
        **{name: x[:, place] for place, name in enumerate(NUMBERS)},
        "sex": np.where(x[:, 1] + rng.normal(size=ROWS) > 0, "f", "m").astype(object),
        "default": default,
        "word": np.where(default == 1, "denied", "approved").astype(object),
    }


def matrix() -> np.ndarray[Any, Any]:
    """The numbers of `people`, [n, 4]."""
    return np.column_stack([people()[name] for name in NUMBERS])


def logit(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The logit of P(default)."""
    return np.asarray(x @ WEIGHTS + SHIFT)


def p_default(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """P(default)."""
    return np.asarray(1 / (1 + np.exp(-logit(x).astype(np.float64))))


@dataclass(frozen=True)
class Export:
    """A file, how its table is read, and what the model in memory says of each row of `people`.

    Attributes
    ----------
    build
        Makes the file.
    score
        The probability of the favorable label (or a number in its order), [n]; None where the file gives labels only.
    decision
        Whether the decision is favorable, [n].
    label, favorable, features, options
        How the file is audited.
    """

    name: str
    build: Callable[[], onnx.ModelProto]
    score: Callable[[], np.ndarray[Any, Any] | None]
    decision: Callable[[], np.ndarray[Any, Any]]
    label: str = "default"
    favorable: Any = 0
    features: tuple[str, ...] = NUMBERS
    options: Mapping[str, Any] = field(default_factory=dict)

    def data(self, **more: Any) -> fairkit.Dataset:
        """The table, read as the file needs it."""
        roles = {"label": self.label, "favorable": self.favorable, "features": list(self.features)}
        return fairkit.load_data(people(), sensitive=["sex"], **roles | more)

    @property
    def truth(self) -> np.ndarray[Any, Any]:
        """Which rows have the favorable label."""
        return np.asarray(people()[self.label] == self.favorable)


def model_of(
    nodes: list[Any],
    outputs: Mapping[str, int],
    constants: Mapping[str, np.ndarray[Any, Any]],
    *,
    inputs: Mapping[str, tuple[int, int]] | None = None,
    ir: int = 8,
) -> onnx.ModelProto:
    """A graph on a matrix `x` of four numbers (or named inputs), with outputs [n, 1]."""
    given = inputs or {"x": (TensorProto.FLOAT, 4)}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, ["n", width]) for name, (kind, width) in given.items()],
        [helper.make_tensor_value_info(name, kind, ["n", 1]) for name, kind in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=ir)


def network(approve: str | None = None, *, score: str = "probability", number: Any = np.float32) -> onnx.ModelProto:
    """P(default) or its logit, and beside it at will an output `approve` that is P(default) < .2."""
    kind = ELEMENTS["double" if number is np.float64 else "float"]
    constants = {
        "w": WEIGHTS.reshape(4, 1).astype(number),
        "b": np.array([SHIFT], number),
        "t": np.array([[0.2]], number),
    }
    end = "p_default" if score == "probability" else "p"
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["z0"]),
        helper.make_node("Add", ["z0", "b"], ["p_default" if score == "logit" else "z"]),
        helper.make_node("Sigmoid", ["p_default" if score == "logit" else "z"], [end]),
    ]
    outputs = {"p_default": kind}
    if approve is not None:
        nodes += [
            helper.make_node("Less", [end, "t"], ["ok"]),
            helper.make_node("Cast", ["ok"], ["approve"], to=ELEMENTS[approve]),
        ]
        outputs = {"approve": ELEMENTS[approve], **outputs}
    return model_of(nodes, outputs, constants, inputs={"x": (kind, 4)})


def decided_by_a_limit() -> np.ndarray[Any, Any]:
    """Whether P(default) is below .2."""
    return p_default(matrix()) < 0.2


def good() -> np.ndarray[Any, Any]:
    """P(no default)."""
    return 1 - p_default(matrix())


def more_likely_good() -> np.ndarray[Any, Any]:
    """Whether no default is the more likely."""
    return p_default(matrix()) < 0.5


def _fitted(target: str, kind: str) -> Any:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression

    if kind == "logistic":
        return LogisticRegression().fit(matrix(), people()[target])
    return RandomForestClassifier(8, max_depth=4, random_state=0).fit(matrix(), people()[target])


def sklearn_matrix(target: str, kind: str, *, zipmap: bool) -> onnx.ModelProto:
    """A classifier of scikit-learn on one matrix."""
    from skl2onnx import to_onnx

    options = {} if zipmap else {"options": {"zipmap": False}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the converter's own deprecations
        proto: onnx.ModelProto = to_onnx(
            _fitted(target, kind), matrix()[:1], target_opset={"": 17, "ai.onnx.ml": 3}, **options
        )
    return proto


def _sklearn(target: str, kind: str, *, zipmap: bool) -> Export:
    favorable: Any = "approved" if target == "word" else 0

    def score() -> np.ndarray[Any, Any]:
        model = _fitted(target, kind)
        return np.asarray(model.predict_proba(matrix())[:, list(model.classes_).index(favorable)])

    return Export(
        f"sklearn {kind} of {target}, {'zipmap' if zipmap else 'array'}",
        lambda: sklearn_matrix(target, kind, zipmap=zipmap),
        score,
        lambda: _fitted(target, kind).predict(matrix()) == favorable,
        label=target,
        favorable=favorable,
    )


def two_logits() -> onnx.ModelProto:
    """Logits of the two classes, column 1 about the default."""
    constants = {
        "w": np.column_stack([-WEIGHTS, WEIGHTS]).astype(np.float32) / 2,
        "b": np.array([-SHIFT / 2, SHIFT / 2], np.float32),
    }
    nodes = [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Add", ["z", "b"], ["logits"])]
    proto = model_of(nodes, {"logits": TensorProto.FLOAT}, constants)
    proto.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 2
    return proto


def points(*, decides: bool = False, sign: float = -1.0) -> onnx.ModelProto:
    """600 points less 50 for a unit of the logit of default (or more), and beside them at will a decision at 640."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Add", ["z", "b"], ["points"])]
    constants = {
        "w": (np.float32(50 * sign) * WEIGHTS).reshape(4, 1),
        "b": np.array([600 + 50 * sign * SHIFT], np.float32),
        "t": np.array([[640]], np.float32),
    }
    outputs = {"points": TensorProto.FLOAT}
    if decides:
        nodes += [
            helper.make_node("Less", ["points", "t"], ["below"]),
            helper.make_node("Not", ["below"], ["ok"]),
            helper.make_node("Cast", ["ok"], ["approve"], to=TensorProto.INT64),
        ]
        outputs = {"approve": TensorProto.INT64, **outputs}
    return model_of(nodes, outputs, constants)


def points_of(sign: float = -1.0) -> np.ndarray[Any, Any]:
    """The points as the file computes them."""
    return np.asarray(matrix() @ (np.float32(50 * sign) * WEIGHTS) + np.float32(600 + 50 * sign * SHIFT))


def catboost_like() -> onnx.ModelProto:
    """Trees as CatBoost writes them: IR version 3, a label, a ZipMap of codes, an initializer that is no input."""
    lightgbm_like = {
        "nodes_treeids": [0] * 3 + [1] * 3,
        "nodes_nodeids": [0, 1, 2] * 2,
        "nodes_featureids": [0, 0, 0, 1, 0, 0],
        "nodes_values": [0.4, 0.0, 0.0, -0.1, 0.0, 0.0],
        "nodes_modes": ["BRANCH_GT", "LEAF", "LEAF"] * 2,
        "nodes_truenodeids": [1, 0, 0] * 2,
        "nodes_falsenodeids": [2, 0, 0] * 2,
        "class_treeids": [0, 0, 1, 1],
        "class_nodeids": [1, 2, 1, 2],
        "class_ids": [0] * 4,
        "class_weights": [0.8, -0.9, 0.5, -0.6],
        "post_transform": "LOGISTIC",
        "base_values": [-0.2],
        "classlabels_int64s": [0, 1],
    }
    nodes = [
        helper.make_node("Mul", ["features", "one"], ["scaled"]),
        helper.make_node(
            "TreeEnsembleClassifier", ["scaled"], ["label", "probability_tensor"], domain="ai.onnx.ml", **lightgbm_like
        ),
        helper.make_node(
            "ZipMap", ["probability_tensor"], ["probabilities"], domain="ai.onnx.ml", classlabels_int64s=[0, 1]
        ),
    ]
    chances = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    graph = helper.make_graph(
        nodes,
        "CatBoostModel",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["N", 4])],
        [
            helper.make_tensor_value_info("label", TensorProto.INT64, ["N"]),
            helper.make_value_info("probabilities", helper.make_sequence_type_proto(chances)),
        ],
        [numpy_helper.from_array(np.ones(1, np.float32), "one")],
    )
    opsets = [helper.make_opsetid("", 9), helper.make_opsetid("ai.onnx.ml", 2)]
    return helper.make_model(graph, producer_name="CatBoost", opset_imports=opsets, ir_version=3)


def _trees() -> np.ndarray[Any, Any]:
    x = matrix()
    margin = np.where(x[:, 0] > np.float32(0.4), 0.8, -0.9) + np.where(x[:, 1] > np.float32(-0.1), 0.5, -0.6) - 0.2
    return np.asarray(1 / (1 + np.exp(-margin)))


MIXED = ("sex", *NUMBERS)


def _pipeline() -> Any:
    import pandas as pd
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    encode = ColumnTransformer(
        [("text", OneHotEncoder(sparse_output=False), ["sex"]), ("number", StandardScaler(), list(NUMBERS))]
    )
    frame = pd.DataFrame({name: people()[name] for name in MIXED})
    return make_pipeline(encode, LogisticRegression()).fit(frame, people()["word"]), frame


def _several_inputs(sex: str = "sex") -> onnx.ModelProto:
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType

    model, _ = _pipeline()
    types = [("sex", StringTensorType([None, 1])), *((name, FloatTensorType([None, 1])) for name in NUMBERS)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        proto = convert_sklearn(model, initial_types=types, target_opset={"": 17, "ai.onnx.ml": 3})
    for value in (*proto.graph.input, *(node for node in proto.graph.node)):
        if isinstance(value, onnx.NodeProto):
            value.input[:] = [sex if name == "sex" else name for name in value.input]
        elif value.name == "sex":
            value.name = sex
    return proto


def _ours(**more: Any) -> onnx.ModelProto:
    from fairkit import to_onnx

    model, frame = _pipeline()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return onnx.load_from_string(to_onnx(model, frame, **more))


def _of_pipeline() -> np.ndarray[Any, Any]:
    model, frame = _pipeline()
    return np.asarray(model.predict_proba(frame)[:, 0])


def labels_only(target: str) -> onnx.ModelProto:
    """A classifier of which only the label is left."""
    from skl2onnx.helpers.onnx_helper import select_model_inputs_outputs

    proto = sklearn_matrix(target, "logistic", zipmap=False)
    kept: onnx.ModelProto = select_model_inputs_outputs(proto, outputs=[proto.graph.output[0].name])
    return kept


def _decided_by(target: str) -> np.ndarray[Any, Any]:
    return np.asarray(_fitted(target, "logistic").predict(matrix()) == ("approved" if target == "word" else 0))


def _of_pipelines(name: str, build: Any) -> Export:
    return Export(
        name, build, _of_pipeline, lambda: _of_pipeline() > 0.5, label="word", favorable="approved", features=MIXED
    )


EXPORTS = (
    *(
        Export(f"approve ({kind}) beside p_default", lambda kind=kind: network(kind), good, decided_by_a_limit)
        for kind in ("bool",)
    ),
    Export(
        "approve (int64) beside p_default",
        lambda: network("int64"),
        good,
        decided_by_a_limit,
        options={"favorable_class": 1},
    ),
    Export(
        "approve (float) beside p_default",
        lambda: network("float"),
        good,
        decided_by_a_limit,
        options={"favorable_class": 1},
    ),
    Export("p_default alone", network, good, more_likely_good),
    Export("p_default in doubles", lambda: network(number=np.float64), good, more_likely_good),
    Export("the logit of p_default", lambda: network(score="logit"), good, more_likely_good),
    _sklearn("default", "logistic", zipmap=True),
    _sklearn("word", "logistic", zipmap=False),
    _sklearn("word", "forest", zipmap=True),
    Export(
        "points beside a decision",
        lambda: points(decides=True),
        lambda: 600 - 50 * logit(matrix()).astype(np.float64),
        lambda: points_of() >= 640,
        options={"favorable_class": 1},
    ),
    Export(
        "points with a threshold in points", points, points_of, lambda: points_of() >= 640, options={"threshold": 640.0}
    ),
    Export(
        "points of risk with a threshold in points",
        lambda: points(sign=1.0),
        lambda: -points_of(1.0),
        lambda: points_of(1.0) < 560,
        options={"threshold": 560.0},
    ),
    Export(
        "percent of default",
        lambda: model_of(
            [
                helper.make_node("MatMul", ["x", "w"], ["z0"]),
                helper.make_node("Add", ["z0", "b"], ["z"]),
                helper.make_node("Sigmoid", ["z"], ["p"]),
                helper.make_node("Mul", ["p", "hundred"], ["percent"]),
            ],
            {"percent": TensorProto.FLOAT},
            {"w": WEIGHTS.reshape(4, 1), "b": np.array([SHIFT], np.float32), "hundred": np.array([100], np.float32)},
        ),
        good,
        more_likely_good,
        options={"score_kind": "percent"},
    ),
    Export(
        "classes that the table names otherwise",
        lambda: sklearn_matrix("default", "logistic", zipmap=False),
        lambda: _fitted("default", "logistic").predict_proba(matrix())[:, 0],
        lambda: _fitted("default", "logistic").predict(matrix()) == 0,
        label="word",
        favorable="approved",
        options={"classes": ("approved", "denied")},
    ),
    Export(
        "a column that the model names otherwise",
        lambda: _several_inputs("gender"),
        _of_pipeline,
        lambda: _of_pipeline() > 0.5,
        label="word",
        favorable="approved",
        features=("sex", *NUMBERS),
        options={"rename": {"sex": "gender"}},
    ),
    Export("two logits", two_logits, good, more_likely_good),
    Export("as CatBoost writes it", catboost_like, lambda: 1 - _trees(), lambda: _trees() <= 0.5),
    _of_pipelines("several inputs and a zipmap", _several_inputs),
    _of_pipelines("fairkit.to_onnx, approved and denied", _ours),
    _of_pipelines("fairkit.to_onnx, favorable=approved", lambda: _ours(favorable="approved")),
    *(
        Export(
            f"labels only, of {target}",
            lambda target=target: labels_only(target),
            lambda: None,
            lambda target=target: _decided_by(target),
            label=target,
            favorable="approved" if target == "word" else 0,
        )
        for target in ("word", "default")
    ),
)
"""Binary files."""
