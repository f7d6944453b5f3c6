from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import numpy_helper

from fairkit import plugins
from fairkit.data.roles import Roles
from fairkit.data.table import intersect
from fairkit.errors import DataError, ParameterError
from fairkit.mitigators import Groups, Run, Table
from fairkit_fairgbm.plugin import FairGBM
from fairkit_onnx.file import open_session
from fairkit_onnx.write.export import check_parity, export, run_columns


def table(n=2000, seed=0, groups=2, weighted=False):
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, groups, n)
    region = rng.integers(0, 2, n)
    job = rng.choice(np.array(["a", "b", "c"], dtype=object), n)
    job[rng.random(n) < 0.05] = None
    x = rng.normal(size=(n, 2))
    y = (1.5 * x[:, 0] - 1.2 * sex + (job == "a") + rng.logistic(size=n) > 0).astype(float)
    return Table(
        columns={"x0": x[:, 0], "x1": x[:, 1], "job": job, "sex": sex},
        features=("x0", "x1", "job", "sex"),
        target=y,
        groups={
            "sex": Groups(None, tuple(f"s{i}" for i in range(groups)), sex),
            "region": Groups(None, ("north", "south"), region),
        },
        weights=rng.random(n) + 0.5 if weighted else None,
        roles=Roles(label="y", favorable=1),
        classes=(0, 1),
        name="the sample",
    )


RUN = Run(seed=1, threads=1)


def fit(rows=None, run=RUN, validation=None, **values):
    defaults = {"n_estimators": 30, "sensitive": "sex"}
    method = FairGBM.with_values(defaults | values)
    return method.fit(table() if rows is None else rows, run, validation=validation)


def gap(model, rows):
    chance = model.predict(rows.columns).decision_probability
    codes, positive = rows.groups["sex"].codes, rows.target == 1
    missed = [1 - chance[positive & (codes == group)].mean() for group in (0, 1)]
    return abs(missed[0] - missed[1])


def test_it_is_installed_under_its_name():
    assert plugins.load("fairgbm").mitigators == (FairGBM,)


def test_defaults_lower_the_gap_on_new_rows_at_little_cost():
    train, new = table(8000), table(8000, seed=1)
    method = FairGBM.with_values({"sensitive": "sex"})
    before, after = method.baseline(train, RUN), method.fit(train, RUN)

    def accuracy(model):
        return (model.predict(new.columns).decision_probability == new.target).mean()

    assert gap(before, new) > 0.15
    assert gap(after, new) < 0.06
    assert accuracy(after) > accuracy(before) - 0.03


def test_without_constraints_it_is_stock_lightgbm():
    import lightgbm

    rows = table()
    ours = fit(rows, constraint=())
    matrix = ours.encoder.transform(rows.columns)
    params = {"objective": "binary", "verbosity": -1, "seed": 1, "deterministic": True, "num_threads": 1}
    data = lightgbm.Dataset(matrix, rows.target, categorical_feature=ours.encoder.categorical)
    stock = lightgbm.train(params, data, 30)
    difference = ours.margins(matrix)[:, 0] - stock.predict(matrix, raw_score=True)
    assert np.abs(difference).max() <= 1e-9
    baseline = FairGBM.with_values({"n_estimators": 30}).baseline(rows, RUN)
    np.testing.assert_allclose(baseline.predict(rows.columns).score, stock.predict(matrix), atol=1e-12)


@pytest.mark.parametrize("iterate", ["last", "best", "mixture", "all"])
@pytest.mark.parametrize("weighted", [False, True])
def test_every_iterate_exports_within_parity(iterate, weighted):
    rows, new = table(weighted=weighted), table(seed=2)
    model = fit(rows, iterate=iterate)
    proto = export(model, rows)
    assert check_parity(proto, model, new.columns) < 1e-5
    inputs = [entry.name for entry in proto.graph.input]
    assert ("u" in inputs) == (len(model.choice.rounds) > 1)
    found = run_columns(open_session(proto, threads=1), new.columns)
    np.testing.assert_allclose(
        found["decision_probability"].ravel(), model.predict(new.columns).decision_probability, atol=1e-6
    )


def test_members_of_a_mixture_share_their_trees():
    model = fit(iterate="all")
    trees = next(node for node in model.to_onnx().graph.node if node.op_type == "TreeEnsembleRegressor")
    ids = next(attribute.ints for attribute in trees.attribute if attribute.name == "nodes_treeids")
    assert len(set(ids)) == 30
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.to_onnx().graph.initializer}
    assert any(value.shape == (30, 30) for value in constants.values())


def test_all_is_the_mean_over_prefixes():
    rows = table()
    model = fit(rows, iterate="all", follow="train")
    matrix = model.encoder.transform(rows.columns)
    scores = [model.start + model.booster.predict(matrix, raw_score=True, num_iteration=k) for k in range(1, 31)]
    expected = (np.array(scores) >= 0).mean(axis=0)
    np.testing.assert_allclose(model.predict(rows.columns).decision_probability, expected, atol=1e-12)


def test_best_keeps_the_trees_up_to_its_round():
    model = fit(iterate="best", n_estimators=60)
    (rounds,) = model.choice.rounds
    assert model.details["rounds"] == [rounds]
    assert len(model.details["validation"]["loss"]) == 60
    assert rounds <= 60


def test_the_path_is_kept_as_plain_json():
    details = fit(n_estimators=12).details
    assert json.loads(json.dumps(details, allow_nan=False)) == details
    assert len(details["multipliers"]) == 12
    assert len(details["train"]["violation"]) == 12
    assert details["groups"] == ["s0", "s1"]


