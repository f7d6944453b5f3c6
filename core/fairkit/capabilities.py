"""What a method can do about a policy: which constraints it can meet, how its model decides, what it costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fairkit.errors import ParameterError
from fairkit.support.files import record_of
from fairkit.support.lazy_dataclass import dataclass, field

__all__ = ["CONSTRAINTS", "FRACTIONS", "Capability", "constraint_of", "metrics_of"]

FRACTIONS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""The tolerances that a search tries, in units of the policy's limit."""

CONSTRAINTS: Mapping[str, tuple[str, ...]] = {
    "demographic_parity": ("demographic_parity", "selection_rate"),
    "equal_opportunity": (
        "equal_opportunity", "true_positive_rate", "false_negative_rate", "class_gap_rms", "class_gap_mean",
        "class_gap_max",
    ),
    "predictive_equality": ("predictive_equality", "false_positive_rate", "true_negative_rate"),
    "equalized_odds": ("equalized_odds", "gap_max", "gap_rms"),
    "statistical_parity": ("statistical_parity", "statistical_parity_ks"),
    "bounded_group_loss": ("bounded_group_loss", "worst_group_loss"),
}  # fmt: skip
"""Each constraint with the metrics that it bounds; between groups these end in ``_difference`` or ``_ratio``."""

_IMPLIED = {"equalized_odds": ("equal_opportunity", "predictive_equality")}
_BETWEEN = ("_difference", "_ratio")


def constraint_of(metric: str) -> str:
    """Return the constraint behind a metric of a policy: ``true_positive_rate_ratio`` is ``equal_opportunity``.

    A metric that no constraint of `CONSTRAINTS` bounds is its own constraint: ``exposure_ratio`` is ``exposure``.
    """
    stem = next((metric.removesuffix(end) for end in _BETWEEN if metric.endswith(end)), metric)
    return next((name for name, metrics in CONSTRAINTS.items() if stem in metrics), stem)


def metrics_of(constraint: str) -> tuple[str, ...]:
    """Return the names under which audits may report the disparity that a constraint bounds, the field's first."""
    stems = CONSTRAINTS.get(constraint, (constraint,))
    return tuple(f"{stem}{end}" for stem in stems for end in (*_BETWEEN, ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """One way in which a method meets constraints, as `Mitigator.capabilities` lists them.

    A search for the best model under a policy (`fairkit.repair`) takes from here what it tries. A method that
    trains under demographic parity or equal opportunity, with a parameter `tolerance`::

        capabilities = tuple(
            Capability(constraints=(name,), settings={"constraint": name}, dial="tolerance", trainings=3)
            for name in ("demographic_parity", "equal_opportunity")
        )
    """

    # What the model can be made to keep: names of `CONSTRAINTS`, which are spelled as values of a parameter
    # `constraint` are, or of a metric of your own without ``_difference`` and ``_ratio``. Equalized odds is taken to
    # include equal opportunity and predictive equality
    constraints: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)  # the parameters that choose this way
    dial: str | None = None  # the parameter that makes it stricter; None where there is none
    steps: tuple[float, ...] = FRACTIONS  # values of the dial to try, the strictest first
    # Whether the steps are multiples of the policy's limit on a difference, as a tolerance is; otherwise they are the
    # parameter's own values
    of_limit: bool = True
    # Whether the model needs a row's group to decide. False: it reads the features only. (A sensitive column that is
    # a feature is read all the same; ``--blind`` takes it from the features.)
    reads_group: bool = False
    randomized: bool = False  # whether some decisions are drawn by chance: the file has the input `u`
    # What a fit costs: about how many trainings of the plain learner on the same rows; 0 for a rule on the scores of
    # a model
    trainings: float = 1.0

    def __post_init__(self) -> None:
        if not self.constraints:
            raise ParameterError("a capability names at least one constraint that the method can meet")
        if self.dial is not None and not self.steps:
            raise ParameterError(f"the dial {self.dial!r} has no steps to try")
        if not (math.isfinite(self.trainings) and self.trainings >= 0):
            raise ParameterError(f"trainings={self.trainings} is not a number of trainings, 0 or more")

    def meets(self, metric: str) -> bool:
        """Return whether the method can bound this metric of a policy."""
        wanted = constraint_of(metric)
        return any(wanted in (name, *_IMPLIED.get(name, ())) for name in self.constraints)

    def tries(self, limit: float) -> list[dict[str, Any]]:
        """Return the parameters to try under a limit on a difference, the strictest first."""
        if self.dial is None:
            return [dict(self.settings)]
        factor = limit if self.of_limit else 1.0
        return [{**self.settings, self.dial: round(step * factor, 10)} for step in self.steps]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return record_of(self) | ({} if self.dial else {"steps": []})
