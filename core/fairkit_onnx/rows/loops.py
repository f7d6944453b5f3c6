"""Branches, loops and functions: their bodies are walked with what comes in, until what they carry settles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fairkit_onnx.rows.types import Count, Dim, Kind, MixedRowsError, Origin, Tensor, constant, mixed, rows, times

if TYPE_CHECKING:
    import onnx

    from fairkit_onnx.rows.call import Call

Environment = dict[str, Tensor]
Walk = Callable[["onnx.GraphProto", Environment], Sequence[Tensor]]
"""Walks a body with the values around it and its inputs; returns its outputs."""

_TURNS = 4
"""After so many walks what a loop carries must be settled."""


def branch(call: Call, around: Environment, walk: Walk) -> list[Tensor]:
    """If: the branch that is taken for every batch, or what both agree on."""
    condition = call.needed(0)
    if condition.kind is not Kind.CONSTANT:
        raise MixedRowsError
    bodies = [call.attributes[name].g for name in ("then_branch", "else_branch")]
    known = condition.values[0] if condition.values else None
    if known is not None:
        return list(walk(bodies[0 if known else 1], dict(around)))
    yes, no = (walk(body, dict(around)) for body in bodies)
    return [together(a, b) for a, b in zip(yes, no, strict=True)]


def together(left: Tensor, right: Tensor) -> Tensor:
    """Return the type that holds for both of two tensors."""
    if Kind.MIXED in (left.kind, right.kind):
        return mixed(left.origins | right.origins)
    if left == right:
        return left
    if left.kind is not right.kind or left.axis != right.axis or left.items or right.items:
        raise MixedRowsError
    if left.shape is None or right.shape is None or left.rank != right.rank:
        if left.kind is Kind.ROWS and left.axis is not None:
            raise MixedRowsError
        return Tensor(kind=left.kind, axis=left.axis)
    if left.axis is not None and left.dims[left.axis] != right.dims[left.axis]:
        raise MixedRowsError
    shape = [a if a == b else None for a, b in zip(left.dims, right.dims, strict=True)]
    return Tensor(kind=left.kind, shape=tuple(shape), axis=left.axis)


def loop(call: Call, around: Environment, walk: Walk) -> list[Tensor]:
    """Loop: as many turns for every batch, and states that settle."""
    for place in (0, 1):
        given = call.given(place)
        if given is not None and given.kind is not Kind.CONSTANT:
            raise MixedRowsError
    body = call.attributes["body"].g
    states = [call.needed(place) for place in range(2, len(call.inputs))]
    turn = [constant(()), constant(())]

    def once(carried: Sequence[Tensor]) -> Sequence[Tensor]:
        outputs = walk(body, around | _named(body, [*turn, *carried]))
        if outputs[0].kind is not Kind.CONSTANT:  # whether it goes on
            raise MixedRowsError
        return outputs[1:]

    outputs, settled = _settled(once, states)
    return [*settled, *(_stacked(each, 0) for each in outputs[len(states) :])]


def scan(call: Call, around: Environment, walk: Walk) -> list[Tensor]:
    """Scan: through constants or along other axes than the rows', or row by row with nothing carried between them."""
    body, many = call.attributes["body"].g, call.whole("num_scan_inputs", 0)
    count = len(call.inputs) - many
    states = [call.needed(place) for place in range(count)]
    through = [call.needed(place) for place in range(count, len(call.inputs))]
    axes = call.wholes("scan_input_axes") or [0] * many
    axes = [axis % each.rank for axis, each in zip(axes, through, strict=True)]
    out = call.wholes("scan_output_axes") or [0] * (len(body.output) - count)
    by_row = [each.has_rows and each.axis == axis for axis, each in zip(axes, through, strict=True)]
    if any(by_row):
        turned = any(call.wholes("scan_input_directions") or ()) or any(call.wholes("scan_output_directions") or ())
        if turned or not all(by_row) or any(out) or any(times(each) != 1 for each in through):
            raise MixedRowsError
        return _row_by_row(body, states, [_element(e, a) for e, a in zip(through, axes, strict=True)], around, walk)
    elements = [_element(each, axis) for each, axis in zip(through, axes, strict=True)]

    def once(carried: Sequence[Tensor]) -> Sequence[Tensor]:
        return walk(body, around | _named(body, [*carried, *elements]))

    found, settled = _settled(once, states)
    return [*settled, *(_stacked(each, axis) for each, axis in zip(found[count:], out, strict=True))]


