"""Few labels: the arithmetic against exact fractions and other ways to it, and attacks on the design."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import fairkit
from fairkit.auditing.drawing import draw_labels
from fairkit.data.labelled import Drawn, draw_order
from fairkit.errors import DataError, FairkitError, ParameterError
from fairkit.few_labels import difference_between, few_label_estimate, label_totals, leaning, limits_of, shares_of
from fairkit.metrics import CONFUSION
from fairkit.models.columns import PredictedColumns
from fairkit.planning.run import allocate, check_rules
from fairkit.results.rules import Rule
from fairkit.statistics import Rows
from fairkit_group.identification import BaseRate
from fairkit_group.rates import Accuracy, F1Score, FalsePositiveRate, Precision, TruePositiveRate

METRICS = (TruePositiveRate(), FalsePositiveRate(), Accuracy(), Precision(), BaseRate(), F1Score())


def people(seed=0, n=4_000):
    rng = np.random.default_rng(seed)
    group = (rng.random(n) < 0.4).astype(np.int64)
    chance = 1 / (1 + np.exp(-(1.4 * rng.standard_normal(n) - 0.8)))
    outcome = (rng.random(n) < chance).astype(float)
    decision = (chance + 0.15 * rng.standard_normal(n) > 0.4 + 0.05 * group).astype(float)
    return group, decision, outcome, chance, rng


def table(known, seed=0, n=4_000):
    group, decision, outcome, score, _ = people(seed, n)
    label = np.where(outcome > 0, "good", "bad").astype(object)
    label[~known] = None
    sex = np.where(group, "m", "f")
    return {"sex": sex, "decision": decision.astype(int), "score": score.round(4), "y": label, "id": np.arange(n)}


def audit(columns, labelled=None, rules=(), **told):
    data = fairkit.load_data(columns, label="y", favorable="good", sensitive=["sex"])
    outcomes = labelled if labelled is None else fairkit.Drawn.of(labelled)
    model = PredictedColumns(decision="decision", score="score")
    return fairkit.audit(model, data, policy=list(rules), outcomes=outcomes, **told)


def some(m=500, n=4_000, seed=5):
    known = np.zeros(n, dtype=bool)
    known[np.random.default_rng(seed).choice(n, m, replace=False)] = True
    return known


def even(value=True):
    return np.full(2, value)


def test_without_a_score_the_rates_are_those_of_a_post_stratified_table_in_exact_fractions():
    group, decision, outcome, _, _ = people()
    known = some()
    totals = label_totals(group, 2, decision, outcome, known)
    made = {m.name: few_label_estimate(m, totals, None, even(False)).values for m in METRICS}
    for g in range(2):
        n, q, share = 0, 0, {}
        for d in (0, 1):
            here = (group == g) & (decision == d)
            n, q = n + int(here.sum()), int(here.sum()) if d else q
            share[d] = Fraction(int(outcome[here & known].sum()), int((here & known).sum()))
        q, a, b = Fraction(q, n), share[1], share[0]
        expected = {
            "true_positive_rate": q * a / (q * a + (1 - q) * b),
            "false_positive_rate": q * (1 - a) / (q * (1 - a) + (1 - q) * (1 - b)),
            "accuracy": q * a + (1 - q) * (1 - b),
            "precision": a,
            "base_rate": q * a + (1 - q) * b,
            "f1_score": 2 * q * a / (q * a + (1 - q) * b + q),
        }
        for name, value in expected.items():
            assert made[name][g] == pytest.approx(float(value), rel=1e-12)


def test_the_slope_and_worth_are_those_of_least_squares():
    group, decision, outcome, score, _ = people()
    known = some(900)
    shares = shares_of(label_totals(group, 2, decision, outcome, known, score=score))
    f = (np.minimum((score * 256).astype(int), 255) + 0.5) / 256
    for g in range(2):
        here = (group == g) & (decision == 1)
        x, y = f[here & known], outcome[here & known]
        slope, _ = np.polyfit(x, y, 1)
        assert shares.slope[g, 1] == pytest.approx(slope, rel=1e-9)
        assert shares.value[g, 1] == pytest.approx(y.mean() + slope * (f[here].mean() - x.mean()), rel=1e-9)
        assert (here & known).sum() <= shares.worth[g, 1] <= here.sum()


@pytest.mark.parametrize("score", [lambda y, rng: rng.random(len(y)), lambda y, rng: y, lambda y, rng: 1 - y])
def test_a_useless_or_hostile_score_costs_nothing_and_a_perfect_one_is_no_certainty(score):
    group, decision, outcome, _, rng = people()
    known = some(800)
    shares = shares_of(label_totals(group, 2, decision, outcome, known, score=score(outcome, rng)))
    assert (shares.worth >= shares.labels - 1e-9).all()
    missed = 1 - 0.025 ** (1 / shares.labels)  # what M perfect residuals cannot exclude
    low, high = limits_of(Precision(), shares, 1.96)
    assert (high - low >= 1.9 * missed[:, 1]).all()


def test_weights_of_1_and_one_probability_are_no_weights():
    group, decision, outcome, score, _ = people()
    known = some(700)
    plain, weighted = (
        label_totals(group, 2, decision, outcome, known, score=score, **more)
        for more in ({}, {"weights": np.ones(4_000), "chance": np.full(4_000, 0.2)})
    )
    for metric in METRICS:
        one, other = (few_label_estimate(metric, totals, None, even(False)) for totals in (plain, weighted))
        for left, right in zip((one.values, *one.limits(1.96)), (other.values, *other.limits(1.96)), strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-10)


def test_batches_add_up_to_the_same_bytes_in_any_order():
    group, decision, outcome, score, rng = people()
    known, order = some(), rng.permutation(4_000)
    whole = label_totals(group, 2, decision, outcome, known, score=score)
    parts = [
        label_totals(group[i], 2, decision[i], outcome[i], known[i], score=score[i]) for i in np.array_split(order, 7)
    ]
    assert (sum(parts[1:], parts[0]).sums == whole.sums).all()


def test_all_rows_labelled_is_no_option_byte_for_byte():
    columns = table(np.ones(4_000, dtype=bool))
    assert audit(columns, "random").to_dict()["findings"] == audit(columns).to_dict()["findings"]


def test_without_labels_among_the_refused_the_limits_are_the_extremes_over_b():
    group, decision, outcome, _, _ = people()
    totals = label_totals(group, 2, decision, outcome, decision > 0)
    shares = shares_of(totals)
    for metric in (TruePositiveRate(), FalsePositiveRate(), Accuracy()):
        low, high = limits_of(metric, shares, 1e-6)
        for g in range(2):
            here = group == g
            q, a = decision[here].mean(), outcome[here & (decision > 0)].mean()
            b = np.linspace(0, 1, 1001)
            cells = np.stack([(1 - q) * (1 - b), q * (1 - a) + 0 * b, (1 - q) * b, q * a + 0 * b], axis=1)
            values = metric.compute(cells)
            assert (low[g], high[g]) == (pytest.approx(values.min(), abs=1e-4), pytest.approx(values.max(), abs=1e-4))
    wide = replace(shares_of(label_totals(group, 2, decision, outcome, some())), odds=1e9)
    low, high = limits_of(TruePositiveRate(), wide, 1.96)
    assert (low < 1e-3).all()
    assert (high > 0.999).all()


def test_leaning_labels_are_refused_and_drawn_ones_are_not():
    group, decision, outcome, score, rng = people(n=8_000)
    lean = np.where(score > np.median(score), 2.2, 1.0)
    refused = []
    for p in (None, lean / lean.sum()):
        seen = []
        for _ in range(40):
            known = np.zeros(8_000, dtype=bool)
            known[rng.choice(8_000, 600, replace=False, p=p)] = True
            seen.append(leaning(label_totals(group, 2, decision, outcome, known, score=score), even())[0] < 0.001)
        refused.append(np.mean(seen))
    assert refused == [0.0, 1.0]


def test_an_audit_is_of_all_rows_and_narrower_than_that_of_the_labelled_rows():
    known = some()
    columns = table(known)
    few = audit(columns, "random")
    alone = audit({name: values[known] for name, values in columns.items()})
    for metric, most in (("demographic_parity", 0.4), ("false_positive_rate", 0.85), ("equal_opportunity", 0.95)):
        found = [report.find(f"{metric}_difference", "sex").groups for report in (few, alone)]
        widths = [sum(np.diff(group.interval)[0] for group in groups) for groups in found]
        assert widths[0] < most * widths[1]
    found = few.find("labelled_share", "sex")
    assert found.value == pytest.approx(500 / 4_000)
    assert [cell["labels"] for cell in found.evidence["labels"]]
    finding = few.find("brier_score_difference", "sex")
    assert "rows with an outcome alone" in finding.notes[0]


def drawn(tmp_path, budget=400, seed=3):
    """Two stages: the design's file, and the table with the outcomes of exactly the drawn rows."""
    none = table(np.arange(4_000) < 2)
    del none["y"]
    roles = {"sensitive": ["sex"], "predictions": {"decision": "decision", "score": "score"}}
    first = draw_labels(fairkit.load_data(none, **roles), budget, ["equal_opportunity_difference"], seed=seed)
    known = np.isin(np.arange(4_000), first.rows)
    data = fairkit.load_data(table(known), label="y", favorable="good", labelled=dict(first.design), **roles)
    second = draw_labels(data, budget, ["equal_opportunity_difference"])
    known |= np.isin(np.arange(4_000), second.rows)
    path = tmp_path / "drawn.json"
    path.write_text(json.dumps(second.design))
    return path, known, second


