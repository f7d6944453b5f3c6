"""How evidence is shown: a forest plot of pairs and contexts, refusals, changed documents, drift."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairkit.charts import ChartTable, EvidenceChart


class ForestChart(EvidenceChart):
    """Every pair of groups, averaged over the contexts and in each of them, with its own interval."""

    name = "correspondence_pairs"
    title = "Difference by pair of groups and context"

    def table(self, value: Any) -> ChartTable:
        """Return a row for each pair and context."""
        rows = [(_pair(one), _context(one), one["value"], one["low"], one["high"]) for one in value]
        return ChartTable(columns=("groups", "context", "difference", "low", "high"), rows=rows)

    def picture(self, value: Any, *, narrow: bool) -> Mapping[str, Any] | None:
        """Return points with their intervals around zero."""
        values = [
            {"what": f"{_pair(one)}, {_context(one)}", **{k: float(one[k]) for k in ("value", "low", "high")}}
            for one in value
        ]
        y = {"field": "what", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 320}}
        x = {"type": "quantitative", "title": "difference of mean answers"}
        ends = {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y}
        return {
            "data": {"values": values},
            "width": 220 if narrow else 420,
            "layer": [
                {"mark": {"type": "rule", "strokeDash": [4, 3]}, "encoding": {"x": {"datum": 0, **x}}},
                {"mark": {"type": "rule", "strokeWidth": 2}, "encoding": ends},
                {
                    "mark": {"type": "point", "filled": True, "size": 60},
                    "encoding": {"x": {**x, "field": "value"}, "y": y},
                },
            ],
        }

    @classmethod
    def example(cls) -> Any:
        """Return one pair."""
        return [{"groups": ["a", "b"], "context": None, "value": 0.04, "low": 0.01, "high": 0.07}]


class RefusalChart(EvidenceChart):
    """What became of the questions, by group."""

    name = "refusals"
    title = "Answered, refused, unreadable, cut off"

    def table(self, value: Any) -> ChartTable:
        """Return a row for each group."""
        kinds = list(next(iter(value.values()), {}))
        return ChartTable(
            columns=("group", *kinds),
            rows=[(name, *(counts[kind] for kind in kinds)) for name, counts in value.items()],
        )

    @classmethod
    def example(cls) -> Any:
        """Return two groups."""
        counts = {"answered": 90, "refused": 6, "unreadable": 3, "cut off": 1}
        return {"a": counts, "b": counts}


class ChangedChart(EvidenceChart):
    """The documents on which two groups' answers differ most; documents are named by digest."""

    name = "changed_answers"
    title = "Documents whose answers differ most"

    def table(self, value: Any) -> ChartTable:
        """Return a row for each document."""
        rows = [(one["document"], one["context"], _pair(one), *map(float, one["answers"])) for one in value]
        return ChartTable(columns=("document", "context", "groups", "first", "second"), rows=rows)

    @classmethod
    def example(cls) -> Any:
        """Return one document."""
        return [{"document": "3f2a", "context": "all", "groups": ["a", "b"], "answers": [1.0, 0.0]}]


class DriftChart(EvidenceChart):
    """Late answers minus early ones, of the same documents."""

    name = "drift"
    title = "Late answers minus early ones"

    def table(self, value: Any) -> ChartTable:
        """Return one row."""
        cells = ["shift", "low", "high", "level"]
        return ChartTable(
            columns=(*cells, "found"),
            rows=[(*(float(value[cell]) for cell in cells), "yes" if value["found"] else "no")],
        )

    @classmethod
    def example(cls) -> Any:
        """Return no drift."""
        return {"shift": 0.001, "low": -0.02, "high": 0.022, "level": 0.01, "found": False}


def _pair(one: Mapping[str, Any]) -> str:
    first, second = one["groups"]
    return f"{first} - {second}"


def _context(one: Mapping[str, Any]) -> str:
    return "all contexts" if one["context"] is None else str(one["context"])
