"""Two tables compared, and a group that conditions describe: against known populations and a column that says it."""

from __future__ import annotations

import numpy as np
import pytest

import fairkit
from fairkit.data.loading import load_data
from fairkit.errors import FairkitError
from fairkit.results.conditions import texts_of
from fairkit.settings import AuditSettings
from fairkit_comparing.windows import changes_between

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


def changes(models, before, after, **settings):
    tables = tuple(load_data(one, **ROLES) for one in (before, after))
    chosen = AuditSettings(auditors=("why",), parameters={"why": settings})
    found = changes_between(models, tables, chosen)
    return {(c.parameters["of"], c.parameters.get("part")): c for c in found}


@pytest.mark.parametrize(("who", "given"), [(0.6, 0.0), (0.0, 0.9)])
def test_who_applies_and_what_happens_to_people_who_are_alike_are_told_apart(model, who, given):
    found = changes([model], table(1), table(2, who=who, given=given))
    applies, alike = found["outcome", "who applies"], found["outcome", "the outcome given the rows"]
    moved, still = (applies, alike) if who else (alike, applies)
    assert moved.interval[0] > 0
    assert still.interval[0] < 0 < still.interval[1]
    gap = found["outcome", None]
    assert applies.after + alike.after == pytest.approx(gap.difference, abs=1e-12)
    # the population's own numbers, from many more people
    many = [table(9, 400_000), table(8, 400_000, who=who, given=given)]
    truth = [np.diff(one.groupby("sex")["y"].mean())[0] for one in many]
    assert gap.interval[0] < truth[1] - truth[0] < gap.interval[1]
    assert moved.interval[0] < truth[1] - truth[0] < moved.interval[1]
    decided = found["decision", "who applies"]
    assert decided.difference == pytest.approx(found["decision", None].difference, abs=1e-12)


@pytest.mark.long
def test_another_model_is_a_part_of_its_own(model):
    other = trained(table(5, given=1.5), ["x", "z", "sex"], "logistic", label="y", favorable=1)
    before, after = table(1), table(2, who=0.5)
    found = changes([model, other], before, after)
    gap, rows, own = (found["decision", part] for part in (None, "who applies", "the model"))
    assert rows.after + own.after == pytest.approx(gap.difference, abs=1e-12)

    def gap_of(one, frame):
        report = fairkit.audit(one, load_data(frame, **ROLES))
        rates = {g.group: g.value for g in report.find("demographic_parity_difference", "sex").groups}
        return rates["m"] - rates["f"]

    sign = 1 if gap.after == pytest.approx(gap_of(other, after)) else -1
    g = {
        (t, f): sign * gap_of(m, frame) for t, frame in enumerate((before, after)) for f, m in enumerate((model, other))
    }
    assert own.after == pytest.approx((g[0, 1] - g[0, 0] + g[1, 1] - g[1, 0]) / 2)
    assert rows.after == pytest.approx((g[1, 0] - g[0, 0] + g[1, 1] - g[0, 1]) / 2)


def test_nothing_is_divided_where_people_have_no_counterpart(model):
    away = table(2)
    away["x"] += 6
    found = changes([model], table(1), away)
    assert ("outcome", "the rows") in found
    assert ("outcome", "who applies") not in found


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
