"""The losses of fair regression: 1-Lipschitz in predictions u in [0, 1], which may stand for probabilities or rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

LossName = Literal["squared", "logistic", "absolute", "quantile", "poisson"]

STEEPNESS = 5.0
"""C of the logistic loss: predictions u in [0, 1] stand for probabilities in [1 / (1 + e^C), 1 / (1 + e^-C)]."""


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates μ that predictions u in [0, 1] of the Poisson loss stand for: log μ = log low + u log(high / low)."""

    low: float  # the smallest and largest rate, 0 < low < high, in the label's unit
    high: float  # the smallest and largest rate, 0 < low < high, in the label's unit
    mean: float  # the mean label: labels are covered to a share of it (`to_cover`)
    largest: float  # the largest label

    @property
    def span(self) -> float:
        """L = log(high / low)."""
        return float(np.log(self.high / self.low))

    @property
    def divisor(self) -> float:
        """K = H log(H / low) for H = max(high, largest label): half the deviance over K is 1-Lipschitz, at most 1.

        In u its derivative is (μ - y) L / K, and L <= log(H / low). It is convex in y and in u, so that it is largest
        at ends: 0 against μ = H costs H / K, and y = H against low less than H log(H / low) / K.
        """
        top = max(self.high, self.largest)
        return float(top * np.log(top / self.low))

    def to_rate(self, u: Array) -> Array:
        """Return the rates, in [low, high]."""
        return np.asarray(self.low * np.exp(self.span * np.clip(u, 0.0, 1.0)))

    def from_log(self, logs: Array) -> Array:
        """Return the predictions that stand for logarithms of rates; they may leave [0, 1]."""
        return np.asarray((logs - np.log(self.low)) / self.span)

    def to_cover(self, labels: Array) -> Array:
        """Return labels on a scale whose steps are shares of the mean label, and above it of the label itself.

        A label within s on this scale is within s max(mean, label) (1 + s) of the other one.
        """
        ratio = labels / self.mean
        return np.where(ratio <= 1, ratio, 1 + np.log(np.maximum(ratio, 1.0)))


@dataclass(frozen=True, slots=True)
class Loss:
    """One loss ℓ(y, u) for predictions u in [0, 1] (Agarwal, Dudík & Wu 2019, section 2); labels are in [0, 1], too.

    - squared: (y - u)² / 2
    - logistic: log(1 + exp(-C (2y - 1)(2u - 1))) / (2 log(1 + e^C)), for labels 0 and 1
    - absolute: |y - u|
    - quantile: max(τ (y - u), (τ - 1)(y - u))
    - poisson: (μ - y - y log(μ / y)) / K for the rate μ that u stands for (`Rates`): half the deviance, for labels
      y >= 0 in their own unit
    """

    name: LossName  # which of them
    quantile: float = 0.5  # τ in (0, 1)
    rates: Rates | None = None  # what predictions of the Poisson loss stand for; None with the others

    def __call__(self, y: Array, u: Array) -> Array:
        """Return ℓ(y, u), of the shape that y and u broadcast to; 0 is a perfect prediction (not logistic)."""
        y, u = np.asarray(y, dtype=np.float64), np.clip(u, 0.0, 1.0)
        if self.name == "squared":
            return np.asarray((y - u) ** 2 / 2)
        if self.name == "absolute":
            return np.abs(y - u)
        if self.name == "quantile":
            return np.maximum(self.quantile * (y - u), (self.quantile - 1) * (y - u))
        if self.rates is not None:
            rate = self.rates.to_rate(u)
            logs = y * np.log(np.maximum(y, np.finfo(np.float64).tiny) / rate)
            return np.asarray(np.maximum(rate - y + logs, 0.0) / self.rates.divisor)
        margin = STEEPNESS * (2 * y - 1) * (2 * u - 1)
        return np.asarray(np.logaddexp(0.0, -margin) / (2 * np.logaddexp(0.0, STEEPNESS)))

    @property
    def unit(self) -> float:
        """What a loss is divided by to be the usual one: squared error, log-loss, absolute error, pinball, deviance."""
        if self.rates is not None:
            return 0.5 / self.rates.divisor
        if self.name == "squared":
            return 0.5
        return float(1 / (2 * np.logaddexp(0.0, STEEPNESS))) if self.name == "logistic" else 1.0

    @property
    def power(self) -> int:
        """The power of the label's unit that the loss is measured in."""
        return {"squared": 2, "logistic": 0, "absolute": 1, "quantile": 1, "poisson": 1}[self.name]

    @property
    def linear(self) -> bool:
        """Whether the loss is linear in the label but for a term without the prediction."""
        return self.name in ("squared", "logistic", "poisson")

    def to_target(self, u: Array) -> Array:
        """Convert predictions to the target's scale: probabilities, rates, or unchanged."""
        if self.rates is not None:
            return self.rates.to_rate(u)
        return to_probability(u) if self.name == "logistic" else np.asarray(u)


def to_probability(u: Array) -> Array:
    """Return the probability that a prediction of the logistic loss stands for: σ(C (2u - 1))."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * STEEPNESS * (2 * np.asarray(u) - 1))))


def from_probability(p: Array) -> Array:
    """Return the prediction that stands for a probability, in [0, 1]: (logit(p) / C + 1) / 2, clipped."""
    tiny = np.finfo(np.float64).tiny
    p = np.asarray(p, dtype=np.float64)
    logit = np.log(np.maximum(p, tiny)) - np.log(np.maximum(1 - p, tiny))
    return np.clip((logit / STEEPNESS + 1) / 2, 0.0, 1.0)
