"""Every mitigator at its defaults on five tables: what it promises, and what it costs.

    FAIRKIT_DATA=... python benchmarks/defaults.py [--data adult,german] [--methods budro,sensei] [--rows 6000]
    FAIRKIT_DATA=... python benchmarks/defaults.py --methods budro --set epsilon=0.1 --set strength=1e-6

One line for each table and method. Individual methods (budro, sensei) promise that a decision does not change with the
sensitive columns: the share of test rows that are decided alike under all values of them, and on Adult under husband
and wife; the certified gap at the method's own epsilon; balanced accuracy; the difference in true positive rates. Other
methods promise the disparity that their default constraint is about. A line is called WORSE where a method is surely
worse (95 %, paired) than its base in what it promises and in balanced accuracy (others: accuracy).
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fairkit
from fairkit.data.table import Table
from fairkit.settings import ModelOptions
from fairkit_onnx.model import OnnxModel

FOLDER = Path(os.environ.get("FAIRKIT_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
INDIVIDUAL = ("budro", "sensei")
OTHERS = (
    "correlation-remover", "disparate-impact-remover", "exponentiated-gradient",
    "fair-regression", "fairgbm", "linear-post", "massaging", "reweigh", "rto", "threshold-optimizer",
)  # fmt: skip
COMPAS = ["sex", "race", "age", "priors_count", "juv_fel_count", "juv_misd_count", "c_charge_degree"]
DATA = {
    "adult": {
        "label": "income", "favorable": ">50K", "sensitive": ["sex", "race"], "drop": ["split", "fnlwgt"],
    },
    "acs_income": {
        "label": "PINCP", "favorable": 1, "sensitive": ["SEX", "RAC1P"], "drop": ["row_index", "split"],
    },
    "compas": {"label": "two_year_recid", "favorable": 0, "sensitive": ["sex", "race"], "features": COMPAS},
    "german": {"label": "class", "favorable": 1, "sensitive": ["foreign_worker", "personal_status"]},
    "credit_default": {
        "label": "default_payment_next_month", "favorable": 0, "sensitive": ["SEX", "MARRIAGE"], "drop": ["ID"],
    },
}  # fmt: skip
GROUPED = {"german": "personal_status"}
"""Whose first column has groups of a few rows."""
GIVEN = ("threshold-optimizer", "rto")
"""Methods that repair a model; they get the plain one."""
CATEGORIES = {"acs_income": ["SEX", "RAC1P", "COW", "MAR", "RELP"], "credit_default": ["SEX", "MARRIAGE"]}


def load(name: str, rows: int, seed: int) -> tuple[fairkit.Dataset, fairkit.Dataset]:
    """Return training and test rows: at most `rows` each, drawn with the seed; Adult has a test part of its own."""
    table = pq.read_table(FOLDER / f"{name}.parquet")
    for column in CATEGORIES.get(name, []):
        if column in table.column_names:
            place = table.column_names.index(column)
            table = table.set_column(place, column, table.column(column).cast(pa.int64()).cast(pa.string()))
    if name == "compas":
        kept = pa.compute.is_in(table.column("race"), pa.array(["African-American", "Caucasian"]))
        table = table.filter(kept)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(table))
    cut = min(rows, int(0.6 * len(table)))
    if name == "adult" and "split" in table.column_names:
        part = np.array(table.column("split").to_pylist())
        train, test = (order[part[order] == which] for which in ("train", "test"))
    else:
        train, test = order[:cut], order[cut:]
    parts = (table.take(np.sort(train[:rows])), table.take(np.sort(test[:rows])))
    return tuple(fairkit.load_data(part, name=name, **DATA[name]) for part in parts)


class Decider:
    """Decisions of a file on changed rows."""

    def __init__(self, content: bytes, data: fairkit.Dataset) -> None:
        self.scorer = OnnxModel.load(content).bind(data, ModelOptions(task="binary"))

    def __call__(self, columns) -> np.ndarray:
        """Return whether each row's decision is favorable."""
        return self.scorer.predict({name: columns[name] for name in self.scorer.columns}).decision >= 0.5


def alike(decide: Decider, columns, names, values) -> np.ndarray:
    """Return which rows are decided alike under all values of some columns, shape [n]."""
    found = []
    for combination in itertools.product(*values):
        changed = dict(columns)
        for name, value in zip(names, combination, strict=True):
            changed[name] = np.full(len(columns[name]), value, dtype=columns[name].dtype)
        found.append(decide(changed))
    return np.all([one == found[0] for one in found], axis=0)


