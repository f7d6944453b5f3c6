"""Do the intervals of `why` cover? Draws from public tables, from cells of two groups, and from known regressions.

    python benchmarks/why_coverage.py columns|clusters|totals|allowed [--draws 100] [--jobs 2]

``columns``: a model is trained on one half of a table (FAIRKIT_DATA); rows of the other half are the population, groups
are drawn from it with replacement, and the truth is the population's own attribution. 36 settings: Adult, ACS, Adult
with three columns twice; scores, decisions at 25 % and 4 %; 30+40, 200+80, 40+2000 and 1000+300 rows. ``clusters``: the
same with rows that come in copies of five. ``totals``: 24 settings of base rate and rates. ``allowed``: 15 settings of
a regression with known answers. Printed: the least and the mean share of draws that cover, and for columns the share in
which all intervals do.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

import fairkit
from fairkit.data.loading import load_data
from fairkit.data.table import Table
from fairkit.fitted import Run
from fairkit.settings import ModelOptions
from fairkit_onnx.file import OnnxModel
from fairkit_repair.learners import fit_learner
from fairkit_watch.counting import Cells, parts_of
from fairkit_why.chart import Pair
from fairkit_why.conditional_gap import FOLDS, Comparison, Design, unexplained
from fairkit_why.exact_trees import read_exact

SIZES = [(30, 40), (200, 80), (40, 2000), (1000, 300)]
LEVELS = {"score": None, "decision 25 %": 0.25, "decision 4 %": 0.04}


def tables(name):
    """Return a table, its label, the favorable value, the sensitive column and the features."""
    folder = Path(os.environ.get("FAIRKIT_DATA", "shared/data"))
    if name == "ACS":
        frame = pd.read_parquet(folder / "acs_income.parquet").sample(40_000, random_state=0)
        label = next(c for c in ("PINCP", "income", "label", "target") if c in frame)
        y = frame[label]
        frame["y"] = ((y > 50_000) if y.dtype.kind in "if" and y.nunique() > 2 else y == y.max()).astype(int)
        frame = frame.drop(columns=[label, "row_index", "split"], errors="ignore").reset_index(drop=True)
        return frame, "SEX"
    frame = pd.read_parquet(folder / "adult.parquet").drop(columns=["fnlwgt", "education", "split"], errors="ignore")
    frame["y"] = frame.pop("income").astype(str).str.contains(">50K").astype(int)
    for column in frame.select_dtypes(exclude="number"):
        frame[column] = frame[column].astype(str).astype(object)
    if name == "Adult doubled":
        for column in ("relationship", "marital-status", "capital-gain"):
            frame[f"{column} again"] = frame[column]
    return frame.reset_index(drop=True), "sex"


class Population:
    """Half of a table, the model of the other half, and what the model says about it."""

    def __init__(self, name, share):
        frame, sensitive = tables(name)
        half = np.random.default_rng(0).random(len(frame)) < 0.5
        features = [c for c in frame.columns if c != "y"]
        data = load_data(frame[half], label="y", favorable=1, sensitive=[sensitive], features=features)
        model = fit_learner("lightgbm", Table.from_dataset(data), Run(seed=0, threads=1))
        held = load_data(frame[~half], label="y", favorable=1, sensitive=[sensitive], features=features)
        columns = held.read(features).columns(features)
        if share is not None:
            model = dataclasses.replace(model, threshold=float(np.quantile(model.predict(columns).score, 1 - share)))
        held.learn()
        self.scorer = OnnxModel.load(model.to_onnx().SerializeToString()).bind(held, ModelOptions())
        self.data, self.columns = held, columns
        codes = columns[sensitive]
        kinds = np.unique(codes.astype(str))
        self.groups = [np.flatnonzero(codes.astype(str) == kind) for kind in kinds[:2]]
        said = self.scorer.predict(columns)
        self.decision, self.score = said.decision, said.score
        self.players = [(name,) for name in self.scorer.columns]
        self.exact = read_exact(self.scorer, {n: v[:3] for n, v in columns.items()}, self.players)
        self.codes = self.exact.prepare(self.columns)
        self.context = SimpleNamespace(scorer=self.scorer)

    def divided(self, rows, kind, calls, seed, clusters=None):
        """Divide the gap between rows of both groups."""
        every = np.concatenate(rows)
        numbers = {"decision": self.decision[every], "score": self.score[every], "clusters": clusters}
        people = SimpleNamespace(number=numbers.get, hashes=np.array([seed], dtype=np.uint64))
        places = np.arange(len(rows[0])), np.arange(len(rows[0]), len(every))
        pair = Pair(people, "s", "a", "b", places, True)
        if kind == "score":
            return pair.exactly(self.exact, self.codes[:, every], "score", tuple(n for (n,) in self.players))
        columns = {name: values[every] for name, values in self.columns.items() if name in self.scorer.columns}
        return pair.by_walks(self.context, "decision", columns, self.players, calls)


def columns(draws, calls, *, copies=1):
    """Print the coverage of columns' parts."""
    for name, (level, share) in itertools.product(("Adult", "ACS", "Adult doubled"), LEVELS.items()):
        people = Population(name, share)
        kind = "score" if share is None else "decision"
        truth = people.divided(people.groups, kind, 6_000_000, 0)
        for sizes in SIZES if copies == 1 else SIZES[-1:]:
            start, hits, width = time.perf_counter(), [], []
            for draw in range(draws):
                rng = np.random.default_rng([draw, *sizes])
                rows = [rng.choice(g, n // copies).repeat(copies) for g, n in zip(people.groups, sizes, strict=True)]
                clusters = None
                if copies > 1:
                    clusters = rng.permutation(1024)[np.arange(sum(map(len, rows))) // copies % 1024].astype(float)
                found = people.divided(rows, kind, calls, draw, clusters)
                away = np.abs(found.values - truth.values)
                half = found.sure.half_width(0.95)
                used = truth.values != 0
                at_once = found.sure.half_width(1 - 0.05 / len(half))
                hits.append([*(away <= half)[used], (away <= at_once)[used].all()])
                width.append(half[used].mean())
            hits = np.mean(hits, axis=0)
            print(
                f"{name:14} {level:14} {sizes[0]:5}+{sizes[1]:<5} least {hits[:-1].min():.3f} mean "
                f"{hits[:-1].mean():.3f} at once {hits[-1]:.3f} half width {np.mean(width):.4f} "
                f"({(time.perf_counter() - start) / draws:.2f} s a draw)",
                flush=True,
            )


def totals(draws):
    """Print the coverage of the parts of rates."""
    rates = [((0.4, 0.8, 0.1), (0.3, 0.75, 0.12)), ((0.1, 0.6, 0.02), (0.2, 0.7, 0.05)),
             ((0.5, 0.95, 0.3), (0.5, 0.95, 0.3)), ((0.9, 0.9, 0.1), (0.1, 0.1, 0.9)),
             ((0.05, 0.5, 0.01), (0.05, 0.4, 0.01)), ((0.3, 0.99, 0.01), (0.6, 0.97, 0.02))]  # fmt: skip
    for (a, b), (n, m) in itertools.product(rates, [(50, 40), (200, 100), (1000, 80), (5000, 3000)]):
        rng = np.random.default_rng([n, m])
        truth = parts_of((_cells(None, 1.0, a), _cells(None, 1.0, b))).values
        hits = []
        for _ in range(draws * 20):
            found = parts_of((_cells(rng, n, a), _cells(rng, m, b)))
            if np.isfinite(found.values).all():
                hits.append([low <= t <= high for t, (low, high) in
                             zip(truth, (found.interval(k, 0.95) for k in range(3)), strict=True)])  # fmt: skip
        print(f"{a} {b} {n}+{m}: {np.mean(hits, axis=0).round(3)}", flush=True)


def _cells(rng, rows, rates):
    pi, t, f = rates
    chances = np.array([(1 - pi) * (1 - f), (1 - pi) * f, pi * (1 - t), pi * t])
    return Cells(chances if rng is None else rng.multinomial(rows, chances).astype(float))


def allowed(draws):
    """Print the coverage of what allowed columns leave."""
    shapes = {
        "linear": lambda x: 0.8 * x[:, 0] - 0.5 * x[:, 1],
        "curved": lambda x: np.sin(2 * x[:, 0]) + x[:, 1] ** 2 / 2 - 0.5,
        "step": lambda x: 1.5 * (x[:, 0] > 0.3) - (x[:, 1] < -0.5),
        "rare": lambda x: 0.7 * x[:, 0] - 3.0,
    }
    settings = [("linear", 150, 0.4), ("linear", 500, 0.4), ("linear", 2000, 0.4), ("linear", 500, 1.2),
                ("linear", 2000, 2.4), ("curved", 150, 0.4), ("curved", 500, 0.8), ("curved", 2000, 1.2),
                ("curved", 2000, 2.4), ("step", 150, 0.4), ("step", 500, 0.8), ("step", 2000, 1.2),
                ("rare", 500, 0.4), ("rare", 2000, 0.8), ("rare", 2000, 1.6)]  # fmt: skip
    for shape, n, pull in settings:
        whole = _drawn(np.random.default_rng(1), 400_000, shapes[shape], pull)
        truths = [np.average(whole["effect"], weights=w) for w in
                  (whole["e"], 1 - whole["e"], whole["e"] * (1 - whole["e"]))]  # fmt: skip
        hits, refused = [[], [], []], 0
        for draw in range(draws):
            rng = np.random.default_rng([draw, n])
            one = _drawn(rng, n, shapes[shape], pull)
            if min(one["a"].sum(), (~one["a"]).sum()) < 50:
                continue
            design = Design.make({f"w{j}": one["x"][:, j] for j in range(2)})
            told = Comparison(design, one["a"], one["d"], np.ones(n), None, rng.integers(0, FOLDS, n), ("a", "b"))
            found = unexplained(told)
            refused += found.toward_group.refused is not None
            versions = (found.toward_group, found.toward_reference, found.overlap)
            for place, (version, truth) in enumerate(zip(versions, truths, strict=True)):
                if version.refused is None:
                    low, high = version.interval(0.95)
                    hits[place].append(low <= truth <= high)
        said = ", ".join("-" if len(h) < draws / 10 else f"{np.mean(h):.3f}" for h in hits)
        print(
            f"{shape:7} {n:5} rows, pull {pull}: group, reference, overlap {said}; refused {refused / draws:.2f}",
            flush=True,
        )


def _drawn(rng, n, shape, pull):
    x = rng.normal(size=(n, 2))
    e = 1 / (1 + np.exp(-pull * (x[:, 0] + 0.3 * x[:, 1])))
    a = rng.random(n) < e
    base = shape(x)
    first, second = 1 / (1 + np.exp(-base - 0.4)), 1 / (1 + np.exp(-base))
    d = (rng.random(n) < np.where(a, first, second)).astype(float)
    return {"x": x, "e": e, "a": a, "d": d, "effect": first - second}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["columns", "clusters", "totals", "allowed"])
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--calls", type=int, default=400_000)
    told = parser.parse_args()
    print(f"fairkit {fairkit.__version__}, {told.draws} draws", flush=True)
    if told.what in ("columns", "clusters"):
        columns(told.draws, told.calls, copies=1 if told.what == "columns" else 5)
    elif told.what == "totals":
        totals(told.draws)
    else:
        allowed(told.draws)


if __name__ == "__main__":
    main()
