"""How a divided gap is shown: a waterfall of columns, and what allowed columns explain and leave."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fairkit.charts import ChartTable, EvidenceChart
from fairkit.support.lazy_dataclass import dataclass, replace
from fairkit_why.permutation_walks import Noise, RowAsks, asks_of, by_cluster, effective, shares, two_samples, walk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext
    from fairkit_why.audit_rows import People
    from fairkit_why.exact_trees import ExactScore

    Ends = tuple[float | None, float | None]
    Array = NDArray[np.float64]
    Ints = NDArray[np.int64]


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
    result = []
    for entry in value:
        ends = entry["interval"]
        pair: Ends = (None, None) if ends is None else (float(ends[0]), float(ends[1]))
        result.append((str(entry["column"]), float(entry["value"]), pair))
    return result


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


# Two groups of people: the rows of each, what is compared, and how the difference is divided.


OUTCOME = "outcome"
"""The player of a residual that is no column of the model."""
FEWEST = 50
"""Rows of a group below which a gap is not divided."""
VARIANCE_ROWS = 50_000
"""Rows of a group whose own attributions are computed, for the variance."""


@dataclass(frozen=True, slots=True, eq=False)
class Divided:
    """A gap, divided among players."""

    of: str  # what the gap is of
    gap: float  # the difference of the groups' means
    noise: Noise  # how sure it is
    means: tuple[float, float] | None  # of the group and of the reference; None where the scale has no origin
    values: Array  # by player
    sure: Noise  # how sure they are; None where the groups are too small for intervals
    players: tuple[str, ...]  # names
    sampled: dict[str, float] | None
    rows: tuple[Array, Array] | None = None


@dataclass(frozen=True, eq=False)
class Pair:
    """A group and its reference in one sensitive column."""

    people: People  # all rows
    sensitive: str  # names
    group: str
    reference: str
    rows: tuple[Ints, Ints]  # the places of both groups' rows among all
    alone: bool  # whether there are no other groups

    def only(self, outcome: float) -> Pair:
        """Return the rows with an outcome."""
        y = self.people.number("outcome")
        assert y is not None  # noqa: S101 -- asked for where there are labels
        first, second = (rows[y[rows] == outcome] for rows in self.rows)
        return replace(self, rows=(first, second))

    def each(self, name: str) -> tuple[Array, Array] | None:
        """Return a number of both groups' rows."""
        values = self.people.number(name)
        return None if values is None else (values[self.rows[0]], values[self.rows[1]])

    @cached_property
    def weights(self) -> tuple[Array | None, Array | None]:
        """Of both groups' rows."""
        return self.each("weights") or (None, None)

    @cached_property
    def totals(self) -> tuple[Array, Array] | None:
        """The totals of all rows of both groups, where some are left out; see `fairkit_why.audit_rows.Collected`."""
        every = self.people.totals.get(self.sensitive)
        if every is None:
            return None
        first, second = (every[self.people.groups[self.sensitive][rows[0]]] for rows in self.rows)
        return (first, second) if first[6] + second[6] > sum(map(len, self.rows)) else None

    @cached_property
    def sizes(self) -> tuple[float, float]:
        """The effective numbers of rows."""
        first, second = (effective(w, len(r)) for w, r in zip(self.weights, self.rows, strict=True))
        return first, second

    @cached_property
    def units(self) -> tuple[float, float]:
        """The effective numbers of what was drawn: of rows, or of clusters of them, with weights."""
        clusters = self.each("clusters")
        if clusters is None:
            return self.sizes
        shared = zip(self.weights, self.rows, clusters, strict=True)
        sums = [by_cluster(shares(w, len(r))[:, None], c)[0] for w, r, c in shared]
        return float(1 / (sums[0] ** 2).sum()), float(1 / (sums[1] ** 2).sum())

    def seed(self, model: str, of: str) -> np.random.Generator:
        """Make the generator of a metric's walks: from the model and the rows, so that nobody can choose a seed."""
        seed_text = f"{model}|{int(self.people.hashes.sum())}|{of}|{self.sensitive}|{self.group}|{self.reference}"
        return np.random.default_rng(int.from_bytes(hashlib.sha256(seed_text.encode()).digest()[:16], "little"))

    def gap(self, values: tuple[Array, Array], reach: float | None) -> tuple[float, tuple[float, float], Noise]:
        """Return the difference of means, the means, and how sure it is."""
        means = [float(shares(w, len(v)) @ v) for w, v in zip(self.weights, values, strict=True)]
        variance, degrees = two_samples(
            (values[0][:, None], values[1][:, None]), self.weights, self.sizes, self.each("clusters")
        )
        spread = max(float(np.ptp(np.concatenate(values))), 0.0) if reach is None else reach
        noise = Noise(variance, degrees, np.array([spread]), self.units)
        return means[0] - means[1], (means[0], means[1]), noise

    def exactly(self, score: ExactScore, codes: Any, of: str, names: tuple[str, ...]) -> Divided:
        """Divide the difference of mean scores exactly."""
        clusters = self.each("clusters")
        most = VARIANCE_ROWS if clusters is None else max(map(len, self.rows))
        chosen = tuple(np.arange(min(len(rows), most)) for rows in self.rows)
        groups = [np.ascontiguousarray(codes[:, rows]) for rows in self.rows]
        attribution = score.attribution(groups[0], groups[1], self.weights, (chosen[0], chosen[1]))
        values, rows = attribution.values, attribution.rows
        if of == "residual":
            y = self.each("outcome")
            assert y is not None  # noqa: S101 -- checked with the parameters
            means = [shares(w, len(v)) @ v for w, v in zip(self.weights, y, strict=True)]
            values = np.append(-values, means[0] - means[1])
            gaps = y[0][chosen[0]] - means[1], means[0] - y[1][chosen[1]]
            rows = np.column_stack([-rows[0], gaps[0]]), np.column_stack([-rows[1], gaps[1]])
            names = (*names, OUTCOME)
        w = tuple(None if w is None else w[c] for w, c in zip(self.weights, chosen, strict=True))
        part = None if clusters is None else (clusters[0][chosen[0]], clusters[1][chosen[1]])
        variance, degrees = two_samples(rows, (w[0], w[1]), self.sizes, part)
        reach = np.maximum(np.abs(rows[0]).max(axis=0), np.abs(rows[1]).max(axis=0))
        total = rows[0].sum(axis=1, keepdims=True), rows[1].sum(axis=1, keepdims=True)
        spread, freedom = two_samples(total, (w[0], w[1]), self.sizes, part)
        widest = np.array([max(np.abs(values).max() for values in total)])
        return Divided(
            of=of,
            gap=float(values.sum()),
            noise=Noise(spread, freedom, widest, self.units),
            means=None,
            values=values,
            sure=Noise(variance, degrees, reach, self.units),
            players=names,
            sampled=None,
            rows=(rows[0], rows[1]),
        )

    def by_walks(
        self,
        context: AuditContext,
        of: str,
        columns: dict[str, NDArray[Any]],
        players: list[tuple[str, ...]],
        calls: int,
    ) -> Divided:
        """Divide the difference of mean predictions by random walks."""
        scorer, kind = (
            context.scorer,
            "decision" if of in ("decision", "true_positive_rate", "false_positive_rate") else "score",
        )
        f = self.each(kind)
        assert f is not None  # noqa: S101 -- models without scores are refused before
        every = np.concatenate(self.rows)
        both = {name: values[every] for name, values in columns.items()}
        outputs = np.concatenate(f)
        asks = _PairAsks(asks_of(scorer, kind, both, players, outputs), len(f[0]))
        names = tuple("+".join(names) for names in players)
        reach = np.full(len(players), float(np.ptp(outputs)) if kind == "score" else 1.0)
        if of == "residual":
            y = self.each("outcome")
            assert y is not None  # noqa: S101 -- checked with the parameters
            asks.outcome, f, names = y, (y[0] - f[0], y[1] - f[1]), (*names, OUTCOME)
            reach = np.append(reach, np.ptp(np.concatenate(y)))
        gap, means, noise = self.gap(f, 1.0 if kind == "decision" and of != "residual" else None)
        model = scorer.info.sha256 or scorer.info.name
        walks = walk(asks, f, self.weights, self.each("clusters"), len(names), calls=calls, rng=self.seed(model, of))
        record = {"walks": walks.walks, "calls": walks.calls, "sampling_share": walks.sampling}
        sure = Noise(walks.variance, walks.degrees, reach, self.units)
        return Divided(of, gap, noise, means, walks.values, sure, names, record)


class _PairAsks:
    """Rows of the reference numbered from 0, behind those of the group.

    With outcomes of both groups the predictions are subtracted from them, the outcome being the last player.
    """

    def __init__(self, asks: RowAsks, shift: int) -> None:
        self._asks, self._shift = asks, shift
        self.outcome: tuple[Array, Array] | None = None

    def differ(self, x: Ints, z: Ints) -> NDArray[np.bool_]:
        differing = self._asks.differ(x, z + self._shift)
        y = self.outcome
        return differing if y is None else np.column_stack([differing, y[0][x] != y[1][z]])

    def mixed(self, x: Ints, z: Ints, from_x: NDArray[np.bool_]) -> Array:
        y = self.outcome
        if y is None:
            return self._asks.mixed(x, z + self._shift, from_x)
        mixture = np.where(from_x[:, -1], y[0][x], y[1][z])
        return np.asarray(mixture - self._asks.mixed(x, z + self._shift, from_x[:, :-1]))
