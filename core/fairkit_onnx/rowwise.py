"""Rows apart: what each operator of a plain file makes of lengths, one of which is N, the number of rows.

`RULES` has a line for each operator that common exporters write for tables. A rule takes the lengths that the operator
is given, and stops where rows could meet for the axes, attributes and lengths that it has here. `lengths` follows a
whole graph. `fairkit_onnx.plain` says of which files this may be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.support.lazy_dataclass import dataclass, field

if TYPE_CHECKING:
    import onnx

Dim = int | None
"""A length; None is N, the number of rows."""


class NotShownError(Exception):
    """A rule is broken, or rows may meet: the sentence says which, and where."""


def require(holds: bool, otherwise: str) -> None:
    """Stop with a sentence unless a rule holds."""
    if not holds:
        raise NotShownError(otherwise)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor's lengths: of rows, with one axis N; or of constants."""

    dims: tuple[Dim, ...]
    proto: onnx.TensorProto | None = None  # the numbers of a constant, where they are known
    maps: bool = False  # one map for each row

    @property
    def axis(self) -> int | None:
        """The axis of the rows; None for a constant."""
        return self.dims.index(None) if None in self.dims else None


@dataclass(frozen=True, slots=True)
class Call:
    """An operator with what it is given."""

    node: onnx.NodeProto
    version: int
    inputs: Sequence[Tensor | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)  # what `array` has made of attributes

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute."""
        return self.attributes.get(name, default)

    def data(self, place: int = 0) -> Tensor:
        """Return an input that must be there."""
        result = self.inputs[place] if place < len(self.inputs) else None
        if result is None or result.maps:
            raise NotShownError("an input is missing")
        return result

    def has(self, place: int) -> bool:
        """Whether an optional input is given."""
        return place < len(self.inputs) and self.inputs[place] is not None

    def numbers(self, place: int) -> np.ndarray[Any, Any]:
        """Return the numbers of an input that must be a constant of the file."""
        from onnx import numpy_helper

        tensor = self.data(place).proto
        if tensor is None or tensor.data_location == 1:
            raise NotShownError("a length or an index is computed")
        return numpy_helper.to_array(tensor)

    def listed(self, name: str, place: int, since: int) -> list[int] | None:
        """Return whole numbers that were an attribute, and are a constant from a version on; None where not given."""
        if self.version < since:
            return None if self.get(name) is None else np.atleast_1d(self.get(name)).tolist()
        return np.atleast_1d(self.numbers(place)).astype(np.int64).tolist() if self.has(place) else None

    def free(self, axis: Any, rank: int | None = None) -> int:
        """Return an axis of the first input from 0 on; it must not be that of the rows."""
        dims = self.data().dims
        rank = len(dims) if rank is None else rank
        if axis is None or not -rank <= axis < rank:
            raise NotShownError("no axis is given")
        if rank == len(dims) and dims[axis % rank] is None:
            raise NotShownError("it works along the rows")
        return int(axis % rank)

    def table(self) -> int:
        """Return the columns of an input that must be a table of rows."""
        dims = self.data().dims
        if len(dims) != 2 or dims[0] is not None or dims[1] is None:
            raise NotShownError("its input is no table of rows")
        return dims[1]

    def array(self, *names: str) -> np.ndarray[Any, Any]:
        """Return the numbers or texts of the one attribute of several that is given; empty where none is."""
        name_given = [name for name in names if name in self.attributes]
        if len(name_given) > 1:
            raise NotShownError(f"{' and '.join(name_given)} are both given")
        if not name_given:
            return np.zeros(0)
        if name_given[0] not in self.arrays:
            from onnx import TensorProto, numpy_helper

            value = self.attributes[name_given[0]]
            made = numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)
            self.arrays[name_given[0]] = made
        return self.arrays[name_given[0]]


Dims = tuple[Dim, ...]


def _volume(dims: Sequence[Dim]) -> int:
    """Return the product of lengths besides N."""
    return prod(1 if dim is None else dim for dim in dims)


Rule = Callable[[Call], list[Dims]]


def apply(call: Call) -> list[Dims]:
    """Return the lengths of an operator's outputs."""
    result = RULES[call.node.domain, call.node.op_type](call)
    require(len(call.node.output) <= len(result), "it has further outputs")
    require(all(dims.count(None) <= 1 and 0 not in dims for dims in result), "rows meet, or an axis is empty")
    return result


