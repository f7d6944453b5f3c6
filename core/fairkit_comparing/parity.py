"""Does a file decide as the model did: its decisions and scores beside another's, row by row."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.auditing.prepare import as_model, prepared
from fairkit.data.loading import load_data
from fairkit.data.profile import total_here
from fairkit.data.roles import value_text
from fairkit.errors import ModelError
from fairkit.models.python import took_a_matrix
from fairkit.models.scorer import bound
from fairkit.settings import ModelOptions, at_threshold
from fairkit.support.calls import checked
from fairkit.support.lazy_dataclass import asdict, dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.dataset import Dataset
    from fairkit.models.scorer import Predictions, Scorer

TOLERANCE = 1e-5
"""Predicted numbers that differ by less, relative to their size, are the same."""
_FIRST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDifference:
    """A row on which the two differ: its number from 0, what each says, and their scores where both have them."""

    row: int
    file: str
    model: str
    scores: tuple[float, float] | None = None

    def __str__(self) -> str:
        """Return a line."""
        scores = "" if self.scores is None else f" (scores {self.scores[0]:.6g} and {self.scores[1]:.6g})"
        return f"row {self.row:,}: the file says {self.file}, the model {self.model}{scores}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """What `parity` found.

    Attributes
    ----------
    file, model
        Their names.
    rows
        How many rows both were asked about.
    differ
        On how many of them they decide differently (regression: predict numbers that are more than 1e-5 apart).
    largest
        The largest difference of their scores; None where one has none.
    first
        The first rows that differ.
    """

    file: str
    model: str
    rows: int
    differ: int
    largest: float | None
    first: tuple[RowDifference, ...] = ()

    def __bool__(self) -> bool:
        """Whether both say the same of every row."""
        return self.differ == 0

    def __str__(self) -> str:
        """Return how many rows differ, by how much the scores do, and the first rows."""
        scores = "" if self.largest is None else f"; scores differ by up to {self.largest:.2g}"
        head = f"{self.file} says of {self.differ:,} of {self.rows:,} rows something else than {self.model}{scores}."
        if not self.differ:
            head = f"{self.file} says the same as {self.model} of all {self.rows:,} rows{scores}."
        elif self.largest is not None and self.largest <= TOLERANCE:
            head += " The scores agree, the rule that makes decisions of them does not: look for a threshold."
        return "\n".join([head, *map(str, self.first)])

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, schema ``fairkit.parity/1``."""
        return {"schema": "fairkit.parity/1", **asdict(self)}


@checked
def parity(
    file: Any,
    model: Any,
    data: Dataset | Any,
    *,
    favorable: Any = None,
    options: ModelOptions | None = None,
    threshold: float | None = None,
) -> Parity:
    """Compare the decisions and scores of an ONNX file with those of the model that it was made of.

    Parameters
    ----------
    file
        A path, bytes, or anything else that `fairkit.audit` takes.
    model
        The estimator in memory; None: the predictions that `data` names in ``predictions``.
    data
        The rows: X as the estimator takes it, or a Dataset.
    favorable
        Of two classes, the one that decisions are for; default: the last one.
    options, threshold
        What cannot be guessed about the file, as in `fairkit.audit`.

    Returns
    -------
    Parity
        True where both say the same of every row.

    Raises
    ------
    FairkitError
        The rows, the file or the model cannot be used.

    Examples
    --------
    >>> fairkit.to_onnx(model, X, "model.onnx")                                        # doctest: +SKIP
    >>> assert fairkit.parity("model.onnx", model, X)                                  # doctest: +SKIP
    """
    said = at_threshold(options, threshold) or ModelOptions()
    if not hasattr(data, "roles"):
        if not hasattr(model, "predict"):
            raise ModelError("give the estimator whose decisions the file should make, and its rows X")
        classes = list(getattr(model, "classes_", ()))
        favorable = classes[-1] if favorable is None and len(classes) == 2 else favorable
        # what the model says is the outcome: both are then read as in an audit
        rows = data.to_numpy() if took_a_matrix(model) and hasattr(data, "to_numpy") else data
        data = load_data(data, np.asarray(model.predict(rows)), favorable=favorable, name="X")
    first, second = prepared([file, as_model(model, data)], data, total_here)
    left = bound(first, data, said)
    right = bound(second, data, ModelOptions(task=left.task))
    columns = tuple(dict.fromkeys([*left.columns, *right.columns]))
    count = differ = 0
    largest: list[float] = []
    differences: list[RowDifference] = []
    for batch in data.batches(columns, partial=True):
        ours, theirs = (model.predict(batch.columns(model.columns)) for model in (left, right))
        apart = _apart(ours, theirs, left, right)
        count, differ = count + len(batch), differ + int(apart.sum())
        pairs = [(output.score if output.probabilities is None else output.probabilities) for output in (ours, theirs)]
        comparable = pairs[0] is not None and pairs[1] is not None and pairs[0].shape == pairs[1].shape
        if comparable:
            largest.append(float(np.abs(pairs[0] - pairs[1]).max()))  # type: ignore[operator]
        for index in np.flatnonzero(apart)[: _FIRST - len(differences)].tolist():
            single = comparable and pairs[0].ndim == 1  # type: ignore[union-attr]
            scores = (float(pairs[0][index]), float(pairs[1][index])) if single else None  # type: ignore[index]
            differences.append(
                RowDifference(
                    row=int(batch.rows[index]),
                    file=_said(ours, left, index, data),
                    model=_said(theirs, right, index, data),
                    scores=scores,
                )
            )
    names = (left.info.name, "the predictions" if model is None else right.info.name)
    return Parity(
        file=Path(names[0]).name, model=names[1], rows=count, differ=differ, largest=max(largest, default=None),
        first=tuple(differences),
    )  # fmt: skip


def _apart(ours: Predictions, theirs: Predictions, left: Scorer, right: Scorer) -> NDArray[np.bool_]:
    """Return on which rows two models say something else."""
    if ours.predicted is not None and theirs.predicted is not None:
        names = [np.array([value_text(value) for value in output.classes]) for output in (left, right)]
        return np.asarray(names[0][ours.predicted] != names[1][theirs.predicted])
    mine, other_side = (
        (ours.decision, theirs.decision) if ours.decision is not None and theirs.decision is not None
        else (ours.score, theirs.score)
    )  # fmt: skip
    if mine is None or other_side is None:
        raise ModelError("one of the two has neither decisions nor numbers to compare")
    return np.asarray(np.abs(mine - other_side) > TOLERANCE * np.maximum(1, np.abs(other_side)))


def _said(one: Predictions, scorer: Scorer, place: int, data: Dataset) -> str:
    """Return what a model says of a row, in words."""
    if one.predicted is not None:
        return value_text(scorer.classes[one.predicted[place]])
    if one.decision is None:
        return f"{one.score[place]:.6g}"  # type: ignore[index]
    favorable = data.roles.favorable
    name = "yes" if favorable is None else value_text(favorable)
    chance = float(one.decision[place])
    return name if chance == 1 else f"not {name}" if chance == 0 else f"{name} with chance {chance:.3g}"
