"""FairGBM's objective on XGBoost, on one machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fairkit
from fairkit.errors import ParameterError
from fairkit_datasets.loans import loans_table
from fairkit_repair.mitigation.choose import as_mitigator

pytest.importorskip("numba", reason="needs the extra fairkit[fairgbm]")

from fairkit_fairgbm.constraints import Constraints, make_cells
from fairkit_fairgbm.trainer import State, TrainerSettings, TrainingRows
from fairkit_fairgbm.xgb import Hooks, train


def _rows(n: int = 3_000, groups: int = 3, seed: int = 0) -> TrainingRows:
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(n, 4)).astype(np.float32)
    group = rng.integers(0, groups, n)
    target = (rng.random(n) < 1 / (1 + np.exp(-matrix[:, 0] - 0.7 * (group == 1)))).astype(float)
    weights = rng.integers(1, 4, n).astype(np.float32)
    cells = make_cells(group, target, tuple("abc"[:groups]), weights.astype(float))
    return TrainingRows(matrix, cells, weights)


SETTINGS = TrainerSettings(
    rounds=12,
    multiplier_rate=2.0,
    multiplier_cap=5.0,
    params={"tree_method": "hist", "max_depth": 3, "eta": 0.3, "nthread": 1, "verbosity": 0},
)


@pytest.mark.parametrize("rates", [("fnr",), ("fpr",), ("fnr", "fpr"), ("positive_rate",)])
def test_the_gradient_is_that_of_the_other_backend(rates: Any) -> None:
    """Cells that travel as labels of a DMatrix, scores in single precision: the gradients of the arrays."""
    xgboost = pytest.importorskip("xgboost", reason="needs the extra fairkit[xgboost]")

    rows = _rows()
    constraints = Constraints(rates, (0.0,) * len(rates))
    state = State(rows, constraints, SETTINGS)
    hooks = Hooks("gradients", constraints, SETTINGS, rows.cells.names)
    data = xgboost.DMatrix(rows.matrix, rows.cells.codes.astype(np.float32), weight=rows.weights)
    rng = np.random.default_rng(1)
    try:
        for _ in range(3):
            scores = rng.normal(size=len(rows.matrix)).astype(np.float32)
            ours = [part.copy() for part in hooks.objective(scores, data)]
            theirs = [part.copy() for part in state.objective(scores.astype(np.float64), None)]
            np.testing.assert_allclose(ours[0], theirs[0], atol=1e-6)
            np.testing.assert_allclose(ours[1], theirs[1], atol=1e-6)
        assert np.abs(state.steps[-1]).max() > 0
    finally:
        from fairkit_fairgbm import xgb

        xgb._JOBS.pop("gradients")


def test_without_a_constraint_it_is_stock_xgboost() -> None:
    xgboost = pytest.importorskip("xgboost", reason="needs the extra fairkit[xgboost]")

    rows = _rows()
    found = train(rows, Constraints((), ()), SETTINGS)
    labels = (rows.cells.codes & 1).astype(np.float32)
    data = xgboost.QuantileDMatrix(rows.matrix, labels, weight=rows.weights)
    share = 1 / (1 + np.exp(-found.start))
    params = {**SETTINGS.params, "objective": "binary:logistic", "base_score": share}
    stock = xgboost.train(params, data, SETTINGS.rounds)
    plain = xgboost.DMatrix(rows.matrix)
    ours = found.booster.predict(plain, output_margin=True)
    np.testing.assert_allclose(ours, stock.predict(plain, output_margin=True), atol=2e-5)


def test_the_path_is_that_of_the_final_model() -> None:
    xgboost = pytest.importorskip("xgboost", reason="needs the extra fairkit[xgboost]")

    rows, other = _rows(), _rows(1_000, seed=5)
    constraints = Constraints(("fnr",), (0.0,))
    found = train(rows, constraints, SETTINGS, validation=other)
    assert found.rounds == len(found.validation) == SETTINGS.rounds
    for part, path in ((rows, found.train), (other, found.validation)):
        scores = found.booster.predict(xgboost.DMatrix(part.matrix), output_margin=True)
        wrong = (scores > 0) != (part.cells.codes & 1)
        assert path[-1].error == pytest.approx(np.average(wrong, weights=part.weights), abs=1e-9)
    assert found.multipliers.shape == (SETTINGS.rounds, 3)
    assert found.train[-1].gap < found.train[4].gap + 0.2


@pytest.mark.long
def test_the_gap_falls_and_the_file_agrees() -> None:
    data = fairkit.load_data(
        loans_table(6_000, 1), label="decision", favorable="approved", sensitive="sex", drop=["would_repay"]
    )
    asked: dict[str, Any] = {"backend": "xgboost", "n_estimators": 40, "threads": 1, "num_leaves": 8}
    result = fairkit.mitigate("fairgbm", data, **asked, iterate="last", follow="train")
    gaps = [r.find("equal_opportunity_difference", "sex").value for r in (result.before, result.after)]
    assert gaps[1] < gaps[0]
    mixture = fairkit.mitigate("fairgbm", data, **asked, iterate="mixture")
    assert len(mixture.details["rounds"]) >= 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"backend": "xgboost", "lightgbm": {"max_bin": 63}}, "takes no lightgbm.KEY"),
        ({"backend": "lightgbm", "xgboost": {"max_bin": 63}}, "takes no xgboost.KEY"),
        ({"backend": "xgboost", "min_child_samples": 5}, "xgboost.min_child_weight"),
        ({"backend": "xgboost", "xgboost": {"eta": 0.1}}, "give learning_rate itself"),
        ({"backend": "xgboost", "xgboost": {"objective": "x"}}, "FairGBM is its own objective"),
    ],
)
def test_parameters_of_the_other_library(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        as_mitigator("fairgbm", values)
