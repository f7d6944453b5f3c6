"""Files of other versions, precisions and makers: read as onnxruntime runs them, or one message names the node."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnxruntime
import pytest

import fairkit
from fairkit.errors import ModelError
from fairkit_onnx.structure.ensemble import read_ensemble

from .test_all_inputs import CHANCE, FLIP, SCORE, trusted

NAMES = ["sex", "age", "debts"]
helper = onnx.helper


def people():
    rng = np.random.default_rng(3)
    table = np.stack([rng.integers(0, 2, 240), rng.integers(20, 30, 240), rng.integers(0, 8, 240)], axis=1)
    level = table[:, 1] - 22 - table[:, 2] + 2 * table[:, 0] * (table[:, 2] > 3) + rng.normal(0, 1, 240)
    return table.astype(np.float32), level


GRID = np.array(list(itertools.product(range(2), range(20, 30), range(8))), dtype=np.float32)


def audit(path, **settings):
    import pandas as pd

    table, level = people()
    data = pd.DataFrame(table.astype(int), columns=NAMES).assign(y=(level > 0).astype(int))
    data.loc[len(data)] = [0, 20, 0, 0]
    data.loc[len(data)] = [1, 29, 7, 1]
    told = fairkit.load_data(data, label="y", favorable=1, sensitive=["sex"], features=NAMES)
    report = fairkit.audit(
        trusted(path),
        told,
        auditors=["all-inputs"],
        parameters={"all-inputs": {"columns": "sex", "people": 10, **settings}},
    )
    return {finding.metric: finding for finding in report.findings}


def everything(path, kind=np.float32):
    """The favorable class's score and the label of every input, by onnxruntime alone."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    label, score = session.run(None, {session.get_inputs()[0].name: GRID.astype(kind)})
    score = np.array([row[1] for row in score]) if isinstance(score, list) else score[:, -1]
    return label.reshape(2, -1), score.reshape(2, -1)


def agrees(path, kind=np.float32):
    found = audit(path)
    label, score = everything(path, kind)
    one = found.get(CHANCE, found[SCORE])
    largest = np.abs(score[0] - score[1]).max()
    assert one.interval[0] - 1e-5 <= largest <= one.interval[1] + 1e-6
    assert one.interval[1] - one.interval[0] < 1e-4
    witness = one.evidence["witness"]
    witness = witness[0] if isinstance(witness, list) else witness
    assert witness["score first"] - witness["score second"] == pytest.approx(largest, abs=1e-5)
    assert found[FLIP].interval == (float((label[0] != label[1]).any()),) * 2


def forest(classes=2, trees=4):
    from sklearn.ensemble import RandomForestClassifier

    table, level = people()
    return RandomForestClassifier(trees, max_depth=4, random_state=0).fit(
        table, np.digitize(level, [0, 3][: classes - 1])
    )


def written(model, path, kind="Float", opset=3):
    from skl2onnx import to_onnx
    from skl2onnx.common import data_types

    tensor = getattr(data_types, f"{kind}TensorType")([None, 3])
    opsets = {"": 15 if opset < 5 else 21, "ai.onnx.ml": opset}
    proto = to_onnx(model, initial_types=[("x", tensor)], target_opset=opsets, options={id(model): {"zipmap": False}})
    for one in proto.opset_import:
        if one.domain == "ai.onnx.ml":
            one.version = opset
    onnx.save(proto, path)
    return path


@pytest.mark.long
@pytest.mark.parametrize(("kind", "opset"), [("Float", 1), ("Float", 3), ("Double", 1), ("Double", 3)])
def test_classifiers_of_each_version_and_precision_are_what_onnxruntime_says(tmp_path, kind, opset):
    path = written(forest(), tmp_path / "m.onnx", kind, opset)
    agrees(path, np.float64 if kind == "Double" else np.float32)


@pytest.mark.long
def test_a_file_of_catboost_is_what_onnxruntime_says_and_with_a_bias_is_refused(tmp_path):
    catboost = pytest.importorskip("catboost", reason="catboost is not installed")
    table, level = people()
    for average in (False, True):
        model = catboost.CatBoostClassifier(
            iterations=12, depth=3, verbose=0, allow_writing_files=False, thread_count=1, boost_from_average=average
        )
        model.fit(table, (level > 0).astype(int)).save_model(str(tmp_path / f"{average}.onnx"), format="onnx")
        same = np.allclose(
            everything(tmp_path / f"{average}.onnx")[1].ravel(), model.predict_proba(GRID)[:, 1], atol=1e-6
        )
        if average:
            assert not same, "onnxruntime now adds CatBoost's bias as CatBoost does: read it"
    agrees(tmp_path / "False.onnx")
    with pytest.raises(ModelError, match="boost_from_average=False"):
        audit(tmp_path / "True.onnx")


