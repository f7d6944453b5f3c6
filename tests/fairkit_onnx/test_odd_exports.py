"""Exports that nobody foresaw: what the audit says is what plain scikit-learn computes, or it is a question."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import fairkit

ROWS = 2_000
FEATURES = ["x0", "x1", "x2", "x3"]
TIERS = np.array(["basic", "silver", "gold", "platinum"], dtype=object)
OPSET = {"": 17, "ai.onnx.ml": 3}


@pytest.fixture(scope="module")
def people() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 4)).astype(np.float32)
    good = (x[:, 0] + 0.5 * x[:, 1] + rng.normal(size=ROWS) > 0.3).astype(int)
    tier = np.clip(np.round(1.2 * x[:, 0] + 0.6 * rng.normal(size=ROWS) + 1.5), 0, 3).astype(int)
    return {
        **{name: x[:, place] for place, name in enumerate(FEATURES)},
        "sex": np.where(x[:, 1] > 0, "f", "m").astype(object),
        "y": good,
        "word": np.where(good, "approved", "denied").astype(object),
        "default": 1 - good,
        "tier": TIERS[tier],
        "code": tier,
    }


def matrix(people: dict[str, Any]) -> np.ndarray:
    return np.column_stack([people[name] for name in FEATURES])


def audited(people: dict[str, Any], model: Any, label: str, favorable: Any = None, **options: Any) -> fairkit.Report:
    data = fairkit.load_data(people, label=label, favorable=favorable, sensitive=["sex"], features=FEATURES)
    return fairkit.audit(model, data, options=fairkit.ModelOptions(**options))


def accuracy(people: dict[str, Any], model: Any, label: str, favorable: Any = None, **options: Any) -> float:
    found = audited(people, model, label, favorable, **options).find("accuracy").value
    assert found is not None
    return found


def exported(model: Any, people: dict[str, Any], **options: Any) -> onnx.ModelProto:
    from skl2onnx import to_onnx

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        proto: onnx.ModelProto = to_onnx(model, matrix(people)[:1], target_opset=OPSET, **options)
    return proto


ARRAY = {"options": {"zipmap": False}}


@pytest.mark.long
@pytest.mark.parametrize("more", [{}, ARRAY])
@pytest.mark.parametrize(("label", "favorable"), [("y", 1), ("word", "approved")])
def test_a_binary_model_of_codes(people: dict[str, Any], more: Any, label: str, favorable: Any) -> None:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression().fit(matrix(people), people["y"])
    truth = (model.predict(matrix(people)) == people["y"]).mean()
    assert accuracy(people, exported(model, people, **more), label, favorable) == pytest.approx(truth)
    assert accuracy(people, model, label, favorable) == pytest.approx(truth)


@pytest.mark.long
def test_codes_of_classes_are_held_against_the_data(people: dict[str, Any]) -> None:
    """0 = basic, 1 = silver, 2 = gold, 3 = platinum: not the alphabet."""
    from sklearn.ensemble import RandomForestClassifier

    model = RandomForestClassifier(10, max_depth=5, random_state=0).fit(matrix(people), people["code"])
    truth = (model.predict(matrix(people)) == people["code"]).mean()
    for one in (exported(model, people, **ARRAY), exported(model, people), model):
        assert accuracy(people, one, "tier") == pytest.approx(truth, abs=2e-3)
        assert accuracy(people, one, "tier", classes=tuple(TIERS)) == pytest.approx(truth, abs=2e-3)
        assert accuracy(people, one, "code") == pytest.approx(truth, abs=2e-3)
        with pytest.raises(fairkit.ParameterError, match="favorable_class=3 means nothing"):
            audited(people, one, "tier", favorable_class=3)
        with pytest.raises(fairkit.ModelError, match="names 2 values"):
            audited(people, one, "tier", classes=("basic", "gold"))
        with pytest.raises(fairkit.ModelError, match="'bronze', which the label never has"):
            audited(people, one, "tier", classes=("basic", "bronze", "gold", "platinum"))
    note = " ".join(audited(people, model, "tier").model.notes)
    assert "basic, silver, gold, platinum (not the label's own order)" in note


def test_codes_that_the_data_does_not_tell_are_a_question(people: dict[str, Any]) -> None:
    from sklearn.dummy import DummyClassifier

    model = DummyClassifier(strategy="stratified", random_state=0).fit(matrix(people), people["code"])
    with pytest.raises(fairkit.ModelError, match="The data does not tell"):
        audited(people, model, "tier")


def test_catboost_audits_as_its_library_decides(people: dict[str, Any], tmp_path: Any) -> None:
    catboost = pytest.importorskip("catboost", reason="CatBoost is not installed: pip install catboost")
    for label, target, extra in (("tier", "code", {"loss_function": "MultiClass"}), ("word", "y", {})):
        model = catboost.CatBoostClassifier(iterations=20, depth=4, verbose=0, allow_writing_files=False, **extra)
        model.fit(matrix(people), people[target])
        model.save_model(str(tmp_path / f"{label}.onnx"), format="onnx")
        truth = (model.predict(matrix(people)).reshape(-1) == people[target]).mean()
        favorable = "approved" if label == "word" else None
        assert accuracy(people, tmp_path / f"{label}.onnx", label, favorable) == pytest.approx(truth, abs=2e-3)


def boosted(model: Any) -> onnx.ModelProto:
    from onnxmltools import convert_lightgbm
    from onnxmltools.convert.common.data_types import FloatTensorType

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        proto: onnx.ModelProto = convert_lightgbm(
            model, initial_types=[("input", FloatTensorType([None, 4]))], target_opset=15
        )
    return proto


def as_catboost(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a file as CatBoost writes it: trees with softmax, a label and a map of probabilities, codes as classes."""
    trees, zipped = (
        next(node for node in proto.graph.node if node.op_type == kind) for kind in ("TreeEnsembleClassifier", "ZipMap")
    )
    codes = next(list(a.ints) for a in zipped.attribute if a.name == "classlabels_int64s")
    score = helper.make_tensor_value_info("features", TensorProto.FLOAT, ["N", 4])
    label = helper.make_tensor_value_info("label", TensorProto.INT64, ["N"])
    kind = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    chances = helper.make_value_info("probabilities", helper.make_sequence_type_proto(kind))
    forest = onnx.NodeProto()
    forest.CopyFrom(trees)
    forest.input[:], forest.output[:] = ["features"], ["label", "probability_tensor"]
    zipper = helper.make_node(
        "ZipMap", ["probability_tensor"], ["probabilities"], domain="ai.onnx.ml", classlabels_int64s=codes
    )
    graph = helper.make_graph([forest, zipper], "CatBoostModel", [score], [label, chances])
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid("ai.onnx.ml", 2)]
    made: onnx.ModelProto = helper.make_model(graph, producer_name="CatBoost", opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(made)
    return made


@pytest.mark.long
def test_codes_of_a_file_as_catboost_writes_it(people: dict[str, Any]) -> None:
    """The export that was read wrong: 0 = basic, 1 = silver, 2 = gold, 3 = platinum, taken for the alphabet."""
    lightgbm = pytest.importorskip("lightgbm")
    pytest.importorskip("onnxmltools")
    model = lightgbm.LGBMClassifier(n_estimators=15, verbose=-1, n_jobs=1).fit(matrix(people), people["code"])
    proto = as_catboost(boosted(model))
    truth = (model.predict(matrix(people)) == people["code"]).mean()
    assert accuracy(people, proto, "tier") == pytest.approx(truth, abs=2e-3)
    assert accuracy(people, proto, "tier", classes=tuple(TIERS)) == pytest.approx(truth, abs=2e-3)
    wrong = accuracy(people, proto, "tier", classes=tuple(sorted(TIERS)))
    assert wrong < truth - 0.1
    with pytest.raises(fairkit.ParameterError, match="favorable_class=3 means nothing"):
        audited(people, proto, "tier", favorable_class=3)


def test_boosted_trees_that_classify_rank_and_regress(people: dict[str, Any]) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    pytest.importorskip("onnxmltools")
    x, few = matrix(people), {"n_estimators": 15, "verbose": -1, "n_jobs": 1}
    model = lightgbm.LGBMClassifier(**few).fit(x, people["code"])
    truth = (model.predict(x) == people["code"]).mean()
    assert accuracy(people, boosted(model), "tier") == pytest.approx(truth, abs=2e-3)
    ranker = lightgbm.LGBMRanker(**few).fit(x, people["y"], group=[20] * (ROWS // 20))
    with pytest.raises(fairkit.ModelError, match="a ranking, or a regression"):
        audited(people, boosted(ranker), "y", 1)
    regression = lightgbm.LGBMRegressor(**few | {"n_estimators": 60}).fit(x, people["y"])
    with pytest.raises(fairkit.ModelError, match=r"leave \[0, 1\]"):
        audited(people, boosted(regression), "y", 1)


def test_signs_are_no_labels(people: dict[str, Any]) -> None:
    """An IsolationForest's 1 means "usual", not the label 1."""
    from sklearn.ensemble import IsolationForest
    from sklearn.linear_model import LogisticRegression

    forest = IsolationForest(n_estimators=5, random_state=0).fit(matrix(people))
    signs = LogisticRegression().fit(matrix(people), 2 * people["y"] - 1)
    for model in (forest, signs):
        for one in (model, exported(model, people)):
            with pytest.raises(fairkit.ModelError, match="labels are -1 and 1"):
                audited(people, one, "y", 1)
    truth = (signs.predict(matrix(people)) == 2 * people["y"] - 1).mean()
    said = accuracy(people, exported(signs, people, **ARRAY), "y", 1, favorable_class=1)
    assert said == pytest.approx(truth)


def test_a_model_of_the_other_label_passes_nothing(people: dict[str, Any]) -> None:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression().fit(matrix(people), people["y"])
    data = fairkit.load_data(people, label="default", favorable=0, sensitive=["sex"], features=FEATURES)
    rule = fairkit.Rule(metric="demographic_parity_difference", sensitive="sex", max=0.9)
    report = fairkit.audit(exported(model, people, **ARRAY), data, policy=[rule])
    assert report.verdict == "inconclusive"
    assert "worse than chance" in report.warnings[0]
    options = fairkit.ModelOptions(favorable_class=0)  # the user says so: then it is a bad model
    report = fairkit.audit(exported(model, people, **ARRAY), data, policy=[rule], options=options)
    assert report.verdict == "pass"
    assert "worse than chance" in report.warnings[0]


def linear(kind: Any, weights: np.ndarray, shift: float, *, sigmoid: bool = False) -> onnx.ModelProto:
    element = {np.float32: TensorProto.FLOAT, np.float16: TensorProto.FLOAT16}[kind]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "b"], ["z" if sigmoid else "out"]),
    ]
    nodes += [helper.make_node("Sigmoid", ["z"], ["out"])] if sigmoid else []
    parts = [
        numpy_helper.from_array(weights.reshape(4, 1).astype(kind), "w"),
        numpy_helper.from_array(np.array([shift], dtype=kind), "b"),
    ]
    ends = [[helper.make_tensor_value_info(n, element, [None, w])] for n, w in (("x", 4), ("out", 1))]
    graph = helper.make_graph(nodes, "g", *ends, parts)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


