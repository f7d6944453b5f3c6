"""How often the intervals between groups hold the truth, at full size.

    python benchmarks/group_coverage.py [--simulations 1000] [--metrics all|rates]

Each line is one population: the share of simulations whose interval holds the true disparity (95 % nominal), the
mean width against the normal interval of the signed difference (two groups), and what the rule
``difference <= 0.05`` says.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from fairkit.intervals import Spread
from fairkit.metrics import CONFUSION, Estimate, Metric
from fairkit.statistics import Rows, Scores, Sums
from fairkit_group.between import comparisons, odds
from fairkit_group.errors import BrierScore, LogLoss, MeanPrediction
from fairkit_group.ranking import RocAuc, distances
from fairkit_group.rates import Accuracy, FalsePositiveRate, Precision, SelectionRate, TruePositiveRate

CONFIDENCE = 0.95
Z = 1.959963984540054


@dataclass(frozen=True)
class Population:
    """Groups with their sizes and true probabilities of a favorable decision."""

    sizes: tuple[int, ...]
    rates: tuple[float, ...]

    @property
    def name(self) -> str:
        small = f", one of {min(self.sizes)}" if min(self.sizes) < max(self.sizes) else ""
        rates = f"{min(self.rates):.2f} to {max(self.rates):.2f}"
        return f"{len(self.sizes):2d} groups of {max(self.sizes)}{small}, {rates}"


def populations(rows: int) -> Iterator[Population]:
    for groups in (2, 10):
        for small in (False, True):
            sizes = [rows] * groups
            if small:
                sizes[-1] = 50
            for base in (0.1, 0.3, 0.5):
                for gap in (0.0, 0.1):
                    yield Population(tuple(sizes), (base + gap, *[base] * (groups - 1)))
                    if gap and small:
                        yield Population(tuple(sizes), (*[base] * (groups - 1), base + gap))


def draw_totals(population: Population, rng: np.random.Generator) -> Sums:
    """Confusion cells of one sample, outcome 1 for all: selection and true positive rate are the same."""
    yes = rng.binomial(population.sizes, population.rates).astype(float)
    first = np.zeros((len(population.sizes), 4))
    first[:, 3], first[:, 2] = yes, np.array(population.sizes) - yes
    return Sums(first.sum(axis=1), first, first[:, :, None] * np.eye(4))


@dataclass
class Tally:
    """Counts over simulations."""

    held: int = 0
    drawn: int = 0
    width: float = 0.0
    normal: float = 0.0
    passes: int = 0
    fails: int = 0

    def add(self, spread: Spread, truth: float, normal: float = math.nan) -> None:
        if not math.isfinite(spread.low):
            return
        self.drawn += 1
        self.held += spread.low - 1e-12 <= truth <= spread.high + 1e-12
        self.width += spread.high - spread.low
        self.normal += normal
        self.passes += spread.high <= 0.05
        self.fails += spread.low > 0.05

    def line(self, name: str) -> str:
        ratio = f"{self.width / self.normal:6.3f}" if math.isfinite(self.normal) else "     -"
        n = max(self.drawn, 1)
        return f"{name:<58}{self.held / n:8.3f}{ratio:>8}{self.passes / n:8.3f}{self.fails / n:8.3f}"


def rate_table(simulations: int, rows: int) -> None:
    print(f"\nselection rate, {rows} rows a group, {simulations} simulations")
    print(f"{'population':<58}{'covers':>8}{'width':>8}{'pass':>8}{'fail':>8}")
    for population in populations(rows):
        rng = np.random.default_rng(1)
        difference, ratio = Tally(), Tally()
        true_gap = max(population.rates) - min(population.rates)
        true_ratio = min(population.rates) / max(population.rates)
        for _ in range(simulations):
            estimate = SelectionRate().estimate(draw_totals(population, rng), rng)
            spreads = comparisons("selection_rate", "none", SelectionRate.between, estimate)
            normal = math.nan
            if len(population.sizes) == 2:
                p, n = estimate.values, np.array(population.sizes)
                normal = 2 * Z * math.sqrt(float((p * (1 - p) / n).sum()))
            difference.add(spreads[0].spread(CONFIDENCE), true_gap, normal)
            ratio.add(spreads[1].spread(CONFIDENCE), true_ratio)
        print(difference.line(population.name))
        print(ratio.line("    ratio"))


@dataclass(frozen=True)
class World:
    """A process with outcomes, scores and decisions whose disparities are known from a very large sample."""

    groups: int
    shift: float

    def draw(self, rng: np.random.Generator, sizes: tuple[int, ...]) -> tuple[Rows, np.ndarray]:
        g = np.repeat(np.arange(self.groups), sizes)
        merit = rng.standard_normal(len(g)) + self.shift * (g == 0)
        outcome = (merit + rng.standard_normal(len(g)) > 0).astype(float)
        score = 1 / (1 + np.exp(-(1.4 * merit + self.shift * (g == 0) + 0.5 * rng.standard_normal(len(g)))))
        return Rows(outcome=outcome, decision=(score > 0.5).astype(float), score=np.round(score, 3)), g


def _estimates(rows: Rows, groups: np.ndarray, n: int, rng: np.random.Generator) -> dict[str, tuple[Metric, Estimate]]:
    cells = CONFUSION.collect(rows, groups, n)
    found: dict[str, tuple[Metric, Estimate]] = {}
    for metric in (Accuracy(), SelectionRate(), TruePositiveRate(), FalsePositiveRate(), Precision()):
        found[metric.name] = (metric, metric.estimate(cells, rng))
    for metric in (LogLoss(), BrierScore(), MeanPrediction()):
        found[metric.name] = (metric, metric.estimate(metric.statistic.collect(rows, groups, n), rng))
    area = RocAuc()
    found[area.name] = (area, area.estimate(Scores().collect(rows, groups, n), rng))
    return found


def _all_spreads(
    rows: Rows, groups: np.ndarray, n: int, rng: np.random.Generator
) -> dict[str, Callable[[float], Spread]]:
    estimates = _estimates(rows, groups, n, rng)
    spreads: dict[str, Callable[[float], Spread]] = {}
    for name, (metric, estimate) in estimates.items():
        for comparison in comparisons(name, metric.better, metric.between, estimate):
            spreads[comparison.metric] = comparison.spread
    for comparison in odds(estimates["true_positive_rate"][1], estimates["false_positive_rate"][1]):
        spreads[comparison.metric] = comparison.spread
    found = distances(Scores().collect(rows, groups, n))

    def distance(confidence: float) -> Spread:
        joint = confidence ** (1 / len(found.values))
        low, high = found.limits(joint)[0].max(), found.limits(confidence)[1].max()
        return Spread(float(found.values.max()), float(low), float(high))

    spreads["statistical_parity_ks"] = distance
    return spreads


def metric_table(simulations: int, rows: int) -> None:
    for groups in (2, 10):
        for shift in (0.0, 0.25):
            for small in (False, True):
                world = World(groups, shift)
                sizes = (*[rows] * (groups - 1), 50 if small else rows)
                rng = np.random.default_rng(2)
                factor = 2_000_000 // sum(sizes)
                large = world.draw(np.random.default_rng(3), tuple(size * factor for size in sizes))
                spreads = _all_spreads(*large, groups, rng)
                truth = {name: _truth(name, spread, same=shift == 0) for name, spread in spreads.items()}
                tallies = {name: Tally() for name in truth}
                for _ in range(simulations):
                    for name, spread in _all_spreads(*world.draw(rng, sizes), groups, rng).items():
                        tallies[name].add(spread(CONFIDENCE), truth[name])
                small_text = ", one of 50" if small else ""
                print(f"\n{groups} groups of {rows}{small_text}, shift {shift}, {simulations} simulations")
                print(f"{'metric':<58}{'covers':>8}{'width':>8}{'pass':>8}{'fail':>8}")
                for name, tally in tallies.items():
                    print(tally.line(f"{name} (true {truth[name]:.4f})"))


def _truth(name: str, spread: Callable[[float], Spread], *, same: bool) -> float:
    """The disparity of the process: exact where all groups are the same, else of the very large sample."""
    if same and name.endswith("_ratio"):
        return 1.0
    return 0.0 if same and "_group_" not in name else spread(CONFIDENCE).value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulations", type=int, default=1_000)
    parser.add_argument("--metrics", choices=["all", "rates"], default="all")
    options = parser.parse_args()
    start = time.perf_counter()
    for rows in (500, 5_000):
        rate_table(options.simulations, rows)
    if options.metrics == "all":
        metric_table(options.simulations, 1_000)
    print(f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
