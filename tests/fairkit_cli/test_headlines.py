"""A report shows metrics as their authors declare them, also where their plugin is not installed."""

from __future__ import annotations

import dataclasses
import json

import pyarrow as pa
import pytest

import fairkit
from fairkit.metrics import Headline, Term, shown_of
from fairkit.plugins import installed_metrics
from fairkit.reading import as_recorded, headlines, metric_term
from fairkit.results.report import validate_report


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
