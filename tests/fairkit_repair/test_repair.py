"""From a policy to a model that passes it: the search, its predictions, and what it refuses."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import fairkit
from fairkit.data.table import Groups, Table
from fairkit.errors import DataError, PowerError
from fairkit.mitigators import Capability, Run
from fairkit.results.policy import judge
from fairkit.results.rules import Rule
from fairkit.statistics import Confusion, Rows
from fairkit_datasets.loans import loans_table
from fairkit_onnx.write.export import export_bytes
from fairkit_onnx.write.rules import Piece
from fairkit_repair.learners import fit_learner
from fairkit_repair.mitigation.choose import find_mitigator
from fairkit_repair.mitigation.learned import check_leak
from fairkit_repair.postprocess import PostProcessor, Solution
from fairkit_repair.repairing import run as running
from fairkit_repair.repairing.candidates import candidates
from fairkit_repair.repairing.chance import ByRates, CalibrationCells, Planned, equal_decisions, furthest, limits_of
from fairkit_repair.repairing.evaluate import Bench, Clock
from fairkit_repair.repairing.preparing import power_of
from fairkit_repair.repairing.run import _price
from fairkit_repair.repairing.searching import ALIKE, confirm, pick
from fairkit_repair.scored_rows import ScoredRows, Trial

ROLES = {"label": "decision", "favorable": "approved", "sensitive": ["sex"], "drop": ["would_repay"]}
PARITY = Rule(metric="demographic_parity_difference", sensitive="sex", max=0.1)


def loans(rows, seed, **roles):
    return fairkit.load_data(loans_table(rows, seed=seed), **(ROLES | roles))


def search(**asked):
    asked = {"methods": ["threshold-optimizer"], "learner": "logistic", "threads": 1} | asked
    return fairkit.repair(loans(6_000, 1), [PARITY], test=loans(4_000, 2), **asked)


@pytest.fixture(scope="module", autouse=True)
def own_looks(tmp_path_factory):
    """Looks at test rows are counted for this file alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("looks")))
        yield


@pytest.fixture(scope="module")
def found(own_looks):
    return search()


def planned_rows(rows, test_rows, seed=0, share=0.6):
    rng = np.random.default_rng(seed)
    codes = (rng.random(rows) < share).astype(np.int64)
    outcome = (rng.random(rows) < 0.4).astype(float)
    held = (rng.random(test_rows) < share).astype(np.int64)
    groups = {"sex": Groups(None, ("f", "m"), codes)}
    return Planned.of(groups, outcome, None, {"sex": held}, test_rows), codes, outcome, held


def rows_of(outcome, decision):
    return Rows(outcome=outcome, decision=decision, score=None, weights=None)


def test_the_pick_passes_and_says_what_it_did(found):
    assert found.after.verdict == "pass"
    told = found.search
    assert told.reached
    assert told.choice.status == "picked"
    assert (told.choice.chance or 0) >= 0.95
    assert told.alternatives[0].method == "unconstrained"
    assert (told.alternatives[0].chance or 0) < 0.05
    assert not found.randomized  # a deterministic rule passes, so none that draws is picked
    assert not told.needs_chance
    assert told.looks == 1
    record = found.to_dict()["search"]
    assert record["searched"] == sum(one["chance"] is not None for one in record["alternatives"])


def test_the_pick_is_the_most_accurate_that_is_sure(found):
    known = [one for one in found.search.measured if one.status != "left out"]
    sure = [one for one in known if one.chance >= found.search.sure]
    assert found.search.choice.accuracy == max(one.accuracy for one in sure)


@pytest.mark.long
def test_equal_inputs_give_equal_files(found):
    assert search().onnx == found.onnx


