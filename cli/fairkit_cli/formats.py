"""Results as text: a screen, a page, a summary; the functions of the entry points ``fairkit.formats``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fairkit.errors import DataError, MissingExtraError, ParameterError, did_you_mean
from fairkit.support.escaping import visible
from fairkit_cli.helping import as_options
from fairkit_cli.pages.parts import Chart, Section

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from fairkit.results.report import Report
    from fairkit.results.rules import RuleResult
    from fairkit_cli.pages.parts import Page, Part


_PAGES = {
    "fairkit.results.report:Report": "report:report_page",
    "fairkit.results.policy:Comparison": "certificates:comparison_page",
    "fairkit.results.findings:Finding": "groups:finding_page",
    "fairkit_registry.evidence.certificate:Certificate": "certificates:single_page",
    "fairkit_repair.frontiers.state:Frontier": "frontier:frontier_page",
    "fairkit_repair.mitigation.run:MitigationResult": "mitigation:mitigation_page",
}
"""By class, the function of a page, imported where there is such a result."""


def page_of(result: Any) -> Page:
    """Return what is shown of a result."""
    for kind in type(result).__mro__:
        place, _, function = _PAGES.get(f"{kind.__module__}:{kind.__name__}", "").partition(":")
        if place:
            page: Page = getattr(import_module(f"fairkit_cli.pages.{place}"), function)(result)
            return page
    raise ParameterError(f"a {type(result).__name__} has no page form")


def text_of(result: Any, output_format: str, terminal: bool) -> str:
    """Return a result in a format: ``table`` for people, ``json``, ``html``, ``markdown`` or ``junit``."""
    if output_format == "json":
        from fairkit_cli.terminal.output import record_text

        return record_text(result.to_dict())
    if output_format == "table":
        return screen(result, terminal=terminal)
    return {"html": html, "markdown": markdown, "junit": junit}[output_format](result)


def screen(result: Any, *, terminal: bool) -> str:
    """Return a result as text, with colours on a terminal."""
    from fairkit_cli.render.text import text_page

    with _as_recorded(result):
        return text_page(page_of(result), terminal=terminal)


def html(result: Any) -> str:
    """Return a result's page."""
    from contextlib import nullcontext

    from fairkit.results.findings import Finding
    from fairkit_cli.render.html import html_page
    from fairkit_cli.render.svg import warm

    with nullcontext() if isinstance(result, Finding) else warm(), _as_recorded(result):  # a finding has no chart
        return html_page(page_of(result))


def markdown(result: Any) -> str:
    """Return a result as Markdown."""
    from fairkit.results.policy import Comparison
    from fairkit.results.report import Report
    from fairkit_cli.render.text import markdown_page

    _of({Report: page_of, Comparison: page_of}, result, "Markdown")
    with _as_recorded(result):
        return markdown_page(page_of(result))


def _as_recorded(result: Any) -> AbstractContextManager[None]:
    from fairkit.reading import as_recorded
    from fairkit.results.report import Report

    return as_recorded(result if isinstance(result, Report) else None)


def junit(result: Any) -> str:
    """Return a report's policy as JUnit XML."""
    from fairkit.results.report import Report

    return str(_of({Report: junit_xml}, result, "JUnit")(result))


def _of(renderers: dict[type[Any], Any], result: Any, form: str) -> Any:
    for kind, render in renderers.items():
        if isinstance(result, kind):
            return render
    raise ParameterError(f"a {type(result).__name__} has no {form} form")


# Charts of a page as Altair's, for notebooks: the page's own specifications, which people can change and combine.


COLOURS = ("#4b7fe0", "#d5692a", "#149a8a", "#c364b8", "#93862a", "#7a8aa3", "#e0604f", "#3d9a50")
"""Contrast above 3 with white, and with the grounds of dark themes (#333, #1f1f1f, #111)."""
GREY = "#868e96"
STATUS = {"fail": "#e0604f", "inconclusive": "#b07d1a", "pass": "#2f9e44"}
_THEME = {
    **{f"var(--c{index})": colour for index, colour in enumerate(COLOURS, 1)},
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


# A report as JUnit XML: each policy rule is a test case.


def junit_xml(report: Report) -> str:
    """Return the XML: a failed rule is a failure, an inconclusive one an error."""
    from xml.etree import ElementTree as ET

    verdicts = [rule.verdict for rule in report.policy]
    suite = ET.Element(
        "testsuite",
        name=visible(f"fairkit policy on {report.model.name}"),
        tests=str(len(verdicts)),
        failures=str(verdicts.count("fail")),
        errors=str(verdicts.count("inconclusive")),
    )
    for rule in report.policy:
        _case(suite, rule)
    ET.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"


def _case(suite: Any, rule: RuleResult) -> None:
    from xml.etree.ElementTree import SubElement

    limit = rule.rule.say()
    where, metric, reason = (visible(text) for text in (rule.place or "all", rule.metric, as_options(rule.reason)))
    case = SubElement(suite, "testcase", classname=f"fairkit.{where}", name=f"{metric} {limit}")
    if rule.verdict == "fail":
        SubElement(case, "failure", message=reason, type="policy")
    elif rule.verdict == "inconclusive":
        SubElement(case, "error", message=reason, type="inconclusive")
    else:
        SubElement(case, "system-out").text = reason
