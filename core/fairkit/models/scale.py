"""Scores on a scale of their own, such as 300 to 850 points: they rank rows, and are no probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fairkit.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

OWN = {"scale": "own"}
"""What `ModelInfo.outputs` says of such scores."""


@dataclass(frozen=True, slots=True)
class Scale:
    """A strictly increasing map from a scale to (0, 1), with the scale's centre at one half."""

    centre: float  # the median of some scores, and half the distance between their quartiles; `spread` is above 0
    spread: float  # the median of some scores, and half the distance between their quartiles; `spread` is above 0

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Self:
        """Return the map for scores such as these, shape [n]."""
        low, centre, high = np.quantile(values, [0.25, 0.5, 0.75])
        return cls(float(centre), float(max((high - low) / 2, 1e-3 * (1 + abs(centre)))))

    def squash(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (1 + d / (spread + |d|)) / 2 with d the distance from the centre, shape [n], in (0, 1)."""
        apart = values - self.centre
        return np.asarray(0.5 + 0.5 * apart / (self.spread + np.abs(apart)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The comparison that makes decisions from scores: the threshold is in the score's own unit.

    From the threshold on a score of the favorable outcome decides for the person, and up to it one of the other outcome
    does. Where nobody gave it, a score of the other outcome of exactly one half decides against the person, as the
    model itself does.
    """

    score: str  # the output or column
    kind: str = "probability"  # what it holds; logits are compared as probabilities
    threshold: float | None = None  # None: one half
    turned: bool = False  # whether low scores are favorable

    @property
    def value(self) -> float:
        """The threshold, in the score's unit."""
        usual = 50.0 if self.kind == "percent" else 0.5
        return usual if self.threshold is None else self.threshold

    @property
    def chance(self) -> float:
        """The same as a probability of the favorable outcome; of a scale of its own the threshold."""
        if self.kind == "value":
            return self.value
        chance = self.value / 100 if self.kind == "percent" else self.value
        return 1 - chance if self.turned else chance

    @property
    def rule(self) -> str:
        """The comparison as it runs: ``pd <= 0.2``."""
        score = f"1 / (1 + exp(-{self.score}))" if self.kind == "logit" else self.score
        sign = (">=" if not self.turned else "<" if self.threshold is None else "<=") + f" {self.value:g}"
        return f"{score} {sign}"

    def holds(self, scores: NDArray[np.floating[Any]], *, single: bool = False) -> NDArray[np.bool_]:
        """Return which rows are decided favorably, by scores in their unit, of logits by probabilities, shape [n].

        Scores in single precision meet the threshold in it.
        """
        value = float(np.float32(self.value)) if single else self.value
        if not self.turned:
            return np.asarray(scores >= value)
        return np.asarray(scores < value if self.threshold is None else scores <= value)

    def check(self) -> None:
        """Refuse a threshold that probabilities, logits or percentages cannot reach."""
        top = 100 if self.kind == "percent" else 1
        kind = {"percent": "percentages", "logit": "logits"}.get(self.kind, "probabilities")
        if self.threshold is not None and self.kind != "value" and not 0 <= self.threshold <= top:
            raise ParameterError(
                f"threshold={self.threshold:g} is not a probability, and the scores are read as {kind}; give a "
                f"threshold in [0, {top}], or say that the scores are on a scale of their own with `score_kind` value"
            )

    @property
    def record(self) -> dict[str, Any]:
        """What a report keeps of it."""
        return {"threshold": self.value, "rule": self.rule}


def is_own(outputs: Mapping[str, Any]) -> bool:
    """Return whether a model's scores (see `ModelInfo.outputs`) are on a scale of their own."""
    return outputs.get("scale") == "own"


def told_scale(name: str, low: float, high: float, *, turned: bool) -> str:
    """Say how scores on a scale of their own are read."""
    which = "lower is better for the person" if turned else "higher is better for the person"
    return (
        f"The scores {name!r}, from {low:.4g} to {high:.4g}, are on a scale of their own ({which}): they rank rows and "
        "meet a threshold in their own unit, and nothing that takes scores for probabilities is measured."
    )
