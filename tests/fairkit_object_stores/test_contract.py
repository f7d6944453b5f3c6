"""The contract that every plugin keeps, on `s3`."""

from __future__ import annotations


def test_contract(contract):
    contract("s3")