def _row_by_row(
    body: onnx.GraphProto, states: Sequence[Tensor], elements: Sequence[Tensor], around: Environment, walk: Walk
) -> list[Tensor]:
    """Walk a body that sees one row: nothing that it carries may change, and nothing around it may hold rows."""
    if any(state.kind is not Kind.CONSTANT for state in states) or not _unchanged(body, len(states)):
        raise MixedRowsError
    elsewhere = Origin("Scan", body.name)
    outside = {
        name: each if each.kind in (Kind.CONSTANT, Kind.SIZE) and each.items is None else mixed([elsewhere])
        for name, each in around.items()
    }
    found = walk(body, outside | _named(body, [*states, *elements]))
    results: list[Tensor] = []
    for each in found[len(states) :]:
        if each.kind is Kind.MIXED:
            results.append(each)
        elif each.kind is Kind.SIZE:
            raise MixedRowsError
        else:
            results.append(rows((Count(), *each.dims), 0))
    return [*states, *results]


def _unchanged(body: onnx.GraphProto, states: int) -> bool:
    """Whether the body's first outputs are its first inputs."""
    source = {
        inner.output[0]: inner.input[0]
        for inner in body.node
        if inner.op_type == "Identity" and inner.domain in ("", "ai.onnx")
    }
    for given, left in zip(body.input[:states], body.output[:states], strict=False):
        name = left.name
        while name in source:
            name = source[name]
        if name != given.name:
            return False
    return True


def _settled(
    once: Callable[[Sequence[Tensor]], Sequence[Tensor]], states: Sequence[Tensor]
) -> tuple[Sequence[Tensor], list[Tensor]]:
    """Walk a body until its states come out as they went in; return all its outputs, and the states."""
    carried = [replace(each, values=None) for each in states]
    for _ in range(_TURNS):
        outputs = once(carried)
        after = [
            replace(together(replace(a, values=None), replace(b, values=None)), values=None)
            for a, b in zip(carried, outputs, strict=False)
        ]
        if after == carried:
            return outputs, carried
        carried = after
    raise MixedRowsError


def _named(body: onnx.GraphProto, given: Sequence[Tensor]) -> Environment:
    return dict(zip((each.name for each in body.input), given, strict=True))


def _element(tensor: Tensor, axis: int) -> Tensor:
    """Return one turn's part of what a Scan goes through."""
    shape = [one for place, one in enumerate(tensor.dims) if place != axis]
    if not tensor.has_rows:
        return Tensor(kind=tensor.kind, shape=tuple(shape))
    at = None if tensor.axis in (axis, None) else tensor.axis - (axis < tensor.axis)
    return rows(shape, at)


def _stacked(tensor: Tensor, axis: int) -> Tensor:
    """Return the type of the turns' results, stacked along an axis."""
    if tensor.kind is Kind.MIXED:
        return tensor
    if tensor.shape is None:
        if tensor.axis is not None:
            raise MixedRowsError
        return replace(tensor, values=None)
    place = axis % (tensor.rank + 1)
    shape: list[Dim] = [*tensor.dims[:place], None, *tensor.dims[place:]]
    if not tensor.has_rows:
        return Tensor(kind=tensor.kind, shape=tuple(shape))
    return rows(shape, None if tensor.axis is None else tensor.axis + (place <= tensor.axis))
