"""`fairkit mitigate` with post-processing plugins: a file comes out, or one message and no file."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from tests.commands import invoke

PLUGINS = ("rto", "threshold-optimizer", "reject-option", "shift-inference")


def graph(link, kind=TensorProto.FLOAT, out="p"):
    nodes = [helper.make_node(link, ["x"], ["y" if kind != TensorProto.FLOAT else out])]
    if kind != TensorProto.FLOAT:
        nodes.append(helper.make_node("Cast", ["y"], [out], to=kind))
    built = helper.make_graph(
        nodes,
        "hand",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 1])],
        [helper.make_tensor_value_info(out, kind, [None, 1])],
    )
    return helper.make_model(built, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    import pandas as pd

    rng = np.random.default_rng(0)
    n = 900
    sex = rng.integers(0, 2, n)
    x = rng.normal(0.8 * sex - 0.4, 1)
    frame = pd.DataFrame(
        {
            "x": x,
            "sex": np.array(["F", "M"])[sex],
            "granted": np.where(rng.random(n) < 1 / (1 + np.exp(-x)), "yes", "no"),
        }
    )
    frame.to_parquet(tmp_path / "rows.parquet")
    frame.assign(sex=np.where(np.arange(n) < 4, "X", frame.sex)).to_parquet(tmp_path / "small.parquet")
    frame.assign(x=frame.x.where(np.arange(n) != 5)).to_parquet(tmp_path / "gaps.parquet")
    onnx.save(graph("Sigmoid"), str(tmp_path / "base.onnx"))
    onnx.save(graph("Identity"), str(tmp_path / "logit.onnx"))
    onnx.save(graph("Sign", TensorProto.INT64, "label"), str(tmp_path / "label.onnx"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments, model="base.onnx", data="rows.parquet", plugin="rto"):
    fixed = ["mitigate", "--plugin", plugin, "--data", data, "--label", "granted", "--favorable", "yes"]
    fixed += ["--sensitive", "sex", "--features", "x", "--output", "fair.onnx", "--format", "json"]
    return invoke(*fixed, *(["--model", model] if model else []), *arguments)


@pytest.mark.long
@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_repaired_file_comes_out(folder, plugin):
    done = run(plugin=plugin)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["plugin"] == plugin
    session = ort.InferenceSession(str(folder / "fair.onnx"), providers=["CPUExecutionProvider"])
    assert [entry.name for entry in session.get_inputs()] in (["x", "sex", "u"], ["x", "sex"])  # by chance, or not
    assert [entry.name for entry in session.get_outputs()] == ["score", "decision_probability", "decision"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((), {"model": None}, "name it with --model"),
        ((), {"model": "label.onnx"}, "labels are -1 and 1"),
        ((), {"model": "none.onnx"}, "no model file"),
        ((), {"data": "small.parquet"}, "fewer than min_group=30"),
        ((), {"data": "gaps.parquet"}, "NaN or infinite scores for 1"),
        (("--set", "rho=1.5"), {}, "rho must be 0 to 1, not 1.5"),
        (("--set", "ro=0.2"), {}, "Did you mean"),
        (("--set", "solver=newton"), {}, "solver cannot be 'newton'"),
        (("--set", "sensitive=race"), {}, "no sensitive split 'race'"),
        (("--set", "score_output=q"), {}, "no output 'q'"),
        (("--learner", "forest"), {}, "takes no learner"),
    ],
)
def test_bad_input_is_one_message_and_no_file(folder, arguments, options, message):
    done = run(*arguments, **options)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())
    assert not done.stdout
    assert not (folder / "fair.onnx").exists()
