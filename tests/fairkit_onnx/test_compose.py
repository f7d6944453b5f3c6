"""Rules appended to graphs of every kind: the same numbers as in numpy, under plain onnxruntime."""

from __future__ import annotations

import io
import warnings

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from fairkit.data.roles import Sensitive
from fairkit.errors import ModelError
from fairkit.mitigators import Groups
from fairkit_onnx.write.compose import ScoreHead, compose
from fairkit_onnx.write.rules import GroupRule, Piece, learn_keys

ROWS = 400


@pytest.fixture(scope="module")
def columns():
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, ROWS)
    table = {f"x{i}": rng.normal(size=ROWS).astype(np.float32) for i in range(3)}
    age = rng.integers(18, 80, ROWS).astype(float)
    return table | {
        "sex": np.array(["F", "M"], dtype=object)[sex],
        "SEX": sex + 1,
        "age": age,
        "y": (table["x0"] + 0.5 * sex + rng.normal(size=ROWS) > 0).astype(int),
    }


def matrix(columns):
    return np.column_stack([columns[f"x{i}"] for i in range(3)])


def keys_of(columns, *parts):
    """The groups of some columns; a part is a name, or a name with bin edges."""
    names = tuple(part if isinstance(part, str) else part[0] for part in parts)
    edges = tuple(None if isinstance(part, str) else part[1] for part in parts)
    cells = [
        np.unique(columns[name], return_inverse=True)[1] if edge is None else np.digitize(columns[name], edge)
        for name, edge in zip(names, edges, strict=True)
    ]
    _, codes = np.unique(np.stack(cells), axis=1, return_inverse=True)
    groups = tuple(str(code) for code in range(codes.max() + 1))
    return learn_keys(columns, Groups(Sensitive(names, edges), groups, codes.ravel().astype(np.int64)))


def rules(keys):
    """One rule of each kind: ramps, steps, both mixed, and steps on corrected scores."""
    count = len(keys.names) + 1
    ramps = tuple((Piece(0.3 + 0.04 * k, 0.1 + 0.05 * k),) for k in range(count))
    steps = tuple((Piece(0.3 + 0.04 * k, 0, 0.4), Piece(0.6, 0, 0.6))[: 1 + k % 2] for k in range(count))
    mixed = tuple((Piece(0.4, 0.2, 0.5), Piece(0.55, 0, 0.3), Piece(0, 0, 0.1 * (k % 2))) for k in range(count))
    return {
        "ramps": GroupRule(keys=keys, pieces=ramps),
        "steps": GroupRule(keys=keys, pieces=steps),
        "mixed": GroupRule(keys=keys, pieces=mixed),
        "odds": GroupRule(keys=keys, pieces=steps, odds=tuple(np.linspace(0.4, 2.5, count))),
    }


def logistic(columns, labels=None):
    from sklearn.linear_model import LogisticRegression

    y = columns["y"] if labels is None else np.asarray(labels)[columns["y"]]
    return LogisticRegression().fit(matrix(columns), y)


def skl(model, columns, **options):
    from skl2onnx import to_onnx

    return to_onnx(model, matrix(columns)[:1], options=options if options else {"zipmap": False})


def torch_graph(outputs, *, free=True):
    import torch

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, outputs))
    buffer = io.BytesIO()
    axes = {"X": {0: "n"}, "logit": {0: "n"}} if free else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the exporter that needs no further package
        torch.onnx.export(
            net, torch.zeros(1, 3), buffer, input_names=["X"], output_names=["logit"], dynamic_axes=axes, dynamo=False
        )
    return onnx.load_from_string(buffer.getvalue())


def make_lightgbm(columns):
    import lightgbm
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    model = lightgbm.LGBMClassifier(n_estimators=5, num_leaves=7, verbose=-1, n_jobs=1).fit(
        matrix(columns).astype(np.float64), columns["y"]
    )
    return onnxmltools.convert_lightgbm(model, initial_types=[("X", FloatTensorType([None, 3]))])


