"""The contract that every plugin keeps, on `consistency`."""

from __future__ import annotations


def test_contract(contract):
    contract("consistency")
