"""Networks as files of scikit-learn and torch write them: witnesses in plain onnxruntime, proofs, certificates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

import fairkit
from fairkit.errors import ModelError
from fairkit.results.rules import Rule
from fairkit_all_inputs.bounds.proof import packed
from fairkit_registry.evidence.recompute import compare_reports

from .conftest import NUMBERS, ROLES, TEXTS, convert, frame
from .test_all_inputs import CHANCE, FLIP, SCORE, again, audit, plain_scores, sides, trusted


@pytest.fixture(scope="module")
def nets(loans):
    """Networks of one and two layers."""
    from sklearn.neural_network import MLPClassifier

    for name, hidden, kind in (("net", (8, 5), "relu"), ("curved", (6,), "tanh")):
        model = MLPClassifier(hidden, activation=kind, max_iter=500, tol=3e-3, random_state=0, learning_rate_init=0.01)
        convert(model, loans / f"{name}.onnx")
    return loans


def random_pairs(rng, count):
    table = frame()
    rows = [
        {c: rng.choice(table[c]) if c in TEXTS else float(rng.uniform(table[c].min(), table[c].max()))
         for c in TEXTS + NUMBERS}
        for _ in range(count)
    ]  # fmt: skip
    return [[{**row, "sex": value} for row in rows] for value in ("female", "male")]


@pytest.mark.long
@pytest.mark.parametrize("name", ["net", "curved"])
def test_no_sampled_input_is_beyond_the_bounds_and_the_witness_is_real(nets, name):
    path = nets / f"{name}.onnx"
    found = audit(path, nets, boxes=300, people=50)
    flip, one = found[FLIP], found[CHANCE]
    first, second = sides(flip)
    labels, _ = plain_scores(path, [first, second])
    assert (flip.interval, labels[0], labels[1]) == ((1.0, 1.0), "approved", "denied")
    assert {c for c in first if first[c] != second[c]} == {"sex"}
    first, second = sides(one)
    _, scores = plain_scores(path, [first, second])
    low, high = one.interval
    assert scores[0] - scores[1] == pytest.approx(low, abs=1e-5)
    assert low < high <= 1.0
    pairs = random_pairs(np.random.default_rng(0), 1_000)
    all_scores = [plain_scores(path, rows)[1] for rows in pairs]
    assert np.abs(all_scores[0] - all_scores[1]).max() <= high
    logits = [np.log(s / (1 - s)) for s in all_scores]
    assert np.abs(logits[0] - logits[1]).max() <= found[SCORE].interval[1] + 1e-4


@pytest.mark.long
def test_more_boxes_narrow_the_interval(nets):
    widths = []
    for boxes in (1, 100, 400):
        low, high = audit(nets / "curved.onnx", nets, boxes=boxes, people=10)[SCORE].interval
        assert low <= high
        widths.append(high - low)
    assert widths[0] > widths[1] >= widths[2]


@pytest.mark.long
def test_a_certificate_of_a_network_is_checked_without_a_search(nets, monkeypatch):
    told = {"columns": "sex", "boxes": 150, "people": 20}
    data = fairkit.load_data(str(nets / "loans.csv"), **ROLES)
    model = nets / "net.onnx"
    report = fairkit.audit(trusted(model), data, auditors=["all-inputs"], parameters={"all-inputs": told})
    checked, public = again(model, nets, report.findings, monkeypatch, **told)
    assert list(compare_reports(report, checked)) == []
    place = next(i for i, one in enumerate(public) if one.metric == SCORE)
    finding = public[place]
    for change in (
        {"proved": finding.evidence["proved"] - 0.1},
        {"problem_sha256": "0" * 64},
        {"proof": packed({"0,1": [0], "1,0": [0]})},
    ):
        forged = replace(
            finding, evidence={**finding.evidence, **change}, interval=(finding.interval[0], finding.interval[1] - 0.1)
        )
        signed = replace(report, findings=(*public[:place], forged, *public[place + 1 :]))
        found, _ = again(model, nets, signed.findings, monkeypatch, search=True, **told)
        assert list(compare_reports(signed, found))


def network(path, nodes, constants):
    """A file of its own nodes after codes and scaled numbers: the matrix `x` of sex, age and debt ratio."""
    helper = onnx.helper
    first = [
        helper.make_node("LabelEncoder", ["sex"], ["code"], domain="ai.onnx.ml", keys_strings=["female", "male"],
                         values_floats=[0.0, 1.0], default_float=-1.0),
        helper.make_node("Concat", ["age", "debt_ratio"], ["numbers"], axis=1),
        helper.make_node("Scaler", ["numbers"], ["scaled"], domain="ai.onnx.ml", offset=[40.0, 0.5], scale=[0.05, 2.0]),
        helper.make_node("Concat", ["code", "scaled"], ["x"], axis=1),
    ]  # fmt: skip
    types = {"sex": onnx.TensorProto.STRING, "age": onnx.TensorProto.FLOAT, "debt_ratio": onnx.TensorProto.FLOAT}
    inputs = [helper.make_tensor_value_info(name, kind, [None, 1]) for name, kind in types.items()]
    output = helper.make_tensor_value_info("score", onnx.TensorProto.FLOAT, [None, None])
    tensors = [onnx.numpy_helper.from_array(np.asarray(v, dtype=np.float32), k) for k, v in constants.items()]
    graph = helper.make_graph([*first, *nodes], "network", inputs, [output], tensors)
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def gated(path, threshold, effect=0.25):
    """min(max(age', 0), 1) + effect · relu(2 sex + 2 age' - 3) - threshold: sex matters from age' = 1/2 on."""
    node = onnx.helper.make_node
    nodes = [
        node("Gemm", ["x", "w", "b"], ["a"]), node("Relu", ["a"], ["h"]), node("MatMul", ["h", "v"], ["c"]),
        node("Relu", ["c"], ["k"]), node("Gemm", ["k", "last", "minus"], ["y"]), node("Sigmoid", ["y"], ["score"]),
    ]  # fmt: skip
    w = [[0, 0, 2.0], [1.0, 1.0, 2.0], [0, 0, 0]]
    v = [[1.0, 0], [-1.0, 0], [0, 1.0]]
    constants = {"w": w, "b": [0, -1.0, -3.0], "v": v, "last": [[1.0], [effect]], "minus": [-threshold]}
    return network(path, nodes, constants)


@pytest.mark.long
def test_a_network_without_a_flip_is_proved_so_and_a_policy_passes(loans, tmp_path, monkeypatch):
    """Where sex matters the sum is at least 1/2: above a threshold of .4; .57 lies between the two at 51."""
    data = fairkit.load_data(str(loans / "loans.csv"), **ROLES)
    told = {"columns": "sex", "people": 20}
    model = gated(tmp_path / "sure.onnx", 0.4)
    report = fairkit.audit(
        trusted(model), data, auditors=["all-inputs"], parameters={"all-inputs": told},
        policy=[Rule(metric=FLIP, max=0.0)],
    )  # fmt: skip
    flip, score = report.findings[:2]
    assert (flip.interval, report.verdict) == ((0.0, 0.0), "pass")
    top = (frame()["age"].max() - 40) * 0.05
    assert score.interval == pytest.approx((0.25 * (2 * top - 1), 0.25 * (2 * top - 1)), abs=1e-4)
    checked, _ = again(model, loans, report.findings, monkeypatch, **told)
    assert checked.findings[0].interval == (0.0, 0.0)
    flips = audit(gated(tmp_path / "unsure.onnx", 0.57), loans, people=20)[FLIP]
    first, second = sides(flips)
    assert (flips.value, first["sex"], second["sex"]) == (1.0, "male", "female")
    assert first["age"] == 51


def test_a_column_without_a_weight_is_proved_at_once(loans, tmp_path):
    node = onnx.helper.make_node
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Relu", ["a"], ["h"]), node("MatMul", ["h", "v"], ["y"]),
             node("Sigmoid", ["y"], ["score"])]  # fmt: skip
    path = network(tmp_path / "blind.onnx", nodes, {"w": [[0, 0], [1.0, 2], [1.0, -1]], "v": [[1.0], [-1.0]]})
    found = audit(path, loans)
    assert found[FLIP].interval == found[SCORE].interval == (0.0, 0.0)
    assert "weight" in found[FLIP].notes[0]


