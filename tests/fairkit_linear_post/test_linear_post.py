"""linear-post against a linear programme of its own, against threshold rules, and on new rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fairkit
from fairkit.errors import DataError
from fairkit.mitigators import Run, Table
from fairkit_linear_post import LinearPost, Rate, adjusted, solve
from fairkit_onnx.write.export import check_parity, export
from fairkit_repair.scored_rows import ScoredRows
from fairkit_testing.samples import sample_data
from fairkit_threshold_optimizer import Programme, curve, hull_places, mixtures

RUN = Run(seed=1, threads=1, learner="logistic")


def people(n=160, classes=3, groups=2, seed=0):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, groups, n)
    logits = rng.normal(size=(n, classes)) + 0.8 * codes[:, None] * np.arange(classes)
    p = np.exp(logits)
    return p / p.sum(axis=1, keepdims=True), codes, rng.random(n) + 0.5


def oracle(p, rates, weights, tolerance):
    """The primal, written out row by row and solved by HiGHS: its best expected accuracy."""
    from scipy.optimize import linprog

    n, k = p.shape
    share = weights / weights.sum()
    rows, bounds = [], []
    for j, rate in enumerate(rates):
        for a in range(rate.chances.shape[1]):
            row = np.zeros(n * k + len(rates))
            own = share * rate.chances[:, a]
            row[np.arange(n) * k + rate.target] = own / own.sum()
            row[n * k + j] = -1
            rows += [row, -row]
            bounds += [tolerance / 2] * 2
    once = np.zeros((n, n * k + len(rates)))
    for i in range(n):
        once[i, i * k : (i + 1) * k] = 1
    cost = np.concatenate([-(share[:, None] * p).ravel(), np.zeros(len(rates))])
    found = linprog(cost, np.array(rows), bounds, once, np.ones(n), [(0, 1)] * (n * k + len(rates)))
    return -found.fun


def rates_of(kind, p, codes, soft=None):
    member = np.eye(codes.max() + 1)[codes] if soft is None else soft
    targets = range(p.shape[1]) if p.shape[1] > 2 else [1]
    inside = {c: member * p[:, [c]] for c in targets}
    return [
        Rate(c, chances)
        for c in targets
        for chances in {
            "demographic_parity": [member],
            "equal_opportunity": [inside[c]],
            "equalized_odds": [inside[c], member - inside[c]],
        }[kind]
    ]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["demographic_parity", "equal_opportunity", "equalized_odds"])
@pytest.mark.parametrize(
    ("classes", "groups", "tolerance", "blind"),
    [(2, 2, 0.0, False), (2, 2, 0.08, True), (3, 2, 0.0, True), (3, 2, 0.08, False), (3, 3, 0.0, False)],
)
def test_the_rule_is_the_programmes_optimum(kind, classes, groups, tolerance, blind):
    p, codes, weights = people(classes=classes, groups=groups)
    soft = None
    if blind:
        soft = np.random.default_rng(3).dirichlet(np.ones(groups), len(p)) * 0.5 + 0.5 * np.eye(groups)[codes]
    rates = rates_of(kind, p, codes, soft)
    multipliers = solve(p, rates, weights, tolerance)
    terms = adjusted(p, rates, multipliers)
    share = weights / weights.sum()
    sizes = np.stack([share @ rate.chances for rate in rates])
    dual = share @ terms.max(axis=1) + tolerance / 2 * np.abs(multipliers * sizes).sum()
    best = oracle(p, rates, weights, tolerance)
    assert best - 1e-8 <= dual <= best + 2e-3  # weak duality: never below
    decided = np.eye(classes)[terms.argmax(axis=1)]
    gaps = []
    for rate in rates:
        own = share[:, None] * rate.chances
        shares = (own * decided[:, [rate.target]]).sum(axis=0) / own.sum(axis=0)
        gaps.append(np.ptp(shares))
    assert max(gaps) <= tolerance + 0.12  # 160 rows: a rate of 25 of them, with ties, and the smoothing


def test_two_classes_and_a_group_that_is_read_give_the_threshold_rules_of_hardt():
    p, codes, _ = people(n=20_000, classes=2)
    rng = np.random.default_rng(5)
    y = (rng.random(len(p)) < p[:, 1]).astype(float)
    ones = np.ones(len(p))
    rates = rates_of("demographic_parity", p, codes)
    decided = adjusted(p, rates, solve(p, rates, ones, 0.05)).argmax(axis=1)
    whole = ScoredRows(scores=p[:, 1], codes=codes, names=("a", "b"), favorable=y)
    curves = [curve(whole.take(codes == g)) for g in (0, 1)]
    hulls = [each.at(hull_places(each)) for each in curves]
    shares, _ = mixtures(hulls, Programme("demographic_parity", 0.05))
    gained = sum((h.accepted_good - h.accepted_bad) @ s for h, s in zip(hulls, shares, strict=True))
    assert (decided == y).mean() == pytest.approx((gained + (1 - y).sum()) / len(y), abs=0.003)
    assert abs(decided[codes == 1].mean() - decided[codes == 0].mean()) == pytest.approx(0.05, abs=0.002)


def table(task, rows=2_000, sensitive=("sex",), seed=0):
    return Table.from_dataset(sample_data(task, rows=rows, sensitive=sensitive, seed=seed))


@pytest.mark.long
@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("kind", ["demographic_parity", "equalized_odds"])
def test_three_classes_get_alike_rates_on_new_rows(read, kind):
    rows = table("multiclass")
    method = LinearPost.with_values({"constraint": kind, "read_group": read})
    model = method.fit(rows, RUN)
    content = export(model, rows)
    new = sample_data("multiclass", rows=4_000, sensitive=("sex",), seed=1)
    assert check_parity(content, model, Table.from_dataset(new).columns) < 1e-5
    assert ("sex" in {entry.name for entry in content.graph.input}) is read
    gaps = {}
    for name, file in (("before", export(method.baseline(rows, RUN), rows)), ("after", content)):
        report = fairkit.audit(file.SerializeToString(), new)
        found = [f for f in report.findings if f.metric == f"{kind}_difference" and f.sensitive == "sex"]
        assert len(found) == 3
        assert all(f.interval is not None for f in found)
        gaps[name] = max(f.value for f in found)
    assert gaps["before"] > 0.2
    assert gaps["after"] < (0.09 if kind == "demographic_parity" else 0.6 * gaps["before"])


@pytest.mark.long
def test_a_group_that_was_not_seen_keeps_the_plain_decision():
    rows = table("binary")
    model = LinearPost().fit(rows, RUN)
    strange = dict(rows.columns) | {"sex": np.full(len(rows), "other", dtype=object)}
    np.testing.assert_allclose(model.predict(strange).score, model.base.predict(strange).score, atol=1e-5)


@pytest.mark.long
def test_same_seed_same_bytes():
    rows = table("multiclass", 900)
    files = [export(LinearPost().fit(rows, RUN), rows).SerializeToString(deterministic=True) for _ in range(2)]
    assert files[0] == files[1]


def test_small_cells_and_regressions_are_refused_by_name():
    with pytest.raises(DataError, match=r"group '\w+' has \d+ rows of class '\w+', fewer than min_group=900"):
        LinearPost.with_values({"min_group": 900, "constraint": "equal_opportunity"}).fit(table("multiclass"), RUN)
    with pytest.raises(fairkit.FairkitError, match=r"linear-post .*regression"):
        fairkit.mitigate("linear-post", sample_data("regression"))


def test_a_class_that_a_fold_does_not_see_is_told():
    """One row of a class in each group: where one fold has both, the models of the other know two classes."""
    rows = table("multiclass", 300)
    groups = rows.only_groups(None).codes
    rare = [np.flatnonzero((rows.target == 2) & (groups == group))[0] for group in np.unique(groups)]
    target = np.where(rows.target == 2, np.arange(len(rows)) % 2, rows.target).astype(np.float64)
    target[rare] = 2
    method = LinearPost.with_values({"min_group": 1, "constraint": "equalized_odds", "folds": 2})
    told = []
    for left_out in (0, 1):  # folds take turns, class by class: with one row fewer the two are in the same
        kept = np.ones(len(rows), dtype=bool)
        kept[np.flatnonzero((groups == 1) & (target == 0))[:left_out]] = False
        try:
            method.fit(replace(rows, target=target).take(kept), RUN)
        except DataError as error:
            told.append(str(error))
    assert len(told) == 1
    assert "a class has so few rows that training rows of a fold lack it" in told[0]
