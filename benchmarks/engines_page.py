"""Draw docs/images/engines.svg and print the table of docs/reference/measured.md from results/engines.json.

    python benchmarks/engines_page.py

Needs matplotlib.
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "engines.json"
PICTURE = HERE.parent / "docs" / "images" / "engines.svg"
COLOURS = {"fairkit": "#2456c7", "DuckDB": "#0f766e", "Polars": "#7c3aed", "MetricFrame": "#c2410c"}
STYLES = {"counted": "--", "scores": ":"}


def table(runs: list[dict[str, float | str]]) -> str:
    """Return CPU seconds, and the peak of memory at the largest number of rows, by engine and rows."""
    rows = sorted({int(run["rows"]) for run in runs})
    lines = ["| engine | " + " | ".join(f"10{'⁰¹²³⁴⁵⁶⁷⁸⁹'[len(str(n)) - 1]}" for n in rows) + " | MiB |"]
    lines.append("| --- " * (len(rows) + 2) + "|")
    for engine in dict.fromkeys(str(run["engine"]) for run in runs):
        own = {int(run["rows"]): run for run in runs if run["engine"] == engine}
        cells = [f"{own[n]['cpu']:.2f}" if n in own else "" for n in rows]
        lines.append(f"| {engine} | {' | '.join(cells)} | {own[max(own)]['peak']:.0f} |")
    return "\n".join(lines)


def draw(runs: list[dict[str, float | str]]) -> None:
    """Draw CPU seconds against rows, both as logarithms."""
    mpl.rcParams.update({"svg.hashsalt": "fairkit", "font.family": "DejaVu Sans", "svg.fonttype": "path"})
    figure, axes = plt.subplots(figsize=(9.2, 3.8), constrained_layout=True)
    for engine in dict.fromkeys(str(run["engine"]) for run in runs):
        own = sorted((int(run["rows"]), float(run["cpu"])) for run in runs if run["engine"] == engine)
        colour = next(shade for name, shade in COLOURS.items() if engine.startswith(name))
        style = next((line for word, line in STYLES.items() if word in engine), "-")
        axes.loglog(*zip(*own, strict=True), style, color=colour, marker="o", ms=4, lw=1.6, label=engine)
    axes.set(xlabel="rows", ylabel="CPU seconds, from start to end", title="Rates by ten groups from one Parquet file")
    axes.title.set_fontsize(10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.savefig(PICTURE, metadata={"Date": None})


def main() -> None:
    """Draw and print."""
    runs = json.loads(RESULTS.read_text("utf-8"))["runs"]
    draw(runs)
    print(table(runs))


if __name__ == "__main__":
    main()
