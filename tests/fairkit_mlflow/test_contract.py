"""The contract that every plugin keeps, on `mlflow`."""

from __future__ import annotations


def test_contract(contract):
    contract("mlflow")
