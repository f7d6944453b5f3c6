"""The verifier's arithmetic against the audit's, which shares no code with it."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from fairkit import intervals
from fairkit_registry.evidence import arithmetic


def _table(rng):
    """Return counts and rows of a few groups: few rows, many rows, empty and full cells, groups of similar size."""
    groups, size = rng.choice([2, 2, 3, 4, 5, 8, 12]), rng.choice([5, 50, 500, 5_000, 100_000])
    even = rng.random() < 0.7
    rows = [max(1, int(size * rng.uniform(0.7, 1.3))) if even else rng.randint(1, size) for _ in range(groups)]
    rate = rng.random() ** 2
    return [min(n, max(0, round(n * rate * rng.uniform(0.7, 1.3)))) for n in rows], rows


def _near(own, other):
    return all(
        math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) or (not math.isfinite(a) and not math.isfinite(b))
        for a, b in zip(own, other, strict=True)
    )


@pytest.mark.long
def test_every_interval_is_the_audit_s():
    rng = random.Random(43)
    for _ in range(250):
        counts, rows = _table(rng)
        confidence = rng.choice([0.95, 0.9, 0.99])
        over = np.array(rows, dtype=float)
        values = np.array(counts) / over
        shares = list(zip(values.tolist(), over.tolist(), strict=True))

        def limits(z, values=values, over=over):
            return intervals.share_limits(values, over, z)

        z = intervals.two_sided(confidence)
        for place, (rate, n) in enumerate(shares):
            own = arithmetic.share_limits(rate, n, z)
            assert _near(own, [end[place] for end in limits(z)]), (rate, n, z)
        spread = intervals.spread_difference(values, limits, confidence)
        again = arithmetic.spread_difference(shares, confidence)
        assert _near(again, (spread.value, spread.low, spread.high)), (counts, rows)
        spread, ratio = (
            intervals.spread_ratio(values, limits, confidence),
            arithmetic.spread_ratio(shares, confidence),
        )
        if ratio is None:
            assert math.isnan(spread.value)
        else:
            assert _near(ratio, (spread.value, spread.low, spread.high)), (counts, rows)
        for largest in (True, False):
            spread = intervals.extreme(values, limits, confidence, largest=largest)
            again = arithmetic.extreme(shares, confidence, largest=largest)
            assert _near(again, (spread.value, spread.low, spread.high)), (counts, rows)


@pytest.mark.parametrize("rate", [0.0, 0.013, 0.5 / 7, 0.31, 0.987, 1.0])
def test_limits_of_fractional_counts_and_numbers_of_rows(rate):
    """Drawn decisions and weights give counts and effective numbers of rows that are not whole."""
    for n in (3.7, 24.2, 61.5):
        low, high = intervals.share_limits(np.array([rate]), np.array([n]), 1.96)
        assert _near(arithmetic.share_limits(rate, n, 1.96), (low[0], high[0]))


@pytest.mark.parametrize("groups", [3, 4, 9, 40])
@pytest.mark.parametrize("confidence", [0.9, 0.96, 0.999])
def test_the_studentised_range(groups, confidence):
    own = arithmetic.studentised_range(groups, confidence)
    assert own == pytest.approx(intervals.studentised_range(groups, confidence), abs=1e-9)
