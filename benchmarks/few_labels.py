"""Whether intervals from few labels cover the truth, and how wide they are: the product's own functions.

    python benchmarks/few_labels.py intervals [--draws 1000]   # 84 populations x 5 rates: cover, width over today's
    python benchmarks/few_labels.py designs [--draws 300]      # 24 settings: two stages against labels at random
    python benchmarks/few_labels.py weights [--draws 300]      # row weights, and labels drawn by score: 20 rates
    python benchmarks/few_labels.py explored [--draws 300]     # accepted all known, some refused explored at random
    python benchmarks/few_labels.py leaning [--draws 1000]     # how often labels that lean by score are refused
    python benchmarks/few_labels.py odds [--draws 300]         # outcome 1 labelled at 1.5 times the odds in one group
    python benchmarks/few_labels.py real [--draws 100]         # Adult, ACSIncome and credit default in ../shared/data

Differences between two groups (max - min of all groups for the real tables). "Today" is what an audit of the labelled
rows alone gives. A cover below .94 by more than two of its own Monte Carlo errors is marked with a star.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fairkit.few_labels import LabelTotals, few_label_estimate, label_totals, leaning, shares_of
from fairkit.intervals import Spread, difference_limits, guarded, spread_difference, two_sided
from fairkit.metrics import CONFUSION, Metric
from fairkit.planning.run import allocate
from fairkit.statistics import Rows
from fairkit_group.rates import Accuracy, F1Score, FalsePositiveRate, Precision, Rate, TruePositiveRate

Array = np.ndarray
SCORES = ("useless", "calibrated", "apart", "perfect", "biased", "reversed", "hump")
SIZES = ((2_000, 200), (10_000, 500), (50_000, 2_000))


class BaseRate(Rate):
    """The share of favorable outcomes."""

    name = "base_rate"
    over, counted = (1, 1, 1, 1), (0, 0, 1, 1)


RATES: tuple[Metric, ...] = (TruePositiveRate(), FalsePositiveRate(), Accuracy(), Precision(), BaseRate())


@dataclass
class People:
    """Rows of a population."""

    group: Array
    chance: Array  # P(Y=1)
    outcome: Array
    decision: Array
    score: Array


def population(n: int, small: float, base: float, kind: str, rng: np.random.Generator) -> People:
    """Draw rows: a chance from a logit-normal law, a decision from it or from a noisy reading, and a score."""
    group = (rng.random(n) < small).astype(np.int64)
    shift = {0.3: -1.05, 0.05: -4.05}[base]
    logit = shift + 1.6 * rng.standard_normal(n) - 0.3 * group
    chance = 1 / (1 + np.exp(-logit))
    outcome = (rng.random(n) < chance).astype(float)
    noisy = logit + 1.2 * rng.standard_normal(n)
    cut = shift + {0.3: 0.7, 0.05: 1.5}[base]
    decision = ((logit if kind == "calibrated" else noisy) > cut + 0.4 * group).astype(float)
    score = chance
    if kind == "useless":
        score = rng.random(n)
    elif kind == "perfect":
        score = outcome
    elif kind == "almost":  # looks perfect, and is 1 % wrong
        score = np.where(rng.random(n) < 0.01, 1 - outcome, outcome)
    elif kind == "biased":
        score = 1 / (1 + np.exp(-(logit + 2 * group)))
    elif kind == "reversed":
        score = np.where(group == 1, 1 - chance, chance)
    elif kind == "hump":
        score = np.abs(2 * chance - 0.6) / 1.4
    return People(group, chance, outcome, decision, score)


def truth_of(people: People, groups: int = 2, of: Callable[[Array], float] = np.ptp) -> dict[str, float]:
    """Return max - min of every rate in a population, from its chances; or another function of the groups' rates."""
    cells = np.empty((groups, 4))
    for g in range(groups):
        here = people.group == g
        mu, d = people.chance[here], people.decision[here]
        cells[g] = [((1 - mu) * (1 - d)).sum(), ((1 - mu) * d).sum(), (mu * (1 - d)).sum(), (mu * d).sum()]
    return {m.name: float(of(m.compute(cells))) for m in (*RATES, F1Score())}


