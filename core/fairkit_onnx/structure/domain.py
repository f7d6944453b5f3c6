"""The inputs that a statement is about: blocks of columns, and cells in which no test tells values apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.roles import value_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Columns = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The numbers from `low` to `high`, whole ones only if `whole`, and a missing one if `missing`."""

    name: str
    low: float
    high: float
    whole: bool = False
    missing: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"low": self.low, "high": self.high, "whole": self.whole, "missing": self.missing}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """Columns that take one of a list of values together: one column, a one-hot group, or the columns that change."""

    columns: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]

    @property
    def name(self) -> str:
        """The columns, joined."""
        return "+".join(self.columns)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """Columns that take their values together, as cells."""

    name: str  # what it is called, and the raw columns
    columns: tuple[str, ...]  # what it is called, and the raw columns
    ordered: bool  # whether the cells are intervals of numbers, in order
    values: Mapping[str, NDArray[Any]]  # by column, one raw value of each cell, shape [cells]
    ends: NDArray[np.float64] | None = None
    low: float = 0.0  # the smallest number; whether only whole ones are meant; whether the graph takes them as float32
    whole: bool = False
    single: bool = False
    members: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    choices: tuple[tuple[Any, ...], ...] = ()  # the raw values behind `members`, in their order
    points: bool = False  # whether a cell of numbers is its end alone, and not all numbers from above the former end

    @property
    def size(self) -> int:
        """The number of cells."""
        return len(self.values[self.columns[0]])

    @property
    def intervals(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The smallest and the largest number of each cell of numbers, shape [cells] without the missing one."""
        assert self.ends is not None  # noqa: S101 -- a block of numbers
        ends = self.ends[~np.isnan(self.ends)]
        if self.whole:
            above = ends[:-1] + 1
        elif self.single:
            above = np.nextafter(ends[:-1].astype(np.float32), np.float32(np.inf)).astype(np.float64)
        else:
            above = np.nextafter(ends[:-1], np.inf)
        return np.concatenate([[self.low], above]), ends

    def cells_of(self, columns: Columns) -> NDArray[np.int64]:
        """Return the cell of each row, shape [n]; -1 where it has none."""
        if self.ends is not None:
            raw = np.asarray(columns[self.columns[0]], dtype=np.float64)
            raw = raw.astype(np.float32).astype(np.float64) if self.single else raw
            ends = self.ends[~np.isnan(self.ends)]
            found = np.searchsorted(ends, raw, side="left")
            out = np.isnan(raw) | (raw < self.low) | (found >= len(ends))
            missing = len(ends) if len(ends) < len(self.ends) else -1
            return np.where(np.isnan(raw), missing, np.where(out, -1, found)).astype(np.int64)
        keys = zip(*(columns[name].tolist() for name in self.columns), strict=True)
        return np.array([self.members.get(tuple(map(value_text_of, key)), -1) for key in keys], dtype=np.int64)


def value_text_of(value: Any) -> str:
    """Return a raw value as text: a missing one is empty, whole numbers have no fraction."""
    if value is None or value != value:  # noqa: PLR0124 -- NaN
        return ""
    return value_text(value)


def column_of(values: Sequence[Any]) -> NDArray[Any]:
    """Return raw values as a column: as objects where one of them is text or missing."""
    text = any(isinstance(value, str) or value is None for value in values)
    return np.array(values, dtype=object if text else None)


def one_hot_groups(columns: Columns, names: Sequence[str]) -> list[tuple[str, ...]]:
    """Find groups of 0-1 columns with a common beginning of which each row has exactly one."""
    flags = {}
    for name in names:
        values = np.asarray(columns[name])
        if values.dtype.kind in "biuf" and np.isin(values, (0, 1)).all() and len(values):
            flags[name] = values.astype(np.float64)
    groups: list[tuple[str, ...]] = []
    taken: set[str] = set()
    for mark in ("=", "_"):
        stems: dict[str, list[str]] = {}
        for name in flags:
            if mark in name and name not in taken:
                stems.setdefault(name.rsplit(mark, 1)[0] if mark == "_" else name.split(mark, 1)[0], []).append(name)
        for stem, members in stems.items():
            del stem
            if len(members) > 1 and (np.sum([flags[name] for name in members], axis=0) == 1).all():
                groups.append(tuple(members))
                taken |= set(members)
    return groups


def numbers_block(domain: Numbers, some: NDArray[np.float64], kind: type, *, points: bool = False) -> Block:
    """Return the block of a column of numbers whose cells end at some of them, and at the largest."""
    if kind is np.float32 and not domain.whole:
        some = some.astype(np.float32).astype(np.float64)
    if points:
        ends = np.unique(np.clip(some, domain.low, domain.high))
    else:
        ends = np.unique(np.append(some[(some >= domain.low) & (some <= domain.high)], domain.high))
    return cells_of_numbers(domain, ends, ends, kind, points=points)


def cells_of_numbers(
    domain: Numbers, ends: NDArray[np.float64], values: NDArray[np.float64], kind: type, *, points: bool = False
) -> Block:
    """Return the block of a column of numbers by the ends of its cells, with a value of each; see `numbers_block`."""
    missing = [np.nan] if domain.missing else []
    single = kind is np.float32 and not domain.whole
    return Block(
        name=domain.name,
        columns=(domain.name,),
        ordered=not domain.missing,
        values={domain.name: np.append(values, missing)},
        ends=np.append(ends, missing),
        low=float(np.float32(domain.low)) if single else domain.low,
        whole=domain.whole,
        single=single,
        points=points,
    )
