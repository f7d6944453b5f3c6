"""Test rows that are training rows: no verdict on them says anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairkit.data.table import Table

_MORE = 0.25


def check_leak(train: Table, test: Table) -> None:
    """Refuse test rows that are training rows.

    Rows are compared by their features, groups and outcome. People who are alike are not the same row: what counts is
    how many more test rows have a copy among the training rows than training rows have among each other.

    Raises
    ------
    DataError
        The share of test rows with a copy is above the usual one by more than `_MORE`.
    """
    if len(test) == 0 or len(train) == 0:
        return
    seen: dict[tuple[object, ...], int] = {}
    for row in _rows(train):
        seen[row] = seen.get(row, 0) + 1
    usual = sum(count for count in seen.values() if count > 1) / len(train)
    copies = sum(row in seen for row in _rows(test))
    if copies / len(test) > usual + _MORE * (1 - usual):
        raise DataError(
            f"{copies:,} of the {len(test):,} test rows are also training rows, where chance would give about "
            f"{usual * len(test):,.0f}: a verdict on rows that a model has seen says nothing. Give other rows in "
            "`test`, or leave it out and some of the rows are held out"
        )


def _rows(table: Table) -> Iterator[tuple[object, ...]]:
    columns = [values.tolist() for values in table.columns.values()]
    # NaN is not equal to itself
    return (
        tuple(None if cell != cell else cell for cell in row)  # noqa: PLR0124 - NaN
        for row in zip(*columns, table.target.tolist(), strict=True)
    )
