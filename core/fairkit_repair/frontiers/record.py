"""What a frontier is: all points, the front among them, and the chosen one on test rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairkit.results.rendering import Saved, plotted
from fairkit.results.tables import Tabular, ends

if TYPE_CHECKING:
    from fairkit.results.comparisons import Change
    from fairkit.results.findings import VerdictName
    from fairkit.results.report import Report
    from fairkit_repair.frontiers.points import Measure, Point

SCHEMA = "fairkit.frontier/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier(Tabular, Saved):
    """All points with the front among them, and the chosen one on test rows."""

    performance: str  # the names of the two axes: `accuracy`, `demographic_parity_difference:sex`
    disparity: str  # the names of the two axes: `accuracy`, `demographic_parity_difference:sex`
    points: tuple[Point, ...]  # in the order in which they were asked for; the first is the baseline
    front: tuple[int, ...]  # places of the points that no other one beats on both axes, by disparity
    chosen: int | None  # the picked point's place; None where no point is done
    rule: str  # how it was picked
    test: Report | None = None  # its audit on the test rows, and the paired differences from the baseline there
    changes: tuple[Change, ...] = ()
    model: bytes | None = None  # its file
    rows: tuple[int, int, int] = (0, 0, 0)  # of training, validation and test
    objective: str = "accuracy"  # what every threshold is set for, as it is typed
    confidence: float = 0.95
    seed: int = 0
    limit: float | None = None
    chances: tuple[float | None, ...] = ()
    verdict: VerdictName | None = None
    reason: str = ""
    sure: bool = True  # whether the rule could be kept
    is_constant: bool = False
    notes: tuple[str, ...] = ()  # what a reader must know
    repeats: Mapping[int, tuple[tuple[float, float], ...]] = field(default_factory=dict)

    def axes(self, point: Point) -> tuple[Measure, Measure] | None:
        """Return a point's disparity and performance; None where it has not both."""
        x, y = point.measures.get(self.disparity), point.measures.get(self.performance)
        return None if x is None or y is None else (x, y)

    def __repr__(self) -> str:
        """Return a line."""
        picked = "nothing picked" if self.chosen is None else f"picked {self.points[self.chosen].name}"
        return f"<Frontier of {len(self.points)} points, {self.performance} against {self.disparity}: {picked}>"

    def plot(self) -> Any:
        """Return the page's chart as Altair's: points with intervals, the front, the limit, a ring at the pick."""
        return plotted(self, "frontier", None)

    def records(self) -> list[dict[str, Any]]:
        """Return a line for each training: its axes with their intervals, and whether it is on the front, or picked."""
        return [self._record(number, point) for number, point in enumerate(self.points)]

    def _record(self, number: int, point: Point) -> dict[str, Any]:
        record: dict[str, Any] = {
            "plugin": point.plugin,
            "parameters": ", ".join(f"{key}={value}" for key, value in point.parameters.items()),
            "status": point.status,
        }
        for axis, name in (("disparity", self.disparity), ("performance", self.performance)):
            measure = point.measures.get(name)
            record[axis] = None if measure is None else measure.value
            ended = ends(None if measure is None else measure.interval)
            record |= {f"{axis}_{end}": value for end, value in ended.items()}
        chance = self.chances[number] if number < len(self.chances) else None
        return record | {"front": number in self.front, "chosen": number == self.chosen, "chance": chance}

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, schema ``fairkit.frontier/1``."""
        return {
            "schema": SCHEMA,
            "performance": self.performance,
            "disparity": self.disparity,
            "points": [point.to_dict() for point in self.points],
            "front": list(self.front),
            "chosen": self.chosen,
            "rule": self.rule,
            "objective": self.objective,
            "test": None if self.test is None else self.test.to_dict(),
            "changes": [change.to_dict() for change in self.changes],
            "limit": self.limit,
            "chances": list(self.chances),
            "verdict": self.verdict,
            "sure": self.sure,
            "is_constant": self.is_constant,
            "rows": dict(zip(("train", "validation", "test"), self.rows, strict=True)),
            "confidence": self.confidence,
            "seed": self.seed,
            "notes": list(self.notes),
        } | ({} if not self.repeats else {"repeats": self._repeated()})

    def _repeated(self) -> list[dict[str, Any]]:
        return [
            {"point": place, "disparity": [x for x, _ in values], "performance": [y for _, y in values]}
            for place, values in self.repeats.items()
        ]
