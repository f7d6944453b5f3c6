"""The file that keeps the points of a frontier between runs, and is not believed more than it can show."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from fairkit.errors import DataError
from fairkit.results.rendering import Saved, Tabular, ends, plotted
from fairkit.support.escaping import json_text
from fairkit.support.files import check_writable, mistakes, write_atomic
from fairkit.support.lazy_dataclass import dataclass, field, replace

if TYPE_CHECKING:
    from fairkit.results.findings import Better, Interval, VerdictName
    from fairkit.results.policy import Change
    from fairkit.results.report import Report


STATE_SCHEMA = "fairkit.frontier-state/2"

_NUMBER = {"type": "number", "minimum": -1e300, "maximum": 1e300}
_PAIR = {"type": "array", "prefixItems": [_NUMBER, _NUMBER], "minItems": 2, "maxItems": 2}
_MEASURE = {
    "type": "array",
    "prefixItems": [_NUMBER, {"anyOf": [{"type": "null"}, _PAIR]}, {"enum": ["lower", "higher", "none"]}],
    "minItems": 3,
    "maxItems": 3,
}
_POINT = {
    "type": "object",
    "properties": {
        "plugin": {"type": "string"},
        "parameters": {"type": "object"},
        "status": {"enum": ["done", "failed"]},
        "error": {"type": "string"},
        "measures": {"type": "object", "additionalProperties": _MEASURE},
        "sha256": {"anyOf": [{"type": "null"}, {"type": "string", "pattern": "^[0-9a-f]{64}$"}]},
        "seconds": {**_NUMBER, "minimum": 0},
        "family": {"type": "string"},
    },
    "required": ["plugin", "parameters", "status", "error", "measures", "sha256", "seconds", "family"],
    "additionalProperties": False,
}
_FORM = {
    "type": "object",
    "properties": {
        "schema": {"const": STATE_SCHEMA},
        "about": {"type": "object"},
        "points": {"type": "array", "items": _POINT},
        "digest": {"type": "string"},
    },
    "required": ["schema", "about", "points", "digest"],
    "additionalProperties": False,
}


class State:
    """Finished points and their models on the disk, so that an interrupted run goes on where it was."""

    def __init__(self, path: Path | None, about: Mapping[str, Any]) -> None:
        self.path, self.about = path, dict(about)
        self.points: dict[str, Point] = {}
        self._models: dict[str, bytes] = {}
        self._unchecked: set[str] = set()
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
        advice = "remove it or name another `state` file"
        try:
            record = json.loads(path.read_text("utf-8"))
            wrong = next(mistakes(record, _FORM), None)
        except (ValueError, RecursionError, OverflowError) as error:
            raise DataError(f"{path}: not the state of a frontier; {advice}") from error
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}") from error
        if wrong is not None:
            where = "/".join(map(str, wrong[0])) or "its top level"
            raise DataError(f"{path}: not the state of a frontier (at {where}); {advice}")
        if record["digest"] != _digest(record):
            raise DataError(f"{path} was changed after fairkit wrote it; {advice}")
        differing = [key for key, value in self.about.items() if record["about"].get(key) != value]
        if differing:
            raise DataError(
                f"{path} holds points of another run: {', '.join(differing)} differ{'s' * (len(differing) == 1)}; "
                f"{advice}"
            )
        points = [Point.from_dict(entry) for entry in record["points"]]
        self.points = {point.key: point for point in points}
        self._unchecked = set(self.points)

    def finished(self, key: str) -> Point | None:
        """Return a finished point whose model is at hand; a failed one is tried again."""
        point = self.points.get(key)
        if point is None or point.status == "failed" or self.model(point) is None:
            return None
        return point

    def confirm(self, key: str, measure: Callable[[bytes], Mapping[str, Measure]]) -> None:
        """Measure the model of a point that was read from the disk again, once: a file can be forged."""
        point = self.points[key]
        model = self.model(point)
        if key not in self._unchecked or model is None:
            return
        if not _same(point.measures, measure(model)):
            raise DataError(
                f"{self.path}: the measures of {point.name} are not those of its model; somebody changed the file or "
                "the model. Remove it or name another `state` file"
            )
        self._unchecked.discard(key)

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
        self._unchecked.discard(point.key)
        if self.path is not None:
            record: dict[str, Any] = {
                "schema": STATE_SCHEMA,
                "about": self.about,
                "points": [point.to_dict() for point in self.points.values()],
            }
            record["digest"] = _digest(record)
            write_atomic(self.path, json_text(record, indent=1) + "\n")
        return point

    def model(self, point: Point) -> bytes | None:
        """Return a point's model; None where its file is gone or damaged."""
        if point.sha256 is None:
            return None
        if self.path is None:
            return self._models.get(point.sha256)
        file = self.folder / f"{point.sha256}.onnx"
        content = file.read_bytes() if file.is_file() else None
        return content if content is not None and hashlib.sha256(content).hexdigest() == point.sha256 else None


def _digest(record: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what the file says, its own digest apart."""
    content = [record["schema"], record["about"], record["points"]]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _same(one: Mapping[str, Measure], other: Mapping[str, Measure]) -> bool:
    """Say whether two lots of measures are equal but for the last digits, which may differ between machines."""
    return one.keys() == other.keys() and all(_close(one[name], other[name]) for name in one)


def _close(one: Measure, other: Measure) -> bool:
    pairs = [(one.value, other.value)]
    if one.interval is not None and other.interval is not None:
        pairs += zip(one.interval, other.interval, strict=True)
    equal = all(math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9) for a, b in pairs)
    return equal and one.better == other.better and (one.interval is None) == (other.interval is None)


# What a frontier is: all points, the front among them, and the chosen one on test rows.


RECORD_SCHEMA = "fairkit.frontier/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier(Tabular, Saved):
    """All points with the front among them, and the chosen one on test rows."""

    performance: str  # the name of the vertical axis, such as `accuracy`
    disparity: str  # of the horizontal one, such as `demographic_parity_difference:sex`
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
        repeats = [
            {"point": index, "disparity": [x for x, _ in values], "performance": [y for _, y in values]}
            for index, values in self.repeats.items()
        ]
        return {
            "schema": RECORD_SCHEMA,
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
        } | ({"repeats": repeats} if repeats else {})


# The points of a frontier: what each tried, and what came out.


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A number with its interval, and which direction is better."""

    value: float
    interval: Interval | None
    better: Better


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One training."""

    plugin: str  # `baseline` is the learner without mitigation
    parameters: Mapping[str, Any]  # what it was given
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
            name: [measure.value, None if measure.interval is None else list(measure.interval), measure.better]
            for name, measure in self.measures.items()
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
    parts: list[Any] = [plugin, plain, family] if family else [plugin, plain]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def measures_of(report: Report) -> dict[str, Measure]:
    """Keep of a report what a frontier may draw or pick by."""
    return {
        finding.metric if finding.sensitive is None else f"{finding.metric}:{finding.place}": Measure(
            value=finding.value, interval=finding.interval, better=finding.better
        )
        for finding in report.findings
        if finding.value is not None and "class" not in finding.parameters
    }
