"""The contract that every plugin keeps, on `reject-option`."""

from __future__ import annotations


def test_contract(contract):
    contract("reject-option")