@pytest.mark.long
def test_the_file_says_how_it_was_searched_and_how_often_the_test_rows_were_looked_at(found, tmp_path):
    from fairkit_onnx.read.graph import embedded_settings, parse

    told = embedded_settings(parse(found.onnx, "fair.onnx"))["mitigation"]["search"]
    assert told["searched"] == len(found.search.measured)
    assert told["policy"] == [PARITY.to_dict()]
    path = tmp_path / "fair.onnx"
    found.save(path)
    again = search(output=path, seed=1)
    assert again.search.looks > 1
    assert any(f"look {again.search.looks} at the same test rows" in note for note in again.notes)
    elsewhere = search(output=tmp_path / "other.onnx", seed=2)
    assert elsewhere.search.looks == again.search.looks + 1


def test_drawn_totals_are_those_of_an_audit_of_so_many_rows():
    planned, codes, _, held = planned_rows(20_000, 3_000)
    rng = np.random.default_rng(3)
    chance = np.where(codes == 0, 0.3, 0.5) * (rng.random(len(codes)) < 0.8)
    cells = CalibrationCells.of(planned, chance)
    totals = cells.totals(cells.draw(rng, 400), "sex")
    rate = (totals.first[:, [1, 3]].sum(1) / totals.count).reshape(400, 2)
    for group in (0, 1):
        own = codes == group
        size = (held == group).sum()
        assert totals.count.reshape(400, 2)[:, group] == pytest.approx(size)
        assert rate[:, group].mean() == pytest.approx(chance[own].mean(), abs=0.003)
        error = np.sqrt(chance[own].var() * (1 / size + 1 / own.sum()))
        assert rate[:, group].std() == pytest.approx(error, rel=0.12)


def test_totals_of_the_calibration_rows_are_the_auditors():
    planned, codes, outcome, _ = planned_rows(5_000, 500)
    chance = np.random.default_rng(0).choice([0.0, 0.25, 1.0], len(codes))
    cells = CalibrationCells.of(planned, chance)
    mine = cells.totals(cells.mass[None, :], "sex")
    theirs = Confusion().collect(rows_of(outcome, chance), codes, 2)
    assert mine.first == pytest.approx(theirs.first)
    assert mine.second == pytest.approx(theirs.second)
    assert mine.cubes == pytest.approx(theirs.cubes)


@pytest.mark.long
def test_the_predicted_chance_is_how_often_audits_pass():
    """Over populations with gaps from 0 to .1, calibration and test rows drawn anew: predictions are pass rates."""
    rng = np.random.default_rng(8)
    passed, told = [], []
    (limit,) = limits_of([Rule(metric=PARITY.metric, sensitive="sex", max=0.085)], ["sex"])
    for turn in range(200):
        rates = (0.3, 0.3 + rng.uniform(0, 0.1))
        planned, codes, _, held = planned_rows(6_000, 2_500, seed=turn)
        chance = (rng.random(len(codes)) < np.take(rates, codes)).astype(float)
        told.append(ByRates(planned=planned, limits=[limit]).predict(chance, rng, 80).chance)
        decided = (rng.random(len(held)) < np.take(rates, held)).astype(float)
        totals = Confusion().collect(rows_of((rng.random(len(held)) < 0.4).astype(float), decided), held, 2)
        estimate = limit.target.rates[0]().estimate(totals, rng)
        passed.append(limit.rule.settled(limit.target.interval([estimate], 0.95)) is True)
    told, passed = np.array(told), np.array(passed)
    assert told.mean() == pytest.approx(passed.mean(), abs=0.07)
    for low, high in ((0.0, 0.3), (0.3, 0.8), (0.8, 1.01)):
        own = (told >= low) & (told < high)
        assert told[own].mean() == pytest.approx(passed[own].mean(), abs=0.15)


def test_rules_are_judged_jointly_and_the_verdict_is_the_audits(found):
    both = [PARITY, Rule(metric="accuracy", min=0.99)]
    planned, _, outcome, _ = planned_rows(4_000, 2_000)
    chance = equal_decisions(planned, outcome * 0.7 + 0.1, by_outcome=False)
    forecast = ByRates(planned=planned, limits=limits_of(both, ["sex"]))
    told = forecast.predict(chance, np.random.default_rng(0))
    assert told.chances["demographic_parity_difference:sex"] > 0.9
    assert told.chance == 0
    assert judge([PARITY], found.after.findings, confidence=0.95)[1] == found.after.verdict


