"""Whether intervals hold where data are few, rare, heavy or weighted: the gate of `docs/explanation/intervals.md`.

    nice python benchmarks/corners.py [--draws 2000] [--family rate,difference] [--output corners.json]

Every cell is one population and one number. *Covers* is the share of samples whose 95 % interval holds the truth,
*noted* the share whose finding says that no verdict may be made (too few rows in a denominator, heavy tails), *kept*
the share that covers or is noted, *passes* the share that a rule with its limit just on the right side of the truth
would pass, noted ones aside. Cells of counts are enumerated, the others are simulated. The gate: no cell keeps less
than .93, none passes falsely in more than .03, simulation error (2.6 standard errors) aside. The exit code is 1 where
one does.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from fairkit.intervals import Spread, two_sided
from fairkit.metrics import CONFUSION, Estimate, Metric
from fairkit.statistics import Rows, Scores, Sums
from fairkit_group.between import comparisons, odds
from fairkit_group.determination import R2Score
from fairkit_group.errors import BrierScore, LogLoss, MeanAbsoluteError, MeanSquaredError
from fairkit_group.ranking import RocAuc, distances
from fairkit_group.rates import F1Score, FalsePositiveRate, SelectionRate, TruePositiveRate

CONFIDENCE, MIN_GROUP = 0.95, 30
LEAST, MOST = 0.93, 0.03
Z = two_sided(CONFIDENCE)
NORMAL = NormalDist()
Array = np.ndarray


@dataclass(frozen=True)
class Samples:
    """What many samples of one population gave: ends of intervals, whether noted, and the samples' chances."""

    low: Array
    high: Array
    noted: Array
    chance: Array | None = None
    better: str = "lower"


@dataclass(frozen=True)
class Cell:
    """One population and number; `draw` takes a generator and how many samples to draw."""

    family: str
    name: str
    truth: float
    draw: Callable[[np.random.Generator, int], Samples]
    cost: float = 1.0


@dataclass(frozen=True)
class Result:
    """A cell's figures: shares, the median width, and standard errors, which are 0 where enumerated."""

    family: str
    name: str
    truth: float
    covers: float
    noted: float
    kept: float
    false_pass: float
    width: float
    error: float
    pass_error: float

    @property
    def holds(self) -> bool:
        return self.kept + 2.6 * self.error >= LEAST and self.false_pass - 2.6 * self.pass_error <= MOST


def measure(cell: Cell, seed: int, draws: int) -> Result:
    """Draw or enumerate one cell."""
    rng = np.random.default_rng([seed, *cell.name.encode()])
    found = cell.draw(rng, max(int(draws * cell.cost), 200))
    chance = found.chance
    exact = chance is not None
    share = np.full(len(found.low), 1 / len(found.low)) if chance is None else chance / chance.sum()
    slack = 1e-9 * max(abs(cell.truth), 1e-9)
    above, below = found.high < cell.truth - slack, found.low > cell.truth + slack
    covers = ~(above | below)
    worst = above if found.better == "lower" else below
    if found.better == "none":
        worst = above if share[above & ~found.noted].sum() >= share[below & ~found.noted].sum() else below
    kept, passed = float(share[covers | found.noted].sum()), float(share[worst & ~found.noted].sum())
    n = len(share)
    finite = np.isfinite(found.high) & np.isfinite(found.low) & (np.abs(found.low) < 1e12)
    return Result(
        cell.family,
        cell.name,
        float(cell.truth),
        float(share[covers].sum()),
        float(share[found.noted].sum()),
        kept,
        passed,
        _median((found.high - found.low)[finite], share[finite]),
        0.0 if exact else math.sqrt(LEAST * (1 - LEAST) / n),
        0.0 if exact else math.sqrt(MOST * (1 - MOST) / n),
    )


def _median(values: Array, share: Array) -> float:
    order = np.argsort(values)
    return float(values[order][np.searchsorted(np.cumsum(share[order]), share.sum() / 2)]) if len(values) else math.inf


