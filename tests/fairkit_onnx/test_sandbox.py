"""Foreign models run in a process of their own: what it may not do, what ends it, and that the numbers are the same."""
# ruff: noqa: E501 -- the bodies of graphs are text

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import fairkit
from fairkit.errors import ModelError, ParameterError
from fairkit_onnx.file import OnnxModel
from fairkit_onnx.read.graph import check_operators
from fairkit_onnx.sandbox import wire
from fairkit_onnx.sandbox.confine import LEAST, Limits, current, free_memory, read_bytes, using

from .hostile import FAIR, UNFAIR, data, graph, table

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limits are Linux's")
LABEL = "int64[N,1] label"
FAIR_LABEL = FAIR + "label = Cast<to = 7>(older)"


def _file(folder: Path, proto: onnx.ModelProto, name: str = "model.onnx") -> Path:
    path = folder / name
    path.write_bytes(proto.SerializeToString())
    return path


def test_the_same_numbers_come_out(tmp_path):
    body = (
        UNFAIR + "tenth = Constant<value = float[1] {0.02}>() probability = Mul(age, tenth) label = Cast<to = 7>(male)"
    )
    proto = graph(body.replace("label = Cast<to = 7>(male)", ""), "float[N,1] probability")
    path = _file(tmp_path, proto)
    options = fairkit.ModelOptions(score_kind="logit")
    inside, outside = (fairkit.audit(model, data(), options=options) for model in (path, proto))
    assert [f.to_dict() for f in inside.findings] == [f.to_dict() for f in outside.findings]
    assert inside.environment["sandbox"][:2] == ["a process of its own", "a limit of time"]
    assert "sandbox" not in outside.environment


def test_a_trusted_file_runs_here_and_the_report_says_so(tmp_path):
    path = _file(tmp_path, graph(FAIR_LABEL, LABEL))
    report = fairkit.audit(OnnxModel.load(path, sandbox=False), data())
    assert any("without a sandbox" in note for note in report.model.notes)
    assert not any("without a sandbox" in note for note in fairkit.audit(path, data()).model.notes)


def test_text_flags_numbers_and_zipmaps_cross(tmp_path):
    body = """
      text = Identity(word) whole = Cast<to = 7>(n) half = Cast<to = 10>(n) flag = Cast<to = 9>(n)
      both = Concat<axis = 1>(n, n)
      map = ai.onnx.ml.ZipMap<classlabels_strings = ["no", "yes"]>(both)
    """
    outputs = "string[N,1] text, int64[N,1] whole, float16[N,1] half, bool[N,1] flag"
    proto = graph(body, outputs, inputs="float[N,1] n, string[N,1] word")
    entry = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    proto.graph.output.append(helper.make_value_info("map", helper.make_sequence_type_proto(entry)))
    words = np.array([["a"], ["é\x00"], [""], ["a"]], dtype=object)
    feeds = {"n": np.array([[0], [1], [2], [3]], np.float32), "word": words}
    here = OnnxModel.load(proto).run(feeds)
    there = OnnxModel.load(_file(tmp_path, proto)).run(feeds)
    for name in ("text", "whole", "half", "flag"):
        assert there[name].dtype == here[name].dtype
        np.testing.assert_array_equal(there[name], here[name])
    assert [dict(row) for row in there["map"]] == here["map"]


def test_a_sequence_does_not_cross_and_is_named(tmp_path):
    proto = graph(UNFAIR + "score = Cast<to = 1>(male) parts = SequenceConstruct(score, score)", "float[N,1] score")
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    proto.graph.output.append(helper.make_value_info("parts", kind))
    notes = fairkit.audit(_file(tmp_path, proto), data()).model.notes
    assert any("'parts'" in note and "not audited" in note for note in notes)


# -- attacks ---------------------------------------------------------------------------------------------------------


def _scored(path: Path, limits: Limits) -> fairkit.Report:
    with using(limits):
        return fairkit.audit(path, data())


