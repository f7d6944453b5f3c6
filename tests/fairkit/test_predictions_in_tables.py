"""Predictions that are columns of a table: what they mean is told by rule, and never guessed against the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fairkit
from fairkit.data.roles import PredictionRoles
from fairkit.data.task import choose_task
from fairkit.results.report import Report, validate_report

N = 2_000


def table() -> dict[str, Any]:
    rng = np.random.default_rng(5)
    group = rng.integers(0, 2, N)
    p = np.clip(rng.normal(0.5 + 0.1 * group, 0.2, N), 0, 1)
    tier = np.array(["basic", "gold", "silver"])[rng.integers(0, 3, N)]
    chances = rng.dirichlet([1, 1, 1], N)
    decided = p > 0.5
    return {
        "sex": np.where(group, "m", "f").astype(object),
        "p": p,
        "approved": decided.astype(int),
        "yes": np.where(decided, "yes", "no").astype(object),
        "words": np.where(decided, "granted", "refused").astype(object),
        "repaid": (rng.random(N) < p).astype(int),
        "default": (rng.random(N) > p).astype(int),
        "tier": tier.astype(object),
        "said": np.where(rng.random(N) < 0.7, tier, "basic").astype(object),
        "p_basic": chances[:, 0],
        "p_gold": chances[:, 1],
        "p_silver": chances[:, 2],
        "amount": 1_000 * p,
        "paid": 1_000 * p + rng.normal(0, 50, N),
    }


def audited(predictions: dict[str, Any], columns: dict[str, Any] | None = None, **roles: Any) -> Report:
    data = fairkit.load_data(columns or table(), sensitive=["sex"], predictions=predictions, **roles)
    report = fairkit.audit(None, data)
    record = report.to_dict()
    validate_report(record)
    assert record["model"] is None
    assert record["predictions"]["columns"] == predictions
    assert Report.from_dict(record).to_dict() == record
    return report


LOAN = {"label": "repaid", "favorable": 1}


@pytest.mark.parametrize("column", ["approved", "yes"])
def test_decisions_give_the_rates_of_the_table(column: str) -> None:
    report, rows = audited({"decision": column}, **LOAN), table()
    taken, good = rows["approved"] == 1, rows["repaid"] == 1
    assert report.find("selection_rate").value == pytest.approx(taken.mean(), abs=1e-12)
    assert report.find("true_positive_rate").value == pytest.approx(taken[good].mean(), abs=1e-12)
    rates = [taken[rows["sex"] == sex].mean() for sex in "fm"]
    found = report.find("demographic_parity_difference", "sex").value
    assert found == pytest.approx(abs(rates[0] - rates[1]), abs=1e-12)


def test_without_a_label_the_report_says_what_it_left_out() -> None:
    report = audited({"decision": "approved", "score": "p"})
    names = {finding.metric for finding in report.findings}
    assert {"selection_rate", "demographic_parity_difference", "statistical_parity_ks"} <= names
    assert not names & {"accuracy", "true_positive_rate", "log_loss", "equalized_odds_difference"}
    (note,) = [note for note in report.data.notes if "There is no label" in note]
    assert "true_positive_rate" in note
    assert "selection_rate" not in note


def test_a_chance_counts_as_a_chance() -> None:
    report = audited({"probability": "p"}, **LOAN)
    assert report.find("selection_rate").value == pytest.approx(table()["p"].mean(), abs=1e-12)


def test_scores_decide_from_the_threshold_on() -> None:
    data = fairkit.load_data(table(), sensitive=["sex"], predictions={"score": "p"}, **LOAN)
    options = fairkit.ModelOptions(threshold=0.7)
    report = fairkit.audit(None, data, options=options)
    assert report.find("selection_rate").value == pytest.approx((table()["p"] >= 0.7).mean(), abs=1e-12)
    columns = table()
    columns["z"] = np.log(np.clip(columns["p"], 1e-6, 1 - 1e-6) / (1 - np.clip(columns["p"], 1e-6, 1 - 1e-6)))
    data = fairkit.load_data(columns, sensitive=["sex"], predictions={"score": "z"}, **LOAN)
    logits = fairkit.audit(None, data, options=fairkit.ModelOptions(score_kind="logit", threshold=0.7))
    assert logits.find("roc_auc").value == pytest.approx(report.find("roc_auc").value, abs=1e-9)
    assert logits.find("selection_rate").value == report.find("selection_rate").value


def test_classes_and_their_probabilities() -> None:
    rows = table()
    report = audited({"class": "tier"}, label="said")
    assert report.find("accuracy").value == pytest.approx((rows["tier"] == rows["said"]).mean(), abs=1e-12)
    by_class = {"basic": "p_basic", "gold": "p_gold", "silver": "p_silver"}
    report = audited({"probability": by_class}, label="tier")
    chances = np.column_stack([rows[name] for name in by_class.values()])
    said = np.array(list(by_class))[chances.argmax(axis=1)]
    assert report.find("accuracy").value == pytest.approx((said == rows["tier"]).mean(), abs=1e-12)
    bare = audited({"class": "tier"})
    rate = bare.find("selection_rate", parameters={"class": "gold"}).value
    assert rate == pytest.approx((rows["tier"] == "gold").mean(), abs=1e-12)
    assert not [finding for finding in bare.findings if finding.metric == "accuracy"]


def test_a_class_that_the_label_never_has_is_a_class() -> None:
    columns = table()
    columns["said"] = np.where(columns["said"] == "gold", "basic", columns["said"]).astype(object)
    report = audited({"class": "tier"}, columns, label="said", favorable="silver")
    assert report.find("accuracy").value == pytest.approx((columns["tier"] == columns["said"]).mean())


def test_numbers_are_a_regression() -> None:
    rows = table()
    report = audited({"prediction": "amount"}, label="paid")
    error = np.abs(rows["amount"] - rows["paid"]).mean()
    assert report.find("mean_absolute_error").value == pytest.approx(error, rel=1e-12)
    assert audited({"prediction": "amount"}).find("mean_prediction").value == pytest.approx(
        rows["amount"].mean(), rel=1e-12
    )


@pytest.mark.parametrize(("step", "task"), [(0.5, "regression"), (1, "multiclass")])
def test_few_numbers_with_fractions_are_amounts_and_whole_ones_classes(step: float, task: str) -> None:
    grades = np.arange(100) % 7 * step
    data = fairkit.load_data({"sex": ["f", "m"] * 50, "grade": grades}, label="grade", sensitive="sex")
    assert choose_task(data, None) == task
    assert choose_task(data, None, n_scores=7) == "multiclass"


@pytest.mark.parametrize("column", ["approved", "yes"])
def test_a_favorable_value_of_0_turns_no_decision_round(column: str) -> None:
    """An approval of 1 is not the unfavorable decision because a default of 0 is the favorable outcome."""
    roles = {"label": "default", "favorable": 0}
    with pytest.raises(fairkit.ModelError, match="which decision is the favorable one"):
        audited({"decision": column}, **roles)
    good = 1 if column == "approved" else "yes"
    report = audited({"decision": column, "favorable": good}, **roles)
    assert report.find("selection_rate").value == pytest.approx(table()["approved"].mean())
    bad = 0 if column == "approved" else "no"
    report = audited({"decision": column, "favorable": bad}, **roles)
    assert report.find("selection_rate").value == pytest.approx(1 - table()["approved"].mean())


def test_one_batch_of_ones_is_not_read_otherwise_than_the_whole_column(monkeypatch: Any) -> None:
    """A label of 1 and 2 with 2 favorable: a stretch of rows with decision 1 only is a stretch of refusals."""
    monkeypatch.setattr("fairkit.data.dataset.BATCH_ROWS", 100)
    columns = {
        "sex": np.array(["f", "m"], dtype=object)[np.arange(N) % 2],
        "d": np.where(np.arange(N) < N // 2, 1, 2),
        "y": 1 + np.arange(N) % 2,
    }
    data = fairkit.load_data(columns, sensitive=["sex"], label="y", favorable=2, predictions={"decision": "d"})
    assert fairkit.audit(None, data).find("selection_rate").value == 0.5


@pytest.mark.parametrize(
    ("predictions", "roles", "said"),
    [
        ({"decision": "words"}, {}, "'granted', which is neither yes nor no"),
        ({"decision": "words"}, LOAN, "not one of the label's values"),
        ({"decision": "approved", "favorable": 2}, LOAN, "never has the favorable value 2"),
        ({"decision": "p"}, LOAN, "more than a thousand values; are they scores"),
        ({"score": "amount"}, LOAN, "leaves [0, 1]"),
        ({"probability": {"basic": "p_basic", "gold": "p_gold"}}, {"label": "tier"}, "'silver'"),
        ({"probability": {"basic": "p_basic", "gold": "p_gold", "silver": "p"}}, {"label": "tier"}, "add to 1"),
        ({"class": "sex"}, {"label": "tier"}, "no class in the column 'sex'"),
        ({"class": "amount"}, {"label": "tier"}, "too many values for classes"),
        ({"score": "p"}, {"label": "tier"}, "says nothing about the 3 values"),
        ({"prediction": "amount"}, {"label": "tier"}, "a regression needs numbers"),
        ({"score": "missing"}, LOAN, "no prediction column 'missing'"),
    ],
)
def test_what_cannot_be_read_is_refused(predictions: dict[str, Any], roles: dict[str, Any], said: str) -> None:
    with pytest.raises(fairkit.FairkitError) as caught:
        audited(predictions, **roles)
    assert said in str(caught.value)


@pytest.mark.parametrize("place", [0, N - 1])
def test_a_missing_decision_or_score_is_counted(place: int) -> None:
    columns = table()
    columns["yes"][place] = None
    columns["p"][place] = np.nan
    with pytest.raises(fairkit.ModelError, match="1 rows have no decision in the column 'yes'"):
        audited({"decision": "yes"}, columns, **LOAN)
    with pytest.raises(fairkit.ModelError, match="'p' is missing or infinite in 1 of"):
        audited({"score": "p"}, columns, **LOAN)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("approved", "write KEY=COLUMN"),
        ("decison=approved", "no key 'decison'. Did you mean 'decision'"),
        ("decision=a,decision=b", "says decision twice"),
        ("probability=p,probability:gold=q", "says probability:gold twice"),
        ("decision=a,probability=p", "not both"),
        ("class=a,score=s,probability:b=c", "a score and probabilities by class"),
        ("prediction=a,score=s", "name one kind"),
        ("probability=s,favorable=1", "no column of decisions"),
        ("favorable=1", "name a column"),
        ("score:gold=s", "write KEY=COLUMN"),
        ("score=", "write KEY=COLUMN"),
    ],
)
def test_texts_that_name_no_predictions(text: str, said: str) -> None:
    with pytest.raises(fairkit.ParameterError) as caught:
        PredictionRoles.parse([text])
    assert said in str(caught.value)


def test_texts_that_name_predictions() -> None:
    roles = PredictionRoles.parse(["decision=a, b,score=s=t"])  # a comma and an equals sign in a name
    assert (roles.decision, roles.score) == ("a, b", "s=t")
    roles = PredictionRoles.parse(["class=t,probability:a b=x", "probability:c=y"])
    assert roles.to_dict() == {"class": "t", "probability": {"a b": "x", "c": "y"}}
    assert PredictionRoles.of(roles.to_dict()) == roles


@pytest.mark.parametrize(
    "options",
    [
        {"score_output": "s"},
        {"favorable_class": 1},
        {"threshold": 0.4},
        {"score_kind": "logit"},
        {"task": "regression"},
    ],
)
def test_no_option_is_ignored(options: dict[str, Any]) -> None:
    data = fairkit.load_data(table(), sensitive=["sex"], predictions={"decision": "approved"}, **LOAN)
    with pytest.raises(fairkit.ParameterError):
        fairkit.audit(None, data, options=fairkit.ModelOptions(**options))


def test_no_auditor_asks_a_model_that_is_not_there() -> None:
    """A score that ignores what is flipped would be perfectly consistent."""
    data = fairkit.load_data(table(), sensitive=["sex"], drop=["sex"], predictions={"decision": "approved"}, **LOAN)
    with pytest.raises(fairkit.ParameterError, match="no model was given"):
        fairkit.audit(None, data, auditors=["consistency"])


def test_without_model_and_without_columns() -> None:
    with pytest.raises(fairkit.ModelError, match="names no predictions"):
        fairkit.audit(None, fairkit.load_data(table(), sensitive=["sex"], **LOAN))


def test_predictions_are_no_features() -> None:
    data = fairkit.load_data(table(), predictions={"decision": "approved", "score": "p"}, **LOAN)
    assert not {"approved", "p"} & set(data.features)


def test_two_predictions_are_compared() -> None:
    columns = table()
    columns["q"] = np.clip(columns["p"] + 0.05, 0, 1)
    data = fairkit.load_data(columns, sensitive=["sex"], **LOAN)
    made = [fairkit.PredictedColumns(decision="approved", score="p"), fairkit.PredictedColumns(score="q")]
    result = fairkit.compare(made, data)
    change = next(c for c in result.changes[0] if c.metric == "selection_rate" and c.sensitive is None)
    assert change.before == pytest.approx(columns["approved"].mean())
    assert change.after == pytest.approx((columns["q"] >= 0.5).mean())


@pytest.mark.parametrize("kind", [np.int64, np.float64, np.bool_, object])
def test_a_decision_that_was_not_there_at_first_is_refused(kind):
    told = np.array([1, 0, 1, 0] * 50).astype(np.int64)
    cells = np.where(told == 1, "yes", "no").astype(object) if kind is object else told.astype(kind)
    table = {"sex": ["f", "m"] * 100, "label": told, "decided": cells}
    data = fairkit.load_data(table, label="label", favorable=1, sensitive=["sex"])
    scorer = fairkit.PredictedColumns(decision="decided").bind(data, fairkit.ModelOptions())
    assert scorer.predict({"decided": cells}).decision.tolist() == told.tolist()
    assert scorer.predict({"decided": cells[:0]}).decision.tolist() == []
    other = np.array(["yes", None], dtype=object) if kind is object else np.array([1.0, np.nan])
    for changed in (other, np.array(["maybe", "yes"], dtype=object), np.array([0, 7])):
        with pytest.raises(fairkit.ModelError, match="when it was first read"):
            scorer.predict({"decided": changed})
