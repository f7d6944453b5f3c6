"""Rankings: positions by enumeration, numbers by loops, intervals by simulation, and the ways to get at them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import fairkit
from fairkit.errors import DataError, FairkitError, ModelError, ParameterError
from fairkit.settings import ModelOptions
from fairkit_datasets.loans import hiring_table
from fairkit_rankings import Positions, ndcg, pairs

ROLES = {"label": "relevance", "sensitive": "sex", "query": "opening", "predictions": {"prediction": "score"}}


def orders(scores):
    """All orders by decreasing score, with ties broken in every way."""
    for order in itertools.permutations(range(len(scores))):
        if all(scores[a] >= scores[b] for a, b in itertools.pairwise(order)):
            yield order


def over_orders(scores, number):
    return np.mean([number(order) for order in orders(scores)], axis=0)


@pytest.mark.parametrize("seed", range(6))
def test_positions_are_the_mean_over_all_ways_to_break_ties(seed):
    rng = np.random.default_rng(seed)
    scores, relevance = rng.integers(0, 3, 6).astype(float), rng.integers(0, 3, 6).astype(float)
    place = Positions.of(np.zeros(6, np.int64), scores)

    def exposures(order):
        found = np.empty(6)
        found[list(order)] = [1 / math.log2(2 + j) for j in range(6)]
        return found

    assert place.exposure() == pytest.approx(over_orders(scores, exposures), abs=1e-12)
    assert place.in_top(2) == pytest.approx(
        over_orders(scores, lambda order: np.isin(np.arange(6), order[:2]).astype(float)), abs=1e-12
    )

    def gain(order, k=4):
        return sum((2 ** relevance[i] - 1) / math.log2(2 + j) for j, i in enumerate(order[:k]))

    best = gain(sorted(range(6), key=lambda i: -relevance[i]))
    wanted = over_orders(scores, gain) / best if best else math.nan
    assert ndcg(place, relevance, 4)[0] == pytest.approx(wanted, nan_ok=True)


def test_pairs_are_counted_as_a_double_loop_counts_them():
    rng = np.random.default_rng(3)
    query = np.sort(rng.integers(0, 9, 80))
    scores, relevance = rng.integers(0, 6, 80).astype(float), rng.integers(0, 4, 80).astype(float)
    right, every = np.zeros(80), np.zeros(80)
    for i in range(80):
        for j in np.flatnonzero((query == query[i]) & (relevance < relevance[i])):
            every[i] += 1
            right[i] += 1.0 if scores[i] > scores[j] else 0.5 if scores[i] == scores[j] else 0.0
    found = pairs(Positions.of(np.unique(query, return_inverse=True)[1], scores), relevance)
    assert found is not None
    assert np.array_equal(found[0], right)
    assert np.array_equal(found[1], every)


def by_hand(table):
    """Singh and Joachims' exposures, query by query."""
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    gaps, exposures, utilities = [], {"female": [], "male": []}, {"female": [], "male": []}
    for query in np.unique(columns["opening"]):
        rows = columns["opening"] == query
        order = np.argsort(-columns["score"][rows], kind="stable")
        worth = np.empty(rows.sum())
        worth[order] = 1 / np.log2(2 + np.arange(rows.sum()))
        sexes = columns["sex"][rows]
        if len(set(sexes)) < 2:
            continue
        for sex, found in exposures.items():
            found.append(worth[sexes == sex].mean())
            utilities[sex].append(columns["relevance"][rows][sexes == sex].mean())
        gaps.append(exposures["male"][-1] - exposures["female"][-1])
    rates = {sex: np.mean(exposures[sex]) / np.mean(utilities[sex]) for sex in exposures}
    return np.array(gaps), {sex: np.mean(one) for sex, one in exposures.items()}, rates


def test_two_groups_have_the_exposures_of_the_paper_and_queries_are_the_units():
    table = hiring_table(150, 1)
    gaps, exposures, rates = by_hand(table)
    report = fairkit.audit(None, fairkit.load_data(table, **ROLES))
    found = report.find("exposure_difference", "sex")
    assert found.value == pytest.approx(abs(gaps.mean()), rel=1e-9)
    assert {g.group: g.value for g in found.groups} == pytest.approx(exposures, rel=1e-9)
    assert report.find("exposure_ratio", "sex").value == pytest.approx(
        min(exposures.values()) / max(exposures.values())
    )
    assert report.find("disparate_treatment_ratio", "sex").value == pytest.approx(
        min(rates.values()) / max(rates.values()), rel=1e-9
    )
    half = (found.interval[1] - found.interval[0]) / 2
    assert half == pytest.approx(2 * gaps.std(ddof=1) / math.sqrt(len(gaps)), rel=0.1)
    assert found.evidence["queries"] == 150


