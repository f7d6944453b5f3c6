"""Columns of group probabilities in place of a sensitive column: names, what cannot be probabilities, known groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.arrow import as_numbers, as_numpy
from fairkit.data.roles import proxy_of, value_text
from fairkit.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from fairkit.data.roles import Roles

    Array = NDArray[np.float64]

ROUNDING = 2e-3
"""How far the probabilities of a row may be from adding up to 1: tables are published with three digits."""


def proxies(roles: Roles) -> dict[str, tuple[str, ...]]:
    """Return the groups' names by the name of the proxy: the columns without what they all begin with, up to ``_``."""
    return {name: _names(columns) for name, columns in map(proxy_of, roles.sensitive_probability)}


def _names(columns: tuple[str, ...]) -> tuple[str, ...]:
    head = columns[0].partition("_")[0] + "_"
    if all(column.startswith(head) and len(column) > len(head) for column in columns):
        return tuple(column[len(head) :] for column in columns)
    return columns


def probabilities_of(
    arrow: pa.RecordBatch, roles: Roles, table: str, times: NDArray[np.int64] | None = None
) -> dict[str, Array]:
    """Return each proxy's group probabilities, shape [n, K], adding up to 1; NaN in rows that have none.

    Each row stands for so many equal ones, shape [n]; None: one.
    """
    return {
        name: _checked(np.stack([_numbers(arrow, column, table) for column in columns], axis=1), columns, table, times)
        for name, columns in map(proxy_of, roles.sensitive_probability)
    }


def _numbers(arrow: pa.RecordBatch, column: str, table: str) -> Array:
    values = as_numbers(as_numpy(arrow.column(arrow.schema.names.index(column))))
    if values is None:
        raise DataError(f"{table}: column {column!r} of group probabilities holds text; probabilities are numbers")
    return values.astype(np.float64)


def rows_where(flags: Any, times: NDArray[np.int64] | None) -> int:
    """Return how many rows are flagged, shape [n] of bool, where each stands for so many equal ones."""
    return int(flags.sum() if times is None else times[flags].sum())


def _checked(values: Array, columns: tuple[str, ...], table: str, times: NDArray[np.int64] | None) -> Array:
    absent = np.isnan(values)
    part = absent.any(axis=1) & ~absent.all(axis=1)
    shown = ", ".join(columns)
    if part.any():
        raise DataError(
            f"{table}: {rows_where(part, times)} rows lack some of the probabilities {shown}; give all or none"
        )
    outside = ~absent & ~((values >= 0) & (values <= 1))
    if outside.any():
        raise DataError(
            f"{table}: {rows_where(outside.any(axis=1), times)} rows have a value of {shown} outside [0, 1]"
        )
    total = values.sum(axis=1)
    off = np.abs(total - 1) > ROUNDING
    if off.any():
        raise DataError(
            f"{table}: the probabilities {shown} add up to {total[off][0]:.4g}, not to 1, in "
            f"{rows_where(off, times)} rows; name a column for every group, or add one for the others"
        )
    return np.asarray(values / total[:, None])


def known_groups(values: NDArray[Any], groups: Sequence[str]) -> NDArray[np.int64]:
    """Return each row's place among the groups, shape [n]; -1 where it is not known or none of them."""
    places = {group: place for place, group in enumerate(groups)}
    return np.array([-1 if v is None else places.get(value_text(v), -1) for v in values.tolist()], dtype=np.int64)


def known_shares(p: Array, group: NDArray[np.int64] | None) -> Array:
    """Count rows of known groups by group and tenth of its probability: rows, Σ p, hits, Σ p (1 - p), [K, 10, 4]."""
    made = np.zeros((p.shape[1], 10, 4))
    if group is not None:
        p, group = p[group >= 0], group[group >= 0]
        for place, share in enumerate(p.T):
            tenth, hit = np.minimum((10 * share).astype(np.int64), 9), (group == place).astype(np.float64)
            parts = (np.ones(len(share)), share, hit, share * (1 - share))
            made[place] = np.stack([np.bincount(tenth, part, 10) for part in parts], axis=1)
    return made
