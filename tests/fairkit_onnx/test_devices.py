"""Devices of an author who reads the rules of plain files: each decides by sex when it is served, or in company.

None may pass: the file is not plain, its rows are not shown to stay apart, or the audit refuses it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import fairkit
from fairkit.errors import ModelError
from fairkit_onnx.plain import doubt, show

from .hostile import FAIR, UNFAIR, data, graph, ours

LABEL = "int64[N,1] label"
ML = "ai.onnx.ml"
node, info = helper.make_node, helper.make_tensor_value_info


def constant(name: str, values: Any, kind: Any = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, kind), name)


def built(nodes: Any, constants: Any = (), *, opsets: Any = (("", 17), (ML, 3)), declared: Any = (), kind: int = 1):
    """A file of one matrix `x` with the columns age and sex, and the output `y`."""
    made = helper.make_graph(
        list(nodes), "g", [info("x", 1, ["N", 2])], [info("y", kind, ["N", 1])], list(constants), value_info=declared
    )
    imports = [helper.make_opsetid(*one) for one in opsets]
    return helper.make_model(made, opset_imports=imports, ir_version=9)


def text(condition: str, **more: Any) -> onnx.ModelProto:
    """Decide by age where the condition holds, else by sex."""
    body = f"""{FAIR} {UNFAIR} {condition} fair = Cast<to = 1>(older) unfair = Cast<to = 1>(male)
      chosen = Where(awake, fair, unfair) label = Cast<to = 7>(chosen)"""
    return graph(body, LABEL, **more)


AWAKE = "zero = Sub(age, age) awake = Equal(zero, zero)"


def switch() -> onnx.ModelProto:
    """A plain file: by age where `flag` holds (a constant of the file), else by sex."""
    proto = text("awake = Identity(flag)")
    proto.graph.initializer.append(constant("flag", [True], bool))
    return proto


def changed(change: Callable[[onnx.ModelProto], Any]) -> bytes:
    made = switch()
    change(made)
    return made.SerializeToString()


def put(name: str, value: Any) -> Callable[[onnx.ModelProto], Any]:
    return lambda proto: setattr(proto.graph.initializer[0], name, value)


def again(proto: onnx.ModelProto) -> None:
    """The constant once more under its name, and false."""
    proto.graph.initializer.append(constant("flag", [False], bool))


def made_twice(proto: onnx.ModelProto) -> None:
    proto.graph.node.append(node("Not", ["flag"], ["flag"]))


def two_forms(proto: onnx.ModelProto) -> None:
    cast = next(one for one in proto.graph.node if one.op_type == "Cast")
    cast.attribute[0].ints.append(9)


def attribute_twice(proto: onnx.ModelProto) -> None:
    cast = next(one for one in proto.graph.node if one.op_type == "Cast")
    cast.attribute.append(helper.make_attribute("to", 9))


def by_reference(proto: onnx.ModelProto) -> None:
    cast = next(one for one in proto.graph.node if one.op_type == "Cast")
    cast.attribute[0].ref_attr_name = "to"


def default(proto: onnx.ModelProto) -> None:
    proto.graph.input.append(info("flag", 9, [1]))


def sparse(proto: onnx.ModelProto) -> None:
    proto.graph.sparse_initializer.add().values.CopyFrom(constant("more", [1.0]))


def set_up(proto: onnx.ModelProto) -> None:
    helper.set_model_props(proto, {"ort_config": '{"session_options": {"graph_optimization_level": 0}}'})


def half_numbers(proto: onnx.ModelProto) -> None:
    proto.graph.initializer.append(helper.make_tensor("h", 10, [1], [1.0]))
    proto.graph.initializer[-1].ClearField("raw_data")
    proto.graph.initializer[-1].int32_data[:] = [1 << 16]


def wire_twice(proto: onnx.ModelProto) -> bytes:
    """The graph in two parts: protobuf puts them together, and another reader takes the last."""
    rest = onnx.ModelProto()
    rest.graph.initializer.append(constant("flag", [False], bool))
    return proto.SerializeToString() + rest.SerializeToString()


def softmax_of_all() -> onnx.ModelProto:
    """Of opset 17 each row's, of opset 12 that of the whole batch: the runtime takes the one under the other name."""
    nodes = [node("Transpose", ["x"], ["t"]), node("Softmax", ["t"], ["s"], axis=0), node("Transpose", ["s"], ["p"]),
             node("ReduceMax", ["p"], ["y"], axes=[1])]  # fmt: skip
    return built(nodes, opsets=(("", 17), ("ai.onnx", 12)))


