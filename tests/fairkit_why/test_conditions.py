"""A group that conditions describe, against a column that says it."""

from __future__ import annotations

import numpy as np
import pytest

import fairkit
from fairkit.data.loading import load_data
from fairkit.errors import FairkitError
from fairkit.results.findings import texts_of

from .conftest import trained

ROLES = {"label": "y", "favorable": 1, "sensitive": ["sex"]}


def table(seed, rows=2_500, who=0.0, given=0.0):
    """Return people whose x is larger by `who`, and whose chance of y at the same x is larger by `given`, if male."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    male = rng.random(rows) < 0.5
    x = rng.normal(size=rows) + 0.4 * male + who * male
    y = rng.random(rows) < 1 / (1 + np.exp(-(x + given * male)))
    sex = np.where(male, "m", "f").astype(object)
    return pd.DataFrame({"x": x, "z": rng.normal(size=rows), "sex": sex, "y": y.astype(int)})


@pytest.fixture(scope="module")
def model():
    return trained(table(0), ["x", "z"], "logistic", label="y", favorable=1)


def test_a_group_of_conditions_is_that_of_a_column(model):
    frame = table(3)
    inside = frame["x"].between(-0.5, 0.8) & (frame["sex"] == "f")
    named = frame.assign(group=np.where(inside, "in", "out"))
    told = {"metric": ["score"], "people": ["x=-0.5:0.8", "sex=f"]}
    report = fairkit.audit(model, load_data(frame, **ROLES), auditors=["why"], parameters={"why": told})
    mine = next(f for f in report.findings if f.sensitive is None)
    roles = ROLES | {"sensitive": ["group"], "reference": "group=out"}
    own = fairkit.audit(
        model, load_data(named, **roles), auditors=["why"], parameters={"why": {"metric": ["score"]}}
    ).findings[0]
    assert mine.value == pytest.approx(own.value)
    assert mine.groups[0].group == "x -0.5 to 0.8, sex = f"
    assert mine.groups[0].rows == inside.sum()
    parts = [{p["column"]: p["value"] for p in one.evidence["columns"]} for one in (mine, own)]
    assert parts[0] == pytest.approx(parts[1])


@pytest.mark.parametrize("text", ["x", "=1:2", "nobody=1"])
def test_conditions_that_are_none_are_one_sentence(model, text):
    told = {"why": {"people": [text]}}
    with pytest.raises(FairkitError, match=r"why\.people") as raised:
        fairkit.audit(model, load_data(table(3, 300), **ROLES), auditors=["why"], parameters=told)
    assert "\n" not in str(raised.value)


def test_conditions_are_written_as_they_are_read():
    conditions = [
        {"column": "a", "low": 1.5, "high": None},
        {"column": "b", "value": None},
        {"column": "c", "value": "x"},
    ]
    assert texts_of(conditions) == ["a=1.5:", "b=", "c=x"]
