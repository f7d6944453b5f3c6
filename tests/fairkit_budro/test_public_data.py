"""The deterministic trace of the authors' German notebook, through this trainer."""

from __future__ import annotations

import numpy as np
import pytest

from fairkit_budro.boosting import BoostingRows, BoostingSettings, train
from fairkit_budro.plans import ExactPlan, Fixed
from fairkit_repair.mitigation.choose import stratified
from fairkit_similarity.learn import subspace
from fairkit_similarity.transport import Support

TRACE = {0: 0.69145, 10: 0.69105, 50: 0.68973, 100: 0.68839, 200: 0.68591}
"""Of the 500 rounds of the notebook."""


@pytest.fixture(scope="module")
def inner_maxima(public_data):
    import numba
    import pandas as pd

    frame = pd.read_parquet(public_data / "german.parquet")
    labels = (frame["class"] == 2).to_numpy(int)
    kept = ~stratified(labels, 0.2, np.random.default_rng(0))
    columns = {name: frame[name].to_numpy()[kept] for name in frame.columns if name != "class"}
    columns = {name: values.astype(float if values.dtype.kind == "i" else object) for name, values in columns.items()}
    labels = labels[kept]
    numba.set_num_threads(1)  # on 800 rows several take longer
    metric = subspace(columns, ["age"])
    n = len(labels)
    fixed = Fixed(
        support=Support(metric.transform(columns)), labels=labels, mass=np.full(n, 1 / n), epsilon=1.0, classes=2
    )
    rows = BoostingRows(
        matrix=metric.encoder.encode(columns).astype(np.float32),
        labels=labels,
        mass=fixed.mass,
        factors=np.array([1.0, (labels == 0).sum() / labels.sum()]),
    )
    params = {
        "objective": "binary:logistic",
        "base_score": 0.5,
        "tree_method": "hist",
        "nthread": 1,
        "max_depth": 10,
        "eta": 0.005,
        "lambda": 1.0 * n,
        "min_child_weight": 0.1,
    }
    first = {"lambda": 1.0, "min_child_weight": 0.1 / n}
    trained = train(rows, ExactPlan(fixed), BoostingSettings(rounds=201, params=params, first=first))
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
    return [moment.value for moment in trained.path]


@pytest.mark.long
@pytest.mark.parametrize(("number", "expected"), TRACE.items())
def test_the_inner_maxima_are_those_of_the_authors(inner_maxima, number, expected):
    assert inner_maxima[number] == pytest.approx(expected, abs=0.0015)


@pytest.mark.long
def test_the_inner_maximum_falls(inner_maxima):
    assert (np.diff(inner_maxima[::10]) < 0).all()