def test_two_stages_draw_the_rows_that_the_seed_says_and_the_audit_uses_them(tmp_path):
    path, known, second = drawn(tmp_path)
    assert known.sum() == 400
    for cell in second.design["cells"]:
        group, decision, *_ = people()
        rows = np.flatnonzero((group == (cell["group"] == "m")) & (decision == cell["decision"]))
        order = draw_order(3, second.design["population"], rows)
        assert sorted(order[: len(cell["drawn"])]) == cell["drawn"]
    columns = table(known)
    rules = [Rule(metric="equal_opportunity_difference", sensitive="sex", max=0.3)]
    report = audit(columns, path, rules)
    assert report.verdict == "pass"
    assert "one outcome was looked up at" in report.policy[0].reason
    assert report.find("labelled_share", "sex").evidence["design"]["list_sha256"] == Drawn(path).digest
    truth = audit(table(np.ones(4_000, dtype=bool)))
    for metric in ("equal_opportunity_difference", "false_positive_rate_difference", "accuracy_difference"):
        low, high = report.find(metric, "sex").interval
        assert low <= truth.find(metric, "sex").value <= high


def test_a_list_of_another_table_is_refused(tmp_path):
    path, known, _ = drawn(tmp_path)
    with pytest.raises(DataError, match="another table"):
        audit(table(known, seed=1), path)
    other = table(known)
    other["sex"] = np.where(other["sex"] == "m", "x", "y")
    with pytest.raises(DataError, match="which no row has"):
        audit(other, path)
    record = json.loads(path.read_text())
    record["cells"][0]["drawn"].append(record["cells"][0]["drawn"][0])
    with pytest.raises(ParameterError, match="it was changed"):
        Drawn(record)


