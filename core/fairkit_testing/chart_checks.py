"""Checks on evidence charts: numbers in a table, a picture that holds its data, and values that are left alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fairkit.charts import ChartTable
from fairkit.results.evidence import BUILT_IN
from fairkit_testing.require import require

if TYPE_CHECKING:
    from fairkit.charts import EvidenceChart


def check_chart_table(cls: type[EvidenceChart]) -> None:
    """The example becomes a table whose rows are as long as its columns; the same value gives the same table."""
    require(cls.name not in BUILT_IN, f"fairkit shows the evidence {cls.name!r} itself; choose another key")
    value = cls.example()
    table = cls().table(value)
    require(isinstance(table, ChartTable), f"table gives {table!r}; return a fairkit.charts.ChartTable")
    require(table.columns, "the table has no columns")
    for row in table.rows:
        require(len(row) == len(table.columns), f"the row {row!r} is not as long as {table.columns!r}")
    require(cls().table(value) == table, "the same value gives another table the second time")


def check_chart_picture(cls: type[EvidenceChart]) -> None:
    """The picture is a Vega-Lite specification of JSON values with its data in it, for wide and narrow screens."""
    for narrow in (False, True):
        spec = cls().picture(cls.example(), narrow=narrow)
        if spec is None:
            continue
        json.dumps(spec, allow_nan=False)
        require(
            not any(key == "url" for key in _keys(spec)),
            "the picture fetches data from an address; put it into data.values",
        )


def check_chart_example(cls: type[EvidenceChart]) -> None:
    """The example is made of JSON values, as evidence is, and showing it leaves it as it is."""
    value = cls.example()
    before = json.dumps(value, allow_nan=False)
    cls().table(value)
    cls().picture(value, narrow=False)
    require(json.dumps(value) == before, "the evidence was changed; work on a copy")


def _keys(spec: Any) -> list[str]:
    if isinstance(spec, dict):
        return [*spec, *(key for value in spec.values() for key in _keys(value))]
    return [key for one in spec for key in _keys(one)] if isinstance(spec, list | tuple) else []


CHECKS = (check_chart_table, check_chart_picture, check_chart_example)
