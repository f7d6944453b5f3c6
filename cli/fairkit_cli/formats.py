"""Results as text in the formats that files have: the functions of the entry points ``fairkit.formats``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit.errors import ParameterError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def html(result: Any) -> str:
    """Return a result's page.

    Raises
    ------
    FairkitError
        The extra ``html`` is not installed, or this kind of result has no page.
    """
    from fairkit.results.comparisons import Comparison
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report
    from fairkit_cli.html.certificates import one_certificate
    from fairkit_cli.html.comparison import comparison_page, mitigation_page
    from fairkit_cli.html.finding import finding_page
    from fairkit_cli.html.frontier import frontier_page
    from fairkit_cli.html.report import report_page
    from fairkit_cli.html.svg import warm
    from fairkit_repair.frontiers.record import Frontier
    from fairkit_repair.mitigation.run import MitigationResult

    pages: dict[type[Any], Any] = {
        Report: report_page,
        Comparison: comparison_page,
        Frontier: frontier_page,
        MitigationResult: mitigation_page,
        Finding: finding_page,
    }
    if type(result).__name__ == "Certificate":  # the registry is loaded where there is one
        from fairkit_registry.evidence.certificate import Certificate

        pages[Certificate] = one_certificate
    page = _of(pages, result, "page")
    if page is finding_page:  # it has no chart
        return str(page(result))
    with warm(), _as_recorded(result):
        return str(page(result))


def markdown(result: Any) -> str:
    """Return a result as Markdown.

    Raises
    ------
    ParameterError
        It is no report and no comparison.
    """
    from fairkit.results.comparisons import Comparison
    from fairkit.results.report import Report
    from fairkit_cli.text.markdown import comparison_markdown, report_markdown

    text = _of({Report: report_markdown, Comparison: comparison_markdown}, result, "Markdown")
    with _as_recorded(result):
        return str(text(result))


def _as_recorded(result: Any) -> AbstractContextManager[None]:
    from fairkit.results.report import Report
    from fairkit_comparing.headlines import as_recorded

    return as_recorded(result if isinstance(result, Report) else None)


def junit(result: Any) -> str:
    """Return a report's policy as JUnit XML.

    Raises
    ------
    ParameterError
        It is no report.
    """
    from fairkit.results.report import Report
    from fairkit_cli.junit import junit as junit_of

    return str(_of({Report: junit_of}, result, "JUnit")(result))


def _of(renderers: dict[type[Any], Any], result: Any, form: str) -> Any:
    for kind, render in renderers.items():
        if isinstance(result, kind):
            return render
    raise ParameterError(f"a {type(result).__name__} has no {form} form")
