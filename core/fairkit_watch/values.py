"""Cells of tables as days, decisions, outcomes and ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.arrow import as_numpy
from fairkit.data.roles import MISSING_GROUP, same_value, value_text
from fairkit.errors import DataError, ParameterError
from fairkit_watch.settings import read_day

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Codes = NDArray[np.int64]

UNKNOWN = 2
"""The code of an outcome that is missing."""


def _encoded(column: pa.Array) -> tuple[list[Any], Codes]:
    coded = column.dictionary_encode("encode")
    return coded.dictionary.to_pylist(), as_numpy(coded.indices).astype(np.int64)


def days_of(column: pa.Array, table: str, name: str) -> tuple[list[str], Codes]:
    """Return the days of a column of dates, times, or text that begins with a day, and each row's place in them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_string(column.type):
        raise DataError(f"{table}: the day column {name!r} holds numbers; it takes dates, such as 2026-11-21")
    if column.null_count:
        raise DataError(
            f"{table}: {column.null_count:,} of {len(column):,} rows have no day in {name!r}; leave them out"
        )
    days, codes = _encoded(pc.utf8_slice_codeunits(column, 0, 10))
    for day in days:
        try:
            read_day(day)
        except ParameterError as error:
            raise DataError(f"{table}: the day column {name!r} holds {error}") from None
    return days, codes


def binary(column: pa.Array, favorable: Any, table: str, what: str, name: str, *, guessed: bool = False) -> Codes:
    """Return 1 for the favorable value, 0 for others, `UNKNOWN` for missing ones, shape [n]."""
    values, codes = _encoded(column)
    missing = [value is None or value_text(value) == MISSING_GROUP for value in values]
    present = [value for value, gone in zip(values, missing, strict=True) if not gone]
    flags = all(any(same_value(value, flag) for flag in (0, 1)) for value in present)
    if guessed and flags:
        if favorable is not None and same_value(favorable, 0):
            raise DataError(
                f"{table}: is 0 or 1 the favorable decision in {name!r}? The favorable label is "
                f"{value_text(favorable)!r}; say which decision is: `favorable_decision`"
            )
        favorable = True
    hint = "favorable_decision" if what == "decision" else "favorable"
    if favorable is None:
        favorable = True
        if not flags:
            example = next(v for v in present if not any(same_value(v, flag) for flag in (0, 1)))
            raise DataError(
                f"{table}: the {what} column {name!r} holds {value_text(example)!r}, not only 1 and 0; say which value "
                f"is favorable: `{hint}`"
            )
    if len(present) > 1 and not any(same_value(value, favorable) for value in present):
        shown = " and ".join(repr(value_text(value)) for value in present[:3])
        raise DataError(
            f"{table}: the {what} column {name!r} holds {shown}, but never {value_text(favorable)!r}; say which value "
            f"is favorable: `{hint}`"
        )
    if len(present) > 100:
        raise DataError(
            f"{table}: the {what} column {name!r} has {len(present):,} values; it holds decisions or outcomes, "
            "such as 1 and 0"
        )
    found = np.array(
        [UNKNOWN if gone else int(same_value(v, favorable)) for v, gone in zip(values, missing, strict=True)] or [0]
    )
    return found[codes]


def text_ids(column: pa.Array, table: str, name: str) -> pa.Array:
    """Return ids as text, so that those of decisions and of labels meet."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.null_count:
        raise DataError(f"{table}: {column.null_count:,} of {len(column):,} rows have no id in {name!r}")
    if pa.types.is_floating(column.type):
        values = as_numpy(column)
        if not np.array_equal(values, np.round(values)):
            raise DataError(f"{table}: the id column {name!r} holds fractions; ids are text or whole numbers")
        column = pc.cast(column, pa.int64())
    return pc.cast(column, pa.string())


def usable_numbers(
    batch: pa.RecordBatch, column: str | None, table: str, what: str, least: float = -np.inf
) -> NDArray[np.float64] | None:
    """Return a column of weights or scores as doubles, shape [n]; None where no column is named."""
    if column is None:
        return None
    values = as_numpy(batch.column(column))
    if values.dtype.kind not in "ifb":
        raise DataError(f"{table}: the {what} column {column!r} holds text; it takes numbers")
    values = values.astype(np.float64)
    bad = ~np.isfinite(values) | (values < least)
    if bad.any():
        raise DataError(
            f"{table}: {int(bad.sum()):,} of {len(values):,} rows have no usable {what} in {column!r}; leave them out"
        )
    return values
