"""How wide our intervals are beside the best known ones at equal coverage: the table of `docs/reference/measured.md`.

    nice python benchmarks/interval_widths.py [--draws 2000] [--family rate,difference] [--output widths.json]

In each setting all methods see the same samples. Ours is taken at 95 %. Each other method gets, for a whole family, the
lowest level at which its worst setting holds the truth as often as our worst one does: a level that one could choose
without knowing the truth, and that nobody uses. Rates are enumerated, and have settings besides that count for the
level and are not shown. Printed is our mean width over the narrowest at such a level, and over the narrowest of those
that hold as often at their own 95 %; 0 where there is none. The exit code is 1 where less than four fifths of the
settings have ours at most 1 % wider than the narrowest.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from corners import CONFIDENCE, Array, Z, alone, auc_estimate, binomial, of_spreads, scores_of, selection
from scipy import special

from fairkit.statistics import Rows, Sums
from fairkit_group.between import comparisons
from fairkit_group.errors import BrierScore, MeanAbsoluteError, MeanSquaredError
from fairkit_group.rates import F1Score

if TYPE_CHECKING:
    from fairkit.metrics import Metric

NORMAL = NormalDist()
Ends = tuple[Array, Array]
Method = Callable[[float], Ends]
WIDEST = NORMAL.inv_cdf(0.99995)
EQUAL = 1.01


@dataclass(frozen=True)
class Setting:
    """A population and a number; `draw` gives our ends and the other methods on the same samples."""

    family: str
    name: str
    truth: float
    draw: Callable[[np.random.Generator, int], tuple[Ends, dict[str, Method]]]
    shown: bool = True
    chance: Array | None = None
    """Of each sample, where all of them are enumerated."""


@dataclass(frozen=True)
class Drawn:
    """Samples of a setting: our ends, and the other methods."""

    setting: Setting
    ours: Ends
    others: dict[str, Method]

    def holds(self, ends: Ends) -> float:
        """How often intervals hold the truth."""
        truth, slack = self.setting.truth, 1e-9
        inside = (ends[0] <= truth + slack) & (ends[1] >= truth - slack)
        return float(np.average(inside, weights=self.setting.chance))

    def width(self, ends: Ends) -> float:
        """The mean width."""
        return float(np.average(ends[1] - ends[0], weights=self.setting.chance))


def bisected(function: Callable[[Array], Array], inside: Array, outside: Array) -> Array:
    """Bisect between a point where a function is at most 0 and one where it is above, elementwise."""
    for _ in range(30):
        middle = (inside + outside) / 2
        good = function(middle) <= 0
        inside, outside = np.where(good, middle, inside), np.where(good, outside, middle)
    return inside


def divergence(k: Array, n: Array | float, p: Array) -> Array:
    """-2 log of the likelihood ratio of a share: empirical likelihood of a mean of 0s and 1s (Owen 2001)."""
    rate = k / n
    return np.asarray(2 * n * (special.rel_entr(rate, p) + special.rel_entr(1 - rate, 1 - p)))


def wilson(k: Array, n: Array | float, z: float) -> Ends:
    p, shrink = k / n, 1 + z**2 / n
    middle = (p + z**2 / (2 * n)) / shrink
    half = z / shrink * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    return middle - half, middle + half


def exact(k: Array, n: Array | float, tail: float) -> Ends:
    """Clopper and Pearson's limits, one-sided at a tail each."""
    low = np.where(k > 0, special.betaincinv(np.maximum(k, 1e-9), n - k + 1, tail), 0.0)
    high = np.where(k < n, special.betaincinv(k + 1, np.maximum(n - k, 1e-9), 1 - tail), 1.0)
    return low, high


def jeffreys(k: Array, n: Array | float, z: float) -> Ends:
    tail = NORMAL.cdf(-z)
    low = np.where(k > 0, special.betaincinv(k + 0.5, n - k + 0.5, tail), 0.0)
    return low, np.where(k < n, special.betaincinv(k + 0.5, n - k + 0.5, 1 - tail), 1.0)


def likelihood(k: Array, n: Array | float, z: float) -> Ends:
    p = k / n

    def off(end: Array) -> Array:
        return divergence(k, n, end) - z**2

    return bisected(off, p, np.zeros_like(p)), bisected(off, p, np.ones_like(p))


