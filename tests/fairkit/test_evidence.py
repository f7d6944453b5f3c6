"""Evidence by type: what is read from findings, new and old, and what is left alone."""

from __future__ import annotations

import pytest

from fairkit.results.evidence import (
    Calibration,
    CurveBands,
    Curves,
    Flips,
    HighestGroup,
    Histogram,
    LowestGroup,
    Pairs,
    evidence_of,
)
from fairkit.results.findings import Finding


def finding(**evidence):
    return Finding(auditor="group", metric="m", value=0.1, confidence=0.95, evidence=evidence)


def test_a_histogram_gives_shares():
    found = evidence_of(
        finding(histogram={"edges": [0, 0.5, 1], "groups": {"a": [[1, 1], [0, 2]], "b": [[0, 0], [0, 0]]}}), Histogram
    )
    assert found.edges == (0.0, 0.5, 1.0)
    assert found.shares == {"a": [0.5, 0.5], "b": [0.0, 0.0]}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Histogram, {}),
        (Histogram, {"edges": [], "groups": {}}),
        (Histogram, {"edges": [0, 1], "groups": {"a": [[1, 2], [3, 4]]}}),
        (Histogram, [1, 2]),
        (Curves, {"a": [], "b": []}),
        (Curves, "roc"),
        (CurveBands, []),
        (CurveBands, "roc"),
        (CurveBands, [0.1]),
        (CurveBands, [0.1, 1.5]),
        (CurveBands, [[0.1, 0.2]]),
        (Calibration, {}),
        (Pairs, []),
        (Pairs, "pairs"),
        (Pairs, [1, 2]),
        (Flips, []),
    ],
)
def test_what_is_something_else_is_none(kind, value):
    assert evidence_of(finding(**{kind.key: value}), kind) is None
    assert evidence_of(finding(), kind) is None


def test_a_band_has_two_rates_for_each_group():
    assert evidence_of(finding(roc_band=[0.1, 0.2, 1, 1.0]), CurveBands).halves == ((0.1, 0.2), (1, 1.0))


def test_the_ends_of_a_difference():
    one = finding(lowest_group="a", highest_group=2)
    assert evidence_of(one, LowestGroup).group == "a"
    assert evidence_of(one, HighestGroup).group == "2"
