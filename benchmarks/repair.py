"""Repair by policy on fresh splits: how often the pick passes, what it costs, and whether its chance was honest.

    FAIRKIT_DATA=... python benchmarks/repair.py [--splits 20] [--data adult,acs] [--sure 0.95,0.9]
    FAIRKIT_DATA=... python benchmarks/repair.py --data occupations,law,hiring --methods any

Every split retrains everything, and every `--sure` is a search of its own. Each rule on scores (each alternative, of
classes, numbers and rankings) that was measured is learned from all rows and judged on the test rows too: its verdict
beside its predicted chance. Results are written after each search; the same command goes on from there.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import fairkit
from fairkit.data.table import Table
from fairkit.errors import PowerError
from fairkit.planning.assumptions import settled
from fairkit.statistics import Confusion, Rows
from fairkit_datasets.loans import HIRING_ROLES, hiring_table
from fairkit_repair.repairing import run as running
from fairkit_repair.repairing.chance import ByRates
from fairkit_repair.repairing.evaluate import ByAudits, _performance

RESULTS = Path(__file__).parent / "results" / "repair.json"

LIMIT, ACS_ROWS = 0.05, 60_000
BINARY = (("demographic_parity_difference", LIMIT, {}), ("equal_opportunity_difference", LIMIT, {}))
TASKS: dict[str, tuple[tuple[str, float, dict[str, Any]], ...]] = {
    "adult": BINARY,
    "acs": BINARY,
    "occupations": (
        (
            "demographic_parity_difference",
            0.15,
            {
                "learner": "logistic",
                "methods": ["linear-post"],
                "parameters": {"linear-post": {"constraint": "demographic_parity", "read_group": True}},
            },
        ),
    ),
    "law": (("statistical_parity_ks", 0.1, {"learner": "linear", "methods": ["barycenter"]}),),
    "hiring": (("exposure_difference", 0.08, {"learner": "linear"}),),
}
"""By data, what is limited at what, and what is asked of the search."""
SURE = (0.95, 0.9)
BINS = (0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.9, 0.94, 1.01)
WORK = ("managers, business", "science, teaching, arts", "care, service", "sales, office", "crafts, transport")
"""Occupations by the census' codes."""
CODES = (1_000, 3_000, 4_660, 6_000)
FEW_ROWS = 10_000


def frames(name: str, seed: int) -> tuple[Any, dict[str, Any]]:
    """Return a table, and its roles."""
    if name == "hiring":
        return hiring_table(300, 100 + seed), dict(HIRING_ROLES)
    frame = fairkit.datasets.frame({"adult": "adult", "law": "law_school"}.get(name, "acs_income"))
    if name == "adult":
        return frame.drop(columns=["split", "fnlwgt"]), {
            "label": "income", "favorable": ">50K", "sensitive": "sex",
        }  # fmt: skip
    if name == "law":
        frame["race"] = frame["race"].astype(str)
        return frame, {
            "label": "zfygpa",
            "sensitive": "race",
            "features": ["lsat", "ugpa", "fulltime", "fam_inc", "tier"],
        }
    rows = ACS_ROWS if name == "acs" else FEW_ROWS
    frame = frame.iloc[np.sort(np.random.default_rng(0).choice(len(frame), rows, replace=False))]
    frame = frame.reset_index(drop=True)
    frame["SEX"] = frame["SEX"].map({1: "male", 2: "female"}).astype(str)
    if name == "acs":
        return frame, {
            "label": "PINCP", "favorable": 1, "sensitive": "SEX", "drop": ["row_index", "split"],
        }  # fmt: skip
    frame["work"] = np.array(WORK)[np.searchsorted(CODES, frame["OCCP"], side="right")]
    return frame, {"label": "work", "sensitive": "SEX", "drop": ["row_index", "split", "OCCP"]}


