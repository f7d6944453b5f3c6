"""What carries a change of the gap in selection rates between two periods, from the counts of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit_watch.rate_parts import NAMES, Cells, parts_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

FEWEST = 50
"""Decisions with known outcomes that a group has in both periods at least."""
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class GapChange:
    """The change, in a sentence and as numbers: each part with the ends of its interval."""

    sentence: str
    evidence: Mapping[str, Any]


def gap_change(groups: Sequence[str], before: Array, since: Array) -> GapChange | None:
    """Divide the change of a gap among base rates, true and false positive rates; None where too little is known.

    Of the two groups that lie farthest apart since the change. The periods were chosen by who saw the change: the
    intervals are those of periods that were chosen beforehand.
    """
    there = np.flatnonzero(np.minimum(before.sum(axis=1), since.sum(axis=1)) >= FEWEST)
    if len(there) < 2:
        return None
    rates = (since[:, 1] + since[:, 3])[there] / since[there].sum(axis=1)
    high, low = int(there[rates.argmax()]), int(there[rates.argmin()])
    then, now = (parts_of((Cells(one[high]), Cells(one[low]))) for one in (before, since))
    moved = now.less(then)
    if high == low or not np.isfinite(moved.values).all():
        return None
    total = float(moved.values.sum())
    evidence: dict[str, Any] = {"higher": groups[high], "lower": groups[low], "gap_change": total}
    said = []
    for place, name in enumerate(NAMES):
        ends, value = moved.interval(place, CONFIDENCE), float(moved.values[place])
        evidence |= {name: value, f"{name}_low": ends[0], f"{name}_high": ends[1]}
        plural = f"{name.removesuffix('_part').replace('_', ' ')}s"
        said.append(f"{plural} carry {value:+.3f} [{ends[0]:.3f}, {ends[1]:.3f}]")
    between = f"{groups[high]} and {groups[low]}"
    sentence = f"among known outcomes the gap between {between} changed by {total:+.3f}: {', '.join(said)}"
    return GapChange(sentence, evidence)