def folded(low: Array, high: Array) -> Ends:
    """Limits of |D| from those of D."""
    return np.maximum(np.maximum(low, -high), 0), np.maximum(np.abs(low), np.abs(high))


def newcombe(k: Array, n: Array, z: float) -> Ends:
    d = k[:, 0] / n[0] - k[:, 1] / n[1]
    (l0, u0), (l1, u1) = (wilson(k[:, i], n[i], z) for i in (0, 1))
    p, q = k[:, 0] / n[0], k[:, 1] / n[1]
    return folded(d - np.hypot(p - l0, u1 - q), d + np.hypot(u0 - p, q - l1))


def agresti_caffo(k: Array, n: Array, z: float) -> Ends:
    p, m = (k + 1) / (n + 2), n + 2
    d, half = p[:, 0] - p[:, 1], z * np.sqrt((p * (1 - p) / m).sum(axis=1))
    return folded(np.maximum(d - half, -1), np.minimum(d + half, 1))


def restricted(k: Array, n: Array, d: Array) -> Array:
    """The second rate's likeliest value where the first is larger by d (bisected score equation)."""
    low, high = np.maximum(0, -d) + 1e-12, np.minimum(1, 1 - d) - 1e-12

    def slope(q: Array) -> Array:
        parts = [np.clip(q + d, 1e-12, 1 - 1e-12), q]
        return -sum(
            k[:, i] / part - (n[i] - k[:, i]) / (1 - part) for i, part in enumerate(parts)
        )  # falls where the likelihood rises

    return bisected(slope, low, high)


def profile(k: Array, n: Array, z: float, *, score: bool) -> Ends:
    """Miettinen and Nurminen's limits of a difference, or those of (empirical) likelihood."""
    observed = k[:, 0] / n[0] - k[:, 1] / n[1]

    def off(d: Array) -> Array:
        q = restricted(k, n, d)
        p = np.clip(q + d, 0, 1)
        if score:
            variance = (p * (1 - p) / n[0] + q * (1 - q) / n[1]) * n.sum() / (n.sum() - 1)
            return (observed - d) ** 2 - z**2 * variance
        return divergence(k[:, 0], n[0], p) + divergence(k[:, 1], n[1], q) - z**2

    edge = np.ones_like(observed) - 1e-9
    return folded(bisected(off, observed, -edge), bisected(off, observed, edge))


def bonferroni(k: Array, n: Array, z: float) -> Ends:
    """All groups' exact limits at once: the largest difference lies between those of the furthest ends."""
    low, high = exact(k, n, NORMAL.cdf(-z) / k.shape[1])
    return np.maximum(low.max(axis=1) - high.min(axis=1), 0), high.max(axis=1) - low.min(axis=1)


def posterior(k: Array, n: Array, rng: np.random.Generator, samples: int = 400) -> Method:
    """Quantiles of the largest difference of rates with Dirichlet posteriors (two cells a group: beta)."""
    drawn = rng.beta(k[None] + 0.5, (n - k)[None] + 0.5, (samples, *k.shape))
    apart = np.sort(drawn.max(axis=2) - drawn.min(axis=2), axis=0)

    def limits(z: float) -> Ends:
        place = NORMAL.cdf(-z) * (samples - 1)
        ends = [np.array([place, samples - 1 - place])]
        low, high = (_at(apart, end) for end in ends[0])
        return low, high

    return limits


def _at(sorted_draws: Array, place: float) -> Array:
    below = int(place)
    above = min(below + 1, len(sorted_draws) - 1)
    return sorted_draws[below] + (place - below) * (sorted_draws[above] - sorted_draws[below])


def student_mean(x: Array, z: float) -> Ends:
    n = x.shape[1]
    half = special.stdtrit(n - 1, NORMAL.cdf(z)) * x.std(axis=1, ddof=1) / math.sqrt(n)
    return x.mean(axis=1) - half, x.mean(axis=1) + half


def hall(x: Array, z: float) -> Ends:
    """Student's limits with Hall's (1992) transformation for skewness."""
    n = x.shape[1]
    mean, sd = x.mean(axis=1), x.std(axis=1)
    skew = ((x - mean[:, None]) ** 3).mean(axis=1) / np.maximum(sd, 1e-300) ** 3
    t = special.stdtrit(n - 1, NORMAL.cdf(z)) / math.sqrt(n)

    def back(v: float) -> Array:
        a = np.where(np.abs(skew) > 1e-6, skew, 1e-6)
        return 3 / a * (np.cbrt(1 + a * (v - a / (6 * n))) - 1)

    ends = [mean - sd * back(v) for v in (t, -t)]
    return ends[0], ends[1]