def test_the_power_is_that_of_the_plan():
    planned, _, outcome, _ = planned_rows(30_000, 3_770, share=0.5)
    limits = limits_of([Rule(metric=PARITY.metric, sensitive="sex", max=0.05)], ["sex"])
    decisions = np.full(len(outcome), 0.3)
    forecast = ByRates(planned=planned, limits=limits)
    found = power_of(forecast, decisions, 0)
    assert found.chance == pytest.approx(0.8, abs=0.07)  # 3,769 rows give .8
    few = power_of(forecast.scaled(0.3), decisions, 0)
    assert few.chance < 0.5
    assert few.needed is not None
    assert 4_000 < few.needed < 6_000


def test_a_policy_that_the_test_rows_cannot_decide_is_refused_before_training(monkeypatch):
    def never(*_, **__):
        raise AssertionError("trained")

    monkeypatch.setattr(running, "make_bench", never)
    rule = Rule(metric="equal_opportunity_difference", sensitive="sex", max=0.01)
    with pytest.raises(PowerError, match=r"600 test rows cannot decide .* about [\d,]+ test rows would give"):
        fairkit.repair(loans(2_000, 1), [rule], test=loans(600, 2), learner="logistic")


def test_groups_that_are_too_small_for_a_verdict_are_said_before_training():
    import pandas as pd

    table = loans_table(4_000, seed=2).to_pandas()
    women = table[table["sex"] == "female"].head(20)
    few = fairkit.load_data(pd.concat([table[table["sex"] != "female"], women]).reset_index(drop=True), **ROLES)
    with pytest.raises(PowerError, match=r"female \(20 rows\) have fewer than 30 rows"):
        fairkit.repair(loans(2_000, 1), [PARITY], test=few, learner="logistic")


@pytest.mark.long
def test_anyway_goes_on_and_says_that_it_is_not_sure():
    rule = Rule(metric="equal_opportunity_difference", sensitive="sex", max=0.01)
    asked = {"learner": "logistic", "methods": ["threshold-optimizer"], "anyway": True, "threads": 1}
    result = fairkit.repair(loans(2_000, 1), [rule], test=loans(600, 2), **asked)
    assert not result.search.reached
    assert any("No alternative reaches the chance 0.95" in note for note in result.notes)
    assert result.after.verdict != "pass"


def without_sex(rows, seed, share):
    table = loans_table(rows, seed=seed).to_pandas()
    table.loc[np.random.default_rng(seed).random(rows) < share, "sex"] = None
    return fairkit.load_data(table, **ROLES)


@pytest.mark.long
@pytest.mark.parametrize(
    "metric", ["demographic_parity_difference", "equalized_odds_difference", "selection_rate_ratio"]
)
def test_what_missing_groups_could_do_is_what_the_auditor_says(metric, plain_model):
    fitted, path = plain_model
    told = fairkit.audit(path, without_sex(3_000, 5, 0.1)).find(metric, sensitive="sex")
    whole = Table.from_dataset(loans(3_000, 5))
    decision = (fitted.predict(whole.columns).score >= 0.5).astype(int)
    cell = 2 * whole.target.astype(int) + decision
    lost = np.random.default_rng(5).random(3_000) < 0.1
    groups = whole.groups["sex"]
    known = np.zeros((1, len(groups.names), 4))
    np.add.at(known[0], (groups.codes[~lost], cell[~lost]), 1)
    limit = limits_of(
        [Rule(metric, "sex", max=0.5) if "ratio" not in metric else Rule(metric, "sex", min=0.5)], ["sex"]
    )[0]
    far = furthest(limit.target, known, np.bincount(cell[lost], minlength=4).astype(float))
    assert far[0] == pytest.approx(told.evidence["missing_bounds"]["low" if "ratio" in metric else "high"])


