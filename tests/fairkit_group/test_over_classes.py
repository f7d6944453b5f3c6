"""Gaps over all classes: their values, what missing groups do, coverage, and statements that cannot be true."""

from __future__ import annotations

import numpy as np
import pytest

import fairkit
from fairkit.limits import share_limits
from fairkit.metrics import Estimate
from fairkit.results.report import Report
from fairkit.results.rules import Rule
from fairkit_group.strata import NAMES, ClassGaps
from fairkit_registry.evidence.charts import contradictions
from fairkit_registry.evidence.settings import SignedSettings


def rows(n=4_000, seed=0, groups=("f", "m"), classes=4):
    rng = np.random.default_rng(seed)
    label, group = rng.integers(classes, size=n), rng.integers(len(groups), size=n)
    right = rng.random(n) < 0.8 - 0.03 * group * label
    decided = np.where(right, label, rng.integers(classes, size=n))
    names = np.array([f"c{k}" for k in range(classes)])
    return {"y": names[label], "p": names[decided], "sex": np.array(groups, object)[group]}


def audited(table, rules=(), **roles):
    data = fairkit.load_data(table, label="y", sensitive=["sex"], predictions={"class": "p"}, **roles)
    report = fairkit.audit(None, data, policy=list(rules))
    settings = SignedSettings(data=data.roles.to_dict(), policy=tuple(rules))
    return Report.from_dict(report.to_dict()), settings.to_dict()


def by_hand(table):
    """The pairs' gaps of every class, shape [K, P]."""
    y, right, sex = table["y"], table["y"] == table["p"], table["sex"]
    rates = [[right[(y == k) & (sex == g)].mean() for g in np.unique(sex)] for k in np.unique(y)]
    a, b = np.triu_indices(len(np.unique(sex)), 1)
    return np.abs(np.array(rates)[:, a] - np.array(rates)[:, b])


@pytest.mark.parametrize("groups", [("f", "m"), ("f", "m", "x")])
def test_they_are_root_mean_square_mean_and_maximum_over_the_classes(groups):
    table = rows(groups=groups)
    report, settings = audited(table, [Rule(metric="class_gap_rms", sensitive="sex", max=0.3)])
    found = {f.metric: f for f in report.findings if f.metric in NAMES}
    gaps = by_hand(table)
    assert found["class_gap_rms"].value == pytest.approx(np.sqrt((gaps**2).mean(axis=0)).max())
    assert found["class_gap_mean"].value == pytest.approx(gaps.mean(axis=0).max())
    assert found["class_gap_max"].value == pytest.approx(gaps.max())
    assert found["class_gap_rms"].evidence["class_gaps"]["c3"] == pytest.approx(gaps[3].max())
    assert report.verdict == "pass"
    assert not list(contradictions(report, settings))


@pytest.mark.long
@pytest.mark.parametrize("gap", [0.0, 0.06])
@pytest.mark.parametrize("groups", [2, 3])
def test_the_intervals_cover(gap, groups):
    rng = np.random.default_rng(groups)
    truth = 0.8 + gap * rng.standard_normal((6, groups))
    a, b = np.triu_indices(groups, 1)
    true = np.abs(truth[:, a] - truth[:, b])
    asked = (np.sqrt((true**2).mean(axis=0)).max(), true.mean(axis=0).max(), true.max())
    draws, inside = np.abs(rng.standard_normal((1_000, 6))), np.zeros(3)
    for _ in range(100):
        shares = rng.binomial(150, truth) / 150
        gaps = ClassGaps(
            [Estimate(s, lambda z, s=s: share_limits(s, np.full(groups, 150.0), z)) for s in shares], draws
        )
        found = [gaps.spread(name, 0.95) for name in NAMES]
        inside += [one.low <= value <= one.high for one, value in zip(found, asked, strict=True)]
    assert (inside >= 91).all()  # 95, less two standard errors


def test_a_class_that_a_group_lacks_leaves_the_gap_undecided():
    table = rows()
    kept = (table["sex"] != "f") | (table["y"] != "c3")
    table = {name: values[kept] for name, values in table.items()}
    report, settings = audited(table, [Rule(metric="class_gap_max", sensitive="sex", max=0.5)])
    found = next(f for f in report.findings if f.metric == "class_gap_max")
    assert report.verdict == "inconclusive"
    assert "c3" in str(found.inconclusive)
    assert "c3" not in found.evidence["class_gaps"]
    assert not list(contradictions(report, settings))


@pytest.mark.parametrize("name", ["class_gap_rms", "class_gap_mean"])
def test_a_rare_class_does_not_silence_the_mean_over_classes(name):
    """It counts with its own exact limits; the largest gap has no verdict."""
    table = rows(6_000)
    rare = (table["y"] == "c3") & (np.cumsum(table["y"] == "c3") > 12)
    report, settings = audited(
        {key: values[~rare] for key, values in table.items()}, [Rule(metric=name, sensitive="sex", max=0.6)]
    )
    found = {f.metric: f for f in report.findings}
    assert found[name].inconclusive is None
    assert "few rows" in " ".join(found[name].notes)
    assert found["class_gap_max"].inconclusive is not None
    assert report.verdict == "pass"
    assert not list(contradictions(report, settings))


@pytest.mark.long
def test_limits_with_a_rare_class_cover():
    rng, sizes = np.random.default_rng(3), np.full((8, 2), 150.0)
    sizes[0] = 4
    shares = np.full((8, 2), 0.7)
    shares[:, 1] += 0.1
    draws, missed = np.abs(rng.standard_normal((1_000, 8))), 0
    for _ in range(60):
        seen = rng.binomial(sizes.astype(int), shares) / sizes
        parts = [Estimate(s, lambda z, s=s, n=n: share_limits(s, n, z)) for s, n in zip(seen, sizes, strict=True)]
        ends = [ClassGaps(parts, draws).spread(name, 0.95) for name in NAMES[:2]]
        missed += sum(not one.low <= 0.1 <= one.high for one in ends)
    assert missed <= 6


def test_rows_without_a_group_bound_the_gap():
    table = rows(12_000)
    table["sex"] = np.where(np.random.default_rng(1).random(len(table["y"])) < 0.12, None, table["sex"])
    report, settings = audited(table, [Rule(metric="class_gap_rms", sensitive="sex", max=0.1)])
    found = next(f for f in report.findings if f.metric == "class_gap_rms")
    bounds = found.evidence["missing_bounds"]
    assert bounds["low"] <= found.value <= bounds["high"]
    assert found.interval[1] < 0.1 < bounds["high"]
    assert report.verdict == "inconclusive"
    assert not list(contradictions(report, settings))
