"""The contract that every plugin keeps, on `pkcs11`."""

from __future__ import annotations


def test_contract(contract):
    contract("pkcs11")