@pytest.fixture(scope="module")
def plain_model(tmp_path_factory):
    data = loans(2_000, 1, features=["income", "debt_ratio", "amount"])
    table = Table.from_dataset(data)
    fitted = fit_learner("logistic", table, Run())
    path = tmp_path_factory.mktemp("plain") / "plain.onnx"
    path.write_bytes(export_bytes(fitted, table))
    return fitted, path


@pytest.mark.long
def test_groups_that_are_not_known_are_refused_before_training_and_counted_where_not(plain_model):
    asked = {"methods": ["threshold-optimizer"], "learner": "logistic", "threads": 1}
    with pytest.raises(PowerError, match=r"have no value of sex, and a verdict must hold whatever their groups are"):
        fairkit.repair(loans(2_000, 1), [PARITY], test=without_sex(4_000, 2, 0.1), **asked)
    planned, codes, _, _ = planned_rows(4_000, 4_000)
    decision = np.where(codes == 0, 0.5, 0.52)
    limit = limits_of([PARITY], ["sex"])
    few, many = (
        ByRates(planned=dataclasses.replace(planned, missing={"sex": count}), limits=limit).predict(
            decision, np.random.default_rng(0)
        )
        for count in (0, 250)
    )
    assert few.chance > 0.9
    assert many.chance == 0.0
    assert planned.missing == {}


@pytest.mark.long
def test_the_limit_that_stands_in_the_way_is_named():
    rules = [PARITY, Rule(metric="accuracy", min=0.99)]
    result = fairkit.repair(
        loans(3_000, 1), rules, test=loans(3_000, 2), methods=["threshold-optimizer"], learner="logistic", threads=1
    )
    (note,) = [note for note in result.notes if "No alternative reaches" in note]
    chances = "accuracy 0.00, accuracy:sex 0.00, demographic_parity_difference:sex"
    assert f"Its chance of keeping each limit by itself: {chances}" in note


@pytest.mark.long
def test_deterministic_leaves_drawn_decisions_out_and_says_what_that_costs():
    result = search(deterministic=True, methods=["threshold-optimizer", "reject-option"])
    assert not result.randomized
    assert result.after.verdict == "pass"
    drawn = [one for one in result.search.alternatives if one.reason == "it draws decisions by chance"]
    assert drawn
    assert all(one.status == "left out" for one in drawn)
    assert any("Without decisions drawn by chance the predicted accuracy is" in note for note in result.notes)


@pytest.mark.long
def test_blind_models_do_not_read_the_group():
    result = search(blind=True, methods=["reweigh"])
    assert result.reads == ()
    assert all(not one.reads_group for one in result.search.measured)


@pytest.mark.long
def test_a_budget_that_ends_keeps_the_best_so_far():
    result = search(methods=["threshold-optimizer", "reweigh"], budget=1e-6)
    assert [one.method for one in result.search.alternatives if "budget" in one.reason]
    assert result.search.choice.chance is not None
    (note,) = [note for note in result.notes if "minutes left no time for" in note]
    assert "reweigh" in note


class Slow(fairkit.Mitigator):
    """Reports progress for ever."""

    name = "slow"
    stage = "in"
    capabilities = (Capability(constraints=("demographic_parity",), trainings=0),)

    began = False

    def fit(self, table, run, **_):
        while True:
            Slow.began = True
            run.progress("training", 0, 1)


@pytest.mark.long
def test_a_fit_that_the_budget_ends_is_left_out(monkeypatch):
    monkeypatch.setattr(Clock, "left", lambda self: -1.0 if Slow.began else 60.0)
    find = "fairkit_repair.repairing.candidates.find_mitigator"
    monkeypatch.setattr(find, lambda name: Slow if name == "slow" else find_mitigator(name))
    result = search(methods=["threshold-optimizer", "slow"])
    (slow,) = [one for one in result.search.alternatives if one.method == "slow"]
    assert (slow.status, slow.reason) == ("left out", "the budget ended during its training")
    assert result.search.choice.method == "threshold-optimizer"