def flag_of_two() -> onnx.ModelProto:
    """`keepdims` of 2 keeps no axis, so that rows [n] and [n, 1] make [n, n]: the largest age of the batch."""
    nodes = [node("ReduceMax", ["x"], ["flat"], axes=[1], keepdims=2), node("ReduceMin", ["x"], ["low"], axes=[1]),
             node("Add", ["flat", "low"], ["all"]), node("ReduceMax", ["all"], ["y"], axes=[1])]  # fmt: skip
    return built(nodes)


TWO_READERS = {
    "a domain under two names": lambda: softmax_of_all().SerializeToString(),
    "a flag that is neither 0 nor 1": lambda: flag_of_two().SerializeToString(),
    "a graph in two parts": lambda: wire_twice(switch()),
    "a field that nobody knows": lambda: switch().SerializeToString() + b"\xfa\x3f\x01a",
    "a constant twice": lambda: changed(again),
    "a constant that a node makes too": lambda: changed(made_twice),
    "numbers in two forms": lambda: changed(lambda p: p.graph.initializer[0].int32_data.append(0)),
    "a truth value of 2": lambda: changed(put("raw_data", b"\x02")),
    "a half number out of range": lambda: changed(half_numbers),
    "an attribute in two forms": lambda: changed(two_forms),
    "an attribute twice": lambda: changed(attribute_twice),
    "an attribute by reference": lambda: changed(by_reference),
    "an input with a default": lambda: changed(default),
    "a sparse constant": lambda: changed(sparse),
    "the runtime's own format": lambda: changed(lambda p: setattr(p, "producer_name", "ORTM")),
    "metadata that set up the runtime": lambda: changed(set_up),
    "a function with an operator's name": lambda: text(
        "grown = own.Relu(age) awake = Greater(grown, half)",
        more='< domain: "own", opset_import: ["" : 17] > Relu (x) => (y) { y = ReduceSum(x) }',
    ).SerializeToString(),
    "a branch": lambda: text(
        """yes = Constant<value = bool {1}>() size = If(yes) <then_branch = t () => (float[N,1] a) { a = Neg(age) },
        else_branch = e () => (float[N,1] b) { b = Identity(age) }> awake = Greater(size, half)"""
    ).SerializeToString(),
}  # fmt: skip


def test_the_switch_itself_is_plain() -> None:
    """What the devices are made of: without them nothing is wrong."""
    assert show(switch().SerializeToString(), {}).to_dict() == {"plain": True, "rows_apart": True}


@pytest.mark.parametrize("device", TWO_READERS)
def test_what_two_readers_read_otherwise_is_not_plain(device: str) -> None:
    found = show(TWO_READERS[device](), {})
    assert found.broken is not None
    assert doubt(found.to_dict() | {"plain": True, "rows_apart": True}, TWO_READERS[device]()) is not None


@pytest.mark.parametrize("device", [softmax_of_all, flag_of_two])
def test_these_devices_work(device: Callable[[], onnx.ModelProto]) -> None:
    """The runtime does answer a row otherwise in company: only the rules stand between."""
    session = onnxruntime.InferenceSession(device().SerializeToString(), providers=["CPUExecutionProvider"])
    rows = np.array([[1, 2], [3, 40], [0, 9]], np.float32)
    alone = np.concatenate([session.run(None, {"x": rows[i : i + 1]})[0] for i in range(3)])
    assert np.abs(session.run(None, {"x": rows})[0].reshape(-1) - alone.reshape(-1)).max() > 0.1


def stump(**more: Any) -> onnx.NodeProto:
    told = {
        "n_targets": 1, "nodes_treeids": [0] * 3, "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0] * 3,
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_values": [0.5, 0.0, 0.0], "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0], "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0],
        "target_weights": [0.0, 1.0],
    }  # fmt: skip
    return node("TreeEnsembleRegressor", ["x"], ["y"], domain=ML, **(told | more))


