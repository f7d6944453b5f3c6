"""The contract that every plugin keeps, on `shift-inference`."""

from __future__ import annotations


def test_contract(contract):
    contract("shift-inference")