def empirical(x: Array, z: float) -> Ends:
    """Owen's empirical likelihood of a mean, with Student's quantile."""
    n, mean = x.shape[1], x.mean(axis=1)
    bound = special.stdtrit(n - 1, NORMAL.cdf(z)) ** 2

    def off(m: Array) -> Array:
        y = x - m[:, None]
        least, most = y.min(axis=1), y.max(axis=1)
        inside = (least < 0) & (most > 0)
        low, high = (
            np.where(inside, -1 / np.where(most > 0, most, 1), 0),
            np.where(inside, -1 / np.where(least < 0, least, -1), 0),
        )
        low, high = low * (1 - 1e-9), high * (1 - 1e-9)
        for _ in range(22):
            middle = (low + high) / 2
            rising = (y / (1 + middle[:, None] * y)).sum(axis=1) > 0
            low, high = np.where(rising, middle, low), np.where(rising, high, middle)
        ratio = 2 * np.log1p(np.maximum(low[:, None] * y, -1 + 1e-12)).sum(axis=1)
        return np.where(inside, ratio - bound, 1.0)

    return bisected(off, mean, x.min(axis=1)), bisected(off, mean, x.max(axis=1))


def rates() -> Iterator[Setting]:
    """One rate, enumerated."""
    sizes, shown = (30, 100, 300, 1000), (0.02, 0.1, 0.5)
    besides = [(n, c / n) for n in sizes for c in (0.2, 0.6, 1, 2, 3.1, 5, 8, 12, 15.5)]
    besides += [(n, p) for n in sizes for p in (0.2, 0.25, 0.3, 0.35, 0.4, 0.45)]
    for place, (n, p) in enumerate([*itertools.product(sizes, shown), *besides]):

        def draw(rng: np.random.Generator, draws: int, n: int = n, p: float = p) -> tuple[Ends, dict[str, Method]]:
            del rng, draws, p
            k = np.arange(n + 1.0)
            ours = alone(selection(k, np.full(n + 1, n)))
            return (ours.low, ours.high), {
                "Wilson": lambda z: wilson(k, n, z),
                "Clopper-Pearson": lambda z: exact(k, n, NORMAL.cdf(-z)),
                "Jeffreys": lambda z: jeffreys(k, n, z),
                "empirical likelihood": lambda z: likelihood(k, n, z),
            }

        few = len(sizes) * len(shown)
        yield Setting("rate", f"{p:.3g} of {n} rows", p, draw, place < few, binomial(n, p))


def differences() -> Iterator[Setting]:
    sizes = ((40, 40), (40, 160), (300, 300), (300, 3000))
    for (n, m), (p, q) in itertools.product(sizes, ((0.05, 0.05), (0.1, 0.3), (0.5, 0.5))):

        def draw(
            rng: np.random.Generator, draws: int, n: int = n, m: int = m, p: float = p, q: float = q
        ) -> tuple[Ends, dict[str, Method]]:
            size = np.array([n, m], float)
            k = np.stack([rng.binomial(n, p, draws), rng.binomial(m, q, draws)], axis=1).astype(float)
            return spreads(k, size), {
                "Newcombe": lambda z: newcombe(k, size, z),
                "Agresti-Caffo": lambda z: agresti_caffo(k, size, z),
                "Miettinen-Nurminen": lambda z: profile(k, size, z, score=True),
                "empirical likelihood": lambda z: profile(k, size, z, score=False),
                "Bonferroni, exact": lambda z: bonferroni(k, size, z),
                "Dirichlet posterior": posterior(k, size, rng),
            }

        yield Setting("difference", f"{p} of {n}, {q} of {m}", abs(p - q), draw)


def spreads(k: Array, n: Array) -> Ends:
    """Our interval of the largest difference of each sample."""
    found = []
    for row in k:
        one = comparisons("s", "none", frozenset({"difference"}), selection(row, n))[0]
        found.append((one.spread(CONFIDENCE), False))
    ours = of_spreads(found)
    return ours.low, ours.high


