"""Operators of the standard that compute: which of them leave each row to itself, by the axes that they work along."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fairkit_onnx.rows.classical import table
from fairkit_onnx.rows.types import Dim, Kind, MixedRowsError, Tensor, broadcast, constant, moved, row_axis, rows, times

if TYPE_CHECKING:
    from fairkit_onnx.rows.call import Call

_PER_AXIS_SOFTMAX = 13
"""From this version on Softmax, LogSoftmax and Hardmax work along one axis; before, over all from it on."""


def elementwise(call: Call) -> list[Tensor]:
    """Operators that treat each entry by itself, with broadcasting."""
    found = broadcast(call.present)
    return [found] * max(len(call.node.output), 1)


def dropout(call: Call) -> list[Tensor]:
    """Dropout in evaluation mode."""
    training = call.given(2)
    if training is not None and training.known() != (0,):
        raise MixedRowsError
    return [replace(call.needed(0), values=None)] * max(len(call.node.output), 1)


def matmul(call: Call) -> list[Tensor]:
    """MatMul: the rows may not be summed over."""
    return [multiplied(call.needed(0), call.needed(1))]


def integer_matmul(call: Call) -> list[Tensor]:
    """MatMulInteger with zero points that are one number each."""
    for place in (2, 3):
        zero = call.given(place)
        if zero is not None and (zero.kind is not Kind.CONSTANT or any(one != 1 for one in zero.dims)):
            raise MixedRowsError
    return matmul(call)


def multiplied(left: Tensor, right: Tensor) -> Tensor:
    """Return the dependence of a product of matrices, with the rules of numpy."""
    first, second = _matrix(left, first=True), _matrix(right, first=False)
    rank = max(first.rank, second.rank)
    pair = (first, second)
    axes = [None if t.axis is None else t.axis + rank - t.rank for t in pair]
    if axes[0] == rank - 1 or axes[1] == rank - 2:
        raise MixedRowsError
    batch = _batches(first, second)
    shape: list[Dim] = [*batch.dims, first.dims[-2], second.dims[-1]]
    held = {axis for axis in axes if axis is not None}
    any_rows = first.has_rows or second.has_rows
    if len(held) > 1 or (held and any(t.has_rows and t.axis is None for t in pair)):
        raise MixedRowsError
    axis = held.pop() if held else None
    if axis is not None and axis >= rank - 2 and first.has_rows and second.has_rows:
        raise MixedRowsError
    if right.rank == 1:
        del shape[-1]
    if left.rank == 1:
        del shape[-2 if right.rank != 1 else -1]
        axis = None if axis is None else axis - (axis == rank - 1)
    return rows(shape, axis) if any_rows else Tensor(shape=tuple(shape))


def _matrix(tensor: Tensor, *, first: bool) -> Tensor:
    if tensor.rank != 1:
        return tensor
    if tensor.axis is not None:  # the only axis is summed over
        raise MixedRowsError
    return tensor.shaped((1, *tensor.dims) if first else (*tensor.dims, 1))


def _batches(one: Tensor, other: Tensor) -> Tensor:
    """Return the broadcast of the axes before the matrices."""
    parts = []
    for tensor in (one, other):
        inside = tensor.axis is not None and tensor.axis < tensor.rank - 2
        dims = tensor.dims[:-2]
        parts.append(rows(dims, tensor.axis) if inside else constant(dims))
    return broadcast(parts)


def gemm(call: Call) -> list[Tensor]:
    """Gemm: a product of two matrices and what is added to it."""
    sides = []
    for place, name in ((0, "transA"), (1, "transB")):
        side = call.needed(place)
        if side.rank != 2:
            raise MixedRowsError
        sides.append(_turned(side) if call.whole(name, 0) else side)
    found = multiplied(*sides)
    added = call.given(2)
    return [found if added is None else broadcast([found, added])]


def _turned(tensor: Tensor) -> Tensor:
    turned = tensor.shaped(tensor.dims[::-1])
    return turned if tensor.axis is None else rows(turned.dims, 1 - tensor.axis)


def einsum(call: Call) -> list[Tensor]:
    """Einsum: the rows' letter stays, and stands in no constant."""
    text = call.text("equation", "").replace(" ", "")
    if "..." in text or "->" not in text:
        raise MixedRowsError
    inputs, output = text.split("->")
    terms = inputs.split(",")
    operands = [call.needed(place) for place in range(len(terms))]
    if len(terms) != len(call.inputs) or any(
        len(term) != each.rank or len(set(term)) != len(term) for term, each in zip(terms, operands, strict=True)
    ):
        raise MixedRowsError
    lengths: dict[str, Dim] = {}
    letters = set()
    for term, each in zip(terms, operands, strict=True):
        lengths |= {letter: length for letter, length in zip(term, each.dims, strict=True) if length != 1}
        if each.axis is not None:
            letters.add((term[each.axis], times(each)))
    shape = [lengths.get(letter, 1) for letter in output]
    if not letters:
        return [rows(shape, None) if any(each.has_rows for each in operands) else constant(shape)]
    if len(letters) > 1:
        raise MixedRowsError
    letter = next(iter(letters))[0]
    for term, each in zip(terms, operands, strict=True):
        elsewhere = letter in term and (each.axis is None or term[each.axis] != letter)
        if elsewhere or (each.has_rows and each.axis is None):
            raise MixedRowsError
    if output.count(letter) != 1:
        raise MixedRowsError
    return [rows(shape, output.index(letter))]