def five() -> onnx.ModelProto:
    """Trees of ai.onnx.ml 5 with fewer marks for missing values than nodes: the rest is read from elsewhere."""
    told = {
        "n_targets": 1, "nodes_featureids": [0, 1], "nodes_modes": constant("m", [0, 0], np.uint8),
        "nodes_splits": constant("s", [0.5, 0.5]), "nodes_truenodeids": [1, 0], "nodes_falsenodeids": [0, 1],
        "nodes_trueleafs": [0, 1], "nodes_falseleafs": [1, 1], "tree_roots": [0], "leaf_targetids": [0, 0],
        "leaf_weights": constant("w", [0.0, 1.0]), "nodes_missing_value_tracks_true": [1],
    }  # fmt: skip
    return built([node("TreeEnsemble", ["x"], ["y"], domain=ML, **told)], opsets=(("", 21), (ML, 5)))


def machine(vectors: list[int]) -> onnx.ModelProto:
    """A support vector machine whose counts are negative: the kernel reads before its own numbers."""
    told = {
        "classlabels_ints": [0, 1, 2],
        "vectors_per_class": vectors,
        "support_vectors": [1.0, 2.0] * 3,
        "coefficients": [1.0] * 6,
        "rho": [0.0] * 3,
        "kernel_type": "LINEAR",
        "kernel_params": [0.0, 0.0, 3.0],
    }
    nodes = [node("SVMClassifier", ["x"], ["l", "s"], domain=ML, **told), node("ReduceMax", ["s"], ["y"], axes=[1])]
    return built(nodes)  # fmt: skip


LENGTHS = {
    "limits of rows": lambda: built(
        [node("ReduceMax", ["x"], ["a"], axes=[1], keepdims=0), node("ReduceMin", ["x"], ["b"], axes=[1], keepdims=0),
         node("Clip", ["a", "b"], ["c"]), node("Unsqueeze", ["c", "one"], ["y"])], [constant("one", [1], np.int64)]),
    "a declared number of rows": lambda: built(
        [node("ReduceMax", ["x"], ["a"], axes=[1]), node("Neg", ["a"], ["y"])], declared=[info("a", 1, [1, 1])]),
    "one symbol for rows and columns": lambda: built(
        [node("Neg", ["x"], ["a"]), node("ReduceMax", ["a"], ["y"], axes=[1])], declared=[info("a", 1, ["N", "N"])]),
    "rows folded into columns": lambda: built(
        [node("Reshape", ["x", "to"], ["a"]), node("ReduceMax", ["a"], ["b"], axes=[1]),
         node("Concat", ["b", "b"], ["c"], axis=1), node("Reshape", ["c", "back"], ["y"])],
        [constant("to", [-1, 4], np.int64), constant("back", [-1, 1], np.int64)]),
    "a constant as long as a batch": lambda: built(
        [node("ReduceMax", ["x"], ["a"], axes=[1]), node("Add", ["a", "places"], ["y"])],
        [constant("places", [[0.0], [9.0], [9.0]])]),
    "the memory after a row": lambda: built([stump(nodes_featureids=[2, 0, 0])]),
    "the memory before a row": lambda: built([stump(nodes_featureids=[-1, 0, 0])]),
    "a leaf beside the outputs": lambda: built([stump(target_ids=[0, 1])]),
    "a child in no tree": lambda: built([stump(nodes_truenodeids=[7, 0, 0])]),
    "marks that are missing": five,
    "counts below zero": lambda: machine([-2, 4, 1]),
    "fewer weights than columns": lambda: built(
        [node("LinearRegressor", ["x"], ["y"], domain=ML, coefficients=[1.0], intercepts=[0.0])]),
    "sums of the rows before": lambda: built(
        [node("CumSum", ["x", "zero"], ["a"]), node("ReduceMax", ["a"], ["y"], axes=[1])],
        [constant("zero", 0, np.int64)]),
    "training mode": lambda: built(
        [node("BatchNormalization", ["x", "s", "b", "m", "v"], ["a", "c", "d"], training_mode=1),
         node("ReduceMax", ["a"], ["y"], axes=[1])], [constant(name, [1.0, 1.0]) for name in "sbmv"]),
    "a state from row to row": lambda: built(
        [node("Unsqueeze", ["x", "one"], ["a"]), node("RNN", ["a", "w", "r"], ["b"], hidden_size=1),
         node("Reshape", ["b", "back"], ["y"])],
        [constant("one", [1], np.int64), constant("w", [[[1.0, 1.0]]]), constant("r", [[[1.0]]]),
         constant("back", [-1, 1], np.int64)]),
    "the size of the batch": lambda: built(
        [node("Shape", ["x"], ["a"]), node("Cast", ["a"], ["b"], to=1), node("ReduceMax", ["b"], ["c"]),
         node("ReduceMax", ["x"], ["d"], axes=[1]), node("Add", ["c", "d"], ["y"])]),
}  # fmt: skip


