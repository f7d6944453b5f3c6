"""What strata, clusters and group probabilities cost beside a plain audit, and whether their intervals cover.

    python benchmarks/conditions.py cost [ROWS]
    python benchmarks/conditions.py coverage [RUNS]

`cost`: processor seconds and peak memory of an audit of decisions and scores of a million rows in memory, each in a
process of its own, five times in turns; the medians. `coverage`: the share of intervals that hold the truth, for
dependent rows with intra-cluster correlations up to .5 and 2 to 50 rows a cluster, inside groups and across them, and
for pooled differences in few large and many small strata.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import fairkit

CASES = {
    "plain": {},
    "within": {"within": ["stratum"]},
    "cluster": {"cluster": "person"},
    "within and cluster": {"within": ["stratum"], "cluster": "person"},
    "reference": {"reference": ["g=b"]},
    "probabilities": {"sensitive_probability": ["race=p_a,p_b,p_c"]},
}


def people(rows: int) -> dict[str, np.ndarray]:
    """Return a table of decisions, scores, outcomes, 50 strata and people of five rows."""
    rng = np.random.default_rng(0)
    score = np.round(rng.random(rows), 4)
    p = rng.dirichlet(np.ones(3), rows)
    return {
        "g": rng.choice(["a", "b"], rows),
        "stratum": rng.integers(0, 50, rows),
        "person": rng.integers(0, rows // 5, rows),
        "s": score,
        "h": (score > 0.5).astype(int),
        "y": (rng.random(rows) < score).astype(int),
        **{f"p_{name}": p[:, place] for place, name in enumerate("abc")},
    }


def one(case: str, rows: int) -> None:
    """Audit once in this process and print what it took."""
    table = people(rows)
    roles = {"label": "y", "favorable": 1, "sensitive": ["g"], **CASES[case]}
    model = fairkit.PredictedColumns(decision="h", score="s")
    fairkit.audit(model, fairkit.load_data({k: v[:2000] for k, v in table.items()}, **roles))  # imports, caches
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    data = fairkit.load_data(table, **roles)
    start = time.process_time()
    fairkit.audit(model, data)
    seconds = time.process_time() - start
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps([seconds, more / 1024]))


def cost(rows: int) -> None:
    """Measure every case five times, in turns."""
    taken: dict[str, list[list[float]]] = {case: [] for case in CASES}
    for _ in range(5):
        for case, seen in taken.items():
            command = [sys.executable, __file__, "one", case, str(rows)]
            found = subprocess.run(command, capture_output=True, text=True, check=True)
            seen.append(json.loads(found.stdout))
    plain = statistics.median(seconds for seconds, _ in taken["plain"])
    for case, seen in taken.items():
        seconds = statistics.median(each[0] for each in seen)
        memory = statistics.median(each[1] for each in seen)
        print(f"{case:20} {seconds:6.2f} s ({seconds - plain:+.2f})  {memory:6.0f} MiB more")


def clustered(clusters: int, rows: int, icc: float, kind: str, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return rows of clusters with beta chances of a given correlation; groups are alike, so that differences are 0."""
    who = np.repeat(np.arange(clusters), rng.integers(2, rows + 1, clusters))
    chance = rng.beta(0.3 * (1 / icc - 1), 0.7 * (1 / icc - 1), clusters)[who]
    g = who % 2 if kind == "nested" else rng.integers(0, 2, len(who))
    draw = rng.random((2, len(who))) < chance
    score = np.clip(chance + rng.normal(0, 0.1, len(who)), 0, 1)
    return {"g": g, "h": draw[0] * 1, "y": draw[1] * 1, "s": score, "who": who}


def coverage(runs: int) -> None:
    """Print how often intervals hold the truth."""
    rng = np.random.default_rng(1)
    names = ("demographic_parity_difference", "true_positive_rate_difference", "mean_prediction_difference",
             "log_loss_difference", "roc_auc_difference", "f1_score_difference", "ecce_difference")  # fmt: skip
    print("clusters rows icc kind      " + " ".join(f"{name.removesuffix('_difference')[:12]:>12}" for name in names))
    for clusters in (80, 300, 3000):
        for most, icc, kind in ((5, 0.1, "nested"), (50, 0.1, "nested"), (50, 0.5, "nested"), (50, 0.5, "crossing")):
            if clusters * most > 20_000:
                continue
            hits = dict.fromkeys(names, 0)
            for _ in range(runs):
                table = clustered(clusters, most, icc, kind, rng)
                data = fairkit.load_data(table, label="y", favorable=1, sensitive=["g"], cluster="who")
                report = fairkit.audit(fairkit.PredictedColumns(decision="h", score="s"), data)
                for name in names:
                    low, high = report.find(name, "g").interval or (0, 0)
                    hits[name] += low <= 0 <= high
            told = " ".join(f"{hits[name] / runs:12.3f}" for name in names)
            print(f"{clusters:8} {most:4} {icc:3} {kind:9} {told}", flush=True)
    print("strata rows   parity   mean   odds")
    for strata, rows in ((4, 300), (20, 30), (150, 3)):
        found = np.zeros(3)
        for _ in range(runs):
            level = rng.uniform(0.1, 0.8, strata)
            d = np.repeat(np.arange(strata), rows)
            table = {"g": rng.integers(0, 2, len(d)), "d": d, "h": (rng.random(len(d)) < level[d]) * 1,
                     "s": rng.beta(3 * level[d], 3 - 3 * level[d])}  # fmt: skip
            data = fairkit.load_data(table, sensitive=["g"], within=["d"])
            report = fairkit.audit(fairkit.PredictedColumns(decision="h", score="s"), data)
            for place, (name, truth) in enumerate((("demographic_parity_difference", 0),
                                                    ("mean_prediction_difference", 0), ("odds_ratio", 1))):  # fmt: skip
                low, high = report.find(name, "g", within="d").interval or (0, 0)
                found[place] += low <= truth <= high
        print(f"{strata:6} {rows:4}   " + "  ".join(f"{share / runs:.3f}" for share in found), flush=True)


if __name__ == "__main__":
    what, *rest = sys.argv[1:] or ["cost"]
    if what == "one":
        one(rest[0], int(rest[1]))
    elif what == "cost":
        cost(int(rest[0]) if rest else 1_000_000)
    else:
        assert Path(__file__).exists()
        coverage(int(rest[0]) if rest else 400)
