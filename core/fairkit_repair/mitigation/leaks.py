"""Test rows that are training rows, or each other's copies: no verdict on them says anything."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairkit.data.table import Table

_MORE = 0.25


def check_leak(train: Table, test: Table) -> None:
    """Refuse test rows that are training rows, and test rows that are there several times.

    Rows are compared by their features, groups and outcome. People who are alike are not the same row: what counts is
    how many more test rows have a copy among the training rows than training rows have among each other.
    """
    if len(test) == 0 or len(train) == 0:
        return
    seen, held = Counter(_rows(train)), list(_rows(test))
    usual = _repeated(seen) / len(train)
    most = usual + _MORE * (1 - usual)
    _check_copies(held, len(train), most)
    copies = sum(row in seen for row in held)
    if copies / len(test) > most:
        raise DataError(
            f"{copies:,} of the {len(test):,} test rows are also training rows, where chance would give about "
            f"{usual * len(test):,.0f}: a verdict on rows that a model has seen says nothing. Give other rows in "
            "`test`, or leave it out and some of the rows are held out"
        )


def _check_copies(held: Sequence[tuple[object, ...]], size: int, most: float) -> None:
    """Refuse test rows of which more are there several times than of as many training rows."""
    some = held
    if len(held) > size:  # among more rows more people are alike
        some = [held[place] for place in np.random.default_rng(0).choice(len(held), size, replace=False)]
    copies = _repeated(Counter(some))
    if copies / len(some) > most:
        raise DataError(
            f"{copies:,} of {len(some):,} test rows are copies of others among them, which is far more than among "
            "training rows: an interval takes every row for another person. Give each person once in `test`, with a "
            "weight where some count more"
        )


def _repeated(rows: Counter[tuple[object, ...]]) -> int:
    return sum(count for count in rows.values() if count > 1)


def _rows(table: Table) -> Iterator[tuple[object, ...]]:
    columns = [values.tolist() for values in table.columns.values()]
    # NaN is not equal to itself
    return (
        tuple(None if cell != cell else cell for cell in row)  # noqa: PLR0124 - NaN
        for row in zip(*columns, table.target.tolist(), strict=True)
    )
