"""The contract that every plugin keeps, on `disparate-impact-remover`."""

from __future__ import annotations

import pytest


@pytest.mark.long
def test_contract(contract):
    contract("disparate-impact-remover")
