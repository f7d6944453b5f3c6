"""Write the table of methods in docs/reference/measured.md from `benchmarks/results/quality.json`.

    python benchmarks/quality_page.py [--results quality.json] [--page docs/reference/measured.md]

What stands between the page's two marks is replaced.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from quality import CONSTRAINTS, RESULTS

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "measured.md"
MARKS = ("<!-- python benchmarks/quality_page.py -->\n", "<!-- until here -->\n")
ORDER = (
    *("threshold-optimizer", "rto", "fairlearn", "linear-post", "linear-post, blind", "fairgbm"),
    *("exponentiated-gradient", "reject-option", "reweigh", "disparate-impact-remover", "correlation-remover"),
)
SIZES = {"large": ("adult", "acs_income 60000", "acs_income 200000", "credit_default"), "small": ("compas", "german")}
ANCHOR = "error-parity"
LIMIT = 0.05


def chosen(points, limit):
    """The test accuracy and disparity of the point that validation rows choose under a limit."""
    within = [point for point in points if point[1] <= limit]
    return max(within)[2:] if within else None


def cell(records, method, constraint, data):
    """Accuracy at the limit less error-parity's on the same rows, standard error, and cells within it of all."""
    known = {(r["data"], r["column"], r["split"], r["method"]): r for r in records if r["constraint"] == constraint}
    own = [key for key in known if key[0] in data and key[3] == method]
    if not own:
        return "-"
    points = {key: chosen(record.get("points", []), LIMIT) for key, record in known.items()}
    both = [(points[key], points.get((*key[:3], ANCHOR))) for key in own]
    gained = [ours[0] - theirs[0] for ours, theirs in both if ours and theirs]
    share = f"{sum(points[key] is not None for key in own)}/{len(own)}"
    if len(gained) < 2:
        return share
    return f"{np.mean(gained):+.4f} ± {np.std(gained, ddof=1) / len(gained) ** 0.5:.4f}, {share}"


def table(records):
    """A line for each method and size of data: a cell for each constraint, and the median of CPU seconds."""
    lines = ["| method | data | " + " | ".join(CONSTRAINTS) + " | CPU s |", "| --- " * (len(CONSTRAINTS) + 3) + "|"]
    for method in ORDER:
        for size, data in SIZES.items():
            own = [r["seconds"] for r in records if r["method"] == method and r["data"] in data]
            if own:
                cells = " | ".join(cell(records, method, constraint, data) for constraint in CONSTRAINTS)
                lines.append(f"| {method} | {size} | {cells} | {np.median(own):.1f} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    given = parser.parse_args()
    before, first, rest = given.page.read_text("utf-8").partition(MARKS[0])
    _, second, after = rest.partition(MARKS[1])
    if not second:
        raise SystemExit(f"{given.page} has no lines {MARKS!r}")
    made = table(json.loads(given.results.read_text("utf-8")))
    given.page.write_text(f"{before}{first}\n{made}\n{second}{after}", "utf-8")


if __name__ == "__main__":
    main()
