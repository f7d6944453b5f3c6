"""Charts of a page as Altair's, for notebooks: the page's own specifications, which people can change and combine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairkit.errors import DataError, MissingExtraError, did_you_mean
from fairkit.support.escaping import visible
from fairkit_cli.formats import page_of
from fairkit_cli.pages.parts import Chart, Section

if TYPE_CHECKING:
    from fairkit_cli.pages.parts import Part

COLOURS = ("#4b7fe0", "#d5692a", "#149a8a", "#c364b8", "#93862a", "#7a8aa3", "#e0604f", "#3d9a50")
"""Contrast above 3 with white, and with the grounds of dark themes (#333, #1f1f1f, #111)."""
GREY = "#868e96"
STATUS = {"fail": "#e0604f", "inconclusive": "#b07d1a", "pass": "#2f9e44"}
_THEME = {
    **{f"var(--c{place})": colour for place, colour in enumerate(COLOURS, 1)},
    **dict.fromkeys(("var(--ink)", "var(--line)", "var(--grid)", "var(--muted)"), GREY),
    "var(--accent)": COLOURS[0],
    "var(--pass)": STATUS["pass"],
    "var(--fail)": STATUS["fail"],
    "var(--unsure)": STATUS["inconclusive"],
}
"""A page's style sheet knows whether it is dark; these colours are readable on every ground."""
_LINES = {"symbolType": "stroke", "symbolOpacity": 1, "symbolStrokeWidth": 3, "symbolSize": 400}


def chart(result: Any, name: str, of: str | None = None) -> Any:
    """Return the charts of this name on a result's page, of one column or model; several stand below each other."""
    try:
        import altair as alt
    except ImportError as error:
        raise MissingExtraError("Altair", "charts") from error
    charts = list(_charts(page_of(result).parts))
    named = [each for each in charts if each.name == name]
    if not named:
        hint = did_you_mean(name, {each.name for each in charts if each.name}, what="charts")
        raise DataError(f"the page of this result has no chart {name!r}. {hint}")
    chosen = [each for each in named if of in (None, each.of)]
    if not chosen:
        hint = did_you_mean(str(of), {each.of for each in named if each.of}, what=f"{name} charts")
        raise DataError(f"the page has no chart {name!r} of {of!r}. {hint}")
    specs = [(each, spec) for each in chosen if (spec := each.draw(False)) is not None]
    if not specs:
        raise DataError(f"there is nothing to draw: the chart {name!r} is empty")
    drawn = [_chart_of(spec, each.title if len(specs) > 1 else None) for each, spec in specs]
    return drawn[0] if len(drawn) == 1 else alt.vconcat(*drawn).resolve_scale(color="independent", shape="independent")


def _charts(parts: Sequence[Part | None]) -> Iterator[Chart]:
    for part in parts:
        if isinstance(part, Chart):
            yield part
        elif isinstance(part, Section):
            yield from _charts(part.parts)


def _chart_of(spec: Mapping[str, Any], title: str | None) -> Any:
    """Return a specification as Altair's chart, with a legend, tooltips, and colours for every ground."""
    import altair as alt

    themed = _themed({key: value for key, value in spec.items() if key != "padding"})  # charts beside it have none
    drawn = alt.Chart.from_dict(themed if title is None else {**themed, "title": visible(title)})
    layers, specs = getattr(drawn, "layer", ()), themed.get("layer", ())
    for part, source in zip((drawn, *layers), (themed, *specs), strict=True):
        if "data" in source:  # as it stands in the chart, where people change it
            part.data = alt.Data(values=source["data"]["values"])  # type: ignore[no-untyped-call]
    return drawn


def _themed(spec: Any) -> Any:
    if isinstance(spec, Mapping):
        themed = {("tooltip" if key == "description" else key): _themed(value) for key, value in spec.items()}
        if themed.get("legend", "") is None:
            themed["legend"] = _LINES if themed["field"] == "group" else {"symbolOpacity": 1}
        return themed
    if isinstance(spec, list | tuple):
        return [_themed(part) for part in spec]
    return visible(_THEME.get(spec, spec)) if isinstance(spec, str) else spec
