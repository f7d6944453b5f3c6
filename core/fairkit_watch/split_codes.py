"""The groups of one way to split people, as small whole numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairkit.data.groups import MAX_GROUPS, ColumnCoder
from fairkit.data.roles import MISSING_GROUP
from fairkit.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from fairkit.data.roles import Sensitive


class SplitCoder:
    """Codes one split's groups, numbered as they appear; -1 where a row has none."""

    def __init__(self, split: Sensitive, missing: str) -> None:
        self.name, self.missing = split.name, missing
        self.columns = [ColumnCoder(c, e) for c, e in zip(split.columns, split.edges, strict=True)]
        self.places: dict[str, int] = {}

    def codes(self, batch: pa.RecordBatch) -> tuple[list[str], NDArray[np.int64]]:
        """Return the groups' names so far, and each row's place among them."""
        parts = [column.codes(batch) for column in self.columns]
        shape = [len(column.index) for column in self.columns]
        joint = np.ravel_multi_index(parts, shape)
        size = int(np.prod(shape))
        if size > MAX_GROUPS * 10:
            raise DataError(
                f"the sensitive column {self.name!r} has more than {MAX_GROUPS:,} groups; is it an identifier? "
                "Bin it (column:edge:edge) or leave it out"
            )
        names = [list(column.index) for column in self.columns]
        lookup = np.full(size, -1, np.int64)
        for cell in np.flatnonzero(np.bincount(joint, minlength=size)).tolist():
            own = [name[i] for name, i in zip(names, np.unravel_index(cell, shape), strict=True)]
            if self.missing == "drop" and MISSING_GROUP in own:
                continue
            lookup[cell] = self.places.setdefault(" & ".join(own), len(self.places))
        return list(self.places), lookup[joint]
