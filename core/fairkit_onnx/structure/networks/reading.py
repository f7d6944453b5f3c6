"""From the nodes of a graph to layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError
from fairkit_onnx.read.nodes import name_of
from fairkit_onnx.structure.ensemble import attributes_of
from fairkit_onnx.structure.networks.affine import Affine, joined
from fairkit_onnx.structure.networks.layers import RELU, SAME, SIGMOID, TANH, Layer
from fairkit_onnx.structure.operators import ARRANGES

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    Constant = Callable[[str], NDArray[Any] | None]

DENSE = frozenset({"MatMul", "Gemm", "BatchNormalization"})
"""Operators that mix columns."""
UNITS = frozenset({"Relu", "LeakyRelu", "PRelu", "Clip", "Sigmoid", "Tanh", "HardSigmoid", "Abs", "Max", "Min"})
_KEEPS = ARRANGES | {"Cast", "Dropout"}
_SUMS = frozenset({"Add", "Sub", "Mul", "Div", "Neg", "Sum"})
_MOVES = frozenset({"Concat", "Gather", "Slice", "Split"})
STRAIGHT = _KEEPS | _SUMS
"""Operators that are no layer of their own."""
READ = DENSE | UNITS | _KEEPS | _SUMS | _MOVES


class Reader:
    """Follows a network from its features to one number."""

    def __init__(self, constant: Constant, values: Mapping[str, NDArray[Any]], matrix: str, width: int) -> None:
        self._constant, self._values = constant, values
        self._groups: list[tuple[int, int, Affine | None]] = [(SAME, 0, None)]  # the function, level, sums
        self._known: dict[str, Affine] = {matrix: Affine.of_group(0, width)}

    def follow(self, nodes: Sequence[onnx.NodeProto]) -> None:
        """Read nodes, in order."""
        for node in nodes:
            if not any(name in self._known for name in node.input):
                continue  # made of constants
            outputs = self._read(node)
            if outputs is None:
                raise ModelError(
                    f"the node {name_of(node)} of the network is not understood; these "
                    f"are, on two-dimensional tensors with constant weights: {', '.join(sorted(READ))}"
                )
            for name, one in zip(node.output, outputs, strict=False):
                self._known[name] = one

    def layers(self, name: str) -> list[Layer]:
        """Return the layers whose last sum is a tensor of one column, or the second of two less the first."""
        last = self._known[name]
        if last.width == 2:
            last = last.mapped(np.array([[-1.0, 1.0]]))
        depth = max(level for _, level, _ in self._groups)
        return _layered([*self._groups, (SAME, depth + 1, last)])

    def _read(self, node: onnx.NodeProto) -> list[Affine] | None:
        kind = node.op_type
        shapes = [self._values[name].ndim for name in node.output if name in self._values]
        if any(rank != 2 for rank in shapes) or kind not in READ:
            return None
        if kind in _KEEPS:
            return self._kept(node)
        if kind in DENSE:
            return self._dense(node)
        if kind in _SUMS:
            return self._summed(node)
        if kind in _MOVES:
            return self._moved(node)
        return self._units(node)

    def _first(self, node: onnx.NodeProto) -> Affine | None:
        return self._known.get(node.input[0])

    def _numbers(self, name: str) -> NDArray[np.float64] | None:
        found = self._constant(name) if name else None
        return None if found is None or found.dtype.kind not in "fiu" else np.asarray(found, dtype=np.float64)

    def _row(self, name: str, width: int) -> NDArray[np.float64] | None:
        """Return a constant that is one number, or one for each column."""
        found = self._numbers(name)
        if found is None or found.size not in (1, width) or (found.size > 1 and found.shape[-1] != width):
            return None
        return np.broadcast_to(found.reshape(-1), (width,))

    def _kept(self, node: onnx.NodeProto) -> list[Affine] | None:
        one, value = self._first(node), self._values[node.output[0]]
        if one is None or value.shape[1] != one.width or value.dtype not in (np.float32, np.float64):
            return None
        return [one.rounded() if node.op_type == "Cast" else one]

    def _dense(  # noqa: PLR0911 -- one for each way of not being understood
        self, node: onnx.NodeProto
    ) -> list[Affine] | None:
        tensor, attributes = self._first(node), attributes_of(node)
        if tensor is None:
            return None
        if node.op_type == "BatchNormalization":
            rows = [self._row(name, tensor.width) for name in node.input[1:5]]
            if any(row is None for row in rows) or attributes.get("training_mode"):
                return None
            scale, bias, mean, variance = (row for row in rows if row is not None)
            factor = scale / np.sqrt(variance + attributes.get("epsilon", 1e-5))
            return [
                (tensor + Affine.constant(-mean)).rounded(2).scaled(factor).rounded(4) + Affine.constant(bias).rounded()
            ]
        weights = self._numbers(node.input[1])
        if weights is None or weights.ndim != 2 or attributes.get("transA"):
            return None
        matrix = weights if attributes.get("transB") else weights.T
        if matrix.shape[1] != tensor.width:
            return None
        result = tensor.mapped(matrix)
        alpha, beta = float(attributes.get("alpha", 1.0)), float(attributes.get("beta", 1.0))
        result = result if alpha == 1.0 else result.scaled(np.array([alpha])).rounded()
        if node.op_type == "Gemm" and len(node.input) > 2 and node.input[2]:
            row = self._row(node.input[2], result.width)
            if row is None:
                return None
            result = (result + Affine.constant(beta * row).rounded()).rounded()
        return [result]

    def _summed(self, node: onnx.NodeProto) -> list[Affine] | None:
        kind, width = node.op_type, self._values[node.output[0]].shape[1]
        some: list[Affine] = []
        for name in node.input:
            known = self._known.get(name)
            row = self._row(name, width) if known is None else None
            if known is None and row is None:
                return None
            some.append(known if known is not None else Affine.constant(np.asarray(row)))
        if kind == "Neg":
            return [some[0].scaled(np.array([-1.0]))]
        if kind in ("Mul", "Div"):
            constants = [place for place, name in enumerate(node.input) if name not in self._known]
            if len(constants) != 1 or (kind == "Div" and constants == [0]):
                return None
            factors = some[constants[0]].bias
            wide = some[1 - constants[0]]
            wide = wide if wide.width == width else wide.taken(np.zeros(width, dtype=np.int64))
            if kind == "Div" and (factors == 0).any():
                return None
            return [wide.scaled(factors if kind == "Mul" else 1.0 / factors).rounded()]
        found = some[0]
        for one in some[1:]:
            found = (found + (one.scaled(np.array([-1.0])) if kind == "Sub" else one)).rounded()
        return [found]

    def _moved(self, node: onnx.NodeProto) -> list[Affine] | None:
        """Return columns picked: run on their numbers, so that each convention of the operator is the runtime's."""
        attributes, tensor = attributes_of(node), self._first(node)
        if node.op_type == "Concat":
            some = [self._known.get(name) for name in node.input]
            for place, name in enumerate(node.input):
                row = self._values.get(name) if some[place] is None else None
                if row is not None and (row == row[:1]).all():
                    some[place] = Affine.constant(np.asarray(row[0], dtype=np.float64))
            known = [entry for entry in some if entry is not None]
            return [joined(known)] if attributes.get("axis") in (1, -1) and len(known) == len(some) else None
        if tensor is None:
            return None
        numbers = np.arange(tensor.width)
        if node.op_type == "Gather":
            at = self._numbers(node.input[1])
            fits = at is not None and at.ndim == 1 and attributes.get("axis", 0) in (1, -1)
            return [tensor.taken(numbers[np.asarray(at, dtype=np.int64)])] if fits else None
        if node.op_type == "Split" and attributes.get("axis", 0) in (1, -1):
            ends = np.cumsum([self._values[name].shape[1] for name in node.output])
            return [tensor.taken(rows) for rows in np.split(numbers, ends[:-1])] if ends[-1] == tensor.width else None
        constants = [self._numbers(name) for name in node.input[1:] if name]
        if node.op_type != "Slice" or len(constants) < 3 or any(c is None or c.size != 1 for c in constants):
            return None
        start, end, axis, *step = (int(c.reshape(-1)[0]) for c in constants if c is not None)
        return [tensor.taken(numbers[start : end : (step or [1])[0]])] if axis in (1, -1) else None

    def _units(  # noqa: PLR0911 -- one for each kind of unit
        self, node: onnx.NodeProto
    ) -> list[Affine] | None:
        kind, attributes, tensor = node.op_type, attributes_of(node), self._first(node)
        if tensor is None and kind in ("Max", "Min") and len(node.input) == 2:
            tensor = self._known.get(node.input[1])
        if tensor is None:
            return None
        if kind in ("Relu", "Sigmoid", "Tanh"):
            return [self._unit({"Relu": RELU, "Sigmoid": SIGMOID, "Tanh": TANH}[kind], tensor)]
        if kind == "Abs":
            return [self._unit(RELU, tensor) + self._unit(RELU, tensor.scaled(np.array([-1.0])))]
        if kind in ("LeakyRelu", "PRelu"):
            below = (
                np.array([attributes.get("alpha", 0.01)])
                if kind == "LeakyRelu"
                else self._row(node.input[1], tensor.width)
            )
            if below is None:
                return None
            below = np.asarray(below, dtype=np.float64)
            return [(tensor.scaled(below) + self._unit(RELU, tensor).scaled(1.0 - below)).rounded()]
        if kind == "HardSigmoid":
            slope, shift = attributes.get("alpha", 0.2), attributes.get("beta", 0.5)
            shifted = tensor.scaled(np.array([slope])).rounded() + Affine.constant(np.full(tensor.width, shift))
            return [self._clipped(shifted.rounded(), np.zeros(1), np.ones(1))]
        if kind in ("Max", "Min"):
            others = [name for name in node.input if name not in self._known]
            row = self._row(others[0], tensor.width) if len(others) == 1 and len(node.input) == 2 else None
            if row is None:
                return None
            return [self._clipped(tensor, row if kind == "Max" else None, row if kind == "Min" else None)]
        ends: list[NDArray[np.float64] | None] = [None, None]
        for place, key in enumerate(("min", "max")):
            name = node.input[place + 1] if len(node.input) > place + 1 else ""
            ends[place] = self._numbers(name) if name else np.array([attributes[key]]) if key in attributes else None
            if name and ends[place] is None:
                return None
        return [self._clipped(tensor, *ends)]

    def _unit(self, kind: int, sums: Affine) -> Affine:
        level = 1 + max((self._groups[group][1] for group in sums.parts), default=0)
        self._groups.append((kind, level, sums))
        return Affine.of_group(len(self._groups) - 1, sums.width)

    def _clipped(self, tensor: Affine, low: NDArray[np.float64] | None, high: NDArray[np.float64] | None) -> Affine:
        """Write min(max(x, a), b) as a + relu(x - a) - relu(relu(x - a) - (b - a)); it adds no rounding of its own."""
        result = tensor
        if low is not None:
            level = np.broadcast_to(low.reshape(-1), (tensor.width,)).astype(np.float64)
            result = self._unit(RELU, tensor + Affine.constant(-level)) + Affine.constant(level)
        if high is not None:
            level = np.broadcast_to(high.reshape(-1), (tensor.width,)).astype(np.float64)
            minus = result.scaled(np.array([-1.0])) + Affine.constant(level)
            result = Affine.constant(level) + self._unit(RELU, minus).scaled(np.array([-1.0]))
        return result


