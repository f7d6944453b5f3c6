"""Sums of values with their rounding: what each operator of a network does to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fairkit_onnx.structure.networks.layers import UNIT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_ONCE = 1.01 * UNIT
"""What one operation of float32 adds, relative; the factor covers products of such terms."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupCoefficients:
    """What a tensor takes from one group of units: weights, at least their absolutes, and rounding, [w, n] each."""

    weights: Floats
    spread: Floats
    rough: Floats

    def mapped(self, matrix: Floats) -> GroupCoefficients:
        """Return it after a product with constants, shape [v, w]; rounding of the product itself is not in it."""
        size = np.abs(matrix)
        return GroupCoefficients(matrix @ self.weights, size @ self.spread, size @ self.rough)

    def __add__(self, right: GroupCoefficients) -> GroupCoefficients:
        return GroupCoefficients(self.weights + right.weights, self.spread + right.spread, self.rough + right.rough)


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """A tensor [rows, w] as a sum over groups of units, with constants."""

    parts: Mapping[int, GroupCoefficients]  # by group
    bias: Floats  # the constants; at least their absolute values on the way; rounding of them; shape [w] each
    size: Floats  # the constants; at least their absolute values on the way; rounding of them; shape [w] each
    base: Floats  # the constants; at least their absolute values on the way; rounding of them; shape [w] each

    @property
    def width(self) -> int:
        """The columns."""
        return len(self.bias)

    @classmethod
    def of_group(cls, group: int, width: int) -> Affine:
        """Return the values of a group of units."""
        one, none = np.eye(width), np.zeros(width)
        return cls({group: GroupCoefficients(one, one, np.zeros((width, width)))}, none, none, none)

    @classmethod
    def constant(cls, values: Floats) -> Affine:
        """Return constants."""
        return cls({}, values, np.abs(values), np.zeros(len(values)))

    def rounded(self, operations: int = 1) -> Affine:
        """Return it with the rounding of so many operations on each number."""
        more = operations * _ONCE * (1.0 + operations * UNIT)
        parts = {g: replace(part, rough=part.rough + more * part.spread) for g, part in self.parts.items()}
        return replace(self, parts=parts, base=self.base + more * self.size)

    def mapped(self, matrix: Floats) -> Affine:
        """Return the product with constants, shape [v, w], as the runtime computes it, in any order."""
        size = np.abs(matrix)
        parts = {group: part.mapped(matrix) for group, part in self.parts.items()}
        made = Affine(parts, matrix @ self.bias, size @ self.size, size @ self.base)
        return made.rounded(self.width + 1)

    def taken(self, rows: NDArray[np.int64]) -> Affine:
        """Return some columns."""
        parts = {g: GroupCoefficients(p.weights[rows], p.spread[rows], p.rough[rows]) for g, p in self.parts.items()}
        return Affine(parts, self.bias[rows], self.size[rows], self.base[rows])

    def scaled(self, factors: Floats) -> Affine:
        """Return it times constants, shape [w] or [1]."""
        wide = np.broadcast_to(np.asarray(factors, dtype=np.float64).reshape(-1), (self.width,))
        column = wide[:, None]
        size = np.abs(column)
        parts = {
            g: GroupCoefficients(column * p.weights, size * p.spread, size * p.rough) for g, p in self.parts.items()
        }
        return Affine(parts, wide * self.bias, np.abs(wide) * self.size, np.abs(wide) * self.base)

    def __add__(self, right: Affine) -> Affine:
        one, two = _wide(self, right.width), _wide(right, self.width)
        parts = dict(one.parts)
        for group, part in two.parts.items():
            parts[group] = parts[group] + part if group in parts else part
        return Affine(parts, one.bias + two.bias, one.size + two.size, one.base + two.base)


def _wide(one: Affine, width: int) -> Affine:
    return one.taken(np.zeros(width, dtype=np.int64)) if one.width == 1 and width > 1 else one


def joined(some: Sequence[Affine]) -> Affine:
    """Return tensors side by side."""
    widths = [one.width for one in some]
    starts = np.concatenate([[0], np.cumsum(widths)])
    parts: dict[int, GroupCoefficients] = {}
    for start, tensor in zip(starts, some, strict=False):
        for group, part in tensor.parts.items():
            shape = (int(starts[-1]), part.weights.shape[1])
            rows = slice(int(start), int(start) + tensor.width)
            made = GroupCoefficients(np.zeros(shape), np.zeros(shape), np.zeros(shape))
            for name in ("weights", "spread", "rough"):
                getattr(made, name)[rows] = getattr(part, name)
            parts[group] = parts[group] + made if group in parts else made
    return Affine(
        parts,
        np.concatenate([one.bias for one in some]),
        np.concatenate([one.size for one in some]),
        np.concatenate([one.base for one in some]),
    )
