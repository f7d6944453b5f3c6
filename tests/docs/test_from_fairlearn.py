"""The page for users of fairlearn: what it says is equal, is equal in the real fairlearn."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import fairkit

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "from-fairlearn.md").read_text("utf-8")
metrics = pytest.importorskip("fairlearn.metrics", reason="fairlearn is not installed")


@pytest.fixture(scope="module")
def page():
    """What the page's blocks leave behind."""
    import warnings

    seen: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fairlearn's own, about pandas
        exec("\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)), seen)
    return seen


def _equal_rows():
    """The table's rows whose last cell says that the number is the same, as pairs of names."""
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| the same[^|]*\|$", PAGE, re.MULTILINE)
    assert len(rows) == 6
    return rows


@pytest.mark.parametrize(("theirs", "ours"), _equal_rows())
@pytest.mark.parametrize("column", ["sex", "ethnicity"])
def test_what_is_called_the_same_is_the_same(page, theirs, ours, column):
    groups = page["table"][column]
    expected = getattr(metrics, theirs)(page["y"], page["predicted"], sensitive_features=groups)
    report = _report(page, column)
    finding = report.find(ours, column)
    assert finding.value == pytest.approx(expected, abs=1e-12)
    assert finding.interval[0] <= finding.value <= finding.interval[1]


_REPORTS: dict[str, fairkit.Report] = {}


def _report(page, column):
    if column not in _REPORTS:
        groups = page["table"][column]
        _REPORTS[column] = fairkit.audit(page["model"], page["X"], page["y"], sensitive_features=groups)
    return _REPORTS[column]


@pytest.mark.parametrize("name", ["selection_rate", "true_positive_rate", "false_positive_rate"])
def test_a_metric_frame_has_our_numbers(page, name):
    groups = page["table"]["ethnicity"]
    frame = metrics.MetricFrame(
        metrics=getattr(metrics, name), y_true=page["y"], y_pred=page["predicted"], sensitive_features=groups
    )
    report = _report(page, "ethnicity")
    found = report.find(f"{name}_difference", "ethnicity")
    assert {one.group: one.value for one in found.groups} == pytest.approx(dict(frame.by_group), abs=1e-12)
    assert found.value == pytest.approx(frame.difference(), abs=1e-12)
    assert report.find(f"{name}_ratio", "ethnicity").value == pytest.approx(frame.ratio(), abs=1e-12)
    worse = {"selection_rate": ("min", "max"), "true_positive_rate": ("min",), "false_positive_rate": ("max",)}
    for end in worse[name]:
        expected = getattr(frame, f"group_{end}")()
        assert report.find(f"{name}_group_{end}", "ethnicity").value == pytest.approx(expected, abs=1e-12)


def test_several_columns_are_fairlearns_intersection(page):
    both = page["table"][["sex", "ethnicity"]]
    expected = metrics.demographic_parity_difference(page["y"], page["predicted"], sensitive_features=both)
    named = page["table"][["age", "income", "debt_ratio", "amount", "sex", "ethnicity"]]
    data = fairkit.load_data(
        named.assign(y=page["y"]),
        label="y",
        favorable=1,
        sensitive="sex+ethnicity",
        features=["age", "income", "debt_ratio", "amount"],
    )
    found = fairkit.audit(page["model"], data).find("demographic_parity_difference", "sex+ethnicity")
    assert found.value == pytest.approx(expected, abs=1e-12)


def test_the_threshold_optimizers_keep_the_same_constraint(page):
    """fairlearn's chances come from its `_pmf_predict`, ours from `decision_probability`."""
    old = page["old"]._pmf_predict(page["X"], sensitive_features=page["sex"])[:, 1]
    new, sex, y = page["chance"], page["sex"].to_numpy(), page["y"].to_numpy()
    for chance in (np.asarray(old), new):
        assert abs(chance[sex == "female"].mean() - chance[sex == "male"].mean()) < 0.01
    accuracies = [np.where(y == 1, chance, 1 - chance).mean() for chance in (np.asarray(old), new)]
    assert accuracies[1] >= accuracies[0] - 0.002


def test_signs_against_a_reference_are_those_of_aif360(page):
    """Unprivileged minus privileged, and the ratio the same way."""
    report, y, predicted = page["signed"], page["y"].to_numpy(), page["predicted"]
    women = (page["sex"] == "female").to_numpy()
    for name, rows in (("true_positive_rate", y == 1), ("false_positive_rate", y == 0)):
        gap = predicted[rows & women].mean() - predicted[rows & ~women].mean()
        found = report.find(f"{name}_difference", "sex", reference="male")
        assert found.value == pytest.approx(gap, abs=1e-12)
    ratio = report.find("impact_ratio", "sex", reference="male")
    assert ratio.value == pytest.approx(predicted[women].mean() / predicted[~women].mean(), abs=1e-12)


def test_reweighing_has_the_weights_of_kamiran_and_calders(page):
    """Of `Reweighing` in AIF360: P(group) P(label) / P(group, label)."""
    y, sex = page["y"].to_numpy(), page["sex"].to_numpy()
    expected = np.zeros(len(y))
    for group in ("female", "male"):
        for label in (0, 1):
            cell = (sex == group) & (y == label)
            expected[cell] = (sex == group).mean() * (y == label).mean() / cell.mean()
    method = fairkit.mitigator("reweigh")(learner="logistic").fit(page["X"], y, sensitive_features=sex)
    plain = fairkit.mitigator("reweigh")(learner="logistic", strength=0.0)
    by_hand = plain.fit(page["X"], y, sensitive_features=sex, sample_weight=expected)
    np.testing.assert_allclose(method.predict_proba(page["X"]), by_hand.predict_proba(page["X"]), atol=1e-6)


def test_every_method_that_the_page_names_is_there():
    for name in set(re.findall(r'fairkit\.mitigator\("([\w-]+)"\)', PAGE)):
        assert fairkit.mitigator(name)
