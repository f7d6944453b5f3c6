"""The contract that every plugin keeps, on `duckdb`."""

from __future__ import annotations


def test_contract(contract):
    contract("duckdb")
