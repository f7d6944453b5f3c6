"""How evidence is shown: a forest plot of pairs and contexts, refusals, changed documents, drift."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairkit.charts import Cell, ChartTable, EvidenceChart


class ForestChart(EvidenceChart):
    """Every pair of groups, averaged over the contexts and in each of them, with its own interval."""

    name = "correspondence_pairs"
    title = "Difference by pair of groups and context"

    def table(self, value: Any) -> ChartTable:
        """Return a row for each pair and context."""
        rows = [(name, row["value"], row["low"], row["high"]) for name, row in by_name(value).items()]
        return ChartTable(columns=("groups, context", "difference", "low", "high"), rows=rows)

    def picture(self, value: Any, *, narrow: bool) -> Mapping[str, Any] | None:
        """Return points with their intervals around zero."""
        y = {"field": "what", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 320}}
        x = {"type": "quantitative", "title": "difference of mean answers"}
        ends = {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y}
        point = {"type": "point", "filled": True, "size": 60}
        return {
            "data": {"values": [{"what": name, **row} for name, row in by_name(value).items()]},
            "width": 220 if narrow else 420,
            "layer": [
                {"mark": {"type": "rule", "strokeDash": [4, 3]}, "encoding": {"x": {"datum": 0, **x}}},
                {"mark": {"type": "rule", "strokeWidth": 2}, "encoding": ends},
                {"mark": point, "encoding": {"x": {**x, "field": "value"}, "y": y}},
            ],
        }

    @classmethod
    def example(cls) -> Any:
        """Return one pair."""
        name = "a - b, all contexts"
        return {f"{name}: value": 0.04, f"{name}: low": 0.01, f"{name}: high": 0.07}


class RefusalChart(EvidenceChart):
    """What became of the questions, by group."""

    name = "refusals"
    title = "Answered, refused, unreadable, cut off"

    def table(self, value: Any) -> ChartTable:
        """Return a row for each group."""
        rows = by_name(value)
        kinds = list(next(iter(rows.values()), {}))
        counts: list[list[Cell]] = [[name, *(int(row[k]) for k in kinds)] for name, row in rows.items()]
        return ChartTable(columns=("group", *kinds), rows=counts)

    @classmethod
    def example(cls) -> Any:
        """Return two groups."""
        counts = {"answered": 90, "refused": 6, "unreadable": 3, "cut off": 1}
        return {f"{group}: {kind}": count for group in ("a", "b") for kind, count in counts.items()}


class ChangedChart(EvidenceChart):
    """The documents on which two groups' answers differ most; documents are named by digest."""

    name = "changed_answers"
    title = "Documents whose answers differ most"

    def table(self, value: Any) -> ChartTable:
        """Return a row for each document."""
        rows: list[list[Cell]] = [
            [one["document"], one["context"], " - ".join(one["groups"]), *map(float, one["answers"])] for one in value
        ]
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
        cells = ("shift", "low", "high", "level")
        row = (*(float(value[cell]) for cell in cells), "yes" if value["found"] else "no")
        return ChartTable(columns=(*cells, "found"), rows=[row])

    @classmethod
    def example(cls) -> Any:
        """Return no drift."""
        return {"shift": 0.001, "low": -0.02, "high": 0.022, "level": 0.01, "found": False}


def by_name(value: Any) -> dict[str, dict[str, float]]:
    """Return numbers under ``name: key`` by name and key; certificates keep plain numbers by name, and no tables."""
    rows: dict[str, dict[str, float]] = {}
    for text, number in dict(value).items():
        name, _, key = text.rpartition(": ")
        rows.setdefault(name, {})[key] = float(number)
    return rows
