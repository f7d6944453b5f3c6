"""Fair regression with the Poisson loss: deviance against statistical parity, beside scikit-learn and LightGBM.

    python benchmarks/fair_regression_poisson.py [--rows 20000]

Insurance claims (made here), prior offences (COMPAS) and violent crimes (communities & crime), where FAIRKIT_DATA has
them; halves train and test. Prints a Markdown table: deviance at statistical parity on the test half.
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
from fair_regression_data import communities, folder

import fairkit
from fairkit.mitigators import Run, Table
from fairkit_fair_regression.plugin import FairRegression

BOUNDS = [0.1, 0.05, 0.02]
TREES = {"n_estimators": 60, "num_leaves": 8, "learning_rate": 0.1, "min_data_in_leaf": 50}
COLUMNS = {"linear": ("linear", None), "linear, `oracle=ls`": ("linear", "ls"), "LightGBM": ("lightgbm", None)}


def insurance(rows: int) -> tuple[pd.DataFrame, dict]:
    """Return drivers with claims per year: men drive more; distance, age, area and sex raise the rate."""
    rng = np.random.default_rng(0)
    sex = np.where(rng.random(rows) < 0.45, "female", "male")
    distance = rng.gamma(4, 4, rows) * np.where(sex == "male", 1.4, 1.0)
    age, area = rng.integers(18, 80, rows), rng.choice(["city", "town", "country"], rows)
    logs = 0.9 * (age < 26) + 0.05 * (distance - 15) + 0.35 * (area == "city") + 0.3 * (sex == "male")
    years = rng.uniform(0.1, 1, rows)
    frequency = rng.poisson(0.1 * np.exp(logs) * years) / years
    frame = pd.DataFrame({"sex": sex, "age": age, "distance": distance, "area": area, "years": years})
    return frame.assign(frequency=frequency), {
        "label": "frequency",
        "sensitive": "sex",
        "weights": "years",
        "features": ["age", "distance", "area", "sex"],
    }


def priors() -> tuple[pd.DataFrame, dict]:
    """Return defendants of two groups with their prior offences."""
    frame = pd.read_parquet(folder() / "compas.parquet")
    frame = frame[frame["race"].isin(["African-American", "Caucasian"])].reset_index(drop=True)
    features = ["age", "sex", "race", "c_charge_degree"]
    return frame, {"label": "priors_count", "sensitive": "race", "features": features}


def crimes() -> tuple[pd.DataFrame, dict]:
    """Return communities with violent crimes per population."""
    return communities()


def halves(frame: pd.DataFrame, roles: dict) -> list[Table]:
    order = np.random.default_rng(1).permutation(len(frame))
    parts = (np.sort(order[: len(frame) // 2]), np.sort(order[len(frame) // 2 :]))
    return [Table.from_dataset(fairkit.load_data(frame.iloc[part].reset_index(drop=True), **roles)) for part in parts]


def library(learner: str, model, train: Table, test: Table) -> float:
    """Return the test deviance of the library's own Poisson regression on the same encoded rows."""
    from sklearn.metrics import mean_poisson_deviance

    matrices = [model.encoder.transform(part.columns) for part in (train, test)]
    if learner == "linear":
        from sklearn.linear_model import PoissonRegressor

        own = PoissonRegressor(alpha=1e-6, solver="newton-cholesky", max_iter=1_000)
        own.fit(matrices[0].astype(float), train.target, sample_weight=train.weights)
    else:
        from lightgbm import LGBMRegressor

        own = LGBMRegressor(objective="poisson", verbosity=-1, n_jobs=1, **TREES)
        own.fit(
            matrices[0], train.target, sample_weight=train.weights, categorical_feature=list(model.encoder.categorical)
        )
    return mean_poisson_deviance(test.target, own.predict(matrices[1]), sample_weight=test.weights)


def line(name: str, told: str, train: Table, test: Table) -> str:
    learner, oracle = COLUMNS[told]
    settings = TREES if learner == "lightgbm" else {}
    values = {"loss": "poisson", "tolerance": BOUNDS, "oracle": oracle, "settings": settings, "iterations": 25}
    model = FairRegression.with_values(values).fit(train, Run(learner=learner, threads=1))
    points = model.held_out(test, 0.95)["frontier"]["points"]
    cells = [f"{p['test']['loss']:.3f} at {p['test']['disparity']:.3f}" for p in points]
    own = "" if oracle else f"{library(learner, model, train, test):.3f}"
    return f"| {name}, {told} | {own} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=20_000, help="rows of insurance")
    given = parser.parse_args()
    print("| data, learner | library's own | unconstrained | " + " | ".join(f"ε = {b:g}" for b in BOUNDS) + " |")
    print("| --- " * (3 + len(BOUNDS)) + "|")
    sources = {"insurance": lambda: insurance(given.rows), "COMPAS, priors": priors, "communities, crimes": crimes}
    for name, load in sources.items():
        train, test = halves(*load())
        for told in COLUMNS:
            print(line(name, told, train, test), flush=True)


if __name__ == "__main__":
    main()
