"""A table before any model: counts, intervals, what other columns tell of a group, and a certificate of it."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score
from tests.commands import checked, invoke

import fairkit
from fairkit.errors import ParameterError
from fairkit_data import BinnedRows, _auc, told_apart


def table(rows=3_000, seed=0, tells=1.5):
    rng = np.random.default_rng(seed)
    female = rng.random(rows) < 0.3
    return pd.DataFrame({
        "sex": np.where(female, "f", "m"),
        "near": rng.normal(size=rows) + tells * female,
        "noise": rng.normal(size=rows),
        "job": np.where(rng.random(rows) < np.where(female, 0.2, 0.05), None, rng.choice(list("abc"), rows)),
        "repaid": np.where(rng.random(rows) < np.where(female, 0.5, 0.6), 1, 0),
    })  # fmt: skip


def audited(frame, population="f:0.5", **kwargs):
    data = fairkit.load_data(frame, label="repaid", favorable=1, sensitive=["sex"])
    return fairkit.audit(
        None, data, auditors=["data"], parameters={"data": {"population": {"sex": population}}}, **kwargs
    )


def test_the_numbers_are_those_of_the_table():
    frame = table()
    report = audited(frame)
    female = frame.sex == "f"
    found = report.find("representation", "sex")
    assert found.value == pytest.approx(female.mean() / 0.5)
    assert found.interval[0] < 0.3 / 0.5 < found.interval[1]
    rates = frame.repaid.groupby(frame.sex).mean()
    assert report.find("label_rate_difference", "sex").value == pytest.approx(abs(rates["f"] - rates["m"]))
    missing = report.find("missing_value_difference", "sex")
    gaps = frame.job.isna().groupby(frame.sex).mean()
    assert missing.value == pytest.approx(gaps["f"] - gaps["m"])
    assert missing.evidence["columns"][0]["column"] == "job"
    assert report.find("group_auc", "sex").evidence["columns"][0]["column"] == "near"


def test_the_auc_is_that_of_sklearn_and_its_error_that_of_repeated_samples():
    rng = np.random.default_rng(0)
    found, errors = [], []
    for _ in range(200):
        inside, half = rng.random(800) < 0.4, rng.random(800) < 0.5
        scores = np.round(rng.normal(size=800) + inside, 1)
        auc, error = _auc(scores, inside, half)
        both = [roc_auc_score(inside[half == side], scores[half == side]) for side in (False, True)]
        assert auc == pytest.approx(np.mean(both))
        found.append(auc)
        errors.append(error)
    assert np.mean(errors) == pytest.approx(np.std(found), rel=0.15)


def test_columns_that_say_nothing_of_the_group_are_not_called_telling():
    said = [audited(table(1_500, seed, tells=0).drop(columns="job")).find("group_auc", "sex") for seed in range(60)]
    above = sum(one.interval[0] > 0.5 for one in said)
    assert above <= 6  # 2.5 % are expected beyond one end; two groups tell the same story
    assert all("cannot be told above chance" in one.notes[0] for one in said if one.interval[0] <= 0.5)


def test_the_order_of_the_rows_changes_nothing(monkeypatch):
    monkeypatch.setattr("fairkit_data.SAMPLE", 500)
    frame = table()
    first, again = (audited(one).to_dict()["findings"] for one in (frame, frame.sample(frac=1, random_state=1)))
    assert first == again
    assert "those of the smallest hashes" in json.dumps(first)


def test_a_copy_of_a_row_is_in_the_half_of_its_row():
    frame = table(600, tells=0)
    twice = pd.concat([frame.assign(noise=np.arange(600.0))] * 4)
    found = audited(twice).find("group_auc", "sex")
    assert found.interval[0] <= 0.55  # copies in both halves would be recognised


def test_rows_without_a_group_or_outcome_are_counted():
    frame = table()
    frame.loc[:99, "sex"] = None
    frame.loc[frame.index[(frame.sex == "f") & (frame.repaid == 0)][:200], "repaid"] = None
    report = audited(frame)
    assert "100 rows without a value" in report.find("representation", "sex").notes[0]
    lost = frame.repaid.isna().groupby(frame.sex).mean()
    assert report.find("missing_label_difference", "sex").value == pytest.approx(lost["f"] - lost["m"])


@pytest.mark.parametrize(
    ("population", "said"),
    [("f:half", "GROUP:SHARE"), ("w:0.5", "no group 'w'"), (("f:0.5", "m:0.7"), "add up to 1"), ("f:1.0", "above 0")],
)
def test_wrong_shares_are_refused(population, said):
    with pytest.raises(ParameterError, match=said):
        audited(table(500), population)


def test_a_single_group_in_a_half_says_so():
    sample = BinnedRows(np.zeros((50, 1), int), {"s": np.zeros(50, int)}, np.arange(50) < 25, ("x",), True)

    class Context:
        confidence = 0.95

        class dataset:  # noqa: N801 -- an attribute of the context
            @staticmethod
            def group_names(name):
                return ["a", "b"]

    assert told_apart(sample, "s", Context).value is None


def test_the_command_judges_writes_a_page_and_is_certified(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table().to_parquet("t.parquet")
    roles = ["--label", "repaid", "--favorable", "1", "--sensitive", "sex"]
    told = checked("data", "t.parquet", *roles, "--population", "sex:f=.5", "--min", "representation:sex=.8", code=1)
    assert "representation for sex is 0." in told.output
    checked("data", "t.parquet", *roles, "--format", "html", "--output", "t.html")
    assert "Groups of the table" in (tmp_path / "t.html").read_text()
    checked("data", "t.parquet", *roles, "--population", "sex=.5", code=2)
    checked("data", "nothing.parquet", *roles, code=2)
    checked("key", "new", "k")
    checked("certify", "--auditor", "data", "--data", "t.parquet", *roles, "--key", "k", "--output", "c.json")
    again = ["verify", "c.json", "--key", "k.pub", "--recompute", "--data"]
    checked(*again, "t.parquet")
    # a policy about models stands in the configuration file: the table is looked at all the same
    (tmp_path / "fairkit.toml").write_text(
        '[[policy]]\nmetric = "equal_opportunity_difference"\nsensitive = "sex"\nmax = 0.1\n'
    )
    checked("data", "t.parquet", *roles)
    checked("data", "t.parquet", *roles, "--max", "equal_opportunity_difference:sex=.1", code=2)
    (tmp_path / "fairkit.toml").unlink()
    table(seed=1).to_parquet("other.parquet")
    checked(*again, "other.parquet", code=1)


def test_the_rule_that_a_screen_proposes_can_be_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = table(800)
    frame.assign(paid=frame.near, expected=frame.noise).drop(columns="repaid").to_parquet("numbers.parquet")
    frame.to_parquet("t.parquet")
    asked = (
        ("data", "t.parquet", "--label", "repaid", "--favorable", "1"),
        ("data", "numbers.parquet"),
        ("audit", "--data", "numbers.parquet", "--label", "paid", "--predictions", "prediction=expected"),
        ("audit", "--data", "t.parquet", "--predictions", "decision=repaid"),
    )
    for about in asked:
        words = [*about, "--sensitive", "sex"]
        shown = checked(*words)
        rule = re.search(r"for example (--m\w+) (\S+=[\d.]+)", " ".join(shown.output.split()))
        judged = invoke(*words, *rule.groups())
        assert judged.exit_code in (0, 1, 3), judged.output


def test_the_rule_that_the_screen_proposes_is_one_that_a_table_can_keep(tmp_path):
    table().to_csv(tmp_path / "t.csv", index=False)
    roles = ["--label", "repaid", "--favorable", "1", "--sensitive", "sex"]
    shown = invoke("data", tmp_path / "t.csv", *roles).stdout
    (proposed,) = re.findall(r"for example --(\S+) (\w+)=([\d.]+)", " ".join(shown.split()))
    assert proposed == ("max", "label_rate_difference", "0.1")
