"""Findings as records: frozen dataclasses as JSON and back, evidence by type."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
from fairkit.results.report import Report
from fairkit.support.files import read_record, record_of

GOLDEN = Path(__file__).parents[1] / "fairkit_registry" / "golden"


@dataclass(frozen=True, slots=True)
class Part:
    low: float

    def to_dict(self):
        return {"from": self.low}


@dataclass(frozen=True, slots=True)
class Inner:
    names: tuple[str, ...] = ("a",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    rows: int
    parts: tuple[Part, ...] = ()
    inner: Inner = Inner()
    about: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    absent: str | None = None


def test_fields_keep_their_order_and_parts_their_own_form():
    whole = Whole(rows=3, parts=(Part(0.5),), about={"b": (1, 2), "a": {"c": (Part(1.0),)}}, notes=("x",))
    record = record_of(whole, without=("absent",))
    assert list(record) == ["rows", "parts", "inner", "about", "notes"]
    assert record["parts"] == [{"from": 0.5}]
    assert record["inner"] == {"names": ["a"]}
    assert record["about"] == {"b": [1, 2], "a": {"c": [{"from": 1.0}]}}
    assert list(record["about"]) == ["b", "a"]


def test_what_was_written_is_read_and_unknown_names_are_passed_over():
    record = json.loads(json.dumps(record_of(Whole(rows=3, notes=("x", "y"), about={"a": 1}))))
    assert read_record(Inner, record_of(Inner(("b",))) | {"new": 1}) == Inner(("b",))
    read = read_record(Whole, {**record, "inner": Inner(), "of a later version": 1})
    assert read == Whole(rows=3, notes=("x", "y"), about={"a": 1})
    with pytest.raises(TypeError, match="rows"):
        read_record(Whole, {"notes": []})


@pytest.mark.parametrize("name", ["report", "report-auditors"])
def test_reports_of_older_versions_are_written_with_the_same_bytes(name):
    record = json.loads(gzip.decompress((GOLDEN / f"{name}.json.gz").read_bytes()))
    for part in ("model", "data"):
        again = Report.from_dict(record).to_dict()[part]
        assert json.dumps(again) == json.dumps(record[part])


# Evidence by type: what is read from findings, new and old, and what is left alone.
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