@pytest.mark.long
def test_the_intervals_hold_and_random_rankings_have_no_disparity():
    """Three groups that go together with the queries' lengths: what is compared must not."""
    missed = {0.0: 0, 0.3: 0}
    rng = np.random.default_rng(0)
    truth = _truth(0.3)
    for _ in range(120):
        for penalty in missed:
            finding = _measure(rng, penalty, 90).find("exposure_difference", "g")
            low, high = finding.interval
            missed[penalty] += not low <= (truth if penalty else 0.0) <= high
    assert missed[0.0] <= 12
    assert missed[0.3] <= 14


def _rankings(rng, penalty, queries):
    sizes = rng.choice([5, 20], queries)
    query = np.repeat(np.arange(queries), sizes)
    shares = np.where(sizes[query] == 5, 0.6, 0.1)
    group = np.where(rng.random(len(query)) < shares, "a", np.where(rng.random(len(query)) < 0.5, "b", "c"))
    score = rng.normal(size=len(query)) - penalty * (group == "a")
    return {"q": query, "g": group, "s": score}


def _measure(rng, penalty, queries):
    data = fairkit.load_data(
        _rankings(rng, penalty, queries), sensitive="g", query="q", predictions={"prediction": "s"}
    )
    return fairkit.audit(None, data)


def _truth(penalty):
    return _measure(np.random.default_rng(9), penalty, 40_000).find("exposure_difference", "g").value


def test_the_order_of_rows_and_the_size_of_batches_change_nothing(tmp_path):
    import pyarrow.parquet as pq

    table = hiring_table(60, 2)
    shuffled = table.take(np.random.default_rng(0).permutation(len(table)))
    pq.write_table(shuffled.slice(0, 300), tmp_path / "a.parquet")
    pq.write_table(shuffled.slice(300), tmp_path / "b.parquet")
    wanted = [(f.metric, f.value, f.interval) for f in fairkit.audit(None, fairkit.load_data(table, **ROLES)).findings]
    found = fairkit.audit(None, fairkit.load_data(str(tmp_path / "*.parquet"), **ROLES)).findings
    for one, (metric, value, interval) in zip(found, wanted, strict=True):
        assert one.metric == metric
        assert one.value == pytest.approx(value, rel=1e-12)
        assert one.interval == pytest.approx(interval, rel=1e-9)


def test_a_comparison_is_paired_over_queries():
    table = hiring_table(200, 3).append_column("fair", [hiring_table(200, 3, penalty=0.0)["score"].combine_chunks()])
    data = fairkit.load_data(table, **{k: v for k, v in ROLES.items() if k != "predictions"})
    models = [fairkit.PredictedColumns(prediction=name) for name in ("score", "fair")]
    found = fairkit.compare(models, data)
    change = found.find("exposure_difference", "sex")
    reports = [fairkit.audit(model, data).find("exposure_difference", "sex").value for model in models]
    assert (change.before, change.after) == pytest.approx(reports)
    assert change.outcome == "better"
    assert found.find("ndcg").outcome == "better"
    same = fairkit.compare([models[0], models[0]], data).find("exposure_difference", "sex")
    assert same.interval == pytest.approx((0.0, 0.0), abs=1e-12)


def test_a_policy_is_judged_and_few_queries_decide_nothing():
    rule = fairkit.Rule(metric="exposure_ratio", sensitive="sex", min=0.95)
    assert fairkit.audit(None, fairkit.load_data(hiring_table(300), **ROLES), policy=[rule]).verdict == "fail"
    few = fairkit.audit(None, fairkit.load_data(hiring_table(20), **ROLES), policy=[rule])
    assert few.verdict == "inconclusive"
    assert "20 queries" in few.find("exposure_ratio", "sex").inconclusive


