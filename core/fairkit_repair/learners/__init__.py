"""Learners by name, with sensible defaults: for methods that take one, and for comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.support.faces import lazy_names

if TYPE_CHECKING:
    from fairkit.learners import EncodedRows, Learner
    from fairkit_repair.learners.find import INSTALLED, LEARNERS, find_learner
    from fairkit_repair.learners.fit import check_target, encoder_for, fit_estimator, fit_learner

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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "INSTALLED": "find",
        "LEARNERS": "find",
        "EncodedRows": "interface",
        "Learner": "interface",
        "check_target": "fit",
        "encoder_for": "fit",
        "find_learner": "find",
        "fit_estimator": "fit",
        "fit_learner": "fit",
    },
)
