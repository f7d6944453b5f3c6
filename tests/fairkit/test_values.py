"""What the values of a column mean: the good value of an outcome, and groups that look the same."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import fairkit
from fairkit.data.column_summary import lookalikes
from fairkit.data.roles import good_value


@pytest.mark.parametrize(
    ("name", "values", "good"),
    [
        ("default", ["0", "1"], "0"),
        ("two_year_recid", [0, 1], "0"),
        ("is_fraud", [False, True], "False"),
        ("Churn", ["No", "Yes"], "No"),
        ("default payment next month", ["0", "1"], "0"),
        ("hired", ["no", "yes"], "yes"),
        ("loanApproved", [0, 1], "1"),
        ("no_default", [0, 1], "1"),
        ("income", ["<=50K", ">50K"], ">50K"),
        ("decision", ["APPROVE", "DECLINE", "refer"], "APPROVE"),
        ("decision", ["DECLINE", "refer"], None),
        ("class", ["bad", "good"], "good"),
        ("credit_risk", [0, 1], None),  # 1 is good in one public table, bad in others
        ("y", [0, 1], None),
        ("status", ["Charged Off", "Fully Paid"], "Fully Paid"),
        ("status", ["approved", "not approved"], "approved"),
    ],
)
def test_the_good_value_is_proposed_where_words_say_it(name, values, good):
    assert good_value(name, values) == good


def table(decisions):
    rng = np.random.default_rng(0)
    rows = 400
    return {
        "decision": rng.choice(decisions, rows).astype(object),
        "sex": rng.choice(["f", "m"], rows).astype(object),
        "default": rng.integers(0, 2, rows),
    }


def proposed(text):
    return set(re.findall(r"favorable=([^\s`,.]+)", text))


@pytest.mark.parametrize(
    ("decisions", "wanted"),
    [
        (["APPROVE", "DECLINE"], "APPROVE"),
        (["DECLINE", "refer", "APPROVE"], "APPROVE"),
        (["DECLINE", "refer"], "VALUE"),
        (["A", "B"], "VALUE"),
    ],
)
def test_messages_never_propose_a_wrong_value(decisions, wanted):
    rows = table(decisions)
    data = fairkit.load_data(rows, label="default", favorable=0, sensitive=["sex"])
    with pytest.raises(fairkit.FairkitError) as caught:
        fairkit.audit(fairkit.PredictedColumns(decision="decision"), data)
    assert proposed(str(caught.value)) == {wanted}
    if len(decisions) == 2:
        data = fairkit.load_data(rows, label="decision", sensitive=["sex"])
        with pytest.raises(fairkit.FairkitError) as caught:
            fairkit.audit(fairkit.PredictedColumns(decision="decision"), data)
        assert proposed(str(caught.value)) == {wanted}


def test_a_message_about_a_label_of_0_and_1_leaves_the_choice_to_the_reader():
    rows = table(["A", "B"]) | {"approve": table(["A", "B"])["default"]}
    data = fairkit.load_data(rows, label="default", favorable=0, sensitive=["sex"])
    with pytest.raises(fairkit.ModelError) as caught:
        fairkit.audit(fairkit.PredictedColumns(decision="approve"), data)
    assert proposed(str(caught.value)) == {"1"}  # approve = 1
    data = fairkit.load_data(rows, label="default", sensitive=["sex"])
    with pytest.raises(fairkit.DataError, match="as in `favorable=0`"):
        fairkit.audit(fairkit.PredictedColumns(decision="approve"), data)


# Groups that look the same are told of, and NA means the same in every kind of table.
@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["female", "female "], "differ in spaces"),
        (["female", "Female"], "upper and lower case"),
        (["female", "f\u0435male"], "U+0435 CYRILLIC SMALL LETTER IE"),
        (["female", "fe\u200bmale"], "U+200B ZERO WIDTH SPACE"),
        (["caf\u00e9", "cafe\u0301"], "U+00E9"),
        (["non  binary", "non binary"], "differ in spaces"),
        (["FEMALE", "female "], "case and spaces"),
    ],
)
def test_pairs_that_look_the_same(names, said):
    (text,) = lookalikes("sex", [*names, "male"])
    assert said in text
    assert text.isascii()  # what looks the same is written so that it does not


def test_values_that_do_not_look_the_same():
    assert lookalikes("sex", ["male", "female", "1", "11", "A", "\u00c4"]) == []
    assert len(lookalikes("code", [case for n in range(20) for case in (f"k{n}", f"K{n}")])) == 6


def rows(word):
    rng = np.random.default_rng(0)
    sex = np.array(["female", word, "male"] * 40, dtype=object)
    return pa.table({"sex": sex, "y": rng.integers(0, 2, 120), "p": rng.random(120)})


def test_the_report_begins_with_them():
    data = fairkit.load_data(rows("female "), label="y", favorable=1, sensitive=["sex"])
    report = fairkit.audit(fairkit.PredictedColumns(score="p"), data)
    assert any(text.startswith("'female' and 'female ' of the column 'sex' look the same") for text in report.warnings)


@pytest.mark.long
@pytest.mark.parametrize("word", ["NA", "", "null", "N/A"])
@pytest.mark.parametrize("missing", ["own", "group"])
def test_missing_text_is_the_same_in_csv_and_parquet(tmp_path, word, missing):
    table = rows(word)
    pyarrow.csv.write_csv(table, tmp_path / "t.csv")
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    found = []
    for name in ("t.csv", "t.parquet"):
        data = fairkit.load_data(
            tmp_path / name,
            label="y",
            favorable=1,
            sensitive=["sex"],
            **({"missing": "group"} if missing == "group" else {}),
        )
        report = fairkit.audit(fairkit.PredictedColumns(score="p"), data)
        found.append(
            (report.data.groups, report.data.missing, report.find("demographic_parity_difference", "sex").value)
        )
    assert found[0] == found[1]
    assert found[0][1] == ({} if missing == "group" else {"sex": 40})
