"""Populations with known truths, to measure the intervals of any library on."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Columns = dict[str, NDArray[Any]]
Draw = Callable[[np.random.Generator], Columns]

Comparison = Literal["level", "difference", "ratio", "group_min", "group_max", "distance"]
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Population:
    """One population and one number of it."""

    family: str  # what it is a corner of
    name: str
    metric: str  # as in fairkit's reports: `selection_rate`, `roc_auc`, ...
    comparison: Comparison
    truth: float  # the number in the population
    draw: Draw

    @property
    def worse(self) -> Literal["lower", "higher", "either"]:
        """Which values a policy wants: an interval that leaves the truth out on that side would pass wrongly."""
        if self.comparison in ("difference", "group_max", "distance"):
            return "lower"
        if self.comparison in ("ratio", "group_min") or self.metric == "r2_score":
            return "higher"
        losses = ("mean_absolute_error", "mean_squared_error", "log_loss", "brier_score", "ecce")
        return "lower" if self.metric in losses else "either"


def populations() -> Iterator[Population]:
    """Yield all populations."""
    for build in (
        *(_rates, _differences, _many_groups, _pairs_apart, _f1_scores, _areas, _means, _determinations),
        *(_weighted, _randomized, _joint, _rare_outcomes, _clusters),
    ):
        yield from build()


@dataclass(frozen=True)
class Decided:
    """Decisions with a chance for each group; all outcomes are favorable."""

    chance: Array
    sizes: NDArray[np.int64]

    def __call__(self, rng: np.random.Generator) -> Columns:
        groups = np.repeat(np.arange(len(self.sizes)), self.sizes)
        return self._columns((rng.random(len(groups)) < self.chance[groups]).astype(np.float64))

    def outcomes(self) -> Iterator[tuple[float, Columns]]:
        """Yield each combination of counts whose groups have a chance above 1e-6, with its chance."""
        pairs = zip(self.sizes.tolist(), self.chance.tolist(), strict=True)
        tables = [[(k, c) for k, c in enumerate(_binomial(n, p)) if c > 1e-6] for n, p in pairs]
        for counts in itertools.product(*tables):
            yes = [np.arange(n) < k for (k, _), n in zip(counts, self.sizes, strict=True)]
            yield math.prod(c for _, c in counts), self._columns(np.concatenate(yes).astype(np.float64))

    def _columns(self, yes: Array) -> Columns:
        groups = np.repeat(np.arange(len(self.sizes)), self.sizes)
        return {"group": groups, "outcome": np.ones(len(groups)), "decision": yes}


def _binomial(n: int, p: float) -> list[float]:
    logs = [math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) for k in range(n + 1)]
    return [math.exp(log + k * math.log(p) + (n - k) * math.log1p(-p)) for k, log in enumerate(logs)]


def _rates() -> Iterator[Population]:
    for n in (30, 50, 100, 300, 1000):
        for p in (0.18 / n, 1 / n, 3 / n, 12 / n, 0.3, 0.5):
            draw = Decided(np.array([p]), np.array([n]))
            name = f"one rate, n {n}, n p {n * p:.3g}"
            yield Population("rate", name, "selection_rate", "level", p, draw)


def _differences() -> Iterator[Population]:
    sizes = ((30, 30), (30, 100), (40, 160), (100, 100))
    chances = ((0.01, 0.01), (0.05, 0.05), (0.05, 0.15), (0.3, 0.4), (0.5, 0.5), (0.9, 0.8))
    for (n, m), (p, q) in itertools.product(sizes, chances):
        draw = Decided(np.array([p, q]), np.array([n, m]))
        name = f"{n} and {m} rows, {p} and {q}"
        yield Population("difference", f"difference, {name}", "selection_rate", "difference", abs(p - q), draw)
        truth = min(p, q) / max(p, q)
        yield Population("difference", f"ratio, {name}", "selection_rate", "ratio", truth, draw)


def _many_groups() -> Iterator[Population]:
    kinds: tuple[Comparison, ...] = ("group_max", "group_min", "difference")
    for groups, n, p, kind in itertools.product((2, 10, 40), (30, 200), (0.01, 0.05, 0.4), kinds):
        draw = Decided(np.full(groups, p), np.full(groups, n))
        truth = 0.0 if kind == "difference" else p
        name = f"{kind} of {groups} groups of {n} at {p}"
        yield Population("many groups", name, "selection_rate", kind, truth, draw)


def _pairs_apart() -> Iterator[Population]:
    ends = ((0.475, 0.525), (0.45, 0.55), (0.05, 0.1))
    for groups, n, (p, q), middle in itertools.product((4, 10, 20, 40), (300, 3000), ends, (True, False)):
        chance = np.full(groups, (p + q) / 2 if middle else p)
        chance[0], chance[1] = p, q
        name = f"{groups} groups of {n}, {p} to {q}, others at the {'middle' if middle else 'end'}"
        draw = Decided(chance, np.full(groups, n))
        yield Population("pairs apart", name, "selection_rate", "difference", q - p, draw)


def _confusion(cells: tuple[float, ...], sizes: tuple[int, ...]) -> Draw:
    """Draw (outcome 0, no), (outcome 0, yes), (outcome 1, no), (outcome 1, yes) in groups that are alike."""
    groups = np.repeat(np.arange(len(sizes)), sizes)

    def draw(rng: np.random.Generator) -> Columns:
        cell = rng.choice(4, len(groups), p=cells)
        return {"group": groups, "outcome": (cell // 2).astype(float), "decision": (cell % 2).astype(float)}

    return draw


def _f1_scores() -> Iterator[Population]:
    worlds = {"rare": (0.85, 0.05, 0.05, 0.05), "even": (0.4, 0.1, 0.1, 0.4), "low": (0.6, 0.18, 0.2, 0.02)}
    for (name, cells), n in itertools.product(worlds.items(), (30, 100, 1000)):
        truth = 2 * cells[3] / (2 * cells[3] + cells[1] + cells[2])
        yield Population("f1", f"F1, {name}, {n} rows", "f1_score", "level", truth, _confusion(cells, (n,)))
    for (name, cells), n in itertools.product(worlds.items(), (30, 200)):
        draw = _confusion(cells, (1000, n))
        label = f"F1 difference, {name}, 1000 and {n} rows"
        yield Population("f1", label, "f1_score", "difference", 0.0, draw)


def _ranked(kind: str, area: float, favorable: tuple[int, ...]) -> Draw:
    """Draw scores of so many favorable outcomes among 500 rows of each group."""
    apart = _NORMAL.inv_cdf(area)

    def one(rng: np.random.Generator, m: int) -> tuple[Array, Array]:
        if kind == "normal":
            return rng.standard_normal(m) + apart * math.sqrt(2), rng.standard_normal(500 - m)
        if kind == "wide":
            return 3 * rng.standard_normal(m) + apart * math.sqrt(10), rng.standard_normal(500 - m)
        side = np.where(rng.random(m) < area, 5.0, -5.0)
        return side + rng.standard_normal(m), rng.standard_normal(500 - m)

    def draw(rng: np.random.Generator) -> Columns:
        parts = [one(rng, m) for m in favorable]
        score = np.concatenate([part for pair in parts for part in pair])
        outcome = np.concatenate([np.repeat([1.0, 0.0], (m, 500 - m)) for m in favorable])
        groups = np.repeat(np.arange(len(favorable)), 500)
        return {"group": groups, "outcome": outcome, "score": 1 / (1 + np.exp(-score))}

    return draw


def _areas() -> Iterator[Population]:
    kinds = (("normal", 0.5), ("normal", 0.9), ("wide", 0.9), ("two kinds", 0.8), ("two kinds", 0.95))
    up = _NORMAL.cdf(5 / math.sqrt(2))
    for m, (kind, area) in itertools.product((1, 3, 10, 30, 100), kinds):
        truth = area if kind != "two kinds" else area * up + (1 - area) * (1 - up)
        name = f"ROC-AUC {area}, {kind}, {m} of 500 favorable"
        yield Population("auc", name, "roc_auc", "level", truth, _ranked(kind, area, (m,)))
    for m, kind in itertools.product((1, 5, 40), ("normal", "two kinds")):
        name = f"ROC-AUC difference, {kind}, {m} and 250 of 500 favorable"
        yield Population("auc", name, "roc_auc", "difference", 0.0, _ranked(kind, 0.8, (m, 250)))
    for scale, kept in itertools.product((1e-2, 1e-4, 1e-8), (100, 2000)):
        name = f"ROC-AUC of scores near {scale:g}, {kept} distinct ones kept"
        yield Population("sketch", name, "roc_auc", "level", 0.8, functools.partial(_small, scale, kept))


def _small(scale: float, kept: int, rng: np.random.Generator) -> Columns:
    outcome = np.repeat([1.0, 0.0], (200, 4800))
    score = scale * np.exp(rng.standard_normal(5000) + _NORMAL.inv_cdf(0.8) * math.sqrt(2) * outcome)
    return {"outcome": outcome, "score": np.minimum(score, 1.0), "kept": np.full(5000, kept)}


Errors = Callable[[np.random.Generator, int], "Array"]
_ERRORS: dict[str, tuple[Errors, float, float]] = {
    "normal": (lambda rng, n: rng.standard_normal(n), math.sqrt(2 / math.pi), 1.0),
    "exponential": (lambda rng, n: rng.exponential(1, n), 1.0, 2.0),
    "lognormal, sigma 1": (lambda rng, n: np.exp(rng.standard_normal(n)), math.exp(0.5), math.exp(2)),
    "lognormal, sigma 1.5": (lambda rng, n: np.exp(1.5 * rng.standard_normal(n)), math.exp(1.125), math.nan),
    "Student, 3 degrees": (lambda rng, n: rng.standard_t(3, n), 2 * math.sqrt(3) / math.pi, 3.0),
    "Pareto 2.5": (lambda rng, n: rng.pareto(2.5, n) + 1, 2.5 / 1.5, 5.0),
    "1 in n is 20": (lambda rng, n: np.where(rng.random(n) < 1 / n, 20.0, 0.0), math.nan, math.nan),
    "3 in n are exponential": (lambda rng, n: rng.exponential(1, n) * (rng.random(n) < 3 / n), math.nan, math.nan),
}


def _erring(errors: Errors, n: int) -> Draw:
    return lambda rng: {"outcome": np.zeros(n), "score": errors(rng, n)}


def _means() -> Iterator[Population]:
    for (name, (errors, absolute, squared)), n in itertools.product(_ERRORS.items(), (30, 100, 300)):
        rare = {"1 in n is 20": (20 / n, 400 / n), "3 in n are exponential": (3 / n, 6 / n)}
        truths = rare.get(name, (absolute, squared))
        for metric, truth in zip(("mean_absolute_error", "mean_squared_error"), truths, strict=True):
            if math.isfinite(truth):
                label = f"{metric}, errors {name}, {n} rows"
                yield Population("means", label, metric, "level", truth, _erring(errors, n))
    for (name, n), metric in itertools.product(
        itertools.product(("calibrated", "wrong 1 in n"), (100, 1000)), ("log_loss", "brier_score")
    ):
        sure, logs = name != "calibrated", metric == "log_loss"
        right, wrong = (-math.log(0.99), -math.log(0.01)) if logs else (1e-4, 0.9801)
        # of calibrated scores from beta(2, 2): E s (1 - s) = 1/5; E of the entropy = 7/12
        truth = right * (1 - 1 / n) + wrong / n if sure else (7 / 12 if logs else 0.2)
        draw = functools.partial(_probabilities, n, sure)
        yield Population("means", f"{metric}, {name}, {n} rows", metric, "level", truth, draw)


def _probabilities(n: int, sure: bool, rng: np.random.Generator) -> Columns:
    score = np.full(n, 0.99) if sure else rng.beta(2, 2, n)
    return {"outcome": (rng.random(n) < (1 - 1 / n if sure else score)).astype(float), "score": score}


def _determinations() -> Iterator[Population]:
    worlds: dict[str, Errors] = {
        "normal": lambda rng, n: rng.standard_normal(n),
        "Student, 3 degrees": lambda rng, n: rng.standard_t(3, n) / math.sqrt(3),
        "exponential": lambda rng, n: rng.exponential(1, n) - 1,
    }
    for (name, errors), n, truth in itertools.product(worlds.items(), (30, 100, 300), (0.5, 0.9)):
        draw = functools.partial(_explained, errors, n, math.sqrt((1 - truth) / truth))
        yield Population("r2", f"R² {truth}, errors {name}, {n} rows", "r2_score", "level", truth, draw)


def _explained(errors: Errors, n: int, scale: float, rng: np.random.Generator) -> Columns:
    x = rng.standard_normal(n)
    return {"outcome": x + scale * errors(rng, n), "score": x}


def _weighted() -> Iterator[Population]:
    kinds = ("lognormal 1", "lognormal 1.5", "20 to 1", "inverse chance")
    for kind, n, p in itertools.product(kinds, (30, 100, 300), (0.05, 0.4)):
        draw = functools.partial(_weighing, kind, n, p)
        name = f"rate {p}, weights {kind}, {n} rows"
        yield Population("weights", name, "selection_rate", "level", p, draw)


def _weighing(kind: str, n: int, p: float, rng: np.random.Generator) -> Columns:
    yes = rng.random(n) < p
    if kind.startswith("lognormal"):
        weight = np.exp(float(kind.split()[1]) * rng.standard_normal(n))
    elif kind == "20 to 1":
        weight = np.where(rng.random(n) < 0.1, 20.0, 1.0)
    else:  # the chance e of being sampled has density proportional to e on (.05, 1); decisions depend on it
        e = np.sqrt(0.05**2 + rng.random(n) * (1 - 0.05**2))
        weight, yes = 1 / e, rng.random(n) < np.clip(2 * p * (1 - e) / 0.95, 0, 1)
    return {"outcome": np.ones(n), "decision": yes.astype(float), "weight": weight}


def _randomized() -> Iterator[Population]:
    kinds = {
        "between .3 and .7": (0.5, 0.0, 0.0),
        ".01, some .9": (0.01, 0.9, 1.0),
        ".5, some 1": (0.5, 1.0, 1.0),
        ".5, some 0": (0.5, 0.0, 1.0),
    }
    for (name, (base, alternative, some)), n, expected in itertools.product(
        kinds.items(), (30, 100, 1000), (0.7, 3, 8)
    ):
        if some or expected == 3:
            q = some * expected / n
            label, truth = f"chances {name}, {n * q:.1f} of {n} expected", base * (1 - q) + alternative * q
            draw = functools.partial(_chances, n, q, base, alternative)
            yield Population("randomized", label, "selection_rate", "level", truth, draw)


def _chances(n: int, q: float, base: float, other: float, rng: np.random.Generator) -> Columns:
    spread = 0.2 if q == 0 else 0.01
    chance = np.where(rng.random(n) < q, other, base + rng.uniform(-spread, spread, n))
    return {"outcome": np.ones(n), "decision": chance}


def _joint() -> Iterator[Population]:
    for n, p in itertools.product((40, 200), (0.02, 0.3)):
        name = f"equalized odds, {n} rows of each outcome at {p}"
        draw = functools.partial(_both_outcomes, n, p)
        yield Population("joint", name, "equalized_odds", "difference", 0.0, draw)
    for n, groups in itertools.product((50, 400), (2, 6)):
        draw = functools.partial(_scored, n, groups)
        name = f"distance of scores, {groups} groups of {n}"
        yield Population("joint", name, "statistical_parity_ks", "distance", 0.0, draw)


def _both_outcomes(n: int, p: float, rng: np.random.Generator) -> Columns:
    columns = {"group": np.repeat([0, 1], 2 * n), "outcome": np.tile(np.repeat([0.0, 1.0], n), 2)}
    return columns | {"decision": (rng.random(4 * n) < p).astype(float)}


def _scored(n: int, groups: int, rng: np.random.Generator) -> Columns:
    size = n * groups
    return {"group": np.repeat(np.arange(groups), n), "outcome": np.ones(size), "score": rng.random(size)}


def _rare_outcomes() -> Iterator[Population]:
    """Calibrated scores with rare outcomes, rounded scores, and clusters of which a few have most rows."""
    for n, mean in itertools.product((200, 1000, 5000), (0.002, 0.01, 0.1)):
        name = f"ECCE, calibrated scores near {mean}, {n} rows"
        yield Population("rare", name, "ecce", "level", 0.0, functools.partial(_calibrated, n, mean, (1,)))
    for n, mean in itertools.product((500, 2000), (0.01, 0.1)):
        name = f"ECCE difference, calibrated scores near {mean}, {n} rows"
        draw = functools.partial(_calibrated, n, mean, (0.5, 0.5))
        yield Population("rare", name, "ecce", "difference", 0.0, draw)
    for n, wrong in itertools.product((200, 1000), (0.001, 0.004)):
        truth = 0.8 * wrong * 52 * math.log(2) + 0.2 * math.log(2)
        name = f"log loss, four in five scores rounded to 0 or 1, {wrong} of them wrong, {n} rows"
        draw = functools.partial(_rounded, n, wrong)
        yield Population("rare", name, "log_loss", "level", truth, draw)


def _calibrated(n: int, mean: float, shares: tuple[float, ...], rng: np.random.Generator) -> Columns:
    score = rng.beta(2, 2 / mean - 2, n)
    group = rng.choice(len(shares), n, p=shares)
    return {"group": group, "outcome": (rng.random(n) < score).astype(float), "score": score}


def _rounded(n: int, wrong: float, rng: np.random.Generator) -> Columns:
    sure, outcome = rng.random(n) < 0.8, (rng.random(n) < 0.5).astype(float)
    score = np.where(rng.random(n) < wrong, 1 - outcome, outcome)
    return {"outcome": outcome, "score": np.where(sure, score, 0.5)}


def _clusters() -> Iterator[Population]:
    shapes = {"equal": np.full(60, 8), "a tenth have half": np.r_[np.full(6, 72), np.full(54, 8)],
              "five have most": np.r_[np.full(5, 100), np.full(45, 4)]}  # fmt: skip
    for (name, sizes), correlation, metric in itertools.product(
        shapes.items(), (0.05, 0.5), ("selection_rate", "brier_score")
    ):
        truth = 0.3 if metric == "selection_rate" else 0.3 * 0.7
        draw = functools.partial(_dependent, sizes, correlation)
        label = f"{metric}, 50 to 60 clusters, {name}, correlation {correlation}"
        yield Population("clusters", label, metric, "level", truth, draw)


def _dependent(sizes: NDArray[np.int64], correlation: float, rng: np.random.Generator) -> Columns:
    scale = 1 / correlation - 1
    cluster = np.repeat(np.arange(len(sizes)), sizes)
    chance = rng.beta(0.3 * scale, 0.7 * scale, len(sizes))[cluster]
    yes = (rng.random(len(cluster)) < chance).astype(float)
    return {"outcome": yes, "decision": yes, "score": np.full(len(yes), 0.3), "cluster": cluster}