def test_ctrl_c_goes_through_and_writes_nothing(tmp_path):
    def stop(doing, done, total, **values):
        if doing == "searching" and done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(output=tmp_path / "fair.onnx", progress=stop)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ([], "needs a policy"),
        ([Rule(metric=PARITY.metric, sensitive="rase", max=0.1)], "not among the sensitive columns"),
        (
            [PARITY, Rule(metric="selection_rate", min=0.5), Rule(metric="selection_rate", max=0.3)],
            "contradict each other: selection_rate at least 0.5",
        ),
        ([Rule(metric=PARITY.metric, sensitive="sex", max=-0.1)], "no model can keep"),
        ([Rule(metric="demographic_parity_ratio", sensitive="sex", min=1.2)], "no model can keep"),
        ([Rule(metric="consistency", min=0.9)], "not made of rates"),
        ([Rule(metric="demografic_parity_difference", max=0.1)], "demographic_parity_difference"),
    ],
)
def test_policies_that_cannot_be_searched_are_refused_before_training(rules, said):
    with pytest.raises(fairkit.PolicyError, match=said):
        fairkit.repair(loans(300, 1), rules)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"sure": 1.0}, "`sure` is a chance"),
        ({"budget": 0}, "`budget` is a number of minutes"),
        ({"methods": ["fairgmb"]}, "fairgbm"),
        ({"methods": ["correlation-remover"]}, "does not say that it can meet"),
        ({"parameters": {"threshold-optimizer": {"tolerence": 1}}}, "tolerance"),
    ],
)
def test_wrong_requests_are_refused_before_training(asked, said):
    with pytest.raises(fairkit.FairkitError, match=said):
        search(**asked)


def test_test_rows_that_are_training_rows_are_refused():
    data = loans(2_000, 1)
    with pytest.raises(fairkit.DataError, match="the test rows are the training rows"):
        fairkit.repair(data, [PARITY], test=loans(2_000, 1), learner="logistic")
    half = loans_table(2_000, seed=1).slice(0, 900)
    with pytest.raises(fairkit.DataError, match="900 of the 900 test rows are also training rows"):
        fairkit.repair(data, [PARITY], test=fairkit.load_data(half, **ROLES), learner="logistic")


def test_test_rows_that_are_there_several_times_are_refused():
    import pandas as pd

    table = loans_table(400, seed=2).to_pandas()
    often = fairkit.load_data(pd.concat([table] * 10).reset_index(drop=True), **ROLES)
    with pytest.raises(DataError, match=r"of 2,000 test rows are copies of others among them"):
        fairkit.repair(loans(2_000, 1), [PARITY], test=often, learner="logistic")
    # people of whom little is known are alike, in training as in the test
    few = {"features": ["region"], "label": "decision", "favorable": "approved", "sensitive": ["sex"]}
    both = [Table.from_dataset(fairkit.load_data(loans_table(500, seed=seed), **few)) for seed in (1, 2)]
    check_leak(*both)
    check_leak(both[0].take(np.arange(100)), both[1])


@pytest.mark.long
def test_a_constant_base_model_is_searched_without_a_crash():
    table = loans_table(2_000, seed=1).to_pandas().assign(income=1.0)
    roles = {"label": "decision", "favorable": "approved", "sensitive": ["sex"], "features": ["income"]}
    asked = {"learner": "logistic", "methods": ["threshold-optimizer"], "threads": 1}
    result = fairkit.repair(fairkit.load_data(table, **roles), [PARITY], **asked)
    first = result.search.alternatives[0]
    assert first.reason.startswith("the same decisions for everybody")
    assert first.chance == 0.0
    assert first.status != "picked" or result.is_constant


def test_a_constant_model_is_picked_after_all_others_and_is_called_one():
    said = {"randomized": False, "reads_group": False, "values": {"gap": 0.0}}
    constant = Trial(method="a", parameters={}, accuracy=0.9, chance=0.0, reason=ALIKE, **said)
    poor = Trial(method="b", parameters={}, accuracy=0.6, chance=0.0, **{**said, "values": {"gap": 0.3}})
    assert pick([constant, poor], 0.95) == 1
    assert pick([constant], 0.95) == 0


