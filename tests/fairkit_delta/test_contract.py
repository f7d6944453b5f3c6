"""The contract that every plugin keeps, on `delta`."""

from __future__ import annotations


def test_contract(contract):
    contract("delta")
