"""What all charts share: colours that are readable on light and on dark grounds, and Altair itself.

The charts set no ground and no colour of text: Altair's own themes do, and people's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fairkit.errors import MissingExtraError
from fairkit.support.escaping import visible
from fairkit_cli.pages.charts import DASHES, SHAPES
from fairkit_cli.text.numbers import interval, number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import altair as alt

COLOURS = (
    "#4b7fe0",
    "#d5692a",
    "#149a8a",
    "#c364b8",
    "#93862a",
    "#7a8aa3",
    "#e0604f",
    "#3d9a50",
)
"""Contrast above 3 with white, and with the grounds of dark themes (#333, #1f1f1f, #111)."""
GREY = "#868e96"
BLUE = COLOURS[0]
STATUS = {"no rule": BLUE, "fail": "#e0604f", "inconclusive": "#b07d1a", "pass": "#2f9e44"}
OUTCOME = {
    "not significant": BLUE,
    "worse": "#e0604f",
    "changed": "#b07d1a",
    "better": "#2f9e44",
    "undecided": GREY,
}
LONGEST = 360
"""Pixels of the longest name beside a chart."""


def altair() -> Any:
    """Return the library.

    Raises
    ------
    MissingExtraError
        It is not installed.
    """
    try:
        import altair
    except ImportError as error:
        raise MissingExtraError("Altair", "charts") from error
    return altair


def data_of(records: Sequence[Mapping[str, Any]]) -> alt.Data:
    """Return records as a chart's data; what acts in text is shown, and numbers that are not finite are absent."""
    found: alt.Data = altair().Data(
        values=[{key: _plain(value) for key, value in record.items()} for record in records]
    )
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def ended(value: float | None, pair: tuple[float, float] | None) -> dict[str, Any]:
    """Return a number and its interval as fields: value, low, high, and the interval in words."""
    low, high = pair if pair is not None else (None, None)
    return {"value": value, "low": low, "high": high, "interval": f"{number(value)} {interval(pair)}"}


def named(kinds: Mapping[str, str], present: Sequence[str], alt: Any) -> tuple[Any, Any]:
    """Return the colours and shapes of those that are present, in the order of all."""
    shown = [name for name in kinds if name in present]
    shapes = dict(zip(kinds, SHAPES, strict=False))
    colours = alt.Scale(domain=shown, range=[kinds[name] for name in shown])
    return colours, alt.Scale(domain=shown, range=[shapes[name] for name in shown])


def by_group(names: Sequence[str], alt: Any) -> tuple[Any, Any]:
    """Return colour and dashes of groups, both told by one legend."""
    names = [visible(name) for name in names]
    places = [place % len(COLOURS) for place in range(len(names))]
    legend = alt.Legend(
        title="group", symbolType="stroke", symbolOpacity=1, symbolStrokeWidth=3, symbolSize=400
    )
    colour = alt.Color(
        "group:N",
        legend=legend,
        sort=names,
        scale=alt.Scale(domain=names, range=[COLOURS[place] for place in places]),
    )
    dash = alt.StrokeDash(
        "group:N",
        legend=legend,
        sort=names,
        scale=alt.Scale(domain=names, range=[list(DASHES[place]) for place in places]),
    )
    return colour, dash