def test_the_favorable_label_is_the_relevant_one():
    table = hiring_table(80, 1)
    relevant = np.where(table["relevance"].to_numpy() >= 2, "yes", "no")
    table = table.append_column("hired", [relevant]).drop_columns(["relevance", "score"])
    probability = 1 / (1 + np.exp(-table["test"].to_numpy()))
    table = table.append_column("p", [probability])
    data = fairkit.load_data(
        table, label="hired", favorable="yes", sensitive="sex", query="opening", predictions={"score": "p"}
    )
    report = fairkit.audit(None, data)
    assert report.model.task == "ranking"
    assert 0.5 < report.find("pairwise_accuracy").value < 1


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        ({"query": "openning"}, "no query column 'openning'"),
        ({"query": "sex"}, "cannot be the `query`"),
        ({"cluster": "test"}, "`cluster` and `query` cannot be used together"),
        ({"weights": "test"}, "`query` and `weights` cannot"),
        ({"reference": "sex=male"}, "`reference` and `query` cannot"),
        ({"within": "test"}, "`within` and `query` cannot"),
    ],
)
def test_roles_that_cannot_be_meant_are_refused(roles, words):
    with pytest.raises(DataError, match=words):
        fairkit.load_data(hiring_table(5), **{**ROLES, **roles})


def test_rows_and_labels_that_are_no_rankings_are_refused():
    table = hiring_table(50)
    holes = table.set_column(0, "opening", [[None, *table["opening"].to_pylist()[1:]]])
    with pytest.raises(DataError, match="1 rows have no value in the `query` column"):
        fairkit.audit(None, fairkit.load_data(holes, **ROLES))
    one = table.set_column(0, "opening", [[1] * len(table)])
    with pytest.raises(DataError, match="`query` column 'opening' has one value"):
        fairkit.audit(None, fairkit.load_data(one, **ROLES))
    with pytest.raises(DataError, match="relevance is a grade"):
        fairkit.audit(None, fairkit.load_data(table, **{**ROLES, "label": "test"}))
    with pytest.raises(DataError, match="another task"):
        fairkit.audit(None, fairkit.load_data(table, **ROLES), options=ModelOptions(task="regression"))
    with pytest.raises(DataError, match="name it with `query=COLUMN`"):
        fairkit.audit(None, fairkit.load_data(table, **{**ROLES, "query": None}), options=ModelOptions(task="ranking"))
    with pytest.raises(ParameterError, match="threshold"):
        fairkit.audit(None, fairkit.load_data(table, **ROLES), options=ModelOptions(threshold=0.3))


def test_auditors_and_parameters_of_other_tasks_are_refused_by_name():
    data = fairkit.load_data(hiring_table(50), **ROLES)
    with pytest.raises(ParameterError, match="'subgroups' looks at"):
        fairkit.audit(None, data, auditors=["subgroups"])
    for given in ({"loss": "squared"}, {"label_error": "sex=0.1"}):
        with pytest.raises(ParameterError, match=next(iter(given))):
            fairkit.audit(None, data, parameters={"group": given})


def test_constant_scores_rank_nothing():
    table = hiring_table(50)
    table = table.set_column(4, "score", [np.zeros(len(table))])
    rule = fairkit.Rule(metric="exposure_difference", sensitive="sex", max=0.5)
    report = fairkit.audit(None, fairkit.load_data(table, **ROLES), policy=[rule])
    assert report.verdict == "inconclusive"
    assert "nothing is ranked" in report.warnings[0]


def test_items_without_a_group_have_places_and_decide_no_verdict_where_they_are_many():
    table = hiring_table(100)
    sexes = table["sex"].to_pylist()
    holes = table.set_column(1, "sex", [[None if i % 5 == 0 else sex for i, sex in enumerate(sexes)]])
    rule = fairkit.Rule(metric="exposure_difference", sensitive="sex", max=0.5)
    report = fairkit.audit(None, fairkit.load_data(holes, **ROLES), policy=[rule])
    assert report.verdict == "inconclusive"
    whole = fairkit.audit(None, fairkit.load_data(table, **ROLES))
    assert report.find("ndcg").value == whole.find("ndcg").value


def test_a_model_that_gives_labels_only_ranks_nothing():
    class Labels:
        classes_ = np.array([0, 1])

        def predict(self, x):
            return (np.asarray(x)[:, 0] > 0).astype(int)

    table = hiring_table(50)
    table = table.append_column("y", [(table["relevance"].to_numpy() > 1).astype(int)]).drop_columns(["relevance"])
    data = fairkit.load_data(
        table, label="y", favorable=1, sensitive="sex", query="opening", features=["test", "score"]
    )
    with pytest.raises((ModelError, FairkitError), match="score"):
        fairkit.audit(Labels(), data)


def test_held_out_queries_stay_whole():
    from fairkit_repair.mitigation.choose import split_dataset

    data = fairkit.load_data(hiring_table(40), **ROLES)
    train, test = split_dataset(data, 0.25, 0)
    both = [set(part.read(["opening"]).column("opening").tolist()) for part in (train, test)]
    assert not both[0] & both[1]
    assert len(both[1]) == 10
