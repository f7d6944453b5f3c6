"""The file that keeps the points of a frontier between runs, and is not believed more than it can show."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairkit.errors import DataError
from fairkit.support.escaping import json_text
from fairkit.support.files import check_writable, write_atomic
from fairkit_repair.frontiers.points import Measure, Point

SCHEMA = "fairkit.frontier-state/2"

_NUMBER = {"type": "number", "minimum": -1e300, "maximum": 1e300}
_PAIR = {"type": "array", "prefixItems": [_NUMBER, _NUMBER], "items": False, "minItems": 2}
_MEASURE = {
    "type": "array",
    "prefixItems": [_NUMBER, {"anyOf": [{"type": "null"}, _PAIR]}, {"enum": ["lower", "higher", "none"]}],
    "items": False,
    "minItems": 3,
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
        "schema": {"const": SCHEMA},
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
        from jsonschema import Draft202012Validator

        advice = "remove it or name another `state` file"
        try:
            record = json.loads(path.read_text("utf-8"))
            wrong: Any = next(iter(Draft202012Validator(_FORM).iter_errors(record)), None)
        except (ValueError, RecursionError, OverflowError) as error:
            raise DataError(f"{path}: not the state of a frontier; {advice}") from error
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}") from error
        if wrong is not None:
            where = "/".join(str(part) for part in wrong.absolute_path) or "its top level"
            raise DataError(f"{path}: not the state of a frontier (at {where}); {advice}")
        if record["digest"] != _digest(record):
            raise DataError(f"{path} was changed after fairkit wrote it; {advice}")
        other = [key for key, value in self.about.items() if record["about"].get(key) != value]
        if other:
            raise DataError(
                f"{path} holds points of another run: {', '.join(other)} differ{'s' * (len(other) == 1)}; {advice}"
            )
        points = [Point.from_dict(one) for one in record["points"]]
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
                "schema": SCHEMA,
                "about": self.about,
                "points": [one.to_dict() for one in self.points.values()],
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
    told = [record["schema"], record["about"], record["points"]]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _same(one: Mapping[str, Measure], other: Mapping[str, Measure]) -> bool:
    """Say whether two lots of measures are equal but for the last digits, which may differ between machines."""
    return one.keys() == other.keys() and all(_close(one[name], other[name]) for name in one)


def _close(one: Measure, other: Measure) -> bool:
    pairs = [(one.value, other.value)]
    if one.interval is not None and other.interval is not None:
        pairs += zip(one.interval, other.interval, strict=True)
    equal = all(math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9) for a, b in pairs)
    return equal and one.better == other.better and (one.interval is None) == (other.interval is None)
