"""A report, in the order in which people ask: the answer, disparities, groups, single people, how it was made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit_cli.pages.conditions import condition_sections
from fairkit_cli.pages.evidence import evidence_sections
from fairkit_cli.pages.findings import disparity_section, findings_table, performance_section
from fairkit_cli.pages.groups import group_sections
from fairkit_cli.pages.head import header
from fairkit_cli.pages.individuals import individual_section
from fairkit_cli.pages.labels import label_sections
from fairkit_cli.pages.parts import Facts, Inline, Listing, Note, On, Page, Part, Section, Span, name_of, page_only
from fairkit_cli.pages.sheet import data_sheet, limits_section, matrix
from fairkit_cli.pages.subgroups import subgroup_section
from fairkit_cli.pages.terms import glossary
from fairkit_cli.pages.why import why_parts
from fairkit_cli.text.view import report_view

if TYPE_CHECKING:
    from fairkit.results.report import Report


def report_page(report: Report) -> Page:
    """Return a report's page."""
    return Page(f"Fairness audit of {report.model.name}", [header(report), *sections(report)])


def sections(report: Report) -> list[Part | None]:
    """Return all that comes after the first screen."""
    return [
        matrix(report),
        performance_section(report),
        disparity_section(report),
        *group_sections(report),
        *label_sections(report),
        *condition_sections(report),
        subgroup_section(report),
        *why_parts(report),
        individual_section(report),
        *evidence_sections(report),
        data_sheet(report),
        limits_section(report),
        details(report),
        glossary(report),
    ]


def details(report: Report) -> Section:
    """Return how the numbers were made, what to keep in mind, and all of them."""
    environment, data = report.environment, report.data
    plugins = ", ".join(f"{plugin['name']} {plugin['version']}" for plugin in environment.get("plugins", ()))
    versions = f"fairkit {environment.get('fairkit', '?')}, Python {environment.get('python', '?')}; plugins {plugins}"
    adjusted = f", adjusted: {report.adjustment}" if report.adjustment else ""
    entries: list[tuple[Inline, Inline]] = [
        ("Model", [name_of(report.model.name), f", {report.model.task}"]),
        ("SHA-256 of the model", Span(report.model.sha256 or "none: an object in memory", "code")),
        ("Data", [name_of(data.name), f", {data.rows:,} rows{data.lacking}"]),
        ("SHA-256 of the data", Span(data.sha256, "code")),
        *([("As it is served", report.model.as_served)] if report.model.as_served else []),
        ("Confidence", f"{report.confidence:.0%}{adjusted}"),
        ("Seed", str(report.seed)),
        ("Made with", versions),
    ]
    notes = report_view(report).notes
    count = f"All {len(report.findings)} findings"
    everything = findings_table(report, report.findings, "All findings", everything=True)
    meaning = (
        "A finding is a statement under its metric, on this data. An interval says how far the number would "
        "move if other people of the same kind had been drawn; it says nothing about errors in the labels."
    )
    reminders = Listing(notes) if notes else Note("None.", on=On.PAGE)
    return Section(
        Span("How the numbers were made", on=On.PAGE),
        [
            Facts(entries, on=On.PAGE),
            Section([*page_only("To keep in mind"), Span("Notes", on=On.TEXT)], [reminders], "part"),
            Note(meaning, on=On.PAGE),
            Section(count, [everything], "fold", on=On.PAGE),
        ],
    )