def many() -> Iterator[Setting]:
    for groups, n, far in itertools.product((5, 20), (100, 1000), (0.0, 0.15)):

        def draw(
            rng: np.random.Generator, draws: int, groups: int = groups, n: int = n, far: float = far
        ) -> tuple[Ends, dict[str, Method]]:
            p = np.full(groups, 0.3)
            p[0] += far
            size = np.full(groups, float(n))
            k = rng.binomial(n, p, (draws, groups)).astype(float)
            return spreads(k, size), {
                "Bonferroni, exact": lambda z: bonferroni(k, size, z),
                "Dirichlet posterior": posterior(k, size, rng),
            }

        yield Setting("many groups", f"{groups} groups of {n}, one {far} apart", far, draw)


def means() -> Iterator[Setting]:
    worlds: dict[str, tuple[Callable[[np.random.Generator, tuple[int, int]], Array], Metric, float]] = {
        "Brier score, calibrated": (lambda r, s: np.where(r.random(s) < (b := r.beta(2, 2, s)), (1 - b) ** 2, b**2),
                                    BrierScore(), 0.2),
        "absolute error, normal": (lambda r, s: np.abs(r.standard_normal(s)), MeanAbsoluteError(),
                                   math.sqrt(2 / math.pi)),
        "squared error, normal": (lambda r, s: r.standard_normal(s) ** 2, MeanSquaredError(), 1.0),
    }  # fmt: skip
    for (name, (world, metric, truth)), n in itertools.product(worlds.items(), (100, 400)):

        def draw(
            rng: np.random.Generator,
            draws: int,
            world: Callable[[np.random.Generator, tuple[int, int]], Array] = world,
            metric: Metric = metric,
            n: int = n,
        ) -> tuple[Ends, dict[str, Method]]:
            x = world(rng, (draws, n))
            shown = x if isinstance(metric, MeanAbsoluteError) else np.sqrt(x)
            rows = Rows(outcome=np.zeros(draws * n), score=shown.ravel())
            totals = metric.statistic.collect(rows, np.repeat(np.arange(draws), n), draws)
            ours = alone(metric.estimate(totals, rng))
            return (ours.low, ours.high), {
                "Student": lambda z: student_mean(x, z),
                "Hall's transformation": lambda z: hall(x, z),
                "empirical likelihood": lambda z: empirical(x, z),
            }

        yield Setting("mean", f"{name}, {n} rows", truth, draw)


