"""Linear post-processing: equal class rates for two or more classes, with or without reading the group."""

from __future__ import annotations

import fairkit
from fairkit_linear_post.plugin import LinearPost

__all__ = ["LinearPost"]


@fairkit.hookimpl
def fairkit_mitigators() -> list[type[fairkit.Mitigator]]:
    """Offer the method."""
    return [LinearPost]