def _layered(groups: Sequence[tuple[int, int, Affine | None]]) -> list[Layer]:
    """Put groups of units into layers; what is read later than in the next layer is handed on."""
    depth = max(level for _, level, _ in groups)
    last = dict.fromkeys(range(len(groups)), 0)
    for _, level, sums in groups:
        for group in sums.parts if sums is not None else ():
            last[group] = max(last[group], level)
    last[len(groups) - 1] = depth + 1  # the answer
    widths = [one.width if one is not None else 0 for _, _, one in groups]
    widths[0] = next((p.weights.shape[1] for _, _, one in groups if one is not None
                      for g, p in one.parts.items() if g == 0), 0)  # fmt: skip
    live = [0]
    made = []
    for level in range(1, depth + 1):
        new = [g for g, (_, its, _) in enumerate(groups) if its == level and g and last[g] > level]
        carried = [g for g in live if last[g] > level]
        starts = dict(zip(live, np.cumsum([0, *(widths[g] for g in live)]).tolist(), strict=False))
        total = sum(widths[g] for g in live)
        rows: list[Layer] = []
        for group in new + carried:
            kind, _, sums = groups[group]
            if group in carried:
                kind, sums = SAME, Affine.of_group(group, widths[group])
            assert sums is not None  # noqa: S101 -- only the features have none
            blank = np.zeros((3, sums.width, total))
            for source, part in sums.parts.items():
                place = slice(starts[source], starts[source] + widths[source])
                for matrix, some in zip(blank, (part.weights, part.spread, part.rough), strict=True):
                    matrix[:, place] = some
            kinds = np.full(sums.width, kind, dtype=np.int8)
            rows.append(Layer(blank[0], sums.bias, blank[1], blank[2], sums.base, kinds))
        made.append(Layer(*(np.concatenate([getattr(row, name) for row in rows]) for name in Layer.__slots__)))
        live = new + carried
    return made