WEIGHTS = np.array([1.6, 0.8, 0.0, 0.0])


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_bare_logits_are_decided_at_zero_or_asked_about(people: dict[str, Any], kind: Any) -> None:
    truth = ((matrix(people) @ WEIGHTS - 0.5 >= 0) == people["y"]).mean()
    assert accuracy(people, linear(kind, WEIGHTS, -0.5), "y", 1) == pytest.approx(truth, abs=2e-3)
    with pytest.raises(fairkit.ModelError, match="is it about the other label"):
        audited(people, linear(kind, -WEIGHTS, 0.5), "y", 1)
    with pytest.raises(fairkit.ModelError, match="As logits they would mean"):
        audited(people, linear(kind, WEIGHTS, 5.0), "y", 1)


def test_what_overflows_float16_is_named(people: dict[str, Any]) -> None:
    large = people | {"x2": people["x2"] * 1e5}
    with pytest.raises(fairkit.DataError, match="'x2' goes beyond it"):
        audited(large, linear(np.float16, WEIGHTS, -0.5), "y", 1)


def test_everybody_the_same_is_no_parity(people: dict[str, Any]) -> None:
    data = fairkit.load_data(people, label="y", favorable=1, sensitive=["sex"], features=FEATURES)
    rule = fairkit.Rule(metric="demographic_parity_difference", sensitive="sex", max=0.1)
    report = fairkit.audit(linear(np.float32, 0 * WEIGHTS, 3.0, sigmoid=True), data, policy=[rule])
    assert report.verdict == "inconclusive"
    assert report.warnings[0].startswith("All 2,000 rows get the favorable decision")


