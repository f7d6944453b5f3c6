"""What our own plugins declare about metrics and auditors, as a table: who checks a certificate loads no plugin.

`collected` reads the plugins themselves; `docs/make.py` writes the table from it, and a test compares the two.
"""

from __future__ import annotations

import functools
import json
import math
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from fairkit.metrics import Metric
    from fairkit.plugins import Plugin

GROUP = "group"
"""The auditor of all group metrics, those of other plugins included."""

FILE = "declared.json"


class MetricRange(NamedTuple):
    """A metric's range and direction, and the field's own names for what is made of it."""

    low: float
    high: float
    better: str
    alias: str = ""


@functools.cache
def _table() -> dict[str, Any]:
    text = resources.files(__package__).joinpath(FILE).read_text("utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


def metrics() -> dict[str, MetricRange]:
    """Return the metrics of a group by name: ours, and those of other plugins where there are any."""
    ours = {
        name: MetricRange(*_finite(record["range"]), record["better"], record["alias"])
        for name, record in _table()["metrics"].items()
    }
    others = {metric.name: _range(metric) for plugin in third_party() for metric in plugin.metrics}
    return others | ours


def _finite(ends: list[float | None]) -> tuple[float, float]:
    low, high = ends
    return -math.inf if low is None else low, math.inf if high is None else high


def _range(metric: type[Metric]) -> MetricRange:
    return MetricRange(*metric.range, metric.better, metric.alias or "")


def third_party() -> list[Plugin]:
    """Return the plugins that others installed; none in the small verifier, which has no plugins."""
    try:
        from fairkit import plugins
    except ImportError:
        return []
    return plugins.third_party()[0]


def headlines(auditor: str) -> frozenset[str]:
    """Return the metrics that one of our auditors, other than `group`, alone states; empty for others' auditors."""
    return frozenset(_table()["auditors"].get(auditor, {}).get("headlines", ()))


@functools.cache
def owners() -> dict[str, str]:
    """Return who states the findings of our auditors other than `group`, by the finding's name; nobody else may."""
    return {name: auditor for auditor, one in _table()["auditors"].items() for name in one["measures"]}


def default(auditor: str, parameter: str) -> Any:
    """Return the default of an auditor's parameter; None where the auditor is not installed."""
    record = _table()["auditors"].get(auditor)
    if record is not None:
        return record["defaults"].get(parameter)
    for plugin in third_party():
        for cls in plugin.auditors:
            if cls.name == auditor:
                return _defaults(cls.Parameters).get(parameter)
    return None


def collected() -> dict[str, Any]:
    """Return the table as our plugins declare it; this loads all of them that have an auditor."""
    from fairkit import plugins
    from fairkit.errors import FairkitError

    loaded = []
    for each in plugins.find():
        if each.built_in:
            try:
                loaded.append(plugins.load(each.name))
            except FairkitError:
                continue
    group = next(plugin for plugin in loaded if plugin.found.name == GROUP)
    auditors = {cls.name: cls for plugin in loaded for cls in plugin.auditors}
    return {
        "metrics": {metric.name: _record(metric) for metric in plugins.metrics_of([group])[0]},
        "auditors": {name: _auditor(cls) for name, cls in sorted(auditors.items())},
    }


def _record(metric: type[Metric]) -> dict[str, Any]:
    low, high = metric.range
    ends = [low if math.isfinite(low) else None, high if math.isfinite(high) else None]
    return {"range": ends, "better": metric.better, "alias": metric.alias or ""}


def _auditor(cls: Any) -> dict[str, Any]:
    return {
        "headlines": [] if cls.name == GROUP else sorted(cls.headlines),
        "measures": [] if cls.name == GROUP else sorted(cls.measures(()) or ()),
        "defaults": _defaults(cls.Parameters),
    }


def _defaults(parameters: type) -> dict[str, Any]:
    import dataclasses

    given = {each.name: each.default for each in dataclasses.fields(parameters)}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in given.items()
        if value is not dataclasses.MISSING
    }


def written() -> str:
    """Return the table's text."""
    return json.dumps(collected(), indent=1, ensure_ascii=False) + "\n"