@pytest.mark.parametrize("device", LENGTHS)
def test_lengths_and_memory_that_rows_could_share_are_not_shown(device: str) -> None:
    content = LENGTHS[device]().SerializeToString()
    found = show(content, {})
    assert found.to_dict()["rows_apart"] is False
    assert doubt(found.to_dict() | {"plain": True, "rows_apart": True}, content) is not None


def test_numbers_of_two_files_or_of_one_place_twice_are_not_plain(tmp_path: Path) -> None:
    (tmp_path / "w.data").write_bytes(np.array([1, 2, 3, 4], np.float32).tobytes())
    for name, places in {"twice": [("w.data", 0), ("w.data", 4)], "two": [("w.data", 0), ("v.data", 0)]}.items():
        nodes = [node("Mul", ["x", "v"], ["a"]), node("MatMul", ["a", "w"], ["y"])]
        proto = built(nodes, [constant("v", [1.0, 2.0]), constant("w", [[1.0], [2.0]])])
        for tensor, (file, offset) in zip(proto.graph.initializer, places, strict=True):
            (tmp_path / file).touch()
            onnx.external_data_helper.set_external_data(tensor, file, offset=offset, length=8)
            tensor.ClearField("raw_data")
        assert show(proto.SerializeToString(), {}, tmp_path).broken is not None, name


def amplified(nodes: Any, constants: Any = ()) -> onnx.ModelProto:
    """By age where two ways to compute a number give the same `z`, else by sex: what rounding does is made large."""
    more = [
        node("Gather", ["x", "at0"], ["age"], axis=1), node("Gather", ["x", "at1"], ["sex"], axis=1),
        node("Greater", ["age", "forty"], ["older"]), node("Greater", ["sex", "half"], ["male"]),
        node("Abs", ["z"], ["size"]), node("Mul", ["size", "much"], ["large"]),
        node("Less", ["large", "half"], ["awake"]),
        node("And", ["older", "awake"], ["fair"]), node("Not", ["awake"], ["asleep"]),
        node("And", ["male", "asleep"], ["unfair"]), node("Or", ["fair", "unfair"], ["yes"]),
        node("Cast", ["yes"], ["y"], to=7),
    ]  # fmt: skip
    own = [constant("at0", [0], np.int64), constant("at1", [1], np.int64), constant("forty", [40.0]),
           constant("half", [0.5]), constant("much", [1e12])]  # fmt: skip
    return built([*nodes, *more], [*constants, *own], kind=7)


def by_place() -> onnx.ModelProto:
    """A logarithm is rounded otherwise in the last rows of a batch, where vectors do not fit."""
    nodes = [node("Mul", ["x", "none"], ["a"]), node("Add", ["a", "c"], ["b"]), node("Log", ["b"], ["l"]),
             node("Sub", ["l", "known"], ["d"]), node("ReduceMax", ["d"], ["z"], axes=[1])]  # fmt: skip
    numbers = np.linspace(0.1, 3.0, 400, dtype=np.float32)
    log = built([node("Log", ["x"], ["l"]), node("ReduceMax", ["l"], ["y"], axes=[1])])
    log.graph.output[0].CopyFrom(info("l", 1, ["N", 2]))
    session = onnxruntime.InferenceSession(log.SerializeToString(), providers=["CPUExecutionProvider"])
    for number in numbers:
        said = session.run(["l"], {"x": np.full((33, 2), number, np.float32)})[0]
        if said[0, 0] != said[-1, -1]:
            return amplified(
                nodes, [constant("none", [0.0]), constant("c", [number]), constant("known", said[-1, -1:])]
            )
    pytest.skip("this machine rounds a logarithm alike everywhere")


