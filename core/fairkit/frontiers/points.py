"""The points of a frontier: what each tried, what came out, and the file that keeps them between runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from fairkit.errors import DataError
from fairkit.files import check_writable, write_atomic

if TYPE_CHECKING:
    from fairkit.results.findings import Better, Interval, Report

SCHEMA = "fairkit.frontier-state/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A number with its interval, and which direction is better."""

    value: float
    interval: Interval | None
    better: Better


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One training.

    Attributes
    ----------
    plugin, parameters
        What was tried; the plugin ``baseline`` is the learner without mitigation.
    status
        ``done``, or ``failed`` with the reason in `error`.
    measures
        Every group metric on the validation rows, by ``metric`` or ``metric:column``.
    sha256
        Of the model's file.
    seconds
        What training and audit took; of points that were trained together, an equal part.
    family
        What it was trained together with, as a digest; empty where it was trained alone.
    """

    plugin: str
    parameters: Mapping[str, Any]
    status: Literal["done", "failed"]
    error: str = ""
    measures: Mapping[str, Measure] = field(default_factory=dict)
    sha256: str | None = None
    seconds: float = 0.0
    family: str = ""

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
        finding.metric if finding.sensitive is None else f"{finding.metric}:{finding.sensitive}": Measure(
            value=finding.value, interval=finding.interval, better=finding.better
        )
        for finding in report.findings
        if finding.value is not None and "class" not in finding.parameters
    }


class State:
    """Finished points and their models on the disk, so that an interrupted run goes on where it was.

    Parameters
    ----------
    path
        The file; models go into the folder ``<path>.models`` beside it. None keeps all in memory.
    about
        What the points depend on besides their parameters: digests of the rows, seed, learner. A file that
        is about something else is refused.
    """

    def __init__(self, path: Path | None, about: Mapping[str, Any]) -> None:
        self.path, self.about = path, dict(about)
        self.points: dict[str, Point] = {}
        self._models: dict[str, bytes] = {}
        if path is None:
            return
        check_writable(path)
        if path.exists():
            self._read(path)
        self.folder.mkdir(exist_ok=True)

    @property
    def folder(self) -> Path:
        """Where the models are."""
        assert self.path is not None  # noqa: S101 -- asked only with a path
        return self.path.with_name(self.path.name + ".models")

    def _read(self, path: Path) -> None:
        try:
            record = json.loads(path.read_text("utf-8"))
            points = [Point.from_dict(one) for one in record["points"]]
            known = record["schema"] == SCHEMA
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{path}: not the state of a frontier; remove it or name another --state"
            ) from error
        if not known:
            raise DataError(f"{path}: its schema is {record['schema']!r}, not {SCHEMA}; name another --state")
        other = [key for key, value in self.about.items() if record["about"].get(key) != value]
        if other:
            raise DataError(
                f"{path} holds points of another run: {', '.join(other)} differ{'s' * (len(other) == 1)}; "
                "remove it or name another --state"
            )
        self.points = {point.key: point for point in points}

    def finished(self, key: str) -> Point | None:
        """Return a finished point whose model is at hand; a failed one is tried again."""
        point = self.points.get(key)
        if point is None or point.status == "failed" or self.model(point) is None:
            return None
        return point

    def add(self, point: Point, model: bytes | None) -> Point:
        """Keep a point: its model first, so that a point on the disk always has one."""
        if model is not None:
            digest = hashlib.sha256(model).hexdigest()
            point = replace(point, sha256=digest)
            if self.path is None:
                self._models[digest] = model
            else:
                write_atomic(self.folder / f"{digest}.onnx", model)
        self.points[point.key] = point
        if self.path is not None:
            record = {
                "schema": SCHEMA,
                "about": self.about,
                "points": [one.to_dict() for one in self.points.values()],
            }
            write_atomic(self.path, json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
        return point

    def model(self, point: Point) -> bytes | None:
        """Return a point's model; None where its file is gone or damaged."""
        if point.sha256 is None:
            return None
        if self.path is None:
            return self._models.get(point.sha256)
        file = self.folder / f"{point.sha256}.onnx"
        content = file.read_bytes() if file.is_file() else None
        return (
            content if content is not None and hashlib.sha256(content).hexdigest() == point.sha256 else None
        )
