"""Plain files: those of which statements about all batches, or all inputs, may be made.

Another reading of a file than the runtime's proves something about another model. So a file is plain only if there is
nothing to read in two ways: its bytes are what its content serialises to, no field has a meaning that is not used here,
each number is in one place, and its operators are those that common exporters write (`check_file`). Rows stay apart in
it if each operator is row-wise for the axes that it has here (`fairkit_onnx.rowwise`). What is not plain is audited all
the same, on the rows at hand.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.support.lazy_dataclass import dataclass
from fairkit_onnx.rowwise import RULES, NotShownError, lengths, require

if TYPE_CHECKING:
    import onnx

FIELDS: Mapping[str, frozenset[str]] = {
    name: frozenset(fields.split())
    for name, fields in {
        "ModelProto": "ir_version producer_name producer_version domain model_version doc_string graph opset_import "
        "metadata_props",
        "OperatorSetIdProto": "domain version",
        "StringStringEntryProto": "key value",
        "GraphProto": "node name initializer doc_string input output value_info metadata_props",
        "NodeProto": "input output name op_type domain attribute doc_string metadata_props",
        "AttributeProto": "name type doc_string f i s t floats ints strings",
        "TensorProto": "dims data_type name doc_string float_data int32_data int64_data string_data double_data "
        "uint64_data raw_data external_data data_location",
        "ValueInfoProto": "name type doc_string metadata_props",
        "TypeProto": "tensor_type sequence_type map_type",
        "Tensor": "elem_type shape",
        "Sequence": "elem_type",
        "Map": "key_type value_type",
        "TensorShapeProto": "dim",
        "Dimension": "dim_value dim_param",
    }.items()
}
"""By message of the ONNX protobuf, the fields that a plain file may have; a field that is not here breaks a rule."""
_FLAGS = (
    "allowzero", "exclusive", "fmod", "keepdims", "largest", "noop_with_empty_axes", "reverse", "select_last_index",
    "sorted", "spatial", "training_mode", "transA", "transB", "zeros",
)  # fmt: skip
"""Attributes that are 0 or 1: of others one reader says that they are not 0, another that they are not 1."""
OPSETS: Mapping[str, range] = {"": range(8, 24), "ai.onnx.ml": range(1, 6)}
IR_VERSIONS = range(3, 13)
_KINDS = {1: "f", 2: "i", 3: "s", 4: "t", 6: "floats", 7: "ints", 8: "strings"}
"""By type of an attribute, the field with its value."""
_NUMBERS: Mapping[int, tuple[str, int, int, int]] = {
    1: ("float_data", 4, 0, 0),
    11: ("double_data", 8, 0, 0),
    7: ("int64_data", 8, 0, 0),
    6: ("int32_data", 4, 0, 0),
    10: ("int32_data", 2, 0, 65_535),
    9: ("int32_data", 1, 0, 1),
    2: ("int32_data", 1, 0, 255),
    3: ("int32_data", 1, -128, 127),
    8: ("string_data", 0, 0, 0),
}
"""By type of a tensor: the field that may hold its numbers, bytes of one, and the range where the field is wider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What is shown of a file for all batches and all inputs, and the first rule that it breaks."""

    broken: str | None  # the rule of plainness that it breaks; None: it is plain
    meet: str | None  # why its rows are not shown to stay apart; None: they are
    widths: Mapping[str, Sequence[int]]  # by input, the lengths of its axes after the first, as it was fed
    files: Mapping[str, str]  # by name, the digests of other files with its numbers

    @property
    def notes(self) -> list[str]:
        """What people must know where it is not shown that rows stay apart."""
        why = self.broken or self.meet
        return [] if why is None else [f"Rows of a batch are not shown to stay apart: {why}."]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form: what a certificate says of the served model."""
        why = self.broken or self.meet
        return {"plain": self.broken is None, "rows_apart": why is None} | {
            key: value
            for key, value in {
                "because": why,
                "widths": {name: list(width) for name, width in self.widths.items()},
                "files": dict(self.files),
            }.items()
            if value
        }


def show(content: bytes, widths: Mapping[str, Sequence[int]], folder: Path | None = None) -> Shown:
    """Say whether a file is plain, and whether its rows are shown to stay apart for batches of every size."""
    broken, meet, files = None, None, dict[str, str]()
    try:
        proto, files = check_file(content, folder)
    except NotShownError as stop:
        broken = str(stop)
    else:
        try:
            lengths(proto, widths)
        except NotShownError as stop:
            meet = str(stop)
    return Shown(broken=broken, meet=meet, widths=widths, files=files)


