"""The section about the models that a method learned in one run along a parameter: the picture, and its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit_cli.html import charts
from fairkit_cli.html.markup import Content, Markup, tag
from fairkit_cli.html.page import figure, section, table
from fairkit_cli.html.svg import draw
from fairkit_cli.text.numbers import interval, number
from fairkit_repair.tradeoff import Tradeoff

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def tradeoff_section(details: Mapping[str, Any]) -> Markup | None:
    """Draw the frontier among a mitigation's details; None where there is none."""
    tradeoff = Tradeoff.read(details.get(Tradeoff.key))
    if tradeoff is None:
        return None
    values = [
        {
            "x": p.x, "x0": p.x_interval[0], "x1": p.x_interval[1], "y": p.y, "y0": p.y_interval[0],
            "y1": p.y_interval[1], "g": "0", "front": False, "picked": p.chosen,
            "tip": f"{p.name}: {tradeoff.y_title} {number(p.y)} {interval(p.y_interval)}, "
            f"{tradeoff.x_title} {number(p.x)} {interval(p.x_interval)}",
        }
        for p in tradeoff.points
    ]  # fmt: skip
    title = f"{tradeoff.y_title} against {tradeoff.x_title}"
    pictures = [
        draw(
            charts.tradeoff(values, tradeoff.x_title, tradeoff.y_title, narrow=narrow),
            title=title,
            class_="narrow" if narrow else "wide",
        )
        for narrow in (False, True)
    ]
    rows: list[Sequence[Content]] = [
        (
            p.name,
            number(p.y),
            interval(p.y_interval),
            number(p.x),
            interval(p.x_interval),
            "chosen" if p.chosen else "",
        )
        for p in tradeoff.points
    ]
    columns = ("model", tradeoff.y_title, "interval", tradeoff.x_title, "interval", "role")
    return section(
        "The frontier of this run",
        tag("p", f"Models learned together, on held-out rows; a {tradeoff.better} {tradeoff.y_title} is better, and so "
        "is a "
            "lower disparity. The ring marks the result."),
        figure(pictures, title, table(columns, rows, numeric={1, 2, 3, 4}, label=title)),
    )  # fmt: skip