def test_drawn_rows_without_an_outcome_widen_and_outcomes_that_were_not_drawn_are_not_used(tmp_path):
    path, known, _ = drawn(tmp_path)
    whole = audit(table(known), path).find("equal_opportunity_difference", "sex")
    fewer = known.copy()
    fewer[np.flatnonzero(known)[::4]] = False
    part = audit(table(fewer), path).find("equal_opportunity_difference", "sex")
    assert part.interval[1] > whole.interval[1] + 0.1
    more = audit(table(known | some(300, seed=8)), path)
    assert more.find("equal_opportunity_difference", "sex").interval == whole.interval
    assert any("were not drawn, and are not used" in note for note in more.find("labelled_share", "sex").notes)


def test_ten_labels_give_no_verdict():
    report = audit(table(some(10)), "random", [Rule(metric="accuracy_difference", sensitive="sex", max=0.99)])
    assert report.verdict == "inconclusive"
    assert "Fewer than 10 outcomes" in report.policy[0].reason


@pytest.mark.long
def test_labels_that_lean_give_no_verdict():
    _, decision, _, _, rng = people()
    p = np.where(decision > 0, 6.0, 1.0)
    known = np.zeros(4_000, dtype=bool)
    known[rng.choice(4_000, 500, replace=False, p=p / p.sum())] = True
    rules = [Rule(metric="accuracy_difference", sensitive="sex", max=0.99)]
    leaning_, by = (audit(table(known), how, rules) for how in ("random", "by=decision,sex"))
    assert leaning_.verdict == "inconclusive"
    assert "not drawn as `labelled` says" in leaning_.policy[0].reason
    assert by.verdict == "pass"


def test_accepted_alone_settle_nothing_and_assumptions_are_named():
    _, decision, *_ = people()
    columns = table(decision > 0)
    rules = [Rule(metric="equal_opportunity_difference", sensitive="sex", max=0.2)]
    bare = audit(columns, "selective", rules)
    named = audit(columns, Drawn("selective", "no-better"), rules)
    wide, less = (report.find("false_positive_rate_difference", "sex").interval for report in (bare, named))
    assert bare.verdict == named.verdict == "inconclusive"
    assert less[1] < wide[1]
    assert any("no-better" in note for note in named.find("labelled_share", "sex").notes)
    assert "no estimate" in bare.find("equal_opportunity_difference", "sex").notes[0]


