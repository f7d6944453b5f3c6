"""Frontiers side by side as an SVG drawing, for the reproduction of a paper's figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

import numpy as np

WIDTH, HEIGHT = 460.0, 320.0
_LEFT, _RIGHT, _TOP, _BOTTOM, _ENTRY = 64.0, 16.0, 34.0, 46.0, 210.0
COLOURS = (
    *("#1b5e9b", "#c0392b", "#2e8b57", "#8e44ad", "#d68910", "#566573", "#16a085"),
    *("#7b241c", "#5dade2", "#b7950b"),
)


class Mark(NamedTuple):
    """A point with intervals: disparity, its limits, loss, its limits, and whether it stands out."""

    x: float
    x_limits: tuple[float, float] | None
    y: float
    y_limits: tuple[float, float] | None
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one method, joined by a line where they are several."""

    name: str
    marks: Sequence[Mark]
    line: bool = True
    dashed: bool = False


def panels(
    drawings: Sequence[tuple[Sequence[Series], str, str, str]], columns: int = 3, *, shared: bool = False
) -> str:
    """Draw several panels (series, title, x, y) side by side; shared: one legend and one colour a name, below."""
    rows = -(-len(drawings) // columns)
    colours: dict[str, str] | None = {} if shared else None
    parts = []
    for place, (series, title, x, y) in enumerate(drawings):
        left, top = (place % columns) * WIDTH, (place // columns) * HEIGHT
        drawn = _panel(series, title, x, y, colours)
        parts.append(f'<g transform="translate({left:g},{top:g})">\n{drawn}</g>\n')
    width, height = WIDTH * min(columns, len(drawings)), HEIGHT * rows
    if colours:
        fit = max(1, int((width - _LEFT) // _ENTRY))
        for place, (name, colour) in enumerate(colours.items()):
            left, top = _LEFT + (place % fit) * _ENTRY, height + 12 + 16 * (place // fit)
            parts.append("\n".join(_entry(name, colour, left, top, "")) + "\n")
        height += 12 + 16 * -(-len(colours) // fit)
    return _document("".join(parts), width, height)


def _document(body: str, width: float, height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" font-family="sans-serif" font-size="11">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}</svg>\n'
    )


class _Axis(NamedTuple):
    low: float
    high: float
    start: float
    length: float

    def place(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * self.length

    def ticks(self) -> list[float]:
        span = self.high - self.low
        step = 10 ** np.floor(np.log10(span / 4))
        step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= 6)
        first = np.ceil(self.low / step)
        return [float(k * step) + 0.0 for k in np.arange(first, np.floor(self.high / step + 1e-9) + 1)]


def _panel(series: Sequence[Series], title: str, x: str, y: str, shared: dict[str, str] | None = None) -> str:
    across = _axis(series, 0, _LEFT, WIDTH - _LEFT - _RIGHT)
    up = _axis(series, 2, HEIGHT - _BOTTOM, -(HEIGHT - _TOP - _BOTTOM))
    out = [f'<text x="{_LEFT:g}" y="18" font-weight="bold">{escape(title)}</text>']
    out += _frame(across, up, x, y)
    colours: dict[str, str] = {} if shared is None else shared
    for one in series:
        # train and test, and a method and its unconstrained start, share a colour
        name = one.name if shared is not None else one.name.split(",")[0]
        colour = colours.setdefault(name, COLOURS[len(colours) % len(COLOURS)])
        out += _series(one, across, up, colour)
    if shared is None:
        out += _legend(series, colours)
    return "\n".join(out) + "\n"


def _axis(series: Sequence[Series], field: int, start: float, length: float) -> _Axis:
    values: list[float] = []
    for one in series:
        for mark in one.marks:
            values += [mark[field], *(mark[field + 1] or ())]  # type: ignore[misc, list-item]
    low, high = min(values), max(values)
    margin = 0.06 * ((high - low) or max(abs(high), 1e-6))
    free = field or low < 0  # disparities begin at 0
    return _Axis(low - margin if low - margin > 0 or free else 0.0, high + margin, start, length)


def _frame(across: _Axis, up: _Axis, x: str, y: str) -> list[str]:
    bottom, top, left, right = HEIGHT - _BOTTOM, _TOP, _LEFT, WIDTH - _RIGHT
    out = [f'<path d="M{left:g} {top:g}V{bottom:g}H{right:g}" fill="none" stroke="#444"/>']
    for tick in across.ticks():
        place = across.place(tick)
        out.append(f'<path d="M{place:.2f} {bottom:g}v4" stroke="#444"/>')
        out.append(f'<text x="{place:.2f}" y="{bottom + 16:g}" text-anchor="middle">{tick:.6g}</text>')
    for tick in up.ticks():
        place = up.place(tick)
        out.append(f'<path d="M{left:g} {place:.2f}h-4" stroke="#444"/>')
        out.append(f'<text x="{left - 7:g}" y="{place + 4:.2f}" text-anchor="end">{tick:.6g}</text>')
    middle = (left + right) / 2
    out.append(f'<text x="{middle:g}" y="{HEIGHT - 10:g}" text-anchor="middle">{escape(x)}</text>')
    turn = f"translate(14,{(top + bottom) / 2:g}) rotate(-90)"
    out.append(f'<text transform="{turn}" text-anchor="middle">{escape(y)}</text>')
    return out


def _series(one: Series, across: _Axis, up: _Axis, colour: str) -> list[str]:
    out = []
    places = [(across.place(mark.x), up.place(mark.y)) for mark in one.marks]
    dash = ' stroke-dasharray="5 3"' if one.dashed else ""
    if one.line and len(places) > 1:
        path = "L".join(f"{a:.2f} {b:.2f}" for a, b in places)
        out.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.5"{dash}/>')
    for mark, (a, b) in zip(one.marks, places, strict=True):
        if mark.x_limits is not None:
            low, high = (across.place(value) for value in mark.x_limits)
            out.append(f'<path d="M{low:.2f} {b:.2f}H{high:.2f}" stroke="{colour}" stroke-opacity=".35"/>')
        if mark.y_limits is not None:
            low, high = (up.place(value) for value in mark.y_limits)
            out.append(f'<path d="M{a:.2f} {low:.2f}V{high:.2f}" stroke="{colour}" stroke-opacity=".35"/>')
        if one.line:
            out.append(f'<circle cx="{a:.2f}" cy="{b:.2f}" r="3" fill="{colour}"/>')
        else:
            out.append(f'<path d="M{a - 4:.2f} {b - 4:.2f}l8 8m0 -8l-8 8" stroke="{colour}" stroke-width="2"/>')
        if mark.chosen:
            out.append(f'<circle cx="{a:.2f}" cy="{b:.2f}" r="7" fill="none" stroke="{colour}"/>')
    return out


def _legend(series: Sequence[Series], colours: Mapping[str, str]) -> list[str]:
    out = []
    for row, one in enumerate(series):
        top = _TOP + 8 + 14 * row
        colour = colours[one.name.split(",")[0]]
        dash = ' stroke-dasharray="5 3"' if one.dashed else ""
        out += _entry(one.name, colour, WIDTH - _RIGHT - 190, top, dash)
    return out


def _entry(name: str, colour: str, left: float, top: float, dash: str) -> list[str]:
    """Draw one line of a legend."""
    return [
        f'<path d="M{left:g} {top:g}h18" stroke="{colour}" stroke-width="2"{dash}/>',
        f'<text x="{left + 24:g}" y="{top + 4:g}">{escape(name)}</text>',
    ]
