"""The frontier as an SVG drawing, without a drawing library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

WIDTH, HEIGHT = 520.0, 340.0
LEFT, RIGHT, TOP, BOTTOM = 66.0, 20.0, 36.0, 50.0
COLOURS = {"train": "#8a8a8a", "test": "#1b5e9b"}


def draw_frontier(frontier: Mapping[str, Any]) -> str:
    """Draw performance against disparity (logarithmic), one point for each ρ with its intervals.

    Parameters
    ----------
    frontier
        As `Frontier.to_dict` gives it.

    Returns
    -------
    str
        SVG; the same bytes for the same frontier.
    """
    drawn = [
        (part, [(point["rho"], point[part]) for point in frontier["points"] if point[part]])
        for part in ("train", "test")
    ]
    parts = [(part, points) for part, points in drawn if points]
    every = [found for _, points in parts for _, found in points]
    positive = [value for found in every for value in (found["disparity"], *found["disparity_interval"])]
    floor = min((value for value in positive if value > 0), default=1e-6) / 1.5
    across = _Axis(math.log10(floor), math.log10(max(*positive, 2 * floor) * 1.5), LEFT, WIDTH - RIGHT)
    heights = [value for found in every for value in found["performance_interval"]]
    margin = 0.08 * (max(heights) - min(heights) or 0.01)
    up = _Axis(min(heights) - margin, max(heights) + margin, HEIGHT - BOTTOM, TOP)
    names = {"dif": "distributional unfairness R(ε)", "counterfactual": "mean d_Y to counterfactuals"}
    out = [f'<text x="{LEFT:g}" y="20" font-weight="bold">Performance against disparity, by rho</text>']
    out += _frame(
        across, up, names[frontier["disparity"]], frontier["performance"].replace("_", " ").capitalize()
    )
    for row, (part, points) in enumerate(parts):
        out += _points(part, points, across, up, floor, frontier["chosen"])
        at = TOP + 6 + 16 * row
        out.append(f'<circle cx="{WIDTH - 92:g}" cy="{at:g}" r="3.5" fill="{COLOURS[part]}"/>')
        shown = {"train": "training rows", "test": "held-out rows"}[part]
        out.append(f'<text x="{WIDTH - 84:g}" y="{at + 4:g}">{shown}</text>')
    body = "\n".join(out)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH:g}" height="{HEIGHT:g}" '
        f'viewBox="0 0 {WIDTH:g} {HEIGHT:g}" font-family="sans-serif" font-size="11">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


class _Axis:
    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low, self.high, self.start, self.end = low, high, start, end

    def place(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def _points(
    part: str,
    points: Sequence[tuple[float, Mapping[str, Any]]],
    across: _Axis,
    up: _Axis,
    floor: float,
    chosen: float,
) -> list[str]:
    def x(value: float) -> float:
        return across.place(math.log10(max(value, floor)))

    colour, out = COLOURS[part], []
    places = [(x(found["disparity"]), up.place(found["performance"])) for _, found in points]
    path = "L".join(f"{a:.2f} {b:.2f}" for a, b in places)
    dash = ' stroke-dasharray="4 3"' if part == "train" else ""
    out.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.3"{dash}/>')
    for (rho, found), (a, b) in zip(points, places, strict=True):
        left, right = (x(value) for value in found["disparity_interval"])
        low, high = (up.place(value) for value in found["performance_interval"])
        out.append(
            f'<path d="M{left:.2f} {b:.2f}H{right:.2f}M{a:.2f} {low:.2f}V{high:.2f}" '
            f'stroke="{colour}" stroke-opacity=".4"/>'
        )
        out.append(f'<circle cx="{a:.2f}" cy="{b:.2f}" r="3.5" fill="{colour}"/>')
        if rho == chosen:
            out.append(f'<circle cx="{a:.2f}" cy="{b:.2f}" r="7.5" fill="none" stroke="{colour}"/>')
        if part == "test" or len(points) == 1:
            out.append(f'<text x="{a + 8:.2f}" y="{b + 14:.2f}" fill="{colour}">rho = {rho:g}</text>')
    return out


def _frame(across: _Axis, up: _Axis, x: str, y: str) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    out = [f'<path d="M{LEFT:g} {TOP:g}V{bottom:g}H{right:g}" fill="none" stroke="#444"/>']
    for power in range(math.ceil(across.low), math.floor(across.high) + 1):
        place = across.place(power)
        out.append(f'<path d="M{place:.2f} {bottom:g}v4" stroke="#444"/>')
        out.append(f'<text x="{place:.2f}" y="{bottom + 16:g}" text-anchor="middle">{10.0**power:g}</text>')
    step = 10 ** math.floor(math.log10((up.high - up.low) / 3))
    step *= next(factor for factor in (1, 2, 5, 10) if (up.high - up.low) / (step * factor) <= 6)
    for count in range(math.ceil(up.low / step), math.floor(up.high / step) + 1):
        place = up.place(count * step)
        out.append(f'<path d="M{LEFT:g} {place:.2f}h-4" stroke="#444"/>')
        out.append(f'<text x="{LEFT - 7:g}" y="{place + 4:.2f}" text-anchor="end">{count * step:.4g}</text>')
    out.append(f'<text x="{(LEFT + right) / 2:g}" y="{HEIGHT - 12:g}" text-anchor="middle">{x}</text>')
    turn = f"translate(16,{(TOP + bottom) / 2:g}) rotate(-90)"
    out.append(f'<text transform="{turn}" text-anchor="middle">{y}</text>')
    return out
