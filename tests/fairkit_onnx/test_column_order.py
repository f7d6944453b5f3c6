"""A matrix without names: its columns are told before the numbers, and an order that cannot be right is called so."""

from __future__ import annotations

from typing import Any

import pytest
from tests.exports import NUMBERS, network, people

import fairkit


def audited(columns: list[str], **roles: Any) -> fairkit.Report:
    table = {name: people()[name] for name in [*columns, "sex", "default"]}
    return fairkit.audit(network(), fairkit.load_data(table, label="default", favorable=0, sensitive=["sex"], **roles))


def test_all_columns_are_told_before_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(fairkit.DataError, match="takes 4 columns but gets 5"):
        audited([*NUMBERS])  # sex is a column too
    report = audited([*NUMBERS], drop=["sex"])
    (told,) = [text for text in report.warnings if "matrix without names" in text]
    assert "these 4 columns in this order: x0, x1, x2, x3. In another order" in told
    assert "looks like another order" not in told
    assert not any("matrix" in text for text in audited([*NUMBERS], features=list(NUMBERS)).warnings)


def test_an_order_that_cannot_be_right_is_called_so() -> None:
    report = audited(["x2", "x3", "x1", "x0"], drop=["sex"])
    (told,) = [text for text in report.warnings if "matrix without names" in text]
    area = report.find("roc_auc").value
    assert f"the model's ROC-AUC on the first rows is {area:.3f}, and the column 'x0' alone has 0." in told
