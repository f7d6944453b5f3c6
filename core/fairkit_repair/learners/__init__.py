"""The built-in learners, and how one is fitted by name: for methods that take any, and for comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.support.faces import lazy_names

if TYPE_CHECKING:
    from fairkit_repair.learners.fit import check_target, encoder_for, fit_estimator, fit_learner

__all__ = ["check_target", "encoder_for", "fit_estimator", "fit_learner"]

__getattr__, __dir__ = lazy_names(
    __name__, {"check_target": ".fit", "encoder_for": ".fit", "fit_estimator": ".fit", "fit_learner": ".fit"}
)