def test_two_logits_with_softmax_are_read_as_their_difference(loans, tmp_path):
    node = onnx.helper.make_node
    nodes = [node("Gemm", ["x", "w"], ["a"]), node("LeakyRelu", ["a"], ["h"], alpha=0.2),
             node("Gemm", ["h", "v", "b"], ["y"], transB=1), node("Softmax", ["y"], ["score"], axis=1)]  # fmt: skip
    constants = {"w": [[1.0, -1], [0.5, 1], [1.0, 0]], "v": [[1.0, 0.5], [-0.5, 1.0]], "b": [0.1, 0.0]}
    path = network(tmp_path / "two.onnx", nodes, constants)
    data = fairkit.load_data(str(loans / "loans.csv"), **ROLES)
    options = fairkit.ModelOptions(favorable_class=1)
    report = fairkit.audit(
        trusted(path), data, auditors=["all-inputs"], parameters={"all-inputs": {"columns": "sex", "people": 20}},
        options=options,
    )  # fmt: skip
    found = {finding.metric: finding for finding in report.findings}
    x = np.stack(np.meshgrid([0, 1], np.linspace(-1.2, 2, 90), np.linspace(-1, 1, 90), indexing="ij"), -1)
    a = x @ np.array(constants["w"])
    y = np.where(a > 0, a, 0.2 * a) @ np.array(constants["v"]).T + constants["b"]
    logit = y[..., 1] - y[..., 0]
    low, high = found[SCORE].interval
    assert np.abs(logit[1] - logit[0]).max() <= high + 0.01
    assert high - low < 0.01
    assert CHANCE in found
    first, second = sides(found[FLIP])
    assert first["sex"] != second["sex"]


