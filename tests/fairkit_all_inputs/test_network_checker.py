"""The checker of networks' logs computes with fractions, and believes no file that was changed, emptied or cut."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import onnx
import pytest

import fairkit
from fairkit.errors import ParameterError
from fairkit_all_inputs.network_file import READ

from .conftest import ROLES, convert, frame
from .test_all_inputs import CHANCE, FLIP, SCORE, again, audit, trusted
from .test_checker import DOCS, claims, narrower, reported
from .test_networks import gated, network

SCRIPT = "all_inputs_network_check.py"


@pytest.fixture(scope="module")
def checker():
    sys.path.insert(0, str(DOCS))
    import all_inputs_network_check

    yield all_inputs_network_check
    sys.path.remove(str(DOCS))


@pytest.fixture(scope="module")
def table(loans):
    return fairkit.load_data(str(loans / "loans.csv"), **ROLES)


@pytest.fixture(scope="module")
def sure(table, proofs):
    """A network that never flips: the model, its proof and the report."""
    folder = proofs / "sure_network"
    files = folder / "sure.onnx", folder / "proof.json", folder / "proof.report"
    if not files[2].exists():
        folder.mkdir()
        reported(gated(files[0], 0.4), table, files[1], columns="sex", people=20)
    return files


def resigned(told, claimed):
    """Write the digest of a changed proof into the report, as who signs both can."""
    statement = {name: value for name, value in told.items() if name != "logs"}
    digest = hashlib.sha256(json.dumps(statement, sort_keys=True).encode()).hexdigest()
    claims(claimed, **dict.fromkeys((FLIP, SCORE, CHANCE), lambda f: f["evidence"].update(statement_sha256=digest)))


def verdict(checker, capsys, tmp_path, model, told, claimed):
    (tmp_path / "p.json").write_text(json.dumps(told))
    (tmp_path / "r.json").write_text(json.dumps(claimed))
    code = checker.main(tmp_path / "p.json", model, tmp_path / "r.json")
    return code, capsys.readouterr().out


@pytest.mark.long
def test_a_proof_a_model_and_a_report_hold_together_without_fairkit(sure, tmp_path):
    files = [str(file) for file in (sure[1], sure[0], sure[2])]
    result = subprocess.run(
        [sys.executable, str(DOCS / SCRIPT), *files], capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
    )  # fmt: skip
    assert (result.returncode, result.stdout.count("holds")) == (0, 3), result.stdout + result.stderr


def plain_input(path, shift):
    """A network on a matrix of numbers, with two logits and a Softmax."""
    node = onnx.helper.make_node
    nodes = [node("Gemm", ["x", "w", "b"], ["a"]), node("Relu", ["a"], ["h"]),
             node("Gemm", ["h", "v", "c"], ["y"], transB=1), node("Softmax", ["y"], ["score"], axis=1)]  # fmt: skip
    constants = {
        "w": [[0.3, -0.4], [0.5, 1.0], [0.3, 0.1]],
        "b": [0.5, -0.25],
        "v": [[1.0, 0.5], [0.5, 0.3]],
        "c": [0, shift],
    }
    tensors = [onnx.numpy_helper.from_array(np.asarray(v, dtype=np.float32), k) for k, v in constants.items()]
    shapes = {"x": [None, 3], "score": [None, 2]}
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, one) for name, one in shapes.items()]
    graph = onnx.helper.make_graph(nodes, "network", ends[:1], ends[1:], tensors)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 15)], ir_version=8), path)
    return path


@pytest.mark.long
@pytest.mark.parametrize("shift", [0.4, 9.0])
def test_numbers_need_no_numpy(tmp_path, shift):
    table = frame()[["decision"]].copy()
    table["male"] = (frame()["sex"] == "male").astype(float)
    table["age"], table["ratio"] = frame()["age"] / 50.0, frame()["debt_ratio"]
    data = fairkit.load_data(
        table, label="decision", favorable="approved", sensitive=["male"], features=["male", "age", "ratio"]
    )
    told = {"columns": "male", "people": 20, "save_proof": str(tmp_path / "p.json")}
    model = plain_input(tmp_path / "m.onnx", shift)
    report = fairkit.audit(
        trusted(model), data, auditors=["all-inputs"], parameters={"all-inputs": told},
        options=fairkit.ModelOptions(favorable_class=1),
    )  # fmt: skip
    (tmp_path / "r.json").write_text(json.dumps(report.to_dict(), allow_nan=False))
    flip = next(one for one in report.findings if one.metric == FLIP).interval == (0.0, 0.0)
    without = (
        "import runpy, sys; sys.modules['numpy'] = sys.modules['onnxruntime'] = None; sys.argv = sys.argv[1:];"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    files = [str(tmp_path / name) for name in ("p.json", "m.onnx", "r.json")]
    result = subprocess.run(
        [sys.executable, "-c", without, str(DOCS / SCRIPT), *files], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout.count("holds")) == (0, flip + 2), result.stdout + result.stderr


def block(place, **changes):
    return lambda p, r: p["features"]["blocks"][place].update(changes)


def log(question, pair="0,1", **changes):
    return lambda p, r: p["logs"][question][pair].update(changes)


def unmultiplied(p, r):
    p["logs"][SCORE]["0,1"]["multipliers"] = [[9.0] * len(row) for row in p["logs"][SCORE]["0,1"]["multipliers"]]


FORGED = {
    "the threshold": lambda p, r: p.update(threshold=float.hex(-90.0)),
    "no threshold": lambda p, r: p.update(threshold=None),
    "a threshold that is no number": lambda p, r: p.update(threshold="nan"),
    "an endless threshold": lambda p, r: p.update(threshold="inf"),
    "the direction": lambda p, r: p.update(direction=-1),
    "the band": lambda p, r: p.update(band=float.hex(-1.0)),
    "another layer": lambda p, r: p.update(output="c"),
    "another matrix": lambda p, r: p.update(matrix="scaled"),
    "a piece of the domain left out": lambda p, r: p["domain"][0]["ends"].pop(),
    "a piece of it and its features": lambda p, r: (
        p["domain"][0]["ends"].pop(),
        *(p["features"]["blocks"][0][side].pop() for side in ("first", "last")),
    ),
    "a narrower column": lambda p, r: p["domain"][0].update(low=float.hex(60.0)),
    "a value that changes left out": lambda p, r: (
        p["domain"][-1]["members"].pop(),
        p["domain"][-1]["choices"].pop(),
    ),
    "what an encoder makes": lambda p, r: [
        p["features"]["blocks"][-1][side].reverse() for side in ("first", "last")
    ],
    "a feature of nobody": block(0, columns=[7]),
    "a feature that is no number": lambda p, r: p["features"]["fixed"].__setitem__(0, "nan"),
    "a huge feature": lambda p, r: p["features"]["blocks"][0]["last"][0].__setitem__(0, float.hex(1e300)),
    "the changing block": lambda p, r: p.update(changing=0),
    "no logs": lambda p, r: p.update(logs={}),
    "a log left out": lambda p, r: p["logs"].pop(FLIP),
    "a pair left out": lambda p, r: p["logs"][SCORE].pop("0,1"),
    "a pair emptied": log(SCORE, splits=[], multipliers=[]),
    "a box left open": log(FLIP, splits=[[0, 1], 0]),
    "a log that goes on": log(FLIP, splits=[0, 0]),
    "a split of nothing": log(FLIP, splits=[[-1, 1], 0, 0]),
    "a split of a unit that is not there": log(FLIP, splits=[["u", 99], 0, 0]),
    "a unit split twice": log(FLIP, splits=[["u", 0], ["u", 0], 0, 0, 0]),
    "a split at a half": log(FLIP, splits=[[0, 0.5], 0, 0]),
    "a box closed by false": log(FLIP, splits=[False]),
    "no multipliers": log(SCORE, multipliers=[]),
    "multipliers of nothing": unmultiplied,
    "too many multipliers": lambda p, r: p["logs"][SCORE]["0,1"]["multipliers"].append([0.0] * 14),
    "a multiplier that is no number": lambda p, r: p["logs"][SCORE]["0,1"]["multipliers"][0].__setitem__(3, "1"),
    "a search cut short": lambda p, r: [
        p["logs"][FLIP][pair].update(splits=[0], multipliers=p["logs"][FLIP][pair]["multipliers"][:1])
        for pair in ("0,1", "1,0")
    ],
    "another model": lambda p, r: p.update(model_sha256="0" * 64),
    "the report's model": lambda p, r: r["model"].update(sha256="0" * 64),
    "a smaller claim": lambda p, r: claims(r, **{SCORE: narrower}),
    "a smaller chance": lambda p, r: claims(r, **{CHANCE: narrower}),
    "an endless claim": lambda p, r: claims(r, **{SCORE: lambda f: f["interval"].__setitem__(1, 1e999)}),
    "a digest that is not there": lambda p, r: claims(r, **{FLIP: lambda f: f["evidence"].pop("statement_sha256")}),
    "inputs near people": lambda p, r: claims(r, **{FLIP: lambda f: f["parameters"].update(near=0.1)}),
    "no findings": lambda p, r: r.update(findings=[]),
    "the schema of trees": lambda p, r: p.update(schema="fairkit.all-inputs/2"),
    "an empty file": lambda p, r: p.clear(),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_what_was_changed_removed_or_emptied_is_refused(sure, tmp_path, checker, capsys, name):
    told, claimed = (json.loads(path.read_text()) for path in sure[1:])
    before = copy.deepcopy((told, claimed))
    FORGED[name](told, claimed)
    assert (told, claimed) != before
    code, said = verdict(checker, capsys, tmp_path, sure[0], told, claimed)
    assert code == 1
    assert ("REFUSED" in said) != ("REFUTED" in said)


SEEN_THROUGH = {
    "another layer": "surer",
    "another matrix": "",
    "the direction": "REFUTED",
    "the band": "surer",
    "a piece of the domain left out": "cells",
    "what an encoder makes": "encoders make",
    "a feature of nobody": "feature",
    "a huge feature": "turns",
    "the changing block": "",
    "a threshold that is no number": "finite",
}
"""What is computed anew from the model, so that even who signs the report cannot change it; and what is said."""


@pytest.mark.parametrize("name", SEEN_THROUGH)
def test_a_signer_cannot_change_what_the_model_says(sure, tmp_path, checker, capsys, name):
    told, claimed = (json.loads(path.read_text()) for path in sure[1:])
    FORGED[name](told, claimed)
    resigned(told, claimed)
    code, said = verdict(checker, capsys, tmp_path, sure[0], told, claimed)
    assert code == 1
    assert SEEN_THROUGH[name] in said
    assert "another proof" not in said


@pytest.mark.long
@pytest.mark.parametrize("value", [8.0, float("nan"), float("inf"), 1e38])
def test_a_changed_weight_is_refuted_although_its_digest_was_written_everywhere(sure, tmp_path, checker, capsys, value):
    proto = onnx.load(sure[0])
    weights = next(one for one in proto.graph.initializer if one.name == "last")
    array = onnx.numpy_helper.to_array(weights).copy()
    array[1] = value
    weights.CopyFrom(onnx.numpy_helper.from_array(array, "last"))
    model = tmp_path / "m.onnx"
    model.write_bytes(proto.SerializeToString())
    told, claimed = (json.loads(path.read_text()) for path in sure[1:])
    told["model_sha256"] = claimed["model"]["sha256"] = hashlib.sha256(model.read_bytes()).hexdigest()
    code, said = verdict(checker, capsys, tmp_path, model, told, claimed)
    assert (code, "another proof" in said or "no finite" in said) == (1, True)
    resigned(told, claimed)
    code, said = verdict(checker, capsys, tmp_path, model, told, claimed)
    assert code == 1
    assert ("REFUTED" if np.isfinite(value) else "no finite number") in said


@pytest.mark.long
def test_a_certificate_is_checked_with_its_proof(sure, loans, monkeypatch, tmp_path, table):
    """The optional digest repeats where the certificate is recomputed."""
    told = {"columns": "sex", "people": 20, "save_proof": str(tmp_path / "p.json")}
    report = fairkit.audit(trusted(sure[0]), table, auditors=["all-inputs"], parameters={"all-inputs": told})
    checked, public = again(sure[0], loans, report.findings, monkeypatch, **told)
    assert [one.evidence.get("statement_sha256") for one in checked.findings] == [
        one.evidence.get("statement_sha256") for one in public
    ]
    assert json.loads((tmp_path / "p.json").read_text()) == json.loads(sure[1].read_text())


def random_network(rng, checker, widths):
    """A network over two numbers, a column of three values, and one that changes; fractions, and floats."""
    before, layers = 6, []
    for width in (*widths, 1):
        weights, bias = (rng.normal(size=(width, before)).astype(np.float32), rng.normal(size=width).astype(np.float32))
        part = checker.mapped(checker.values_of(before), [[Fraction(float(w)) for w in row] for row in weights])
        layers.append((checker.moved(part, [Fraction(float(b)) for b in bias]), weights, bias))
        before = width
    return layers


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("widths", [(4,), (5, 3), (3, 3, 2)])
def test_no_multiplier_makes_a_bound_that_an_input_exceeds(checker, monkeypatch, seed, widths):
    """Whatever the multipliers, the signs of units and the box: inputs of the box stay below each bound."""
    rng = np.random.default_rng(seed)
    layers = random_network(rng, checker, widths)
    monkeypatch.setattr(checker, "layers_of", lambda *_: ([one for one, _, _ in layers], False))
    net, _ = checker.network_of({"matrix": "x", "output": "y", "direction": 1}, None, 6)
    net |= {"grain": 20, "band": Fraction(0)}
    grain = 1 << 20
    ends = np.sort(rng.integers(-grain, grain, size=(2, 2)), axis=1)
    cells = rng.integers(-grain, grain, size=(3, 3))
    plain = [(j, int(low), int(high)) for j, (low, high) in enumerate(ends)]
    box = checker.Box(net, plain, [[[(2 + j, int(v), int(v)) for j, v in enumerate(cell)] for cell in cells]])
    sides = [[0, 0, 0, 0, 0, side] for side in (0, grain)]
    x = np.zeros((4_000, 6))
    x[:, :2] = rng.uniform(*ends.T, size=(4_000, 2))
    x[:, 2:5] = cells[rng.integers(0, 3, size=4_000)]
    runs, sums = [], []
    for side in sides:
        values = (x + side) / grain
        for _, weights, bias in layers:
            z = values @ weights.T.astype(float) + bias.astype(float)
            sums.append(z)
            values = np.maximum(z, 0.0)
        runs.append(z[:, 0])
    f, g = runs
    depth, threshold = len(layers), Fraction(1, 4)
    sigmoid = 1 / (1 + np.exp(-f)) - 1 / (1 + np.exp(-g))
    objectives = {SCORE: f - g, FLIP: np.minimum(f - 0.25, 0.25 - g), CHANCE: sigmoid}
    for attempt in range(4):
        unit = int(rng.integers(widths[0]))
        signs = None if attempt == 0 else [[(0, 0)] * width for width in widths]
        inside = np.ones(len(x), dtype=bool)
        if signs is not None:
            sign = int(rng.choice([-1, 1]))
            run = int(rng.integers(2))
            signs[0][unit] = (sign, 0) if run == 0 else (0, sign)
            inside = sums[run * depth][:, unit] * sign >= 0
        rates = tuple(int(v) for v in rng.integers(0, 1 << 50, size=2))
        multipliers = [[[int(v * (1 << 50)) for v in rng.normal(size=width)] for _ in (0, 1)] for width in widths]
        for question, values in objectives.items():
            most = checker.bound(net, question, box, sides, signs, rates, multipliers, threshold)
            reached = values[inside].max(initial=-np.inf)
            if question == CHANCE:
                reached = max(reached, 0.0) - 1e-12 if most is not None else reached
            assert (reached == -np.inf) if most is None else (reached <= float(most) + 1e-12)


@pytest.mark.parametrize("rate", ["0", "1/10", "1/4", "1/3"])
def test_the_logistic_function_is_bounded_from_above(rate):
    sys.path.insert(0, str(DOCS))
    import all_inputs_network_bounds as bounds

    rng, rate = np.random.default_rng(0), Fraction(rate)
    for _ in range(60):
        low, high = sorted(Fraction(float(v)) for v in rng.normal(0, 6, size=2))
        x = np.linspace(float(low), float(high), 2_001)
        most = bounds.tangent(rate, low, high)
        reached = (1 / (1 + np.exp(-x)) - float(rate) * x).max()
        assert reached - 1e-12 <= float(most) <= reached + 1e-3
        gap, first = Fraction(float(abs(rng.normal(0, 3)))), high + Fraction(float(rng.normal()))
        f = np.minimum(float(first), x + float(gap))
        reached = (1 / (1 + np.exp(-f)) - 1 / (1 + np.exp(-x))).max()
        most = bounds.chance(first, low, high, gap)
        assert max(reached, 0.0) - 1e-12 <= float(most) <= max(reached, 0.0) + 1e-4


@pytest.mark.long
def test_a_trained_network_is_checked_box_by_box(table, loans, tmp_path, checker, capsys):
    from sklearn.neural_network import MLPClassifier

    net = MLPClassifier((8, 5), max_iter=500, tol=3e-3, random_state=0, learning_rate_init=0.01)
    model = convert(net, tmp_path / "net.onnx")
    report, path = reported(model, table, tmp_path / "p.json", columns="sex", people=20, boxes=150)
    assert checker.main(tmp_path / "p.json", model, path) == 0
    assert capsys.readouterr().out.count("holds") == 2
    told, claimed = json.loads((tmp_path / "p.json").read_text()), json.loads(path.read_text())
    splits = told["logs"][SCORE]["1,0"]["splits"]
    assert any(entry != 0 and entry[0] == "u" for entry in splits)
    least = next(f for f in report.findings if f.metric == SCORE).interval[0]
    claims(claimed, **{SCORE: lambda f: f["interval"].__setitem__(1, least + 1e-4)})
    code, said = verdict(checker, capsys, tmp_path, model, told, claimed)
    assert (code, "REFUTED" in said) == (1, True)


def test_networks_that_it_does_not_read_get_no_file(loans, tmp_path, checker):
    assert checker.READ == READ
    node = onnx.helper.make_node
    nodes = [node("Gemm", ["x", "w"], ["a"]), node("LeakyRelu", ["a"], ["h"], alpha=0.2),
             node("MatMul", ["h", "v"], ["y"]), node("Sigmoid", ["y"], ["score"])]  # fmt: skip
    path = network(tmp_path / "leaky.onnx", nodes, {"w": np.ones((3, 2)), "v": np.ones((2, 1))})
    file = tmp_path / "p.json"
    with pytest.raises(ParameterError, match=r"LeakyRelu.*leave save_proof out"):
        audit(path, loans, save_proof=str(file))
    with pytest.raises(ParameterError, match=r"around people.*leave save_proof out"):
        audit(gated(tmp_path / "g.onnx", 0.4), loans, near=0.1, people=3, save_proof=str(file))
    nodes = [node("Gemm", ["x", "w"], ["a"]), node("Relu", ["a"], ["h"]), node("Add", ["a", "h"], ["s"]),
             node("MatMul", ["s", "v"], ["y"]), node("Sigmoid", ["y"], ["score"])]  # fmt: skip
    path = network(tmp_path / "residual.onnx", nodes, {"w": np.ones((3, 2)), "v": np.ones((2, 1))})
    with pytest.raises(ParameterError, match=r"past a layer"):
        audit(path, loans, save_proof=str(file))
    assert not file.exists()
