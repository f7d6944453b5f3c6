"""From a table to a trained model: the encoder that suits a learner, and its training."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from fairkit.errors import DataError, FairkitError, PluginError
from fairkit.learners import LEARNERS, EncodedRows, find_learner
from fairkit_onnx.write.encode import Encoder, fit_encoder
from fairkit_onnx.write.export import TabularModel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from fairkit.data.table import Table
    from fairkit.data.task import Task
    from fairkit.fitted import Run
    from fairkit_onnx.write.encode import Encoding


def fit_learner(
    name: str, table: Table, run: Run, *, settings: Mapping[str, Any] | None = None, encoder: Encoding | None = None
) -> TabularModel:
    """Encode a table, fit a learner, and give a model that can become ONNX.

    A ranker is a regression of the relevance, or a classifier of the relevant items where a label is favorable.

    `name`: one of `LEARNERS`, or one that a plugin brings; `table`: rows with target and weights; `run`: seed and
    threads; `settings`: parameters of the library itself, over our defaults; `encoder`: how raw columns become numbers;
    it goes into the ONNX file too. Default: what suits the learner.
    """
    check_target(table)
    if table.task == "ranking":
        task: Task = "regression" if table.roles.favorable is None else "binary"
        table = dataclasses.replace(table, task=task, classes=() if task == "regression" else (0, 1))
    if encoder is None:
        encoder = encoder_for(name, table)
    estimator = fit_estimator(
        name,
        encoder.transform(table.columns),
        table.target,
        weights=table.weights,
        task=table.task,
        run=run,
        categorical=encoder.categorical,
        settings=settings,
    )
    return TabularModel(encoder=encoder, estimator=estimator, task=table.task)


def encoder_for(name: str, table: Table) -> Encoder:
    """Fit the encoder that suits a learner: codes for LightGBM, one-hot columns for the others."""
    learner = find_learner(name, table.task)
    return fit_encoder(
        table.columns,
        table.features,
        text=learner.text,
        standardise=learner.scaled,
        fill=learner.scaled,
        weights=table.weights,
    )


def fit_estimator(
    name: str,
    matrix: NDArray[np.float32],
    target: NDArray[np.float64],
    *,
    weights: NDArray[np.float64] | None,
    task: Task,
    run: Run,
    categorical: Sequence[int] = (),
    settings: Mapping[str, Any] | None = None,
) -> Any:
    """Fit a learner on encoded rows.

    `name`: one of `LEARNERS`, or one that a plugin brings; `matrix`: shape [n, d]; `target`: shape [n]: 0 and 1, class
    codes, or values; `weights`: shape [n], or None; `task`, `run`: what to learn; seed and threads; `categorical`:
    columns of codes (LightGBM); `settings`: parameters of the library itself, over our defaults; returns an estimator
    that `fairkit_onnx.write.estimators` can score and export.
    """
    learner = find_learner(name, task)
    rows = EncodedRows(
        matrix=matrix, target=target, task=task, run=run.on(len(target)), weights=weights, categorical=list(categorical)
    )
    try:
        return learner().fit(rows, dict(settings or {}))
    except (FairkitError, MemoryError):
        raise
    except Exception as error:
        if name in LEARNERS:
            raise
        raise PluginError(
            f"the learner {name!r} of {learner.__module__} failed while it was trained "
            f"({type(error).__name__}: {' '.join(str(error).split())}); this is for its author to fix"
        ) from error


def check_target(table: Table) -> None:
    """Raise DataError where there is nothing to learn: one class, or no variation."""
    if len(table) == 0:
        raise DataError(f"{table.name} has no rows to learn from")
    if table.target.min() == table.target.max():
        label = table.roles.label or "the label"
        what = "the same value" if table.task == "regression" else "the same class"
        raise DataError(f"{table.name}: all {len(table)} training rows have {what} in {label!r}; nothing to learn")
