"""The tasks, told apart by the label, the favorable value and what a model shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fairkit.data.roles import value_text
from fairkit.errors import DataError

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset

Task = Literal["binary", "multiclass", "regression"]

MAX_REGRESSION_CLASSES = 20
"""A numeric label with more distinct values than this is a regression target."""


def choose_task(dataset: Dataset, wished: Task | None, n_scores: int | None = None) -> Task:
    """Tell binary, multi-class and regression apart by the label, the favorable value and the model.

    Parameters
    ----------
    dataset
        Its label's distinct values decide.
    wished
        What the user said; it wins.
    n_scores
        How many classes the model scores; None where the model does not show it.

    Raises
    ------
    DataError
        A binary task without a favorable value.
    """
    roles, values = dataset.roles, dataset.learn().label_values
    if wished is not None:
        task: Task = wished
    elif roles.label is None:
        task = "regression" if roles.favorable is None and n_scores in (None, 1) else "binary"
    elif len(values) == 2:
        task = "binary"
    elif not values or (
        not isinstance(values[0], str) and len(values) > MAX_REGRESSION_CLASSES and n_scores in (None, 1)
    ):
        task = "regression"
    else:
        task = "multiclass"
    if task == "binary" and roles.label is not None and roles.favorable is None:
        shown = " or ".join(repr(value_text(value)) for value in values[:5])
        raise DataError(
            f"which value of {roles.label!r} is good for the person? "
            f"Say so with `favorable` ({shown}), as in `favorable={value_text(values[-1])}`"
        )
    if task == "regression" and roles.label is not None and dataset.profile.label_range is None:
        raise DataError(f"the label {roles.label!r} holds text; a regression needs numbers")
    return task