def make_xgboost(columns):
    import onnxmltools
    import xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType

    model = xgboost.XGBClassifier(n_estimators=5, max_depth=3, n_jobs=1).fit(matrix(columns), columns["y"])
    return onnxmltools.convert_xgboost(model, initial_types=[("X", FloatTensorType([None, 3]))])


def make_forest(columns):
    from sklearn.ensemble import RandomForestClassifier

    return skl(
        RandomForestClassifier(n_estimators=5, max_depth=4, random_state=0).fit(matrix(columns), columns["y"]), columns
    )


def arithmetic(name, op, *, opset=13, shape=(None, 1), inputs=("x0", "x1")):
    """A graph of one column in, one score out, by hand."""
    nodes = [helper.make_node("Add", list(inputs), ["sum"]), helper.make_node(op, ["sum"], [name])]
    graph = helper.make_graph(
        nodes,
        "hand",
        [helper.make_tensor_value_info(i, TensorProto.FLOAT, shape) for i in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def sigmoid(values):
    return 1 / (1 + np.exp(-np.asarray(values, dtype=float)))


# each gives the graph, its score head, and the probability of the favorable label from its outputs
FORMS = {
    "matrix": (
        lambda c: skl(logistic(c), c),
        ScoreHead(output="probabilities", width=2, place=1),
        lambda out: out["probabilities"][:, 1],
    ),
    "zipmap of numbers": (
        lambda c: skl(logistic(c), c, zipmap=True),
        ScoreHead(output="output_probability", width=2, place=1),
        lambda out: np.array([row[1] for row in out["output_probability"]]),
    ),
    "zipmap of words": (
        lambda c: skl(logistic(c, ["refused", "good"]), c, zipmap=True),
        ScoreHead(output="output_probability", width=2, place=0),
        lambda out: np.array([row["good"] for row in out["output_probability"]]),
    ),
    "forest": (
        make_forest,
        ScoreHead(output="probabilities", width=2, place=0),
        lambda out: out["probabilities"][:, 0],
    ),
    "lightgbm": (
        make_lightgbm,
        ScoreHead(output="probabilities", width=2, place=1),
        lambda out: np.array([row[1] for row in out["probabilities"]]),
    ),
    "xgboost": (
        make_xgboost,
        ScoreHead(output="probabilities", width=2, place=1),
        lambda out: out["probabilities"][:, 1],
    ),
    "one logit": (
        lambda c: torch_graph(1),
        ScoreHead(output="logit", width=1, kind="logit"),
        lambda out: sigmoid(out["logit"][:, 0]),
    ),
    "two logits": (
        lambda c: torch_graph(2),
        ScoreHead(output="logit", width=2, place=0, kind="logit"),
        lambda out: sigmoid(out["logit"][:, 0].astype(float) - out["logit"][:, 1]),
    ),
    "bare probability of the other label": (
        lambda c: arithmetic("p", "Sigmoid"),
        ScoreHead(output="p", width=1, place=0),
        lambda out: 1 - out["p"][:, 0].astype(float),
    ),
    "a vector, columns as vectors": (
        lambda c: arithmetic("p", "Sigmoid", shape=(None,)),
        ScoreHead(output="p", width=1),
        lambda out: out["p"],
    ),
    "opset 8": (
        lambda c: arithmetic("p", "Sigmoid", opset=8),
        ScoreHead(output="p", width=1),
        lambda out: out["p"][:, 0],
    ),
}


def open_session(proto):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(proto, columns, u=None):
    session = open_session(proto)
    rows = len(columns["x0"])
    feeds = {}
    for entry in session.get_inputs():
        if entry.name == "u":
            feeds["u"] = np.zeros((rows, 1), np.float32) if u is None else u.reshape(-1, 1)
        elif entry.name in ("X", "input"):
            feeds[entry.name] = matrix(columns)
        else:
            kind = {"tensor(string)": object, "tensor(int64)": np.int64, "tensor(double)": np.float64}
            values = columns[entry.name].astype(kind.get(entry.type, np.float32))
            feeds[entry.name] = values if len(entry.shape) == 1 else values.reshape(-1, 1)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


@pytest.mark.parametrize("split", ["sex", "SEX", "age", "all"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_and_split_gives_what_numpy_gives(columns, form, split):
    make, head, probability = FORMS[form]
    base = make(columns)
    content = base.SerializeToString()
    before = run(base, columns)
    parts = {"age": [("age", (25.0, 60.0))], "all": ["sex", ("age", (40.0,)), "SEX"]}.get(split, [split])
    keys = keys_of(columns, *parts)
    u = np.random.default_rng(1).random(ROWS, dtype=np.float32)
    for kind, rule in rules(keys).items():
        after = run(compose(base, head, rule), columns, u)
        codes = keys.codes(columns)
        expected = rule.adjust(probability(before), codes)
        score = after["score"][:, 0].astype(np.float64)
        np.testing.assert_allclose(score, expected, atol=2e-7, err_msg=kind)
        h = rule.probability(score, codes)
        np.testing.assert_allclose(after["decision_probability"][:, 0], h, atol=1e-7, err_msg=kind)
        np.testing.assert_array_equal(after["decision"][:, 0], u < h.astype(np.float32), err_msg=kind)
        assert {name: value.shape for name, value in after.items() if name in ("score", "decision")} == {
            "score": (ROWS, 1),
            "decision": (ROWS, 1),
        }
        for name, value in before.items():
            if isinstance(value, list):
                assert after[name] == value
            else:
                np.testing.assert_array_equal(after[name], value)
    assert base.SerializeToString() == content


@pytest.mark.parametrize("rows", [1, 2, 7, ROWS])
def test_every_batch_size_gives_the_same(columns, rows):
    rule = rules(keys_of(columns, "sex", ("age", (40.0,))))["mixed"]
    model = compose(make_forest(columns), FORMS["forest"][1], rule)
    whole = run(model, columns)["decision_probability"]
    parts = [
        run(model, {name: values[start : start + rows] for name, values in columns.items()})
        for start in range(0, min(ROWS, 5 * rows), rows)
    ]
    got = np.concatenate([part["decision_probability"] for part in parts])
    np.testing.assert_allclose(got, whole[: len(got)], atol=1e-6)


def test_a_fixed_batch_of_one(columns):
    rule = rules(keys_of(columns, "sex"))["ramps"]
    model = compose(torch_graph(1, free=False), FORMS["one logit"][1], rule)
    free = run(compose(torch_graph(1), FORMS["one logit"][1], rule), columns)
    one = {name: values[5:6] for name, values in columns.items()}
    for name in ("score", "decision_probability"):
        np.testing.assert_allclose(run(model, one)[name], free[name][5:6], atol=1e-6)


def test_unseen_and_missing_values_get_the_pooled_rule(columns):
    keys = keys_of(columns, "sex", "SEX", ("age", (40.0,)))
    rule = rules(keys)["ramps"]
    changed = {name: values[:6].copy() for name, values in columns.items()}
    changed["sex"] = np.array(["F", "Other", "", "M", "F", "M"], dtype=object)
    changed["SEX"] = np.array([1, 1, 1, 7, np.nan, 2], dtype=np.float64)
    changed["age"] = np.array([30, 30, 30, 30, 30, np.nan])
    codes = keys.codes(changed)
    assert codes[0] < len(keys.names)
    assert (codes[1:] == len(keys.names)).all()
    after = run(compose(make_forest(columns), FORMS["forest"][1], rule), changed)
    h = rule.probability(after["score"][:, 0], codes)
    np.testing.assert_allclose(after["decision_probability"][:, 0], h, atol=1e-7)


def test_missing_values_can_be_a_group(columns):
    sex = columns["sex"].copy()
    sex[::5] = None
    age = columns["age"].copy()
    age[1::7] = np.nan
    table = columns | {"sex": sex, "age": age}
    text = np.array([str(value) for value in sex])
    years = np.where(np.isnan(age), 2, age >= 40)
    _, codes = np.unique(np.stack([np.unique(text, return_inverse=True)[1], years]), axis=1, return_inverse=True)
    names = tuple(str(code) for code in range(codes.max() + 1))
    groups = Groups(Sensitive(("sex", "age"), (None, (40.0,))), names, codes.ravel().astype(np.int64))
    keys = learn_keys(table, groups)
    np.testing.assert_array_equal(keys.codes(table), groups.codes)
    rule = rules(keys)["steps"]
    fed = table | {"sex": np.where(np.equal(sex, None), "", sex)}
    after = run(compose(make_forest(columns), FORMS["forest"][1], rule), fed)
    h = rule.probability(after["score"][:, 0], groups.codes)
    np.testing.assert_allclose(after["decision_probability"][:, 0], h, atol=1e-7)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.INT64, TensorProto.DOUBLE, TensorProto.STRING])
def test_a_sensitive_column_that_is_an_input_already_is_used(columns, kind):
    nodes = [helper.make_node("Sigmoid", ["x0"], ["p"]), helper.make_node("Identity", ["SEX"], ["echo"])]
    graph = helper.make_graph(
        nodes,
        "hand",
        [
            helper.make_tensor_value_info("x0", TensorProto.FLOAT, [None, 1]),
            helper.make_tensor_value_info("SEX", kind, [None, 1]),
        ],
        [
            helper.make_tensor_value_info("p", TensorProto.FLOAT, [None, 1]),
            helper.make_tensor_value_info("echo", kind, [None, 1]),
        ],
    )
    base = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    keys = keys_of(columns, "SEX")
    rule = rules(keys)["ramps"]
    model = compose(base, ScoreHead(output="p"), rule)
    assert [entry.name for entry in model.graph.input] == ["x0", "SEX", "u"]
    text = columns | {"SEX": columns["SEX"].astype(str).astype(object)}
    after = run(model, text if kind == TensorProto.STRING else columns)
    h = rule.probability(after["score"][:, 0], keys.codes(columns))
    np.testing.assert_allclose(after["decision_probability"][:, 0], h, atol=1e-7)


def test_an_input_under_another_name_is_used(columns):
    base = arithmetic("p", "Sigmoid", inputs=("x0", "marital_status"))
    table = columns | {"marital-status": columns["SEX"]}
    rule = rules(keys_of(table, "marital-status"))["ramps"]
    model = compose(base, ScoreHead(output="p"), rule, inputs={"marital-status": "marital_status"})
    assert [entry.name for entry in model.graph.input] == ["x0", "marital_status", "u"]
    assert "marital-status" in [e.name for e in compose(base, ScoreHead(output="p"), rule).graph.input]


def test_a_score_of_nan_is_no_decision(columns):
    table = columns | {"x0": np.where(np.arange(ROWS) < 3, np.nan, columns["x0"]).astype(np.float32)}
    for rule in rules(keys_of(columns, "sex")).values():
        after = run(compose(arithmetic("p", "Sigmoid"), ScoreHead(output="p"), rule), table)
        assert np.isnan(after["decision_probability"][:3]).all()
        assert not after["decision"][:3].any()
        assert not np.isnan(after["decision_probability"][3:]).any()


def test_an_output_in_the_way_is_renamed_and_kept(columns):
    base = arithmetic("score", "Sigmoid")
    rule = rules(keys_of(columns, "sex"))["odds"]
    after = run(compose(base, ScoreHead(output="score"), rule), columns)
    np.testing.assert_array_equal(after["base_score"], run(base, columns)["score"])
    assert not np.allclose(after["score"], after["base_score"])


def test_values_used_inside_branches_are_renamed_too(columns):
    branch = [
        helper.make_graph(
            [helper.make_node(op, ["score"], [out])],
            out,
            [],
            [helper.make_tensor_value_info(out, TensorProto.FLOAT, None)],
        )
        for op, out in (("Identity", "kept"), ("Neg", "turned"))
    ]
    nodes = [
        helper.make_node("Sigmoid", ["x0"], ["score"]),
        helper.make_node("Constant", [], ["yes"], value=helper.make_tensor("yes", TensorProto.BOOL, [], [True])),
        helper.make_node("If", ["yes"], ["copy"], then_branch=branch[0], else_branch=branch[1]),
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 1]) for name in ("score", "copy")]
    graph = helper.make_graph(
        nodes, "hand", [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [None, 1])], outputs
    )
    base = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    after = run(compose(base, ScoreHead(output="score"), rules(keys_of(columns, "sex"))["ramps"]), columns)
    np.testing.assert_array_equal(after["copy"], after["base_score"])


