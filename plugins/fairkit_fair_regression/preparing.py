"""Choices that the data settle: the loss, the label's range, weights, and the features of the baseline."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import DataError, ParameterError
from fairkit_fair_regression.losses import Loss, Rates

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.mitigators import Groups, Table
    from fairkit_fair_regression.parameters import FairRegressionParameters

    Array = NDArray[np.float64]


def choose_loss(parameters: FairRegressionParameters, table: Table) -> tuple[Loss, tuple[str, ...]]:
    """Choose the loss, and say what is unusual about it."""
    chosen = parameters.loss
    two = len(np.unique(table.target)) == 2
    if parameters.constraint == "seo" and chosen not in (None, "squared"):
        raise ParameterError("fair-regression: constraint=seo is least squares: leave out the loss")
    if chosen == "logistic" and not two:
        raise DataError(
            f"{table.name}: the logistic loss is for labels of two values, and {table.roles.label or 'the label'!r} "
            f"has {len(np.unique(table.target))}; use loss=squared, absolute or quantile"
        )
    if chosen == "poisson":
        return Loss("poisson", parameters.quantile, choose_rates(parameters, table)), ()
    if chosen is None:
        binary = table.task == "binary" and parameters.constraint != "seo"
        chosen = "logistic" if binary else "squared"
    notes: tuple[str, ...] = ()
    if two and chosen != "logistic":
        notes = (
            f"The label has two values, and the loss is {chosen}: predictions are fitted as numbers between them "
            "(loss=logistic fits probabilities).",
        )
    return Loss(chosen, parameters.quantile), notes


WIDTH = 4.0
"""Rates go from e^-4 to e^4 times the mean label, but not above the largest label."""


def choose_rates(parameters: FairRegressionParameters, table: Table) -> Rates:
    """Return the rates that may be predicted: declared, else around the mean label."""
    label = repr(table.roles.label) if table.roles.label else "the label"
    if table.task == "binary":
        raise DataError(f"{table.name}: the Poisson loss is for counts and rates; use loss=logistic for classes")
    if (table.target < 0).any():
        raise DataError(
            f"{table.name}: the Poisson loss is for counts and rates, and {int((table.target < 0).sum())} values of "
            f"{label} are negative; use loss=squared"
        )
    mean = float(np.average(table.target, weights=table.weights))
    largest = max([float(table.target.max()), *parameters.label_range[1:]])
    if parameters.rate_range:
        low, high = (float(value) for value in parameters.rate_range)
    else:
        low, high = mean * np.exp(-WIDTH), min(mean * np.exp(WIDTH), largest)
    return Rates(float(low), float(high), mean, largest)


def choose_range(parameters: FairRegressionParameters, table: Table) -> tuple[float, float]:
    """Return the label's range: declared, 0 to 1 for classes, else observed."""
    declared = parameters.label_range
    if declared:
        return float(declared[0]), float(declared[1])
    if table.task == "binary":
        return 0.0, 1.0
    return float(table.target.min()), float(table.target.max())


def row_weights(table: Table, groups: Groups) -> Array | None:
    """Return the weights with mean 1, checked: every group has rows, and some weight."""
    mass = np.bincount(groups.codes, table.weights, len(groups.names))
    if (mass <= 0).any():
        empty = groups.names[int((mass <= 0).argmax())]
        raise DataError(
            f"{table.name}: the group {empty!r} has no training rows (or no weight); leave it out, or merge it "
            "with another group"
        )
    return None if table.weights is None else table.weights / table.weights.mean()


def without_sensitive(table: Table, groups: Groups) -> Table:
    """Leave the sensitive columns out of the features: their part is fitted, and dropped, by itself."""
    columns = {name for name, split in table.groups.items() if split is groups}
    columns |= set() if groups.split is None else set(groups.split.columns)
    kept = tuple(name for name in table.features if name not in columns)
    if not kept:
        raise DataError(f"{table.name}: constraint=seo needs features besides the sensitive columns")
    return dataclasses.replace(table, features=kept)
