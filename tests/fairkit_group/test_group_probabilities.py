"""Group probabilities: the bounds against a linear programme, and everything against a known truth."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fairkit
from fairkit import PredictedColumns
from fairkit.settings import ModelOptions
from fairkit.statistics import Rows
from fairkit_group.identification import Sampling, difference_bounds, rate_bounds
from fairkit_group.proxies import proxy_totals

OVER = np.ones(4)
COUNTED = np.array([0.0, 1, 0, 1])


def _by_programme(sums: np.ndarray, pair: tuple[int, int]) -> tuple[float, float]:
    """Optimise over every way to give the favorable decisions of each cell to the groups."""
    from scipy.optimize import linprog

    groups = sums.shape[1] - 4
    pi, yes = sums[:, :groups], sums[:, groups:] @ COUNTED
    cost = np.zeros_like(pi)
    cost[:, pair[0]] = 1 / pi[:, pair[0]].sum()
    cost[:, pair[1]] = -1 / pi[:, pair[1]].sum()
    equal = np.kron(np.eye(len(pi)), np.ones(groups))
    limits = [(0, most) for most in pi.ravel()]
    ends = [linprog(sign * cost.ravel(), A_eq=equal, b_eq=yes, bounds=limits).fun * sign for sign in (1, -1)]
    return ends[0], ends[1]


@pytest.mark.long
@pytest.mark.parametrize("groups", [2, 3, 5])
def test_bounds_of_selection_rates_are_those_of_a_linear_programme(groups: int) -> None:
    rng = np.random.default_rng(groups)
    for _ in range(20):
        cells = rng.integers(1, 9)
        mass = rng.uniform(5, 50, cells)
        pi = rng.dirichlet(np.ones(groups), cells) * mass[:, None]
        sums = np.hstack([pi, rng.dirichlet(np.ones(4), cells) * mass[:, None]])
        second = np.zeros((cells, groups + 4, groups + 4))
        for pair in itertools.combinations(range(groups), 2):
            found = difference_bounds(sums, Sampling(second), pair, OVER, COUNTED)
            assert (found.low, found.high) == pytest.approx(_by_programme(sums, pair), abs=1e-7)


def test_bounds_of_true_positive_rates_by_search() -> None:
    """A ratio is no linear programme: its level sets are."""
    from scipy.optimize import linprog

    rng = np.random.default_rng(0)
    over, counted = np.array([0.0, 0, 1, 1]), np.array([0.0, 0, 0, 1])
    for _ in range(10):
        cells, groups = 3, 3
        mass = rng.uniform(5, 50, cells)
        pi = rng.dirichlet(np.ones(groups), cells) * mass[:, None]
        parts = rng.dirichlet(np.ones(4), cells) * mass[:, None]
        found = rate_bounds(np.hstack([pi, parts]), Sampling(np.zeros((cells, 7, 7))), 0, over, counted)

        def largest(level: float, pi: np.ndarray = pi, parts: np.ndarray = parts) -> float:
            """The largest counted - level * over that group 0 can have: above 0 where a larger rate is possible."""
            cost = np.zeros((len(pi), pi.shape[1], 4))
            cost[:, 0] = counted - level * over
            rows, target = [], []
            for z in range(len(pi)):
                for a in range(pi.shape[1]):
                    here = np.zeros_like(cost)
                    here[z, a] = 1
                    rows.append(here.ravel())
                    target.append(pi[z, a])
                for c in range(4):
                    here = np.zeros_like(cost)
                    here[z, :, c] = 1
                    rows.append(here.ravel())
                    target.append(parts[z, c])
            return -linprog(-cost.ravel(), A_eq=np.array(rows), b_eq=np.array(target)).fun

        assert largest(found.high) == pytest.approx(0, abs=1e-6)


def _people(n: int, gap: float, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Two groups whose favorable rates differ by `gap`, also among rows with one proxy: the worst for a proxy."""
    p = np.round(rng.beta(0.6, 0.6, n), 2)
    group = rng.random(n) < p
    h = rng.random(n) < 0.3 + gap * group + 0.2 * (p > 0.5)
    return {"p_a": p, "p_b": 1 - p, "h": h.astype(int), "group": group}


def _audit(columns: dict[str, np.ndarray]) -> fairkit.Report:
    data = fairkit.load_data(dict(columns), sensitive_probability="race=p_a,p_b")
    return fairkit.audit(PredictedColumns(decision="h"), data, options=ModelOptions(task="binary"))


@pytest.mark.long
@pytest.mark.parametrize("gap", [0.0, 0.2, -0.3])
def test_the_truth_is_inside_whatever_the_proxy_hides(gap: float) -> None:
    rng = np.random.default_rng(5)
    inside, weighted, runs = 0, 0, 12
    for _ in range(runs):
        people = _people(3000, gap, rng)
        rates = [people["h"][people["group"] == side].mean() for side in (True, False)]
        found = _audit({k: v for k, v in people.items() if k != "group"}).find("demographic_parity_difference", "race")
        assert found.interval is not None
        low, high = found.interval
        inside += low <= abs(rates[0] - rates[1]) <= high
        near = found.evidence["weighted_interval"]
        weighted += near[0] <= abs(rates[0] - rates[1]) <= near[1]
    assert inside == runs
    # without dependence given the proxy the weighted number is right; with it, it is not, and the report says so
    assert weighted >= 0.8 * runs if gap == 0 else weighted < 0.7 * runs