def totals_of(people: People, known: Array, groups: int = 2, **more: Any) -> LabelTotals:
    """Total rows as an audit does."""
    return label_totals(people.group, groups, people.decision, people.outcome, known, score=people.score, **more)


def today_of(metric: Metric, people: People, known: Array, groups: int = 2, weights: Array | None = None) -> Any:
    """Return the metric of the labelled rows alone, as an audit of them."""
    rows = Rows(
        outcome=people.outcome[known], decision=people.decision[known],
        weights=None if weights is None else weights[known],
    )  # fmt: skip
    return metric.estimate(CONFUSION.collect(rows, people.group[known], groups), np.random.default_rng(0))


def at_random(n: int, m: int, rng: np.random.Generator) -> Array:
    """Return m of n rows."""
    known = np.zeros(n, dtype=bool)
    known[rng.choice(n, m, replace=False)] = True
    return known


class Tally:
    """Covers and widths by setting."""

    def __init__(self) -> None:
        self.hits: dict[Any, list[bool]] = defaultdict(list)
        self.widths: dict[Any, list[tuple[float, float]]] = defaultdict(list)

    def add(self, key: Any, spread: Any, truth: float, today: Any = None) -> None:
        """Add one draw."""
        if not math.isfinite(spread.value):
            return
        self.hits[key].append(spread.low - 1e-12 <= truth <= spread.high + 1e-12)
        if today is not None and math.isfinite(today.value):
            self.widths[key].append((spread.high - spread.low, today.high - today.low))

    def cover(self, key: Any) -> tuple[float, bool]:
        """Return the cover, and whether it is below .94 by more than two Monte Carlo errors."""
        hits = self.hits[key]
        share = float(np.mean(hits)) if hits else math.nan
        return share, share < 0.94 - 2 * math.sqrt(0.94 * 0.06 / max(len(hits), 1))

    def ratio(self, key: Any) -> float:
        """Return the mean width over today's mean width."""
        widths = np.array(self.widths[key])
        return float(widths[:, 0].mean() / widths[:, 1].mean()) if len(widths) else math.nan

    def report(self, by: Callable[[Any], Any] | None = None) -> None:
        """Print every setting below, and means."""
        covers = {key: self.cover(key) for key in self.hits}
        ratios = {key: self.ratio(key) for key in self.widths}
        shares = np.array([share for share, _ in covers.values()])
        below = [key for key, (_, low) in covers.items() if low]
        print(f"{len(covers)} settings: cover mean {shares.mean():.3f}, least {shares.min():.3f}; below: {len(below)}")
        for key in below:
            print(f"  * {key}: {covers[key][0]:.3f} of {len(self.hits[key])}")
        if ratios:
            known = {k: r for k, r in ratios.items() if math.isfinite(r)}
            worst = max(known, key=known.__getitem__)
            print(f"ratio mean {np.mean(list(known.values())):.3f}, largest {known[worst]:.3f} {worst}")
            for key, ratio in known.items():
                if ratio > 1.02:
                    print(f"  > {key}: {ratio:.3f}")
            if by is not None:
                groups = defaultdict(list)
                for key, ratio in known.items():
                    groups[by(key)].append(ratio)
                for name, values in groups.items():
                    print(f"  {name}: {np.mean(values):.3f} ({min(values):.2f}-{max(values):.2f})")


def intervals(draws: int, seed: int) -> None:
    """84 populations x 5 rates (and F1), labels at random."""
    tally = Tally()
    settings = itertools.product(SIZES, (0.5, 0.04), (0.3, 0.05), SCORES)
    for number, ((n, m), small, base, kind) in enumerate(settings):
        rng = np.random.default_rng([seed, number])
        truth = truth_of(population(2_000_000, small, base, kind, rng))
        for _ in range(draws):
            people = population(n, small, base, kind, rng)
            known = at_random(n, m, rng)
            totals, even = totals_of(people, known), np.ones(2, dtype=bool)
            shares = shares_of(totals)
            for metric in (*RATES, F1Score()):
                today = today_of(metric, people, known)
                made = few_label_estimate(metric, totals, today, even, shares)
                own = spread_difference(today.values, today.limits, 0.95)
                tally.add((metric.name, kind, n, small, base), spread_difference(made.values, made.limits, 0.95),
                          truth[metric.name], own)  # fmt: skip
    tally.report(by=lambda key: key[:2])


