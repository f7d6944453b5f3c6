"""Randomized threshold optimizer: near-optimal repair of any model with a score, without training it."""

from __future__ import annotations

import fairkit
from fairkit_rto.mitigator import RandomizedThresholds


@fairkit.hookimpl
def fairkit_mitigators() -> list[type[fairkit.Mitigator]]:
    """Offer the method."""
    return [RandomizedThresholds]