@pytest.mark.long
def test_a_certain_proxy_is_a_column() -> None:
    rng = np.random.default_rng(8)
    group = rng.random(4000) < 0.4
    h = (rng.random(4000) < 0.3 + 0.2 * group).astype(int)
    found = _audit({"p_a": group * 1.0, "p_b": 1.0 - group, "h": h}).find("demographic_parity_difference", "race")
    data = fairkit.load_data({"g": group.astype(int), "h": h}, sensitive=["g"])
    plain = fairkit.audit(PredictedColumns(decision="h"), data, options=ModelOptions(task="binary"))
    known = plain.find("demographic_parity_difference", "g")
    assert found.value == pytest.approx(known.value)
    assert found.evidence["identified_set"] == pytest.approx([found.value, found.value])
    assert found.interval == pytest.approx(known.interval, abs=0.01)


def test_rows_of_one_person_do_not_count_as_many() -> None:
    """Every person stands in the table six times: with `cluster` it is as if once, without it far too sure."""
    people = {k: v for k, v in _people(1500, 0.2, np.random.default_rng(3)).items() if k != "group"}
    rows = {name: np.repeat(values, 6) for name, values in people.items()} | {"who": np.repeat(np.arange(1500), 6)}

    def found(columns: dict[str, np.ndarray], **roles: str) -> tuple[fairkit.Finding, float, float]:
        data = fairkit.load_data(dict(columns), sensitive_probability="race=p_a,p_b", **roles)
        report = fairkit.audit(PredictedColumns(decision="h"), data, options=ModelOptions(task="binary"))
        one = report.find("demographic_parity_difference", "race")
        assert one.interval is not None
        near = one.evidence["weighted_interval"]
        return one, one.interval[1] - one.evidence["identified_set"][1], near[1] - near[0]

    once, many, clustered = found(people), found(rows), found(rows, cluster="who")
    assert once[0].value == pytest.approx(clustered[0].value)
    assert many[0].evidence["identified_set"] == pytest.approx(clustered[0].evidence["identified_set"])
    assert clustered[2] == pytest.approx(once[2], rel=0.15)
    # the noise on top of what is possible, and of which of two masses is the smaller one
    assert 0.9 * np.sqrt(6) * many[1] < clustered[1] < 1.5 * np.sqrt(6) * many[1]
    assert clustered[2] == pytest.approx(np.sqrt(6) * many[2], rel=0.15)  # that of the weighted number
    few, _, _ = found(rows | {"who": rows["who"] % 30}, cluster="who")
    assert few.inconclusive is not None
    assert "fewer than 40" in few.inconclusive


@pytest.mark.long
def test_intervals_of_dependent_rows_hold_the_weighted_truth() -> None:
    """Rows of a person share a chance; given the proxy it does not depend on the group, so the difference is 0."""
    from scipy import stats

    rng = np.random.default_rng(9)
    hits, bare, runs = 0, 0, 60
    for _ in range(runs):
        who = np.repeat(np.arange(150), rng.integers(2, 15, 150))
        p = rng.beta(0.5, 0.5, 150).round(2)[who]
        h = (rng.random(len(who)) < rng.beta(0.3, 0.7, 150)[who]).astype(int)
        columns = {"p_a": p, "p_b": 1 - p, "h": h, "who": who}
        for roles in ({"cluster": "who"}, {}):
            data = fairkit.load_data(dict(columns), sensitive_probability="race=p_a,p_b", **roles)
            report = fairkit.audit(PredictedColumns(decision="h"), data, options=ModelOptions(task="binary"))
            low = report.find("demographic_parity_difference", "race").evidence["weighted_interval"][0]
            hits, bare = (hits + (low <= 0 and "cluster" in roles), bare + (low <= 0 and "cluster" not in roles))
    assert hits >= stats.binom.ppf(0.001, runs, 0.94)
    assert bare < 0.8 * runs


def test_a_thresholded_proxy_is_named_as_biased() -> None:
    people = _people(3000, 0.2, np.random.default_rng(2))
    found = _audit({k: v for k, v in people.items() if k != "group"}).find("demographic_parity_difference", "race")
    assert any("thresholded proxy is biased" in note for note in found.notes)
    assert {group.group for group in found.groups} == {"a", "b"}


def test_batches_add_up() -> None:
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.ones(3), 500)
    rows = Rows(outcome=(rng.random(500) < 0.4) * 1.0, decision=rng.random(500), weights=rng.random(500))
    clusters = rng.integers(0, 1024, 500)
    whole = proxy_totals(rows, p, clusters)
    first = np.arange(500) < 210

    def part(keep: np.ndarray) -> Rows:
        return Rows(outcome=rows.outcome[keep], decision=rows.decision[keep], weights=rows.weights[keep])

    both = proxy_totals(part(first), p[first], clusters[first])
    both += proxy_totals(part(~first), p[~first], clusters[~first])
    assert np.allclose(whole.buckets.sum(axis=1), whole.sums)
    assert np.allclose(whole.joint_buckets.sum(axis=0), whole.joint)
    names = ("keys", "rows", "sums", "second", "joint", "joint_second", "thresholded", "buckets", "joint_buckets")
    for name in names:
        assert np.allclose(getattr(whole, name), getattr(both, name)), name