def doubt(served: Any, content: bytes | None = None, folder: Path | None = None) -> str | None:
    """Say why a certificate (`predicate.served`) does not show that rows stay apart; None where it does.

    With the file's bytes it is shown again from them: the certificate is believed about widths only, and these are
    checked against what the file declares.
    """
    if not isinstance(served, Mapping) or served.get("plain") is not True or served.get("rows_apart") is not True:
        why = served.get("because") if isinstance(served, Mapping) else None
        return f"it is not shown that rows of a batch stay apart{f': {why}' if isinstance(why, str) else ''}"
    if content is None:
        return None
    widths, files = served.get("widths") or {}, served.get("files") or {}
    numbers = isinstance(widths, Mapping) and all(
        isinstance(width, list) and all(type(length) is int for length in width) for width in widths.values()
    )
    if not numbers:
        return "the widths of its inputs are no numbers"
    shown = show(content, widths, folder)
    why = shown.broken or shown.meet
    if why is not None:
        return f"it is not shown that rows of a batch stay apart: {why}"
    return None if dict(shown.files) == files else "the file with its numbers is another one"


def check_file(content: bytes, folder: Path | None = None) -> tuple[onnx.ModelProto, dict[str, str]]:
    """Return a plain file's message, and by name the digests of the files with its numbers."""
    import onnx
    from google.protobuf.message import DecodeError

    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except DecodeError as error:
        raise NotShownError("it is no ONNX file") from error
    proto.DiscardUnknownFields()
    require(proto.SerializeToString() == content, "reading and writing it again gives other bytes")
    require(content[4:8] != b"ORTM", "onnxruntime could take it for a file of its own format")
    _check_fields(proto)
    require(proto.ir_version in IR_VERSIONS, f"its format has version {proto.ir_version}, which is not tested")
    versions = {entry.domain: entry.version for entry in proto.opset_import}
    require(all(versions[opset.domain] == opset.version for opset in proto.opset_import), "a domain has two versions")
    require("ai.onnx" not in versions, "it names the standard operators' domain by its other name")
    keys = [entry.key for entry in proto.metadata_props]
    require(len(set(keys)) == len(keys) and "ort_config" not in keys, "its metadata could set up the runtime")
    names = [entry.name for entry in proto.graph.input] + [tensor.name for tensor in proto.graph.initializer]
    for node in proto.graph.node:
        _check_node(node, versions)
        names += [name for name in node.output if name]
    require(len(set(names)) == len(names), "a name is given twice")
    require(all(name and name.isprintable() for name in names), "a name is empty or holds unprintable characters")
    tensors = [
        *proto.graph.initializer,
        *(attribute.t for node in proto.graph.node for attribute in node.attribute if attribute.type == 4),
    ]
    digests = _check_external([tensor for tensor in tensors if _check_tensor(tensor)], folder)
    whole = content
    if digests and folder is not None:  # the library looks for the numbers in the working folder: give it them
        filled = onnx.ModelProto()
        filled.CopyFrom(proto)
        onnx.external_data_helper.load_external_data_for_model(filled, str(folder))
        whole = filled.SerializeToString()
    try:
        onnx.checker.check_model(whole, full_check=True)
    except Exception as error:  # what the library raises is of several kinds
        raise NotShownError(f"onnx.checker refuses it: {str(error).strip().splitlines()[0]}") from error
    return proto, digests


def _check_fields(message: Any) -> None:
    """Refuse fields that nothing here reads, at every depth."""
    fields = FIELDS.get(message.DESCRIPTOR.name, frozenset())
    for entry, value in message.ListFields():
        require(entry.name in fields, f"it uses {message.DESCRIPTOR.name}.{entry.name}")
        if entry.message_type is not None:
            for inner in (value,) if hasattr(value, "DESCRIPTOR") else value:
                _check_fields(inner)
        elif entry.type == entry.TYPE_STRING:
            texts = [value] if isinstance(value, str | bytes) else value
            require(all(isinstance(text, str) for text in texts), f"{message.DESCRIPTOR.name}.{entry.name} is no text")