def two_stages(people: People, budget: int, metric: str, rng: np.random.Generator, groups: int = 2) -> Array:
    """Return the rows that two stages label: `fairkit plan` allocates, labels of the first are looked at."""
    pair = 2 * people.group + people.decision.astype(np.int64)
    rows = np.bincount(pair, minlength=2 * groups).reshape(groups, 2)
    order = rng.permutation(len(pair))
    known = np.zeros(len(pair), dtype=bool)
    first = allocate(rows, budget, [metric])
    _label(known, order, pair, first)
    yes = np.bincount(pair[known], people.outcome[known], 2 * groups).reshape(groups, 2)
    _label(known, order, pair, allocate(rows, budget, [metric], first, yes))
    return known


def _label(known: Array, order: Array, pair: Array, wanted: Array) -> None:
    for number, count in enumerate(wanted.ravel()):
        free = order[(pair[order] == number) & ~known[order]]
        known[free[:count]] = True


def designs(draws: int, seed: int) -> None:
    """24 settings of two stages, against labels at random on other draws of the same population."""
    tally, signed = Tally(), Tally()
    names = {"equal_opportunity_difference": TruePositiveRate(), "false_positive_rate_difference": FalsePositiveRate()}
    settings = itertools.product(
        ("useless", "calibrated", "reversed"), (0.3, 0.05), (0.5, 0.04), ((20_000, 500), (50_000, 1_500))
    )
    for number, (kind, base, small, (n, m)) in enumerate(settings):
        rng = np.random.default_rng([seed, number])
        large = population(2_000_000, small, base, kind, rng)
        truth, way = truth_of(large), truth_of(large, of=lambda rates: rates[0] - rates[1])
        for _ in range(draws):
            people = population(n, small, base, kind, rng)
            plain = at_random(n, m, rng)
            for rule, metric in names.items():
                known = two_stages(people, m, rule, rng)
                made = few_label_estimate(metric, totals_of(people, known), None, np.zeros(2, dtype=bool))
                today = today_of(metric, people, plain)
                own = spread_difference(today.values, today.limits, 0.95)
                key = (metric.name, small, kind, base, m)
                tally.add(key, spread_difference(made.values, made.limits, 0.95), truth[metric.name], own)
                signed.add(key, _signed(made), way[metric.name], _signed(today))
    tally.report(by=lambda key: (key[0], key[1], key[3]))
    print("signed difference of the two groups, [-1, 1] where a group has no counted label")
    signed.report(by=lambda key: (key[0], key[1], key[3]))


def _signed(estimate: Any) -> Spread:
    """Return the difference of two groups with its interval, which is not cut at 0 as that of max - min is."""
    if not np.isfinite(estimate.values).all():
        return Spread(0.0, -1.0, 1.0)
    a, b = np.array([0]), np.array([1])
    (low,), (high,) = difference_limits(estimate.values, estimate.limits, two_sided(guarded(0.95)), a, b)
    return Spread(float(estimate.values[0] - estimate.values[1]), float(low), float(high))


def weights(draws: int, seed: int) -> None:
    """Log-normal weights, tied to risk or not, with labels at random or by score."""
    tally = Tally()
    for number, (tied, by_score) in enumerate(itertools.product((False, True), repeat=2)):
        rng = np.random.default_rng([seed, 700 + number])
        large = population(2_000_000, 0.4, 0.3, "apart", rng)
        for _ in range(draws):
            people = population(10_000, 0.4, 0.3, "apart", rng)
            chance = np.full(10_000, 0.06) if not by_score else 0.02 + 0.1 * people.score
            known = rng.random(10_000) < chance
            w = np.exp(0.5 * rng.standard_normal(10_000) + (people.chance if tied else 0))
            totals = totals_of(people, known, weights=w, chance=chance)
            truth = truth_of(large) if not tied else _weighted_truth(large)
            for metric in RATES:
                made = few_label_estimate(metric, totals, None, np.zeros(2, dtype=bool))
                spread = spread_difference(made.values, made.limits, 0.95)
                tally.add((metric.name, tied, by_score), spread, truth[metric.name])
    tally.report()


