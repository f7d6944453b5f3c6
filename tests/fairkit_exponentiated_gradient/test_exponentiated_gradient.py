"""The mixture against fairlearn's own run, its bounds, its file, and what is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import fairkit
from fairkit.errors import DataError, ParameterError
from fairkit.mitigators import Run, Table
from fairkit_exponentiated_gradient import Constant, ExponentiatedGradient, Learned, MixtureModel
from fairkit_onnx.file import open_session
from fairkit_onnx.write.export import run_columns
from fairkit_repair.learners import encoder_for


def columns_of(rows, seed):
    rng = np.random.default_rng(seed)
    group = rng.choice(["a", "b", "c"], rows, p=[0.5, 0.3, 0.2])
    x = rng.normal(size=rows) - 0.9 * (group == "b")
    z = rng.normal(size=rows)
    y = np.where(x + 0.5 * z + 0.6 * rng.normal(size=rows) > 0.1, "yes", "no")
    return {"x": x, "z": z, "g": group.astype(object), "y": y.astype(object)}


def data_of(rows=1_500, seed=0):
    return fairkit.load_data(columns_of(rows, seed), label="y", favorable="yes", sensitive="g")


def fitted(learner="logistic", rows=1_500, **parameters):
    table = Table.from_dataset(data_of(rows))
    method = ExponentiatedGradient.with_values(parameters)
    return table, method.fit(table, Run(learner=learner, threads=1))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning:fairlearn")
def test_it_is_fairlearns_mixture():
    fairlearn = pytest.importorskip("fairlearn.reductions")

    table, model = fitted(tolerance=0.04)
    from sklearn.linear_model import LogisticRegression

    matrix = encoder_for("logistic", table).transform(table.columns).astype(np.float64)
    theirs = fairlearn.ExponentiatedGradient(
        LogisticRegression(max_iter=2000), fairlearn.DemographicParity(difference_bound=0.02), eps=0.01
    )
    theirs.fit(matrix, table.target.astype(int), sensitive_features=table.groups["g"].codes)
    chance = theirs._pmf_predict(matrix)[:, 1]
    assert len(model.weights) > 1
    np.testing.assert_allclose(model.predict(table.columns).decision_probability, chance, atol=1e-8)
    assert model.details["oracle_calls"] == theirs.n_oracle_calls_
    assert model.details["gap"] == pytest.approx(theirs.best_gap_)


RATES = {
    "demographic_parity": ["selection_rate"],
    "equal_opportunity": ["true_positive_rate"],
    "predictive_equality": ["false_positive_rate"],
    "equalized_odds": ["true_positive_rate", "false_positive_rate"],
}


@pytest.mark.long
@pytest.mark.parametrize("constraint", RATES)
def test_the_bound_holds_on_the_training_rows(constraint):
    table, model = fitted(constraint=constraint, tolerance=0.06)
    chance = model.predict(table.columns).decision_probability
    codes = table.groups["g"].codes
    over = {
        "selection_rate": np.ones(len(table), bool),
        "true_positive_rate": table.target == 1,
        "false_positive_rate": table.target == 0,
    }
    plain = ExponentiatedGradient().baseline(table, Run(learner="logistic")).predict(table.columns)
    before, after = (
        max(
            abs(chances[over[rate] & (codes == group)].mean() - chances[over[rate]].mean())
            for rate in RATES[constraint]
            for group in range(3)
        )
        for chances in (plain.decision_probability, chance)
    )
    assert before > 0.04
    assert after <= 0.03 + 1e-9 + 2 * model.details["gap"]
    assert model.details["violation"] == pytest.approx(max(0.0, after - 0.03), abs=1e-12)
    assert sorted(model.details["rates"]) == sorted(RATES[constraint])


@pytest.mark.long
def test_the_file_draws_with_the_weights_and_the_audit_is_exact():
    result = fairkit.mitigate(
        "exponentiated-gradient", data_of(), test=data_of(seed=1), learner="logistic", tolerance=0.04
    )
    columns = columns_of(1_500, 1)
    u = np.random.default_rng(0).random(1_500).astype(np.float32)
    found = run_columns(open_session(result.onnx), columns, u=u)
    chance = result.fitted.predict(columns).decision_probability
    assert 0 < np.mean((chance > 0) & (chance < 1)) < 1
    np.testing.assert_allclose(found["decision_probability"][:, 0], chance, atol=1e-6)
    np.testing.assert_array_equal(found["decision"][:, 0], u < found["decision_probability"][:, 0])
    shares = {g: chance[columns["g"] == g].mean() for g in "abc"}
    gap = result.after.find("demographic_parity_difference", "g")
    assert gap.value == pytest.approx(max(shares.values()) - min(shares.values()), abs=1e-6)
    assert gap.interval[0] <= 0.04 < result.before.find("demographic_parity_difference", "g").interval[0]
    assert any("mixture of" in note for note in result.notes)


def test_a_constant_member_is_exported_too_and_missing_numbers_do_not_matter():
    table = Table.from_dataset(data_of(300))
    columns = {**table.columns, "x": np.where(np.arange(300) % 7 == 0, np.nan, table.columns["x"])}
    encoder = encoder_for("lightgbm", table)
    plain = ExponentiatedGradient().baseline(table, Run(learner="lightgbm", threads=1))
    members = (Learned(plain.estimator), Constant(1.0), Constant(0.0))
    model = MixtureModel(encoder=encoder, members=members, weights=(0.5, 0.3, 0.2))
    expected = model.predict(columns)
    found = run_columns(open_session(model.to_onnx()), columns, u=np.zeros(300, np.float32))
    np.testing.assert_allclose(found["decision_probability"][:, 0], expected.decision_probability, atol=1e-6)
    assert set(np.round(expected.decision_probability, 6)) == {0.3, 0.8}
    np.testing.assert_allclose(found["score"][:, 0], expected.score, atol=1e-5)


@pytest.mark.long
def test_one_classifier_that_keeps_the_bound_is_a_plain_model():
    table, model = fitted(tolerance=2.0)
    assert model.weights == (1.0,)
    plain = ExponentiatedGradient().baseline(table, Run(learner="logistic")).predict(table.columns)
    agree = model.predict(table.columns).decision_probability == plain.decision_probability
    assert agree.mean() > 0.99
    assert [node.name for node in model.to_onnx().graph.input] == ["x", "z", "g"]


@pytest.mark.long
def test_weights_and_groups_without_an_outcome_are_refused():
    table = Table.from_dataset(data_of(200))
    weighted = table.with_weights(np.arange(200) + 1.0)
    with pytest.raises(DataError, match="takes no row weights"):
        ExponentiatedGradient().fit(weighted, Run())
    lonely = dataclasses.replace(table, target=np.where(table.groups["g"].codes == 1, 0.0, table.target))
    method = ExponentiatedGradient.with_values({"constraint": "equal_opportunity"})
    with pytest.raises(DataError, match="group 'b' has no rows that the true positive rate is over"):
        method.fit(lonely, Run())
    assert ExponentiatedGradient().fit(lonely, Run(learner="logistic")).weights
    with pytest.raises(ParameterError, match="tolerance must be 0 to 2"):
        ExponentiatedGradient.with_values({"tolerance": 4})


def test_few_iterations_are_told():
    _, model = fitted(rows=600, tolerance=0.0, iterations=1)
    assert not model.details["converged"]
    assert any("duality gap" in note for note in model.notes)


@pytest.mark.long
def test_its_points_stand_in_a_frontier_with_those_of_others():
    from fairkit_repair.frontiers.run import frontier
    from fairkit_repair.frontiers.training import Sweep

    sweeps = [
        Sweep(plugin="exponentiated-gradient", vary={"tolerance": [0.04, 0.6]}, fixed={"iterations": 3}),
        Sweep(plugin="reweigh", vary={"strength": [1.0]}),
    ]
    found = frontier(sweeps, data_of(900), learner="logistic", jobs=1, threads=1)
    assert [point.status for point in found.points] == ["done"] * 4
    strict, loose = (p.measures["demographic_parity_difference:g"].value for p in found.points[1:3])
    assert strict < loose - 0.1
