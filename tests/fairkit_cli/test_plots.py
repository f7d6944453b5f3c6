"""Charts that people can change: what is drawn is what was found, with its intervals, on light and dark grounds."""

from __future__ import annotations

import json
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

import fairkit
from fairkit_cli.formats import COLOURS, GREY, STATUS
from fairkit_repair.frontiers.state import Frontier, Measure, Point

GROUNDS = ("#ffffff", "#333333", "#1f1f1f", "#111111")
"""Of Altair's default and dark themes, of a notebook in an editor and in JupyterLab."""


class Scores:
    """A model of two classes that answers with a column."""

    classes_ = np.array([0, 1])

    def predict_proba(self, frame):
        score = np.asarray(frame["score"])
        return np.stack([1 - score, score], axis=1)

    def predict(self, frame):
        return (np.asarray(frame["score"]) >= 0.5).astype(int)


@pytest.fixture(scope="module")
def people():
    import pandas as pd

    rng = np.random.default_rng(8)
    rows = 1200
    sex = rng.choice(["female", "male"], rows)
    region = rng.choice(["north", "south", "west"], rows, p=[0.5, 0.3, 0.2])
    score = np.clip(rng.beta(2, 2, rows) + 0.1 * (sex == "male"), 0, 1)
    y = (rng.random(rows) < score).astype(int)
    return pd.DataFrame({"score": score}), y, pd.DataFrame({"sex": sex, "region": region})


@pytest.fixture(scope="module")
def report(people):
    X, y, groups = people
    policy = [
        fairkit.Rule("demographic_parity_difference:sex", max=0.05),
        fairkit.Rule("equal_opportunity_difference:region", max=0.9),
        fairkit.Rule("demographic_parity_ratio:sex", min=0.8),
    ]
    return fairkit.audit(Scores(), X, y, sensitive_features=groups, policy=policy)


def _values(chart):
    return chart.to_dict()["data"]["values"]


def _colours(spec):
    """Every colour that a specification names itself."""
    if isinstance(spec, dict):
        return {colour for part in spec.values() for colour in _colours(part)}
    if isinstance(spec, list):
        return {colour for part in spec for colour in _colours(part)}
    return {spec} if isinstance(spec, str) and spec.startswith("#") else set()


def _luminance(colour):
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [share / 12.92 if share <= 0.03928 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one, other):
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.long
def test_disparities_are_the_findings_with_their_intervals_limits_and_verdicts(report):
    alt = pytest.importorskip("altair", reason="Altair is not installed (pip install 'fairkit[charts]')")

    chart = report.plot().vconcat[0]  # those that share an axis; ratios have their own
    assert isinstance(chart, alt.LayerChart)
    lines = {one["name"]: one for one in _values(chart)}
    finding = report.find("demographic_parity_difference", "sex")
    line = lines["difference in favorable decisions · sex"]
    assert (line["value"], line["low"], line["high"]) == (finding.value, *finding.interval)
    assert (line["limit"], line["status"]) == (0.05, "fail")
    assert "at most 0.05: fail" in line["tip"]
    (region,) = [line for line in lines.values() if line["limit"] == 0.9]
    assert region["status"] == "pass"
    marks = {layer["mark"]["type"] for layer in chart.to_dict()["layer"]}
    assert marks == {"rule", "point", "tick", "text"}


def _datasets(chart):
    spec = chart.to_dict()
    return [part["data"]["values"] for part in (spec, *spec["layer"]) if "values" in part.get("data", {})]


def test_a_roc_curve_lies_in_its_band(report, people):
    X, y, groups = people
    parts = _datasets(report.plot("roc", "sex"))
    (line,) = [part for part in parts if "k" in part[0]]
    (shade,) = [part for part in parts if "low" in part[0]]
    assert {one["group"] for one in line} == {"female", "male"}
    women = [(one["x"], one["y"]) for one in line if one["group"] == "female"]
    mine, score = y[groups["sex"] == "female"], X["score"][groups["sex"] == "female"]
    true, false = (np.mean(score[mine == value] >= 0.5) for value in (1, 0))
    x, height = zip(*women, strict=True)
    assert np.interp(false, x, height) == pytest.approx(true, abs=0.02)
    for one in shade:
        if one["group"] == "female":
            assert one["low"] - 1e-4 <= np.interp(one["x"], x, height)
            assert one["high"] + 1e-4 >= min(h for a, h in women if a >= one["x"] - 1e-9)


def test_charts_of_scores_and_calibration_add_up(report, people):
    groups = people[2]
    (shares,) = _datasets(report.plot("scores", "sex"))
    for sex in ("female", "male"):
        assert sum(one["share"] for one in shares if one["group"] == sex) == pytest.approx(1)
    bins = next(part for part in _datasets(report.plot("calibration", "sex")) if "observed" in part[0])
    assert all(one["low"] <= one["y"] <= one["high"] for one in bins)
    rows = sum(int(one["rows"].replace(",", "")) for one in bins if one["group"] == "female")
    assert rows == (groups["sex"] == "female").sum()