def _weighted_truth(people: People) -> dict[str, float]:
    w = np.exp(people.chance)
    cells = np.empty((2, 4))
    for g in range(2):
        here = people.group == g
        mu, d, v = people.chance[here], people.decision[here], w[here]
        cells[g] = [
            (v * (1 - mu) * (1 - d)).sum(),
            (v * (1 - mu) * d).sum(),
            (v * mu * (1 - d)).sum(),
            (v * mu * d).sum(),
        ]
    return {m.name: float(np.ptp(m.compute(cells))) for m in RATES}


def explored(draws: int, seed: int) -> None:
    """Accepted all known; so many refused of each group explored at random: the mean width of the difference."""
    print("explored   TPR    FPR    accuracy: width (cover)")
    for m in (10, 25, 50, 100, 200, 400):
        tally = Tally()
        rng = np.random.default_rng([seed, m])
        truth = truth_of(population(2_000_000, 0.5, 0.3, "calibrated", rng))
        for _ in range(draws):
            people = population(10_000, 0.5, 0.3, "calibrated", rng)
            known = people.decision > 0
            for g in range(2):
                known[rng.choice(np.flatnonzero((people.group == g) & (people.decision == 0)), m, replace=False)] = True
            totals = totals_of(people, known)
            for metric in RATES[:3]:
                made = few_label_estimate(metric, totals, None, np.zeros(2, dtype=bool))
                spread = spread_difference(made.values, made.limits, 0.95)
                tally.add(metric.name, spread, truth[metric.name], spread)
        shown = [f"{np.mean(tally.widths[r.name]):.2f} ({tally.cover(r.name)[0]:.3f})" for r in RATES[:3]]
        print(f"{m:8}   {'   '.join(shown)}")


def leaning_labels(draws: int, seed: int) -> None:
    """How often the check refuses labels at random, and labels that lean twofold to high scores or to an outcome."""
    rng = np.random.default_rng(seed)
    refused: dict[str, list[bool]] = defaultdict(list)
    for _ in range(draws):
        people = population(10_000, 0.5, 0.3, "apart", rng)
        high = people.score > np.median(people.score)
        for name, lean in (("random", np.ones(10_000)), ("score", 1.0 + high), ("outcome", 1 + 0.5 * people.outcome)):
            known = np.zeros(10_000, dtype=bool)
            known[rng.choice(10_000, 600, replace=False, p=lean / lean.sum())] = True
            p, _ = leaning(totals_of(people, known), np.ones(2, dtype=bool))
            refused[name].append(p is not None and p < 0.001)
    for name, seen in refused.items():
        print(f"labels by {name}: refused {np.mean(seen):.4f}")


def odds(draws: int, seed: int) -> None:
    """Outcome 1 labelled at 1.5 times the odds in one group: cover and width with Γ = 1 and Γ = 1.5."""
    from dataclasses import replace

    tally = Tally()
    rng = np.random.default_rng(seed)
    truth = truth_of(population(2_000_000, 0.5, 0.3, "apart", rng))
    for _ in range(draws):
        people = population(10_000, 0.5, 0.3, "apart", rng)
        chance = 0.05 * np.where((people.outcome > 0) & (people.group == 1), 1.5, 1.0)
        totals = totals_of(people, rng.random(10_000) < chance)
        for gamma, metric in itertools.product((1.0, 1.5), RATES[:2]):
            shares = replace(shares_of(totals), odds=gamma)
            made = few_label_estimate(metric, totals, None, np.zeros(2, dtype=bool), shares)
            spread = spread_difference(made.values, made.limits, 0.95)
            tally.add((metric.name, gamma), spread, truth[metric.name], spread)
    for key in tally.hits:
        print(key, f"cover {tally.cover(key)[0]:.3f}, width {np.mean(tally.widths[key]):.3f}")


