"""What a screen shows of many groups, of metrics as their authors declare them, and of several classes."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pyarrow as pa
import pytest

import fairkit
from fairkit.metrics import Headline, Term, shown_of
from fairkit.plugins import installed_metrics
from fairkit.reading import as_recorded, headlines, metric_term
from fairkit.results.report import validate_report
from fairkit.support.escaping import interval, measured
from fairkit_cli.formats import markdown as report_markdown
from fairkit_cli.formats import screen as comparison
from fairkit_cli.formats import screen as table
from fairkit_cli.pages.groups import group_sections
from fairkit_cli.render.html import html_parts
from fairkit_cli.text.view import MOST_GROUPS


@pytest.fixture(scope="module")
def many():
    rng = np.random.default_rng(0)
    rows = 20_000
    places = np.minimum(rng.geometric(0.01, rows), 399)
    score = rng.random(rows)
    odd = places == 7
    columns = {
        "town": np.array([f"g{place:03d}" for place in places], dtype=object),
        "y": (rng.random(rows) < score).astype(int),
        "d": np.where(odd, score > 0.1, score > 0.5).astype(int),
        "p": score,
    }
    data = fairkit.load_data(columns, label="y", favorable=1, sensitive="town")
    return fairkit.audit(fairkit.PredictedColumns(decision="d", score="p"), data)


@pytest.mark.long
def test_twenty_groups_and_a_line(many):
    text = table(many, terminal=False)
    lines = re.findall(r"^g\d{3} ", text, re.MULTILINE)
    assert len(lines) == MOST_GROUPS
    assert "g007 " in lines  # the one that is treated otherwise
    flat = " ".join(text.split())
    groups = len(many.find("accuracy_difference", "town").groups)
    assert f"{groups - MOST_GROUPS} other groups with" in flat
    assert "have fewer than 30 rows" in flat
    shown = report_markdown(many)
    assert len(re.findall(r"^\| g\d{3} ", shown, re.MULTILINE)) == MOST_GROUPS
    page = "".join(html_parts(group_sections(many)))
    assert len(set(re.findall(r">(g\d{3})<", page))) == groups  # a page has them all


@pytest.mark.long
def test_small_groups_do_not_set_the_scale(many):
    """One loss of 35 in a group of six people would draw all other bars as one point."""
    text = table(many, terminal=False)
    scale = float(re.search(r"0·+(\d+\.\d+)$", text, re.MULTILINE)[1])
    assert scale < 3


def test_the_accuracy_over_all_rows_is_there():
    columns = {"town": ["a", "b", "b", "a"] * 100, "y": [1, 0, 1, 0] * 100, "d": [1, 0, 0, 0] * 100}
    data = fairkit.load_data(columns, label="y", favorable=1, sensitive="town")
    report = fairkit.audit(fairkit.PredictedColumns(decision="d"), data)
    assert "All rows: accuracy 0.750 [" in table(report, terminal=False)


def test_several_classes_show_the_rates_of_the_favorable_one():
    rng = np.random.default_rng(1)
    names = np.array(["bad", "good", "medium"], dtype=object)
    rows = 3_000
    truth, said = rng.integers(0, 3, rows), rng.integers(0, 3, rows)
    sex = rng.choice(["f", "m"], rows)
    columns = {"sex": sex, "y": names[truth], "c": names[said]}
    model = fairkit.PredictedColumns(predicted_class="c")
    data = fairkit.load_data(columns, label="y", favorable="good", sensitive="sex")
    report = fairkit.audit(model, data)
    text = table(report, terminal=False)
    assert "Groups of sex (rates of good)" in text
    rate = ((said == 1) & (sex == "f")).sum() / (sex == "f").sum()
    right = ((said == truth) & (sex == "f")).sum() / (sex == "f").sum()
    line = re.search(r"^f .*$", text, re.MULTILINE)[0]
    assert f"{rate:.3f}" in line
    assert f"{right:.3f}" in line  # over all classes
    assert "(rates of good)" in report_markdown(report)
    assert "of the class good" in "".join(html_parts(group_sections(report)))
    plain = fairkit.audit(model, fairkit.load_data(columns, label="y", sensitive="sex"))
    assert "rates of" not in table(plain, terminal=False)


# A report shows metrics as their authors declare them, also where their plugin is not installed.
class Recall(fairkit.Rate):
    """The share of favorable outcomes that are found.

    More is said here.
    """

    name = "recall"
    over = (0, 0, 1, 1)
    counted = (0, 0, 0, 1)
    headline = Headline(between=2, column=3, tasks=frozenset({"binary"}))


@pytest.fixture(scope="module")
def report():
    columns = {"y": [0, 1] * 100, "d": [0, 1, 1, 1] * 50, "g": ["a", "a", "b", "b"] * 50}
    data = fairkit.load_data(pa.table(columns), label="y", favorable=1, sensitive=["g"])
    return fairkit.audit(fairkit.PredictedColumns(decision="d"), data)


def elsewhere(report, shown):
    """The report as if a plugin of that metric had been used, written and read again."""
    environment = {**report.environment, "metrics": {"recall": shown}}
    record = json.loads(json.dumps(dataclasses.replace(report, environment=environment).to_dict()))
    validate_report(record)
    return fairkit.Report.from_dict(record)


def test_what_is_not_installed_is_shown_as_it_was_declared(report):
    assert "recall" not in headlines().metrics
    with as_recorded(elsewhere(report, shown_of(Recall))):
        shown = headlines()
        assert shown.metrics["recall"].headline == Recall.headline
        assert shown.terms["recall"] == Term("recall", "The share of favorable outcomes that are found.")
        assert "recall_difference" in shown.between("binary")
        assert "recall_difference" not in shown.between("regression")
    assert "recall" not in headlines().metrics


def test_what_is_installed_keeps_its_own_words(report):
    own = {cls.name: cls for cls in installed_metrics()[0]}["accuracy"]
    environment = {"metrics": {"accuracy": shown_of(Recall)}}
    with as_recorded(dataclasses.replace(report, environment=environment)):
        assert headlines().metrics["accuracy"] is own
        assert headlines().terms["accuracy"].plain == "right decisions"


def test_no_record_writes_to_the_terminal(report):
    shown = {**shown_of(Recall), "term": ["re\x1b[31mcall", "A \x07sentence."]}
    with as_recorded(elsewhere(report, shown)):
        assert not {"\x1b", "\x07"} & set("".join(headlines().terms["recall"][:2]))


def test_fairkits_own_metrics_are_not_repeated_in_a_report(report):
    assert "metrics" not in report.environment


@pytest.mark.parametrize("name", ["demographic_parity", "gap_max", "accuracy", "impact_ratio"])
def test_a_report_takes_no_name_of_what_is_installed(report, name):
    before = headlines()
    shown = {**shown_of(Recall), "term": ["fairness", "All is well."]}
    for change in ({name: shown}, {"theirs": {**shown, "alias": name}}):
        hostile = dataclasses.replace(report, environment={"metrics": change})
        with as_recorded(hostile):
            assert headlines() == before


def test_what_one_report_records_is_not_shown_with_another(report):
    shown = {**shown_of(Recall), "term": ["theirs", "Their words."]}
    with as_recorded(elsewhere(report, shown)):
        assert metric_term("recall").plain == "theirs"
    with as_recorded(report):
        assert metric_term("recall").plain == "recall"


def test_a_page_looks_for_plugins_once(report, monkeypatch):
    looked = []
    monkeypatch.setattr("fairkit.reading.installed_metrics", lambda: looked.append(1) or installed_metrics())
    metric_term("accuracy")  # the terms of all auditors are kept
    looked.clear()
    report.to_html()
    assert len(looked) == 1


# What `fairkit mitigate` prints of several classes: every class its own numbers, and none broken over two lines.
@pytest.fixture(scope="module")
def result():
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(0)
    sex, a = rng.choice(["f", "m"], 900), rng.normal(size=900)
    a += 0.8 * (sex == "m")
    y = np.array(["low", "middle", "high"])[np.digitize(a + 0.5 * rng.normal(size=900), [-0.3, 0.9])]
    data = fairkit.load_data(pa.table({"sex": sex, "a": a, "y": y}), label="y", sensitive="sex")
    return fairkit.mitigate("reweigh", data, learner="logistic")


@pytest.mark.long
def test_each_class_has_its_own_distance_before(result):
    text = comparison(result, terminal=False)
    for label in ("low", "middle", "high"):
        (before,) = (
            f for f in result.before.findings if f.metric == "statistical_parity_ks" and f.parameters["class"] == label
        )
        line = next(
            line for line in text.partition("Distributions of scores")[2].splitlines() if f"(class {label})" in line
        )
        assert measured(before.value, before.interval) in line


@pytest.mark.long
def test_no_number_is_broken_over_two_lines(result):
    lines = comparison(result, terminal=False).splitlines()
    assert not [line for line in lines if re.fullmatch(r"\s+\d{1,3}(\s+\d{1,3})?\s*", line)]
    assert any(re.search(r"DP difference \(class \w+\)\s+sex\s+0\.\d{3}\s+0\.\d{3}\s", line) for line in lines)


def test_rounding_is_not_shown_as_an_end():
    assert interval((-0.034, 3.5e-17)) == "[-0.034, 0.000]"
