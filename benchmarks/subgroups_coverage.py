"""Do the limits of all groups hold at once? Draws at a true null and with one true disparity.

    python benchmarks/subgroups_coverage.py [--draws 300] [--bootstrap]

The columns are Adult's (FAIRKIT_DATA), 4,000 rows and 8 of them, groups of at least 2 % of the rows.
The outcomes are drawn anew each time. A draw is covered where the limits of every group contain its true difference.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from fairkit_subgroups.searching import local_search as bootstrap
from fairkit_subgroups.searching.cells import Family, Tallies, make_cells, tally_column
from fairkit_subgroups.searching.local_search import Search, Surest
from fairkit_subgroups.searching.measures import MEASURES, limits, values_of, width_of
from fairkit_subgroups.searching.tables import RowSample, count

ROWS, SHARE, LEAST = 4_000, 0.02, 50
COLUMNS = [
    "age", "workclass", "education-num", "marital-status", "occupation", "race", "sex", "hours-per-week",
]  # fmt: skip


def people():
    """The family, and the rows in cells."""
    folder = Path(os.environ.get("FAIRKIT_DATA", "shared/data"))
    table = pq.read_table(folder / "adult.parquet", columns=COLUMNS)
    chosen = np.sort(np.random.default_rng(0).permutation(table.num_rows)[:ROWS])
    table = table.take(chosen).combine_chunks()
    arrow = {name: table.column(name).combine_chunks() for name in COLUMNS}
    tallies = Tallies({name: tally_column(one) for name, one in arrow.items()}, ROWS)
    family = Family(tuple(make_cells(tallies, ROWS, share=SHARE, bins=8, edges={})[0]))
    return family, family.encode(arrow)


def search_of(family, codes, measure, outcome, decision, score):
    name = measure.statistic(soft=False)
    values = values_of(name, outcome, decision, score, (outcome - score) ** 2, None)
    widths = {name: width_of(name, weighted=False)}
    layer = np.zeros(ROWS, np.int64)
    tables = count(family, codes, layer, {name: values}, widths, 1)
    search = Search(family, measure, tables[name], False, False, SHARE * ROWS, LEAST)
    return search, RowSample(np.arange(ROWS, dtype=np.uint64), codes, layer, {name: values})


def level(search, kept, drawn, seed):
    return bootstrap.level(search, bootstrap.draws(search, kept, seed), 0.05) if drawn else 0.05 / search.groups


def null(family, codes, name, p, draws, drawn):
    """How often no group is told apart where there is nothing to tell."""
    rng = np.random.default_rng(1)
    measure, kept_all, groups, alpha = MEASURES[name], 0, 0, None
    for seed in range(draws):
        outcome = (rng.random(ROWS) < 0.3).astype(float)
        decision = (rng.random(ROWS) < p).astype(float)
        score = np.full(ROWS, 0.5)
        if name == "calibration_residual":
            score = rng.beta(1, 1 / p - 1, ROWS)
            outcome = (rng.random(ROWS) < score).astype(float)
        elif name == "mean_loss":
            score = np.clip(rng.beta(2, 5, ROWS), 0, 1)
        search, kept = search_of(family, codes, measure, outcome, decision, score)
        if alpha is None or not drawn:  # the bootstrap's depends on overlaps, and is drawn once
            alpha = level(search, kept, drawn, seed)
        tracker = Surest(0)
        search.look(alpha, [tracker])
        kept_all += not tracker.result(search, alpha)
        groups += search.groups
    return kept_all / draws, groups / draws


def disparity(family, codes, gap, draws):
    """How often the limits of every group contain its true difference, where one group's chance differs."""
    rng = np.random.default_rng(2)
    planted = family.member(codes, *family.find([(0, (2, 4)), (6, (0, 0))]))
    chance = np.where(planted, 0.3 + gap, 0.3)
    measure, held, groups = MEASURES["selection_rate"], 0, 0
    share, _ = search_of(family, codes, MEASURES["mean_loss"], np.sqrt(chance), np.zeros(ROWS), np.zeros(ROWS))
    truth = {}
    for some in share.all_groups():
        sides = share.sides(some)
        for table, number, d in zip(some.tables, some.numbers, sides.difference, strict=True):
            truth[table, number] = d
    for _ in range(draws):
        decision = (rng.random(ROWS) < chance).astype(float)
        search, _kept = search_of(family, codes, measure, np.zeros(ROWS), decision, np.zeros(ROWS))
        alpha, good = 0.05 / search.groups, True
        for some in search.all_groups():
            low, high = limits(search.sides(some), search.level(alpha))
            true = np.array([truth[key] for key in zip(some.tables, some.numbers, strict=True)])
            good = good and bool(((low <= true + 1e-9) & (true - 1e-9 <= high)).all())
        held += good
        groups += search.groups
    return held / draws, groups / draws


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--bootstrap", action="store_true")
    chosen = parser.parse_args()
    family, codes = people()
    started = time.process_time()
    print(f"{ROWS} rows, {len(family.columns)} columns, {chosen.draws} draws")
    settings = [("selection_rate", 0.3), ("selection_rate", 0.05), ("selection_rate", 0.01)]
    settings += [("true_positive_rate", 0.3), ("true_positive_rate", 0.05)]
    settings += [("calibration_residual", 0.3), ("calibration_residual", 0.05), ("mean_loss", 0.3)]
    for name, p in settings:
        covered, groups = null(family, codes, name, p, chosen.draws, chosen.bootstrap)
        print(f"{name:22} p = {p:4}  {groups:8,.0f} groups  covered {covered:.3f}", flush=True)
    if not chosen.bootstrap:
        covered, groups = disparity(family, codes, 0.15, chosen.draws)
        print(f"{'one disparity of .15':22} p =  0.3  {groups:8,.0f} groups  covered {covered:.3f}")
    print(f"{time.process_time() - started:.0f} CPU seconds")


if __name__ == "__main__":
    main()
