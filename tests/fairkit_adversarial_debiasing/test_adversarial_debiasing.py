from __future__ import annotations

import numpy as np
import pytest
from tests.optional import LazyModule

from fairkit import plugins
from fairkit.data.roles import Roles
from fairkit.errors import DataError, ParameterError
from fairkit.mitigators import Groups, Run, Table
from fairkit_adversarial_debiasing.adversary import make_adversary, update
from fairkit_adversarial_debiasing.groups import LABELS, Protected, protect
from fairkit_adversarial_debiasing.plugin import AdversarialDebiasing
from fairkit_onnx.write.export import export
from fairkit_repair.mitigation.useless import is_constant

torch = LazyModule("torch")

RUN = Run(seed=1, threads=1)
QUICK = {"epochs": 12, "batch": 128, "hidden": [16], "rate": 0.005}


def table(n=3000, seed=0):
    """The group moves the one feature that tells it, and the outcome."""
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 2, n)
    race = rng.choice(3, n, p=[0.6, 0.3, 0.1])
    merit, proxy = rng.normal(size=n), rng.normal(size=n) + 1.5 * sex - 0.7 * (race == 2)
    y = (1.5 * merit + proxy + rng.logistic(size=n) > 0.5).astype(float)
    return Table(
        columns={"merit": merit, "proxy": proxy},
        features=("merit", "proxy"),
        target=y,
        groups={"sex": Groups(None, ("f", "m"), sex), "race": Groups(None, ("a", "b", "c"), race)},
        roles=Roles(label="y", favorable=1),
        classes=(0, 1),
        name="the sample",
    )


def rates(model, rows, split, label):
    chosen = model.predict(rows.columns).decision_probability
    codes, of = rows.groups[split].codes, np.ones(len(rows), bool) if label is None else rows.target == label
    return [chosen[of & (codes == code)].mean() for code in range(len(rows.groups[split].names))]


def gap(model, rows, constraint, split="sex"):
    return max(np.ptp(rates(model, rows, split, label)) for label in LABELS[constraint])


def fit(constraint="demographic_parity", rows=None, **values):
    method = AdversarialDebiasing.with_values(QUICK | {"constraint": constraint, "sensitive": ["sex"]} | values)
    return method.fit(table() if rows is None else rows, RUN)


def test_it_is_installed_under_its_name():
    assert plugins.load("adversarial-debiasing").mitigators == (AdversarialDebiasing,)


@pytest.mark.long
@pytest.mark.parametrize(("constraint", "most"), [("demographic_parity", 0.1), ("equalized_odds", 0.15)])
def test_a_gap_falls_to_the_tolerance_on_new_rows(constraint, most):
    new = table(6000, seed=1)
    plain = AdversarialDebiasing.with_values(QUICK).baseline(table(), RUN)
    assert gap(plain, new, constraint) > 0.2
    model = fit(constraint)
    assert model.details["tolerance_met"]
    assert gap(model, new, constraint) < most
    right = (model.predict(new.columns).decision_probability == new.target).mean()
    assert right > max(new.target.mean(), 1 - new.target.mean()) + 0.05


@pytest.mark.long
def test_every_column_that_is_named_is_protected():
    both, new = fit(sensitive=["sex", "race"], tolerance=0.1), table(6000, seed=1)
    assert both.details["groups"] == {"sex": ["f", "m"], "race": ["a", "b", "c"]}
    assert max(gap(both, new, "demographic_parity", split) for split in ("sex", "race")) < 0.16


def test_update_is_equation_1():
    import torch

    rng = np.random.default_rng(0)
    shapes = [(3, 2), (2,)]
    loss, against = ([torch.from_numpy(rng.normal(size=s)) for s in shapes] for _ in range(2))
    g, a = (np.concatenate([part.numpy().ravel() for part in parts]) for parts in (loss, against))

    def flat(parts):
        return np.concatenate([part.numpy().ravel() for part in parts])

    expected = g - (g @ a) / (a @ a) * a - 0.7 * a
    assert flat(update(loss, against, 0.7, projection=True)) == pytest.approx(expected, abs=1e-9)
    assert flat(update(loss, against, 0.7, projection=False)) == pytest.approx(g - 0.7 * a, abs=1e-12)
    # a step along it never lowers the adversary's loss to first order, and without the projection it can
    assert a @ flat(update(loss, against, 0.0, projection=True)) == pytest.approx(0, abs=1e-9)


def test_the_linear_adversary_of_equalized_odds_sees_what_the_paper_says():
    import torch

    adversary = make_adversary(2, (), label=True, seed=0).double()
    with torch.no_grad():
        adversary.steepness.fill_(-0.5)
    logit, y = torch.tensor([0.3, -2.0], dtype=torch.double), torch.tensor([1.0, 0.0], dtype=torch.double)
    s = 1 / (1 + np.exp(-1.5 * logit.numpy()))
    seen = np.stack([s * y.numpy(), s * (1 - y.numpy()), y.numpy()], axis=1)
    weight, bias = (part.detach().numpy() for part in adversary.reader[0].parameters())
    assert adversary(logit, y).detach().numpy() == pytest.approx(seen @ weight.T + bias, abs=1e-12)