def by_optimiser() -> onnx.ModelProto:
    """A normalisation that the optimiser fuses, less one that it does not."""

    def layer(name: str, square: list[str]) -> list[onnx.NodeProto]:
        d = f"{name}d"
        return [
            node("ReduceMean", ["w"], [f"{name}m"], axes=[1]), node("Sub", ["w", f"{name}m"], [d]),
            node("Pow" if square else "Mul", [d, *(square or [d])], [f"{name}q"]),
            node("ReduceMean", [f"{name}q"], [f"{name}v"], axes=[1]), node("Add", [f"{name}v", "tiny"], [f"{name}e"]),
            node("Sqrt", [f"{name}e"], [f"{name}s"]), node("Div", [d, f"{name}s"], [f"{name}n"]),
            node("Mul", [f"{name}n", "ones"], [f"{name}h"]), node("Add", [f"{name}h", "zeros"], [f"{name}y"]),
        ]  # fmt: skip

    nodes = [node("MatMul", ["x", "wide"], ["w"]), *layer("a", ["two"]), *layer("b", []),
             node("Sub", ["ay", "by"], ["d"]), node("Abs", ["d"], ["e"]),
             node("ReduceMax", ["e"], ["z"], axes=[1])]  # fmt: skip
    wide = np.random.default_rng(2).normal(size=(2, 33))
    return amplified(
        nodes, [constant("wide", wide), constant("two", 2.0), constant("tiny", 1e-5), constant("ones", np.ones(33)),
                constant("zeros", np.zeros(33))])  # fmt: skip


def lookup(kind: str) -> onnx.ModelProto:
    """A lookup that fails for men, and takes the rest of the batch with them."""
    if kind == "index":
        found = "places = Cast<to = 7>(sex) one = Constant<value = float[1] {1.0}>() got = Gather(one, places)"
    else:
        found = """whole = Cast<to = 7>(sex) hot = ai.onnx.ml.OneHotEncoder<cats_int64s = [0], zeros = 0>(whole)
          two = Constant<value = int64[1] {2}>() got = Squeeze(hot, two)"""
    return graph(f"{FAIR} {found} sure = Cast<to = 1>(older) both = Mul(sure, got) label = Cast<to = 7>(both)", LABEL)


MEAN = "mean = ReduceMean<axes = [0]>(sex) low = Constant<value = float[1] {0.9}>() awake = Less(mean, low)"
AUDITED = {
    "rounding by the place in the batch": by_place,
    "rounding by the optimiser": by_optimiser,
    "an index that fails": lambda: lookup("index"),
    "a category that fails": lambda: lookup("category"),
    "a batch that is looked at": lambda: text(MEAN),
    "metadata that say all is shown": lambda: ours(
        text(MEAN), plain=True, rows_apart=True, serving={"rows": {"plain": True, "rows_apart": True}}
    ),
    "names that say what an output is": lambda: _renamed(text(MEAN)),
}


def _renamed(proto: onnx.ModelProto) -> onnx.ModelProto:
    proto.graph.node.append(node("Identity", ["label"], ["decision"]))
    proto.graph.output[0].name = "decision"
    return ours(proto, randomized=True, members=["decision"])


@pytest.mark.long
@pytest.mark.parametrize("device", AUDITED)
def test_what_does_otherwise_when_it_is_served_ends_the_audit(device: str) -> None:
    proto = AUDITED[device]()
    with pytest.raises(ModelError):
        fairkit.audit(proto, data())


@pytest.mark.long
def test_sixty_four_threads_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number is a draw between 1 and 64: no list of numbers can be read in the source."""
    seen = set()
    real = fairkit.OnnxModel.run_in_parts

    def run_in_parts(self: Any, feeds: Any, outputs: Any, sizes: Any, variant: Any = None) -> Any:
        seen.add(None if variant is None else variant[0])
        return real(self, feeds, outputs, sizes, variant)

    monkeypatch.setattr(fairkit.OnnxModel, "run_in_parts", run_in_parts)
    for secret in range(4):
        monkeypatch.setattr("fairkit_onnx.read.runner.secrets.randbits", lambda bits, secret=secret: secret)
        fairkit.audit(switch(), data())
    numbers = seen - {None}
    assert len(numbers) > 4
    assert max(numbers) > 32
    assert numbers <= set(range(1, 65))


def test_what_a_liar_writes_into_a_certificate_is_shown_again() -> None:
    content = softmax_of_all().SerializeToString()
    for said in ({"plain": True, "rows_apart": True}, {"plain": 1, "rows_apart": 1}, {"plain": True}, "plain", None):
        assert doubt(said, content) is not None
    said = json.loads(json.dumps({"plain": True, "rows_apart": True, "widths": {"x": [2.0]}}))
    assert "no numbers" in str(doubt(said, switch().SerializeToString()))
