"""How far apart two answers of a model are: d_Y, for training and audits alike.

SenSeI takes d_Y = (1/K) ‖h(x) - h(x')‖² over the K logits of a classifier (appendix B). Logits stand for probabilities
up to a shift that all K share, and files often show probabilities only; so logits are taken with mean 0 over the
classes here.
For K = 2 these are h = (-s/2, s/2) with s the log-odds, and

    d_Y = ((Δs/2)² + (Δs/2)²) / 2 = (Δs)² / 4,

whether a network has two logits, or one that is s itself. Numbers of a regression are compared as they are.

All functions take arrays of numpy and tensors of torch.
"""

from __future__ import annotations

from typing import Any


def centred_logits(logits: Any) -> Any:
    """Return centred logits: the mean of squared differences over their columns is d_Y."""
    if logits.shape[1] == 1:
        return logits / 2.0
    if logits.shape[1] == 2:
        return (logits[:, 1:] - logits[:, :1]) / 2.0
    return logits - logits.mean(1)[:, None]


def squared_difference(gap: Any, *, logits: bool) -> tuple[Any, Any]:
    """Compute d_Y from h(x') - h(x), and its gradient in h(x')."""
    if logits and gap.shape[1] == 1:
        return gap[:, 0] ** 2 / 4.0, gap / 2.0
    if logits:
        gap = without_shift(gap)
    return (gap**2).mean(1), gap * (2.0 / gap.shape[1])


def without_shift(gap: Any) -> Any:
    """Return differences of logits less what all K share, shape (n, K); one logit has nothing to share it with."""
    return gap if gap.shape[1] == 1 else gap - gap.mean(1)[:, None]