def test_rows_without_probabilities_are_counted_and_halves_are_refused() -> None:
    people = _people(1000, 0.1, np.random.default_rng(3))
    people["p_a"][:100] = np.nan
    with pytest.raises(fairkit.DataError, match="give all or none"):
        _audit(people)
    people["p_b"][:100] = np.nan
    found = _audit(people).find("demographic_parity_difference", "race")
    assert any("100 rows have no probabilities" in note for note in found.notes)


@pytest.mark.parametrize("cells", [5, 20])
def test_intervals_hold_where_decisions_are_the_groups(cells: int) -> None:
    """The truth is at its extreme, 1; in every cell two masses are equal, their smaller one too small by noise."""
    rng, over, counted = np.random.default_rng(4), np.ones(4), np.array([0.0, 1, 0, 1])
    chances, missed = np.linspace(0.1, 0.9, cells), 0
    for _ in range(200):
        cell = rng.integers(0, cells, 1000)
        p = chances[cell]
        chosen = (rng.random(1000) < p).astype(float)
        rows = np.column_stack([p, 1 - p, 0 * p, 0 * p, 1 - chosen, chosen])
        sums = np.array([rows[cell == z].sum(axis=0) for z in range(cells)])
        second = np.array([rows[cell == z].T @ rows[cell == z] for z in range(cells)])
        bounds = difference_bounds(sums, Sampling(second), (0, 1), over, counted)
        missed += not bounds.limits(1.96)[0] <= 1 <= bounds.limits(1.96)[1]
    assert missed <= 16  # 10 of 200 at .95; of the plain bounds 72 with 5 cells and all with 20


def _overconfident(n: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Probabilities whose log-odds are twice the true ones; rates of .5 and .3."""
    true = rng.beta(0.8, 0.8, n)
    said = np.round(true**2 / (true**2 + (1 - true) ** 2), 3)
    group = rng.random(n) < true
    h = (rng.random(n) < np.where(group, 0.3, 0.5)).astype(int)
    known = np.where(group, "a", "b").astype(object)
    known[rng.random(n) < 0.8] = None
    return {"p_a": said, "p_b": 1 - said, "h": h, "race": known, "group": group, "true": true}


@pytest.mark.parametrize(
    ("told", "kept", "verdict", "said"),
    [
        ({}, (), "inconclusive", "State how far shares of race may be from probabilities"),
        ({}, ("race",), "inconclusive", "State an error of 0."),
        ({"probability_error": 0.0}, (), "pass", ""),
        ({"probability_error": 0.0}, ("race",), "inconclusive", "on average"),
        ({"probability_error": 0.3}, ("race",), "pass", ""),
    ],
)
def test_a_verdict_needs_a_stated_error_that_the_known_groups_do_not_contradict(told, kept, verdict, said) -> None:
    people = _overconfident(6_000, np.random.default_rng(4))
    data = fairkit.load_data({k: people[k] for k in ("p_a", "p_b", "h", *kept)}, sensitive_probability="race=p_a,p_b")
    rule = fairkit.Rule(metric="demographic_parity_difference", sensitive="race", max=0.99)
    settings = {"options": ModelOptions(task="binary"), "policy": [rule], "parameters": {"group": told}}
    report = fairkit.audit(PredictedColumns(decision="h"), data, **settings)
    assert report.verdict == verdict
    assert said in report.policy[0].reason


def test_no_groups_within_the_stated_error_leave_the_bounds() -> None:
    """Shares of every cell anywhere within .1 of the probability, decisions given to either group at random."""
    rng = np.random.default_rng(6)
    p = np.repeat(np.array([0.05, 0.3, 0.6, 0.9]), 500)
    h = (rng.random(2_000) < rng.random(4).repeat(500)).astype(float)
    totals = proxy_totals(Rows(outcome=np.zeros(2_000), decision=h), np.column_stack([p, 1 - p]))
    found = difference_bounds(totals.sums, Sampling(totals.second, None, 0.1), (0, 1), OVER, COUNTED)
    plain = difference_bounds(totals.sums, Sampling(totals.second), (0, 1), OVER, COUNTED)
    seen = []
    for _ in range(400):
        share = np.clip(p[::500] + rng.uniform(-0.1, 0.1, 4), 0, 1)
        pull = rng.choice([-9.0, 9.0])
        keys = [rng.random(500) + pull * h[500 * cell : 500 * cell + 500] for cell in range(4)]
        group = np.concatenate(
            [np.argsort(np.argsort(-key)) < round(500 * s) for key, s in zip(keys, share, strict=True)]
        )
        seen.append(h[group].mean() - h[~group].mean())
    assert found.low <= min(seen) < plain.low
    assert plain.high < max(seen) <= found.high
