"""Fair regression by Wasserstein barycenters: every group gets the same distribution of predictions."""

from __future__ import annotations

import fairkit
from fairkit_barycenter.plugin import Barycenter

__all__ = ["Barycenter"]


@fairkit.hookimpl
def fairkit_mitigators() -> list[type[fairkit.Mitigator]]:
    """Offer the method."""
    return [Barycenter]