def test_disparity_is_the_largest_difference_within_a_label():
    rows = table(500)
    one = Protected.of(rows, "equalized_odds", "race", ("a", "b", "c"))
    accepted = np.random.default_rng(0).random(500) < 0.4
    weights = np.random.default_rng(1).random(500)
    expected = 0.0
    for label in (0, 1):
        found = []
        for code in range(3):
            of = (rows.target == label) & (rows.groups["race"].codes == code)
            found.append((weights * accepted)[of].sum() / weights[of].sum())
        expected = max(expected, np.ptp(found))
    assert one.disparity(accepted, weights) == pytest.approx(expected, abs=1e-12)
    # every group counts the same within a label
    shares = np.bincount(one.cells, one.share)
    assert shares == pytest.approx(np.full(6, 500 / 6))


@pytest.mark.long
def test_one_training_serves_every_tolerance():
    methods = [AdversarialDebiasing.with_values(QUICK | {"sensitive": ["sex"], "tolerance": t}) for t in (0.3, 0.05)]
    together = AdversarialDebiasing.fit_together(methods, table(), RUN)
    alone = methods[1].fit(table(), RUN)
    assert np.array_equal(together[1].predict(table().columns).score, alone.predict(table().columns).score)
    loose, strict = (gap(model, table(), "demographic_parity") for model in together)
    assert loose > strict


def test_the_file_decides_as_the_model():
    export(fit(), table())


def test_what_cannot_be_met_is_said_and_never_constant():
    model = fit(tolerance=0.0, adversary_weight=0.0, projection=False)
    assert not model.details["tolerance_met"]
    assert "No network on the way had a disparity of at most 0" in model.notes[0]
    assert not is_constant(model.predict(table().columns))


@pytest.mark.parametrize(
    "values",
    [
        {"projection": False},
        {"warm_up": 0.0},
        {"adversary_hidden": []},
        {"hidden": []},
        {"balanced": True},
        {"constraint": "predictive_equality"},
        {"constraint": "equal_opportunity"},
        {"batch": 3000},
        {"validation_share": 0.5},
        {"adversary_rate": 1.0},
    ],
)
def test_every_parameter_has_an_effect_and_works(values):
    few = table(600)
    usual = fit(rows=few, epochs=3).predict(few.columns).score
    changed = fit(rows=few, **({"epochs": 3} | values)).predict(few.columns).score
    assert np.isfinite(changed).all()
    assert not np.array_equal(usual, changed)


def test_balanced_raises_the_rate_of_the_rarer_outcome():
    rows = table()
    rows = rows.take((rows.target == 0) | (np.arange(len(rows)) % 8 == 0))
    plain, even = fit(rows=rows, tolerance=1.0), fit(rows=rows, tolerance=1.0, balanced=True)
    accepted = [model.predict(rows.columns).decision_probability[rows.target == 1].mean() for model in (plain, even)]
    assert accepted[1] > accepted[0] + 0.1


def test_groups_that_are_too_small_are_left_out_and_named():
    rows = table(400)
    codes = rows.groups["race"].codes.copy()
    codes[np.flatnonzero(codes == 2)[5:]] = 0
    groups = {"race": Groups(None, ("a", "b", "c"), codes)}
    few = Table(
        columns=rows.columns, features=rows.features, target=rows.target, groups=groups, classes=(0, 1), name="t"
    )
    found, notes = protect(few, "demographic_parity", (), 30)
    assert found[0].names == ("a", "b")
    assert notes == ("Groups of race with fewer than 30 rows that demographic_parity is over were left out: c.",)
    with pytest.raises(DataError, match="fewer than two groups of 'race' have 300 rows"):
        protect(few, "demographic_parity", (), 300)


def test_training_that_diverges_is_stopped_and_said():
    with pytest.raises(DataError, match="The training diverged in epoch"):
        fit(rate=1e6, epochs=3)


def test_bad_input_is_one_message():
    rows = table(200)
    with pytest.raises(DataError, match="there is no sensitive split 'sx'"):
        fit(rows=rows, sensitive=["sx"])
    with pytest.raises(ParameterError, match="twice"):
        fit(sensitive=["sex", "sex"])
    with pytest.raises(DataError, match="all sample weights are 0"):
        fit(rows=rows.with_weights(np.zeros(200)), min_group=1, sensitive=["sex"])
    alone = Table(columns=rows.columns, features=rows.features, target=rows.target, classes=(0, 1), name="t")
    with pytest.raises(DataError, match="needs a sensitive column"):
        fit(rows=alone, sensitive=[])