def test_labels_that_lean_to_an_outcome_are_covered_by_the_odds():
    """Nothing can see them: outcome 1 looked up at 1.5 times the odds in one group."""
    covered = {1.0: 0, 1.5: 0}
    rng = np.random.default_rng(0)
    group, decision, outcome, score, _ = people(n=60_000)
    truth = np.ptp(
        TruePositiveRate().compute(CONFUSION.collect(Rows(outcome=outcome, decision=decision), group, 2).first)
    )
    for _ in range(60):
        known = rng.random(60_000) < 0.05 * np.where((outcome > 0) & (group == 1), 1.5, 1.0)
        totals = label_totals(group, 2, decision, outcome, known, score=score)
        for odds in covered:
            shares = replace(shares_of(totals), odds=odds)
            spread = difference_between(few_label_estimate(TruePositiveRate(), totals, None, even(False), shares), 0.95)
            covered[odds] += spread.low <= truth <= spread.high
    assert covered[1.0] < 57
    assert covered[1.5] == 60


@pytest.mark.parametrize("draws", [30, pytest.param(80, marks=pytest.mark.long)])
def test_coverage_of_a_small_setting(draws):
    hits = {metric.name: 0 for metric in METRICS}
    group, decision, outcome, score, rng = people(n=50_000)
    cells = CONFUSION.collect(Rows(outcome=outcome, decision=decision), group, 2).first
    for _ in range(draws):
        rows = rng.choice(50_000, 2_000, replace=False)
        known = np.zeros(2_000, dtype=bool)
        known[:200] = True
        g, d, y = group[rows], decision[rows], outcome[rows]
        totals = label_totals(g, 2, d, y, known, score=score[rows])
        sums = CONFUSION.collect(Rows(outcome=y[:200], decision=d[:200]), g[:200], 2)
        for metric in METRICS:
            made = few_label_estimate(metric, totals, metric.estimate(sums, rng), even())
            spread = difference_between(made, 0.95)
            hits[metric.name] += spread.low <= np.ptp(metric.compute(cells)) <= spread.high
    assert min(hits.values()) >= draws * (0.94 - 2 * np.sqrt(0.94 * 0.06 / draws))


@pytest.mark.parametrize(
    ("labelled", "message"),
    [
        ("nobody", "No such file"), ("probability", "not understood"), ("by=", "not understood"),
        ("by=region", "no labelled column"), ("probability=score", "no probability"),
    ],
)  # fmt: skip
def test_what_is_no_design_is_refused(labelled, message):
    columns = table(some()) | {"score": np.linspace(0, 1, 4_000)}
    with pytest.raises(FairkitError, match=message):
        audit(columns, labelled)


def test_a_plan_spreads_the_first_stage_equally_and_the_second_where_it_counts():
    rows = np.array([[3_000, 1_000], [5_000, 20]])  # of two groups, by decision
    first = allocate(rows, 500, ["equal_opportunity_difference"])
    assert first.tolist() == [[60, 60], [60, 20]]
    second = allocate(rows, 500, ["precision_difference"], first, first // [10, 4])
    assert second.sum() + first.sum() == 500
    assert second[0, 1] > 5 * second[0, 0]
    with pytest.raises(FairkitError, match="not drawn for"):
        check_rules(["demographic_parity_difference"], 500)


def test_a_database_counts_the_same_and_the_command_plans_and_audits(tmp_path, monkeypatch):
    """The how-to page's commands, with a table of its columns; DuckDB gives the same bytes."""
    import pyarrow as pa
    import pyarrow.csv as pc
    from tests.commands import checked, invoke

    monkeypatch.chdir(tmp_path)
    columns = {name: list(values) for name, values in table(some()).items()}
    pc.write_csv(pa.table(columns), "few.csv")
    roles = ["--sensitive", "sex", "--predictions", "decision=decision,score=score"]
    label = ["--label", "y", "--favorable", "good"]
    reports = []
    for engine in ([], ["--engine", "sql"]):
        run = ["audit", "--data", "few.csv", *label, *roles, "--labelled", "random", "--format", "json", *engine]
        result = checked(*run)
        reports.append(json.loads(result.stdout)["findings"])
    assert reports[0] == reports[1]
    plan = [
        "plan",
        "few.csv",
        *roles,
        "--labels",
        "400",
        "--for",
        "equal_opportunity_difference",
        "--draw",
        "first.csv",
    ]
    checked(*plan)
    lines = (tmp_path / "first.csv").read_text().splitlines()
    assert len(lines) == 161
    assert "decision" not in lines[0]
    assert invoke(*plan).exit_code != 0  # the file may hold outcomes