def test_a_segmentation_fault_is_a_sentence(tmp_path):
    """com.microsoft::Inverse of [n, 1] ended the whole command with a signal and no word."""
    path = _file(tmp_path, graph("score = com.microsoft.Inverse(age)", "float[N,1] score"))
    with pytest.raises(
        ModelError, match=r"com\.microsoft::Inverse, which is not of the ONNX standard.*`domains=com.microsoft`"
    ):
        _scored(path, Limits())
    with pytest.raises(ModelError, match=r"crashed while scoring 600 rows \(SIG|fails on the data|NaN"):
        _scored(path, Limits(domains=("com.microsoft",)))


def test_a_crash_is_a_sentence(tmp_path):
    import signal

    model = OnnxModel.load(_file(tmp_path, graph(FAIR_LABEL, LABEL)))
    assert model.inputs
    os.kill(model.session._process.pid, signal.SIGSEGV)
    with pytest.raises(ModelError, match=r"model\.onnx crashed while .*SIGSEGV.* nothing else was harmed"):
        model.bind(data())


def _loop() -> onnx.ModelProto:
    body = f"""{FAIR} times = Constant<value = int64 {{1099511627776}}>() yes = Constant<value = bool {{1}}>()
      end = Loop(times, yes, age) <body = b (int64 i, bool go, float[N,1] at) => (bool still, float[N,1] next)
        {{ still = Identity(go) next = Neg(at) }}>
      same = Sub(end, end) fair = Cast<to = 1>(older) score = Add(fair, same)"""
    return graph(body, "float[N,1] score")


def test_a_loop_without_end_is_stopped(tmp_path):
    with pytest.raises(
        ModelError, match=r"took more than 0\.7 seconds for scoring 600 rows and was stopped.*`timeout=SECONDS`"
    ):
        _scored(_file(tmp_path, _loop()), Limits(timeout=0.7))


def test_functions_that_double_are_not_opened(tmp_path):
    functions = "".join(
        f'< domain: "own", opset_import: ["" : 17, "own" : 1] > f{i} (x) => (y) '
        f"{{ t = own.f{i - 1}(x) y = own.f{i - 1}(t) }}\n"
        for i in range(1, 32)
    )
    first = '< domain: "own", opset_import: ["" : 17] > f0 (x) => (y) { y = Neg(x) }\n'
    proto = graph("score = own.f31(age)", "float[N,1] score", more=first + functions)
    with pytest.raises(ModelError, match="unfold to more than 1,000,000 nodes"):
        _scored(_file(tmp_path, proto), Limits())
    loop = '< domain: "own", opset_import: ["" : 17, "own" : 1] > f (x) => (y) { y = own.f(x) }'
    with pytest.raises(ModelError, match="unfold"):
        check_operators(graph("score = own.f(age)", "float[N,1] score", more=loop), "m")


def _filled(size: str) -> str:
    return f"sizes = Constant<value = int64[2] {{{size}}}>() big = ConstantOfShape(sizes)"


def test_too_much_memory_is_a_sentence(tmp_path):
    body = f"{_filled('1500000000, 1')} sum = ReduceSum<keepdims = 0>(big) score = Add(age, sum)"
    with pytest.raises(ModelError, match=r"needs more memory than the 500 MB .*`memory=8GB`"):
        _scored(_file(tmp_path, graph(body, "float[N,1] score")), Limits(memory=500 << 20))


@pytest.mark.long
def test_a_large_product_is_stopped(tmp_path):
    body = f"{_filled('16000, 16000')} square = MatMul(big, big) sum = ReduceSum<keepdims = 0>(square) score = Add(age, sum)"
    with pytest.raises(ModelError, match=r"more memory than|took more than|computed for more than"):
        _scored(_file(tmp_path, graph(body, "float[N,1] score")), Limits(timeout=1.0, memory=4 << 30))


