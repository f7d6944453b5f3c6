"""The good value of an outcome: proposed where words say it, asked for where they do not, and never the bad one."""

from __future__ import annotations

import re

import numpy as np
import pytest

import fairkit
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
def test_the_good_value(name, values, good):
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
