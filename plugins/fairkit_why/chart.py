"""How a divided gap is shown: a waterfall of columns, and what allowed columns explain and leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from fairkit.charts import ChartTable, EvidenceChart

if TYPE_CHECKING:
    from collections.abc import Mapping

    Ends = tuple[float | None, float | None]

MOST = 10
"""Columns that are drawn by themselves; the others are one bar."""
UP, DOWN, WHOLE, NOBODY = "#2f6f9f", "#b5651d", "#6b7280", "#9ca3af"


_VERSIONS = {
    "group": "people like the group",
    "reference": "people like the reference",
    "overlap": "where they overlap",
}


class WaterfallChart(EvidenceChart):
    """The columns' parts, one after the other, from no gap to the whole of it, with their intervals."""

    name: ClassVar[str] = "columns"
    title: ClassVar[str] = "What carries the gap"

    def table(self, value: Any) -> ChartTable:
        """Return a row for each column."""
        rows = [(name, part, *ends) for name, part, ends in _read(value)]
        return ChartTable(columns=("column", "part", "from", "to"), rows=rows)

    def picture(self, value: Any, *, narrow: bool) -> Mapping[str, Any] | None:
        """Return bars that begin where the one before ends, and intervals at their ends."""
        read = _read(value)
        shown, rest = read[:MOST], read[MOST:]
        parts = [(name, part, ends) for name, part, ends in shown]
        if rest:
            parts.append((f"{len(rest)} more", sum(part for _, part, _ in rest), (None, None)))
        start, bars = 0.0, []
        for name, part, (low, high) in parts:
            end = start + part
            bars.append({
                "column": name, "start": start, "end": end, "part": part, "way": "up" if part >= 0 else "down",
                "low": None if low is None else start + low, "high": None if high is None else start + high,
            })  # fmt: skip
            start = end
        bars.append({"column": "the gap", "start": 0.0, "end": start, "part": start, "way": "whole"})
        y = {"field": "column", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 140}}
        colour = {
            "field": "way", "type": "nominal", "legend": None,
            "scale": {"domain": ["up", "down", "whole"], "range": [UP, DOWN, WHOLE]},
        }  # fmt: skip
        x = {"field": "start", "type": "quantitative", "title": "part of the gap"}
        tips = [{"field": key, "format": ".4f"} for key in ("part", "low", "high")]
        bar = {
            "mark": {"type": "bar", "height": 14},
            "encoding": {"x": x, "x2": {"field": "end"}, "y": y, "color": colour,
                         "tooltip": [{"field": "column"}, *tips]},
        }  # fmt: skip
        whisker = {
            "mark": {"type": "rule", "strokeWidth": 1.5},
            "transform": [{"filter": "isValid(datum.low)"}],
            "encoding": {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}, "y": y},
        }  # fmt: skip
        width = 220 if narrow else 460
        return {"data": {"values": bars}, "width": width, "height": {"step": 22}, "layer": [bar, whisker]}

    @classmethod
    def example(cls) -> Any:
        """Return a small value, for the contract checks."""
        return [
            {"column": "job", "value": 0.12, "interval": [0.1, 0.14]},
            {"column": "age", "value": -0.02, "interval": [-0.03, -0.01]},
            {"column": "town", "value": 0.0, "interval": None},
        ]


def _read(value: Any) -> list[tuple[str, float, Ends]]:
    found = []
    for one in value:
        ends = one["interval"]
        pair: Ends = (None, None) if ends is None else (float(ends[0]), float(ends[1]))
        found.append((str(one["column"]), float(one["value"]), pair))
    return found


class LeftChart(EvidenceChart):
    """What is left of a gap between people who are alike: toward either group, and where the groups overlap."""

    name: ClassVar[str] = "left"
    title: ClassVar[str] = "What allowed columns leave"

    def table(self, value: Any) -> ChartTable:
        """Return a row for each version; a refused one has no numbers."""
        rows = [
            (name, value[key], value[f"{key}_low"], value[f"{key}_high"], str(value[f"{key}_refused"] or ""))
            for key, name in _VERSIONS.items()
        ]
        return ChartTable(columns=("among", "left", "from", "to", "refused"), rows=rows)

    def picture(self, value: Any, *, narrow: bool) -> Mapping[str, Any] | None:
        """Return a bar for each version; a refused one is an empty bar with a broken line."""
        rows = self.table(value).rows
        widest = max((abs(float(row[1])) for row in rows if row[1] is not None), default=1.0)
        bars = [
            {"among": name, "left": widest if left is None else left, "low": low, "high": high,
             "refused": left is None, "text": "refused" if left is None else ""}
            for name, left, low, high, _ in rows
        ]  # fmt: skip
        y = {"field": "among", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 220}}
        x = {"field": "left", "type": "quantitative", "title": "left of the gap"}
        plain, refused = [{"filter": "!datum.refused"}], [{"filter": "datum.refused"}]
        layers = [
            {"mark": {"type": "bar", "color": UP, "height": 14}, "transform": plain, "encoding": {"x": x, "y": y}},
            {"mark": {"type": "bar", "fill": "transparent", "stroke": NOBODY, "strokeDash": [4, 3], "height": 14},
             "transform": refused, "encoding": {"x": x, "y": y}},
            {"mark": {"type": "text", "align": "left", "dx": 6}, "transform": refused,
             "encoding": {"x": {"datum": 0}, "y": y, "text": {"field": "text"}}},
            {"mark": {"type": "rule", "strokeWidth": 1.5}, "transform": plain,
             "encoding": {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}, "y": y}},
        ]  # fmt: skip
        return {"data": {"values": bars}, "width": 220 if narrow else 460, "height": {"step": 22}, "layer": layers}

    @classmethod
    def example(cls) -> Any:
        """Return a small value, for the contract checks."""
        return {
            "group": 0.1, "group_low": 0.08, "group_high": 0.12, "group_refused": None,
            "reference": None, "reference_low": None, "reference_high": None, "reference_refused": "no counterpart",
            "overlap": 0.09, "overlap_low": 0.07, "overlap_high": 0.11, "overlap_refused": None,
        }  # fmt: skip
