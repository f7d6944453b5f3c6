"""Other versions of rows, given as a table of their own: counterfactual rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.arrow import as_numpy
from fairkit.data.sources import open_source
from fairkit.errors import DataError, did_you_mean

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class CounterfactualTable:
    """The table of counterfactual rows."""

    columns: Mapping[str, NDArray[Any]]  # what the model reads, each of shape [p]
    places: Mapping[Any, NDArray[np.int64]]  # for every original, its rows in `columns`

    def originals(self) -> NDArray[np.int64]:
        """Return a number of each row's original, shape [p], from 0."""
        codes = np.empty(sum(len(rows) for rows in self.places.values()), dtype=np.int64)
        for number, rows in enumerate(self.places.values()):
            codes[rows] = number
        return codes


def read_given(path: str, of: str, wanted: Sequence[str]) -> CounterfactualTable:
    """Read a table of counterfactual rows."""
    source = open_source(path)
    for name in (of, *wanted):
        if name not in source.columns:
            hint = did_you_mean(name, source.columns, what="columns")
            use = "that names each row's original" if name == of else "that the model reads"
            raise DataError(f"{source.name} has no column {name!r}, {use}. {hint}")
    batches = list(source.batches([of, *wanted], _ROWS))
    if not sum(batch.num_rows for batch in batches):
        raise DataError(f"{source.name} has no counterfactual rows")
    names = [name for batch in batches for name in batch.column(of).to_pylist()]
    empty = sum(name is None or name != name for name in names)  # noqa: PLR0124 -- not NaN
    if empty:
        raise DataError(f"{source.name}: {empty} of {len(names)} rows have no value in {of!r}: name their originals")
    places: dict[Any, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(name, []).append(place)
    columns = {name: np.concatenate([as_numpy(batch.column(name)) for batch in batches]) for name in wanted}
    return CounterfactualTable(columns, {name: np.array(rows, dtype=np.int64) for name, rows in places.items()})
