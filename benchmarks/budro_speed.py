"""BuDRO's time and memory at the paper's settings, and how near the quick rounds stay to the exact ones.

    FAIRKIT_DATA=... python benchmarks/budro_speed.py [adult] [german] [compas] [trace] [--every K] [--rounds N]

Adult: 36,177 rows, 180 rounds, depth 14, epsilon .4 (paper: 1,456 s on 4 CPUs and a GPU; German 105 s, COMPAS 155 s).
`trace` takes the 500 rounds of the authors' German notebook. Everything is compiled before the clock starts.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
from paper_budro import settings
from paper_budro_data import split

from fairkit.mitigators import Run, Table
from fairkit_repair.mitigation.choose import find_mitigator

TRACE = {0: 0.69145, 10: 0.69105, 50: 0.68973, 100: 0.68839, 200: 0.68591, 300: 0.68340, 400: 0.68106, 499: 0.67881}


def training_rows(name: str, rows: int | None = None) -> Table:
    table = split(name, 0).table
    return table if rows is None else table.take(np.arange(rows))


def fit(table: Table, values: dict):
    cpu, wall = time.process_time(), time.perf_counter()
    model = find_mitigator("budro").with_values(values).fit(table, Run(seed=0))
    return model, time.perf_counter() - wall, time.process_time() - cpu


def speed(name: str, changes: dict) -> None:
    table = training_rows(name)
    model, wall, cpu = fit(table, settings(name, len(table)) | changes)
    path = model.details["path"]
    print(
        f"{name}: {len(table):,} rows ({model.details['distinct_rows']:,} distinct), {len(path['value'])} rounds: "
        f"{wall:.1f} s, {cpu:.1f} s of CPU; peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GB; "
        f"{path['searched'].count('all')} rounds searched all rows"
    )
    told = {number: short for number, short in enumerate(path["shortfall"]) if short is not None}
    if told:
        worst = max(told, key=told.get)
        gaps = {n: s * path["value"][n] / (path["value"][n] - path["loss"][n]) for n, s in told.items()}
        print("shortfall of the quick plan, % of the inner maximum (% of the gap) at each exact round:")
        print("  " + "  ".join(f"{n}: {100 * s:.4f} ({100 * gaps[n]:.2f})" for n, s in told.items()))
        print(f"  largest: {100 * told[worst]:.4f} % at round {worst} (asked: below 0.5 %)")


def trace() -> None:
    table = training_rows("german")
    n = len(table)
    values = settings("german", n) | {"max_depth": 10, "min_child_weight": 0.1, "n_estimators": 500}
    values["first_round"] = {"lambda": 1.0, "min_child_weight": 0.1 / n}
    model, wall, _ = fit(table, values)
    found = model.details["path"]["value"]
    print(f"German trace ({wall:.1f} s), ours less the authors' (asked: within .0015):")
    print("  " + "  ".join(f"{number}: {found[number] - told:+.5f}" for number, told in TRACE.items()))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*", default=[])
    parser.add_argument("--every", type=int)
    parser.add_argument("--rounds", type=int)
    given = parser.parse_args()
    changes = {} if given.every is None else {"exact_every": given.every}
    changes |= {} if given.rounds is None else {"n_estimators": given.rounds}
    what = given.what or ["german", "compas", "trace", "adult"]
    for name in ("german", "compas", "adult"):
        if name in what:  # compile, or load the cache
            small = training_rows(name, 6_000 if name == "adult" else None)
            fit(small, settings(name, len(small)) | {"n_estimators": 3})
    for name in what:
        if name == "trace":
            trace()
        else:
            speed(name, changes)


if __name__ == "__main__":
    main()
