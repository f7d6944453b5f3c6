"""The band around 1/2: its decisions, its choice, and its failure on discrete scores."""

from __future__ import annotations

import numpy as np
import pytest

from fairkit.mitigators import Run
from fairkit_reject_option import GRID, RejectOption, band_decisions
from fairkit_repair.scored_rows import ScoredRows


def make_rows(digits=None, shift=1.0, n=6_000) -> ScoredRows:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, n)
    scores = 1 / (1 + np.exp(-rng.normal(shift * codes - 0.5, 1.5)))
    favorable = (rng.random(n) < scores).astype(float)
    if digits is not None:
        scores = scores.round(digits)
    return ScoredRows(scores=scores, codes=codes, names=("a", "b"), favorable=favorable)


def solve(rows, **values):
    return RejectOption.with_values(values).solve(rows, None, Run())


def test_decisions_inside_and_outside_the_band():
    scores = np.array([0.29, 0.3, 0.5, 0.7, 0.71])
    np.testing.assert_array_equal(band_decisions(scores, np.ones(5, bool), 0.4), [0, 1, 1, 1, 1])
    np.testing.assert_array_equal(band_decisions(scores, np.zeros(5, bool), 0.4), [0, 0, 0, 0, 1])
    np.testing.assert_array_equal(band_decisions(np.array([0.0, 1.0]), np.zeros(2, bool), 1.0), [0, 0])


def test_the_most_accurate_band_within_chance_is_chosen():
    rows = make_rows()
    solution = solve(rows)
    figures = {}
    for theta in GRID:
        h = band_decisions(rows.scores, rows.codes == 0, theta)
        figures[theta] = (abs(h[rows.codes == 0].mean() - h[rows.codes == 1].mean()), rows.accuracy(h))
    allowed = 2 * np.sqrt(0.25 / min((rows.codes == k).sum() for k in range(2)))
    best = max(accuracy for gap, accuracy in figures.values() if gap <= allowed)
    assert solution.details["reached"] is True
    assert solution.details["allowed"] == pytest.approx(allowed)
    assert figures[solution.details["theta"]][1] == best
    assert solution.details["favored_inside_the_band"] == ["a"]
    theta = solution.details["theta"]
    assert solution.pieces[0][0].threshold == pytest.approx(0.5 - theta / 2)
    assert solution.pieces[1][0].threshold == pytest.approx(0.5 + theta / 2)
    assert solution.pieces[2][0].threshold == 0.5


def test_failure_on_scores_of_few_values_is_told():
    solution = solve(make_rows(digits=1, shift=0.6))
    assert solution.details["reached"] is False
    assert "No band reaches parity" in solution.notes[0]
    assert "11 values only" in solution.notes[0]
    gaps = []
    rows = make_rows(digits=1, shift=0.6)
    for theta in GRID:
        h = band_decisions(rows.scores, rows.codes == 0, theta)
        gaps.append(abs(h[rows.codes == 0].mean() - h[rows.codes == 1].mean()))
    assert solution.details["difference"] == pytest.approx(min(gaps))


def test_given_values_are_used():
    assert solve(make_rows(), theta=0.3).details["theta"] == 0.3
    wide = solve(make_rows(), tolerance=0.5)
    assert wide.details["theta"] < solve(make_rows()).details["theta"]  # a band that changes less


def test_the_band_is_judged_on_the_validation_rows():
    rows, other = make_rows(), make_rows(shift=2.0)
    theta = RejectOption.with_values({}).solve(rows, other, Run()).details["theta"]
    assert theta > solve(rows).details["theta"]
