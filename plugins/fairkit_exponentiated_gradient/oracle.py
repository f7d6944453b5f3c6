"""The best responses: any learner behind what fairlearn takes for an estimator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit_exponentiated_gradient.mixture import Constant, Learned
from fairkit_repair.learners import fit_estimator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.mitigators import Run, Table
    from fairkit_exponentiated_gradient.mixture import Member
    from fairkit_onnx.write.encode import Encoder


class Oracle:
    """What fairlearn calls an estimator: cost-sensitive classification by a learner, on the training rows alone.

    fairlearn hands it row numbers in place of features, and asks every classifier for its decisions on these
    same rows several times: they are scored once.
    """

    def __init__(self, learner: str, table: Table, encoder: Encoder, run: Run, settings: Mapping[str, Any]) -> None:
        self.learner, self.encoder, self.run, self.settings = learner, encoder, run, settings
        self.matrix = encoder.transform(table.columns)
        self.calls = [0]
        """How often a learner was asked, counted over all clones."""

    def __sklearn_clone__(self) -> Oracle:
        """Return another one on the same rows; nothing is copied."""
        other = object.__new__(Oracle)
        other.__dict__ = dict(self.__dict__)
        return other

    def fit(self, _: Any, targets: Any, sample_weight: Any) -> Oracle:
        """Learn which rows to accept; targets 0 or 1, shape [n], weights as their costs."""
        self.calls[0] += 1
        self.run.progress("training classifiers", self.calls[0], max(100, self.calls[0] + 1))
        self.member = Learned(
            fit_estimator(
                self.learner,
                self.matrix,
                np.asarray(targets, dtype=np.float64),
                weights=np.asarray(sample_weight, dtype=np.float64),
                task="binary",
                run=self.run,
                categorical=self.encoder.categorical,
                settings=self.settings,
            )
        )
        self.decisions = (self.member.scores(self.matrix) >= 0.5).astype(np.int64)
        return self

    def predict(self, _: Any) -> NDArray[np.int64]:
        """Return the decisions on the training rows, shape [n]."""
        return self.decisions


def member_of(predictor: Any) -> Member:
    """Take what fairlearn keeps: an oracle's answer, or its own constant."""
    if isinstance(predictor, Oracle):
        return predictor.member
    return Constant(float(predictor.constant))