def noted(estimate: Estimate) -> Array:
    """Whether a finding about each group alone would be inconclusive: too few rows, or an interval in doubt."""
    few = np.zeros(len(estimate.values), bool) if estimate.sizes is None else ~(estimate.sizes >= MIN_GROUP - 1e-6)
    few[list(estimate.doubts)] = True
    return few | ~np.isfinite(estimate.values)


def alone(estimate: Estimate, chance: Array | None = None) -> Samples:
    """Read the groups of an estimate as so many samples."""
    low, high = estimate.limits(Z)
    defined = np.isfinite(estimate.values)
    low, high = np.where(defined, low, -np.inf), np.where(defined, high, np.inf)
    return Samples(low, high, noted(estimate), chance, "none")


def of_spreads(spreads: list[tuple[Spread, bool]], chance: Array | None = None, better: str = "lower") -> Samples:
    """Read one spread for each sample; undefined ones are noted and hold everything."""
    low = np.array([s.low if math.isfinite(s.value) else -math.inf for s, _ in spreads])
    high = np.array([s.high if math.isfinite(s.value) else math.inf for s, _ in spreads])
    note = np.array([n or not math.isfinite(s.value) for s, n in spreads])
    return Samples(
        np.where(np.isnan(low), -math.inf, low), np.where(np.isnan(high), math.inf, high), note, chance, better
    )


def counts(yes: Array, n: Array) -> Sums:
    """Confusion cells of groups whose outcomes are all favorable."""
    first = np.zeros((len(yes), 4))
    first[:, 3], first[:, 2] = yes, n - yes
    return Sums(n.astype(float), first, first[:, :, None] * np.eye(4))


def binomial(n: int, p: float) -> Array:
    k = np.arange(n + 1)
    logs = [math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) for i in k]
    return np.exp(np.array(logs) + k * math.log(p) + (n - k) * math.log1p(-p))


def selection(yes: Array, n: Array) -> Estimate:
    return SelectionRate().estimate(counts(np.asarray(yes, float), np.asarray(n, float)), np.random.default_rng(0))


def rates() -> Iterator[Cell]:
    """One rate, enumerated."""
    for n in (30, 50, 100, 300, 1000):
        for p in (0.18 / n, 1 / n, 3 / n, 12 / n, 0.3, 0.5):

            def draw(rng: np.random.Generator, draws: int, n: int = n, p: float = p) -> Samples:
                return alone(selection(np.arange(n + 1), np.full(n + 1, n)), binomial(n, p))

            yield Cell("rate", f"one rate, n {n}, n p {n * p:.3g}", p, draw)


def differences() -> Iterator[Cell]:
    """Two groups' difference and ratio, enumerated."""
    sizes = ((30, 30), (30, 100), (40, 160), (100, 100))
    chances = ((0.01, 0.01), (0.05, 0.05), (0.05, 0.15), (0.3, 0.4), (0.5, 0.5), (0.9, 0.8))
    for (n, m), (p, q) in itertools.product(sizes, chances):
        for kind in ("difference", "ratio"):
            truth = abs(p - q) if kind == "difference" else min(p, q) / max(p, q)

            def draw(
                rng: np.random.Generator,
                draws: int,
                n: int = n,
                m: int = m,
                p: float = p,
                q: float = q,
                kind: str = kind,
            ) -> Samples:
                a, b = binomial(n, p), binomial(m, q)
                chance, spreads = [], []
                for i, j in itertools.product(np.flatnonzero(a > 1e-6), np.flatnonzero(b > 1e-6)):
                    estimate = selection([i, j], [n, m])
                    found = comparisons("selection_rate", "none", frozenset({kind}), estimate)[0]
                    spreads.append((found.spread(CONFIDENCE), False))
                    chance.append(a[i] * b[j])
                return of_spreads(spreads, np.array(chance), "lower" if kind == "difference" else "higher")

            yield Cell(kind, f"{kind}, {n} and {m} rows, {p} and {q}", truth, draw)


