"""Parts of rates, what allowed columns leave, and intervals, against identities and simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from fairkit_watch.counting import Cells, divided, parts_of
from fairkit_why.audit_rows import label_error
from fairkit_why.conditional_gap import FOLDS, Comparison, Design, _logistic, _splines, unexplained
from fairkit_why.permutation_walks import Noise


def test_parts_are_the_shapley_values_of_three_factors():
    rng = np.random.default_rng(0)
    for _ in range(50):
        a, b = rng.random(3), rng.random(3)

        def rate(coalition, a=a, b=b):
            pi, t, f = np.where([k in coalition for k in range(3)], a, b)
            return pi * t + (1 - pi) * f

        truth = np.zeros(3)
        for order in itertools.permutations(range(3)):
            for place, k in enumerate(order):
                truth[k] += (rate(order[: place + 1]) - rate(order[:place])) / math.factorial(3)
        assert divided(a, b) == pytest.approx(truth, abs=1e-15)


def test_parts_of_counts_add_up_and_cover():
    rng, hits = np.random.default_rng(1), []
    chances = [np.array([0.5, 0.1, 0.1, 0.3]), np.array([0.6, 0.1, 0.2, 0.1])]
    truth = parts_of((Cells(chances[0]), Cells(chances[1]))).values
    for _ in range(400):
        cells = [Cells(rng.multinomial(n, c).astype(float)) for n, c in zip((200, 90), chances, strict=True)]
        found = parts_of((cells[0], cells[1]))
        rates = [(c.counts[1] + c.counts[3]) / c.counts.sum() for c in cells]
        assert found.values.sum() == pytest.approx(rates[0] - rates[1], abs=1e-12)
        ends = [found.interval(place, 0.95) for place in range(3)]
        hits.append([low <= t <= high for t, (low, high) in zip(truth, ends, strict=True)])
    assert (np.mean(hits, axis=0) > 0.92).all()


def test_the_share_of_label_errors_that_would_make_base_rates_equal():
    a = Cells(np.array([54.0, 6.0, 8.0, 32.0]))  # 40 % positives
    b = Cells(np.array([61.6, 8.4, 7.5, 22.5]))  # 30 %
    found = label_error((a, b), 0.95)
    assert found["of"] == "reference"
    assert found["share"] == pytest.approx(0.25)
    assert found["low"] < 0.25 < found["high"]


def told(design, group, outcome, seed=0, clusters=None):
    folds = np.random.default_rng(seed).integers(0, FOLDS, len(group))
    return Comparison(design, group, outcome, np.ones(len(group)), clusters, folds, ("a", "b"))


def test_with_one_column_of_text_it_is_direct_standardisation_and_mantel_haenszel():
    rng = np.random.default_rng(2)
    w = rng.choice(["x", "y", "z"], 30_000).astype(object)
    group = rng.random(30_000) < np.select([w == "x", w == "y"], [0.3, 0.5], 0.7)
    outcome = (rng.random(30_000) < 0.3 + 0.1 * group + 0.2 * (w == "x")).astype(float)
    found = unexplained(told(Design.make({"w": w}), group, outcome))
    cells = [(w == one) for one in ("x", "y", "z")]
    gap = np.array([outcome[c & group].mean() - outcome[c & ~group].mean() for c in cells])
    n, m = (np.array([(c & side).sum() for c in cells]) for side in (group, ~group))
    assert found.toward_group.value == pytest.approx(n @ gap / n.sum(), abs=2e-3)  # other folds, not all rows
    assert found.toward_reference.value == pytest.approx(m @ gap / m.sum(), abs=2e-3)
    assert found.overlap.value == pytest.approx((n * m / (n + m)) @ gap / (n * m / (n + m)).sum(), abs=2e-3)


def test_what_is_left_is_found_where_the_answer_is_known():
    rng, hits = np.random.default_rng(3), []
    for seed in range(6):
        x = rng.normal(size=(900, 2))
        group = rng.random(900) < 1 / (1 + np.exp(-0.8 * x[:, 0]))
        base = np.sin(2 * x[:, 0]) + x[:, 1] / 2
        outcome = base + 0.2 * group + rng.normal(size=900) / 2
        found = unexplained(told(Design.make({"u": x[:, 0], "v": x[:, 1]}), group, outcome, seed))
        low, high = found.toward_group.interval(0.95)
        hits.append(low <= 0.2 <= high)
        assert found.separating[0] == "u"
    assert np.mean(hits) > 0.6


def test_it_is_refused_where_people_have_no_counterpart():
    rng = np.random.default_rng(4)
    group = rng.random(3_000) < 0.5
    husband = np.where(group & (rng.random(3_000) < 0.6), "husband", rng.choice(["single", "widow"], 3_000))
    outcome = (rng.random(3_000) < 0.4).astype(float)
    found = unexplained(told(Design.make({"kin": husband.astype(object)}), group, outcome))
    assert found.toward_group.refused is not None
    assert "no counterpart" in found.toward_group.refused
    assert found.toward_group.far == pytest.approx(0.6, abs=0.05)
    assert found.overlap.refused is not None
    assert found.toward_reference.refused is None


def test_the_logistic_regression_is_the_maximum_of_its_likelihood():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(800, 3))
    y = (rng.random(800) < 1 / (1 + np.exp(-3 * x[:, 0]))).astype(float)
    said = _logistic(x, y, np.ones(800), np.ones(800, dtype=bool))
    from sklearn.linear_model import LogisticRegression

    other = LogisticRegression(C=10, tol=1e-10, max_iter=1000).fit(x, y).predict_proba(x)[:, 1]
    assert said == pytest.approx(other, abs=1e-5)


def test_splines_add_up_to_one_and_missing_numbers_have_a_column():
    values = np.random.default_rng(6).normal(size=500)
    assert _splines(values)[0].sum(axis=1) == pytest.approx(1.0)
    values[:50] = np.nan
    found, _ = _splines(values)
    assert found[:50, -1].tolist() == [1.0] * 50


def test_an_interval_reaches_rows_that_nobody_has_seen():
    none = Noise(np.zeros(1), np.full(1, 99.0), np.ones(1), (100.0, 50.0))
    seen = [1 - 0.025 ** (1 / n) for n in (100, 50)]
    assert none.half_width(0.95) == pytest.approx([math.hypot(*seen)])
    wide = Noise(np.full(1, 1.0), np.full(1, 1e9), np.ones(1), (1e6, 1e6))
    assert wide.half_width(0.95) == pytest.approx([1.96], abs=1e-3)


@pytest.mark.parametrize("clustered", [True, False])
def test_folds_never_cut_a_cluster_or_equal_rows_of_two_tables(clustered):
    from types import SimpleNamespace

    hashes = np.arange(60, dtype=np.uint64) // 2  # each row twice
    clusters = np.arange(60.0) // 6
    people = SimpleNamespace(
        weights=None,
        hashes=hashes,
        number=lambda name: clusters if clustered else None,
        column=lambda name: np.arange(60.0) % 7,
    )
    rows = np.arange(60)
    parts = [(people, rows[:30], np.zeros(30)), (people, rows[20:], np.ones(40))]
    made = Comparison.of(parts, np.arange(70) < 30, ("age",), ("later", "earlier"))
    units = np.concatenate([(clusters if clustered else hashes)[mine] for mine in (rows[:30], rows[20:])])
    folds = [set(made.folds[units == unit]) for unit in np.unique(units)]
    assert max(map(len, folds)) == 1
    assert len(set(made.folds)) > 1
    assert (made.clusters is not None) is clustered
    assert made.outcome.sum() == 40
