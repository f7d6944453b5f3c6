"""Adversaries: small networks that read the group from a score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairkit_repair.learners.networks import fully_connected

Tensor = Any


def make_adversary(count: int, hidden: Sequence[int], *, label: bool, seed: int) -> Any:
    """Make the adversary of one split (Zhang et al., section 4).

    It sees ``s = σ((1 + |c|) h)`` of the logit h, with c learned; with the label y (equalized odds) ``s y``,
    ``s (1 - y)`` and y. One with hidden layers sees h beside s, in the same form.
    """
    import torch
    from torch import nn

    views = 2 if hidden else 1

    class Adversary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steepness = nn.Parameter(torch.zeros(()))
            self.reader = fully_connected(2 * views + 1 if label else views, hidden, count, seed=seed)

        def forward(self, logit: Tensor, y: Tensor) -> Tensor:
            seen = [torch.sigmoid((1 + self.steepness.abs()) * logit)]
            if hidden:
                seen.append(logit)
            if label:
                seen = [part * side for part in seen for side in (y, 1 - y)] + [y]
            return self.reader(torch.stack(seen, dim=1))

    return Adversary()


def update(loss: Sequence[Tensor], adversary: Sequence[Tensor], weight: float, *, projection: bool) -> list[Tensor]:
    """Return the gradient that the network descends along (Zhang et al., eq. 1).

    ``∇L_P - proj_{∇L_A} ∇L_P - α ∇L_A``, over all parameters together. With `projection` it never has a part along
    the adversary's gradient that would lower the adversary's loss.
    """
    along = 0.0
    if projection:
        length = sum((part * part).sum() for part in adversary)
        along = sum((a * b).sum() for a, b in zip(loss, adversary, strict=True)) / (length + 1e-12)
    return [a - (along + weight) * b for a, b in zip(loss, adversary, strict=True)]
