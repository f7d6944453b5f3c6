"""Whether chances of `repair` are honest on few rows: rules learned from 2,000 people, judged on the rest of ACSIncome.

    FAIRKIT_DATA=... python benchmarks/repair_small.py [--searches 40] [--rows 2000] [--limit 0.2]

Every search sees other people. Each rule on scores is learned from its training rows, as the file that is handed out
is, scores everybody who was not drawn, and is judged on 300 samples of as many people as the search held out: the share
that passes is what its predicted chance should be. Printed are the means of both, over all rules and over picks.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from repair import inside_search

import fairkit
from fairkit.data.table import Table
from fairkit.errors import PowerError
from fairkit.planning.draws import settled
from fairkit.statistics import Confusion, Rows

AUDITS = 300


def population() -> Any:
    frame = fairkit.datasets.frame("acs_income").drop(columns=["row_index", "split"])
    frame["SEX"] = frame["SEX"].map({1: "male", 2: "female"}).astype(str)
    return frame


def search(
    frame: Any, rows: int, limit: float, seed: int, metric: str, sure: float, learner: str
) -> list[tuple[float, float, bool]]:
    """Return (predicted chance, share of audits that pass, whether it is the pick) of every rule on scores."""
    rng = np.random.default_rng([seed, rows])
    order = rng.permutation(len(frame))
    roles = {"label": "PINCP", "favorable": 1, "sensitive": "SEX"}
    drawn = fairkit.load_data(frame.iloc[order[:rows]].reset_index(drop=True), **roles)
    try:
        with inside_search() as seen:
            result = fairkit.repair(
                drawn,
                [fairkit.Rule(metric, "SEX", max=limit)],
                seed=seed,
                threads=1,
                sure=sure,
                methods=["threshold-optimizer", "rto"],
                learner=learner,
            )
    except PowerError:
        return []
    rest = frame.iloc[order[rows : rows + 40_000]].reset_index(drop=True)
    table = Table.from_dataset(fairkit.load_data(rest, **roles))
    limited = seen["forecast"].limits[0]
    size = int(seen["forecast"].planned.sizes.sum())
    samples = [rng.choice(len(table), size, replace=False) for _ in range(AUDITS)]
    found = []
    for place, one in enumerate(result.search.alternatives):
        if one.chance is None or one.status == "left out" or one.reason or one.capability.trainings:
            continue
        fitted = seen["bench"].fit(one.mitigator, seen["bench"].run)
        if fitted is None:
            continue
        said = fitted.predict(table.columns)
        chance = said.decision_probability
        chance = (said.score >= 0.5).astype(float) if chance is None else chance
        passed = np.mean([_passes(table, chance, limited, sample) for sample in samples])
        found.append((float(one.chance), float(passed), place == result.search.picked))
    return found


def _passes(table: Any, chance: np.ndarray, limited: Any, sample: np.ndarray) -> bool:
    groups = table.groups[limited.split]
    rows = Rows(outcome=table.target[sample], decision=chance[sample], score=None, weights=None)
    totals = Confusion().collect(rows, groups.codes[sample], len(groups.names))
    estimates = [rate().estimate(totals, np.random.default_rng(0)) for rate in limited.target.rates]
    return bool(settled(limited.rule, limited.target.interval(estimates, 0.95)))


def told(name: str, pairs: list[tuple[float, float, bool]], clusters: list[int]) -> str:
    predicted, passed = np.array([p[:2] for p in pairs]).T
    gap = predicted - passed
    own = np.array(clusters)
    means = np.array([gap[own == c].mean() for c in np.unique(own)])
    error = means.std(ddof=1) / len(means) ** 0.5 if len(means) > 1 else float("nan")
    return (
        f"{name}: {len(pairs)}, predicted {predicted.mean():.3f}, passed {passed.mean():.3f}, "
        f"too high by {gap.mean():.3f} (se {error:.3f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--searches", type=int, default=40)
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--limit", type=float, default=0.2)
    parser.add_argument("--sure", type=float, default=0.9)
    parser.add_argument("--metric", default="demographic_parity_difference")
    parser.add_argument("--learner", default="logistic")
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    frame, start = population(), time.process_time()
    pairs: list[tuple[float, float, bool]] = []
    searches: list[int] = []
    for seed in range(options.first, options.first + options.searches):
        rows = search(frame, options.rows, options.limit, seed, options.metric, options.sure, options.learner)
        pairs += rows
        searches += [seed] * len(rows)
        print(
            seed,
            [(round(p, 2), round(t, 2), pick) for p, t, pick in rows if pick],
            f"{time.process_time() - start:.0f} s",
            flush=True,
        )
    if not pairs:
        print("every search was refused before training")
        return
    print(told("all rules", pairs, searches))
    unsure = [k for k, p in enumerate(pairs) if 0.05 < p[0] < 0.995]
    if unsure:
        print(told("chances between .05 and .995", [pairs[k] for k in unsure], [searches[k] for k in unsure]))
    picks = [k for k, p in enumerate(pairs) if p[2]]
    if picks:
        print(told("picks", [pairs[k] for k in picks], [searches[k] for k in picks]))


if __name__ == "__main__":
    main()
