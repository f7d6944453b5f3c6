"""Numbers of whole score distributions inside strata, also of dependent rows: definitions, oracles and coverage."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fairkit
from fairkit import PredictedColumns
from fairkit.data.hashing import BUCKETS
from fairkit.metrics import CONFUSION
from fairkit.settings import ModelOptions
from fairkit.statistics import Rows, Scores
from fairkit_dependent import STRATA_BUCKETS
from fairkit_group import section as collecting
from fairkit_group import stratified
from fairkit_group.calibration import Ecce
from fairkit_group.ranking import RocAuc, distances
from fairkit_group.rates import SelectionRate
from fairkit_group.simultaneous import distances_within
from fairkit_group.strata import Strata

OF_SCORES = ("roc_auc_difference", "ecce_difference", "statistical_parity_ks")


def _people(rng: np.random.Generator, n: int = 2400, groups: int = 2) -> dict[str, np.ndarray]:
    d = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    g = np.where(rng.random(n) < 0.2 + 0.25 * d, "a", rng.choice(list("bc")[: groups - 1], n))
    s = np.round(np.clip(rng.normal(0.3 + 0.15 * d, 0.2), 0, 1), 3)
    return {
        "g": g,
        "d": np.array(["x", "y", "z"])[d],
        "s": s,
        "y": (rng.random(n) < s).astype(int),
        "who": np.arange(n),
    }


def _audit(columns: dict[str, np.ndarray], **roles: object) -> fairkit.Report:
    data = fairkit.load_data(dict(columns), label="y", favorable=1, sensitive=["g"], **roles)
    return fairkit.audit(PredictedColumns(score="s"), data, options=ModelOptions(task="binary"))


def test_the_distance_by_its_definition() -> None:
    people = _people(np.random.default_rng(0), groups=3)
    report = _audit(people, within="d")
    found = report.find("statistical_parity_ks", "g", within="d")
    grid = np.unique(people["s"])
    for group in found.groups:
        mine = people["g"] == group.group
        gap = np.zeros(len(grid))
        for name in "xyz":
            here = people["d"] == name
            own, all_of_them = np.sort(people["s"][mine & here]), np.sort(people["s"][here])
            both = (np.searchsorted(x, grid, side="right") / len(x) for x in (own, all_of_them))
            gap += (mine & here).sum() / mine.sum() * np.subtract(*both)
        assert group.value == pytest.approx(np.abs(gap).max(), abs=1e-12)
    assert found.value == max(group.value or 0 for group in found.groups)
    whole = report.find("statistical_parity_ks", "g")
    # the groups differ through their departments only
    assert found.interval is not None
    assert found.interval[0] == 0
    assert whole.interval is not None
    assert whole.interval[0] > 0.02


def test_one_stratum_is_the_plain_distance() -> None:
    rng = np.random.default_rng(1)
    groups = rng.integers(0, 3, 700)
    rows = Rows(outcome=rng.integers(0, 2, 700) * 1.0, score=rng.random(700), weights=rng.random(700))
    table = Scores().collect(rows, groups, 3)
    plain, within = distances(table), distances_within(table, 1, None)[0]
    for name in ("values", "scale", "at"):
        assert getattr(within, name) == pytest.approx(getattr(plain, name), rel=1e-9), name


@pytest.mark.parametrize("alike", [True, False])
def test_the_limits_of_the_distance_hold(alike: bool) -> None:
    """Scores of strata with one distribution, and with distributions far apart: the largest deviation is below C K."""
    from scipy import stats

    rng = np.random.default_rng(2)
    d = np.repeat(np.arange(4), 60)
    hits, runs = 0, 300
    for _ in range(runs):
        g = rng.integers(0, 2, len(d))
        score = rng.random(len(d)) / (1 if alike else 4) + (0 if alike else d / 4)
        table = Scores().collect(Rows(outcome=np.zeros(len(d)), score=score), d * 2 + g, 8)
        hits += distances_within(table, 4, None)[0].limits(0.95)[0][0] == 0
    assert hits >= stats.binom.ppf(1e-4, runs, 0.95)
    if not alike:  # there the bound is wide
        assert hits >= 0.985 * runs


def test_every_row_its_own_cluster_is_no_cluster() -> None:
    people = _people(np.random.default_rng(3), 6000)
    plain, alone = _audit(people, within="d"), _audit(people, within="d", cluster="who")
    for metric in OF_SCORES:
        one, other = (report.find(metric, "g", within="d") for report in (plain, alone))
        assert one.value == pytest.approx(other.value, abs=1e-12)
        assert one.interval is not None
        assert other.interval is not None
        assert other.interval[1] - one.value == pytest.approx(one.interval[1] - one.value, rel=0.35), metric
        assert len(other.strata) == len(one.strata)


@pytest.mark.long
def test_repeated_rows_do_not_narrow() -> None:
    """Every person stands there four times: with clusters the limits are those of once, without them half as wide."""
    people = _people(np.random.default_rng(4), 2000)
    rows = {name: np.repeat(values, 4) for name, values in people.items()}
    once, many = _audit(people, within="d"), _audit(rows, within="d")
    kept = _audit(rows, within="d", cluster="who")
    for metric in OF_SCORES:
        ends = [r.find(metric, "g", within="d") for r in (once, many, kept)]
        widths = [(one.interval or (0, 0))[1] - (one.value or 0) for one in ends]
        assert widths[2] == pytest.approx(widths[0], rel=0.3), metric
        assert widths[1] == pytest.approx(widths[0] / 2, rel=0.2), metric


@pytest.mark.long
def test_intervals_of_dependent_scores_inside_strata_cover() -> None:
    """The kernels alone: two groups alike, three strata, people with chances of their own in all of them."""
    from scipy import stats

    rng = np.random.default_rng(5)
    hits, runs = dict.fromkeys((RocAuc, Ecce), 0), 100
    for _ in range(runs):
        who = np.repeat(np.arange(160), rng.integers(2, 16, 160))
        chance = rng.beta(0.6, 1.4, 160)[who]
        score = np.clip(chance + rng.normal(0, 0.1, len(who)), 0, 1)
        rows = Rows(outcome=(rng.random(len(who)) < chance) * 1.0, score=score)
        cells, bucket = rng.integers(0, 3, len(who)) * 2 + who % 2, who % STRATA_BUCKETS
        totals = {"scores": Scores().collect(rows, cells, 6)}
        kept = {"scores": Scores().collect(rows, cells * STRATA_BUCKETS + bucket, 6 * STRATA_BUCKETS)}
        strata = Strata(["x", "y", "z"], 2, totals, kept)
        for metric in hits:
            found = strata.cells(metric(), rng)
            assert found is not None
            low, high = strata.pairs(metric(), found).difference_limits(2.054)
            hits[metric] += low <= 0 <= high
    assert min(hits.values()) >= stats.binom.ppf(1e-4, runs, 0.94), hits


@pytest.mark.long
def test_more_cells_than_fit_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "MOST_CELLS", 4)
    people = _people(np.random.default_rng(6), 900)
    report = _audit(people, within="d", cluster="who")
    for metric in OF_SCORES:
        found = report.find(metric, "g", within="d")
        assert found.value is None
        assert found.inconclusive is not None
        assert f"{metric} inside the strata of d is not measured with clusters" in found.inconclusive
    assert report.find("mean_prediction_difference", "g", within="d").interval is not None
    assert _audit(people, within="d").find("roc_auc_difference", "g", within="d").value is not None


def test_a_rule_on_the_distance_inside_strata_decides() -> None:
    people = _people(np.random.default_rng(7))
    data = fairkit.load_data(dict(people), label="y", favorable=1, sensitive=["g"], within=["d"])
    limits = ("g=0.02", "g|d=0.1")
    rules = [fairkit.Rule.parse(f"statistical_parity_ks:{limit}", "max") for limit in limits]
    report = fairkit.audit(PredictedColumns(score="s"), data, policy=rules)
    assert [rule.verdict for rule in report.policy] == ["fail", "pass"]


@pytest.mark.parametrize("clusters", [False, True])
def test_pairs_pooled_in_blocks_say_what_each_pair_says_alone(monkeypatch: pytest.MonkeyPatch, clusters: bool) -> None:
    """Cells with one row or none, strata with one group, a group that shares no stratum with another one."""
    rng = np.random.default_rng(3)
    groups, strata, n = 7, 5, 600
    group, stratum = rng.integers(0, groups - 1, n), rng.integers(0, strata - 1, n)
    group[:9], stratum[:9] = groups - 1, strata - 1
    rows = Rows(outcome=(rng.random(n) < 0.4) * 1.0, decision=(rng.random(n) < 0.3 + 0.05 * group) * 1.0)
    codes, metric = stratum * groups + group, SelectionRate()
    sums = CONFUSION.first_sums(rows, codes * BUCKETS + np.arange(n) % 90, strata * groups * BUCKETS)
    totals = {CONFUSION.key: CONFUSION.collect(rows, codes, strata * groups)}
    known = Strata([*"vwxyz"], groups, totals, {CONFUSION.key: sums} if clusters else {})
    cells = known.cells(metric, rng)
    assert cells is not None
    monkeypatch.setattr(stratified, "MOST_AT_ONCE", 20)
    monkeypatch.setattr(stratified, "MOST_KEPT", 0)
    pairs = known.pairs(metric, cells)
    assert sorted(map(tuple, pairs.groups.T.tolist())) == list(itertools.combinations(range(groups - 1), 2))
    together = pairs.difference_limits(1.96), pairs.ratio_limits(1.96)
    for index, (a, b) in enumerate(pairs.groups.T.tolist()):
        alone = stratified.Pairs(cells, np.array([[a], [b]]), known._noise(metric))
        assert alone.values[:, 0] == pytest.approx(pairs.values[:, index], rel=1e-12)
        for many, single in zip(together, (alone.difference_limits(1.96), alone.ratio_limits(1.96)), strict=True):
            for end, one in zip(many, single, strict=True):
                assert end[..., index] == pytest.approx(one[..., 0], rel=1e-12)
        mass = cells.mass[:, [a, b]]
        weight = mass.prod(axis=1) / np.maximum(mass.sum(axis=1), 1)
        values = np.nan_to_num(cells.values[:, [a, b]])
        assert weight @ values / weight.sum() == pytest.approx(pairs.values[:, index], rel=1e-12)
