"""Rankings with a limit on disparities of exposure, of places in the top, or of exposure for relevance."""

from __future__ import annotations

import fairkit
from fairkit_exposure.plugin import ExposureShift

__all__ = ["ExposureShift"]


@fairkit.hookimpl
def fairkit_mitigators() -> list[type[fairkit.Mitigator]]:
    """Offer the method."""
    return [ExposureShift]
