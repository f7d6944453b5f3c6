"""The contract that every plugin keeps, on `endpoint`."""

from __future__ import annotations


def test_contract(contract):
    contract("endpoint")
