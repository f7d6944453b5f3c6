"""The contract that every plugin keeps, on `exponentiated-gradient`."""

from __future__ import annotations

import pytest


@pytest.mark.long
def test_contract(contract):
    contract("exponentiated-gradient", settings={"iterations": 2})