def graph(nodes, path, opset, kind=onnx.TensorProto.FLOAT, last="y"):
    inputs = [helper.make_tensor_value_info("x", kind, [None, 3])]
    output = helper.make_tensor_value_info(last, onnx.TensorProto.FLOAT, [None, 1])
    made = helper.make_graph(nodes, "odd", inputs, [output])
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid("ai.onnx.ml", opset)]
    onnx.save(helper.make_model(made, opset_imports=opsets, ir_version=8), path)
    return path


TREE = {
    "n_targets": 1, "nodes_treeids": [0] * 5, "nodes_nodeids": [0, 1, 2, 3, 4], "nodes_featureids": [2, 0, 0, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 3, 0, 0],
    "nodes_falsenodeids": [2, 0, 4, 0, 0], "target_treeids": [0] * 3, "target_nodeids": [1, 3, 4],
    "target_ids": [0] * 3,
}  # fmt: skip


def test_numbers_in_double_precision_are_compared_so(tmp_path):
    """Between a threshold and the next float32 number lie doubles that go to the other side."""
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", nodes_values=[3.25, 0.0, 0.5, 0.0, 0.0],
        target_weights=[0.5, 0.25, 0.75], **TREE,
    )  # fmt: skip
    path = graph([node], tmp_path / "m.onnx", 3, onnx.TensorProto.DOUBLE)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    just = np.array([[0, 25, 3.25 + 1e-9], [1, 25, 3.25 + 1e-9]])
    assert session.run(None, {"x": just})[0].ravel().tolist() == [0.25, 0.75]
    found = audit(path, domain={"debts": f"3.25:{3.25 + 1e-9!r}"})
    assert found[SCORE].interval == pytest.approx((0.5, 0.5), abs=1e-5)
    assert audit(path, domain={"debts": "0:3.25"})[SCORE].interval[1] < 1e-5


def newer(seed, *, double=False, modes=range(7), most=8, **told):
    """Random trees of opset 5 over three features."""
    rng = np.random.default_rng(seed)
    nodes, weights, sets = [], [], {}

    def leaf():
        weights.append(float(rng.normal()))
        return len(weights) - 1, 1

    def grow(depth):
        place, mode = len(nodes), int(rng.choice(list(modes)))
        nodes.append(None)
        if mode == 6:
            sets[place] = [float(v) for v in rng.choice(most, int(rng.integers(1, 5)), replace=False)]
        sides = [leaf() if depth == 0 else (grow(depth - 1), 0) for _ in range(2)]
        low, high = [(0, 2), (20, 30), (0, 8)][feature := int(rng.integers(3))]
        nodes[place] = (mode, feature, float(rng.integers(low, high)), *sides, int(rng.random() < 0.5))
        if mode == 6:
            sets[place] = [v if feature == 2 or v >= 8 else low + v for v in sets[place]]
        return place

    roots = [grow(2) for _ in range(4)]
    kind = onnx.TensorProto.DOUBLE if double else onnx.TensorProto.FLOAT
    tensor = lambda values, of=kind: helper.make_tensor("", of, [len(values)], values)  # noqa: E731 -- short
    mode, feature, split, yes, no, missing = zip(*nodes, strict=True)
    members = [v for place in sorted(sets) for v in (*sets[place], float("nan"))]
    if members:
        told["membership_values"] = tensor(members)
    return helper.make_node(
        "TreeEnsemble", ["x"], ["y"], name="newer", domain="ai.onnx.ml", n_targets=1, tree_roots=roots,
        **{"aggregate_function": 1, "post_transform": 0, **told}, nodes_featureids=feature, nodes_splits=tensor(split),
        nodes_modes=tensor(mode, onnx.TensorProto.UINT8), nodes_truenodeids=[n for n, _ in yes],
        nodes_trueleafs=[leaf for _, leaf in yes], nodes_falsenodeids=[n for n, _ in no],
        nodes_falseleafs=[leaf for _, leaf in no], nodes_missing_value_tracks_true=missing,
        leaf_targetids=[0] * len(weights), leaf_weights=tensor(weights),
    )  # fmt: skip


def read_rows(ensemble, rows):
    """The sum at rows of features, node by node."""
    found = np.full(len(rows), ensemble.base)
    for root in ensemble.roots.tolist():
        waiting = [(root, np.arange(len(rows)))]
        while waiting:
            node, some = waiting.pop()
            if ensemble.mode[node] == 0:
                found[some] += ensemble.value[node]
                continue
            side = ensemble.goes_yes(node, rows[some, ensemble.feature[node]])
            waiting += [(int(ensemble.yes[node]), some[side]), (int(ensemble.no[node]), some[~side])]
    return found


@pytest.mark.parametrize("told", [{}, {"modes": [0, 6]}, {"modes": [6], "most": 60}, {"double": True, "most": 45},
                                  {"modes": range(6), "aggregate_function": 0}])  # fmt: skip