def many_groups() -> Iterator[Cell]:
    """The largest and smallest of many groups, and their difference."""
    for groups, n, p in itertools.product((2, 10, 40), (30, 200), (0.01, 0.05, 0.4)):
        for kind in ("group_max", "group_min", "difference"):

            def draw(
                rng: np.random.Generator, draws: int, groups: int = groups, n: int = n, p: float = p, kind: str = kind
            ) -> Samples:
                spreads = []
                for _ in range(draws):
                    estimate = selection(rng.binomial(n, p, groups), np.full(groups, n))
                    name = frozenset({"difference"}) if kind == "difference" else frozenset({"extreme"})
                    found = {c.metric: c.spread for c in comparisons("s", "none", name, estimate)}
                    spreads.append((found[f"s_{kind}"](CONFIDENCE), False))
                better = "higher" if kind == "group_min" else "lower"
                return of_spreads(spreads, better=better)

            yield Cell(
                "many groups", f"{kind} of {groups} groups of {n} at {p}", 0.0 if kind == "difference" else p, draw, 0.5
            )


def pairs_apart() -> Iterator[Cell]:
    """Many groups of which two differ, the others in the middle or all at one end: the worst cases of the upper end."""
    for groups, n, (p, q) in itertools.product(
        (4, 10, 20, 40), (300, 3000), ((0.475, 0.525), (0.45, 0.55), (0.05, 0.1))
    ):
        for middle in (True, False):
            rates = np.full(groups, (p + q) / 2 if middle else p)
            rates[0], rates[1] = p, q

            def draw(rng: np.random.Generator, draws: int, rates: Array = rates, n: int = n) -> Samples:
                spreads = []
                for _ in range(draws):
                    estimate = selection(rng.binomial(n, rates), np.full(len(rates), n))
                    found = comparisons("s", "none", frozenset({"difference"}), estimate)[0]
                    spreads.append((found.spread(CONFIDENCE), False))
                return of_spreads(spreads)

            where = "middle" if middle else "end"
            yield Cell("pairs apart", f"{groups} groups of {n}, {p} to {q}, others at the {where}", q - p, draw, 0.5)


def f1_scores() -> Iterator[Cell]:
    """F1 of one group, and the difference of a large and a small one."""
    worlds = {"rare": (0.85, 0.05, 0.05, 0.05), "even": (0.4, 0.1, 0.1, 0.4), "low": (0.6, 0.18, 0.2, 0.02)}
    for (name, cells), n in itertools.product(worlds.items(), (30, 100, 1000)):
        truth = 2 * cells[3] / (2 * cells[3] + cells[1] + cells[2])

        def draw(rng: np.random.Generator, draws: int, cells: tuple[float, ...] = cells, n: int = n) -> Samples:
            first = rng.multinomial(n, cells, draws).astype(float)
            totals = Sums(first.sum(axis=1), first, first[:, :, None] * np.eye(4))
            return alone(F1Score().estimate(totals, rng))

        yield Cell("f1", f"F1, {name}, {n} rows", truth, draw, 5)

    for (name, cells), n in itertools.product(worlds.items(), (30, 200)):

        def pair(rng: np.random.Generator, draws: int, cells: tuple[float, ...] = cells, n: int = n) -> Samples:
            spreads = []
            for _ in range(draws):
                first = np.array([rng.multinomial(1000, cells), rng.multinomial(n, cells)], float)
                estimate = F1Score().estimate(Sums(first.sum(axis=1), first, first[:, :, None] * np.eye(4)), rng)
                found = comparisons("f1", "higher", frozenset({"difference"}), estimate)[0]
                spreads.append((found.spread(CONFIDENCE), bool(noted(estimate).any())))
            return of_spreads(spreads)

        yield Cell("f1", f"F1 difference, {name}, 1000 and {n} rows", 0.0, pair, 0.5)


