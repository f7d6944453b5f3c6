"""Plain files: what common exporters write is plain, what could be read in two ways is not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import fairkit
from fairkit.errors import FairkitError, ModelError
from fairkit_onnx.plain import FIELDS, doubt, show

from . import exported

NOT_SHOWN = {
    "AdaBoostClassifier": "Shape",
    "OneVsOneClassifier": "Shape",
    "PolynomialFeatures": "Shape",
    "QuantileTransformer": "Shape",
    "GaussianProcessClassifier": "AttributeProto.g",
    "GaussianProcessRegressor": "AttributeProto.g",
    "KNeighborsClassifier": "AttributeProto.g",
    "KNeighborsRegressor": "AttributeProto.g",
    "RadiusNeighborsClassifier": "AttributeProto.g",
    "RadiusNeighborsRegressor": "AttributeProto.g",
    "QuadraticDiscriminantAnalysis": "along the rows",
    "AdaBoostRegressor": "several numbers",
    "PLSRegression": "onnx.checker",
    "CountVectorizer": "StringNormalizer",
}
"""Exports that are honestly not shown, and why."""


@pytest.mark.long
def test_common_exports_are_shown() -> None:
    made = [
        one for some in (exported.sklearn, exported.pipelines, exported.boosters, exported.networks) for one in some()
    ]
    shown = 0
    for name, proto in made:
        found = show(proto.SerializeToString(), {})
        reason, expected = found.broken or found.meet, NOT_SHOWN.get(name.split(", ")[0])
        assert (reason is None) == (expected is None), (name, reason)
        assert expected is None or expected in str(reason), (name, reason)
        shown += reason is None
    assert len(made) >= 98
    assert shown >= 86


@pytest.mark.long
def test_what_exporters_write_is_probed_and_differs_nowhere() -> None:
    """In other batches, orders and numbers of threads, and without optimisation."""
    x, y, target = exported.table()
    words = np.random.default_rng(1).choice(np.array(["clerk", "teacher", "nurse"], dtype=object), 240)
    columns = {f"x{i}": x[:, i] for i in range(5)} | {"word": words, "other": words[::-1]}
    people = columns | {"y": y, "t": target.astype(float), "g": np.arange(240) % 2}
    odd: dict[str, str] = {}
    audited = 0
    for some in (exported.sklearn, exported.pipelines, exported.boosters, exported.networks):
        for name, proto in some():
            features = list(columns)[: 7 if len(proto.graph.input) > 1 else 5]
            data = fairkit.load_data(people, label="y", favorable=1, sensitive=["g"], features=features)
            numbers = fairkit.load_data(people, label="t", sensitive=["g"], features=features)
            try:
                try:
                    bound = fairkit.OnnxModel.load(proto).bind(
                        data, fairkit.ModelOptions(task="binary", favorable_class=1)
                    )
                except ModelError:
                    bound = fairkit.OnnxModel.load(proto).bind(numbers, fairkit.ModelOptions(task="regression"))
            except FairkitError as error:  # outputs that no audit reads
                odd[name] = str(error)
                continue
            audited += 1
            assert bound.info.serving["probed"] == {"rows": 240, "differ": 0}, name
    assert audited >= 98, odd
    assert not [name for name, why in odd.items() if "another result" in why]


WRITTEN = {
    "binary": "reweigh exponentiated-gradient fairgbm budro sensei fair-regression linear-post threshold-optimizer "
    "reject-option correlation-remover disparate-impact-remover massaging multicalibrate rto shift-inference project",
    "regression": "barycenter sensei fair-regression correlation-remover disparate-impact-remover project",
}


REPAIRING = ("threshold-optimizer", "reject-option", "multicalibrate", "rto", "shift-inference")


@pytest.mark.long
@pytest.mark.parametrize(("task", "name"), [(task, name) for task, some in WRITTEN.items() for name in some.split()])
def test_what_our_methods_write_is_shown_with_every_output_audited(task: str, name: str) -> None:
    rng = np.random.default_rng(0)
    sex, job = (rng.choice(np.array(some, dtype=object), 900) for some in (["f", "m"], ["clerk", "nurse"]))
    table = {"sex": sex, "age": rng.integers(18, 80, 900).astype(float), "x": rng.normal(size=900), "job": job}
    sum_ = table["x"] - (sex == "f") + rng.logistic(size=900)
    goal = sum_ if task == "regression" else np.where(sum_ > 0, "yes", "no").astype(object)
    favorable = {} if task == "regression" else {"favorable": "yes"}
    data = fairkit.load_data(table | {"y": goal}, label="y", sensitive=["sex"], name="people", **favorable)
    given = fairkit.mitigate("reweigh", data).baseline_onnx if name in REPAIRING else None
    serving = fairkit.mitigate(name, data, model=given).after.model.serving
    assert serving["rows"]["rows_apart"], serving
    assert serving["probed"]["differ"] == 0
    assert "outputs" not in serving
    assert "inputs" not in serving


def small() -> onnx.ModelProto:
    """A plain file: a scaled sum of two columns, and whether it is above a limit."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["z"], name="sum"),
            helper.make_node("Sigmoid", ["z"], ["p"], doc_string="a score"),
            helper.make_node("Greater", ["p", "limit"], ["above"]),
            helper.make_node("Cast", ["above"], ["y"], to=7),
        ],
        "g",
        [helper.make_tensor_value_info("x", 1, ["n", 2])],
        [helper.make_tensor_value_info("p", 1, ["n", 1]), helper.make_tensor_value_info("y", 7, ["n", 1])],
        [numpy_helper.from_array(np.array([[1], [2]], np.float32), "w"), helper.make_tensor("limit", 1, [1], [0.5])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def broken_rule(content: bytes, folder: Any = None) -> str | None:
    """The rule that a file breaks."""
    return show(content, {}, folder).broken


def test_a_small_file_is_plain_and_its_rows_stay_apart() -> None:
    found = show(small().SerializeToString(), {})
    assert found.to_dict() == {"plain": True, "rows_apart": True}
    assert doubt(found.to_dict(), small().SerializeToString()) is None


def messages(message: Any) -> Iterator[Any]:
    """Yield a message and those in it."""
    yield message
    for entry, value in message.ListFields():
        if entry.message_type is not None:
            for inner in (value,) if hasattr(value, "DESCRIPTOR") else value:
                yield from messages(inner)


def unread() -> list[tuple[str, str]]:
    """All fields of the ONNX protobuf that no rule reads, by message of a plain file."""
    kinds = {one.DESCRIPTOR.name: one.DESCRIPTOR for one in messages(small())}
    return [
        (name, entry.name) for name, kind in kinds.items() for entry in kind.fields if entry.name not in FIELDS[name]
    ]


@pytest.mark.parametrize(("message", "name"), unread())
def test_a_field_that_nothing_reads_is_refused(message: str, name: str) -> None:
    proto = small()
    one = next(one for one in messages(proto) if one.DESCRIPTOR.name == message)
    entry = one.DESCRIPTOR.fields_by_name[name]
    if entry.message_type is not None:
        if entry.is_repeated:
            getattr(one, name).add()
        else:
            getattr(one, name).SetInParent()
    else:
        kinds = {entry.CPPTYPE_STRING: "a", entry.CPPTYPE_FLOAT: 1.0, entry.CPPTYPE_DOUBLE: 1.0}
        value: Any = kinds.get(entry.cpp_type, 1)
        if entry.type == entry.TYPE_BYTES:
            value = b"a"
        if entry.is_repeated:
            getattr(one, name).append(value)
        else:
            setattr(one, name, value)
    assert broken_rule(_bytes(proto)) is not None


def _bytes(proto: onnx.ModelProto) -> bytes:
    return proto.SerializeToString()


def _twice(proto: onnx.ModelProto) -> bytes:
    return _bytes(proto) + b"\x08\x08"  # ir_version once more


def _unknown(proto: onnx.ModelProto) -> bytes:
    return _bytes(proto) + b"\xfa\x3f\x01a"  # field 1023


def _polyglot(proto: onnx.ModelProto) -> bytes:
    proto.ir_version = 8
    proto.producer_name = "ORTM"
    return _bytes(proto)


def _set(change: Any) -> Any:
    def changed(proto: onnx.ModelProto) -> bytes:
        change(proto)
        return _bytes(proto)

    return changed


def _renamed(proto: onnx.ModelProto) -> None:
    proto.graph.node[1].output[0] = "z"


def _default(proto: onnx.ModelProto) -> None:
    proto.graph.input.append(helper.make_tensor_value_info("limit", 1, [1]))


def _reference(proto: onnx.ModelProto) -> None:
    proto.graph.node[3].attribute[0].ref_attr_name = "to"


def _second(proto: onnx.ModelProto) -> None:
    proto.graph.node[3].attribute.append(helper.make_attribute("to", 1))


def _undeclared(proto: onnx.ModelProto) -> None:
    proto.graph.node[1].attribute.append(helper.make_attribute("axis", 1))


def _kind(proto: onnx.ModelProto) -> None:
    proto.graph.node[3].attribute[0].type = onnx.AttributeProto.FLOAT


def _both(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[1].raw_data = np.float32(0.9).tobytes()


def _more(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[1].float_data.append(0.1)


def _truth(proto: onnx.ModelProto) -> None:
    proto.graph.initializer.append(helper.make_tensor("t", 9, [1], [True]))
    proto.graph.initializer[-1].int32_data[0] = 2


def _raw_truth(proto: onnx.ModelProto) -> None:
    proto.graph.initializer.append(helper.make_tensor("t", 9, [1], b"\x02", raw=True))


def _versions(proto: onnx.ModelProto) -> None:
    proto.opset_import.append(helper.make_opsetid("", 13))


def _set_up(proto: onnx.ModelProto) -> None:
    helper.set_model_props(proto, {"ort_config": "{}"})


BROKEN = {
    "a field once more": (_twice, "other bytes"),
    "an unknown field": (_unknown, "other bytes"),
    "the runtime's own format": (_polyglot, "own format"),
    "a name twice": (_set(_renamed), "name"),
    "an input with a default": (_set(_default), "name is given twice"),
    "an attribute by reference": (_set(_reference), "ref_attr_name"),
    "an attribute twice": (_set(_second), "attribute twice"),
    "an attribute of no schema": (_set(_undeclared), "does not declare"),
    "an attribute of another type": (_set(_kind), "does not declare"),
    "numbers in two places": (_set(_both), "exactly one place"),
    "a number too many": (_set(_more), "too many"),
    "a truth value of 2": (_set(_truth), "out of range"),
    "a truth value of 2 in bytes": (_set(_raw_truth), "out of range"),
    "two versions of a domain": (_set(_versions), "two versions"),
    "a runtime set up by metadata": (_set(_set_up), "set up"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_could_be_read_in_two_ways_is_not_plain(name: str) -> None:
    build, expected = BROKEN[name]
    assert expected in str(broken_rule(build(small())))


def test_a_declared_shape_that_is_not_so_is_refused() -> None:
    proto = small()
    proto.graph.value_info.append(helper.make_tensor_value_info("z", 1, ["m", 1]))
    assert show(_bytes(proto), {}).meet is None
    proto.graph.value_info[0].type.tensor_type.shape.dim[1].dim_param = "n"  # that of the rows
    assert "declared shape" in str(show(_bytes(proto), {}).meet)


def test_numbers_beside_the_file_are_digested_with_it(tmp_path: Any) -> None:
    proto = small()
    tensor = proto.graph.initializer[0]
    (tmp_path / "w.data").write_bytes(tensor.raw_data)
    onnx.external_data_helper.set_external_data(tensor, "w.data", offset=0, length=8)
    tensor.ClearField("raw_data")
    onnx.save_model(proto, tmp_path / "m.onnx")
    content = (tmp_path / "m.onnx").read_bytes()
    found = show(content, {}, tmp_path)
    assert found.broken is None
    assert list(found.files) == ["w.data"]
    (tmp_path / "w.data").write_bytes(np.array([[2], [1]], np.float32).tobytes())
    assert "another one" in str(doubt(found.to_dict(), content, tmp_path))
    tensor.external_data[2].value = "4"
    assert "too many" in str(broken_rule(_bytes(proto), tmp_path))


def test_what_a_certificate_says_is_shown_again_from_the_file() -> None:
    proto = small()
    said = show(_bytes(proto), {}).to_dict()
    proto.graph.node[0].op_type = "CumSum"
    assert "not shown" in str(doubt(said, _bytes(proto)))
    assert "not shown" in str(doubt({}))
    assert "not shown" in str(doubt(None))
    assert "rows meet" in str(doubt({"plain": True, "rows_apart": False, "because": "rows meet"}))
