"""Loads, and then raises whenever it is used."""

from __future__ import annotations

import fairkit


class Falls(fairkit.Metric):
    """Divides by zero."""

    name = "falls"
    meaning = "It has no meaning, it only raises."
    needs = frozenset({"score"})

    def contributions(self, rows):
        raise ZeroDivisionError("the metric fell")

    def compute(self, sums):
        return sums[..., 0]


class FallingAuditor(fairkit.Auditor):
    """Raises on the first batch."""

    name = "broken-middle"

    def measure(self, batch, predictions, context):
        raise ZeroDivisionError("the auditor fell")

    def findings(self, total, context):
        return []


class FallingMethod(fairkit.Mitigator):
    """Raises when it is trained."""

    name = "broken-middle"
    stage = "in"
    citation = "Nobody, Falling, 2024"

    def fit(self, table, run, **_):
        raise ZeroDivisionError("the method fell")


@fairkit.hookimpl
def fairkit_metrics():
    return [Falls]


@fairkit.hookimpl
def fairkit_auditors():
    return [FallingAuditor]


@fairkit.hookimpl
def fairkit_mitigators():
    return [FallingMethod]