def scores_of(kind: str, area: float, m: int, n: int, rng: np.random.Generator) -> tuple[Array, Array, float]:
    """Scores of m favorable and n unfavorable outcomes whose area under the curve is known."""
    normal = rng.standard_normal
    if kind == "normal":
        return normal(m) + NORMAL.inv_cdf(area) * math.sqrt(2), normal(n), area
    if kind == "wide":
        return 3 * normal(m) + NORMAL.inv_cdf(area) * math.sqrt(10), normal(n), area
    side = np.where(rng.random(m) < area, 5.0, -5.0)  # two kinds of favorable outcomes
    up = NORMAL.cdf(5 / math.sqrt(2))
    return side + normal(m), normal(n), area * up + (1 - area) * (1 - up)


def auc_estimate(groups: list[tuple[Array, Array]], limit: int = 100_000) -> Estimate:
    score = np.concatenate([part for pair in groups for part in pair])
    outcome = np.concatenate(
        [np.full(len(part), side) for pair in groups for part, side in zip(pair, (1.0, 0.0), strict=True)]
    )
    group = np.concatenate([np.full(len(pair[0]) + len(pair[1]), i) for i, pair in enumerate(groups)])
    rows = Rows(outcome=outcome, score=1 / (1 + np.exp(-score)))
    return RocAuc().estimate(Scores(limit=limit).collect(rows, group, len(groups)), np.random.default_rng(0))


def areas() -> Iterator[Cell]:
    """ROC-AUC with few rows of one outcome, and differences."""
    for m, (kind, area) in itertools.product(
        (1, 3, 10, 30, 100), (("normal", 0.5), ("normal", 0.9), ("wide", 0.9), ("two kinds", 0.8), ("two kinds", 0.95))
    ):
        truth = scores_of(kind, area, 1, 1, np.random.default_rng(0))[2]

        def draw(rng: np.random.Generator, draws: int, m: int = m, kind: str = kind, area: float = area) -> Samples:
            parts = [alone(auc_estimate([scores_of(kind, area, m, 500 - m, rng)[:2]])) for _ in range(draws)]
            return Samples(
                *(np.concatenate([getattr(p, f) for p in parts]) for f in ("low", "high", "noted")), None, "none"
            )

        yield Cell("auc", f"ROC-AUC {area}, {kind}, {m} of 500 favorable", truth, draw)
    for m, kind in itertools.product((1, 5, 40), ("normal", "two kinds")):

        def pair(rng: np.random.Generator, draws: int, m: int = m, kind: str = kind) -> Samples:
            spreads = []
            for _ in range(draws):
                estimate = auc_estimate([scores_of(kind, 0.8, k, 500 - k, rng)[:2] for k in (m, 250)])
                found = comparisons("a", "higher", frozenset({"difference"}), estimate)[0]
                spreads.append((found.spread(CONFIDENCE), bool(noted(estimate).any())))
            return of_spreads(spreads)

        yield Cell("auc", f"ROC-AUC difference, {kind}, {m} and 250 of 500 favorable", 0.0, pair)


