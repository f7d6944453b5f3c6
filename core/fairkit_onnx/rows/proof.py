"""Whether every row's answer depends on that row alone, for every size of a batch: one walk through a graph.

Each tensor gets a `Tensor`: a constant, rows along an axis, a number that follows from the size of the batch, or mixed.
An output whose rows lie along its first axis answers each row from that row, whoever else is in the batch, up to the
rounding of sums. What has no rule counts as mixed, so that a proof holds also for graphs that were written against it.
Batches of fewer than 2,097,152 rows are covered: shapes that graphs compute in int32 could wrap around from there on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fairkit_onnx.read.nodes import function_key, replaces_operator
from fairkit_onnx.read.statics import RANDOM
from fairkit_onnx.rows import classical, compute, shapes
from fairkit_onnx.rows.call import Call, of_tensor
from fairkit_onnx.rows.loops import Environment, branch, loop, scan
from fairkit_onnx.rows.types import (
    Count,
    Kind,
    MixedRowsError,
    Origin,
    Tensor,
    constant,
    joined_kind,
    mixed,
    rows,
    volume,
)
from fairkit_onnx.rows.values import evaluated

if TYPE_CHECKING:
    import onnx

OLDEST = 7
"""Older versions of the standard have other rules of broadcasting; those of ``ai.onnx.ml`` are numbered apart."""
MOST_NODES = 200_000
"""A walk that is longer, functions and turns of loops included, ends without a proof."""

_SHAPE_INPUTS: Mapping[str, frozenset[int]] = {
    "Reshape": frozenset({1}),
    "Expand": frozenset({1}),
    "Tile": frozenset({1}),
    "ConstantOfShape": frozenset({0}),
}
"""Where the number of rows may stand: it only says how long an axis is."""

_STANDARD = {
    **compute.RULES,
    "Concat": shapes.concat,
    "ConstantOfShape": shapes.constant_of_shape,
    "Expand": shapes.expand,
    "Flatten": shapes.flatten,
    "Gather": shapes.gather,
    "GatherElements": shapes.gather_elements,
    "GatherND": shapes.gather_nd,
    "OneHot": shapes.one_hot,
    "Pad": shapes.pad,
    "Reshape": shapes.reshape,
    "Shape": shapes.shape_of,
    "Size": shapes.size_of,
    "Slice": shapes.cut,
    "Split": shapes.split,
    "Squeeze": shapes.squeeze,
    "Tile": shapes.tile,
    "Transpose": shapes.transpose,
    "Unsqueeze": shapes.unsqueeze,
}
_MODELS = "ai.onnx.ml"
_RULES = {"": _STANDARD, "ai.onnx": _STANDARD, _MODELS: classical.RULES}
_BODIES = {"If": branch, "Loop": loop, "Scan": scan}
_FAILURES = (MixedRowsError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a rule meets in a graph that is written otherwise than the standard says: nothing is proved then."""


