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


def is_own(outputs: Mapping[str, Any]) -> bool:
    """Return whether a model's scores (see `ModelInfo.outputs`) are on a scale of their own."""
    return outputs.get("scale") == "own"


def check_chance(threshold: float | None, kind: str) -> None:
    """Refuse a threshold outside [0, 1] for scores that are probabilities, or are made probabilities."""
    if threshold is not None and not 0 <= threshold <= 1:
        raise ParameterError(
            f"threshold={threshold:g} is not a probability, and the scores are read as {kind}; give a threshold in "
            "[0, 1], or say that the scores are on a scale of their own with `score_kind` value"
        )


def told_scale(name: str, low: float, high: float, *, turned: bool) -> str:
    """Say how scores on a scale of their own are read."""
    which = "lower is better for the person" if turned else "higher is better for the person"
    return (
        f"The scores {name!r}, from {low:.4g} to {high:.4g}, are on a scale of their own ({which}): they rank rows and "
        "meet a threshold in their own unit, and nothing that takes scores for probabilities is measured."
    )