def lengths(proto: onnx.ModelProto, widths: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
    """Return the lengths of every tensor of a plain file, all row-wise.

    `proto`: the plain file's message (`check_file`); `widths`: by input, the lengths of its axes after the first, where
    the file leaves them open.
    """
    versions = {entry.domain: entry.version for entry in proto.opset_import}
    tensors = {tensor.name: Tensor(tuple(tensor.dims), tensor) for tensor in proto.graph.initializer}
    for entry in proto.graph.input:
        tensors[entry.name] = Tensor(_input(entry, widths))
    for node in proto.graph.node:
        if node.op_type == "Constant":
            tensors[node.output[0]] = _constant(node)
            continue
        attributes = {attribute.name: value_of(attribute) for attribute in node.attribute}
        try:
            require(all(not name or name in tensors for name in node.input), "an input is not made before it")
            call = Call(
                node, versions[node.domain], [tensors[name] if name else None for name in node.input], attributes
            )
            result = apply(call)
        except (NotShownError, ArithmeticError, LookupError, TypeError, ValueError) as stop:
            raise NotShownError(f"at {node.op_type} {node.name or node.output[0]!r}: {stop}") from None
        maps = node.op_type == "ZipMap" or any(tensor is not None and tensor.maps for tensor in call.inputs)
        proto_of = tensors[node.input[0]].proto if node.op_type == "Identity" else None
        tensors |= {name: Tensor(dims, proto_of, maps) for name, dims in zip(node.output, result, strict=False) if name}
    _check_declared(proto, tensors)
    _check_inferred(proto, tensors)
    return tensors


def value_of(attribute: onnx.AttributeProto) -> Any:
    """Return an attribute's value; many numbers as an array, for a list takes five times the memory."""
    from onnx import helper

    if attribute.type == attribute.INTS and len(attribute.ints) > 1_000:
        return np.fromiter(attribute.ints, np.int64, len(attribute.ints))
    if attribute.type == attribute.FLOATS and len(attribute.floats) > 1_000:
        return np.fromiter(attribute.floats, np.float64, len(attribute.floats))
    return helper.get_attribute_value(attribute)


def _input(entry: onnx.ValueInfoProto, widths: Mapping[str, Sequence[int]]) -> Dims:
    declared = entry.type.tensor_type
    require(declared.HasField("shape") and len(declared.shape.dim) in (1, 2), f"the input {entry.name!r} is no table")
    told = list(widths.get(entry.name, ()))
    rest = [dim.dim_value for dim in declared.shape.dim][1:]
    dims = [length or (told[index] if index < len(told) else 0) for index, length in enumerate(rest)]
    require(all(dim > 0 for dim in dims), f"the input {entry.name!r} leaves the number of its columns open")
    return (None, *dims)


def _constant(node: onnx.NodeProto) -> Tensor:
    """Return the constant of a node with one attribute."""
    from onnx import helper, numpy_helper

    where = f"at Constant {node.name or node.output[0]!r}"
    require(len(node.attribute) == 1 and len(node.output) == 1, f"{where}: it has not just one value")
    value = helper.get_attribute_value(node.attribute[0])
    if not hasattr(value, "data_type"):
        require(node.attribute[0].type not in (3, 8), f"{where}: it is text")
        value = numpy_helper.from_array(np.array(value, np.float32 if node.attribute[0].type in (1, 6) else np.int64))
    return Tensor(tuple(value.dims), value)


def _check_declared(proto: onnx.ModelProto, known: Mapping[str, Tensor]) -> None:
    """Refuse lengths that the file claims of its tensors and that are others: an optimiser may believe them."""
    symbols: dict[str, Dim] = {}
    read = {name for node in proto.graph.node for name in node.input}
    makers = {name: node for node in proto.graph.node for name in node.output}
    for entry in (*proto.graph.input, *proto.graph.value_info, *proto.graph.output):
        require(entry.name in known, f"{entry.name!r} is declared, and nothing makes it")
        tensor, declared = known[entry.name], entry.type.tensor_type
        if tensor.maps or not entry.type.HasField("tensor_type") or not declared.HasField("shape"):
            continue
        said, where = declared.shape.dim, f"the declared shape of {entry.name!r} is not what it is"
        last = entry.name in makers and makers[entry.name].domain == "ai.onnx.ml" and entry.name not in read
        if last:  # exporters declare classifiers' outputs carelessly, and nothing reads these
            continue
        require(len(said) == len(tensor.dims), where)
        for dim_said, dim in zip(said, tensor.dims, strict=True):
            if dim_said.HasField("dim_value"):
                require(dim_said.dim_value == dim or (dim is None and dim_said.dim_value > 0), where)
            elif dim_said.dim_param:
                require(symbols.setdefault(dim_said.dim_param, dim) == dim, where)
    if all(not entry.type.tensor_type.shape.dim[0].HasField("dim_value") for entry in proto.graph.input):
        for entry in proto.graph.value_info:
            rows, dims = known[entry.name].axis, entry.type.tensor_type.shape.dim
            fixed = rows is not None and rows < len(dims) and dims[rows].HasField("dim_value")
            require(not fixed, f"the declared shape of {entry.name!r} has a number of rows, and the inputs have none")
    for output in proto.graph.output:
        require(known[output.name].dims[:1] == (None,), f"the output {output.name!r} does not have rows first")


def _check_inferred(proto: onnx.ModelProto, known: Mapping[str, Tensor]) -> None:
    """Refuse lengths that onnx's own inference, a second reader, finds to be others."""
    from onnx import ModelProto, shape_inference

    opened = ModelProto()
    opened.CopyFrom(proto)
    del opened.graph.value_info[:]
    for node in opened.graph.node:  # no length follows from the nodes of trees, which are most of a file
        for index in reversed(range(len(node.attribute))):
            if node.domain == "ai.onnx.ml" and node.attribute[index].name.startswith("nodes_"):
                del node.attribute[index]
    for entry in opened.graph.input:
        entry.type.tensor_type.shape.dim[0].dim_param = "fairkit: rows"
    for entry in shape_inference.infer_shapes(opened).graph.value_info:
        shape, tensor = entry.type.tensor_type.shape, known[entry.name]
        if entry.type.tensor_type.HasField("shape") and not tensor.maps:
            same = len(shape.dim) == len(tensor.dims) and all(
                not dim_said.HasField("dim_value") or dim_said.dim_value == dim
                for dim_said, dim in zip(shape.dim, tensor.dims, strict=True)
            )
            require(same, f"{entry.name!r} has other lengths for onnx than for the rules here")


# --- rules: from the lengths of what an operator is given to those of what it makes -----------------------------------


def broadcast(*tensors: Tensor) -> Dims:
    """Lengths after numpy's rule; N meets only N or 1."""
    rank = max(len(tensor.dims) for tensor in tensors)
    dims: list[Dim] = []
    for column in zip(*((1,) * (rank - len(tensor.dims)) + tensor.dims for tensor in tensors), strict=True):
        others = {length for length in column if length != 1}
        if len(others) > 1:
            raise NotShownError("rows meet other lengths")
        dims.append(others.pop() if others else 1)
    return tuple(dims)


def _each(call: Call) -> list[Dims]:
    return [broadcast(*(call.data(index) for index in range(len(call.inputs))))]


def _as_first(call: Call) -> list[Dims]:
    """What follows the first input stretches to it, and never it to what follows."""
    rest = [tensor for tensor in call.inputs if tensor is not None]
    if broadcast(*rest) != call.data().dims:
        raise NotShownError("rows meet other lengths")
    return [call.data().dims]


def _clip(call: Call) -> list[Dims]:
    if any(call.has(index) and call.data(index).dims not in ((), (1,)) for index in (1, 2)):
        raise NotShownError("its limits are not one number each")
    return [call.data().dims]


def _dropout(call: Call) -> list[Dims]:
    if call.has(2) and call.numbers(2).any():
        raise NotShownError("it draws")
    return [call.data().dims] * 2


def _concat(call: Call) -> list[Dims]:
    axis, parts = call.free(call.get("axis")), [call.data(index).dims for index in range(len(call.inputs))]
    if any(
        len(part) != len(parts[0]) or part[:axis] + part[axis + 1 :] != parts[0][:axis] + parts[0][axis + 1 :]
        for part in parts
    ):
        raise NotShownError("rows meet other lengths")
    return [(*parts[0][:axis], sum(part[axis] or 0 for part in parts), *parts[0][axis + 1 :])]


def _slice(call: Call) -> list[Dims]:
    starts, ends, axes, steps = (
        call.listed(name, index + 1, 10) for index, name in enumerate(("starts", "ends", "axes", "steps"))
    )
    if starts is None or ends is None or len(starts) != len(ends):
        raise NotShownError("no range is given")
    axes = list(range(len(starts))) if axes is None else axes
    places = [call.free(axis) for axis in axes]
    steps = [1] * len(starts) if steps is None else steps
    if len(set(places)) != len(starts) or len(steps) != len(starts) or 0 in steps:
        raise NotShownError("its ranges are not one for each axis")
    dims = list(call.data().dims)
    for place, start, end, step in zip(places, starts, ends, steps, strict=True):
        dims[place] = len(range(*slice(start, end, step).indices(dims[place] or 0)))
    return [tuple(dims)]


def _split(call: Call) -> list[Dims]:
    axis, count, dims = call.free(call.get("axis", 0)), len(call.node.output), call.data().dims
    total, parts = dims[axis] or 0, call.listed("split", 1, 13)
    if parts is None:
        parts = [total // count] * count
    if sum(parts) != total or len(parts) != count or call.get("num_outputs", count) != count:
        raise NotShownError("its parts do not make the whole")
    return [(*dims[:axis], part, *dims[axis + 1 :]) for part in parts]


def _gather(call: Call) -> list[Dims]:
    """Constant places of rows, or rows' places of a constant."""
    axis, data, places = call.free(call.get("axis", 0)), call.data(), call.data(1)
    return [(*data.dims[:axis], *places.dims, *data.dims[axis + 1 :])]


def _gather_elements(call: Call) -> list[Dims]:
    axis, data, places = call.free(call.get("axis", 0)), call.data().dims, call.data(1).dims
    if len(data) != len(places) or data[:axis] + data[axis + 1 :] != places[:axis] + places[axis + 1 :]:
        raise NotShownError("rows meet other lengths")
    return [places]


def _along(default: Any) -> Rule:
    """Operators that keep the lengths and work along one axis."""
    return lambda call: [call.data().dims if call.free(call.get("axis", default)) >= 0 else ()]


def _softmax(call: Call) -> list[Dims]:
    axis, dims = call.free(call.get("axis", -1 if call.version >= 13 else 1)), call.data().dims
    if call.version < 13 and (len(dims) != 2 or axis != 1):  # it flattened before and after the axis
        raise NotShownError("it works along several axes")
    return [dims]


def _cumsum(call: Call) -> list[Dims]:
    return [call.data().dims if call.free(int(call.numbers(1).reshape(-1)[0])) >= 0 else ()]


def _topk(call: Call) -> list[Dims]:
    axis, count, dims = call.free(call.get("axis", -1)), call.listed("k", 1, 10), call.data().dims
    if not count or not 0 < count[0] <= (dims[axis] or 0):
        raise NotShownError("it takes more than there are")
    return [(*dims[:axis], count[0], *dims[axis + 1 :])] * 2


def _without(dims: Dims, axes: Sequence[int], keep: bool) -> Dims:
    return tuple(1 if index in axes else dim for index, dim in enumerate(dims) if keep or index not in axes)


def _arg(call: Call) -> list[Dims]:
    return [_without(call.data().dims, [call.free(call.get("axis", 0))], bool(call.get("keepdims", 1)))]


def _reduce(call: Call) -> list[Dims]:
    axes = call.listed("axes", 1, 13 if call.node.op_type == "ReduceSum" else 18)
    if not axes:
        require(not call.get("noop_with_empty_axes", 0), "its axes are not clear")
        axes = list(range(len(call.data().dims)))  # right for constants; along the rows it stops
    return [_without(call.data().dims, [call.free(axis) for axis in axes], bool(call.get("keepdims", 1)))]


def _squeeze(call: Call) -> list[Dims]:
    axes = call.listed("axes", 1, 13)
    if not axes:
        raise NotShownError("its axes depend on lengths")
    places = [call.free(axis) for axis in axes]
    if any(call.data().dims[axis] != 1 for axis in places):
        raise NotShownError("an axis to take away is not of length 1")
    return [_without(call.data().dims, places, keep=False)]


def _unsqueeze(call: Call) -> list[Dims]:
    axes, dims = call.listed("axes", 1, 13) or [], list(call.data().dims)
    rank = len(dims) + len(axes)
    if any(not -rank <= axis < rank for axis in axes) or len({axis % rank for axis in axes}) != len(axes):
        raise NotShownError("its axes are not clear")
    for axis in sorted(axis % rank for axis in axes):
        dims.insert(axis, 1)
    return [tuple(dims)]


def _transpose(call: Call) -> list[Dims]:
    dims = call.data().dims
    order = call.get("perm", list(range(len(dims)))[::-1])
    if sorted(order) != list(range(len(dims))):
        raise NotShownError("its axes are not clear")
    return [tuple(dims[axis] for axis in order)]


def _reshape(call: Call) -> list[Dims]:
    """0 copies a length, -1 is what is left; rows stay together if what lies before and after them stays."""
    dims, wanted = call.data().dims, [int(size) for size in call.numbers(1).reshape(-1)]
    if any(size < -1 for size in wanted) or wanted.count(-1) > 1 or (call.get("allowzero", 0) and 0 in wanted):
        raise NotShownError("the new shape is not clear")
    if any(size == 0 and index >= len(dims) for index, size in enumerate(wanted)):
        raise NotShownError("the new shape is not clear")
    dims_found: list[Dim] = [dims[index] if size == 0 else size for index, size in enumerate(wanted)]
    volume, volume_given = (_volume([size for size in some if size != -1]) for some in (dims, dims_found))
    if -1 in dims_found:
        open_rows = None in dims and None not in dims_found
        dims_found[dims_found.index(-1)] = (
            None
            if open_rows and volume_given == volume
            else volume // volume_given
            if volume_given and not open_rows
            else 0
        )
    if dims_found.count(None) != dims.count(None) or _volume(dims_found) != volume:
        raise NotShownError("rows move between axes")
    if None in dims and _volume(dims[: dims.index(None)]) != _volume(dims_found[: dims_found.index(None)]):
        raise NotShownError("rows move between axes")
    return [tuple(dims_found)]


def _flatten(call: Call) -> list[Dims]:
    dims = call.data().dims
    if len(dims) < 2 or call.get("axis", 1) not in (1, 1 - len(dims)) or (None in dims and dims[0] is not None):
        raise NotShownError("rows move between axes")
    return [(dims[0], _volume(dims[1:]))]


def _matmul(call: Call) -> list[Dims]:
    left, right = call.data().dims, call.data(1).dims
    if len(left) < 2 or len(right) not in (1, 2) or None in (*right, left[-1]) or left[-1] != right[0]:
        raise NotShownError("its right factor is not a constant matrix, or rows are not on the left")
    return [(*left[:-1], *right[1:])]


def _gemm(call: Call) -> list[Dims]:
    left, right = call.data().dims, call.data(1).dims
    if call.get("transA", 0) or len(left) != 2 or len(right) != 2 or None in right:
        raise NotShownError("its right factor is not a constant matrix, or rows are not on the left")
    inner, outer = right[::-1] if call.get("transB", 0) else right
    if left[1] != inner or (call.has(2) and broadcast(Tensor((left[0], outer)), call.data(2)) != (left[0], outer)):
        raise NotShownError("its lengths do not fit")
    return [(left[0], outer)]


def _batch_norm(call: Call) -> list[Dims]:
    dims = call.data().dims
    constant = all(call.data(index).dims == dims[1:2] for index in range(1, 5))
    if call.get("training_mode", 0) or len(dims) < 2 or dims[0] is not None or not constant:
        raise NotShownError("it takes means over rows, or has others than constants")
    return [dims]


def _layer_norm(call: Call) -> list[Dims]:
    dims, axis = call.data().dims, call.free(call.get("axis", -1))
    if None in dims[axis:] or any(None in call.data(index).dims for index in range(1, len(call.inputs))):
        raise NotShownError("it works along the rows, or has others than constants")
    return [dims]


def _labels(call: Call) -> int:
    """Return how many classes a classifier has."""
    count = len(call.array("classlabels_strings", "classlabels_int64s", "classlabels_ints"))
    require(count > 1, "it names fewer than two classes")
    return count


def _size(holds: bool) -> None:
    require(bool(holds), "its lists have other lengths than its input and classes ask for")


def _linear_classifier(call: Call) -> list[Dims]:
    width, classes = call.table(), _labels(call)
    sets = len(call.array("intercepts"))
    _size((sets == classes or (sets == 1 and classes == 2)) and len(call.array("coefficients")) == sets * width)
    return [(None,), (None, classes)]


def _linear_regressor(call: Call) -> list[Dims]:
    width, targets = call.table(), call.get("targets", 1)
    _size(len(call.array("coefficients")) == targets * width and len(call.array("intercepts")) in (0, targets))
    return [(None, targets)]


def _svm_classifier(call: Call) -> list[Dims]:
    width, classes = call.table(), _labels(call)
    pairs, supports = classes * (classes - 1) // 2, int(call.array("vectors_per_class").sum())
    _size(bool((call.array("vectors_per_class") >= 0).all()))
    _size(len(call.array("vectors_per_class")) == classes and len(call.array("support_vectors")) == supports * width)
    _size(len(call.array("coefficients")) == supports * (classes - 1) and len(call.array("rho")) == pairs)
    chances = len(call.array("prob_a"))
    _size(chances in (0, pairs) and len(call.array("prob_b")) == chances and len(call.array("kernel_params")) in (0, 3))
    return [(None,), (None, classes if chances or classes == 2 else pairs)]


def _svm_regressor(call: Call) -> list[Dims]:
    width, supports = call.table(), call.get("n_supports", 0)
    _size(len(call.array("support_vectors")) == supports * width and len(call.array("rho")) == 1)
    _size(len(call.array("coefficients")) == (supports or width) and len(call.array("kernel_params")) in (0, 3))
    return [(None, 1)]


def _trees(call: Call, kind: str, outputs: int) -> None:
    """Refuse trees that ask for columns, nodes or outputs that there are not: the runtime does not look."""
    width = call.table()
    trees, nodes = call.array("nodes_treeids"), call.array("nodes_nodeids")
    count = len(trees)
    full = ("nodes_nodeids", "nodes_featureids", "nodes_modes", "nodes_truenodeids", "nodes_falsenodeids")
    _size(count > 0 and all(len(call.array(name)) == count for name in full))
    _size(len(call.array("nodes_values", "nodes_values_as_tensor")) == count)
    _size(all(len(call.array(name)) in (0, count) for name in ("nodes_missing_value_tracks_true", "nodes_hitrates")))
    _size(len(call.array("nodes_hitrates_as_tensor")) in (0, count))
    features, ids = call.array("nodes_featureids"), call.array(f"{kind}_ids")
    owners, at = call.array(f"{kind}_treeids"), call.array(f"{kind}_nodeids")
    _size(0 < len(ids) == len(owners) == len(at) == len(call.array(f"{kind}_weights", f"{kind}_weights_as_tensor")))
    require(bool(features.min() >= 0 and features.max() < width), "a tree asks for a column that there is not")
    require(bool(ids.min() >= 0 and ids.max() < outputs), "a leaf is for an output that there is not")
    _size(len(call.array("base_values", "base_values_as_tensor")) in (0, 1, outputs))
    inner = call.array("nodes_modes") != b"LEAF"
    children = [call.array(f"nodes_{side}nodeids")[inner] for side in ("true", "false")]
    small = all(
        array.min(initial=0) >= 0 and array.max(initial=0) < 2**31 for array in (trees, nodes, owners, at, *children)
    )
    require(bool(small), "a node has a number out of range")
    keys = (trees << 32) + nodes
    ordered, leaves = np.sort(keys, kind="stable"), np.sort(keys[~inner], kind="stable")
    require(bool((ordered[1:] > ordered[:-1]).all()), "a node is given twice")
    for child in children:
        require(_are_among((trees[inner] << 32) + child, ordered), "a node has a child that is not there")
    require(_are_among((owners << 32) + at, leaves), "a weight is for a leaf that is not there")


def _are_among(wanted: np.ndarray[Any, Any], ordered: np.ndarray[Any, Any]) -> bool:
    """Whether each number is one of others that do not decrease; `np.isin` sorts and hashes both."""
    if not len(ordered):
        return not len(wanted)
    places = np.searchsorted(ordered, wanted)
    return bool((ordered.take(places, mode="clip") == wanted).all())


def _tree_classifier(call: Call) -> list[Dims]:
    _trees(call, "class", _labels(call))
    return [(None,), (None, _labels(call))]


def _tree_regressor(call: Call) -> list[Dims]:
    targets = int(call.get("n_targets", 0))
    _trees(call, "target", targets)
    return [(None, targets)]


def _tree_ensemble(call: Call) -> list[Dims]:
    width, targets = call.table(), int(call.get("n_targets", 0))
    features, leaves, roots = (call.array(name) for name in ("nodes_featureids", "leaf_targetids", "tree_roots"))
    _size(len(features) > 0 and 0 < len(leaves) == len(call.array("leaf_weights")) and len(roots) > 0)
    require(bool(features.min() >= 0 and features.max() < width), "a tree asks for a column that there is not")
    require(bool(leaves.min() >= 0 and leaves.max() < targets), "a leaf is for an output that there is not")
    require(bool(roots.min() >= 0 and roots.max() < len(features)), "a tree begins at a node that is not there")
    _size(all(len(call.array(name)) == len(features) for name in ("nodes_modes", "nodes_splits")))
    _size(
        all(
            len(call.array(f"nodes_{name}")) in (0, len(features)) for name in ("hitrates", "missing_value_tracks_true")
        )
    )
    for side in ("true", "false"):
        places, ends = call.array(f"nodes_{side}nodeids"), call.array(f"nodes_{side}leafs")
        _size(len(places) == len(ends) == len(features) and bool(np.isin(ends, (0, 1)).all()))
        most = np.where(ends == 1, len(leaves), len(features))
        require(bool(((places >= 0) & (places < most)).all()), "a node has a child that is not there")
    return [(None, targets)]


def _scaler(call: Call) -> list[Dims]:
    width, sizes = call.table(), [len(call.array(name)) for name in ("offset", "scale")]
    _size(all(size in (1, width) for size in sizes))
    return [(None, width)]


def _imputer(call: Call) -> list[Dims]:
    width = call.table()
    _size(len(call.array("imputed_value_floats", "imputed_value_int64s")) in (1, width))
    return [(None, width)]


def _one_hot(call: Call) -> list[Dims]:
    return [(*call.data().dims, len(call.array("cats_int64s", "cats_strings")))]


def _vectorizer(call: Call) -> list[Dims]:
    tables = [Call(call.node, call.version, [tensor]).table() for tensor in call.inputs]
    _size(call.array("inputdimensions").tolist() == tables)
    return [(None, sum(tables))]


def _extractor(call: Call) -> list[Dims]:
    """Constant columns of rows, or entries of constant lines by the rows' numbers: each line becomes one of N."""
    data, places = call.data().dims, call.data(1).dims
    if None in data:
        call.table()
        require(None not in places, "rows meet")
        return [(None, _volume(places))]
    require(_volume(places) == 1 and len(data) > 0, "rows have several numbers")
    return [(*(data[:-1] or (1,)), None if None in places else 1)]


def _maps(call: Call) -> list[Dims]:
    require(call.table() == _zipped(call), "it has other classes than columns")
    return [(None,)]


def _zipped(call: Call) -> int:
    return len(call.array("classlabels_strings", "classlabels_int64s"))


def _same(call: Call) -> list[Dims]:
    first = call.inputs[0]
    return [() if first is None else first.dims]


def _of_table(call: Call) -> list[Dims]:
    return [(None, call.table())]


_BROADCAST = (
    "Abs Acos Acosh Add And Asin Asinh Atan Atanh Cast Ceil Celu Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater "
    "GreaterOrEqual HardSigmoid HardSwish IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not "
    "Or Pow Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Tan Tanh ThresholdedRelu "
    "Where Xor"
)
_REDUCTIONS = (
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"
)
_DEFAULT: Mapping[str, Rule] = {
    **dict.fromkeys(_BROADCAST.split(), _each),
    **dict.fromkeys(_REDUCTIONS.split(), _reduce),
    "Clip": _clip,
    "PRelu": _as_first,
    **dict.fromkeys(("ArgMax", "ArgMin"), _arg),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _softmax),
    "BatchNormalization": _batch_norm,
    "Concat": _concat,
    "Constant": lambda call: [],  # read by `_constant`
    "CumSum": _cumsum,
    "Dropout": _dropout,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Gemm": _gemm,
    "Identity": _same,
    "LayerNormalization": _layer_norm,
    "LpNormalization": _along(-1),
    "MatMul": _matmul,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "TopK": _topk,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
_CLASSICAL: Mapping[str, Rule] = {
    "ArrayFeatureExtractor": _extractor,
    "Binarizer": _each,
    "FeatureVectorizer": _vectorizer,
    "Imputer": _imputer,
    "LabelEncoder": _each,
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": _linear_regressor,
    "Normalizer": _of_table,
    "OneHotEncoder": _one_hot,
    "SVMClassifier": _svm_classifier,
    "SVMRegressor": _svm_regressor,
    "Scaler": _scaler,
    "TreeEnsemble": _tree_ensemble,
    "TreeEnsembleClassifier": _tree_classifier,
    "TreeEnsembleRegressor": _tree_regressor,
    "ZipMap": _maps,
}
RULES: Mapping[tuple[str, str], Rule] = {
    **{("", name): rule for name, rule in _DEFAULT.items()},
    **{("ai.onnx.ml", name): rule for name, rule in _CLASSICAL.items()},
}
"""By domain and operator, what it makes of lengths; an operator that is not here is not plain."""
