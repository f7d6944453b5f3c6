"""Raw columns in cells, numbered alike in memory and in the file that is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fairkit.data.arrow import as_arrow
from fairkit_onnx.write.cells import as_float32
from fairkit_onnx.write.rules import GroupColumn
from fairkit_subgroups.searching.cells import ColumnCells, make_cells
from fairkit_subgroups.searching.family import Family
from fairkit_subgroups.searching.values import Tallies, tally_column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

SCORE = "the model's score"
"""What the last column is called, in conditions."""


@dataclass(frozen=True, slots=True)
class FamilyCells:
    """The columns of the family: those of the table, then the base score."""

    family: Family  # of the columns and the score
    columns: tuple[GroupColumn, ...]
    edges: tuple[float, ...]  # of the score

    def of(self, numbers: Sequence[NDArray[np.int64]]) -> NDArray[np.uint8]:
        """Return cells, shape [d, n], of numbers: those from 1 come first, 0 is other text or missing."""
        out = []
        for cells, codes in zip(self.family.columns, numbers, strict=True):
            unknown = cells.plain if cells.other else cells.size - 1
            missing = codes == cells.plain + 1
            at = np.where(codes == 0, unknown, np.where(missing, cells.size - 1, codes - 1))
            out.append(at.astype(np.uint8))
        rows = len(out[0])
        return np.stack([*out, *[np.zeros(rows, dtype=np.uint8)] * (3 - len(out))])

    def condition(self, column: int, run: tuple[int, int]) -> tuple[int, int, int]:
        """Return a run of cells as numbers of the file: the column, the first and the last one."""
        cells, (first, last) = self.family.columns[column], run
        if cells.missing and first == last == cells.size - 1:
            return column, cells.plain + 1, cells.plain + 1
        if cells.other and last == cells.plain:  # any known value: other text has number 0
            return column, 0, cells.plain
        return column, first + 1, last + 1


def learn_cells(
    columns: Mapping[str, NDArray[Any]],
    names: Sequence[str],
    base: NDArray[np.float64],
    *,
    share: float,
    bins: int,
    depth: int,
) -> tuple[FamilyCells, dict[str, str]]:
    """Make the cells of columns and of the base score."""
    rows = len(base)
    tallies = {name: tally_column(_arrow(columns[name], name)) for name in names}
    made, left = make_cells(Tallies(tallies, rows), rows, share=share, bins=bins, edges={})
    scored, _ = make_cells(Tallies({SCORE: tally_column(as_arrow(base))}, rows), rows, share=share, bins=bins, edges={})
    usable = [one for one in made if one.texts or one.plain > 1]
    left |= {one.name: "it has one value besides missing ones" for one in made if one not in usable}
    edges = tuple(scored[0].starts[1:]) if scored else ()
    family = Family((*usable, *scored), depth)
    return FamilyCells(family, tuple(_as_group(one) for one in usable), edges), left


def _as_group(cells: ColumnCells) -> GroupColumn:
    if cells.texts:
        return GroupColumn(name=cells.name, keys=cells.texts, missing=cells.missing)
    return GroupColumn(name=cells.name, edges=tuple(cells.starts[1:]), missing=cells.missing)


def _arrow(values: NDArray[Any], name: str) -> pa.Array:
    """Return a raw column; numbers as the file gets them, in single precision."""
    texts = values.dtype.kind in "OUS" and any(isinstance(one, str) for one in values[:1000].tolist())
    if not texts:
        return as_arrow(as_float32(values, name).astype(np.float64))
    return pa.array([one if isinstance(one, str) else None for one in values.tolist()], pa.string())
