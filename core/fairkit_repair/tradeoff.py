"""Evidence of a method that learned several models along a parameter: their disparity and performance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from fairkit.results.evidence import Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class TradeoffPoint:
    """One model: disparity `x` and performance or loss `y`, with their intervals."""

    name: str
    x: float
    x_interval: tuple[float, float]
    y: float
    y_interval: tuple[float, float]
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Tradeoff(Evidence):
    """The models that a method learned in one run along a parameter, on held-out rows."""

    key = "frontier"
    x_title: str  # what is on the axes
    y_title: str  # what is on the axes
    better: Literal["higher", "lower"]  # whether a higher or a lower `y` is better
    points: tuple[TradeoffPoint, ...]  # in the order in which they were learned

    @classmethod
    def read(cls, value: Any) -> Self | None:
        """Read ``{"chosen", "points": [{"bound" | "rho", "test": {"disparity", "loss" | "performance"}}]}``."""
        if not isinstance(value, Mapping) or not isinstance(value.get("points"), Sequence):
            return None
        tested = [point for point in value["points"] if point.get("test")]
        if not tested:
            return None
        gains = "performance" in tested[0]["test"]
        name = str(value.get("performance" if gains else "loss", "loss")).replace("_", " ")
        return cls(
            x_title="disparity",
            y_title=name if gains else f"{name} loss",
            better="higher" if gains and "error" not in name else "lower",
            points=tuple(_point(point, value.get("chosen"), "performance" if gains else "loss") for point in tested),
        )


def _point(point: Mapping[str, Any], chosen: Any, y: str) -> TradeoffPoint:
    parameter = "rho" if "rho" in point else "bound"
    level, results = point[parameter], point["test"]
    shown = "unconstrained" if level is None else f"{level:g}"
    low, high = results["disparity_interval"]
    bottom, top = results[f"{y}_interval"]
    return TradeoffPoint(
        name=shown if parameter == "bound" else f"rho = {shown}",
        x=results["disparity"],
        x_interval=(low, high),
        y=results[y],
        y_interval=(bottom, top),
        chosen=level is not None and level == chosen,
    )
