"""Losses of a network's outputs with their gradients, for one logit, several logits, and numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Tensor = Any


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss ℓ(y, outputs), row by row."""

    name: str  # `cross_entropy` (K logits), `logistic` (one logit) or `squared`
    evaluate: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

    def __call__(self, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss and its gradient."""
        return self.evaluate(outputs, target)


def loss_for(outputs: int, *, regression: bool) -> Loss:
    """Choose the loss by the number of outputs."""
    if regression:
        return Loss("squared", _squared)
    return Loss("logistic", _logistic) if outputs == 1 else Loss("cross_entropy", _cross_entropy)


class LossReward:
    """The loss at x' as what the search makes large (SenSR); see `fairkit_similarity.ascent.Reward`."""

    def __init__(self, loss: Loss, target: Tensor) -> None:
        self.loss, self.target = loss, target

    def __call__(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss and its gradient."""
        return self.loss(outputs, self.target)

    def toward(self, outputs: Tensor) -> Tensor:
        """Set out where the loss grows."""
        return self.loss(outputs, self.target)[1]


def _cross_entropy(outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    logs = outputs.log_softmax(dim=1)
    place = target.unsqueeze(1)
    slope = logs.exp()
    slope.scatter_add_(1, place, slope.new_full(place.shape, -1.0))
    return -logs.gather(1, place).squeeze(1), slope


def _logistic(outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    import torch

    logit, yes = outputs.squeeze(1), target.to(outputs.dtype)
    return torch.nn.functional.softplus(logit) - yes * logit, (logit.sigmoid() - yes).unsqueeze(1)


def _squared(outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    gap = outputs - target.unsqueeze(1)
    return gap.square().mean(dim=1), gap * (2.0 / gap.shape[1])