def reduction(call: Call) -> list[Tensor]:
    """Reductions along other axes than the rows'."""
    data, axes = call.needed(0), call.axes()
    if not axes:
        keeps = bool(call.whole("noop_with_empty_axes", 0))
        axes = [] if keeps else list(range(data.rank))
    return [_reduced(data, axes, keep=bool(call.whole("keepdims", 1)))] * max(len(call.node.output), 1)


def along(call: Call) -> list[Tensor]:
    """ArgMax and ArgMin."""
    keep = bool(call.whole("keepdims", 1))
    return [_reduced(call.needed(0), [call.whole("axis", 0)], keep=keep)]


def _reduced(data: Tensor, axes: Sequence[int], *, keep: bool) -> Tensor:
    gone = {one % max(data.rank, 1) for one in axes}
    if data.axis in gone:
        raise MixedRowsError
    shape = [1 if p in gone else one for p, one in enumerate(data.dims) if keep or p not in gone]
    axis = data.axis
    if axis is not None and not keep:
        axis -= sum(one < axis for one in gone)
    return moved(data, shape, axis)


def softmax(call: Call) -> list[Tensor]:
    """Softmax, LogSoftmax and Hardmax, in both meanings of their axis."""
    data = call.needed(0)
    if call.opset >= _PER_AXIS_SOFTMAX:
        return last_axis(call)
    first = call.whole("axis", 1) % data.rank
    return [_unless(data, data.axis is not None and data.axis >= first)]


def last_axis(call: Call) -> list[Tensor]:
    """LpNormalization."""
    data = call.needed(0)
    return [_unless(data, call.whole("axis", -1) % data.rank == data.axis)]


def running(call: Call) -> list[Tensor]:
    """CumSum along another axis than the rows'."""
    data, told = call.needed(0), call.needed(1)
    return [_unless(data, told.known()[0] % data.rank == data.axis)]


def _unless(data: Tensor, bad: bool) -> Tensor:
    if bad:
        raise MixedRowsError
    return replace(data, values=None)


def largest(call: Call) -> list[Tensor]:
    """TopK along another axis than the rows'."""
    data, count = call.needed(0), call.needed(1)
    axis = call.whole("axis", -1) % data.rank
    if axis == data.axis or count.kind is not Kind.CONSTANT:
        raise MixedRowsError
    many = count.values[0] if count.values else None
    shape = [many if place == axis else one for place, one in enumerate(data.dims)]
    return [moved(data, shape, data.axis)] * 2


def layer_normalization(call: Call) -> list[Tensor]:
    """LayerNormalization over the axes after the rows'."""
    data = call.needed(0)
    _constants(call, 1)
    first = call.whole("axis", -1) % data.rank
    wide = any(each is not None and each.rank > data.rank - first for each in call.inputs[1:])
    return [_unless(data, wide or (data.axis is not None and data.axis >= first))]


