"""The contract that every plugin keeps, on `cards`."""

from __future__ import annotations


def test_contract(contract):
    contract("cards")