def sketches() -> Iterator[Cell]:
    """ROC-AUC of more distinct scores than are kept, all of them small."""
    for scale, keep in itertools.product((1e-2, 1e-4, 1e-8), (100, 2000)):

        def draw(rng: np.random.Generator, draws: int, scale: float = scale, keep: int = keep) -> Samples:
            parts = []
            for _ in range(draws // 2):
                outcome = np.repeat([1.0, 0.0], (200, 4800))
                score = scale * np.exp(rng.standard_normal(5000) + NORMAL.inv_cdf(0.8) * math.sqrt(2) * outcome)
                rows = Rows(outcome=outcome, score=np.minimum(score, 1.0))
                table = Scores(limit=keep).collect(rows, np.zeros(5000, dtype=np.int64), 1)
                parts.append(alone(RocAuc().estimate(table, rng)))
            return Samples(
                *(np.concatenate([getattr(p, f) for p in parts]) for f in ("low", "high", "noted")), None, "none"
            )

        yield Cell("sketch", f"ROC-AUC of scores near {scale:g}, {keep} distinct ones kept", 0.8, draw)


def errors() -> Iterator[Cell]:
    """Means of rare and heavy errors; the error is the score itself, the target is 0."""
    normal = lambda rng, n: rng.standard_normal(n)  # noqa: E731 -- a table of populations
    worlds: dict[str, tuple[Callable[[np.random.Generator, int], Array], float, float]] = {
        "normal": (normal, math.sqrt(2 / math.pi), 1.0),
        "exponential": (lambda rng, n: rng.exponential(1, n), 1.0, 2.0),
        "lognormal, sigma 1": (lambda rng, n: np.exp(rng.standard_normal(n)), math.exp(0.5), math.exp(2)),
        "lognormal, sigma 1.5": (lambda rng, n: np.exp(1.5 * rng.standard_normal(n)), math.exp(1.125), math.nan),
        "Student, 3 degrees": (lambda rng, n: rng.standard_t(3, n), 2 * math.sqrt(3) / math.pi, 3.0),
        "Pareto 2.5": (lambda rng, n: rng.pareto(2.5, n) + 1, 2.5 / 1.5, 5.0),
        "1 in n is 20": (lambda rng, n: 20.0 * (rng.random(n) < 1 / n), math.nan, math.nan),
        "3 in n are exponential": (lambda rng, n: rng.exponential(1, n) * (rng.random(n) < 3 / n), math.nan, math.nan),
    }
    for (name, (world, absolute, squared)), n in itertools.product(worlds.items(), (30, 100, 300)):
        rare = {"1 in n is 20": (20 / n, 400 / n), "3 in n are exponential": (3 / n, 6 / n)}
        truths = rare.get(name, (absolute, squared))
        for metric, truth in zip((MeanAbsoluteError(), MeanSquaredError()), truths, strict=True):
            if not math.isfinite(truth):
                continue

            def draw(
                rng: np.random.Generator, draws: int, world: Any = world, n: int = n, metric: Metric = metric
            ) -> Samples:
                parts = []
                for _ in range(draws):
                    rows = Rows(outcome=np.zeros(n), score=world(rng, n))
                    totals = metric.statistic.collect(rows, np.zeros(n, dtype=np.int64), 1)
                    parts.append(alone(metric.estimate(totals, rng)))
                fields = ("low", "high", "noted")
                return Samples(*(np.concatenate([getattr(p, f) for p in parts]) for f in fields), None, "lower")

            kind = "MAE" if isinstance(metric, MeanAbsoluteError) else "MSE"
            yield Cell("means", f"{kind}, errors {name}, {n} rows", truth, draw)


def losses() -> Iterator[Cell]:
    """Log loss and Brier score of calibrated and of confidently wrong scores."""
    for name, n, metric in itertools.product(("calibrated", "wrong 1 in n"), (100, 1000), (LogLoss(), BrierScore())):
        sure = name != "calibrated"
        nodes = np.linspace(0, 1, 20_001)[1:-1]
        beta = nodes * (1 - nodes)
        given = (-np.log(nodes), -np.log1p(-nodes)) if isinstance(metric, LogLoss) else ((1 - nodes) ** 2, nodes**2)
        truth = float((beta * (nodes * given[0] + (1 - nodes) * given[1])).sum() / beta.sum())
        if sure:
            right, wrong = (-math.log(0.99), -math.log(0.01)) if isinstance(metric, LogLoss) else (1e-4, 0.9801)
            truth = right * (1 - 1 / n) + wrong / n

        def draw(
            rng: np.random.Generator, draws: int, sure: bool = sure, n: int = n, metric: Metric = metric
        ) -> Samples:
            parts = []
            for _ in range(draws):
                score = np.full(n, 0.99) if sure else rng.beta(2, 2, n)
                outcome = (rng.random(n) < (1 - 1 / n if sure else score)).astype(float)
                totals = metric.statistic.collect(Rows(outcome=outcome, score=score), np.zeros(n, dtype=np.int64), 1)
                parts.append(alone(metric.estimate(totals, rng)))
            fields = ("low", "high", "noted")
            return Samples(*(np.concatenate([getattr(p, f) for p in parts]) for f in fields), None, "lower")

        yield Cell("means", f"{metric.name}, {name}, {n} rows", truth, draw)


def determinations() -> Iterator[Cell]:
    """R² with normal and heavy errors."""
    worlds: dict[str, Callable[[np.random.Generator, tuple[int, int]], Array]] = {
        "normal": lambda rng, s: rng.standard_normal(s),
        "Student, 3 degrees": lambda rng, s: rng.standard_t(3, s) / math.sqrt(3),
        "exponential": lambda rng, s: rng.exponential(1, s) - 1,
    }
    for (name, world), n, truth in itertools.product(worlds.items(), (30, 100, 300), (0.5, 0.9)):

        def draw(rng: np.random.Generator, draws: int, world: Any = world, n: int = n, truth: float = truth) -> Samples:
            x = rng.standard_normal((draws, n))
            y = x + math.sqrt((1 - truth) / truth) * world(rng, (draws, n))
            rows = Rows(outcome=y.ravel(), score=x.ravel())
            totals = R2Score().statistic.collect(rows, np.repeat(np.arange(draws), n), draws)
            found = alone(R2Score().estimate(totals, rng))
            return Samples(found.low, found.high, found.noted, None, "higher")

        yield Cell("r2", f"R² {truth}, errors {name}, {n} rows", truth, draw)


def weighted() -> Iterator[Cell]:
    """Rates under lognormal, two-valued and inverse-probability weights."""
    for kind, n, p in itertools.product(
        ("lognormal 1", "lognormal 1.5", "20 to 1", "inverse chance"), (30, 100, 300), (0.05, 0.4)
    ):
        truth = p

        def draw(rng: np.random.Generator, draws: int, kind: str = kind, n: int = n, p: float = p) -> Samples:
            size = (draws, n)
            yes = rng.random(size) < p
            if kind.startswith("lognormal"):
                w = np.exp(float(kind.split()[1]) * rng.standard_normal(size))
            elif kind == "20 to 1":
                w = np.where(rng.random(size) < 0.1, 20.0, 1.0)
            else:  # the chance e of being sampled has density proportional to e on (.05, 1); decisions depend on it
                e = np.sqrt(0.05**2 + rng.random(size) * (1 - 0.05**2))
                w, yes = 1 / e, rng.random(size) < np.clip(2 * p * (1 - e) / 0.95, 0, 1)
            rows = Rows(outcome=np.ones(draws * n), decision=yes.ravel().astype(float), weights=w.ravel())
            return alone(SelectionRate().estimate(CONFUSION.collect(rows, np.repeat(np.arange(draws), n), draws), rng))

        yield Cell("weights", f"rate {p}, weights {kind}, {n} rows", truth, draw)


def randomized() -> Iterator[Cell]:
    """Decision probabilities of which few are large."""
    kinds = {
        "between .3 and .7": (0.5, 0.0, 0.0),
        ".01, some .9": (0.01, 0.9, 1.0),
        ".5, some 1": (0.5, 1.0, 1.0),
        ".5, some 0": (0.5, 0.0, 1.0),
    }
    for (name, (base, other, some)), n, expected in itertools.product(kinds.items(), (30, 100, 1000), (0.7, 3, 8)):
        if not some and expected != 3:
            continue
        q = some * expected / n

        def draw(
            rng: np.random.Generator, draws: int, base: float = base, other: float = other, q: float = q, n: int = n
        ) -> Samples:
            size = (draws, n)
            spread = 0.2 if q == 0 else 0.01
            h = np.where(rng.random(size) < q, other, base + rng.uniform(-spread, spread, size))
            rows = Rows(outcome=np.ones(draws * n), decision=h.ravel())
            return alone(SelectionRate().estimate(CONFUSION.collect(rows, np.repeat(np.arange(draws), n), draws), rng))

        yield Cell("randomized", f"chances {name}, {n * q:.1f} of {n} expected", base * (1 - q) + other * q, draw)


def joint() -> Iterator[Cell]:
    """Equalized odds and the distance of score distributions."""
    for n, p in itertools.product((40, 200), (0.02, 0.3)):

        def draw(rng: np.random.Generator, draws: int, n: int = n, p: float = p) -> Samples:
            spreads = []
            for _ in range(draws):
                yes = rng.binomial(n, p, (2, 2)).astype(float)
                first = np.stack([n - yes[:, 0], yes[:, 0], n - yes[:, 1], yes[:, 1]], axis=1)
                totals = Sums(first.sum(axis=1), first, first[:, :, None] * np.eye(4))
                tpr, fpr = TruePositiveRate().estimate(totals, rng), FalsePositiveRate().estimate(totals, rng)
                spreads.append((odds(tpr, fpr)[0].spread(CONFIDENCE), False))
            return of_spreads(spreads)

        yield Cell("joint", f"equalized odds, {n} rows of each outcome at {p}", 0.0, draw, 0.5)
    for n, groups in itertools.product((50, 400), (2, 6)):

        def distance(rng: np.random.Generator, draws: int, n: int = n, groups: int = groups) -> Samples:
            low, high = [], []
            for _ in range(draws):
                rows = Rows(outcome=np.ones(n * groups), score=rng.random(n * groups))
                found = distances(Scores().collect(rows, np.repeat(np.arange(groups), n), groups))
                low.append(found.limits(CONFIDENCE ** (1 / groups))[0].max())
                high.append(found.limits(CONFIDENCE)[1].max())
            return Samples(np.array(low), np.array(high), np.zeros(draws, bool))

        yield Cell("joint", f"distance of scores, {groups} groups of {n}", 0.0, distance, 0.3)


FAMILIES: dict[str, Callable[[], Iterator[Cell]]] = {
    "rate": rates,
    "difference": differences,
    "many groups": many_groups,
    "pairs apart": pairs_apart,
    "f1": f1_scores,
    "auc": areas,
    "sketch": sketches,
    "means": errors,
    "losses": losses,
    "r2": determinations,
    "weights": weighted,
    "randomized": randomized,
    "joint": joint,
}


def run(families: list[str], draws: int, seed: int) -> list[Result]:
    """Measure all cells of some families."""
    found = []
    for family in families:
        for cell in FAMILIES[family]():
            result = measure(cell, seed, draws)
            found.append(result)
            mark = "" if result.holds else "  <-- does not hold"
            print(
                f"{result.name:<58}{result.covers:8.3f}{result.noted:8.3f}{result.kept:8.3f}"
                f"{result.false_pass:8.3f}{result.width:11.4g}{mark}",
                flush=True,
            )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--family", default=",".join(FAMILIES))
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    start = time.process_time()
    print(f"{'cell':<58}{'covers':>8}{'noted':>8}{'kept':>8}{'passes':>8}{'width':>11}")
    found = run(options.family.split(","), options.draws, options.seed)
    kept, passed = min(found, key=lambda r: r.kept), max(found, key=lambda r: r.false_pass)
    broken, seconds = sum(not result.holds for result in found), time.process_time() - start
    print(f"\n{len(found)} cells, {broken} do not hold, {seconds:.0f} s of CPU time")
    print(f"worst coverage: {kept.name}: {kept.kept:.3f}")
    print(f"worst false pass: {passed.name}: {passed.false_pass:.3f}")
    if options.output is not None:
        cells = [asdict(result) | {"holds": result.holds} for result in found]
        options.output.write_text(json.dumps({"draws": options.draws, "seed": options.seed, "cells": cells}, indent=1))
    return int(any(not result.holds for result in found))


if __name__ == "__main__":
    sys.exit(main())