def paired(before: np.ndarray, after: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Return the weighted mean difference, and its half width at 95 %."""
    share = weights / weights.sum()
    apart = after.astype(float) - before
    mean = float(share @ apart)
    return mean, 1.96 * float(np.sqrt((share**2) @ (apart - mean) ** 2))


def individual(name: str, method: str, settings: dict[str, str], rows: int, seed: int) -> None:
    """Print one line about an individual method."""
    train, test = load(name, rows, seed)
    begun = time.monotonic()
    result = fairkit.mitigate(method, train, test=test, seed=seed, threads=1, **settings)
    seconds = time.monotonic() - begun
    table = Table.from_dataset(test)
    columns, good = table.columns, table.target > 0
    sensitive = [column for split in test.roles.sensitive for column in split.columns]
    values = [sorted({value for value in columns[name].tolist() if value is not None}) for name in sensitive]
    models = [Decider(content, test) for content in (result.baseline_onnx, result.onnx)]
    same = [alike(one, columns, sensitive, values) for one in models]
    right = [one(columns) == good for one in models]
    balance = np.where(good, 0.5 / good.mean(), 0.5 / (1 - good.mean()))
    promised, accuracy = paired(*same, np.ones(len(good))), paired(*right, balance)
    gaps = []
    for report in (result.before, result.after):
        found = [one for one in report.findings if one.metric == "performance_gap" and one.value is not None]
        gaps.append(found[0].value if found else float("nan"))
    codes = table.groups[test.roles.sensitive[0].name].codes
    rates = [[one(columns)[good & (codes == code)].mean() for code in range(codes.max() + 1)] for one in models]
    spouse = ""
    if name == "adult":
        married = [alike(one, columns, ["relationship"], [["Husband", "Wife"]]).mean() for one in models]
        spouse = f" spouse {married[0]:.3f} {married[1]:.3f}"
    worse = promised[0] + promised[1] < 0 and accuracy[0] + accuracy[1] < 0
    kept = promised[0] - promised[1] > 0 or same[1].mean() >= 0.995
    kept = kept and gaps[1] <= gaps[0] / 5 and accuracy[0] >= -0.025
    print(
        f"{name:15s} {method:8s} {settings or 'defaults'!s:48s} "
        f"alike {same[0].mean():.3f} {same[1].mean():.3f}{spouse} "
        f"gap {gaps[0]:.4f} {gaps[1]:.4f} balanced {balance @ right[0] / balance.sum():.3f} "
        f"{balance @ right[1] / balance.sum():.3f} ({accuracy[0]:+.3f} ± {accuracy[1]:.3f}) "
        f"TPR gap {np.ptp(rates[0]):.3f} {np.ptp(rates[1]):.3f} {seconds:.0f} s "
        f"{'WORSE' if worse else 'kept' if kept else 'a trade'}",
        flush=True,
    )


def grouped(name: str, method: str, settings: dict[str, str], rows: int, seed: int) -> None:
    """Print one line about a method that promises a small disparity of one sensitive column."""
    train, test = load(name, rows, seed)
    column = GROUPED.get(name, DATA[name]["sensitive"][0])
    train, test = (fairkit.load_data(one.source, **DATA[name] | {"sensitive": [column]}) for one in (train, test))
    begun = time.monotonic()
    model = None
    if method in ("linear-post", *GIVEN):
        settings = {"constraint": "demographic_parity"} | settings
    if method in GIVEN:
        model = fairkit.mitigate("reweigh", train, test=test, strength=0.0, seed=seed, threads=1).onnx
    result = fairkit.mitigate(method, train, test=test, model=model, seed=seed, threads=1, **settings)
    seconds = time.monotonic() - begun
    constraint = result.parameters.get("constraint") or "demographic_parity"
    constraint = str(constraint if isinstance(constraint, str) else constraint[0])
    metric = "statistical_parity_ks" if constraint == "statistical_parity" else f"{constraint}_difference"
    said = {
        (one.metric, one.sensitive): one for one in result.changes if one.group is None and one.difference is not None
    }
    promised, accuracy = said.get((metric, column)), said.get(("accuracy", None))
    if promised is None or accuracy is None:
        print(f"{name:15s} {method:25s} no change of {metric} was measured", flush=True)
        return
    worse = promised.outcome == "worse" and accuracy.outcome == "worse"
    print(
        f"{name:15s} {method:25s} {metric} {promised.before:.3f} {promised.after:.3f} {promised.outcome:9s} accuracy "
        f"{accuracy.before:.3f} {accuracy.after:.3f} {accuracy.outcome:9s} {seconds:.0f} s {'WORSE' if worse else ''}",
        flush=True,
    )


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--methods", default=",".join(INDIVIDUAL + OTHERS))
    parser.add_argument("--rows", type=int, default=6_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[])
    chosen = parser.parse_args()
    settings = dict(pair.split("=", 1) for pair in chosen.set)
    for name, method in itertools.product(chosen.data.split(","), chosen.methods.split(",")):
        measure = individual if method in INDIVIDUAL else grouped
        try:
            measure(name, method, settings, chosen.rows, chosen.seed)
        except fairkit.FairkitError as error:
            print(f"{name:15s} {method:25s} {error}", flush=True)


if __name__ == "__main__":
    main()
