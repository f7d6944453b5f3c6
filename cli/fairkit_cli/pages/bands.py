"""Where a whole true ROC curve may lie, around the one that is shown."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

_STEPS = 50


def band(curve: Sequence[Sequence[float]], across: float, along: float) -> Iterator[tuple[float, float, float]]:
    """Yield false positive rates from 0 to 1 and the lowest and the highest true positive rate at each."""
    for step in range(_STEPS + 1):
        at = step / _STEPS
        low = heights(curve, at - across)[0] if at > across else 0.0
        high = heights(curve, min(at + across, 1))[1]
        yield at, round(max(low - along, 0), 4), round(min(high + along, 1), 4)


def heights(curve: Sequence[Sequence[float]], x: float) -> tuple[float, float]:
    """Read a curve between its points: its lowest and its highest point at x, which differ where it is vertical."""
    found = []
    for (x0, y0), (x1, y1) in itertools.pairwise(curve):
        if x0 <= x <= x1:
            found += [y0, y1] if x0 == x1 else [y0 + (y1 - y0) * (x - x0) / (x1 - x0)]
    found = found or [curve[-1][1]]
    return float(min(found)), float(max(found))
