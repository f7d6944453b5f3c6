"""What overlap between groups is worth: how far limits of all groups at once could be narrowed, and whether they hold.

    nice python benchmarks/subgroups_overlap.py [--draws 300] [--seed 3]

The columns are those of `subgroups_coverage.py`. In each draw the *critical factor* is the largest z at which the
limits of some group, at the level 2 Φ(-z), miss its true difference. A factor c holds in the share of draws whose
critical factor is at most c, so that one run measures Bonferroni's c, that of the bootstrap of overlaps
(`simultaneous=bootstrap`), and the joint one: the 95 % quantile of critical factors where all groups are alike and
outcomes have the sample's rate (Westfall & Young's min-p with exact tails), which knows overlaps, discreteness, and
what the limits of two shares together are too careful by. The standard error of a share of 300 is .013 near .95.
"""

from __future__ import annotations

import argparse
import time
from statistics import NormalDist

import numpy as np
from subgroups_coverage import ROWS, level, people, search_of

from fairkit_subgroups.searching.exact import limits
from fairkit_subgroups.searching.measures import MEASURES

NORMAL, LEAST, MOST = NormalDist(), 2.5, 7.0


def critical(search, truth):
    """The largest z at which a group's limits miss its true difference; `LEAST` where none does there."""
    open_ones = []
    for some, true in zip(search.all_groups(), truth, strict=True):
        open_ones.append((search.sides(some), true))
    low, high = LEAST, MOST
    middle = LEAST
    for _ in range(11):
        some = search.level(2 * NORMAL.cdf(-middle))
        missed = []
        for sides, true in open_ones:
            with np.errstate(all="ignore"):
                least, most = limits(sides, some)
            places = np.flatnonzero((least > true + 1e-9) | (most < true - 1e-9))
            if len(places):
                missed.append((sides.take(places), true[places]))
        if missed:
            low, open_ones = middle, missed
        else:
            high = middle
        middle = (low + high) / 2
    return middle


def truths(search, family, codes, chance):
    """Each group's true difference of selection rates, from the rows' chances."""
    if chance is None:
        return [np.zeros(len(some.numbers)) for some in search.all_groups()]
    name = MEASURES["mean_loss"]
    exact, _ = search_of(family, codes, name, np.sqrt(chance), np.zeros(ROWS), np.zeros(ROWS))
    by_group = {}
    for some in exact.all_groups():
        for table, number, d in zip(some.tables, some.numbers, exact.sides(some).difference, strict=True):
            by_group[table, number] = d
    return [
        np.array([by_group[key] for key in zip(some.tables, some.numbers, strict=True)]) for some in search.all_groups()
    ]


def chances(kind, family, codes):
    """Of each row to be decided favorably; None: all alike."""
    if kind == "one group .15 apart":
        planted = family.member(codes, *family.find([(0, (2, 4)), (6, (0, 0))]))
        return np.where(planted, 0.45, 0.3)
    if kind == "every column counts":
        rng = np.random.default_rng(5)
        weights = [rng.normal(0, 0.4, int(column.max()) + 1)[column] for column in codes]
        return 1 / (1 + np.exp(1.0 - np.sum(weights, axis=0)))
    return None


SETTINGS = [
    ("selection_rate", 0.3, "alike"),
    ("selection_rate", 0.05, "alike"),
    ("selection_rate", 0.01, "alike"),
    ("true_positive_rate", 0.3, "alike"),
    ("calibration_residual", 0.3, "alike"),
    ("mean_loss", 0.3, "alike"),
    ("selection_rate", 0.3, "one group .15 apart"),
    ("selection_rate", 0.3, "every column counts"),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--seed", type=int, default=3)
    chosen = parser.parse_args()
    family, codes = people()
    started, joint_at_null = time.process_time(), {}
    print("measure                p  population            groups  Bonferroni (holds)  overlaps (holds)  joint (holds)")
    for name, p, kind in SETTINGS:
        rng, found, of_overlaps = np.random.default_rng(chosen.seed), [], None
        chance = chances(kind, family, codes)
        for draw in range(chosen.draws):
            outcome = (rng.random(ROWS) < 0.3).astype(float)
            decision = (rng.random(ROWS) < (p if chance is None else chance)).astype(float)
            score = np.full(ROWS, 0.5)
            if name == "calibration_residual":
                score = rng.beta(1, 1 / p - 1, ROWS)
                outcome = (rng.random(ROWS) < score).astype(float)
            elif name == "mean_loss":
                score = rng.beta(2, 5, ROWS)
            search, rows = search_of(family, codes, MEASURES[name], outcome, decision, score)
            if of_overlaps is None:
                of_overlaps = -NORMAL.inv_cdf(level(search, rows, True, draw) / 2)
            truth = truths(search, family, codes, chance)
            found.append(critical(search, truth))
        found = np.sort(found)
        careful = -NORMAL.inv_cdf(0.025 / search.groups)
        if chance is None:  # the quantile of one half of the draws, tried on the other
            halves = np.array_split(np.random.default_rng(0).permutation(found), 2)
            joint = float(np.quantile(halves[0], 0.95, method="higher"))
            joint_at_null[name, p] = float(np.quantile(found, 0.95, method="higher"))
            held = np.mean(halves[1] <= joint)
        else:
            joint = joint_at_null[name, p]
            held = np.mean(found <= joint)
        print(
            f"{name:22} {p:4} {kind:21} {search.groups:7,}  {careful:.2f} ({np.mean(found <= careful):.3f})  "
            f"{of_overlaps:.2f} ({np.mean(found <= of_overlaps):.3f})  {joint:.2f} ({held:.3f})",
            flush=True,
        )
    print(f"{time.process_time() - started:.0f} CPU seconds")


if __name__ == "__main__":
    main()