def named_inputs(names: list[str]) -> onnx.ModelProto:
    nodes = [helper.make_node("Sum", names, ["s"]), helper.make_node("Sigmoid", ["s"], ["score"])]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 1]) for name in names]
    outputs = [helper.make_tensor_value_info("score", TensorProto.FLOAT, [None, 1])]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_renamed_and_one_hot_columns(people: dict[str, Any]) -> None:
    model = named_inputs(["first", "x1"])
    with pytest.raises(fairkit.DataError, match=r"'first'.*`rename` COLUMN=first"):
        audited(people, model, "y", 1)
    score = 1 / (1 + np.exp(-(people["x0"] + people["x1"])))
    truth = ((score >= 0.5) == people["y"]).mean()
    assert accuracy(people, model, "y", 1, rename={"x0": "first"}) == pytest.approx(truth, abs=2e-3)
    for rename, said in (({"x9": "first"}, "no column 'x9'"), ({"x0": "frist"}, "no input 'frist'")):
        with pytest.raises(fairkit.ParameterError, match=said):
            audited(people, model, "y", 1, rename=rename)
    with pytest.raises(fairkit.DataError, match="one-hot columns of 'sex'"):
        audited(people, named_inputs(["x0", "sex_f", "sex_m"]), "y", 1)
    data = fairkit.load_data(people, label="y", favorable=1, sensitive=["sex"], features=["x0", "x1", "sex"])
    with pytest.raises(fairkit.DataError, match="sex one-hot encoded there would be 4"):
        fairkit.audit(linear(np.float32, WEIGHTS, -0.5), data)
