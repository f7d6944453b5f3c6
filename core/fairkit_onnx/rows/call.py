"""One node of a graph with what is known of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from fairkit_onnx.rows.types import Kind, MixedRowsError, Origin, Tensor, constant

if TYPE_CHECKING:
    import onnx

MOST_ENTRIES = 64
"""Entries of larger constants are not read."""
_WHOLE = (6, 7)
_BOOLEAN = 9


@dataclass(frozen=True, slots=True)
class Call:
    """A node, its attributes with those of the function around it put in, and its inputs (None: left out)."""

    node: onnx.NodeProto
    attributes: Mapping[str, onnx.AttributeProto]
    inputs: Sequence[Tensor | None]
    opset: int

    @property
    def operator(self) -> str:
        """The operator's name."""
        return str(self.node.op_type)

    @property
    def origin(self) -> Origin:
        """The node in messages."""
        return Origin(self.operator, self.node.name or (self.node.output[0] if self.node.output else ""))

    @property
    def present(self) -> list[Tensor]:
        """The inputs that are there."""
        return [each for each in self.inputs if each is not None]

    def given(self, place: int) -> Tensor | None:
        """Return an input; None where it is left out."""
        return self.inputs[place] if place < len(self.inputs) else None

    def needed(self, place: int) -> Tensor:
        """Return an input that must be there."""
        found = self.given(place)
        if found is None:
            raise MixedRowsError
        return found

    def whole(self, name: str, default: int) -> int:
        """Return an attribute that is a whole number."""
        return int(self.attributes[name].i) if name in self.attributes else default

    def wholes(self, name: str) -> list[int] | None:
        """Return an attribute that is a list of whole numbers; None where it is not there."""
        return [int(one) for one in self.attributes[name].ints] if name in self.attributes else None

    def text(self, name: str, default: str) -> str:
        """Return an attribute that is text."""
        return self.attributes[name].s.decode("utf-8", "replace") if name in self.attributes else default

    def length(self, *names: str) -> int:
        """Return the number of entries of the first of these attributes that is there and not empty."""
        for name in names:
            attribute = self.attributes.get(name)
            if attribute is None:
                continue
            count = max(len(attribute.ints), len(attribute.floats), len(attribute.strings), _size(attribute.t.dims))
            if count:
                return count
        return 0

    def tensor(self, name: str) -> Tensor | None:
        """Return an attribute that is a tensor."""
        return of_tensor(self.attributes[name].t) if name in self.attributes else None

    def slices(self) -> tuple[list[int], list[int], list[int], list[int]]:
        """Return starts, ends, axes and steps of a Slice."""
        if self.opset < 10:
            starts, ends = self.wholes("starts") or [], self.wholes("ends") or []
            axes, steps = self.wholes("axes"), None
        else:
            starts, ends = list(self.needed(1).known()), list(self.needed(2).known())
            told, pace = self.given(3), self.given(4)
            axes = None if told is None else list(told.known())
            steps = None if pace is None else list(pace.known())
        return starts, ends, axes or list(range(len(starts))), steps or [1] * len(starts)

    def axes(self, place: int = 1) -> list[int] | None:
        """Return the axes that an attribute or an input names; None where neither does."""
        told = self.wholes("axes")
        if told is not None:
            return told
        given = self.given(place)
        return None if given is None else list(given.known())


def of_tensor(tensor: onnx.TensorProto) -> Tensor:
    """Return a constant of a file: with its entries where it is small and holds whole numbers."""
    from onnx import numpy_helper

    shape = tuple(int(length) for length in tensor.dims)
    inside = tensor.data_location != 1
    if inside and tensor.data_type in (*_WHOLE, _BOOLEAN) and prod(shape) <= MOST_ENTRIES:
        return constant(shape, [int(one) for one in numpy_helper.to_array(tensor).reshape(-1)])
    return Tensor(kind=Kind.CONSTANT, shape=shape)


def _size(dims: Sequence[int]) -> int:
    return prod(int(length) for length in dims) if len(dims) else 0