@dataclass(frozen=True, slots=True)
class RowsProof:
    """What a walk came to."""

    origins: tuple[Origin, ...]  # the nodes at which rows may have met; empty where every output is proved

    @property
    def holds(self) -> bool:
        """Whether each row is answered from itself."""
        return not self.origins

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators at which rows may have met, sorted."""
        return tuple(sorted({origin.operator for origin in self.origins}))


def prove(proto: onnx.ModelProto, outputs: Collection[str], inputs: Mapping[str, Sequence[int | None]]) -> RowsProof:
    """Walk through a graph."""
    walker = _Walker(proto)
    fed = {name: rows((Count(), *lengths), 0) for name, lengths in inputs.items()}
    found = walker.graph(proto.graph, {}, fed)
    origins: dict[Origin, None] = {}
    for name in outputs:
        origins |= dict.fromkeys(sorted(_unproved(name, found.get(name)), key=str))
    return RowsProof(tuple(origins))


def _unproved(name: str, tensor: Tensor | None) -> Collection[Origin]:
    if tensor is None:
        return [Origin("output", name)]
    if tensor.kind is Kind.MIXED:
        return tensor.origins or [Origin("output", name)]
    if tensor.items is not None:
        return [origin for item in tensor.items for origin in _unproved(name, item)]
    if tensor.kind is Kind.CONSTANT and tensor.shape is not None and tensor.shape[:1] in ((), (1,)):
        return ()  # longer ones answer the row by its place in a batch of that length
    if tensor.kind is Kind.ROWS and tensor.axis == 0 and tensor.dims[0] == Count():
        return ()
    return [Origin("output", name)]


@dataclass(frozen=True, slots=True)
class _Scope:
    """What nodes refer to, in branches and loops too: the attributes of the function around them, and its versions."""

    bound: Mapping[str, onnx.AttributeProto]
    opsets: Mapping[str, int]


def _versions(imports: Collection[onnx.OperatorSetIdProto]) -> dict[str, int]:
    return {entry.domain or "ai.onnx": entry.version for entry in imports}


class _Walker:
    """Types every tensor of a model."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self._functions = {function_key(function): function for function in proto.functions}
        self._scope = _Scope({}, _versions(proto.opset_import))
        self._left = MOST_NODES

    def graph(self, graph: onnx.GraphProto, around: Environment, inputs: Environment) -> Environment:
        """Return the types of a graph's tensors by name."""
        types = dict(around)
        types |= {tensor.name: of_tensor(tensor) for tensor in graph.initializer}
        types |= {
            sparse.values.name: constant(tuple(int(one) for one in sparse.dims)) for sparse in graph.sparse_initializer
        }
        types |= inputs
        self._nodes(graph.node, types)
        return types

    def _nodes(self, nodes: Collection[onnx.NodeProto], types: Environment) -> None:
        for node in nodes:
            attributes = _attributes(node, self._scope.bound)
            opset = self._scope.opsets.get(node.domain or "ai.onnx", 1)
            inputs = [types.get(name, _absent(name)) if name else None for name in node.input]
            call = Call(node, attributes, inputs, opset)
            self._left -= 1
            results = self._typed(call, types)
            for place, name in enumerate(node.output):
                if name:
                    types[name] = results[place] if place < len(results) else mixed([call.origin])

    def _typed(self, call: Call, types: Environment) -> Sequence[Tensor]:
        origins = {origin for each in call.present for origin in each.origins}
        if origins:
            return [mixed(origins)] * len(call.node.output)
        if self._left < 0:
            return [mixed([Origin("the walk", f"ended after {MOST_NODES:,} nodes")])] * len(call.node.output)
        try:
            return self._ruled(call, types)
        except _FAILURES:
            return [mixed([call.origin])] * len(call.node.output)

    def _ruled(self, call: Call, types: Environment) -> Sequence[Tensor]:
        function = self._functions.get(function_key(call.node))
        if function is not None:
            return self._called(call, function)
        rules = _RULES.get(call.node.domain)
        if rules is _STANDARD and call.operator in _BODIES:
            return _BODIES[call.operator](call, types, self._body)
        if rules is _STANDARD and call.operator in _MAKERS:
            return [_MAKERS[call.operator](call)]
        if rules is None or any(each.items is not None for each in call.present):
            raise MixedRowsError
        rule = rules.get(call.operator)
        if not any(each.has_rows for each in call.present):
            return _plain(call, rule)
        slots = _SHAPE_INPUTS.get(call.operator, frozenset()) if rules is _STANDARD else frozenset()
        if any(
            each is not None and each.kind is Kind.SIZE and place not in slots for place, each in enumerate(call.inputs)
        ):
            raise MixedRowsError
        if any(each.axis is not None for each in call.present):
            return _by_rows(call, rule)
        return _single(call, rule)

    def _body(self, graph: onnx.GraphProto, found: Environment) -> Sequence[Tensor]:
        names = {entry.name for entry in graph.input}
        given = {name: each for name, each in found.items() if name in names}
        inside = self.graph(graph, found, given)
        return [inside.get(output.name, _absent(output.name)) for output in graph.output]

    def _called(self, call: Call, function: onnx.FunctionProto) -> Sequence[Tensor]:
        if replaces_operator(function):
            raise MixedRowsError
        bound = {attribute.name: attribute for attribute in function.attribute_proto} | dict(call.attributes)
        inside: Environment = {
            name: each for name, each in zip(function.input, call.inputs, strict=False) if each is not None
        }
        around, self._scope = self._scope, _Scope(bound, _versions(function.opset_import))
        try:
            self._nodes(function.node, inside)
        finally:
            self._scope = around
        return [inside.get(name, _absent(name)) for name in function.output]


_SEVERAL = frozenset(
    """ArrayFeatureExtractor CastLike Concat Einsum FeatureVectorizer GRU Gather GatherElements GatherND Gemm LSTM
    MatMul MatMulInteger QLinearMatMul RNN ScatterElements""".split()  # noqa: SIM905 -- a list of names reads as one
)
"""Operators besides the elementwise ones that may take rows in other inputs than the first."""
_LENGTHS = frozenset({"Shape", "Size"})
"""Operators that tell nothing of rows but how many there are."""


