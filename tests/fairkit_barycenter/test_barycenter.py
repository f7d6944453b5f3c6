"""barycenter against closed forms, against optimal transport by an assignment, and on new rows."""

from __future__ import annotations

import numpy as np
import pytest

import fairkit
from fairkit.errors import DataError
from fairkit.mitigators import Groups, Run, Table
from fairkit_barycenter import Barycenter, along, largest_distance, learn, quantile
from fairkit_onnx.write.export import check_parity, export
from fairkit_onnx.write.rules import GroupCodes
from fairkit_testing.samples import sample_data

RUN = Run(seed=1, threads=1, learner="linear")


def codes_of(groups):
    from fairkit.data.roles import Sensitive

    names = tuple(str(g) for g in range(int(groups.max()) + 1))
    split = Sensitive(("g",), (None,))
    return GroupCodes.learn({"g": groups}, Groups(split, names, groups))


def test_two_normal_groups_meet_at_the_normal_in_between():
    """The barycenter of N(0, 1) and N(2, 3²) with shares 1/4 and 3/4 is N(1.5, 2.5²)."""
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1], [20_000, 60_000])
    plain = np.where(groups == 0, rng.normal(0, 1, 80_000), rng.normal(2, 3, 80_000))
    moves = learn(plain, codes_of(groups), groups, np.ones(80_000), 500)
    at = np.linspace(-1.5, 1.5, 7).astype(np.float32)
    first = along(at, moves.start[0], moves.end[0])
    np.testing.assert_allclose(first, 1.5 + 2.5 * at, atol=0.12)
    second = along(2 + 3 * at, moves.start[1], moves.end[1])
    np.testing.assert_allclose(second, 1.5 + 2.5 * at, atol=0.12)


def test_it_is_the_nearest_prediction_with_equal_distributions():
    """Two groups of m rows: sorted pairs at their means, the optimum of the assignment problem."""
    from scipy.optimize import linear_sum_assignment

    rng = np.random.default_rng(2)
    m = 60
    a, b = rng.normal(0, 1, m), rng.gamma(2, 1, m)
    first, second = linear_sum_assignment((a[:, None] - b[None, :]) ** 2)
    best = ((a[first] - b[second]) ** 2).sum() / 4 * 2 / (2 * m)
    groups = np.repeat([0, 1], m)
    plain = np.concatenate([a, b])
    moves = learn(plain, codes_of(groups), groups, np.ones(2 * m), m)
    moved = moves.apply(plain.astype(np.float32), {"g": groups})
    assert ((moved - plain) ** 2).mean() == pytest.approx(best, rel=0.02)
    np.testing.assert_allclose(np.sort(moved[:m]), np.sort(moved[m:]), atol=0.05)  # near knots become one


def test_weighted_quantiles_are_those_of_repeated_rows():
    values, counts = np.array([1.0, 3.0, 4.0, 9.0]), np.array([1, 4, 2, 3])
    levels = np.array([0.2, 0.5, 0.9])
    found = quantile(values, counts.astype(float), levels)
    middle = (np.cumsum(counts) - counts / 2) / counts.sum()
    np.testing.assert_allclose(found, np.interp(levels, middle, values))


def test_the_distance_is_kolmogorovs_against_everybody():
    values, groups = np.array([1.0, 2.0, 2.0, 3.0]), np.array([0, 0, 1, 1])
    assert largest_distance(values, groups, np.ones(4)) == pytest.approx(0.25)
    assert largest_distance(values, groups, np.array([1.0, 1.0, 0.0, 2.0])) == pytest.approx(0.5)


def table(rows=3_000, sensitive=("sex",), seed=0):
    return Table.from_dataset(sample_data("regression", rows=rows, sensitive=sensitive, seed=seed))


@pytest.mark.long
@pytest.mark.parametrize("learner", ["linear", "lightgbm"])
@pytest.mark.parametrize("sensitive", [("sex",), ("sex", "race")])
def test_distributions_are_alike_on_new_rows_for_every_column(learner, sensitive):
    rows = table(sensitive=sensitive)
    run = Run(seed=1, threads=1, learner=learner)
    model = Barycenter().fit(rows, run)
    proto = export(model, rows)
    new = sample_data("regression", rows=4_000, sensitive=sensitive, seed=1)
    assert check_parity(proto, model, Table.from_dataset(new).columns) < 1e-5
    report = fairkit.audit(proto.SerializeToString(), new)
    before = fairkit.audit(export(Barycenter().baseline(rows, run), rows).SerializeToString(), new)
    for name in sensitive:
        found = report.find("statistical_parity_ks", name)
        assert found.interval is not None
        assert found.value < 0.09  # a rare group: 600 rows, half-width .06
        assert before.find("statistical_parity_ks", name).value > 2 * found.value


def test_a_tolerance_moves_no_further_than_it_needs_and_keeps_accuracy():
    rows, new = table(), table(4_000, seed=1)
    errors, distances = [], []
    for tolerance in (0.0, 0.1, 1.0):
        model = Barycenter.with_values({"tolerance": tolerance}).fit(rows, RUN)
        score = model.predict(new.columns).score
        errors.append(float(np.mean((score - new.target) ** 2)))
        distances.append(largest_distance(score, new.groups["sex"].codes, np.ones(len(new))))
    assert errors[0] > errors[1] > errors[2]
    assert distances[0] < distances[1] < distances[2]
    assert distances[1] == pytest.approx(0.1, abs=0.03)
    assert model.share == 0.0


def test_the_order_inside_a_group_stays():
    rows = table()
    model = Barycenter().fit(rows, RUN)
    plain, moved = model.base.predict(rows.columns).score, model.predict(rows.columns).score
    for group in (0, 1):
        own = rows.groups["sex"].codes == group
        assert (np.diff(moved[own][np.argsort(plain[own], kind="stable")]) >= -1e-6).all()


def test_predictions_with_few_values_and_groups_that_were_not_seen():
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 2, 400)
    plain = np.round(rng.normal(groups, 1, 400))
    moves = learn(plain, codes_of(groups), groups, np.ones(400), 200)
    assert (np.diff(moves.start, axis=1) > 0).all()
    moved = moves.apply(plain.astype(np.float32), {"g": np.where(groups == 0, 7, 8)})
    np.testing.assert_allclose(moved, plain, atol=1e-6)


def test_bad_input_is_refused_by_name():
    with pytest.raises(DataError, match=r"has \d+ rows, fewer than min_group=2500"):
        Barycenter.with_values({"min_group": 2500}).fit(table(), RUN)
    with pytest.raises(DataError, match="there is no sensitive split 'sx'"):
        Barycenter.with_values({"sensitive": ("sx",)}).fit(table(), RUN)
    with pytest.raises(fairkit.FairkitError, match="barycenter"):
        fairkit.mitigate("barycenter", sample_data("binary"))
