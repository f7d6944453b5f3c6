"""Randomized thresholds by linear program, against fairlearn, a dense program and the hull's definition."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fairkit.errors import DataError
from fairkit.mitigators import Run
from fairkit.objective import Objective
from fairkit_onnx.write.rules import GroupColumn, GroupKeys, GroupRule
from fairkit_repair.scored_rows import RowBound, ScoredRows
from fairkit_threshold_optimizer import Programme, ThresholdOptimizer, curve, hull_places, mixtures, sharp_thresholds

CONSTRAINTS = {
    "demographic_parity": "demographic_parity",
    "equal_opportunity": "true_positive_rate_parity",
    "equalized_odds": "equalized_odds",
}
OUTCOMES = {"demographic_parity": (None,), "equal_opportunity": (1,), "equalized_odds": (1, 0)}


def one_group(scores, favorable, weights=None):
    codes = np.zeros(len(scores), dtype=int)
    return ScoredRows(scores=scores, codes=codes, names=("a",), favorable=favorable, weights=weights)


def roc_hull(scores, favorable, weights=None):
    whole = curve(one_group(scores, favorable, weights))
    return whole.at(hull_places(whole))


@pytest.fixture(scope="module", params=["smooth", "discrete"])
def rows(request) -> ScoredRows:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, 3_000)
    scores = rng.beta(1 + 0.5 * codes, 2)
    if request.param == "discrete":
        scores = scores.round(1)
    favorable = (rng.random(3_000) < scores**1.3).astype(float)
    return ScoredRows(scores=scores, codes=codes, names=("a", "b", "c"), favorable=favorable)


def solve(rows, **values):
    solution = ThresholdOptimizer.with_values(values).solve(rows, None, Run())
    names = rows.names
    column = GroupColumn(name="g", keys=tuple(float(k) for k in range(len(names))))
    keys = GroupKeys(columns=(column,), names=names, cells=tuple((k + 1,) for k in range(len(names))))
    return solution, GroupRule(keys=keys, pieces=solution.pieces).probability(rows.scores, rows.codes)


def rates_of(rows, h, constraint):
    {"demographic_parity": (None,), "equal_opportunity": (1,), "equalized_odds": (1, 0)}[constraint]
    return np.array(
        [
            [h[(rows.codes == k) & ((rows.favorable == y) if y is not None else True)].mean() for k in range(3)]
            for y in OUTCOMES[constraint]
        ]
    )


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_equal_rates_and_the_optimum_of_the_dense_program(rows, constraint):
    from scipy.optimize import linprog

    solution, h = solve(rows, constraint=constraint)
    rates = rates_of(rows, h, constraint)
    assert np.ptp(rates, axis=1).max() <= 1e-9
    assert rows.accuracy(h) == pytest.approx(solution.details["expected_accuracy_on_fit_rows"], abs=1e-9)
    if len(np.unique(rows.scores)) > 20:
        return
    # any rule that gives each of the few scores in each group a chance that does not decrease in the score
    cells, place = np.unique(np.stack([rows.codes, rows.scores]), axis=1, return_inverse=True)
    good, bad = (np.bincount(place.ravel(), rows.favorable == y, minlength=cells.shape[1]) for y in (1, 0))
    equal = []
    for y in OUTCOMES[constraint]:
        mass = {None: good + bad, 1: good, 0: bad}[y]
        shares = [np.where(cells[0] == k, mass, 0) / mass[cells[0] == k].sum() for k in range(3)]
        equal += [shares[0] - shares[1], shares[0] - shares[2]]
    steps = np.flatnonzero(np.diff(cells[0]) == 0)
    monotone = np.zeros((len(steps), cells.shape[1]))
    monotone[np.arange(len(steps)), steps], monotone[np.arange(len(steps)), steps + 1] = 1, -1
    program = linprog(
        (bad - good) / len(rows),
        A_ub=monotone,
        b_ub=np.zeros(len(steps)),
        A_eq=np.array(equal),
        b_eq=np.zeros(len(equal)),
        bounds=(0, 1),
        method="highs",
    )
    assert rows.accuracy(h) == pytest.approx(bad.sum() / len(rows) - program.fun, abs=1e-7)


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_agrees_with_fairlearn_to_its_grid(rows, constraint):
    from fairlearn.postprocessing import ThresholdOptimizer as Theirs
    from sklearn.base import BaseEstimator, ClassifierMixin

    class Given(ClassifierMixin, BaseEstimator):
        classes_ = np.array([0, 1])

        def fit(self, X, y):
            return self

        def predict_proba(self, X):
            return np.column_stack([1 - X[:, 0], X[:, 0]])

        def __sklearn_is_fitted__(self):
            return True

    theirs = Theirs(
        estimator=Given(),
        constraints=CONSTRAINTS[constraint],
        objective="accuracy_score",
        prefit=True,
        predict_method="predict_proba",
    )
    theirs.fit(rows.scores[:, None], rows.favorable, sensitive_features=rows.codes)
    chance = theirs._pmf_predict(rows.scores[:, None], sensitive_features=rows.codes)[:, 1]
    _, h = solve(rows, constraint=constraint)
    gap = rows.accuracy(h) - rows.accuracy(chance)
    assert -1e-9 <= gap <= 1e-3
    # where the optimum is flat the rates may differ more than the accuracies
    assert np.abs(rates_of(rows, h, constraint) - rates_of(rows, chance, constraint)).max() < 0.03


def test_an_allowed_difference_is_used(rows):
    _exact, h0 = solve(rows)
    _loose, h1 = solve(rows, tolerance=0.1)
    assert np.ptp(rates_of(rows, h1, "demographic_parity")) == pytest.approx(0.1, abs=1e-9)
    assert rows.accuracy(h1) > rows.accuracy(h0)


def test_the_hull_by_hand():
    # in decreasing order: good, bad, good, good, bad -> ROC points (0,1) (1,1) (1,2) (1,3) (2,3)
    scores = np.array([0.9, 0.8, 0.6, 0.4, 0.2])
    hull = roc_hull(scores, np.array([1.0, 0.0, 1.0, 1.0, 0.0]), np.ones(5))
    np.testing.assert_allclose(hull.accepted_good, [0, 1, 3, 3])
    np.testing.assert_allclose(hull.accepted_bad, [0, 0, 1, 2])
    np.testing.assert_allclose(hull.thresholds, [2.0, 0.85, 0.3, 0.0])


def test_weights_are_repetitions():
    rng = np.random.default_rng(1)
    scores, good, weights = rng.random(50).round(1), rng.integers(0, 2, 50), rng.integers(0, 4, 50)
    one = roc_hull(scores, good.astype(float), weights.astype(float))
    repeated = np.repeat(np.arange(50), weights)
    other = roc_hull(scores[repeated], good[repeated].astype(float), np.ones(len(repeated)))
    for name in ("thresholds", "accepted_good", "accepted_bad"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-12)


def test_the_pooled_rule_has_the_common_rate(rows):
    for constraint in CONSTRAINTS:
        solution, _ = solve(rows, constraint=constraint)
        pooled = sum(piece.weight * (rows.scores >= piece.threshold) for piece in solution.pieces[-1])
        common = solution.details["common"]
        good = rows.favorable == 1
        if "selection_rate" in common:
            assert pooled.mean() == pytest.approx(common["selection_rate"], abs=1e-9)
        if "false_positive_rate" in common:
            assert pooled[~good].mean() == pytest.approx(common["false_positive_rate"], abs=1e-9)
        if "true_positive_rate" in common:
            assert pooled[good].mean() <= common["true_positive_rate"] + 1e-9


def test_one_group_alone_is_as_accurate_as_it_can_be(rows):
    hull = roc_hull(rows.scores, rows.favorable, np.ones(len(rows)))
    (shares,), _ = mixtures([hull], Programme("equalized_odds"))
    gain = hull.accepted_good - hull.accepted_bad
    assert shares @ gain == pytest.approx(gain.max())


def test_a_group_without_the_outcome_that_is_needed():
    rows = ScoredRows(
        scores=np.linspace(0, 1, 6),
        codes=np.array([0, 0, 0, 1, 1, 1]),
        names=("a", "b"),
        favorable=np.array([1.0, 0, 1, 0, 0, 0]),
    )
    for constraint in ("equal_opportunity", "equalized_odds"):
        with pytest.raises(DataError, match="group 'b' has no rows with one of the outcomes"):
            ThresholdOptimizer.with_values({"constraint": constraint}).solve(rows, None, Run())
    ThresholdOptimizer.with_values({}).solve(rows, None, Run())


def scored(rows=3_000, seed=0):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 2, rows)
    scores = np.clip(rng.beta(2, 3, rows) + 0.12 * codes, 0, 1)
    favorable = (rng.random(rows) < scores).astype(float)
    return ScoredRows(scores=scores, codes=codes, names=("a", "b"), favorable=favorable)


@pytest.mark.parametrize("tolerance", [0.0, 0.03])
@pytest.mark.parametrize("constraint", ["demographic_parity", "equal_opportunity"])
def test_sharp_thresholds_are_the_best_pair_of_all(constraint, tolerance):
    """On a few hundred rows, against every pair of thresholds."""
    rows = scored(240)
    parts = [rows.take(rows.codes == group) for group in (0, 1)]
    curves = [curve(part) for part in parts]
    rates = [one.measures(constraint)[0] for one in curves]
    gains = [one.gain for one in curves]
    chosen = sharp_thresholds(curves, Programme(constraint, tolerance), linear=False)
    gap = abs(rates[0][chosen[0]] - rates[1][chosen[1]])
    assert gap <= tolerance + 1e-9 or tolerance == 0  # equal rates of 118 and 122 rows are near at best
    allowed = np.abs(rates[0][:, None] - rates[1][None, :]) <= max(gap, tolerance) + 1e-9
    best = np.where(allowed, gains[0][:, None] + gains[1][None, :], -np.inf).max()
    assert gains[0][chosen[0]] + gains[1][chosen[1]] == best


def test_without_chance_every_decision_is_certain_and_costs_little():
    rows = scored(20_000)
    values = {}
    for drawn in (True, False):
        method = ThresholdOptimizer.with_values({"tolerance": 0.01, "randomized": drawn})
        found = method.solve(rows, None, Run())
        values[drawn] = found.details["expected_accuracy_on_fit_rows"]
        sharp = all(len(row) == 1 and row[0].weight == 1 and row[0].width == 0 for row in found.pieces)
        assert sharp or drawn
        gap = np.ptp(list(found.details["rates"]["selection_rate"].values()))
        assert gap <= 0.0105
    assert values[True] - values[False] < 0.002


def calibrated(part):
    """Return the expected good outcomes of the best k rows, by isotonic regression from scikit-learn."""
    from sklearn.isotonic import IsotonicRegression

    order = np.argsort(-part.scores)
    chance = IsotonicRegression(increasing=False).fit_transform(np.arange(len(part)), part.favorable[order])
    return np.append(0.0, np.cumsum(chance))


def test_the_rate_is_kept_at_the_optimum_of_all_group_cutoffs_on_200_small_problems():
    rng, solved = np.random.default_rng(4), 0
    while solved < 200:
        count = int(rng.integers(2, 4))
        sizes = rng.integers(4, 10 if count == 3 else 16, count)
        codes = np.repeat(np.arange(count), sizes)
        scores = rng.random(len(codes))
        favorable = (rng.random(len(codes)) < scores).astype(float)
        accepted, tolerance = int(rng.integers(1, len(codes))), float(rng.choice([0.1, 0.2, 0.4]))
        rows = ScoredRows(
            scores=scores, codes=codes, names=tuple("abc"[:count]), favorable=favorable, rate=accepted / len(codes)
        )
        parts = [rows.take(codes == group) for group in range(count)]
        worth = [calibrated(part) for part in parts]
        cutoffs = np.stack(np.meshgrid(*(np.arange(n + 1) for n in sizes), indexing="ij")).reshape(count, -1)
        kept = (cutoffs.sum(axis=0) == accepted) & (np.ptp(cutoffs / sizes[:, None], axis=0) <= tolerance + 1e-12)
        if not kept.any():
            continue
        best = np.sum([own[at] for own, at in zip(worth, cutoffs[:, kept], strict=True)], axis=0).max()
        programme = Programme.of("demographic_parity", tolerance, rows)
        chosen = sharp_thresholds([curve(part) for part in parts], programme)
        assert sum(chosen) == accepted
        assert np.ptp(np.array(chosen) / sizes) <= tolerance + 1e-12
        assert sum(own[at] for own, at in zip(worth, chosen, strict=True)) == pytest.approx(best, abs=1e-9)
        hulls = [curve(part).at(hull_places(curve(part))) for part in parts]
        shares, _ = mixtures(hulls, programme)
        mixed = sum(float(hull.accepted_good @ own) for hull, own in zip(hulls, shares, strict=True))
        assert best - 1e-9 <= mixed <= best + 1  # chance buys at most a part of one decision for each group
        solved += 1


def fairlearn_at(rows, rate=None, objective="accuracy_score"):
    """Return fairlearn's rule of equal selection rates: its own optimum, or its point at a rate."""
    import pandas as pd
    from fairlearn.postprocessing._tradeoff_curve_utilities import _tradeoff_curve

    codes, size = rows.codes, len(rows)
    grid = np.linspace(0, 1, 1001)
    total = np.zeros(len(grid))
    for group in range(len(rows.names)):
        own = codes == group
        frame = pd.DataFrame({"score": rows.scores[own], "label": rows.favorable[own].astype(int)})
        points = _tradeoff_curve(frame, group, flip=False, x_metric="selection_rate", y_metric=objective)
        total += own.sum() / size * np.interp(grid, points["x"], points["y"])
    return float(total.max() if rate is None else np.interp(rate, grid, total))


