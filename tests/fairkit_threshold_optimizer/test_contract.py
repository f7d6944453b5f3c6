"""The contract that every plugin keeps, on `threshold-optimizer`."""

from __future__ import annotations

import pytest


@pytest.mark.long
def test_contract(contract):
    contract("threshold-optimizer")
