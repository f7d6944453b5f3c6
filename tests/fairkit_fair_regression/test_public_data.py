"""Public data: what the method must reach on law school, communities & crime, and Adult."""

from __future__ import annotations

import numpy as np
import pytest

import fairkit
from fairkit.mitigators import Run, Table
from fairkit_fair_regression.plugin import FairRegression


def _halves(frame, sensitive, label, features, **roles):
    rng = np.random.default_rng(0)
    held = np.zeros(len(frame), dtype=bool)
    groups = frame[sensitive].to_numpy()
    for group in np.unique(groups):
        places = rng.permutation(np.flatnonzero(groups == group))
        held[places[: len(places) // 2]] = True
    return [
        fairkit.load_data(
            frame[part].reset_index(drop=True), label=label, sensitive=sensitive, features=features, **roles
        )
        for part in (~held, held)
    ]


def _law_school(folder):
    import pandas as pd

    frame = pd.read_parquet(folder / "law_school_fair_regression.parquet").dropna()
    assert len(frame) == 20_800
    frame["race"] = np.where(frame["race"] == 7, "White", "others")
    frame["ugpa"] = frame["ugpa"] / 4
    return _halves(frame, "race", "ugpa", [c for c in frame.columns if c != "ugpa"])


def test_law_school_s_frontier_beats_the_constant_and_holds_on_test_rows(public_data):
    train, test = _law_school(public_data)
    table, other = Table.from_dataset(train), Table.from_dataset(test)
    levels = [0.2, 0.1, 0.05, 0.02]
    methods = [FairRegression.with_values({"tolerance": level, "label_range": [0, 1]}) for level in levels]
    models = FairRegression.fit_together(methods, table, Run(learner="linear"))
    losses = [model.details["objective"] for model in models]
    assert losses == sorted(losses)
    for model in models:
        assert model.details["violation"] <= 0.005
        price = model.held_out(other, 0.95)["price"]
        assert price["before"] < price["after"] < 0.1032
    assert models[0].details["oracle_calls_of_run"] <= 60


@pytest.mark.long
def test_communities_and_crime(public_data):
    import pandas as pd

    frame = pd.read_parquet(public_data / "communities_crime.parquet")
    four = ["racepctblack", "racePctWhite", "racePctAsian", "racePctHisp"]
    frame["race"] = np.where(frame[four].idxmax(axis=1) == "racePctWhite", "White", "others")
    frame = frame.drop(columns=[*four, "state", "county", "community", "communityname", "fold"]).dropna(axis=1)
    label = "ViolentCrimesPerPop"
    train, test = _halves(frame, "race", label, [c for c in frame.columns if c != label])
    found = fairkit.mitigate(
        "fair-regression", train, test=test, learner="linear", tolerance=0.05, label_range=[0, 1], iterations=20
    )
    assert found.before.find("statistical_parity_ks", "race").value > 0.4
    assert found.after.find("statistical_parity_ks", "race").value <= 0.05 + 0.096
    assert found.after.find("mean_squared_error").value ** 0.5 < 0.2329
    assert found.details["price"]["interval"][0] > 0


@pytest.mark.long
def test_adult_s_logistic_run_needs_few_oracle_calls(public_data):
    import pandas as pd

    frame = pd.read_parquet(public_data / "adult.parquet")
    frame = frame[frame["split"] == "train"].drop(columns="split").dropna()
    assert len(frame) == 30_162
    features = [c for c in frame.columns if c != "income"]
    train, _ = _halves(frame, "sex", "income", features, favorable=">50K")
    table = Table.from_dataset(train)
    model = FairRegression.with_values({"tolerance": 0.05}).fit(table, Run(learner="logistic"))
    assert model.details["converged"]
    assert model.details["oracle_calls_of_run"] <= 25
    assert model.details["violation"] <= 0.005
