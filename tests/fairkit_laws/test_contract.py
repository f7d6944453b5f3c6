"""The contract that every plugin keeps, on `laws`."""

from __future__ import annotations


def test_contract(contract):
    contract("laws")
