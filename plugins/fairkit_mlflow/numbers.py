"""Findings as the metrics of a tracker: one number under one name."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report

PREFIX = "fairkit"
_ODD = re.compile(r"[^A-Za-z0-9_\-. :/]")
VERDICTS = {"pass": 1.0, "inconclusive": 0.0, "fail": -1.0}


def name_of(finding: Finding) -> str:
    """Return a metric's name: ``fairkit/demographic_parity_difference/sex``; what trackers do not take is a ``_``."""
    parts = [PREFIX, finding.metric, *([finding.place] if finding.place else [])]
    parts += [f"{key} {finding.parameters[key]}" for key in ("class", "epsilon") if key in finding.parameters]
    return "/".join(_ODD.sub("_", part.replace("/", "_").replace("+", " and ")) for part in parts)


def numbers_of(report: Report, *, everything: bool = False) -> dict[str, float]:
    """Return a report's numbers by name.

    Each number has its interval under ``.../low`` and ``.../high``, and what the policy limits also ``.../max`` or
    ``.../min`` and ``.../verdict`` (1 pass, 0 inconclusive, -1 fail); ``fairkit/verdict`` is that of all rules.
    """
    from fairkit.reading import disparities, performance, rule_for

    chosen = report.findings if everything else [*performance(report), *disparities(report)]
    numbers: dict[str, float] = {}
    for finding in chosen:
        name, pair = name_of(finding), finding.interval or (None, None)
        values = {name: finding.value, f"{name}/low": pair[0], f"{name}/high": pair[1]}
        rule = rule_for(report, finding)
        if rule is not None:
            values[f"{name}/{rule.rule.side}"] = rule.limit
            values[f"{name}/verdict"] = VERDICTS[rule.verdict]
        numbers |= {key: float(value) for key, value in values.items() if value is not None and math.isfinite(value)}
    if report.verdict is not None:
        numbers[f"{PREFIX}/verdict"] = VERDICTS[report.verdict]
    return numbers
