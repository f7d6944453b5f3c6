"""Massaging: the number of changes is the paper's M, the changed rows are the nearest ones."""

from __future__ import annotations

import numpy as np

import fairkit
from fairkit.mitigators import Run, Table
from fairkit_massaging import Massaging, massage


def test_two_groups_change_by_the_papers_number():
    rng = np.random.default_rng(0)
    for _ in range(20):
        n = int(rng.integers(40, 200))
        codes = rng.integers(0, 2, n)
        target = (rng.random(n) < 0.3 + 0.4 * codes).astype(float)
        scores = rng.random(n)
        changed = massage(target, codes, scores, np.ones(n))
        # M = (|D_b| · |{w, +}| - |D_w| · |{b, +}|) / |D|, with b the deprived group
        sizes, positives = np.bincount(codes, minlength=2), np.bincount(codes, target, minlength=2)
        M = (sizes[0] * positives[1] - sizes[1] * positives[0]) / n
        moved = np.abs(changed - target)
        for group in (0, 1):
            assert abs(moved[codes == group].sum() - abs(M)) <= 0.5 + 1e-9
        assert changed.sum() == target.sum()
        rates = np.bincount(codes, changed, minlength=2) / sizes
        assert abs(rates[0] - rates[1]) <= 0.5 * (1 / sizes[0] + 1 / sizes[1]) + 1e-9


def test_the_rows_nearest_to_the_border_change():
    target = np.array([0, 0, 0, 1, 1, 1, 1, 0], float)
    codes = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    scores = np.array([0.1, 0.4, 0.2, 0.9, 0.8, 0.3, 0.6, 0.2])
    changed = massage(target, codes, scores, np.ones(8))
    assert changed.tolist() == [0, 1, 0, 1, 1, 0, 1, 0]


def test_weights_count():
    target = np.array([0, 0, 1, 1, 1, 0], float)
    codes = np.array([0, 0, 0, 1, 1, 1])
    weights = np.array([5.0, 1.0, 2.0, 2.0, 2.0, 1.0])
    before = [np.average(target[codes == g], weights=weights[codes == g]) for g in (0, 1)]
    changed = massage(target, codes, np.array([0.9, 0.5, 0.9, 0.4, 0.8, 0.1]), weights)
    after = [np.average(changed[codes == g], weights=weights[codes == g]) for g in (0, 1)]
    assert abs(after[0] - after[1]) < abs(before[0] - before[1])


def test_equal_groups_are_left_alone():
    target, codes = np.tile([0.0, 1.0], 10), np.repeat([0, 1], 10)
    assert np.array_equal(massage(target, codes, np.linspace(0, 1, 20), np.ones(20)), target)


def test_the_model_says_what_was_changed():
    rng = np.random.default_rng(2)
    sex, skill = rng.choice(["f", "m"], 800), rng.normal(size=800)
    hired = np.where(skill + (sex == "m") > 0.5, "yes", "no")
    data = fairkit.load_data(
        {"sex": sex, "skill": skill, "hired": hired}, label="hired", favorable="yes", sensitive="sex"
    )
    table = Table.from_dataset(data)
    model = Massaging().fit(table, Run(learner="logistic"))
    assert set(model.details["promoted"]) == {"f"}
    assert set(model.details["demoted"]) == {"m"}
    assert model.details["promoted"]["f"] == model.details["demoted"]["m"] > 50
