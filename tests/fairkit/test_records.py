"""Frozen dataclasses as JSON and back."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

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
