"""Rows without a label: in every number that needs none, and bounds for those that do."""

import numpy as np
import pytest

import fairkit
from fairkit.auditing.needs import WAYS_OUT
from fairkit.errors import DataError, ParameterError
from fairkit.models.columns import PredictedColumns
from fairkit.results.rules import Rule

RULES = ("demographic_parity_difference", "equal_opportunity_difference", "accuracy")


def people(seed=0, n=4_000, lost=0.64):
    """Selection rates .5 and .25; the label is missing for many of the refused of one group."""
    rng = np.random.default_rng(seed)
    female = rng.random(n) < 0.5
    decision = (rng.random(n) < np.where(female, 0.25, 0.5)).astype(int)
    label = np.where(rng.random(n) < np.where(decision == 1, 0.8, 0.3), "good", "bad").astype(object)
    full = label.copy()
    label[female & (decision == 0) & (rng.random(n) < lost)] = None
    columns = {
        "sex": np.where(female, "f", "m"),
        "decision": decision,
        "score": rng.random(n),
        "dept": rng.choice(list("ab"), n),
    }
    return columns | {"y": label}, full


def audit(columns, max_=0.1, **told):
    roles = {name: told.pop(name) for name in ("within", "reference") if name in told}
    data = fairkit.load_data(columns, label="y", favorable="good", sensitive=["sex"], **roles)
    rules = [Rule(metric=name, sensitive=None if name == "accuracy" else "sex", max=max_) for name in RULES]
    return fairkit.audit(PredictedColumns(decision="decision", score="score"), data, policy=rules, **told)


def test_what_needs_no_label_is_of_all_rows_and_what_does_has_bounds_that_hold_the_truth():
    columns, full = people()
    seen, whole = audit(columns), audit(columns | {"y": full})
    assert [one.verdict for one in seen.policy][:2] == ["fail", "inconclusive"]
    assert seen.data.rows == 4_000
    assert seen.data.unlabelled_rows == sum(value is None for value in columns["y"])
    for metric in ("demographic_parity_difference", "statistical_parity_ks"):
        one, other = (report.find(metric, "sex") for report in (seen, whole))
        assert (one.value, one.interval) == (other.value, other.interval)
        assert "missing_bounds" not in one.evidence
    for metric in (
        "equal_opportunity_difference",
        "accuracy_difference",
        "roc_auc_difference",
        "brier_score_difference",
    ):
        bounds = seen.find(metric, "sex").evidence["missing_bounds"]
        assert bounds["low"] <= whole.find(metric, "sex").value <= bounds["high"]
    bounds = seen.find("accuracy").evidence["missing_bounds"]
    assert bounds["low"] <= whole.find("accuracy").value <= bounds["high"]


@pytest.mark.parametrize("roles", [{"within": ["dept"]}, {"reference": ["sex=m"]}])
def test_strata_and_references_use_all_rows_too(roles):
    columns, full = people()
    name = "impact_ratio" if "reference" in roles else "demographic_parity_difference"
    found = [
        next(f for f in audit(one, **roles).findings if f.metric == name and not f.plain)
        for one in (columns, columns | {"y": full})
    ]
    assert (found[0].value, found[0].interval) == (found[1].value, found[1].interval)


def test_batches_and_row_order_change_nothing():
    columns, _ = people()
    order = np.random.default_rng(1).permutation(4_000)
    found = [audit(one).findings for one in (columns, {name: values[order] for name, values in columns.items()})]
    assert [(f.key, f.value, f.evidence.get("missing_bounds")) for f in found[0]] == [
        (f.key, pytest.approx(f.value), pytest.approx(f.evidence.get("missing_bounds"))) for f in found[1]
    ]


def test_two_models_are_compared_on_all_rows_where_no_label_is_needed():
    from fairkit_comparing.run import compare

    columns, full = people()
    columns["other"] = np.roll(columns["decision"], 7)
    found, notes = [], []
    for label in (columns["y"], full):
        data = fairkit.load_data(columns | {"y": label}, label="y", favorable="good", sensitive=["sex"])
        models = [PredictedColumns(decision=name) for name in ("decision", "other")]
        made = compare(models, data)
        found.append({(one.metric, one.sensitive, one.group): one.difference for one in made.changes[0]})
        notes.append(" ".join(made.notes))
    assert f"of the {sum(v is not None for v in columns['y']):,} of 4,000 rows with an outcome alone" in notes[0]
    assert "with an outcome" not in notes[1]
    key = ("selection_rate", None, None)
    assert found[0][key] == found[1][key]
    assert found[0]["accuracy", None, None] != found[1]["accuracy", None, None]


def test_training_sees_labelled_rows_only():
    columns, _ = people()
    data = fairkit.load_data(columns, label="y", favorable="good", sensitive=["sex"])
    assert len(data.read([])) == sum(value is not None for value in columns["y"]) == data.profile.complete


def test_rows_without_a_weight_make_no_verdict_and_no_labels_at_all_are_refused():
    columns, full = people()
    weights = np.where(np.arange(4_000) < 5, np.nan, 1.0)
    data = fairkit.load_data(
        columns | {"w": weights, "y": full}, label="y", favorable="good", sensitive=["sex"], weights="w"
    )
    rule = Rule(metric="demographic_parity_difference", sensitive="sex", max=0.9)
    report = fairkit.audit(PredictedColumns(decision="decision"), data, policy=[rule])
    assert (report.verdict, report.data.dropped_rows) == ("inconclusive", 5)
    with pytest.raises(DataError, match="leave `label` out"):
        audit(columns | {"y": np.full(4_000, None)})


class Counts(fairkit.Auditor):
    """Counts rows, and declares nothing."""

    name = "counts"

    def measure(self, batch, predictions, context):
        """Count."""
        return len(batch)

    def findings(self, total, context):
        """Return nothing."""
        return []


@pytest.mark.parametrize("name", sorted(WAYS_OUT))
def test_an_auditor_that_declares_nothing_is_refused_with_a_way_out(name):
    from fairkit.auditing.needs import check_conditions

    columns, full = people()
    columns |= {"w": np.ones(4_000), "p": np.full(4_000, 0.5), "q": np.full(4_000, 0.5)}
    roles = {
        "weights": {"weights": "w"}, "clusters": {"cluster": "score"}, "strata": {"within": ["dept"]},
        "reference": {"reference": ["sex=m"]}, "group_probabilities": {"sensitive_probability": ["race=p,q"]},
    }.get(name, {})  # fmt: skip
    if name != "missing_labels":
        columns["y"] = full
    if name == "missing_groups":
        columns["sex"] = np.where(np.arange(4_000) < 1, None, columns["sex"])
    data = fairkit.load_data(columns, label="y", favorable="good", sensitive=["sex"], **roles)
    data.learn()
    with pytest.raises(ParameterError, match="'counts' does not use") as error:
        check_conditions([Counts()], data)
    assert WAYS_OUT[name] in str(error.value)
    Counts.uses = frozenset({name})
    check_conditions([Counts()], data)
    Counts.uses = frozenset()
