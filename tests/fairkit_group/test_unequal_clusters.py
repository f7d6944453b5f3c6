"""Clusters of unequal sizes: CR2 variances with Satterthwaite's degrees of freedom, and what a few large ones do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import fairkit
from fairkit.limits import student
from fairkit_dependent import jackknife, ratio_noise
from fairkit_group.calibration import CalibrationInTheLarge
from fairkit_group.rates import SelectionRate

if TYPE_CHECKING:
    from fairkit.metrics import Metric

SIZES = np.r_[np.full(5, 60), np.full(40, 8)]


def test_equal_clusters_have_the_jackknife_and_one_degree_less() -> None:
    top = np.random.default_rng(0).binomial(10, 0.3, (3, 40)).astype(float)
    base = np.full((3, 40), 10.0)
    closed = ratio_noise(top, base)
    plain = jackknife(lambda sums: sums[..., 1] / sums.sum(axis=-1), np.stack([base - top, top], axis=2))
    assert closed.variance == pytest.approx(plain.variance, rel=1e-9)
    assert closed.degrees.max() == pytest.approx(39.0)  # fewer where a few residuals are most of the variance
    assert closed.degrees == pytest.approx(plain.degrees)


@pytest.mark.parametrize("alike", [False, True])
def test_degrees_are_those_of_the_matrices(alike: bool) -> None:
    """Satterthwaite's formula from the covariance matrix of the residuals, under both working models."""
    share = SIZES / SIZES.sum()
    count = len(SIZES)
    residual = np.eye(count) - np.tile(share, (count, 1))  # of cluster means, from their mean by size
    covariance = residual @ np.diag(np.ones(count) if alike else 1 / SIZES) @ residual.T
    scale = share / np.sqrt(1 - share)
    matrix = scale[:, None] * covariance * scale
    expected = np.trace(matrix) ** 2 / (matrix**2).sum()
    w, even = share, (share**2).sum()
    q = w**2 / (1 - w)
    if alike:
        trace = (q * (1 - 2 * w + even)).sum()
        square = (q[:, None] * q * (np.eye(count) - w[:, None] - w + even) ** 2).sum()
        assert trace**2 / square == pytest.approx(expected)
        found = ratio_noise(np.random.default_rng(1).binomial(SIZES, 0.3)[None].astype(float), SIZES[None] * 1.0)
        assert found.degrees[0] <= expected + 1e-9
        assert found.degrees[0] == pytest.approx(expected)
    else:
        assert 1 / (even + q.sum() ** 2 - (q**2).sum()) == pytest.approx(expected)


@pytest.mark.parametrize("correlation", [0.05, 0.5])
def test_limits_of_unequal_clusters_cover(correlation: float) -> None:
    rng, scale = np.random.default_rng(2), 1 / correlation - 1
    chance = rng.beta(0.3 * scale, 0.7 * scale, (2_000, len(SIZES)))
    top, base = rng.binomial(SIZES, chance).astype(float), np.tile(SIZES * 1.0, (2_000, 1))
    noise = ratio_noise(top, base)
    half = student(1.96, noise.degrees + 1) * np.sqrt(noise.variance)
    covers = np.abs(top.sum(axis=1) / base.sum(axis=1) - 0.3) <= half
    assert covers.mean() >= 0.925  # the jackknife: .9125 at a correlation of one half


@pytest.mark.long
@pytest.mark.parametrize("metric", [SelectionRate, CalibrationInTheLarge])
def test_a_few_large_clusters_are_named_inside_strata_too(metric: type[Metric]) -> None:
    rng = np.random.default_rng(3)
    sizes = np.r_[np.full(4, 300), np.full(60, 4)]
    who = np.repeat(np.arange(64), sizes)
    n = len(who)
    table = {
        "y": rng.integers(0, 2, n),
        "d": rng.integers(0, 2, n).astype(float),
        "s": rng.random(n),
        "sex": np.array(["f", "m"], dtype=object)[rng.integers(0, 2, n)],
        "place": np.array(["a", "b"], dtype=object)[rng.integers(0, 2, n)],
        "who": who,
    }
    data = fairkit.load_data(table, label="y", favorable=1, sensitive="sex", within="place", cluster="who")
    report = fairkit.audit(fairkit.PredictedColumns("d", "s"), data)
    for within in ("", "place"):
        finding = report.find(f"{metric.name}_difference", "sex", within=within)
        assert finding.inconclusive is not None
        assert "a few of them have most of the rows" in finding.inconclusive


@pytest.mark.parametrize(
    ("weights", "words"),
    [(0.0, "every weight in column 'w' is 0"), (1e-200, "multiply the column by a constant"), (1e200, "1e-90")],
)
def test_weights_that_add_up_to_nothing_are_refused(weights: float, words: str) -> None:
    table = {"y": [0, 1] * 20, "d": [0.0, 1.0] * 20, "sex": ["f", "f", "m", "m"] * 10, "w": [weights] * 40}
    data = fairkit.load_data(table, label="y", favorable=1, sensitive="sex", weights="w")
    with pytest.raises(fairkit.DataError, match=words):
        fairkit.audit(fairkit.PredictedColumns("d"), data)
