"""The promises of `fairkit watch`: false alarms over lifetimes, widths, run lengths, delays.

Run it with ``nice python benchmarks/watching.py [sequences|between|verdicts|detectors ...]``; ``--quick``
takes a tenth of the lifetimes.
"""

from __future__ import annotations

import sys
from functools import partial

import numpy as np

from fairkit.intervals import spread_difference, wilson
from fairkit_watch.detectors import Detector, contrast_increments, contrasts, rate_increments
from fairkit_watch.sequences import Between, Ends, difference, lambda_grid, rate_limits

QUICK = "--quick" in sys.argv
LIFETIMES = 200 if QUICK else 2_000


def upper(misses: np.ndarray) -> str:
    """A share with its Monte Carlo upper limit."""
    share = misses.mean()
    return f"{share:.4f} (upper limit {wilson(np.array([share]), np.array([len(misses)]), 1.645)[1][0]:.4f})"


def looks_of(batch: int, most: float = 1e6) -> np.ndarray:
    """At which batches to look: all for 1,000 looks; of more a geometric choice would miss none that matters here."""
    return np.arange(1, int(most / batch) + 1)


def lifetimes(p: np.ndarray | float, batch: int, count: int, rng: np.random.Generator, grid: np.ndarray) -> np.ndarray:
    """Which of many lifetimes of 10⁶ decisions ever missed the running mean, at a look after every batch."""
    looks = looks_of(batch)
    chances = np.broadcast_to(p, looks.shape)
    mean = np.cumsum(chances) / looks
    missed = np.zeros(count, bool)
    for start in range(0, count, 20):
        part = slice(start, min(start + 20, count))
        size = part.stop - part.start
        counted = rng.binomial(batch, chances, (size, len(looks))).cumsum(axis=1)
        # evidence against the truth itself: the same as a look at the limits, and faster
        for sign, target in ((1, mean), (-1, 1 - mean)):
            s = counted if sign > 0 else looks * batch - counted
            exponent = np.full(s.shape, -np.inf)
            for u in grid:
                one = u * s - looks * batch * np.log1p(target * np.expm1(u))
                exponent = np.logaddexp(exponent, one)
            missed[part] |= (exponent - np.log(len(grid)) > np.log(40)).any(axis=1)
    return missed