def _check_node(node: onnx.NodeProto, versions: Mapping[str, int]) -> None:
    """Refuse operators that no rule knows, and attributes that are not just what their schema declares."""
    from onnx import defs

    operator = f"the operator {f'{node.domain}.' if node.domain else ''}{node.op_type}"
    require((node.domain, node.op_type) in RULES, f"{operator} is not one that common exporters write for tables")
    version = versions.get(node.domain, 0)
    require(version in OPSETS[node.domain], f"{operator} has version {version}, which is not tested")
    try:
        declared = defs.get_schema(node.op_type, version, node.domain).attributes
    except defs.SchemaError:
        raise NotShownError(f"{operator} is not there in version {version}") from None
    require(
        len({attribute.name for attribute in node.attribute}) == len(node.attribute),
        f"{operator} has an attribute twice",
    )
    for one in node.attribute:
        fits = one.name in declared and int(declared[one.name].type) == one.type  # type: ignore[call-overload]
        require(fits, f"{operator} has the attribute {one.name!r}, which its schema does not declare so")
        require(
            one.name not in _FLAGS or one.i in (0, 1), f"{operator} has {one.name}={one.i}, which is neither 0 nor 1"
        )
        others = {entry.name for entry, _ in one.ListFields()} - {"name", "type", "doc_string"}
        empty = not others and one.type in (6, 7, 8)  # an empty list
        require(others == {_KINDS.get(one.type)} or empty, f"the attribute {one.name!r} has not just one value")


def _check_tensor(tensor: onnx.TensorProto) -> bool:
    """Refuse numbers in two places, too many or too few, or out of range; return whether they lie in another file."""
    filled = {entry.name for entry, _ in tensor.ListFields()} - {"dims", "data_type", "name", "doc_string"}
    where = f"the constant {tensor.name!r}"
    require(tensor.data_type in _NUMBERS, f"{where} has a type that is not tested")
    field, size, low, high = _NUMBERS[tensor.data_type]
    count = prod(tensor.dims)
    require(all(dim >= 0 for dim in tensor.dims), f"{where} has a negative length")
    if filled >= {"external_data"}:
        require(filled == {"external_data", "data_location"} and tensor.data_location == 1 and size > 0, _once(where))
        return True
    require(filled <= {field, "raw_data"} and len(filled) == (count > 0), _once(where))
    raw = "raw_data" in filled
    require(not raw or (size > 0 and len(tensor.raw_data) == count * size), f"{where} has too many or too few numbers")
    require(raw or len(getattr(tensor, field)) == count, f"{where} has too many or too few numbers")
    if high and count:
        numbers = np.frombuffer(tensor.raw_data, np.uint8) if raw else np.array(getattr(tensor, field))
        narrow = tensor.data_type == 9 if raw else True  # bytes are any number but a truth value
        require(not narrow or (numbers.min() >= low and numbers.max() <= high), f"{where} has a number out of range")
    return False


def _once(where: str) -> str:
    return f"the numbers of {where} are not in exactly one place"


def _check_external(tensors: Sequence[onnx.TensorProto], folder: Path | None) -> dict[str, str]:
    """Refuse numbers in another file that are not as torch writes them; return the file's digest by its name."""
    if not tensors:
        return {}
    ranges, places = [], set()
    for tensor in tensors:
        said = {entry.key: entry.value for entry in tensor.external_data}
        whole = len(said) == len(tensor.external_data) and set(said) == {"location", "offset", "length"}
        require(whole and (said["offset"] + said["length"]).isdecimal(), _once(f"the constant {tensor.name!r}"))
        start, length = int(said["offset"]), int(said["length"])
        fits = length == prod(tensor.dims) * _NUMBERS[tensor.data_type][1] and length > 0
        require(fits and tensor.data_type != 9, f"the constant {tensor.name!r} has too many or too few numbers")
        places.add(said["location"])
        ranges.append((start, start + length))
    name = places.pop()
    require(not places and Path(name).name == name and folder is not None, "its numbers are not in one file beside it")
    assert folder is not None  # noqa: S101 -- just required
    path = folder / name
    require(path.is_file() and not path.is_symlink(), "the file with its numbers is not beside it")
    ranges.sort()
    apart = all(before[1] <= after[0] for before, after in pairwise(ranges))
    require(apart and ranges[-1][1] <= path.stat().st_size, "numbers in the file beside it overlap or are missing")
    with path.open("rb") as file:
        return {name: hashlib.file_digest(file, "sha256").hexdigest()}
