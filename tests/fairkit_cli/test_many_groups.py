"""What a screen shows of many groups, of several classes, and over all rows; what sets the scale of bars."""

from __future__ import annotations

import re

import numpy as np
import pytest

import fairkit
from fairkit_cli.formats import markdown as report_markdown
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


def test_the_accuracy_over_all_rows_is_there(many):
    value = many.find("accuracy").value
    assert f"All rows: accuracy {value:.3f} [" in table(many, terminal=False)


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