def sequences() -> None:
    """Lifetimes and widths of one rate."""
    rng = np.random.default_rng(0)
    for p in (0.001, 0.01, 0.1, 0.5):
        for batch in (1_000,) if QUICK else (1_000, 100):
            count = LIFETIMES if batch == 1_000 else LIFETIMES // 4
            print(
                f"rate {p}, a look every {batch}: ever missed {upper(lifetimes(p, batch, count, rng, lambda_grid(p)))}"
            )
        n = np.array([100, 1e3, 1e4, 1e5, 1e6])
        w = np.subtract(*wilson(np.full(5, p), n, 1.96)[::-1])
        for name, grid in (("certificate's rate", lambda_grid(p)), ("no rate known", lambda_grid())):
            ratio = np.subtract(*rate_limits(p * n, n, 0.05, grid)[::-1]) / w
            print(f"  width over one look, {name}:", " ".join(f"{one:.2f}" for one in ratio))
        ratio = np.subtract(*rate_limits(p * n, n, 0.05 / 40, lambda_grid(p))[::-1])
        z = 3.2272
        print(
            "  40 streams over Bonferroni:",
            " ".join(f"{one:.2f}" for one in ratio / np.subtract(*wilson(np.full(5, p), n, z)[::-1])),
        )
    t = np.arange(1_000)
    sine = 0.1 + 0.09 * np.sin(t / 30)
    jumps = np.where(t % 50 < 25, 0.02, 0.18)
    for name, chances in (("sine .01-.19", sine), ("jumps .02/.18", jumps)):
        print(f"drift, {name}: ever missed {upper(lifetimes(chances, 1_000, LIFETIMES, rng, lambda_grid(0.1)))}")
    joint = np.zeros(LIFETIMES // 10, bool)
    grid = lambda_grid(0.1)
    for _ in range(40):
        looks = looks_of(1_000, 2e5)
        counted = rng.binomial(1_000, 0.1, (len(joint), len(looks))).cumsum(axis=1).astype(float)
        low, high = rate_limits(counted, np.broadcast_to(looks * 1e3, counted.shape), 0.05 / 40, grid)
        joint |= ((low > 0.1) | (high < 0.1)).any(axis=1)
    print(f"40 streams jointly: {upper(joint)}")


def between() -> None:
    """Largest differences between groups: lifetimes and widths."""
    rng = np.random.default_rng(1)
    looks = 250
    for sizes in ([200, 200], [380, 20], [80] * 5, [95, 95, 95, 95, 20], [44] * 9 + [4]):
        for base in (0.02, 0.3):
            for gap in (0.0, 0.05):
                rates = np.full(len(sizes), base)
                rates[0] += gap
                count = LIFETIMES // (4 if len(sizes) == 2 else 10)
                n = (np.array(sizes) * np.arange(1, looks + 1)[:, None]).astype(float)
                half = np.array(sizes) * looks / 2
                how = Between(0.05, len(sizes), 1 / (1 / half[:, None] + 1 / half[None, :]))
                missed = np.zeros(count, bool)
                for i in range(count):
                    counted = rng.binomial(sizes, np.broadcast_to(rates, n.shape)).cumsum(axis=0)
                    low, high = difference(Ends.certain(counted / n, n), how)
                    missed[i] = bool(((low > gap + 1e-12) | (high < gap - 1e-12)).any())
                truth = np.broadcast_to(rates, n.shape)
                low, high = difference(Ends.certain(truth, n), how)
                wide = []
                for at in (37, 124, 249):
                    fixed = spread_difference(truth[at], partial(wilson, truth[at], n[at]), 0.95)
                    # for equal values of many groups the audit's upper end allows for their noise, and is 0 without any
                    wide.append((high[at] - low[at]) / (fixed.high - fixed.low) if fixed.high > 1e-3 else np.nan)
                shown = " ".join(f"{one:.2f}" for one in wide)
                print(
                    f"{len(sizes)} groups {sizes[-1]:>3} in the last, base {base}, gap {gap}: missed {upper(missed)}; "
                    f"width at .3, 1, 2 t0: {shown}"
                )


def verdicts() -> None:
    """Whether a rule that is kept ever fails, and one that is broken ever passes."""
    rng = np.random.default_rng(2)
    looks, n = 500, 1_000.0 * np.arange(1, 501)
    sizes = np.array([600, 400])
    half = sizes * looks / 2
    how = Between(0.05, 2, 1 / (1 / half[:, None] + 1 / half[None, :]))
    many = (sizes * np.arange(1, looks + 1)[:, None]).astype(float)
    for gap, limit, what in ((0.051, 0.05, "pass"), (0.049, 0.05, "fail")):
        wrong = np.zeros(LIFETIMES // 2, bool)
        for i in range(len(wrong)):
            counted = rng.binomial(sizes, np.broadcast_to([0.2 + gap, 0.2], many.shape)).cumsum(axis=0)
            low, high = difference(Ends.certain(counted / many, many), how)
            wrong[i] = bool((high <= limit).any()) if what == "pass" else bool((low > limit).any())
        print(f"difference {gap} where {limit} is allowed: ever {what} {upper(wrong)}")
    for p, limit, what in ((0.301, 0.3, "pass"), (0.299, 0.3, "fail")):
        counted = rng.binomial(1_000, p, (LIFETIMES // 4, looks)).cumsum(axis=1).astype(float)
        low, high = rate_limits(counted, np.broadcast_to(n, counted.shape), 0.05, lambda_grid(0.3))
        wrong = (high <= limit).any(axis=1) if what == "pass" else (low > limit).any(axis=1)
        print(f"rate {p} where {limit} is allowed: ever {what} {upper(wrong)}")


def detectors() -> None:
    """Run lengths and delays."""
    rng = np.random.default_rng(3)

    def lengths(steps: np.ndarray) -> list[int]:
        found = []
        for one in steps:
            detector = Detector(np.ones(one.shape[1]) / one.shape[1], 1_000)
            found.append(next((t + 1 for t, step in enumerate(one) if detector.step(step) >= 1_000), len(one) + 1))
        return found

    for rate in (0.1, 0.105, 0.11, 0.12, 0.15):
        days, count = (2_500, 40 if QUICK else 400) if rate == 0.1 else (150, 400)
        counted = rng.binomial(1_000, rate, (count, days)).astype(float)
        found = lengths(rate_increments(counted, np.full(counted.shape, 1e3), 0.1)[:, :, None])
        print(
            f"rate {rate} where .1 is allowed: mean {np.mean(found):.0f}, median {np.median(found):.0f}, 90 % "
            f"{np.quantile(found, 0.9):.0f} "
            f"batches; {np.mean(np.array(found) <= min(days, 1000)):.0%} by 1,000"
        )
    for gap in (0.05, 0.06, 0.07, 0.1, 0.15):
        days, count = (2_500, 20 if QUICK else 200) if gap == 0.05 else (300, 200)
        n = np.full(days, 700.0), np.full(days, 300.0)
        steps = []
        for _ in range(count):
            high = rng.binomial(700, 0.2 + gap, days).astype(float), n[0]
            low = rng.binomial(300, 0.2, days).astype(float), n[1]
            both = [contrasts(high, low, 1.0, (0.5, 0.5)), contrasts(low, high, 1.0, (0.5, 0.5))]
            steps.append(np.stack([contrast_increments(v, i, 0.05) for v, i in both], axis=1))
        found = lengths(np.array(steps))
        print(
            f"difference {gap} where .05 is allowed: mean {np.mean(found):.0f}, median {np.median(found):.0f}, "
            f"90 % {np.quantile(found, 0.9):.0f} batches"
        )


if __name__ == "__main__":
    wanted = [name for name in sys.argv[1:] if not name.startswith("--")]
    for part in (sequences, between, verdicts, detectors):
        if not wanted or part.__name__ in wanted:
            print(f"== {part.__name__}")
            part()
