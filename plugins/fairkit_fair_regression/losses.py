"""The losses of fair regression: 1-Lipschitz, on labels and predictions in [0, 1]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

LossName = Literal["squared", "logistic", "absolute", "quantile"]

STEEPNESS = 5.0
"""C of the logistic loss: predictions u in [0, 1] stand for probabilities in [1 / (1 + e^C), 1 / (1 + e^-C)]."""


@dataclass(frozen=True, slots=True)
class Loss:
    """One loss ℓ(y, u) for labels y and predictions u in [0, 1] (Agarwal, Dudík & Wu 2019, section 2).

    - squared: (y - u)² / 2
    - logistic: log(1 + exp(-C (2y - 1)(2u - 1))) / (2 log(1 + e^C)), for labels 0 and 1
    - absolute: |y - u|
    - quantile: max(τ (y - u), (τ - 1)(y - u))

    Attributes
    ----------
    name
        Which of them.
    quantile
        τ in (0, 1).
    """

    name: LossName
    quantile: float = 0.5

    def __call__(self, y: Array, u: Array) -> Array:
        """Return ℓ(y, u), of the shape that y and u broadcast to; 0 is a perfect prediction (not logistic)."""
        y, u = np.asarray(y, dtype=np.float64), np.clip(u, 0.0, 1.0)
        if self.name == "squared":
            return np.asarray((y - u) ** 2 / 2)
        if self.name == "absolute":
            return np.abs(y - u)
        if self.name == "quantile":
            return np.maximum(self.quantile * (y - u), (self.quantile - 1) * (y - u))
        margin = STEEPNESS * (2 * y - 1) * (2 * u - 1)
        return np.asarray(np.logaddexp(0.0, -margin) / (2 * np.logaddexp(0.0, STEEPNESS)))

    @property
    def unit(self) -> float:
        """What a loss is divided by to be the usual one: squared error, log-loss, absolute error, pinball."""
        if self.name == "squared":
            return 0.5
        return float(1 / (2 * np.logaddexp(0.0, STEEPNESS))) if self.name == "logistic" else 1.0

    @property
    def power(self) -> int:
        """The power of the label's unit that the loss is measured in."""
        return {"squared": 2, "logistic": 0, "absolute": 1, "quantile": 1}[self.name]


def to_probability(u: Array) -> Array:
    """Return the probability that a prediction of the logistic loss stands for: σ(C (2u - 1))."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * STEEPNESS * (2 * np.asarray(u) - 1))))


def from_probability(p: Array) -> Array:
    """Return the prediction that stands for a probability, in [0, 1]: (logit(p) / C + 1) / 2, clipped."""
    tiny = np.finfo(np.float64).tiny
    p = np.asarray(p, dtype=np.float64)
    logit = np.log(np.maximum(p, tiny)) - np.log(np.maximum(1 - p, tiny))
    return np.clip((logit / STEEPNESS + 1) / 2, 0.0, 1.0)
