"""Planned against simulated power: the rows of `fairkit.plan`, and how often audits of that many rows are decided.

Every simulated audit draws decisions row by row, totals them and judges them as `fairkit audit` does.

python benchmarks/plan_power.py [AUDITS]
"""

from __future__ import annotations

import sys
import time

import numpy as np

import fairkit
from fairkit.metrics import CONFUSION
from fairkit.planning.draws import settled
from fairkit.planning.run import installed
from fairkit.planning.targets import target_of
from fairkit.statistics import Rows

SETTINGS = [
    ("demographic_parity_difference", {"maximum": 0.05}, [0.5, 0.5], [[0.30, 0.30]], None, 0.8),
    ("true_positive_rate_difference", {"maximum": 0.10}, [0.85, 0.15], [[0.80, 0.78]], [0.3, 0.2], 0.9),
    ("demographic_parity_difference", {"maximum": 0.10}, [0.35, 0.25, 0.2, 0.15, 0.05],
     [[0.28, 0.29, 0.30, 0.31, 0.32]], None, 0.8),
    ("demographic_parity_difference", {"maximum": 0.05}, [0.6, 0.4], [[0.30, 0.20]], None, 0.8),
    ("demographic_parity_ratio", {"minimum": 0.8}, [0.7, 0.3], [[0.50, 0.46]], None, 0.8),
    ("demographic_parity_ratio", {"minimum": 0.8}, [0.4, 0.3, 0.2, 0.1], [[0.5, 0.5, 0.5, 0.35]], None, 0.8),
    ("false_positive_rate_difference", {"maximum": 0.05}, [0.5, 0.5], [[0.02, 0.03]], [0.3, 0.3], 0.9),
    ("demographic_parity_difference", {"maximum": 0.05}, [0.1] * 10, [[0.2] * 10], None, 0.8),
    ("demographic_parity_difference", {"maximum": 0.05}, [0.4, 0.3, 0.15, 0.1, 0.05],
     [[0.30, 0.30, 0.30, 0.30, 0.42]], None, 0.8),
    ("equalized_odds_difference", {"maximum": 0.10}, [0.6, 0.4], [[0.80, 0.77], [0.10, 0.12]], [0.4, 0.4], 0.8),
]  # fmt: skip


def simulated(rule, sizes, rates, base, side, audits, seed=1):
    """Return the share of simulated audits with the wanted verdict."""
    rng = np.random.default_rng(seed)
    target = target_of(rule.metric, installed())
    codes = np.repeat(np.arange(len(sizes)), sizes)
    over = {rate.name: rates[k] for k, rate in enumerate(target.rates)}
    given = {
        1: over.get("true_positive_rate", over.get("selection_rate")),
        0: over.get("false_positive_rate", over.get("selection_rate")),
    }
    chances = {y: np.asarray(rates[0] if one is None else one)[codes] for y, one in given.items()}
    hits = 0
    for _ in range(audits):
        outcome = (rng.random(len(codes)) < (0.5 if base is None else np.asarray(base)[codes])).astype(float)
        decision = (rng.random(len(codes)) < np.where(outcome == 1, chances[1], chances[0])).astype(float)
        totals = CONFUSION.collect(Rows(outcome=outcome, decision=decision), codes, len(sizes))
        estimates = [rate().estimate(totals, rng) for rate in target.rates]
        hits += settled(rule, target.interval(estimates, 0.95)) is (side == "pass")
    return hits / audits


def main(audits=2_000):
    worst = 0.0
    for metric, bound, shares, rates, base, power in SETTINGS:
        rule = fairkit.Rule(metric=metric, **bound)
        names = [str(place) for place in range(len(shares))]
        target = target_of(metric, installed())
        start = time.process_time()
        plan = fairkit.plan(
            [rule],
            groups=dict(zip(names, shares, strict=True)),
            assume={r.name: dict(zip(names, v, strict=True)) for r, v in zip(target.rates, rates, strict=True)},
            base=None if base is None else dict(zip(names, base, strict=True)),
            power=power,
        ).rules[0]
        took = time.process_time() - start
        sizes = [group.rows for group in plan.groups]
        found = simulated(rule, sizes, rates, base, plan.side, audits)
        worst = max(worst, abs(found - plan.power))
        print(
            f"{metric:32} {len(shares):2} groups, {plan.side}: {plan.rows:7,} rows, planned power {plan.power:.3f}, "
            f"simulated {found:.3f}, {took:.2f} s",
            flush=True,
        )
    print(f"largest deviation {worst:.3f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
