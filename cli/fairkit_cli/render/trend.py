"""A number over versions, with intervals and the policy's limit: an SVG that is quick to make for many pages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairkit_cli.render.markup import Markup, tag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_COLOURS = {"pass": "var(--pass)", "fail": "var(--fail)", "inconclusive": "var(--unsure)", "none": "var(--accent)"}
_MARKS = {
    "pass": "M-4.5,0a4.5,4.5 0 1,0 9,0a4.5,4.5 0 1,0 -9,0",
    "fail": "M-4,-4h8v8h-8z",
    "inconclusive": "M0,-5.5L5.5,0L0,5.5L-5.5,0z",
    "none": "M-4.5,0a4.5,4.5 0 1,0 9,0a4.5,4.5 0 1,0 -9,0",
}
_TOP, _BOTTOM, _LEFT, _RIGHT = 12, 34, 52, 14
_TICKS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A version's number: its name on the axis, value, interval, verdict of the rule about it, and words for it."""

    name: str
    value: float
    interval: tuple[float, float] | None
    status: str
    tip: str


def trend(
    points: Sequence[Point], limits: Sequence[float], *, title: str, width: int, height: int = 220, class_: str
) -> Markup:
    """Draw points with intervals from the oldest to the newest; a mark has the shape and the colour of its verdict."""
    ends = [end for one in points for end in (one.value, *(one.interval or ())) if math.isfinite(end)]
    low, high = _range([*ends, *limits])
    inner = width - _LEFT - _RIGHT

    def x(place: int) -> float:
        return _LEFT + inner * (place + 0.5) / len(points)

    def y(value: float) -> float:
        value = min(max(value, low), high)
        return _TOP + (height - _TOP - _BOTTOM) * (high - value) / (high - low)

    drawn: list[Markup] = [*_grid(low, high, y, width)]
    drawn += [
        tag(
            "line", x1=str(_LEFT), x2=str(width - _RIGHT), y1=_px(y(limit)), y2=_px(y(limit)), stroke="var(--ink)",
            stroke_width="1.5", stroke_dasharray="6 3",
        )
        for limit in dict.fromkeys(limits)
    ]  # fmt: skip
    every = max(1, math.ceil(len(points) * 44 / inner))
    for index, point in enumerate(points):
        at, colour = x(index), _COLOURS[point.status]
        if point.interval is not None:
            bounds = [y(end) for end in point.interval]
            drawn.append(
                tag(
                    "line", x1=_px(at), x2=_px(at), y1=_px(bounds[0]), y2=_px(bounds[1]), stroke=colour,
                    stroke_width="2.5", stroke_opacity="0.7",
                )
            )  # fmt: skip
        moved = f"translate({_px(at)},{_px(y(point.value))})"
        drawn.append(tag("path", d=_MARKS[point.status], transform=moved, fill=colour, data_tip=point.tip))
        if (len(points) - 1 - index) % every == 0:
            drawn.append(_text(point.name, at, height - _BOTTOM + 18, "middle"))
    return tag(
        "svg", drawn, viewBox=f"0 0 {width} {height}", role="img", tabindex="0", aria_label=title,
        style=f"max-width:{width}px", class_=f"chart {class_}",
    )  # fmt: skip


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of the axis: 0 among them, and some room."""
    low, high = min(0.0, *values), max(0.0, *values)
    room = (high - low or 1.0) * 0.05
    return (low - room if low < 0 else 0.0), high + room


def _grid(low: float, high: float, y: Callable[[float], float], width: int) -> Iterator[Markup]:
    step = _step((high - low) / _TICKS)
    tick = math.ceil(low / step)
    while tick * step <= high:
        value = tick * step
        at = y(value)
        line = "var(--line)" if tick == 0 else "var(--grid)"
        yield tag("line", x1=str(_LEFT), x2=str(width - _RIGHT), y1=_px(at), y2=_px(at), stroke=line)
        yield _text(f"{value:g}", _LEFT - 8, at + 4, "end")
        tick += 1


def _step(least: float) -> float:
    """Return the next of 1, 2, 5 times a power of ten."""
    power: float = 10 ** math.floor(math.log10(least))
    return next(float(f"{one * power:.3g}") for one in (1, 2, 5, 10) if one * power >= least * 0.999)


def _text(text: str, x: float, y: float, anchor: str) -> Markup:
    return tag("text", text, x=_px(x), y=_px(y), text_anchor=anchor, fill="var(--muted)")


def _px(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