def test_an_old_label_encoder_is_left_alone(columns):
    encoder = helper.make_node(
        "LabelEncoder", ["sex"], ["code"], domain="ai.onnx.ml", classes_strings=["F", "M"], default_int64=0
    )
    nodes = [
        encoder,
        helper.make_node("Cast", ["code"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Sigmoid", ["number"], ["p"]),
    ]
    graph = helper.make_graph(
        nodes,
        "hand",
        [helper.make_tensor_value_info("sex", TensorProto.STRING, [None, 1])],
        [helper.make_tensor_value_info("p", TensorProto.FLOAT, [None, 1])],
    )
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("ai.onnx.ml", 1)]
    base = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    keys = keys_of(columns, "sex")
    rule = rules(keys)["ramps"]
    after = run(compose(base, ScoreHead(output="p"), rule), columns)
    h = rule.probability(after["score"][:, 0], keys.codes(columns))
    np.testing.assert_allclose(after["decision_probability"][:, 0], h, atol=1e-7)


def test_operators_that_changed_meaning_are_not_carried_over(columns):
    rule = rules(keys_of(columns, "sex"))["ramps"]
    old = arithmetic("p", "Cast", opset=8)
    old.graph.node[1].attribute.append(helper.make_attribute("to", TensorProto.FLOAT))
    with pytest.raises(ModelError, match=r"opset 8, whose operator Cast.*opset 9 or later"):
        compose(old, ScoreHead(output="p"), rule)


@pytest.mark.parametrize(
    ("base", "message"),
    [
        (arithmetic("p", "Sigmoid", inputs=("x0", "u")), "input 'u'.*rename that column"),
        (arithmetic("p", "Sigmoid", inputs=("x0", "score")), "input 'score'.*rename that column"),
        (arithmetic("sex", "Sigmoid"), "uses the name 'sex'"),
    ],
)
def test_names_in_the_way(columns, base, message):
    rule = rules(keys_of(columns, "sex"))["ramps"]
    with pytest.raises(ModelError, match=message):
        compose(base, ScoreHead(output=base.graph.output[0].name), rule)


def test_a_randomized_model_is_not_randomized_again(columns):
    rule = rules(keys_of(columns, "sex"))["ramps"]
    once = compose(make_forest(columns), FORMS["forest"][1], rule)
    with pytest.raises(ModelError, match="randomized rule already"):
        compose(once, FORMS["forest"][1], rule)


def test_text_where_the_model_takes_numbers(columns):
    base = arithmetic("p", "Sigmoid", inputs=("x0", "sex"))
    with pytest.raises(ModelError, match=r"'sex' holds text.*takes numbers"):
        compose(base, ScoreHead(output="p"), rules(keys_of(columns, "sex"))["ramps"])


def test_an_unknown_output_is_refused(columns):
    with pytest.raises(ModelError, match="no output 'q'"):
        compose(arithmetic("p", "Sigmoid"), ScoreHead(output="q"), rules(keys_of(columns, "sex"))["ramps"])


def test_metadata_of_the_base_stays(columns):
    base = arithmetic("p", "Sigmoid")
    base.metadata_props.add(key="owner", value="somebody")
    model = compose(base, ScoreHead(output="p"), rules(keys_of(columns, "sex"))["ramps"])
    assert [(entry.key, entry.value) for entry in model.metadata_props] == [("owner", "somebody")]