def real(draws: int, seed: int) -> None:
    """Three public tables, two models, two columns: 500 labels at random, and in equal numbers by group x decision."""
    tally, spread_out = Tally(), Tally()
    for table, model, column, people, groups in _tables(seed):
        truth = {}
        cells = CONFUSION.collect(
            Rows(outcome=people.outcome, decision=people.decision), people.group, groups
        ).first  # fmt: skip
        for metric in (*RATES[:4],):
            truth[metric.name] = float(np.ptp(metric.compute(cells)))
        rng = np.random.default_rng([seed, len(tally.hits)])
        pair = 2 * people.group + people.decision.astype(np.int64)
        for _ in range(draws):
            known, spread = at_random(len(pair), 500, rng), np.zeros(len(pair), dtype=bool)
            _label(spread, rng.permutation(len(pair)), pair, np.full(2 * groups, 500 // (2 * groups)))
            for metric in RATES[:4]:
                today = today_of(metric, people, known, groups)
                own = spread_difference(today.values, today.limits, 0.95)
                key = (metric.name, table, model, column)
                for kept, labels, even in ((tally, known, True), (spread_out, spread, False)):
                    totals = totals_of(people, labels, groups)
                    made = few_label_estimate(metric, totals, today if even else None, np.full(groups, even))
                    kept.add(key, spread_difference(made.values, made.limits, 0.95), truth[metric.name], own)
    for name, kept in (("at random", tally), ("spread over group x decision", spread_out)):
        print(name)
        kept.report(by=lambda key: key[0])


def _tables(seed: int) -> Iterator[tuple[str, str, str, People, int]]:
    import lightgbm as lgb
    import pyarrow.parquet as pq
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    named = {
        "adult": ("income", ">50K", "sex", "race"),
        "acs_income": ("PINCP", None, "SEX", "RAC1P"),
        "credit_default": ("default", None, "SEX", "EDUCATION"),
    }
    for table, (outcome, good, *sensitive) in named.items():
        frame = pq.read_table(folder / f"{table}.parquet").to_pandas()
        columns = {name.lower(): name for name in frame.columns}
        label = next(columns[c] for c in columns if c.startswith(outcome.lower()))
        two, three = (next(columns[c] for c in columns if c == name.lower()) for name in sensitive)
        rng = np.random.default_rng(seed)
        frame = frame.iloc[rng.permutation(len(frame))[:40_000]].reset_index(drop=True)
        values = frame[label]
        y = (
            values.astype(str).str.contains(good) if good else values.astype(float) > values.astype(float).min()
        ).astype(float)
        if good is None and values.nunique() > 2:
            y = (values > 50_000).astype(float)
        x = frame.drop(columns=[label]).apply(
            lambda c: c.astype("category").cat.codes if c.dtype.kind not in "if" else c
        )
        x = x.fillna(-1).to_numpy(float)
        half = len(x) // 2
        top = frame[three].value_counts().index[:3]
        for model in ("boosting", "logistic"):
            if model == "boosting":
                fitted = lgb.LGBMClassifier(n_estimators=100, verbose=-1, n_jobs=1).fit(x[:half], y[:half])
                score = fitted.predict_proba(x[half:])[:, 1]
            else:
                scaler = StandardScaler().fit(x[:half])
                fitted = LogisticRegression(max_iter=500).fit(scaler.transform(x[:half]), y[:half])
                score = fitted.predict_proba(scaler.transform(x[half:]))[:, 1]
            truth, decision = y[half:].to_numpy(), (score >= 0.5).astype(float)
            for column, kept in ((two, frame[two].unique()[:2]), (three, top)):
                here = frame[column][half:].isin(kept).to_numpy()
                codes = frame[column][half:].map({value: i for i, value in enumerate(kept)}).to_numpy()
                people = People(codes[here].astype(np.int64), truth[here], truth[here], decision[here], score[here])
                yield table, model, column, people, len(kept)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"intervals": intervals, "designs": designs, "weights": weights, "explored": explored,
             "leaning": leaning_labels, "odds": odds, "real": real}  # fmt: skip
    parser.add_argument("part", choices=parts)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    print(f"{chosen.part}: {chosen.draws} draws, seed {chosen.seed}")
    parts[chosen.part](chosen.draws, chosen.seed)
