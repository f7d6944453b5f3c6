"""The points of a frontier: what each tried, and what came out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    from fairkit.results.report import Report
    from fairkit.results.values import Better, Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A number with its interval, and which direction is better."""

    value: float
    interval: Interval | None
    better: Better


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One training."""

    plugin: str  # what was tried; the plugin `baseline` is the learner without mitigation
    parameters: Mapping[str, Any]  # what was tried; the plugin `baseline` is the learner without mitigation
    status: Literal["done", "failed"]  # `done`, or `failed` with the reason in `error`
    error: str = ""
    measures: Mapping[str, Measure] = field(default_factory=dict)
    sha256: str | None = None  # of the model's file
    seconds: float = 0.0  # what training and audit took; of points that were trained together, an equal part
    family: str = ""  # what it was trained together with, as a digest; empty where it was trained alone

    @property
    def is_constant(self) -> bool:
        """Whether it decides all validation rows alike: its disparities are 0 and it is picked after all others."""
        rate = self.measures.get("selection_rate")
        return rate is not None and rate.value in (0.0, 1.0)

    @property
    def key(self) -> str:
        """What tells it from other points: a digest of plugin, parameters and family."""
        return point_key(self.plugin, self.parameters, self.family)

    @property
    def name(self) -> str:
        """The plugin with the parameters."""
        told = ", ".join(f"{key} = {value}" for key, value in self.parameters.items())
        return f"{self.plugin} ({told})" if told else self.plugin

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        measures = {
            name: [one.value, None if one.interval is None else list(one.interval), one.better]
            for name, one in self.measures.items()
        }
        return {
            "plugin": self.plugin,
            "parameters": dict(self.parameters),
            "status": self.status,
            "error": self.error,
            "measures": measures,
            "sha256": self.sha256,
            "seconds": round(self.seconds, 3),
            "family": self.family,
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        measures = {
            name: Measure(value=value, interval=None if pair is None else (pair[0], pair[1]), better=better)
            for name, (value, pair, better) in record["measures"].items()
        }
        return cls(**{**record, "measures": measures})


def point_key(plugin: str, parameters: Mapping[str, Any], family: str = "") -> str:
    """Return a digest of what a point tries; ``"0.5"`` and 0.5 are the same."""
    plain = {key: str(value) for key, value in sorted(parameters.items())}
    told: list[Any] = [plugin, plain, family] if family else [plugin, plain]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:24]


def measures_of(report: Report) -> dict[str, Measure]:
    """Keep of a report what a frontier may draw or pick by."""
    return {
        finding.metric if finding.sensitive is None else f"{finding.metric}:{finding.place}": Measure(
            value=finding.value, interval=finding.interval, better=finding.better
        )
        for finding in report.findings
        if finding.value is not None and "class" not in finding.parameters
    }