def test_a_model_that_was_stopped_stays_stopped(tmp_path):
    with using(Limits(timeout=0.5)):
        model = OnnxModel.load(_file(tmp_path, _loop()))
    for _ in range(2):
        with pytest.raises(ModelError, match="took more than"):
            model.bind(data())


def test_other_domains_are_refused_at_every_depth():
    hidden = (
        '< domain: "own", opset_import: ["" : 17, "com.microsoft" : 1] > f (x) => (y) { y = com.microsoft.Gelu(x) }'
    )
    in_function = graph("score = own.f(age)", "float[N,1] score", more=hidden)
    in_branch = graph(
        "yes = Constant<value = bool {1}>() score = If(yes) <then_branch = t () => (float[N,1] a) "
        "{ a = com.microsoft.Gelu(age) }, else_branch = e () => (float[N,1] b) { b = Identity(age) }>",
        "float[N,1] score",
    )
    for proto in (in_function, in_branch):
        with pytest.raises(ModelError, match=r"com\.microsoft::Gelu"):
            check_operators(proto, "m")
        check_operators(proto, "m", ["com.microsoft"])


def test_a_name_that_no_system_takes_is_one_message(tmp_path):
    proto = graph(UNFAIR + "score = Cast<to = 1>(male)", "float[N,1] score")
    tensor = numpy_helper.from_array(np.zeros(4, np.float32), "w")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights\0.bin")
    proto.graph.initializer.append(tensor)
    with pytest.raises(ModelError, match="whose name no system takes"):
        fairkit.audit(_file(tmp_path, proto), data())


def test_hard_links_count_as_data_from_outside(tmp_path):
    secret = tmp_path / "secret.bin"
    secret.write_bytes(np.arange(4, dtype=np.float32).tobytes())
    folder = tmp_path / "model"
    folder.mkdir()
    os.link(secret, folder / "weights.bin")
    proto = graph(UNFAIR + "score = Cast<to = 1>(male)", "float[N,1] score")
    tensor = numpy_helper.from_array(np.zeros(4, np.float32), "w")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")
    proto.graph.initializer.append(tensor)
    with pytest.raises(ModelError, match="hard link"):
        fairkit.audit(_file(folder, proto), data())
    (folder / "weights.bin").unlink()
    (folder / "weights.bin").write_bytes(secret.read_bytes())
    assert fairkit.audit(_file(folder, proto), data()).find("demographic_parity_difference", "sex").value == 1.0


FORBIDDEN = """
import errno, os, socket, sys, threading
sys.path[:] = {path!r}
from fairkit_onnx.sandbox import confine
held = confine.forbid_calls()
def tried(call):
    try:
        call()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"
ran = []
thread = threading.Thread(target=lambda: ran.append(1))
thread.start()
thread.join()
print(held)
print(tried(lambda: socket.socket()), tried(lambda: open("file", "w")), tried(lambda: os.fork()),
      tried(lambda: os.execv("/bin/true", ["true"])), tried(lambda: os.unlink("kept")), tried(lambda: os.rename("kept", "b")),
      tried(lambda: os.kill(os.getppid(), 0)), tried(lambda: open("kept").read()), len(ran))
"""


def test_what_the_process_may_not_do(tmp_path):
    (tmp_path / "kept").write_text("x")
    code = FORBIDDEN.format(path=[part for part in sys.path if part])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    held, tried = done.stdout.splitlines()
    if held == "()":
        pytest.skip("this system has no seccomp")
    assert "no network" in held
    assert tried.split() == ["EPERM"] * 7 + ["done", "1"]
    assert (tmp_path / "kept").exists()


def test_the_process_sees_no_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("FAIRKIT_KEY_PASSPHRASE_FILE", "/secret")
    model = OnnxModel.load(_file(tmp_path, graph(FAIR_LABEL, LABEL)))
    assert model.inputs
    told = Path(f"/proc/{model.session._process.pid}/environ").read_bytes()
    assert b"PASSPHRASE" not in told