@pytest.mark.parametrize("objective", ["rate", "accuracy", "cost=3:1", "balanced_accuracy"])
def test_the_objective_is_at_least_fairlearns(rows, objective):
    aim = Objective.parse(objective)
    share = rows.favorable.mean()
    good, bad = {"cost=3:1": (1, 3), "balanced_accuracy": (0.5 / share, 0.5 / (1 - share))}.get(objective, (1, 1))
    rate = 0.4 if objective == "rate" else None
    asked = dataclasses.replace(rows, gain=np.where(rows.favorable > 0, good, -bad), rate=rate)
    solution = ThresholdOptimizer.with_values({}).solve(asked, None, Run(objective=aim))
    column = GroupColumn(name="g", keys=(0.0, 1.0, 2.0))
    keys = GroupKeys(columns=(column,), names=rows.names, cells=((1,), (2,), (3,)))
    h = GroupRule(keys=keys, pieces=solution.pieces).probability(rows.scores, rows.codes)
    assert np.ptp(rates_of(rows, h, "demographic_parity")) <= 1e-9
    if rate is not None:
        assert h.mean() == pytest.approx(rate, abs=1e-9)
        assert rows.accuracy(h) == pytest.approx(fairlearn_at(rows, rate), abs=2e-3)
        assert rows.accuracy(h) >= fairlearn_at(rows, rate) - 1e-9
    elif objective == "accuracy":
        assert rows.accuracy(h) >= fairlearn_at(rows) - 1e-9
    elif objective == "balanced_accuracy":
        hits, false = h[rows.favorable > 0].mean(), h[rows.favorable <= 0].mean()
        assert 0.5 * (hits + 1 - false) >= fairlearn_at(rows, objective="balanced_accuracy_score") - 0.02
    else:  # the gain of every other rule with equal rates, by a grid of common rates
        gain = float((h * asked.gain).mean())
        for common in np.linspace(0, 1, 51):
            at = dataclasses.replace(asked, rate=common)
            other = ThresholdOptimizer.with_values({}).solve(at, None, Run(objective=aim))
            chance = GroupRule(keys=keys, pieces=other.pieces).probability(rows.scores, rows.codes)
            assert gain >= float((chance * asked.gain).mean()) - 1e-9