@contextmanager
def inside_search() -> Iterator[dict[str, Any]]:
    """Keep what a search by policy works with: its bench, forecast and test rows, filled while it runs."""
    seen: dict[str, Any] = {}
    plain_search, plain_finish = running.search, running._finished

    def watched_search(bench: Any, planned: Any, limits: Any, *rest: Any) -> Any:
        seen.update(bench=bench, forecast=planned)
        return plain_search(bench, planned, limits, *rest)

    def watched_finish(engine: Any, bench: Any, test: Any, *rest: Any) -> Any:
        seen.update(test=test)
        return plain_finish(engine, bench, test, *rest)

    running.search, running._finished = watched_search, watched_finish
    try:
        yield seen
    finally:
        running.search, running._finished = plain_search, plain_finish


def one(name: str, metric: str, limit: float, seed: int, **asked: Any) -> dict[str, Any]:
    """Search once, and judge everything that was measured on the test rows."""
    frame, roles = frames(name, seed)
    data = fairkit.load_data(frame, **roles)
    (sensitive,) = [roles["sensitive"]] if isinstance(roles["sensitive"], str) else roles["sensitive"]
    rule = fairkit.Rule(metric=metric, sensitive=sensitive, max=limit)
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        with inside_search() as seen:
            result = fairkit.repair(data, [rule], seed=seed, threads=1, **asked)
    except PowerError as error:
        return {"refused": str(error), "wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    took = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    bench, forecast, test = seen["bench"], seen["forecast"], Table.from_dataset(seen["test"])
    by_rates = isinstance(forecast, ByRates)
    looker = None if by_rates else by_audits(seen["test"], test, forecast)
    looked = [
        (
            judged(bench, found.mitigator, test, forecast.limits[0], forecast.confidence)
            if by_rates
            else audited(bench, found.mitigator, looker)
        )
        if found.chance is not None and found.status != "left out" and (found.capability.trainings == 0 or not by_rates)
        else None
        for found in result.search.alternatives
    ]
    before = result.before.find(result.search.performance)
    return {
        **took,
        "before": before.value,
        "verdict": result.after.verdict,
        "picked": result.search.picked,
        "alternatives": [
            {
                "name": found.name,
                "chance": found.chance,
                "status": found.status,
                "reason": found.reason,
                "predicted": found.accuracy,
                "look": look,
            }
            for found, look in zip(result.search.alternatives, looked, strict=True)
        ],
    }


def by_audits(data: Any, test: Table, forecast: Any) -> ByAudits:
    """Return what audits the test rows as they are."""
    queries = 0 if test.queries is None else int(test.queries.max()) + 1
    planned = forecast.planned
    return ByAudits.of(data, test, planned, forecast.rules, queries, forecast.confidence)


def audited(bench: Any, method: Any, looker: ByAudits) -> dict[str, Any] | None:
    """Train on all rows, and give the verdict and the performance on the test rows."""
    fitted = bench.fit(method, bench.run)
    if fitted is None:
        return None
    told = fitted.predict(looker.table.columns).score
    rows = np.arange(len(looker.table))
    verdict = looker._verdict(looker._findings(rows, told, None, looker.context))
    whole = looker._findings(rows, told, None, looker.whole)
    return {"verdict": verdict, "accuracy": _performance(whole, looker.table.task)}


def judged(bench: Any, method: Any, test: Any, limit: Any, confidence: float) -> dict[str, Any] | None:
    """Learn a rule from all rows, and give its verdict, number and accuracy on the test rows."""
    fitted = bench.fit(method, bench.run)
    if fitted is None or bench.fitted is None:
        return None
    said = fitted.predict(test.columns)
    chance = said.decision_probability
    chance = (said.score >= 0.5).astype(float) if chance is None else chance
    rows = Rows(outcome=test.target, decision=chance, score=None, weights=None)
    groups = test.groups[limit.split]
    totals = Confusion().collect(rows, groups.codes, len(groups.names))
    estimates = [rate().estimate(totals, np.random.default_rng(0)) for rate in limit.target.rates]
    interval = limit.target.interval(estimates, confidence)
    return {
        "verdict": {True: "pass", False: "fail", None: "inconclusive"}[settled(limit.rule, interval)],
        "accuracy": float(np.where(test.target > 0, chance, 1 - chance).mean()),
        "disparity": limit.target.value(np.stack([one.values for one in estimates])),
    }


def told(found: list[dict[str, Any]]) -> str:
    """Say the pass rate and the performance lost of the picks."""
    done = [row for row in found if "refused" not in row]
    if not done:
        return f"{len(found)} splits, all refused before training: {found[0]['refused']}"
    picks = [row["alternatives"][row["picked"]] for row in done]
    lost = [row["before"] - one["look"]["accuracy"] for row, one in zip(done, picks, strict=True)]
    passed = sum(row["verdict"] == "pass" for row in done)
    seconds = ", ".join(f"{key} {np.mean([row[key] for row in done]):.1f} s" for key in ("wall", "cpu"))
    return (
        f"{len(done)} of {len(found)} splits searched; {seconds}\n  predicted "
        f"{np.mean([one['chance'] for one in picks]):.3f}, {passed} of {len(done)} passed, lost {np.mean(lost):.4f} "
        f"(se {np.std(lost, ddof=1) / len(lost) ** 0.5:.4f}) of {np.mean([row['before'] for row in done]):.3f}"
    )


def calibration(rows: list[dict[str, Any]]) -> str:
    """Say how often alternatives passed by their predicted chance."""
    every = [
        (one["chance"], one["look"]["verdict"] == "pass")
        for row in rows
        for one in row.get("alternatives", ())
        if one["look"] is not None and not one["reason"]
    ]
    if not every:
        return ""
    chance, passed = (np.array(values, float) for values in zip(*every, strict=True))
    lines = [f"all {len(chance)}: predicted {chance.mean():.3f}, passed {passed.mean():.3f}"]
    for low, high in itertools.pairwise(BINS):
        own = (chance >= low) & (chance < high)
        if own.any():
            lines.append(
                f"  {low:.2f} to {min(high, 1):.2f}: {own.sum()}, predicted {chance[own].mean():.3f}, "
                f"passed {passed[own].mean():.3f}"
            )
    return "\n".join(lines)


def main() -> None:
    """Run the splits that are not done yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--data", default="adult,acs")
    parser.add_argument("--metric", default=None, help="only this one")
    parser.add_argument("--sure", default=",".join(map(str, SURE)))
    parser.add_argument("--methods", default="threshold-optimizer,rto", help="of two outcomes")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    known = json.loads(options.output.read_text("utf-8")) if options.output.exists() else {}
    wanted = [
        (name, *task, float(sure))
        for name in options.data.split(",")
        for task in TASKS[name]
        for sure in options.sure.split(",")
        if options.metric in (None, task[0])
    ]
    for seed in range(options.splits):
        for name, metric, limit, asked, sure in wanted:
            rows = known.setdefault(f"{name} {metric} {limit:g} sure {sure:g}", [])
            if len(rows) > seed:
                continue
            methods = {} if asked else {"methods": options.methods.split(",")}
            rows.append(one(name, metric, limit, seed, sure=sure, **methods, **asked))
            save(known, options.output)
    for key, rows in known.items():
        print(f"{key}: {told(rows)}")
    for names in (("adult", "acs"), ("occupations",), ("law",), ("hiring",)):
        rows = [row for key, found in known.items() if key.split()[0] in names for row in found]
        print(f"{', '.join(names)}: {calibration(rows)}")


def save(known: dict[str, Any], path: Path) -> None:
    """Write one search a line; never half a file."""
    half = path.with_suffix(".part")
    parts = [f"{json.dumps(key)}: [\n" + ",\n".join(map(json.dumps, rows)) + "\n]" for key, rows in known.items()]
    half.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
    half.replace(path)


if __name__ == "__main__":
    main()
