"""Test rows without a group: what they could do to a drawn audit, whatever their groups are.

Above a share of `BINDING` a verdict must hold for every way to put them into groups. A rate is largest in a group when
all of them that count go there, and smallest when all that do not count go there (partial identification; Manski 2003).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fairkit.data.profile import Profile
    from fairkit.planning.targets import Target

    Array = NDArray[np.float64]

BINDING = 0.02
"""The share from which it must (`group.missing_share`)."""


def missing_of(profile: Profile, splits: Sequence[str]) -> dict[str, int]:
    """Return, by split, the rows without a group, where a verdict must hold whatever it is."""
    return {
        name: int(profile.missing[name]) for name in splits if profile.missing.get(name, 0) > BINDING * profile.rows
    }


def told_missing(missing: Mapping[str, int], rows: int) -> str:
    """Say it: ``625 of 16,281 test rows have no value of sex``."""
    return " and ".join(f"{count:,} of {rows:,} test rows have no value of {name}" for name, count in missing.items())


def furthest(target: Target, counts: Array, without: Array) -> Array | None:
    """Return the largest difference (the smallest ratio) that drawn audits can have."""
    if target.kind not in ("difference", "ratio"):
        return None
    extremes = []
    for rate in target.rates:
        over, counted = np.array(rate.over, float), np.array(rate.counted, float)
        inside, base = counts @ counted, counts @ over
        for_it, against = without @ counted, without @ (over - counted)
        with np.errstate(divide="ignore", invalid="ignore"):
            low, high = inside / (base + against), (inside + for_it) / (base + for_it)
            pairs = low[:, :, None] / high[:, None, :] if target.kind == "ratio" else high[:, :, None] - low[:, None, :]
        pairs[:, np.eye(counts.shape[1], dtype=bool)] = np.nan
        ends = np.nanmin if target.kind == "ratio" else np.nanmax
        extremes.append(ends(pairs.reshape(len(pairs), -1), axis=1))
    stacked = np.stack(extremes)
    return np.asarray(stacked.min(axis=0) if target.kind == "ratio" else stacked.max(axis=0))
