"""What mass can gain by moving: losses under each label, or outputs that are compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fairkit.data.roles import same_value, value_text
from fairkit.errors import DataError, ModelError, ParameterError
from fairkit_similarity.outputs import centred_logits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.data.task import Task
    from fairkit_individual.collect import AuditedRows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Loss = Literal["logistic", "zero_one", "squared", "absolute"]
Output = Literal["logit", "probability", "score"]
Difference = Literal["mean", "single"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewards:
    """What each of n rows is worth where mass goes."""

    kind: str  # `losses`, or how outputs are compared: `squared` or `absolute`
    values: Floats  # losses under each label, shape (K, n), or outputs, shape (n, K)
    label: Ints | None = None  # losses: each row's own label, shape (n,)
    target: Floats | None = None  # outputs: what each row's are compared with, shape (n, K); None for its own outputs
    notes: tuple[str, ...] = ()  # what a reader must know


CLIP = 1e-6
"""Probabilities are kept this far from 0 and 1 before a logarithm is taken."""


def label_codes(rows: AuditedRows, task: Task, classes: Sequence[Any]) -> Ints:
    """Return each row's label as 0 ... K - 1; binary: 1 is favorable."""
    label = rows.get("label")
    if label is None:
        raise DataError("restricted-dro needs the label column, to know each row's loss; name it with `label`")
    if task == "binary":
        favorable = rows.get("favorable")
        if favorable is None:
            raise DataError("restricted-dro needs the label's favorable value; name it with `favorable`")
        return favorable.astype(np.int64)
    values, inverse = np.unique(label.astype(str) if label.dtype.kind == "O" else label, return_inverse=True)
    codes = np.full(len(values), -1)
    for place, value in enumerate(values.tolist()):
        for code, known in enumerate(classes):
            if same_value(value, known):
                codes[place] = code
    if (codes < 0).any():
        unknown = value_text(values[codes < 0][0])
        raise DataError(f"the label {unknown!r} is none of the model's classes: {', '.join(map(value_text, classes))}")
    return codes[inverse].astype(np.int64)


def class_losses(rows: AuditedRows, task: Task, loss: Loss) -> Floats:
    """Return the loss of every row under each label, shape (K, n).

    Binary labels are 0 (unfavorable) and 1; a randomized model's zero-one loss is the expected one.
    """
    if loss == "zero_one":
        return _zero_one(rows, task)
    probability = _probabilities(rows, task, loss)
    if loss == "logistic":
        return np.ascontiguousarray(-np.log(np.clip(probability, CLIP, 1.0 - CLIP)).T)
    if loss == "absolute":
        return np.ascontiguousarray(1.0 - probability.T)
    if task == "binary":
        return np.ascontiguousarray((1.0 - probability.T) ** 2)
    square = (probability**2).sum(axis=1)
    return np.ascontiguousarray((square[:, None] - 2.0 * probability + 1.0).T)


def regression_pair(rows: AuditedRows, loss: Loss) -> tuple[Floats, Floats]:
    """Return the predictions and the true values, each of shape (n, 1)."""
    if loss not in ("squared", "absolute"):
        raise ParameterError(f"restricted-dro: loss={loss} is for classes; a regression takes squared or absolute")
    label, score = rows.get("label"), rows.get("score")
    if label is None or score is None:
        raise DataError("restricted-dro needs the label column, to know each row's loss; name it with `label`")
    return score.astype(np.float64)[:, None], label.astype(np.float64)[:, None]


def outputs(
    rows: AuditedRows, task: Task, output: Output, *, difference: Difference = "mean"
) -> tuple[Floats, str | None]:
    """Return the outputs h that `dif` compares, and what a reader must know about them.

    d_Y is the mean of squared differences over their columns; logits are those of
    `fairkit_similarity.outputs.centred_logits`, or with ``difference="single"`` the former ones: the log-odds of two
    classes, and several logits as the model shows them.
    """
    if task == "regression":
        if output != "score":
            raise ParameterError(f"dif: a regression model has no {output}; use output=score")
        score = rows.get("score")
        return np.asarray(score, dtype=np.float64)[:, None], None
    if output == "logit":
        logits, note = _logits(rows, task)
        return (logits if difference == "single" else centred_logits(logits)), note
    if output == "score" and task == "multiclass":
        raise ParameterError("dif: a multi-class model has no single score; use output=logit or probability")
    probability = _probabilities(rows, task, "output")
    return (probability[:, 1:] if task == "binary" else probability), None


def _logits(rows: AuditedRows, task: Task) -> tuple[Floats, str | None]:
    shown = rows.get("logits")
    if shown is not None:
        return shown.reshape(len(shown), -1).astype(np.float64), None
    probability = np.clip(_probabilities(rows, task, "output"), CLIP, 1.0 - CLIP)
    note = f"The model shows no logits: they are made from its probabilities, clipped at {CLIP:g}."
    if task == "binary":
        return np.log(probability[:, 1:] / probability[:, :1]), note
    logs = np.log(probability)
    return logs - logs.mean(axis=1, keepdims=True), note


def shown_scores(rows: AuditedRows, task: Task) -> Floats | None:
    """Return the number that people see for each row: the score; multi-class: the largest probability."""
    if task == "multiclass":
        probability = rows.get("probabilities")
        return None if probability is None else probability.max(axis=1).astype(np.float64)
    score = rows.get("score")
    if score is None:
        score = rows.get("decision")
    return None if score is None else score.astype(np.float64)


def _probabilities(rows: AuditedRows, task: Task, use: str) -> Floats:
    name = "score" if task == "binary" else "probabilities"
    values = rows.get(name)
    if values is None:
        what = f"loss={use}" if use != "output" else "output=logit or probability"
        other = "use loss=zero_one" if use != "output" else "export it with its probabilities"
        raise ModelError(f"the model gives labels only, no probabilities, and {what} needs them; {other}")
    values = values.astype(np.float64)
    if task == "binary":
        return np.column_stack([1.0 - values, values])
    return values


def _zero_one(rows: AuditedRows, task: Task) -> Floats:
    if task == "binary":
        decision = np.asarray(rows.get("decision"), dtype=np.float64)
        return np.stack([decision, 1.0 - decision])
    predicted = np.asarray(rows.get("predicted"), dtype=np.int64)
    probability = rows.get("probabilities")
    count = probability.shape[1] if probability is not None else int(predicted.max()) + 1
    wrong: Floats = (predicted[None, :] != np.arange(count)[:, None]).astype(np.float64)
    return wrong
