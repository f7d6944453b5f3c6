"""Numbers of one statement that are shares of the same rows: what is moved in one place shows in another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fairkit
from fairkit.intervals import share_limits, spread_difference, two_sided
from fairkit.results.report import Report
from fairkit.results.rules import Rule
from fairkit_registry.evidence.consistency import contradictions
from fairkit_registry.evidence.consistency.counts import RATES
from fairkit_registry.evidence.settings import SignedSettings

DPD = "demographic_parity_difference"
SCORES = ("roc_auc", "brier_score", "ecce", "calibration_in_the_large")


def made(seed=0, rows=3_000, *, missing=0.0, groups=2, limit=0.17):
    """An audit of made people, and its settings: scores that mean something, and a disparity of about .22."""
    rng = np.random.default_rng(seed)
    sex = np.array([f"g{i}" for i in range(groups)], dtype=object)[rng.integers(0, groups, rows)]
    y = rng.integers(0, 2, rows)
    s = np.clip(0.25 + 0.3 * y + 0.22 * (sex == "g1") + rng.normal(0, 0.25, rows), 0, 1)
    sex[rng.random(rows) < missing] = None
    roles = {"label": "y", "favorable": 1, "sensitive": ["sex"], "predictions": {"score": "s"}}
    data = fairkit.load_data({"sex": sex, "y": y, "s": s}, **roles)
    rules = [Rule(metric=DPD, sensitive="sex", max=limit)]
    report = Report.from_dict(fairkit.audit(None, data, policy=rules, seed=seed).to_dict())
    settings = SignedSettings(data=data.roles.to_dict(), policy=(rules[0],), seed=seed).to_dict()
    return report, settings


@pytest.fixture(scope="module")
def honest():
    report, settings = made()
    assert report.verdict == "fail"
    assert list(contradictions(report, settings)) == []
    return report, settings


def mapped(report, change):
    return replace(report, findings=tuple(change(finding) or finding for finding in report.findings))


def named(finding, rate):
    """Tell whether a finding is about a rate, under any of its names."""
    aliases = {"selection_rate": "demographic_parity", "true_positive_rate": "equal_opportunity"}
    return finding.metric.startswith((rate, aliases.get(rate, rate)))


def moved(report, rate, by):
    """Retell a rate of one group, consistently within that rate: the value, the limits, the disparities, the whole."""
    confidence = report.confidence

    def change(finding):
        if not named(finding, rate):
            return None
        if finding.sensitive is None:
            base = next(f for f in report.findings if f.metric == f"{rate}_difference")
            shares = [
                (g.value + (by / g.denominator if i == 1 else 0), g.denominator) for i, g in enumerate(base.groups)
            ]
            value = sum(v * n for v, n in shares) / sum(n for _, n in shares)
            low, high = share_limits(np.array([value]), np.array([sum(n for _, n in shares)]), two_sided(confidence))
            return replace(finding, value=value, interval=(float(low[0]), float(high[0])))
        groups = []
        for place, group in enumerate(finding.groups):
            value = group.value + (by / group.denominator if place == 1 and group.denominator else 0)
            if group.denominator is None:
                groups.append(group)
                continue
            low, high = share_limits(np.array([value]), np.array([group.denominator]), two_sided(confidence))
            groups.append(replace(group, value=value, interval=(float(low[0]), float(high[0]))))
        values = np.array([g.value for g in groups])
        over = np.array([g.denominator for g in groups], dtype=float)
        if finding.metric.endswith("_difference"):
            spread = spread_difference(values, lambda z: share_limits(values, over, z), confidence)
            return replace(finding, groups=tuple(groups), value=spread.value, interval=(spread.low, spread.high))
        return replace(finding, groups=tuple(groups))

    return mapped(report, change)


def passing(report):
    return replace(report, verdict="pass", policy=tuple(replace(rule, verdict="pass") for rule in report.policy))


def scaled(report, metric, share, sensitive="sex"):
    """Cut or widen both ends of an interval."""

    def change(finding):
        if (finding.metric, finding.sensitive) != (metric, sensitive):
            return None
        low, high = finding.interval
        return replace(
            finding,
            interval=(finding.value - share * (finding.value - low), finding.value + share * (high - finding.value)),
        )

    return mapped(report, change)


def group_changed(report, metric, **changes):
    def change(finding):
        if finding.metric != metric or finding.sensitive is None:
            return None
        first = finding.groups[0]
        told = {name: one(first) if callable(one) else one for name, one in changes.items()}
        return replace(finding, groups=(replace(first, **told), *finding.groups[1:]))

    return mapped(report, change)


def scored(report, metric, make):
    """Retell a number of scores in every finding of it."""

    def change(finding):
        if not finding.metric.startswith(metric):
            return None
        groups = []
        for group in finding.groups:
            value = make(group.value)
            half = abs(group.interval[1] - group.interval[0]) / 2
            groups.append(replace(group, value=value, interval=(value - half, value + half)))
        if finding.sensitive is None:
            value = make(finding.value)
            half = (finding.interval[1] - finding.interval[0]) / 2
            return replace(finding, value=value, interval=(value - half, value + half))
        values = [group.value for group in groups]
        if finding.metric.endswith("_difference"):
            value = max(values) - min(values)
        elif finding.metric.endswith("_group_min"):
            value = min(values)
        else:
            value = max(values)
        return replace(finding, groups=tuple(groups), value=value, interval=(max(value - 0.05, -1), value + 0.05))

    return mapped(report, change)


CRAFTED = {
    "a fail retold as a pass by moving selections only": lambda r: passing(moved(r, "selection_rate", -130)),
    **{f"{rate} moved by 20 rows": (lambda r, rate=rate: moved(r, rate, -20)) for rate in RATES},
    **{f"{rate} moved by one row": (lambda r, rate=rate: moved(r, rate, -1)) for rate in RATES},
    **{f"{rate} over other rows": (lambda r, rate=rate: group_changed(
        r, f"{rate}_difference", denominator=lambda g: g.denominator - 3)) for rate in RATES},
    **{f"the ends of {name} cut by a fifth": (lambda r, name=name: scaled(r, name, 0.8))
       for name in (DPD, "precision_difference", "accuracy_ratio", "true_positive_rate_group_min")},
    **{f"the ends of {name} widened by a fifth": (lambda r, name=name: scaled(r, name, 1.2))
       for name in (DPD, "false_positive_rate_difference", "demographic_parity_ratio")},
    "the whole's ends cut": lambda r: scaled(r, "selection_rate", 0.8, None),
    "the whole moved by one row": lambda r: mapped(
        r, lambda f: replace(f, value=f.value + 1 / 3_000) if (f.metric, f.sensitive) == ("accuracy", None) else None),
    "one name of a rate with another number": lambda r: group_changed(
        r, "selection_rate_difference", interval=lambda g: (g.interval[0] - 0.01, g.interval[1])),
    "a group's own interval cut": lambda r: group_changed(
        r, "accuracy_difference", interval=lambda g: (g.interval[0] + 0.002, g.interval[1])),
    "half a person": lambda r: group_changed(
        r, "true_positive_rate_difference", denominator=lambda g: g.denominator + 0.5),
    "an area that the chart does not leave": lambda r: scored(r, "roc_auc", lambda v: v + 0.04),
    "a Brier score that the chart does not leave": lambda r: scored(r, "brier_score", lambda v: v - 0.03),
    "a calibration error that the chart does not leave": lambda r: scored(r, "ecce", lambda v: v / 4),
    "a larger calibration error than the chart leaves": lambda r: scored(r, "ecce", lambda v: v + 0.1),
    "a smaller area than the chart leaves": lambda r: scored(r, "roc_auc", lambda v: v - 0.04),
    "better calibration than the chart leaves": lambda r: scored(r, "calibration_in_the_large", lambda v: v / 2),
    "calibration with the other sign": lambda r: scored(r, "calibration_in_the_large", lambda v: -v),
}  # fmt: skip


def test_there_are_forty_of_them():
    assert len(CRAFTED) >= 40


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_statement_is_caught(honest, name):
    report, settings = honest
    forged = CRAFTED[name](report)
    assert forged != report
    assert list(contradictions(forged, settings))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_honest_statements_are_none(seed):
    rows = (40, 300, 2_000)[seed % 3]
    report, settings = made(seed, rows, missing=(0.0, 0.1)[seed % 2], groups=2 + seed % 4)
    assert list(contradictions(report, settings)) == []


@pytest.mark.parametrize("kind", ["randomized", "weights", "clusters", "classes", "ties"])
def test_honest_statements_of_other_kinds_are_none(kind):
    rng = np.random.default_rng(3)
    rows = 900
    table = {
        "sex": np.array(["f", "m"])[rng.integers(0, 2, rows)],
        "y": rng.integers(0, 2, rows),
        "s": rng.random(rows),
    }
    roles = {"label": "y", "favorable": 1, "sensitive": ["sex"], "predictions": {"score": "s"}}
    if kind == "randomized":
        roles["predictions"] = {"probability": "s"}
    elif kind == "weights":
        table["w"] = rng.random(rows) + 0.5
        roles["weights"] = "w"
    elif kind == "clusters":
        table["c"] = rng.integers(0, 60, rows)
        roles["cluster"] = "c"
    elif kind == "classes":
        table["y"] = rng.integers(0, 3, rows).astype(str)
        table["d"] = np.where(rng.random(rows) < 0.7, table["y"], rng.integers(0, 3, rows).astype(str))
        roles = {"label": "y", "sensitive": ["sex"], "predictions": {"class": "d"}}
    else:
        table["s"] = np.round(table["s"], 1)
    data = fairkit.load_data(table, **roles)
    report = Report.from_dict(fairkit.audit(None, data).to_dict())
    assert list(contradictions(report, SignedSettings(data=data.roles.to_dict()).to_dict())) == []


@pytest.mark.parametrize("metric", ["subgroup_difference", "correspondence_difference", "dif", "attribution"])
def test_what_one_auditor_finds_is_not_stated_by_an_invented_one(metric, honest):
    """A rule on it would be decided by a number that nobody measured."""
    from fairkit.results.findings import Finding

    report, settings = honest
    settings = settings | {"auditors": ["group", "house"]}
    forged = Finding(auditor="house", metric=metric, sensitive="sex", value=0.0, interval=(0.0, 0.0), better="lower")
    found = list(contradictions(replace(report, findings=(*report.findings, forged)), settings))
    assert any("it is a metric of the auditor" in text for text in found)


def test_a_proof_of_an_earlier_version_is_not_believed(honest):
    from fairkit.results.findings import Finding

    report, settings = honest
    settings = settings | {"auditors": ["group", "all-inputs"]}
    for version, words in ((None, "certify the model anew"), (2, "")):
        evidence = {} if version is None else {"version": version}
        proof = Finding(auditor="all-inputs", metric="all_inputs_flip", sensitive="sex", value=0.0, interval=(0.0, 0.0),
                        better="lower", evidence=evidence)  # fmt: skip
        found = " ".join(contradictions(replace(report, findings=(*report.findings, proof)), settings))
        assert (words in found) == bool(words) or not words
        assert bool(words) == bool(found)