def test_the_process_ends_with_the_model(tmp_path):
    model = OnnxModel.load(_file(tmp_path, graph(FAIR_LABEL, LABEL)))
    assert model.inputs
    process = model.session._process
    del model
    assert process.poll() is not None


def test_a_model_that_was_pickled_starts_its_own_process(tmp_path):
    import pickle

    model = OnnxModel.load(_file(tmp_path, graph(FAIR_LABEL, LABEL)))
    again = pickle.loads(pickle.dumps(model))
    assert [i.name for i in again.inputs] == [i.name for i in model.inputs]
    assert again.session._process.pid != model.session._process.pid
    assert again.held


@pytest.mark.parametrize(
    "record",
    [
        {"kind": "array", "dtype": "f4", "shape": [1 << 40], "offset": 0},
        {"kind": "array", "dtype": "O", "shape": [1], "offset": 0},
        {"kind": "array", "dtype": "f4", "shape": [-1], "offset": 0},
        {"kind": "array", "dtype": "f4", "shape": [2], "offset": -8},
        {"kind": "text", "dtype": "i4", "shape": [2], "offset": 0, "texts": []},
        {"kind": "maps", "dtype": "f4", "shape": [2], "offset": 0, "keys": ["a"]},
        {"kind": "maps", "dtype": "f4", "shape": [1, 2], "offset": 0, "keys": [["a"], {}]},
        {"kind": "pickle"},
        {},
    ],
)
def test_an_answer_that_lies_is_refused(record):
    with pytest.raises(wire.BrokenPipe):
        wire.unpack(record, bytes(64))


def test_text_is_numbered_by_address_as_by_value():
    import pyarrow  # noqa: F401 -- the fast way is taken where it is loaded

    words = np.array(["a", "b", "é"], dtype=object)
    codes = np.random.default_rng(0).integers(0, 3, 2_000)
    shared = words[codes].reshape(-1, 1)
    apart = np.array(["".join(list(word)) + "" for word in shared[:, 0]], dtype=object).reshape(-1, 1)
    for cells in (shared, apart):
        texts, numbers = wire.factorize(cells)
        np.testing.assert_array_equal(np.array(texts, dtype=object)[numbers], cells)


def test_limits_are_read_and_refused():
    assert read_bytes("2GB") == 2 << 30
    assert read_bytes("1.5 MiB") == 3 << 19
    assert read_bytes("700") == 700
    for text in ("", "GB", "2 apples", "-1GB"):
        with pytest.raises(ParameterError, match="no size of memory"):
            read_bytes(text)
    with pytest.raises(ParameterError, match="too little"):
        Limits(memory=5)
    with pytest.raises(ParameterError, match="no number of seconds"):
        Limits(timeout=0)
    assert free_memory() >= LEAST
    with using(Limits(timeout=7)):
        assert current().timeout == 7
    assert current().timeout == 300


@pytest.mark.long
def test_the_command_and_the_configuration_set_limits(tmp_path, monkeypatch):
    from tests.commands import checked, invoke

    monkeypatch.chdir(tmp_path)
    _file(tmp_path, _loop())
    import pandas as pd

    pd.DataFrame(table()).to_csv("rows.csv", index=False)
    said = ["audit", "model.onnx", "--data", "rows.csv", "--label", "y", "--favorable", "1", "--sensitive", "sex"]
    assert "took more than 0.6 seconds" in _refused(invoke(*said, "--set", "sandbox.timeout=0.6"))
    Path("fairkit.toml").write_text("[sandbox]\ntimeout = 0.5\n")
    assert "took more than 0.5 seconds" in _refused(invoke(*said))
    assert "no size of memory" in _refused(invoke(*said, "--set", "sandbox.memory=much"))
    assert current() == Limits()
    _file(tmp_path, graph(FAIR_LABEL, LABEL))
    done = checked(*said, "--format", "json", "--set", "sandbox.memory=2GB")
    assert "a limit of memory" in json.loads(done.stdout)["environment"]["sandbox"]


def _refused(done) -> str:
    assert done.exit_code == 2, done.output
    return done.output