@pytest.mark.long
def test_a_given_constant_model_ends_as_a_constant_model(tmp_path):
    table = loans_table(1_500, seed=1).to_pandas().assign(nothing=1.0)
    roles = {"label": "decision", "favorable": "approved", "sensitive": ["sex"], "features": ["nothing"]}
    data = fairkit.load_data(table, **roles)
    rows = fairkit.mitigators.Table.from_dataset(data)
    run = fairkit.fitted.Run(seed=0, threads=1, learner="logistic")
    base = export_bytes(fit_learner("logistic", rows, run), rows)
    asked = {"model": base, "methods": ["reject-option"], "threads": 1, "anyway": True}
    result = fairkit.repair(data, [PARITY], **asked)
    assert result.is_constant
    assert result.after.verdict == "inconclusive"
    assert any("The model is constant" in note for note in result.notes)


def test_a_ratio_rule_is_met_by_methods_for_the_difference():
    limits = limits_of([Rule(metric="demographic_parity_ratio", sensitive="sex", min=0.8)], ["sex"])
    found = candidates(limits, None, {}, rate=0.5)
    tolerances = {one.parameters["tolerance"] for one in found if one.method == "threshold-optimizer"}
    assert max(tolerances) == pytest.approx(0.1)
    assert "budro" not in {one.method for one in found}


class Fickle(PostProcessor):
    """Decides by another threshold when it learns from many rows."""

    name = "fickle"

    def solve(self, rows, validation, run):
        piece = (Piece(threshold=0.5 if len(rows) > 1_500 else 0.0),)
        return Solution(pieces=(piece,) * (len(rows.names) + 1))


def test_a_rule_that_is_another_one_on_all_rows_is_told_from_one_that_stays():
    table = fairkit.mitigators.Table.from_dataset(loans(2_000, 1))
    run = fairkit.fitted.Run(seed=0, threads=1, learner="logistic")
    half = np.arange(2_000) % 2
    scores = np.where(table.target > 0, 0.9, 0.1)
    bench = Bench(
        table=table,
        fold=half,
        half=half,
        base=None,
        fitted=None,
        scores=scores,
        decisions=scores >= 0.5,
        run=run,
        clock=Clock(ends=0.0),
    )
    fickle = Fickle()
    chance = bench.measure(fickle)
    assert chance.min() == 1.0
    assert bench.restless(fickle, chance).startswith("its rule depends on which rows")
    steady = find_mitigator("threshold-optimizer").with_values({"randomized": False})
    assert bench.restless(steady, bench.measure(steady)) == ""


def test_multicalibrate_says_what_it_can_meet_and_that_it_is_no_rate():
    cls = find_mitigator("multicalibrate")
    assert cls.capabilities[0].meets("ecce_difference")
    with pytest.raises(fairkit.PolicyError, match="not made of rates"):
        fairkit.repair(loans(900, 1), [Rule(metric="ecce_difference", sensitive="sex", max=0.1)])


PLAIN = Trial(
    method="threshold-optimizer",
    parameters={"constraint": "equal_opportunity", "tolerance": 0.0},
    randomized=False,
    reads_group=True,
)


def measured(rate, chance, accuracy, given=None, trial=PLAIN):
    parameters = {**trial.parameters, **(given or {})}
    return dataclasses.replace(trial, parameters=parameters, accuracy=accuracy, chance=chance, rate=rate)


