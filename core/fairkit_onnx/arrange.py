"""Rows in an order in which neighbours are alike, each once: what large trees are run on.

A forest of many megabytes does not fit in a processor's cache. Rows that stand beside rows like them take the same
branches, so that the nodes they need are in the cache already, and their branches are predicted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fairkit.support.lazy_dataclass import dataclass
from fairkit_onnx.read.graph import walk
from fairkit_onnx.sandbox.wire import Maps, factorize

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    Feeds = Mapping[str, NDArray[Any]]

LARGE = 20_000
"""Trees with so many nodes in all are worth it."""
FEWEST = 256
"""Fewer rows are run as they come."""
WIDEST = 256
"""Inputs with more columns take longer to put in order than to score."""
_MOST = 1 << 62


def has_large_trees(proto: onnx.ModelProto) -> bool:
    """Tell whether the graph's trees have `LARGE` nodes or more."""
    return sum(map(_tree_nodes, walk(proto.graph.node))) >= LARGE


def _tree_nodes(node: onnx.NodeProto) -> int:
    if not node.op_type.startswith("TreeEnsemble"):
        return 0
    return max(
        (
            max(len(attribute.ints), *attribute.t.dims, 0)
            for attribute in node.attribute
            if attribute.name in ("nodes_featureids", "nodes_modes")
        ),
        default=0,
    )


@dataclass(frozen=True, slots=True)
class Arranged:
    """Distinct rows in order."""

    places: NDArray[np.int64]  # shape [m]: which rows are run, in this order; of equal ones the first
    back: NDArray[np.int64]  # shape [n]: where each row's result is among those of `places`

    @classmethod
    def of(cls, feeds: Feeds) -> Self | None:
        """Put the rows in order, by the columns with few values first; None where they are run as they come."""
        columns = [column for array in feeds.values() for column in _columns(array)]
        rows = {len(array) for array in feeds.values()}
        if len(rows) != 1 or max(rows) < FEWEST or not 0 < len(columns) <= WIDEST:
            return None
        if any(array.ndim > 2 for array in feeds.values()):
            return None
        key = _joint([_codes(column) for column in columns])
        order = np.argsort(key, kind="stable")
        fresh = np.ones(len(key), dtype=bool)
        fresh[1:] = np.diff(key[order]) != 0
        back = np.empty(len(key), dtype=np.int64)
        back[order] = np.cumsum(fresh) - 1
        return cls(order[fresh], back)

    def take(self, feeds: Feeds) -> dict[str, NDArray[Any]]:
        """Return the rows that are run."""
        return {name: array[self.places] for name, array in feeds.items()}

    def restore(self, values: Any) -> Any:
        """Return each row's result; None where the results are not one for each row that was run."""
        if not hasattr(values, "__len__") or len(values) != len(self.places):
            return None
        if isinstance(values, Maps):
            return Maps(values.keys, values.matrix[self.back])
        if isinstance(values, list):
            return [values[index] for index in self.back.tolist()]
        return values[self.back]


def _columns(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    if array.ndim < 2:
        yield array
    else:
        yield from (array[:, index] for index in range(array.shape[1]))


def _codes(column: NDArray[Any]) -> tuple[int, NDArray[np.int64]]:
    """Number a column's distinct cells from 0; cells are equal where their bits are."""
    if column.dtype.kind in "OU":
        texts, codes = factorize(np.ascontiguousarray(column))
        return len(texts), codes.astype(np.int64)
    cells = np.ascontiguousarray(column)
    if cells.dtype.kind == "f":
        cells = cells.view(f"i{cells.dtype.itemsize}")
    values, numbers = np.unique(cells, return_inverse=True)
    return len(values), numbers.reshape(-1)


def _joint(columns: list[tuple[int, NDArray[np.int64]]]) -> NDArray[np.int64]:
    """Number the rows: equal where all cells are, and in the order of the columns with few values first."""
    most, key = 1, np.zeros(len(columns[0][1]), dtype=np.int64)
    for count, codes in sorted(columns, key=lambda each: each[0]):
        if most * count > _MOST:
            values, key = np.unique(key, return_inverse=True)
            most, key = len(values), key.reshape(-1)
        key = key * count + codes
        most *= count
    return key