def delong(pairs: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Areas and their DeLong variances, of scores without ties."""
    area, variance = [], []
    for good, bad in pairs:
        g, b = np.sort(good), np.sort(bad)
        above, below = np.searchsorted(b, good) / len(b), 1 - np.searchsorted(g, bad, "right") / len(g)
        area.append(above.mean())
        variance.append(above.var(ddof=1) / len(g) + below.var(ddof=1) / len(b))
    return np.array(area), np.array(variance)


def areas() -> Iterator[Setting]:
    for m, area in ((50, 0.7), (200, 0.7), (200, 0.9)):

        def draw(
            rng: np.random.Generator, draws: int, m: int = m, area: float = area
        ) -> tuple[Ends, dict[str, Method]]:
            pairs = [scores_of("normal", area, m, 500 - m, rng)[:2] for _ in range(draws // 2)]
            found = [alone(auc_estimate([pair])) for pair in pairs]
            ours = tuple(np.concatenate([getattr(one, end) for one in found]) for end in ("low", "high"))
            a, v = delong(pairs)
            slope = np.sqrt(v) / (a * (1 - a))
            return (ours[0], ours[1]), {
                "DeLong": lambda z: (a - z * np.sqrt(v), np.minimum(a + z * np.sqrt(v), 1)),
                "DeLong, logit": lambda z: (special.expit(special.logit(a) - z * slope),
                                            special.expit(special.logit(a) + z * slope)),
            }  # fmt: skip

        yield Setting("ROC-AUC", f"{area}, {m} of 500 favorable", area, draw)


def f1_scores() -> Iterator[Setting]:
    worlds = {"rare": (0.85, 0.05, 0.05, 0.05), "even": (0.4, 0.1, 0.1, 0.4)}
    for (name, cells), n in itertools.product(worlds.items(), (100, 1000)):
        truth = 2 * cells[3] / (2 * cells[3] + cells[1] + cells[2])

        def draw(
            rng: np.random.Generator, draws: int, cells: tuple[float, ...] = cells, n: int = n
        ) -> tuple[Ends, dict[str, Method]]:
            first = rng.multinomial(n, cells, draws).astype(float)
            totals = Sums(first.sum(axis=1), first, first[:, :, None] * np.eye(4))
            ours = alone(F1Score().estimate(totals, rng))
            k, size = first[:, 3], first[:, 1:].sum(axis=1)
            q = k / size
            value, slope = 2 * q / (1 + q), 2 / (1 + q) ** 2 * np.sqrt(q * (1 - q) / size)

            def of(ends: Ends) -> Ends:
                return 2 * ends[0] / (1 + ends[0]), 2 * ends[1] / (1 + ends[1])

            return (ours.low, ours.high), {
                "delta method": lambda z: (value - z * slope, value + z * slope),
                "Wilson of TP / (TP + FP + FN)": lambda z: of(wilson(k, size, z)),
                "empirical likelihood": lambda z: of(likelihood(k, size, z)),
            }

        yield Setting("F1", f"{name}, {n} rows", truth, draw)


FAMILIES = {"rate": rates, "difference": differences, "many groups": many, "mean": means, "ROC-AUC": areas,
            "F1": f1_scores}  # fmt: skip


def least(drawn: list[Drawn], name: str, z: float) -> float:
    """How often a method holds the truth in the family's worst setting."""
    return min(one.holds(one.others[name](z)) for one in drawn)


def level(drawn: list[Drawn], name: str, share: float) -> float:
    """The lowest normal quantile at which a method's worst setting holds the truth that often; NaN where none does."""
    low, high = 1.0, WIDEST
    if least(drawn, name, high) < share:
        return math.nan
    for _ in range(9):
        middle = (low + high) / 2
        low, high = (low, middle) if least(drawn, name, middle) >= share else (middle, high)
    return high


def measured(family: str, draws: int) -> list[dict[str, object]]:
    """Return the figures of one family's settings that are shown."""
    drawn = []
    for setting in FAMILIES[family]():
        rng = np.random.default_rng([3, *setting.name.encode()])
        drawn.append(Drawn(setting, *setting.draw(rng, draws)))
    share = min(one.holds(one.ours) for one in drawn)
    levels = {name: level(drawn, name, share) for name in drawn[0].others}
    kept = [name for name in levels if least(drawn, name, Z) >= share]
    rows: list[dict[str, object]] = []
    for one in drawn:
        if not one.setting.shown:
            continue
        width = one.width(one.ours)
        others = {
            name: {
                "covers": one.holds(method(Z)),
                "level": 2 * NORMAL.cdf(levels[name]) - 1,
                "width": one.width(method(levels[name])) / width if levels[name] > 0 else math.nan,
            }
            for name, method in one.others.items()
        }
        known = {name: row["width"] for name, row in others.items() if math.isfinite(row["width"])}
        best = min(known, key=lambda name: known[name], default="none")
        own = {name: one.width(one.others[name](Z)) / width for name in kept}
        usual = min(own, key=lambda name: own[name], default="none")
        row = {"family": family, "name": one.setting.name, "covers": one.holds(one.ours), "width": width,
               "others": others, "best": best, "over": 1 / known[best] if known else 0.0, "usual": usual,
               "over_usual": 1 / own[usual] if own else 0.0}  # fmt: skip
        rows.append(row)
    return rows


def main() -> int:
    """Print the table; 1 where too few settings have ours narrower or equal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--family", default=",".join(FAMILIES))
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    started, record = time.process_time(), []
    for family in chosen.family.split(","):
        for row in measured(family, chosen.draws):
            record.append(row)
            print(f"| {family}: {row['name']} | {row['covers']:.3f} | {row['width']:.4f} | {row['over']:.2f} "
                  f"({row['best']}) | {row['over_usual']:.2f} ({row['usual']}) |", flush=True)  # fmt: skip
    good, near, usual = (
        sum(row[key] <= most for row in record)
        for key, most in (("over", EQUAL), ("over", 1.05), ("over_usual", EQUAL))
    )
    print(f"{good} of {len(record)} narrower or equal, {near} at most 5 % wider, {usual} against others' own 95 %, "
          f"{time.process_time() - started:.0f} s of CPU time")  # fmt: skip
    if chosen.output:
        chosen.output.write_text(json.dumps(record, indent=1) + "\n")
    return int(good < 0.8 * len(record))


if __name__ == "__main__":
    sys.exit(main())