def test_a_wider_ramp_keeps_the_rates_and_narrows_the_interval_of_their_difference():
    rng = np.random.default_rng(0)
    codes = np.arange(8_000) % 2
    favorable = (rng.random(8_000) < 0.4).astype(float)
    scores = 1 / (1 + np.exp(-rng.normal(1.6 * favorable - 0.9 + 0.4 * codes, 1.0)))
    rows = ScoredRows(scores=scores, codes=codes, names=("f", "m"), favorable=favorable, weights=None, cells=())
    limit = limits_of([Rule("equal_opportunity_difference", "sex", max=0.05)], ["sex"])[0]
    highs = []
    for gamma in (0.01, 0.6):
        settings = {"constraint": "equal_opportunity", "gamma": gamma, "rho": 0.7}
        solution = find_mitigator("rto").with_values(settings).solve(rows, None, Run())
        (pieces,) = zip(*solution.pieces[:2], strict=True)
        start = np.array([piece.threshold for piece in pieces])[codes]
        chance = np.clip((scores - start) / pieces[0].width, 0, 1)
        totals = Confusion().collect(Rows(outcome=favorable, decision=chance, score=None, weights=None), codes, 2)
        estimates = [rate().estimate(totals, rng) for rate in limit.target.rates]
        assert estimates[0].values == pytest.approx([0.7, 0.7], abs=0.001)
        highs.append(limit.target.interval(estimates, 0.95)[1])
    assert highs[1] < 0.9 * highs[0]


def test_a_rate_is_kept_by_mixed_and_by_single_thresholds(found):
    rows = ScoredRows(
        scores=np.random.default_rng(0).random(4_000),
        codes=np.arange(4_000) % 2,
        names=("f", "m"),
        favorable=(np.random.default_rng(1).random(4_000) < 0.4).astype(float),
        rate=0.3,
    )
    for drawn in (True, False):
        method = find_mitigator("threshold-optimizer").with_values(
            {"constraint": "equal_opportunity", "randomized": drawn}
        )
        details = method.solve(rows, None, Run()).details
        assert details["selection_rate_on_fit_rows"] == pytest.approx(0.3, abs=0.002)
        assert np.ptp(list(details["rates"]["true_positive_rate"].values())) <= 0.002


def test_the_picks_chance_is_predicted_anew_so_that_the_luckiest_of_many_is_not_taken():
    many = [measured(0.5, 0.96, 0.8 + place / 1000, {"place": place}) for place in range(5)]
    again = [0.96, 0.96, 0.95, 0.9, 0.91]

    def predicted(one):
        return dataclasses.replace(one, chance=again[one.parameters["place"]])

    assert confirm(many, 0.95, predicted) == 2
    assert [one.chance for one in many] == [0.96, 0.96, 0.95, 0.9, 0.91]

    def restless(one):  # the best ones are other rules on all rows
        return dataclasses.replace(one, status="left out") if one.parameters["place"] > 0 else one

    eight = [measured(0.5, 0.96, 0.8 + place / 1000, {"place": place}) for place in range(8)]
    assert confirm(eight, 0.95, restless) == 0


def test_what_cannot_win_is_not_measured(found):
    left = {one.name: one.reason for one in found.search.alternatives if one.chance is None}
    drawn = [reason for name, reason in left.items() if name.startswith(("rto", "threshold-optimizer (constraint = d"))]
    assert drawn
    assert set(drawn) == {"it draws decisions by chance, and a rule that does not is sure enough"}


def test_a_rule_that_cannot_keep_the_operating_point_says_so(tmp_path):
    table = fairkit.mitigators.Table.from_dataset(loans(900, 1))
    (tmp_path / "m.onnx").write_bytes(export_bytes(fit_learner("logistic", table, Run()), table))
    result = fairkit.repair(loans(4_000, 2), [PARITY], model=tmp_path / "m.onnx", threads=1, anyway=True,
                            threshold=0.8, methods=["reject-option"])  # fmt: skip
    reasons = {one.reason for one in result.search.alternatives if one.method == "reject-option"}
    assert reasons == {"it cannot be set for the objective rate"}


def test_a_chance_that_costs_much_is_said_with_what_a_smaller_one_takes(found):
    dear = measured(0.8, 0.96, 0.78, {"rate": 0.8})
    told = dataclasses.replace(
        found.search, alternatives=(measured(0.7, 0.859, 0.80), dataclasses.replace(dear, status="picked")), picked=1
    )
    (note,) = _price(told)
    assert "0.8000 and passes with a predicted chance of 0.86; `sure=0.85` takes it" in note
    near = dataclasses.replace(told.alternatives[0], accuracy=0.782)
    assert _price(dataclasses.replace(told, alternatives=(near, told.choice))) == []
