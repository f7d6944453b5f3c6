"""Random tables of counts through the audit's own arithmetic and through the page's: the largest difference of each."""

from __future__ import annotations

import json
import math
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fairkit import intervals
from fairkit.metrics import Estimate
from fairkit.results.rules import Rule
from fairkit_group.between import odds
from fairkit_group.references import Compared, Reference

JUDGED = ("difference", "ratio", "largest", "smallest", "odds", "odds_ratio", "gap_rms")
VERDICTS = {True: 1.0, None: 0.0, False: -1.0}
"""An interval keeps a limit, contains it, or breaks it."""
NODE = shutil.which("node")
SCRIPT = Path(__file__).parent / "tables.mjs"


def tables(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield tables: few rows, many rows, empty and full cells, groups of similar size, extreme rates."""
    rng = random.Random(seed)
    for _ in range(count):
        groups, size = rng.choice([2, 2, 2, 3, 4, 5, 8]), rng.choice([5, 50, 500, 5_000, 100_000])
        even = rng.random() < 0.7

        def column(groups: int = groups, size: int = size, even: bool = even) -> tuple[list[int], list[int]]:
            rows = [max(1, int(size * rng.uniform(0.7, 1.3))) if even else rng.randint(1, size) for _ in range(groups)]
            rate = rng.choice([rng.random(), rng.random() ** 3, 1 - rng.random() ** 3])
            return [min(n, max(0, round(n * rate * rng.uniform(0.7, 1.3)))) for n in rows], rows

        counts, rows = column()
        others, over = column()
        yield {
            "counts": counts,
            "rows": rows,
            "others": others,
            "over": over,
            "confidence": rng.choice([0.95, 0.95, 0.9, 0.99]),
            "place": rng.randrange(groups),
            # not a round number: an end that is the limit itself falls on either side by its last digit, and pages judge
            # by the interval that was signed
            "limit": rng.choice([0.05, 0.1, 0.2, 0.8, rng.random()]) + rng.random() / 1_000,
        }


def audited(table: dict[str, Any]) -> dict[str, Any]:
    """Return what the audit's own arithmetic says of a table."""
    confidence = table["confidence"]

    def estimate(counts: list[int], rows: list[int]) -> Estimate:
        over = np.array(rows, dtype=float)
        values = np.array(counts) / over
        return Estimate(values, lambda z: intervals.share_limits(values, over, z), over)

    first, second = estimate(table["counts"], table["rows"]), estimate(table["others"], table["over"])
    low, high = first.limits(intervals.two_sided(confidence))

    def flat(spread: intervals.Spread) -> list[float] | None:
        return None if math.isnan(spread.value) else [spread.value, spread.low, spread.high]

    def against(kind: str, *, chosen: bool) -> list[list[float]]:
        others = tuple(g for g in range(len(first.values)) if g != table["place"])
        compared = Compared(first, Reference(table["place"], chosen=chosen), others, kind)
        ends = compared.limits(confidence)
        return [[float(v), float(lo), float(hi)] for v, lo, hi in zip(compared.values, *ends, strict=True)]

    both = {one.metric: one.spread for one in odds(first, second)}
    numbers = {
        "limits": [[float(lo), float(hi)] for lo, hi in zip(low, high, strict=True)],
        "difference": flat(intervals.spread_difference(first.values, first.limits, confidence)),
        "ratio": flat(intervals.spread_ratio(first.values, first.limits, confidence)),
        "largest": flat(intervals.extreme(first.values, first.limits, confidence, largest=True)),
        "smallest": flat(intervals.extreme(first.values, first.limits, confidence, largest=False)),
        "odds": flat(both["equalized_odds_difference"](confidence)),
        "odds_ratio": flat(both["equalized_odds_ratio"](confidence)),
        "gap_rms": flat(both["gap_rms"](confidence)),
        "against": [against(kind, chosen=False) for kind in ("difference", "ratio")],
        "chosen": against("difference", chosen=True),
    }
    rules = [Rule("any", max=table["limit"]), Rule("any", min=table["limit"])]
    judged: list[Any] = [numbers[name] for name in JUDGED]
    verdicts = [one and [VERDICTS[rule.settled((one[1], one[2]))] for rule in rules] for one in judged]
    return {**numbers, "verdicts": verdicts}


def apart(one: Any, other: Any) -> float:
    """Return the largest difference between two results of one shape, relative where they are above 1."""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return max((apart(a, b) for a, b in zip(one, other, strict=True)), default=0.0)
    if one is None and other is None:
        return 0.0
    known = [math.nan if value is None else float(value) for value in (one, other)]  # JSON writes NaN and ∞ as null
    if not any(map(math.isfinite, known)):
        return 0.0
    return abs(known[0] - known[1]) / max(1.0, abs(known[0])) if all(map(math.isfinite, known)) else math.inf


def differences(count: int, seed: int) -> dict[str, tuple[float, dict[str, Any]]]:
    """Return for each number the largest difference over so many tables, and the table."""
    made = list(tables(count, seed))
    lines = "".join(json.dumps(one) + "\n" for one in made)
    run = subprocess.run([str(NODE), str(SCRIPT)], input=lines, capture_output=True, text=True, check=True)
    worst: dict[str, tuple[float, dict[str, Any]]] = {}
    for table, line in zip(made, run.stdout.splitlines(), strict=True):
        page = json.loads(line)
        for name, value in audited(table).items():
            found = apart(value, page[name])
            if found >= worst.get(name, (-1.0, {}))[0]:
                worst[name] = (found, table)
    return worst