def _by_rows(call: Call, rule: Any) -> Sequence[Tensor]:
    """Type what is computed from tensors of rows."""
    several = call.operator in compute.ELEMENTWISE or call.operator in _SEVERAL
    elsewhere = any(each is not None and each.has_rows for each in call.inputs[1:])
    if rule is None or (call.node.domain != _MODELS and call.opset < OLDEST) or (elsewhere and not several):
        raise MixedRowsError
    found: Sequence[Tensor] = rule(call)
    if call.operator not in _LENGTHS and not all(each.has_rows for each in found):
        raise MixedRowsError
    return found


def _single(call: Call, rule: Any) -> Sequence[Tensor]:
    """Type what is computed from one row and constants: whatever it is, it belongs to that row."""
    several = call.operator in compute.ELEMENTWISE or call.operator in _SEVERAL
    whatever = [Tensor(kind=Kind.ROWS)] * len(call.node.output)
    if call.operator in RANDOM:
        raise MixedRowsError
    if rule is None or (not several and any(each is not None and each.has_rows for each in call.inputs[1:])):
        return whatever
    try:
        found: Sequence[Tensor] = rule(call)
    except _FAILURES:
        return whatever
    return found if call.operator in _LENGTHS or all(each.has_rows for each in found) else whatever


def _plain(call: Call, rule: Any) -> Sequence[Tensor]:
    """Type what is computed from constants and the size of the batch."""
    if call.operator in RANDOM:
        raise MixedRowsError
    kind = joined_kind(call.present)
    many = len(call.node.output)
    try:
        outputs = list(rule(call)) if rule is not None else [Tensor(kind=kind)] * many
    except _FAILURES:
        outputs = [Tensor(kind=kind)] * many
    outputs = [each if each.has_rows else replace(each, kind=kind) for each in outputs]
    entries = evaluated(call)
    if entries is not None and outputs and not outputs[0].has_rows and outputs[0].values is None:
        shape = (len(entries),) if call.operator == "Range" else outputs[0].shape
        if shape is not None and volume(shape) == len(entries):
            outputs[0] = replace(outputs[0], shape=shape, values=entries)
    return [_without_size(each) for each in outputs]


def _without_size(tensor: Tensor) -> Tensor:
    """Return a constant where every entry turns out to be the same number for every batch."""
    known = tensor.values is not None and all(isinstance(one, int) for one in tensor.values)
    fixed = known and tensor.shape is not None and all(isinstance(one, int) for one in tensor.shape)
    return replace(tensor, kind=Kind.CONSTANT) if fixed and tensor.kind is Kind.SIZE else tensor


def _absent(name: str) -> Tensor:
    return mixed([Origin("input", name)])


def _attributes(node: onnx.NodeProto, bound: Mapping[str, onnx.AttributeProto]) -> dict[str, onnx.AttributeProto]:
    """Return a node's attributes, with those that refer to its function's put in."""
    attributes = {}
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            attributes[attribute.name] = attribute
        elif attribute.ref_attr_name in bound:
            attributes[attribute.name] = bound[attribute.ref_attr_name]
    return attributes


def _constant(call: Call) -> Tensor:
    attributes = call.attributes
    if "value" in attributes:
        return of_tensor(attributes["value"].t)
    if "value_int" in attributes:
        return constant((), (call.whole("value_int", 0),))
    if "value_ints" in attributes:
        values = call.wholes("value_ints") or []
        return constant((len(values),), values)
    for name in ("value_float", "value_string"):
        if name in attributes:
            return constant(())
    for name in ("value_floats", "value_strings"):
        if name in attributes:
            return constant((max(len(attributes[name].floats), len(attributes[name].strings)),))
    return constant()


def _sequence(call: Call) -> Tensor:
    return Tensor(items=tuple(call.needed(place) for place in range(len(call.inputs))))


def _inserted(call: Call) -> Tensor:
    before = call.needed(0).items
    if before is None or call.given(2) is not None:
        raise MixedRowsError
    return Tensor(items=(*before, call.needed(1)))


def _item(call: Call) -> Tensor:
    items = call.needed(0).items
    if items is None:
        raise MixedRowsError
    return items[call.needed(1).known()[0]]


def _joined(call: Call) -> Tensor:
    items = call.needed(0).items
    if not items or call.whole("new_axis", 0):
        raise MixedRowsError
    if joined_kind(items) is not Kind.ROWS:
        return Tensor(kind=joined_kind(items))
    return shapes.concat(replace(call, inputs=items))[0]


_MAKERS = {
    "Constant": _constant,
    "SequenceConstruct": _sequence,
    "SequenceEmpty": lambda call: Tensor(items=()),
    "SequenceInsert": _inserted,
    "SequenceAt": _item,
    "ConcatFromSequence": _joined,
}