def test_trees_of_opset_five_are_read_as_onnxruntime_runs_them(tmp_path, told):
    """Whole numbers, fractions (of which onnxruntime drops the fraction where a set has a value above 30), NaN."""
    kind = np.float64 if told.get("double") else np.float32
    tensor = onnx.TensorProto.DOUBLE if told.get("double") else onnx.TensorProto.FLOAT
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.integers(0, 2, 600), rng.integers(20, 30, 600), rng.integers(-2, 60, 600)])
    rows = (rows + rng.choice([0, 0, 0.25], rows.shape)).astype(kind)
    rows[rng.random(rows.shape) < 0.1] = np.nan
    for seed in range(6):
        node = newer(seed, **told)
        inputs = [helper.make_tensor_value_info("x", tensor, [None, 3])]
        made = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", tensor, [None, 1])])
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 5)]
        session = onnxruntime.InferenceSession(
            helper.make_model(made, opset_imports=opsets, ir_version=9).SerializeToString(),
            providers=["CPUExecutionProvider"],
        )
        there = session.run(None, {"x": rows})[0].ravel()
        assert np.abs(there - read_rows(read_ensemble(node), rows)).max() < 1e-5


@pytest.mark.parametrize("double", [False, True])
def test_an_audit_of_opset_five_is_enumeration(tmp_path, double):
    kind = onnx.TensorProto.DOUBLE if double else onnx.TensorProto.FLOAT
    node = newer(11, double=double)
    made = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", kind, [None, 3])],
                             [helper.make_tensor_value_info("y", kind, [None, 1])])  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 5)]
    onnx.save(helper.make_model(made, opset_imports=opsets, ir_version=9), tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    score = session.run(None, {"x": GRID.astype(np.float64 if double else np.float32)})[0].reshape(2, -1)
    best = float(np.abs(score[0] - score[1]).max())
    found = audit(tmp_path / "m.onnx")
    assert best > 0.1
    assert found[SCORE].interval == pytest.approx((best, best), abs=1e-4)


@pytest.mark.parametrize("value", [2.0, 3.0, 6.0])
def test_an_equality_with_a_number_between_the_ends_is_a_cell_of_its_own(tmp_path, value):
    """As LightGBM's categorical splits are written: only one number of debts makes sex matter."""
    told = {**TREE, "nodes_modes": ["BRANCH_NEQ", *TREE["nodes_modes"][1:]]}
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", nodes_values=[value, 0.0, 0.5, 0.0, 0.0],
        target_weights=[0.5, 0.25, 0.75], **told,
    )  # fmt: skip
    path = graph([node], tmp_path / "m.onnx", 3)
    assert audit(path)[SCORE].interval == pytest.approx((0.5, 0.5), abs=1e-5)
    assert audit(path, domain={"debts": f"{value + 0.5}:7"})[SCORE].interval[1] < 1e-5


@pytest.mark.parametrize("keys", [["nodes_values"], ["nodes_values", "target_weights"]])
def test_tensors_of_doubles_are_read_as_onnxruntime_runs_them(tmp_path, keys):
    told = {"nodes_values": [3.25 + 1e-9, 0.0, 0.5, 0.0, 0.0], "target_weights": [0.5, 0.25, 0.75]}
    for key in keys:
        values = told.pop(key)
        told[f"{key}_as_tensor"] = helper.make_tensor("", onnx.TensorProto.DOUBLE, [len(values)], values)
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", **told, **TREE)
    path = graph([node], tmp_path / "m.onnx", 3, onnx.TensorProto.DOUBLE)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    rows = np.array([[0, 25, 3.25 + 5e-10], [0, 25, 3.25 + 2e-9], [1, 25, 3.25 + 2e-9]])
    there = session.run(None, {"x": rows})[0].ravel()
    assert np.abs(there - read_rows(read_ensemble(node), rows)).max() < 1e-6
    assert audit(path, domain={"debts": f"3.25:{3.25 + 5e-10!r}"})[SCORE].interval[1] < 1e-5
    assert audit(path, domain={"debts": f"3.25:{3.25 + 2e-9!r}"})[SCORE].interval == pytest.approx((0.5, 0.5), abs=1e-5)


def test_what_of_opset_five_is_not_read_is_one_message(tmp_path):
    for told, message in (
        ({"post_transform": 2}, "'newer' has the post_transform LOGISTIC, which onnxruntime leaves out"),
        ({"aggregate_function": 3}, "'newer' aggregates by MAX; SUM and AVERAGE are read"),
    ):
        node = newer(11, **told)
        if told.get("post_transform"):
            path = graph([node], tmp_path / "m.onnx", 5)
            with pytest.raises(ModelError, match=message):
                audit(path)
            continue
        with pytest.raises(ModelError, match=message):
            read_ensemble(node)