def batch_normalization(call: Call) -> list[Tensor]:
    """BatchNormalization with the numbers of training: rows on the first axis."""
    data = call.needed(0)
    _constants(call, 1)
    trained = bool(call.whole("training_mode", 0))
    return [_unless(data, trained or data.rank < 2 or data.axis not in (0, None))]


def instances(call: Call) -> list[Tensor]:
    """Normalizations of each row by itself: rows on the first axis."""
    data = call.needed(0)
    _constants(call, 1)
    return [_unless(data, data.axis not in (0, None) or data.rank < 3)]


def _constants(call: Call, start: int) -> None:
    """Refuse parameters that are not constants."""
    if any(each is not None and each.kind is not Kind.CONSTANT for each in call.inputs[start:]):
        raise MixedRowsError


def quantization(call: Call) -> list[Tensor]:
    """QuantizeLinear and DequantizeLinear: one scale, or one for each place of another axis than the rows'."""
    data = call.needed(0)
    _constants(call, 1)
    scale = call.needed(1)
    if scale.rank > 1 or call.whole("block_size", 0):
        raise MixedRowsError
    by_axis = scale.rank == 1 and scale.dims[0] != 1
    return [_unless(data, by_axis and call.whole("axis", 1) % data.rank == data.axis)]


def quantized_matmul(call: Call) -> list[Tensor]:
    """QLinearMatMul with scales and zero points that are one number each."""
    left, right = call.needed(0), call.needed(3)
    for place in (1, 2, 4, 5, 6, 7):
        each = call.needed(place)
        one_number = all(length == 1 for length in each.dims)
        if each.kind is not Kind.CONSTANT or not (one_number or (right.kind is Kind.CONSTANT and place in (4, 5))):
            raise MixedRowsError
    return [multiplied(left, right)]


def convolution(call: Call) -> list[Tensor]:
    """Conv with constant weights: rows on the first axis."""
    data, weights = call.needed(0), call.needed(1)
    _constants(call, 1)
    return [_pooled(call, data, weights.dims[2:], weights.dims[0])]


def pooling(call: Call) -> list[Tensor]:
    """MaxPool, AveragePool, LpPool: rows on the first axis."""
    if len(call.node.output) > 1:  # MaxPool's places count through the batch
        raise MixedRowsError
    data = call.needed(0)
    return [_pooled(call, data, call.wholes("kernel_shape") or [], data.dims[1])]