def test_given_validation_rows_use_their_own_groups():
    rows, held = table(), table(seed=5)
    lone = held.take(held.groups["sex"].codes == 1)
    lone = Table(
        columns=lone.columns,
        features=lone.features,
        target=lone.target,
        groups={"sex": Groups(None, ("s1",), np.zeros(len(lone), dtype=np.int64))},
        roles=lone.roles,
    )
    model = fit(rows, validation=held, iterate="last")
    found = model.predict(held.columns).decision_probability
    positive = held.target == 1
    expected = [1 - found[positive & (held.groups["sex"].codes == group)].mean() for group in (0, 1)]
    np.testing.assert_allclose(model.details["validation"]["rates"][-1][0], expected)
    alone = fit(rows, validation=lone, iterate="last", follow="train").details
    assert alone["validation"]["loss"] == []  # last needs none


def test_validation_rows_with_a_strange_group_are_refused():
    rows, held = table(), table(seed=5)
    held.groups["sex"] = Groups(None, ("s0", "other"), held.groups["sex"].codes)
    with pytest.raises(ParameterError, match="group 'other' does not occur in the training rows"):
        fit(rows, validation=held)


def test_several_splits_are_crossed_unless_one_is_named():
    assert fit(sensitive=None).details["groups"] == [f"s{i} & {r}" for i in (0, 1) for r in ("north", "south")]
    assert len(intersect(table().groups).names) == 4


def test_same_seed_same_bytes():
    first, second = (export(fit(), table()).SerializeToString(deterministic=True) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lightgbm.objective": "binary"}, "FairGBM is its own objective"),
        ({"lightgbm.num_leaves": 7}, "give num_leaves itself"),
        ({"lightgbm.n_iter": 7}, "give n_estimators itself"),
        ({"lightgbm.linear_tree": True}, "no form in ONNX"),
        ({"lightgbm.boosting": "rf"}, "random forest has no rounds"),
        ({"lightgbm.boosting": "dart"}, "goes with iterate=last alone"),
        ({"tolerance": "0.1,0.2"}, "2 tolerances for 1 constraints"),
        ({"operating_point": True}, "needs global_fpr or global_fnr"),
        ({"constraint": "fnrr"}, "list of equal_opportunity"),
        ({"global_fpr": 1.5}, "above 0 and below 1"),
        ({"n_estimators": 0}, "at least 1"),
    ],
)
def test_contradictions_are_refused_before_training(values, message):
    with pytest.raises(ParameterError, match=message):
        FairGBM.with_values(values)


def test_a_misspelt_lightgbm_parameter_is_refused():
    with pytest.raises(ParameterError, match=r"has no parameter 'max_binn'. Did you mean"):
        fit(**{"lightgbm.max_binn": 63})


def test_lightgbm_parameters_are_passed_through():
    model = fit(**{"lightgbm.max_depth": 1})
    assert all(
        "left_child" not in tree["tree_structure"].get("left_child", {})
        for tree in model.booster.dump_model()["tree_info"]
    )


def test_dart_with_last_works():
    rows = table()
    model = fit(rows, iterate="last", **{"lightgbm.boosting": "dart"})
    assert check_parity(export(model, rows), model, rows.columns) < 1e-5


def test_a_learner_is_refused():
    with pytest.raises(ParameterError, match="takes no learner"):
        fit(run=Run(learner="xgboost"))


def test_a_group_without_positives_is_named():
    rows = table()
    rows.target[rows.groups["sex"].codes == 1] = 0
    with pytest.raises(DataError, match="the sample: group 's1' has no favorable labels, so it has no fnr"):
        fit(rows)


def test_no_sensitive_column_says_what_to_do():
    rows = table()
    rows.groups.clear()
    with pytest.raises(DataError, match="name it with `sensitive`"):
        fit(rows, sensitive=None)


def test_constant_features_are_nothing_to_learn():
    rows = table()
    bare = Table(columns={"x": np.ones(len(rows))}, features=("x",), target=rows.target, groups=rows.groups)
    with pytest.raises(DataError, match="all 1 features are constant"):
        fit(bare)


def test_a_tolerance_below_what_the_groups_resolve_is_told():
    notes = fit(table(300), tolerance=0.0001).notes
    assert any("below what the groups can resolve" in note for note in notes)


def test_targets_that_cannot_be_met_train_and_say_so():
    model = fit(global_fpr=0.001, global_fnr=0.001, constraint=())
    assert any("No round meets the constraints" in note for note in model.notes)
    assert len(model.choice.rounds) == 1
    assert any("they are violated by" in note for note in model.notes)
    assert 0.01 < model.predict(table().columns).decision_probability.mean() < 0.99


def small_group(count):
    rows = table(1500, groups=3)
    few = np.flatnonzero((rows.groups["sex"].codes == 2) & (rows.target == 1))
    return rows.take(np.setdiff1d(np.arange(len(rows)), few[count:]))


def test_a_small_training_group_is_refused_or_left_out_as_asked():
    rows, held = small_group(9), table(1500, seed=3, groups=3)
    with pytest.raises(DataError, match=r"min_group=30 favorable labels .* 's2' \(9\); merge"):
        fit(rows, validation=held, small_groups="error")
    left = fit(rows, validation=held)
    assert any("fewer than 30 favorable labels" in note and "'s2' (9)" in note for note in left.notes)
    rates = np.array(left.details["validation"]["rates"])
    assert (rates[:, 0, 2] == -1).all()  # its rate is never followed
    assert np.array(left.details["multipliers"])[:, 2].max() == 0
    assert np.array(left.details["multipliers"])[:, :2].max() > 0
    lower = fit(rows, validation=held, min_group=9)
    assert (np.array(lower.details["validation"]["rates"]) >= 0).all()
    with pytest.raises(DataError, match="fewer than two groups have min_group=900"):
        fit(rows, validation=held, min_group=900)
