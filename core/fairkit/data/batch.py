"""Some rows of a dataset, with their groups, label and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairkit.data.arrow import as_arrow, as_numpy, decoded
from fairkit.errors import DataError, did_you_mean

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of a dataset, in order: plain arrays, roles resolved."""

    rows: NDArray[np.int64]  # row numbers in the table, from 0, shape [n], int64
    groups: Mapping[str, NDArray[np.int64]]
    label: NDArray[Any] | None  # the label as it stands in the table, shape [n]; None without a label
    favorable: NDArray[np.bool_] | None
    weights: NDArray[np.float64] | None  # sample weights, shape [n], nonnegative; None where all count the same
    _arrow: pa.RecordBatch
    _cache: dict[str, NDArray[Any]] = field(default_factory=dict)
    strata: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    clusters: NDArray[np.int64] | None = None
    probabilities: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    queries: NDArray[np.uint64] | None = None
    labelled: NDArray[np.bool_] | None = None  # which rows have a label, shape [n]; None: all, or there is no label
    drawn: NDArray[np.bool_] | None = None  # which rows a drawn list asks for, shape [n]; None without a list
    chance: NDArray[np.float64] | None = None  # of a label, shape [n]; None where it is one number, or not known

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> NDArray[Any]:
        """Return a column, shape [n]: text as objects (None where missing), whole numbers as int64, else float64."""
        if name not in self._cache:
            self._cache[name] = as_numpy(self._stored(name))
        return self._cache[name]

    def arrow(self, name: str) -> pa.Array:
        """Return a column as Arrow holds it: text, numbers or booleans, null where missing."""
        return decoded(self._stored(name))

    def _stored(self, name: str) -> pa.Array:
        names = self._arrow.schema.names
        if name not in names:
            hint = did_you_mean(name, names, what="columns")
            raise DataError(f"there is no column {name!r} in the data. {hint}")
        return self._arrow.column(names.index(name))

    def columns(self, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Return several columns by name."""
        return {name: self.column(name) for name in names}

    def take(self, keep: NDArray[np.bool_]) -> Batch:
        """Return the rows where `keep`, shape [n], is true."""
        return Batch(
            rows=self.rows[keep],
            groups={name: codes[keep] for name, codes in self.groups.items()},
            label=None if self.label is None else self.label[keep],
            favorable=None if self.favorable is None else self.favorable[keep],
            weights=None if self.weights is None else self.weights[keep],
            _arrow=self._arrow.filter(as_arrow(keep)),
            strata={name: codes[keep] for name, codes in self.strata.items()},
            clusters=None if self.clusters is None else self.clusters[keep],
            probabilities={name: shares[keep] for name, shares in self.probabilities.items()},
            queries=None if self.queries is None else self.queries[keep],
            labelled=None if self.labelled is None else self.labelled[keep],
            drawn=None if self.drawn is None else self.drawn[keep],
            chance=None if self.chance is None else self.chance[keep],
        )