def _pooled(call: Call, data: Tensor, kernel: Sequence[Dim], channels: Dim) -> Tensor:
    if data.axis not in (0, None) or data.rank != 2 + len(kernel):
        raise MixedRowsError
    size = len(kernel)
    strides = call.wholes("strides") or [1] * size
    dilations = call.wholes("dilations") or [1] * size
    pads = call.wholes("pads") or [0] * 2 * size
    auto, ceil = call.text("auto_pad", "NOTSET"), call.whole("ceil_mode", 0)
    lengths: list[Dim] = []
    for axis, (old, wide) in enumerate(zip(data.dims[2:], kernel, strict=True)):
        if not isinstance(old, int) or not isinstance(wide, int) or ceil:
            lengths.append(None)
            continue
        step, spread = strides[axis], (wide - 1) * dilations[axis] + 1
        if auto.startswith("SAME"):
            lengths.append(-(-old // step))
        else:
            padded = 0 if auto == "VALID" else pads[axis] + pads[axis + size]
            lengths.append((old + padded - spread) // step + 1)
    shape = (data.dims[0], channels, *lengths)
    return moved(data, shape, data.axis)


def global_pooling(call: Call) -> list[Tensor]:
    """GlobalAveragePool and GlobalMaxPool: rows on the first axis."""
    data = call.needed(0)
    if data.axis not in (0, None):
        raise MixedRowsError
    shape = (*data.dims[:2], *[1] * (data.rank - 2))
    return [moved(data, shape, data.axis)]


def recurrent(call: Call) -> list[Tensor]:
    """LSTM, GRU and RNN: time on the first axis, rows on the second."""
    data = call.needed(0)
    if data.axis != 1 or data.rank != 3 or call.whole("layout", 0):
        raise MixedRowsError
    for position in (1, 2, 3, 7):
        each = call.given(position)
        if each is not None and each.kind is not Kind.CONSTANT:
            raise MixedRowsError
    lengths = call.given(4)
    if lengths is not None and not (lengths.axis == 0 and times(lengths) == 1):
        raise MixedRowsError
    for position in (5, 6):
        state = call.given(position)
        if state is not None and not (state.axis == 1 and times(state) == 1 and state.rank == 3):
            raise MixedRowsError
    if times(data) != 1:
        raise MixedRowsError
    hidden: Dim = call.whole("hidden_size", 0) or None
    directions = 2 if call.text("direction", "forward") == "bidirectional" else 1
    whole = rows((data.dims[0], directions, data.dims[1], hidden), 2)
    last = rows((directions, data.dims[1], hidden), 1)
    return [whole, last, last]


def compress(call: Call) -> list[Tensor]:
    """Compress along another axis than the rows'."""
    data, keep = call.needed(0), call.needed(1)
    if "axis" not in call.attributes or keep.kind is not Kind.CONSTANT:
        raise MixedRowsError
    axis = call.whole("axis", 0) % data.rank
    shape = [None if place == axis else one for place, one in enumerate(data.dims)]
    if axis == data.axis:
        raise MixedRowsError
    return [moved(data, shape, data.axis)]


def scatter(call: Call) -> list[Tensor]:
    """ScatterElements of rows into rows along another axis."""
    parts = [call.needed(place) for place in range(3)]
    axis = call.whole("axis", 0) % parts[0].rank
    if any(part.axis is None or part.axis != parts[0].axis or times(part) != times(parts[0]) for part in parts):
        raise MixedRowsError
    return [_unless(parts[0], axis == row_axis(parts[0]))]


def triangle(call: Call) -> list[Tensor]:
    """Trilu: the rows lie on neither of the last two axes."""
    data = call.needed(0)
    return [_unless(data, data.axis is not None and data.axis >= data.rank - 2)]


def words(call: Call) -> list[Tensor]:
    """TfIdfVectorizer: each row's terms, rows on the first of two axes."""
    data = table(call)
    found = call.wholes("ngram_indexes")
    return [rows((data.dims[0], max(found) + 1 if found else None), 0)]


def letters(call: Call) -> list[Tensor]:
    """StringNormalizer that drops no words: what it drops moves the rows."""
    return [_unless(call.needed(0), call.length("stopwords") > 0)]


ELEMENTWISE = frozenset(
    """Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast
    Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf
    IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal RegexFullMatch Relu
    Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt StringConcat Sub Sum Swish Tan Tanh ThresholdedRelu
    Where Xor""".split()  # noqa: SIM905 -- a list of names reads as one
)
"""Operators that treat each entry by itself, with numpy's broadcasting."""

RULES: dict[str, Callable[[Call], list[Tensor]]] = {
    **dict.fromkeys(ELEMENTWISE, elementwise),
    **dict.fromkeys(
        """ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
        ReduceSumSquare""".split(),  # noqa: SIM905 -- a list of names reads as one
        reduction,
    ),
    **dict.fromkeys(("ArgMax", "ArgMin"), along),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), softmax),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), global_pooling),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), pooling),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), recurrent),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), quantization),
    "CastLike": dropout,
    "BatchNormalization": batch_normalization,
    "Compress": compress,
    "Conv": convolution,
    "CumSum": running,
    "Dropout": dropout,
    "Einsum": einsum,
    "Gemm": gemm,
    "InstanceNormalization": instances,
    "LRN": instances,
    "LayerNormalization": layer_normalization,
    "LpNormalization": last_axis,
    "MatMul": matmul,
    "MatMulInteger": integer_matmul,
    "QLinearMatMul": quantized_matmul,
    "ScatterElements": scatter,
    "StringNormalizer": letters,
    "TfIdfVectorizer": words,
    "TopK": largest,
    "Trilu": triangle,
}
