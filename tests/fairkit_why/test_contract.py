"""The contract that every plugin keeps, on `why`."""

from __future__ import annotations

import pytest


@pytest.mark.long
def test_contract(contract, monkeypatch):
    """Of several classes the gap of one is divided, which the sample data do not name: `test_classes` does."""
    monkeypatch.setattr("fairkit_testing.auditor_checks._TASKS", ("binary", "regression"))
    contract("why")
