"""How many rows without a group are enough to turn a verdict on a rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.limits import largest

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fairkit.results.findings import Finding, Interval
    from fairkit.results.rules import Rule

    Floats = NDArray[np.float64]


def rows_that_turn(rule: Rule, finding: Finding, interval: Interval) -> tuple[int, int] | None:
    """Return the fewest rows without a group that turn a verdict, put where they move it most, and all of them.

    With k such rows in two groups the largest difference between their rates is that of x rows that count put
    into the one, and of k - x that do not count into the other; the smallest difference is that of the other way round.
    The other rows without a group stay out.
    """
    passes = rule.settled(interval)
    ratio = finding.metric.endswith("_ratio")
    gone = finding.missing
    if passes is None or gone is None or not (ratio or finding.metric.endswith("_difference")):
        return None
    shares = [(g.value, g.denominator) for g in (*finding.groups, gone)]
    pairs = [(value * over, over) for value, over in shares if value is not None and over is not None]
    if len(pairs) < len(shares) or len(pairs) < 3 or finding.value is None:
        return None
    counts, over = np.array(pairs[:-1]).T
    counting, others = pairs[-1][0], pairs[-1][1] - pairs[-1][0]
    rises = rule.upper == passes  # what turns a pass of an upper limit, and a failed lower one
    apart = rises != ratio
    reach = interval[1] - finding.value if rises else interval[0] - finding.value

    def turned(k: int) -> bool:
        outermost = _bound(counts, over, counting, others, k, apart=apart, ratio=ratio)
        return rule.kept(outermost + reach) != passes

    most = int(gone.rows)
    return (_least(turned, most), most) if turned(most) else None


def _least(turned: Callable[[int], bool], most: int) -> int:
    """Return the smallest number of rows that turns it."""
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if turned(middle) else (middle, high)
    return high


def _bound(counts: Floats, over: Floats, counting: float, others: float, k: int, *, apart: bool, ratio: bool) -> float:
    """Return the largest difference, or smallest ratio, of two groups after k rows joined them, shared in any way."""
    x = np.unique(np.linspace(0, k, min(k, 1_000) + 1).astype(np.int64)).astype(np.float64)
    up, down = np.minimum(x, counting), np.minimum(k - x, others)
    if not apart:
        up, down = np.minimum(k - x, counting), np.minimum(x, others)
    # each group's rate with rows that count, and with rows that do not, by way: [G, ways]
    ends = (counts[:, None] + up) / (over[:, None] + up), counts[:, None] / (over[:, None] + down)
    first, second = ends if apart else ends[::-1]
    over_ways = np.fmax if apart else np.fmin

    def most(top: Floats, bottom: Floats) -> Floats:
        least: Floats = over_ways.reduce(-bottom / top if ratio else top - bottom, axis=1)
        return np.nan_to_num(least, nan=-np.inf)

    def of_pairs(pairs: tuple[Any, Any]) -> Floats:
        parts = np.array_split(np.stack(pairs), -(-len(pairs[0]) // 1_000), axis=1)
        return np.concatenate([np.fmax(most(first[a], second[b]), most(first[b], second[a])) for a, b in parts])

    with np.errstate(divide="ignore", invalid="ignore"):
        bounds = np.fmax(most(first, second.min(axis=0)[None]), most(first.max(axis=0)[None], second))
        extreme = largest(bounds, of_pairs)
    return min(-extreme, 1.0) if ratio else max(extreme, 0.0)
