"""What `fairkit mitigate` prints of several classes: every class its own numbers, and none broken over two lines."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest

import fairkit
from fairkit.support.escaping import interval, measured
from fairkit_cli.formats import screen as comparison


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
