"""The page of references and strata: every number is there, names are text, and a browser has nothing to say."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest

import fairkit
from fairkit.support.escaping import interval, number
from fairkit_cli.formats import html as report_page

EVIL = "<script>alert(1)</script>"


class Cells(HTMLParser):
    """The rows of every table, by its label."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self._label, self._open = "", False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self._label = str(dict(attrs)["aria-label"])
            self.tables[self._label] = []
        if tag == "tr":
            self.tables[self._label].append([])
        if tag in ("th", "td"):
            self.tables[self._label][-1].append("")
            self._open = True

    def handle_endtag(self, tag: str) -> None:
        self._open = self._open and tag not in ("th", "td")

    def handle_data(self, data: str) -> None:
        if self._open:
            self.tables[self._label][-1][-1] += data


@pytest.fixture(scope="module")
def report() -> fairkit.Report:
    table = fairkit.datasets.table("admissions")
    names = ["department", "sex", "admitted"]
    evil = [EVIL if value == "A" else value for value in table.column("department").to_pylist()]
    columns = {name: table.column(name).to_pylist() for name in names} | {"department": evil}
    data = fairkit.load_data(columns, sensitive=["sex"], within=["department"], reference=["sex=male"])
    return fairkit.audit(fairkit.PredictedColumns(decision="admitted"), data)


def test_the_tables_have_the_numbers_of_the_report(report: fairkit.Report) -> None:
    found = Cells()
    found.feed(report_page(report))
    against = found.tables["Groups of sex against male"]
    ratio = report.find("impact_ratio", "sex")
    assert ["impact_ratio", "female", number(ratio.value), interval(ratio.groups[0].interval)] in against
    pooled = report.find("demographic_parity_difference", "sex", within="department")
    rows = found.tables["Groups of sex inside the strata of department, pooled"]
    row = next(row for row in rows if row[0] == "demographic_parity_difference")
    assert row[2:4] == [number(pooled.value), interval(pooled.interval)]
    own = found.tables["demographic_parity_difference in each stratum: female minus male"]
    assert len(own) == 7
    assert [row[4] for row in own[1:]] == [number(one.value) for one in pooled.strata]
    assert sum("few rows" in row for row in own) == sum(one.few for one in pooled.strata)


def test_names_of_strata_are_text(report: fairkit.Report) -> None:
    assert EVIL not in report_page(report)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in report_page(report)


def test_without_conditions_there_is_no_section() -> None:
    data = fairkit.datasets.admissions()
    plain = fairkit.load_data(
        {name: fairkit.datasets.table("admissions").column(name).to_pylist() for name in ("sex", "admitted")},
        sensitive=["sex"],
    )
    assert data.roles.within
    page = report_page(fairkit.audit(fairkit.PredictedColumns(decision="admitted"), plain))
    assert "inside the strata" not in page
    assert "against" not in page


@pytest.mark.long
def test_a_browser_shows_it(
    browse: Callable[..., Any], faults: Callable[..., list[str]], report: fairkit.Report
) -> None:
    page = report_page(report)
    seen = browse(page)
    assert not seen.console
    assert not seen.requests
    assert not faults(page)
