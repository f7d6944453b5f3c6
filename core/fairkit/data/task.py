"""The tasks, told apart by the label, the favorable value and what a model shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from fairkit.data.roles import example_of, value_text
from fairkit.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.data.dataset import Dataset


Task = Literal["binary", "multiclass", "regression", "ranking", "answers", "table"]

MAX_REGRESSION_CLASSES = 20
"""A numeric label with more distinct values than this, or with fractions, is a regression target."""


def choose_task(dataset: Dataset, wished: Task | None, n_scores: int | None = None) -> Task:
    """Tell tasks apart by the label, the favorable value and the model; a column of queries makes a ranking."""
    roles, values = dataset.roles, dataset.learn().label_values
    if roles.query is not None or wished == "ranking":
        return _ranking(dataset, wished)
    if wished is not None:
        task: Task = wished
    elif roles.label is None:
        task = "regression" if roles.favorable is None and n_scores in (None, 1) else "binary"
    elif len(values) == 2:
        task = "binary"
    elif not values or (n_scores in (None, 1) and _is_quantity(values)):
        task = "regression"
    else:
        task = "multiclass"
    if task == "binary" and roles.label is not None and roles.favorable is None:
        shown = " or ".join(repr(value_text(value)) for value in values[:5])
        raise DataError(
            f"which value of {roles.label!r} is good for the person? "
            f"Say so with `favorable` ({shown}), as in `favorable={example_of(roles.label, values)}`"
        )
    if task == "regression" and roles.label is not None and dataset.profile.label_range is None:
        raise DataError(f"the label {roles.label!r} holds text; a regression needs numbers")
    return task


def _is_quantity(values: Sequence[Any]) -> bool:
    """Tell whether a label's values are amounts, not classes: many numbers, or numbers with fractions."""
    if isinstance(values[0], str):
        return False
    return len(values) > MAX_REGRESSION_CLASSES or any(value % 1 != 0 for value in values)


def _ranking(dataset: Dataset, wished: Task | None) -> Task:
    roles = dataset.roles
    if roles.query is None:
        raise DataError("a ranking needs the column that says which rows belong together: name it with `query=COLUMN`")
    if wished not in (None, "ranking"):
        raise DataError(f"`query` makes this a ranking, and `task={wished}` another task; leave one of them out")
    if roles.label is not None and roles.favorable is None and dataset.profile.label_range is None:
        raise DataError(
            f"the label {roles.label!r} holds text; relevance is a number, or name the relevant value with `favorable`"
        )
    return "ranking"


# Tables of answers, which carry how they are to be read.


def carried_by(table: str) -> dict[str, Any]:
    """Return the data settings that a Parquet file of answers carries; empty for other tables."""
    if not table.endswith(".parquet"):
        return {}
    import json

    import pyarrow.parquet as pq

    try:
        record = json.loads((pq.read_schema(table).metadata or {}).get(b"fairkit.data", b"{}"))
    except (OSError, ValueError):  # pyarrow's errors are among them; loading the table says what is wrong
        return {}
    return record if isinstance(record, dict) else {}
