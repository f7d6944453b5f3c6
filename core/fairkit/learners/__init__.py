"""Learners by name, with sensible defaults: for methods that take one, and for comparisons."""

from fairkit.learners.find import INSTALLED, LEARNERS, find_learner
from fairkit.learners.fit import check_target, encoder_for, fit_estimator, fit_learner
from fairkit.learners.interface import EncodedRows, Learner

__all__ = [
    "INSTALLED",
    "LEARNERS",
    "EncodedRows",
    "Learner",
    "check_target",
    "encoder_for",
    "find_learner",
    "fit_estimator",
    "fit_learner",
]
