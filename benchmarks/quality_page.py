"""Write the tables of the page "Which method for which goal" from `benchmarks/results/quality.json`.

    python benchmarks/quality_page.py [--results quality.json] [--page docs/reference/methods-measured.md]

What stands in the page before the line `<!-- tables -->` stays.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from quality import CONSTRAINTS, DATA, LIMITS, RESULTS

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "methods-measured.md"
MARK = "<!-- tables: python benchmarks/quality_page.py -->\n"
ORDER = (
    *("unconstrained", "threshold-optimizer", "rto", "error-parity", "fairlearn", "linear-post"),
    *("linear-post, blind", "fairgbm", "exponentiated-gradient", "reject-option"),
    *("reweigh", "disparate-impact-remover", "correlation-remover"),
)
LARGE = ("adult", "acs_income 60000", "acs_income 200000", "credit_default")
SHOWN = {
    "adult": "Adult",
    "acs_income 60000": "ACSIncome, 60,000",
    "acs_income 200000": "ACSIncome, 200,000",
    "credit_default": "credit default",
    "compas": "COMPAS",
    "german": "German",
}
ANCHOR = "error-parity"


def chosen(points, limit):
    """The test accuracy and disparity of the point that validation rows choose under a limit."""
    within = [point for point in points if point[1] <= limit]
    return max(within)[2:] if within else None


def hypervolume(points, floor, most=0.1):
    """The area that test points dominate, of accuracy above `floor` and disparity below `most`; 1 for a perfect one."""
    area, below = 0.0, most
    for accuracy, gap in sorted(((p[2], p[3]) for p in points), reverse=True):
        if gap < below and accuracy > floor:
            area += (below - gap) * (accuracy - floor)
            below = gap
    return area / (most * (1 - floor))


def volume(record):
    return hypervolume(record["points"], record["majority"])


def spread(values):
    """A mean and its standard error over cells, `+0.003 (se 0.001)`."""
    error = np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return np.mean(values), error


def by_key(records):
    return {(r["data"], r["column"], r["constraint"], r["split"], r["method"]): r for r in records}


def pairs(known, method, constraint, data):
    """Both records of every cell that the method and error-parity were measured on, by data set and column."""
    for key, record in known.items():
        other = known.get((*key[:4], ANCHOR))
        if key[4] != method or key[2] not in constraint or key[0] not in data or other is None:
            continue
        if "points" in record and "points" in other:
            yield key[:2], record, other


def paired_table(records):
    """Of each method: volume, and accuracy and disparity at the limits, less error-parity's on the same rows."""
    known = by_key(records)
    lines = [
        "| method | constraint | data | cells | volume | "
        + " | ".join(f"accuracy at <= {limit:.2f}" for limit in LIMITS)
        + " | disparity at <= 0.05 |",
        "| --- |" + " --- |" * (5 + len(LIMITS)),
    ]
    small = tuple(name for name in SHOWN if name not in LARGE)
    for method in ORDER:
        for constraint in CONSTRAINTS:
            for told, data in (("large", LARGE), ("small", small)):
                line = paired_line(list(pairs(known, method, (constraint,), data)))
                if line and method not in (ANCHOR, "unconstrained"):
                    lines.append(f"| {method} | {constraint} | {told} | {line} |")
    return "\n".join(lines)


def paired_line(found):
    if len(found) < 2:
        return None
    cells = [f"{len(found)}", "{:+.3f} (se {:.3f})".format(*spread([volume(a) - volume(b) for _, a, b in found]))]
    disparity = "-"
    for limit in LIMITS:
        both = [(chosen(a["points"], limit), chosen(b["points"], limit)) for _, a, b in found]
        both = [np.subtract(a, b) for a, b in both if a and b]
        if len(both) < 2:
            cells.append("-")
            continue
        mean, error = spread([one[0] for one in both])
        cells.append(f"{mean:+.4f} (se {error:.4f}, {len(both)})")
        if limit == 0.05:
            disparity = f"{np.mean([one[1] for one in both]):+.3f}"
    return " | ".join([*cells, disparity])


def table(records, constraint):
    """Of each data set and column the methods' accuracy (disparity) under every limit."""
    lines = [
        "| data, column | method | " + " | ".join(f"<= {x:.2f}" for x in LIMITS) + " | volume | splits | CPU s |",
        "| --- | --- |" + " --- |" * (len(LIMITS) + 3),
    ]
    keys = dict.fromkeys((data, column) for data in SHOWN for column in columns(records, data))
    for data, column in keys:
        own = [r for r in records if (r["data"], r["column"], r["constraint"]) == (data, column, constraint)]
        for method in ORDER:
            runs = [r for r in own if r["method"] == method]
            if runs:
                lines.append(f"| {SHOWN[data]}, {column} | {method} | {line_of(runs)} |")
    return "\n".join(lines)


def columns(records, data):
    return dict.fromkeys(r["column"] for r in records if r["data"] == data)


def line_of(runs):
    cells = []
    for limit in LIMITS:
        kept = [one for one in (chosen(r["points"], limit) for r in runs if "points" in r) if one]
        told = "-" if not kept else "{:.3f} ({:.3f})".format(*np.mean(kept, axis=0))
        cells.append(told + (f" {len(kept)}/{len(runs)}" if 0 < len(kept) < len(runs) else ""))
    volumes = [volume(r) for r in runs if "points" in r]
    refused = len(runs) - len(volumes)
    told = f"{np.mean(volumes):.3f}" if volumes else "refused"
    seconds = np.mean([r["seconds"] for r in runs])
    return " | ".join(
        [*cells, told, f"{len(runs)}" + (f", {refused} refused" if refused and volumes else ""), f"{seconds:.1f}"]
    )


def body(records):
    parts = ["## Paired to error-parity\n", paired_table(records)]
    for constraint in CONSTRAINTS:
        parts += [f"\n### {constraint}\n", table(records, constraint)]
    return "\n".join(parts) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    given = parser.parse_args()
    records = json.loads(given.results.read_text())
    assert {r["data"].split()[0] for r in records} <= set(DATA)
    before, mark, _ = given.page.read_text("utf-8").partition(MARK)
    if not mark:
        raise SystemExit(f"{given.page} has no line {MARK!r}")
    given.page.write_text(before + mark + "\n" + body(records), "utf-8")


if __name__ == "__main__":
    main()