def test_rules_on_rates_come_before_the_rate_to_keep():
    rows = scored(4_000)
    accepted = np.ones(len(rows)) / len(rows)
    # at most .3 of all, where .4 would be kept: Σ a - .3 ≤ 0
    bound = RowBound(-0.3 * accepted, 0.7 * accepted)
    for drawn in (True, False):
        method = ThresholdOptimizer.with_values({"tolerance": 0.05, "randomized": drawn})
        found = method.solve(dataclasses.replace(rows, rate=0.4, bounds=(bound,)), None, Run())
        assert found.details["selection_rate_on_fit_rows"] == pytest.approx(0.3, abs=1e-3)
        assert found.details["selection_rate_on_fit_rows"] <= 0.3 + 1e-9


def test_values_are_kept_by_the_best_cutoffs():
    rows = scored(3_000)
    value = np.where(rows.favorable > 0, 1.0, -2.0) * np.random.default_rng(2).exponential(1, len(rows))
    asked = dataclasses.replace(rows, gain=value)
    found = ThresholdOptimizer.with_values({"tolerance": 1.0, "randomized": False}).solve(
        asked, None, Run(objective=Objective(kind="value", column="profit"))
    )
    best = sum(curve(asked.take(rows.codes == group)).gain.max() for group in (0, 1))
    chosen = sum(
        value[(rows.codes == group) & (rows.scores >= found.pieces[group][0].threshold)].sum() for group in (0, 1)
    )
    assert chosen >= best - 0.002 * np.abs(value).sum()