@pytest.fixture(scope="module")
def frontier():
    def point(plugin, x, y, **parameters):
        measures = {
            "demographic_parity_difference:sex": Measure(value=x, interval=(x - 0.02, x + 0.02), better="lower"),
            "accuracy": Measure(value=y, interval=(y - 0.01, y + 0.01), better="higher"),
        }
        return Point(plugin=plugin, parameters=parameters, status="done", measures=measures)

    failed = Point(plugin="rto", parameters={}, status="failed", error="no")
    points = (point("baseline", 0.2, 0.9), point("rto", 0.05, 0.88, tolerance=0.05), failed)
    return Frontier(
        performance="accuracy",
        disparity="demographic_parity_difference:sex",
        points=points,
        front=(1, 0),
        chosen=1,
        rule="the best",
        limit=0.1,
        chances=(0.0, 0.97, None),
    )


def test_a_frontier_has_both_intervals_the_front_the_limit_and_the_pick(frontier):
    chart = frontier.plot()
    first, second = _values(chart)
    assert (second["x"], second["x0"], second["x1"]) == (0.05, pytest.approx(0.03), pytest.approx(0.07))
    assert (second["picked"], first["picked"], first["front"]) == (True, False, True)
    layers = chart.to_dict()["layer"]
    assert {"datum": 0.1} in [layer["encoding"].get("x") for layer in layers]
    assert layers[-1]["encoding"]["x"]["title"] == "demographic parity difference (sex)"


def test_a_comparison_and_a_mitigation_draw_paired_differences(people):
    X, y, groups = people

    class Lower(Scores):
        def predict(self, frame):
            return (np.asarray(frame["score"]) >= 0.45).astype(int)

    result = fairkit.compare([Scores(), Lower()], X, y, sensitive_features=groups)
    change = result.find("demographic_parity_difference", "sex")
    lines = [one for chart in result.plot().vconcat for one in _values(chart)]
    line = next(one for one in lines if one["name"] == "demographic_parity_difference · sex")
    assert (line["value"], line["low"], line["high"]) == (change.difference, *change.interval)
    with pytest.raises(fairkit.DataError, match=r"no chart 'changes' of 'Lowr'. Did you mean"):
        result.plot(model="Lowr")


@pytest.mark.long
def test_charts_are_readable_on_light_and_dark_grounds(report, frontier):
    """No ground and no colour of text is set; every mark's colour stands out from every ground."""
    for colour in {*COLOURS, GREY, *STATUS.values()}:
        for ground in GROUNDS:
            assert _contrast(colour, ground) >= 3, (colour, ground)
    charts = [report.plot(), report.plot("scores"), report.plot("roc", "sex"), frontier.plot()]
    for chart in charts:
        spec = chart.to_dict()
        assert _colours(spec) <= {*COLOURS, GREY, *STATUS.values()}
        assert "background" not in json.dumps(spec)


@pytest.mark.long
def test_charts_can_be_changed_combined_and_saved_and_names_from_data_are_text(people, tmp_path):
    pytest.importorskip("vl_convert", reason="vl-convert-python is not installed")
    X, y, groups = people
    evil = '"><script>alert(1)</script>\u202e'
    named = {evil: np.where(groups["sex"] == "male", evil, "b")}
    plot = fairkit.audit(Scores(), X, y, sensitive_features=named).plot
    chart = (plot("roc", evil).properties(width=200, title="Mine") | plot("scores")) & plot("calibration")
    assert "\u202e" not in json.dumps(chart.to_dict(), ensure_ascii=False)
    chart.save(tmp_path / "own.svg")
    elements = list(ElementTree.parse(tmp_path / "own.svg").iter())
    assert not [element for element in elements if element.tag.endswith("script")]
    assert {"Mine", "false positive rate"} <= {element.text for element in elements}


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda plot: plot("roc", "sexx"), "no chart 'roc' of 'sexx'. Did you mean 'sex'"),
        (lambda plot: plot("rok"), "no chart 'rok'. Did you mean 'roc'"),
    ],
)
def test_what_cannot_be_drawn_is_said(report, draw, message):
    with pytest.raises(fairkit.FairkitError, match=message):
        draw(report.plot)


def test_decisions_without_scores_have_no_curves(people):
    X, y, groups = people

    class Decides:
        classes_ = np.array([0, 1])
        predict = Scores.predict

    report = fairkit.audit(Decides(), X, y, sensitive_features=groups)
    assert report.plot().to_dict()
    with pytest.raises(fairkit.DataError, match="no chart 'roc'"):
        report.plot("roc", "sex")


def test_without_altair_there_is_one_message(report, frontier, monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    for draw in (report.plot, lambda: report.plot("roc", "sex"), frontier.plot):
        with pytest.raises(fairkit.FairkitError, match=r"pip install 'fairkit\[charts\]'"):
            draw()
