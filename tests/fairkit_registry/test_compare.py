from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fairkit_registry.exchange.difference import diff
from fairkit_registry.policies import AliasPolicy
from fairkit_registry.promotion.compare import compare_findings, difference_interval, worse_findings


def test_two_symmetric_intervals_add_in_squares(make):
    before, after = make.finding("m", 0.5, 0.03), make.finding("m", 0.6, 0.04)
    assert difference_interval(before, after, 0.95) == pytest.approx((0.05, 0.15))
    # at another confidence, by the ratio of normal quantiles: 1.6449 / 1.9600
    low, high = difference_interval(before, after, 0.90)
    assert (high - low) / 2 == pytest.approx(0.05 * 1.6448536 / 1.9599640)


def test_lopsided_intervals_use_the_near_bounds(make):
    before = make.finding("m", 0.0, interval=(0.0, 0.02))
    after = make.finding("m", 0.1, interval=(0.07, 0.2))
    assert difference_interval(before, after, 0.95) == pytest.approx(
        (0.1 - math.hypot(0.03, 0.02), 0.1 + math.hypot(0.1, 0.0))
    )


def test_the_interval_covers_the_difference_of_two_independent_rates(make):
    rng = np.random.default_rng(5)
    n, p, q, z, covered, rounds = 400, 0.3, 0.35, 1.959964, 0, 2000
    for a, b in zip(rng.binomial(n, p, rounds) / n, rng.binomial(n, q, rounds) / n, strict=True):
        one = make.finding("m", a, z * math.sqrt(a * (1 - a) / n))
        other = make.finding("m", b, z * math.sqrt(b * (1 - b) / n))
        low, high = difference_interval(one, other, 0.95)
        covered += low <= q - p <= high
    assert 0.935 <= covered / rounds <= 0.965


@pytest.mark.parametrize(
    ("before", "after", "better", "change"),
    [
        (0.5, 0.6, "lower", "worse"),
        (0.5, 0.6, "higher", "better"),
        (0.5, 0.4, "lower", "better"),
        (0.5, 0.4, "higher", "worse"),
        (0.5, 0.4, "none", "different"),
        (0.5, 0.505, "lower", "within noise"),
        (0.5, None, "lower", "unknown"),
        (None, 0.5, "lower", "unknown"),
    ],
)
def test_changes_have_names(make, model, before, after, better, change):
    def side(value):
        if value is None:
            return make.report(model(), [replace(make.finding("m", 0.0, better=better), value=None, interval=None)])
        return make.report(model(), [make.finding("m", value, better=better)])

    (pair,) = compare_findings(side(before), side(after))
    assert pair.change == change


def test_findings_pair_by_auditor_metric_column_and_parameters(make, model):
    one = make.report(
        model(),
        [make.finding("m", 0.1), make.finding("gone", 0.1), make.finding("gap", 0.2, parameters={"epsilon": 0.1})],
    )
    other = make.report(
        model(),
        [make.finding("new", 0.1), make.finding("gap", 0.9, parameters={"epsilon": 0.5}), make.finding("m", 0.1)],
    )
    pairs = {(p.metric, p.before, p.after) for p in compare_findings(one, other)}
    assert pairs == {("m", 0.1, 0.1), ("gone", 0.1, None), ("gap", 0.2, None), ("new", None, 0.1), ("gap", None, 0.9)}


@pytest.mark.long
def test_many_comparisons_of_equal_models_seldom_name_anything(make, model):
    """Without care for their number, 20 comparisons name something in about half of all cases."""
    rng = np.random.default_rng(1)
    alarms = 0
    rounds, half = 300, 1.959964 * 0.01
    for _ in range(rounds):
        sides = [
            make.report(
                model(), [make.finding(f"m{k}", value, half) for k, value in enumerate(rng.normal(0.5, 0.01, 20))]
            )
            for _ in range(2)
        ]
        alarms += bool(worse_findings(*sides)[0])
    assert alarms / rounds <= 0.06  # one direction of two: about .025 is expected


def test_what_cannot_be_compared_any_more_is_told(make, model):
    before = make.report(model(), [make.finding("m", 0.1), make.finding("n", 0.1, interval=None)])
    after = make.report(model(), [make.finding("n", 0.9, interval=None)])
    worse, unknown = worse_findings(before, after)
    assert worse == []
    assert [pair.metric for pair in unknown] == ["m"]
    assert [pair.metric for pair in worse_findings(before, after, ["n"])[1]] == ["n"]


def test_diff_sets_findings_and_graphs_side_by_side(registry, make, model, certify, signer):
    registry.add("credit", model(1), certificates=[certify(model(1))])
    worse = [make.finding("demographic_parity_difference", 0.3)]
    registry.add("credit", model(2, width=7), certificates=[certify(model(2, width=7), worse)])
    result = diff(registry, "credit@1", "credit@2")
    assert [pair.change for pair in result.findings] == ["worse"]
    assert [graph.weights for graph in result.graphs] == [1, 7]
    assert result.operators == {}
    text = " ".join(result.notes)
    assert "conservative" in text
    assert text.count("its numbers are a claim") == 2
    registry.set_alias("credit", "p", AliasPolicy(keys=(signer.public.pem,)))
    assert "a claim" not in " ".join(diff(registry, "credit@1", "credit@2").notes)


def test_diff_without_a_certificate_says_so(registry, make, model, certify):
    registry.add("credit", model(1))
    registry.add("credit", model(2), certificates=[certify(model(2))])
    result = diff(registry, "credit@1", "credit@2")
    assert result.findings == ()
    assert "credit@1 has no certificate" in result.notes[0]


def test_audits_on_different_data_are_told(registry, make, model, certify):
    other = replace(make.report(model()).data, sha256="e" * 64)
    registry.add("credit", model(1), certificates=[certify(model(1))])
    registry.add("credit", model(2), certificates=[certify(model(2), data=other)])
    assert any("different data" in note for note in diff(registry, "credit@1", "credit@2").notes)