@pytest.mark.long
def test_near_and_two_columns_work_for_networks(nets):
    near = audit(nets / "net.onnx", nets, near=0.05, people=2, boxes=200)
    far = audit(nets / "net.onnx", nets, people=2, boxes=20)
    assert near[SCORE].interval[0] <= far[SCORE].interval[1]
    assert near["all_inputs_flippable"].evidence["people"] == 2
    first, _ = sides(near[SCORE])
    table = frame()
    distance = sum(((table[c] - first[c]) / float(table[c].std(ddof=0))) ** 2 for c in NUMBERS)
    distance += sum(2.0 * (table[c] != first[c]) for c in TEXTS if c != "sex")
    assert distance.min() <= 0.05 + 1e-6
    joint = audit(nets / "net.onnx", nets, ["sex", "ethnicity"], people=2, boxes=20)[SCORE]
    assert joint.sensitive == "sex+ethnicity"
    assert joint.interval[1] >= far[SCORE].interval[0] - 1e-6


def test_a_layer_that_is_not_understood_is_named(loans, tmp_path):
    node = onnx.helper.make_node
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Softmax", ["a"], ["h"], axis=1, name="attention"),
             node("MatMul", ["h", "v"], ["y"]), node("Sigmoid", ["y"], ["score"])]  # fmt: skip
    path = network(tmp_path / "odd.onnx", nodes, {"w": np.ones((3, 2)), "v": np.ones((2, 1))})
    with pytest.raises(ModelError, match="Softmax 'attention'"):
        audit(path, loans)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torch_writes_networks_that_are_read(loans, tmp_path):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    wide = np.column_stack([(frame()["sex"] == "male").astype(float), frame()[NUMBERS] / frame()[NUMBERS].std()])
    names = ["male", *NUMBERS]
    layers = [torch.nn.Linear(5, 6), torch.nn.ReLU(), torch.nn.Linear(6, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)]
    module = torch.nn.Sequential(*layers, torch.nn.Sigmoid())
    torch.onnx.export(
        module, (torch.zeros(2, 5),), str(tmp_path / "t.onnx"), input_names=["x"], output_names=["score"],
        dynamic_axes={"x": {0: "n"}, "score": {0: "n"}}, dynamo=False,
    )  # fmt: skip
    table = frame()[["decision"]].copy()
    table[names] = wide
    data = fairkit.load_data(table, label="decision", favorable="approved", sensitive=["male"], features=names)
    report = fairkit.audit(
        trusted(tmp_path / "t.onnx"), data, auditors=["all-inputs"],
        parameters={"all-inputs": {"columns": "male", "people": 20, "boxes": 300}},
    )  # fmt: skip
    score = next(finding for finding in report.findings if finding.metric == SCORE)
    with torch.no_grad():
        rng = np.random.default_rng(0)
        x = rng.uniform(wide.min(axis=0), wide.max(axis=0), (5_000, 5)).astype(np.float32)
        runs = []
        for value in (0, 1):
            x[:, 0] = value
            runs.append(torch.nn.Sequential(*layers)(torch.from_numpy(x)).numpy()[:, 0])
    low, high = score.interval
    assert np.abs(runs[0] - runs[1]).max() <= high
    assert high <= 3.0 * low
