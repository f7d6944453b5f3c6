"""The contract that every plugin keeps, on `postgresql`."""

from __future__ import annotations


def test_contract(contract):
    contract("postgresql")
