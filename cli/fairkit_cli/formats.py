"""Results as text: a screen, a page, a summary; the functions of the entry points ``fairkit.formats``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from fairkit_cli.pages.parts import Page


def page_of(result: Any) -> Page:
    """Return what is shown of a result."""
    from fairkit.results.comparisons import Comparison
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report
    from fairkit_cli.pages.comparison import comparison_page
    from fairkit_cli.pages.finding import finding_page
    from fairkit_cli.pages.report import report_page

    pages: dict[type[Any], Callable[[Any], Page]] = {
        Report: report_page,
        Comparison: comparison_page,
        Finding: finding_page,
    }
    kind = type(result).__name__
    if kind == "Certificate":  # the registry, and what repairs, are loaded where there is such a result
        from fairkit_cli.pages.certificates import single_page
        from fairkit_registry.evidence.certificate import Certificate

        pages[Certificate] = single_page
    if kind == "Frontier":
        from fairkit_cli.pages.frontier import frontier_page
        from fairkit_repair.frontiers.record import Frontier

        pages[Frontier] = frontier_page
    if kind == "MitigationResult":
        from fairkit_cli.pages.mitigation import mitigation_page
        from fairkit_repair.mitigation.run import MitigationResult

        pages[MitigationResult] = mitigation_page
    page: Callable[[Any], Page] = _of(pages, result, "page")
    return page(result)


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
    from fairkit.results.comparisons import Comparison
    from fairkit.results.report import Report
    from fairkit_cli.render.markdown import markdown_page

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
    from fairkit_cli.junit import junit as junit_of

    return str(_of({Report: junit_of}, result, "JUnit")(result))


def _of(renderers: dict[type[Any], Any], result: Any, form: str) -> Any:
    for kind, render in renderers.items():
        if isinstance(result, kind):
            return render
    raise ParameterError(f"a {type(result).__name__} has no {form} form")
