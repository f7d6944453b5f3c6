"""The contract that every plugin keeps, on `iceberg`."""

from __future__ import annotations


def test_contract(contract):
    contract("iceberg")
