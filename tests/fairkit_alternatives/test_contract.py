"""The contract that every plugin keeps, on `alternatives`."""

from __future__ import annotations

import pytest


@pytest.mark.long
def test_contract(contract):
    contract("alternatives")
