"""Each operator of the table in onnxruntime: what the rule says of lengths and rows is what the runtime does."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from fairkit_onnx.file import open_session
from fairkit_onnx.plain import OPSETS
from fairkit_onnx.rowwise import RULES, Call, NotShownError, Tensor, apply, value_of

ROWS = 6
LENGTHS = (1, 2, 3, ROWS)  # a length that happens to be the number of rows is none
BOOLEAN = {"And", "Or", "Xor", "Not"}
COLUMNS = 3


class Drawn:
    """Inputs of one operator: arrays, of which those with an axis have the rows there."""

    def __init__(self, rng: np.random.Generator, version: int) -> None:
        self.rng, self.version = rng, version
        self.inputs: list[tuple[np.ndarray, int | None] | None] = []
        self.attributes: dict[str, Any] = {}

    def dims(self, ranks: tuple[int, ...] = (1, 2, 3)) -> list[int]:
        return self.rng.choice(LENGTHS, int(self.rng.choice(ranks))).tolist()

    def numbers(self, dims: Any, kind: str = "f") -> np.ndarray:
        values = self.rng.normal(1, 1, tuple(dims))
        if kind == "b":
            return values > 1
        if kind == "s":
            return self.rng.choice(np.array(["a", "b", "c"], object), tuple(dims))
        return values.astype(np.int64 if kind == "i" else np.float32)

    def rows(self, kind: str = "f", ranks: tuple[int, ...] = (1, 2, 3), axis: int | None = None) -> list[int]:
        dims = self.dims(ranks)
        place = int(self.rng.integers(len(dims))) if axis is None else axis
        dims[place] = ROWS
        self.inputs.append((self.numbers(dims, kind), place))
        return dims

    def constant(self, values: Any) -> None:
        self.inputs.append((np.asarray(values), None))

    def some(self, kind: str = "f") -> None:
        """Another operand: rows or a constant, whose lengths may fit."""
        if self.rng.random() < 0.5:
            self.rows(kind)
        else:
            self.constant(self.numbers(self.dims((0, 1, 2)), kind))

    def axis(self) -> int:
        return int(self.rng.integers(-3, 3))

    def listed(self, name: str, values: list[int], since: int) -> None:
        if self.version >= since:
            self.constant(np.array(values, np.int64))
        else:
            self.attributes[name] = values


def draw(name: str, rng: np.random.Generator, version: int) -> Drawn:
    """Draw inputs and attributes of an operator, right ones and wrong ones."""
    one = Drawn(rng, version)
    kind = "b" if name in BOOLEAN else "f"
    special = globals().get(f"_{name.lower()}")
    if special is not None:
        special(one)
    elif name.startswith("Reduce"):
        one.rows()
        if rng.random() < 0.9:
            one.listed("axes", [one.axis() for _ in range(int(rng.integers(1, 3)))], 13 if name == "ReduceSum" else 18)
        one.attributes["keepdims"] = int(rng.integers(2))
    elif name in ("Softmax", "LogSoftmax", "Hardmax", "LpNormalization", "ArgMax", "ArgMin"):
        one.rows()
        if rng.random() < 0.8:
            one.attributes["axis"] = one.axis()
    else:
        one.rows(kind)
        schema = onnx.defs.get_schema(name, version, "")
        for _ in range(1, min(schema.max_input, 3)):
            one.some(kind)
    return one


def _cast(one: Drawn) -> None:
    one.rows()
    one.attributes["to"] = int(one.rng.choice([1, 7, 9, 11]))


def _where(one: Drawn) -> None:
    one.rows("b")
    one.some()
    one.some()


def _mod(one: Drawn) -> None:
    one.rows()
    one.some()
    one.attributes["fmod"] = 1


def _clip(one: Drawn) -> None:
    one.rows()
    if one.version >= 11:
        one.constant(np.float32(0))
        one.constant(np.float32(1))


def _dropout(one: Drawn) -> None:
    one.rows()
    if one.version >= 12:
        one.constant(np.float32(0.5))
        one.constant(np.bool_(one.rng.random() < 0.3))


def _concat(one: Drawn) -> None:
    dims = one.rows()
    axis = one.inputs[0][1]  # type: ignore[index]
    for _ in range(2):
        same = one.rng.random() < 0.7
        one.inputs.append((one.numbers(dims if same else one.dims()), axis if same else None))
    one.attributes["axis"] = one.axis()


def _slice(one: Drawn) -> None:
    one.rows()
    count = int(one.rng.integers(1, 3))
    lists = {
        "starts": one.rng.integers(-4, 4, count),
        "ends": one.rng.integers(-4, 5, count),
        "axes": np.array([one.axis() for _ in range(count)]),
        "steps": one.rng.choice([1, 1, 2, -1], count),
    }
    for name, values in lists.items():
        if one.version >= 10 or name != "steps":
            one.listed(name, values.tolist(), 10)


def _split(one: Drawn) -> None:
    one.rows()
    one.attributes["axis"] = one.axis()
    if one.rng.random() < 0.7:
        one.listed("split", one.rng.choice([[1, 1], [1, 2], [2, 1], [3, 3]]).tolist(), 13)
    elif one.version >= 18:
        one.attributes["num_outputs"] = 2


def _gather(one: Drawn) -> None:
    one.attributes["axis"] = one.axis()
    if one.rng.random() < 0.5:
        one.rows()
        one.constant(one.rng.integers(0, 1, one.dims((0, 1, 2))))
    else:
        one.constant(one.numbers(one.dims()))
        one.inputs.append((one.rng.integers(0, 1, (ROWS, 2)), 0))


def _gatherelements(one: Drawn) -> None:
    dims = one.rows(ranks=(2, 3))
    dims[-1 if one.inputs[0][1] != len(dims) - 1 else 0] = 1  # type: ignore[index]
    one.inputs.append((np.zeros(dims, np.int64), one.inputs[0][1]))  # type: ignore[index]
    one.attributes["axis"] = one.axis()


def _cumsum(one: Drawn) -> None:
    one.rows()
    one.constant(np.int64(one.axis()))


def _topk(one: Drawn) -> None:
    one.rows()
    one.listed("k", [int(one.rng.integers(1, 4))], 10)
    if one.version < 10:
        one.attributes["k"] = one.attributes["k"][0]
    one.attributes["axis"] = one.axis()


def _squeeze(one: Drawn) -> None:
    one.rows()
    if one.rng.random() < 0.9:
        one.listed("axes", [one.axis()], 13)


def _unsqueeze(one: Drawn) -> None:
    one.rows()
    one.listed("axes", [one.axis() for _ in range(int(one.rng.integers(1, 3)))], 13)


def _transpose(one: Drawn) -> None:
    dims = one.rows()
    if one.rng.random() < 0.8:
        one.attributes["perm"] = one.rng.permutation(len(dims)).tolist()


def _reshape(one: Drawn) -> None:
    dims = one.rows(ranks=(1, 2, 3))
    shapes = [[-1], [-1, 1], [0, -1], [-1, dims[-1]], [1, -1], [0, 0, -1], [2, -1], [-1, 2], [ROWS, -1], [0, 1, -1]]
    one.constant(np.array(shapes[int(one.rng.integers(len(shapes)))], np.int64))


def _flatten(one: Drawn) -> None:
    one.rows()
    if one.rng.random() < 0.7:
        one.attributes["axis"] = int(one.rng.integers(-1 if one.version >= 11 else 0, 3))


def _matmul(one: Drawn) -> None:
    dims = one.rows(ranks=(1, 2, 3))
    one.constant(one.numbers([dims[-1], 2] if one.rng.random() < 0.7 else [dims[-1]]))


def _gemm(one: Drawn) -> None:
    dims = one.rows(ranks=(2,))
    one.attributes = {"transA": int(one.rng.integers(2)), "transB": int(one.rng.integers(2))}
    inner = dims[0 if one.attributes["transA"] else 1]
    one.constant(one.numbers([2, inner] if one.attributes["transB"] else [inner, 2]))
    one.some()


def _batchnormalization(one: Drawn) -> None:
    dims = one.rows(ranks=(2, 3))
    for _ in range(4):
        one.constant(np.abs(one.numbers([dims[1]])))
    if one.version >= 14:
        one.attributes["training_mode"] = int(one.rng.random() < 0.2)


def _layernormalization(one: Drawn) -> None:
    dims = one.rows(ranks=(2, 3))
    one.attributes["axis"] = one.axis()
    one.constant(one.numbers([dims[-1]]))


def _table(one: Drawn, kind: str = "f") -> None:
    if one.rng.random() < 0.85:
        one.inputs.append((one.numbers((ROWS, COLUMNS), kind), 0))
    else:
        one.rows(kind)


def _binarizer(one: Drawn) -> None:
    one.rows()


def _scaler(one: Drawn) -> None:
    _table(one)
    count = int(one.rng.choice([1, COLUMNS, 2]))
    one.attributes = {"offset": one.rng.random(count).tolist(), "scale": one.rng.random(count).tolist()}


def _imputer(one: Drawn) -> None:
    _table(one)
    one.attributes = {"imputed_value_floats": one.rng.random(int(one.rng.choice([1, COLUMNS, 2]))).tolist()}


def _normalizer(one: Drawn) -> None:
    _table(one)
    one.attributes = {"norm": str(one.rng.choice(["MAX", "L1", "L2"]))}


def _labelencoder(one: Drawn) -> None:
    one.rows("s")
    one.attributes = {"keys_strings": ["a", "b"], "values_floats": [1.0, 2.0]}
    if one.version == 1:
        one.attributes = {"classes_strings": ["a", "b"]}


def _onehotencoder(one: Drawn) -> None:
    one.rows("s")
    one.attributes = {"cats_strings": ["a", "b"], "zeros": 1}


def _featurevectorizer(one: Drawn) -> None:
    for _ in range(2):
        _table(one)
    one.attributes = {"inputdimensions": [COLUMNS, COLUMNS if one.rng.random() < 0.8 else 2]}


def _arrayfeatureextractor(one: Drawn) -> None:
    if one.rng.random() < 0.5:
        _table(one)
        one.constant(np.array([0, 2, 1], np.int64)[: int(one.rng.integers(1, 4))])
    else:
        one.constant(one.numbers(one.dims((1, 2))))
        dims = [(ROWS,), (ROWS, 1), (1, ROWS), (ROWS, 2)][int(one.rng.integers(4))]
        one.inputs.append((np.zeros(dims, np.int64), dims.index(ROWS)))


def _zipmap(one: Drawn) -> None:
    _table(one)
    one.attributes = {"classlabels_int64s": [4, 5, 6]}


def _classes(one: Drawn, sets: int = 0) -> int:
    count = sets or int(one.rng.integers(2, 4))
    if one.rng.random() < 0.5:
        one.attributes["classlabels_strings"] = ["x", "y", "z"][:count]
    else:
        one.attributes["classlabels_ints" if one.attributes.get("ints") else "classlabels_int64s"] = [3, 4, 5][:count]
    one.attributes.pop("ints", None)
    return count


def _linearclassifier(one: Drawn) -> None:
    _table(one)
    one.attributes["ints"] = True
    count = _classes(one)
    sets = 1 if count == 2 and one.rng.random() < 0.5 else count + int(one.rng.random() < 0.1)
    one.attributes |= {
        "coefficients": one.rng.normal(size=sets * COLUMNS + int(one.rng.random() < 0.1)).tolist(),
        "intercepts": one.rng.normal(size=sets).tolist(),
        "post_transform": str(one.rng.choice(["NONE", "LOGISTIC", "SOFTMAX"])),
    }


def _linearregressor(one: Drawn) -> None:
    _table(one)
    targets = int(one.rng.integers(1, 3))
    one.attributes = {"targets": targets, "coefficients": one.rng.normal(size=targets * COLUMNS).tolist()}
    if one.rng.random() < 0.5:
        one.attributes["intercepts"] = one.rng.normal(size=targets).tolist()


def _fitted(kind: str, one: Drawn) -> None:
    """A support vector machine as its converter writes it."""
    from skl2onnx import to_onnx
    from sklearn import svm

    x = one.rng.normal(size=(60, COLUMNS)).astype(np.float32)
    count = int(one.rng.integers(2, 4))
    y = np.clip(np.digitize(x[:, 0], [-0.3, 0.6]), 0, count - 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chances = {"probability": bool(one.rng.integers(2))} if kind == "SVC" else {}
        model = getattr(svm, kind)(**chances).fit(x, y if kind == "SVC" else x[:, 0])
        proto = to_onnx(
            model, x[:1], target_opset={"": 17, "ai.onnx.ml": 3}, options={"zipmap": False} if chances else {}
        )
    node = next(node for node in proto.graph.node if node.op_type.startswith("SVM"))
    one.attributes = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
    _table(one)


def _svmclassifier(one: Drawn) -> None:
    _fitted("SVC", one)


def _svmregressor(one: Drawn) -> None:
    _fitted("SVR", one)


def _stumps(one: Drawn, kind: str, outputs: int) -> None:
    """Some stumps, one in ten of them wrong."""
    trees = int(one.rng.integers(1, 4))
    wrong = one.rng.random() < 0.1
    one.attributes |= {
        "nodes_treeids": np.repeat(range(trees), 3).tolist(),
        "nodes_nodeids": [0, 1, 2] * trees,
        "nodes_featureids": [int(one.rng.integers(COLUMNS)) + (COLUMNS if wrong else 0), 0, 0] * trees,
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"] * trees,
        "nodes_values": [float(one.rng.normal(1)), 0.0, 0.0] * trees,
        "nodes_truenodeids": [1, 0, 0] * trees,
        "nodes_falsenodeids": [2, 0, 0] * trees,
        f"{kind}_treeids": np.repeat(range(trees), 2).tolist(),
        f"{kind}_nodeids": [1, 2] * trees,
        f"{kind}_ids": one.rng.integers(0, outputs, 2 * trees).tolist(),
        f"{kind}_weights": one.rng.normal(size=2 * trees).tolist(),
    }


def _treeensembleclassifier(one: Drawn) -> None:
    _table(one)
    _stumps(one, "class", _classes(one))


def _treeensembleregressor(one: Drawn) -> None:
    _table(one)
    one.attributes["n_targets"] = int(one.rng.integers(1, 3))
    _stumps(one, "target", one.attributes["n_targets"])


def _treeensemble(one: Drawn) -> None:
    _table(one)
    leaves = one.rng.normal(size=2).astype(np.float32)
    one.attributes = {
        "n_targets": 1,
        "nodes_featureids": [int(one.rng.integers(COLUMNS + 1))],
        "nodes_modes": numpy_helper.from_array(np.array([0], np.uint8)),
        "nodes_splits": numpy_helper.from_array(np.array([1], np.float32)),
        "nodes_truenodeids": [0],
        "nodes_falsenodeids": [1],
        "nodes_trueleafs": [1],
        "nodes_falseleafs": [1],
        "tree_roots": [0],
        "leaf_targetids": [0, 0],
        "leaf_weights": numpy_helper.from_array(leaves),
    }


def _taken(value: Any, axis: int | None, rows: list[int]) -> Any:
    if isinstance(value, list):
        return [value[row] for row in rows]
    return value if axis is None else np.take(value, rows, axis)


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, list):
        return all(
            one.keys() == other.keys() and np.allclose(list(one.values()), list(other.values()))
            for one, other in zip(left, right, strict=True)
        )
    if left.dtype.kind in "OUS":
        return bool((left == right).all())
    return left.shape == right.shape and np.allclose(left, right, rtol=1e-4, atol=1e-5, equal_nan=True)


def _model(domain: str, name: str, version: int, one: Drawn) -> Any:
    """The operator in a graph whose inputs are the rows, and what the rule says of it."""
    names = [f"i{place}" for place in range(len(one.inputs))]
    arrays = dict(zip(names, one.inputs, strict=True))
    constants = {key: numpy_helper.from_array(value, key) for key, (value, axis) in arrays.items() if axis is None}
    given = [
        Tensor(tuple(None if place == axis else length for place, length in enumerate(value.shape)), constants.get(key))
        for key, (value, axis) in arrays.items()
    ]
    outputs = 2 if name in ("Split", "TopK", "Dropout") or name.endswith("Classifier") else 1
    node = helper.make_node(name, names, [f"o{place}" for place in range(outputs)], domain=domain, **one.attributes)
    attributes = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
    claimed = apply(Call(node, version, given, attributes))
    inputs = [
        helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(value.dtype), [None] * value.ndim)
        for key, (value, axis) in arrays.items()
        if axis is not None
    ]
    graph = helper.make_graph(
        [node], "g", inputs, [helper.make_empty_tensor_value_info(key) for key in node.output], list(constants.values())
    )
    opsets = [helper.make_opsetid(domain, version)] + ([helper.make_opsetid("", 17)] if domain else [])
    fed = {key: (value, axis) for key, (value, axis) in arrays.items() if axis is not None}
    return claimed, helper.make_model(graph, opset_imports=opsets, ir_version=8), fed


TRIALS, ENOUGH = 60, 20


@pytest.mark.parametrize(
    ("domain", "name"), [key for key in RULES if key[1] != "Constant"], ids=lambda one: one or "onnx"
)
def test_a_row_wise_operator_answers_a_row_alone_as_in_company(domain: str, name: str) -> None:
    rng = np.random.default_rng([*name.encode()])
    shown = ran = 0
    for _ in range(TRIALS if not name.startswith("SVM") else 12):
        if ran == ENOUGH:
            break
        version = int(rng.choice(OPSETS[domain]))
        try:
            one = draw(name, rng, version)
            claimed, model, fed = _model(domain, name, version, one)
        except (NotShownError, onnx.defs.SchemaError):
            continue
        shown += 1
        try:
            session = open_session(model, threads=1)
        except Exception:
            continue
        try:
            whole = session.run(None, {key: value for key, (value, _) in fed.items()})
        except Exception:
            continue
        ran += 1
        order = rng.permutation(ROWS).tolist()
        for rows in ([int(rng.integers(ROWS))], order[:4], order):
            part = session.run(None, {key: _taken(value, axis, rows) for key, (value, axis) in fed.items()})
            for values, some, dims in zip(whole, part, claimed, strict=False):
                axis = dims.index(None) if None in dims else None
                if not isinstance(values, list):
                    assert values.shape == tuple(ROWS if one is None else one for one in dims), (
                        version,
                        one.attributes,
                    )
                assert _same(_taken(values, axis, rows), some), (version, one.attributes, one.inputs)
    assert ran >= 3, f"{ran} of {shown} shown were run"


def _two_stumps(**changed: list[Any]) -> Call:
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml")
    attributes = {
        "n_targets": 1,
        "nodes_treeids": [0, 0, 0, 1, 1, 1], "nodes_nodeids": [0, 1, 2] * 2, "nodes_featureids": [0, 0, 0, 2, 0, 0],
        "nodes_modes": [b"BRANCH_LEQ", b"LEAF", b"LEAF"] * 2, "nodes_values": [0.5, 0.0, 0.0] * 2,
        "nodes_truenodeids": [1, 0, 0] * 2, "nodes_falsenodeids": [2, 0, 0] * 2,
        "target_treeids": [0, 0, 1, 1], "target_nodeids": [1, 2, 1, 2], "target_ids": [0] * 4,
        "target_weights": [1.0, 2.0, 3.0, 4.0],
    }  # fmt: skip
    return Call(node, 3, [Tensor((None, COLUMNS))], attributes | changed)


WRONG_TREES = {
    "a column that there is not": {"nodes_featureids": [COLUMNS, 0, 0, 2, 0, 0]},
    "given twice": {"nodes_nodeids": [0, 1, 1, 0, 1, 2]},
    "a child that is not there": {"nodes_truenodeids": [7, 0, 0, 1, 0, 0]},
    "a number out of range": {"nodes_falsenodeids": [2**32 + 1, 0, 0, 2, 0, 0]},  # a node of the next tree, carried
    "a leaf that is not there": {"target_nodeids": [1, 0, 1, 2]},  # it is a branch
    "an output that there is not": {"target_ids": [0, 0, 0, 1]},
}


@pytest.mark.parametrize("why", WRONG_TREES)
def test_trees_that_ask_for_what_is_not_there_are_not_shown(why: str) -> None:
    assert apply(_two_stumps()) == [(None, 1)]
    with pytest.raises(NotShownError, match=why):
        apply(_two_stumps(**WRONG_TREES[why]))


def test_trees_of_leaves_alone_are_shown() -> None:
    alone = _two_stumps(nodes_modes=[b"LEAF"] * 6)
    assert apply(alone) == [(None, 1)]


def test_many_numbers_of_an_attribute_are_read_by_its_type() -> None:
    count = 2_000
    attribute = helper.make_attribute("nodes_values", [0.5] * count)
    attribute.ints.extend([7] * count)  # what the runtime does not read; `plain` refuses such a file
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml")
    call = Call(node, 3, [Tensor((None, COLUMNS))], {"nodes_values": value_of(attribute)})
    assert call.array("nodes_values").tolist() == [0.5] * count
