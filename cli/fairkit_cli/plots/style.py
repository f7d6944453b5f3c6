"""What all charts share: colours that are readable on light and on dark grounds, and Altair itself.

The charts set no ground and no colour of text: Altair's own themes do, and people's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairkit.errors import MissingExtraError
from fairkit.support.escaping import visible
from fairkit_cli.text.numbers import interval, number

if TYPE_CHECKING:
    import altair as alt

COLOURS = ("#4b7fe0", "#d5692a", "#149a8a", "#c364b8", "#93862a", "#7a8aa3", "#e0604f", "#3d9a50")
"""Contrast above 3 with white, and with the grounds of dark themes (#333, #1f1f1f, #111)."""
GREY = "#868e96"
BLUE = COLOURS[0]
STATUS = {"fail": "#e0604f", "inconclusive": "#b07d1a", "pass": "#2f9e44"}
LONGEST = 360
"""Pixels of the longest name beside a chart."""


def altair() -> Any:
    """Return the library."""
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


_THEME = {
    **{f"var(--c{place})": colour for place, colour in enumerate(COLOURS, 1)},
    **dict.fromkeys(("var(--ink)", "var(--line)", "var(--grid)", "var(--muted)"), GREY),
    "var(--accent)": BLUE,
    "var(--pass)": STATUS["pass"],
    "var(--fail)": STATUS["fail"],
    "var(--unsure)": STATUS["inconclusive"],
}
"""The colours of a page, whose style sheet knows whether it is dark, as those that stand out from every ground."""
_LINES = {"symbolType": "stroke", "symbolOpacity": 1, "symbolStrokeWidth": 3, "symbolSize": 400}


def chart_of(spec: Mapping[str, Any], **size: int) -> Any:
    """Return a page's chart as Altair's: with a legend of its own, tooltips, and colours for every ground."""
    alt = altair()
    themed = _themed({key: value for key, value in spec.items() if key != "padding"})  # charts beside it have none
    chart = alt.Chart.from_dict({**themed, **size})
    for part, own in zip((chart, *chart.layer), (themed, *themed["layer"]), strict=True):
        if "data" in own:  # as it stands in the chart, where people change it
            part.data = alt.Data(values=own["data"]["values"])
    return chart


def _themed(spec: Any) -> Any:
    if isinstance(spec, Mapping):
        themed = {("tooltip" if key == "description" else key): _themed(value) for key, value in spec.items()}
        if themed.get("legend", "") is None:
            themed["legend"] = _LINES if themed["field"] == "group" else {"symbolOpacity": 1}
        return themed
    if isinstance(spec, list | tuple):
        return [_themed(part) for part in spec]
    return _plain(_THEME.get(spec, spec) if isinstance(spec, str) else spec)
