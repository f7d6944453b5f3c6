"""The report as a page: what it shows, that it shows hostile names as text, and what a browser makes of it."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest

import fairkit
from fairkit.models.columns import PredictedColumns
from fairkit.results.findings import Finding, GroupValue
from fairkit.results.report import DataInfo, ModelInfo, Report
from fairkit.results.rules import Rule, RuleResult
from fairkit.support.escaping import number, visible
from fairkit_cli.formats import html as report_page
from fairkit_cli.pages import charts
from fairkit_cli.pages.charts import ForestRow, TradePoint, band, forest, heights, label
from fairkit_cli.render.svg import Markup, clean, draw, tag

DARK = ("--blink-settings=preferredColorScheme=0",)

HOSTILE = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "\u202egnp.exe\u202c right to left",
    "long " + "x" * 500,
    "</script><style>*{display:none}</style>",
    "null\x00 and bell\x07",
    "a & b ]]> --> <!--",
)


def people(rows: int, groups: list[str], seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    group = rng.integers(len(groups), size=rows)
    score = np.clip(rng.beta(2, 2, rows) + 0.1 * (group == 0), 0, 1)
    return pa.table(
        {"score": score, "outcome": (rng.random(rows) < score).astype(int), "group": [groups[g] for g in group]}
    )


def audited(rows: int, groups: list[str], column: str = "group", rules: tuple[Rule, ...] = ()) -> Report:
    table = people(rows, groups).rename_columns(["score", "outcome", column])
    data = fairkit.load_data(table, label="outcome", favorable=1, sensitive=[column])
    return fairkit.audit(PredictedColumns(score="score"), data, policy=rules)


@pytest.fixture(scope="module")
def report() -> Report:
    rules = (
        Rule.parse("demographic_parity_difference:group=0.05", "max"),
        Rule.parse("accuracy=0.4", "min"),
        Rule.parse("roc_auc_difference=0.1", "max"),
    )
    return audited(4000, ["one", "two", "three"], rules=rules)


class Elements(HTMLParser):
    """Counts what elements and attributes a page has."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes |= {name for name, _ in attrs}


def text(page: str) -> str:
    """What a reader sees, without markup."""
    body = page[page.index("<main>") : page.index("</main>")]
    return html.unescape(re.sub(r"<[^>]*>", "", body))


def test_the_verdict_comes_first_and_says_why(report: Report):
    page = text(report_page(report))
    first = page.index("Fail")
    assert page.index("demographic_parity_difference for group is") > first
    order = [
        "The question",
        "The answer",
        "Fail",
        "Sign here",
        "Performance over all rows",
        "Disparities",
        "Groups of group",
        "Distribution",
        "ROC",
        "Calibration",
        "How the numbers were made",
        "What the words mean",
    ]
    assert [page.index(word) for word in order] == sorted(page.index(word) for word in order)


def test_a_band_around_a_curve_holds_all_that_is_near_it():
    curve = [[0.0, 0.0], [0.0, 0.3], [0.2, 0.6], [0.2, 0.7], [1.0, 1.0]]
    assert heights(curve, 0.0) == (0.0, 0.3)
    assert heights(curve, 0.2) == (0.6, 0.7)
    assert heights(curve, 0.6) == pytest.approx((0.85, 0.85))
    exact = list(band(curve, 0.0, 0.0))
    assert [(x, low, high) for x, low, high in exact if x == 0.2] == [(0.2, 0.6, 0.7)]
    wide = {x: (low, high) for x, low, high in band(curve, 0.1, 0.05)}
    assert wide[0.0] == (0.0, 0.5)  # the curve at .1 is .45
    assert wide[0.6] == (0.7625, 0.9375)
    assert wide[1.0] == (0.9125, 1.0)


@pytest.mark.long
def test_curves_are_drawn_in_their_bands(report: Report):
    page = report_page(report)
    assert "ROC curve of each group, in the band that holds the whole curve" in page
    assert "whole curve within" in page
    bands = next(f.evidence["roc_band"] for f in report.findings if "roc_band" in f.evidence)
    assert f"± {number(bands[0])} across, ± {number(bands[1])} up and down" in page
    bare = [replace(f, evidence={k: v for k, v in f.evidence.items() if k != "roc_band"}) for f in report.findings]
    without = report_page(replace(report, findings=tuple(bare)))
    assert "ROC curve of each group" in without
    assert "whole curve within" not in without


def test_the_page_shows_the_numbers_of_the_report(report: Report):
    page = text(report_page(report))
    finding = report.find("demographic_parity_difference", "group")
    assert finding.interval is not None
    assert f"{finding.value:.3f}" in page
    assert f"[{finding.interval[0]:.3f}, {finding.interval[1]:.3f}]" in page
    for group in report.find("selection_rate_difference", "group").groups:
        assert f"{group.value:.3f} [{group.interval[0]:.3f}, {group.interval[1]:.3f}]" in page
    assert report.data.sha256 in page
    assert str(report.data.rows) in page.replace(",", "")


@pytest.mark.long
def test_the_page_is_one_small_file_and_the_same_each_time(report: Report):
    page = report_page(report)
    assert len(page.encode()) < 1_500_000
    assert page == report_page(report)
    assert not re.search(r"https?://(?!www\.w3\.org)", page)


@pytest.mark.long
def test_a_report_read_back_from_json_gives_the_same_page(report: Report):
    assert report_page(Report.from_dict(report.to_dict())) == report_page(report)


def test_every_chart_is_named_and_has_its_table(report: Report):
    page = report_page(report)
    figures = re.findall(r"<figure>.*?</figure>", page, re.DOTALL)
    assert len(figures) == 7  # what has another unit has a chart of its own
    for figure in figures:
        assert re.search(r'<svg [^>]*role="img"[^>]*aria-label="[^"]+"', figure)
        assert "<table" in figure


@pytest.mark.long
@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_name_shows_as_text(name: str):
    report = audited(600, [name, "other"], column=f"column {name}")
    page = report_page(replace(report, model=replace(report.model, name=name)))
    shown = clean(name)
    assert shown in text(page)
    seen = Elements(page)
    assert (seen.tags["script"], seen.tags["style"]) == (2, 1)  # the page's own, and that of the what-if
    assert seen.tags["img"] == 0
    assert not [name for name in seen.attributes if name.startswith("on")]
    assert not re.search("[\x00-\x08\x0b-\x1f]", page)


@pytest.mark.long
def test_sixty_groups_fit_on_a_page():
    page = report_page(audited(12_000, [f"group {i:02d}" for i in range(60)]))
    assert len(page.encode()) < 1_500_000
    assert "The 6 largest groups are drawn; the tables have the other 54 too." in text(page)
    assert text(page).count("group 59") >= 4


def by_hand(**changes: Any) -> Report:
    base = Report(
        model=ModelInfo(name="m.onnx", sha256=None, task="binary"),
        data=DataInfo(name="d.csv", sha256="0" * 64, rows=10, dropped_rows=0, groups={}),
        findings=(),
    )
    return replace(base, **changes)


def test_an_empty_policy_and_no_finding():
    page = text(report_page(by_hand()))
    assert "No verdict: no policy was given" in page
    assert "All 0 findings" in page


def test_one_group_no_interval_no_value():
    groups = (GroupValue(group="only", rows=10, value=None),)
    findings = (
        Finding(auditor="group", metric="selection_rate_difference", sensitive="g", value=None, groups=groups),
        Finding(
            auditor="group",
            metric="accuracy_difference",
            sensitive="g",
            value=0.25,
            groups=groups,
            notes=("No interval.",),
        ),
    )
    data = DataInfo(name="d", sha256="0" * 64, rows=10, dropped_rows=0, groups={"g": {"only": 10}})
    rule = RuleResult(rule=Rule("accuracy_difference", "g", max=0.1), verdict="inconclusive", reason="no interval")
    page = text(report_page(by_hand(findings=findings, data=data, policy=(rule,), verdict="inconclusive")))
    assert "Inconclusive: 1 of 1 policy rule undecided" in page
    assert "not defined" in page
    assert "none" in page


def test_the_gap_curve_and_pairs_of_single_people():
    pair = {
        "from": 3, "to": 1804, "distance": 0.02, "gain": 1.5, "losses": [0.1, 1.6], "scores": [0.9, 0.2],
        "differs": {"relationship": ["Husband", "<Wife>"]}, "same": {"age": 37},
    }  # fmt: skip
    findings = tuple(
        Finding(
            auditor="restricted-dro", metric="performance_gap", value=gap, interval=(gap - 0.01, gap + 0.01),
            parameters={"epsilon": epsilon}, evidence={"pairs": [pair]},
        )
        for epsilon, gap in ((0.1, 0.3), (0.01, 0.05), (0.5, 0.9))
    )  # fmt: skip
    page = report_page(by_hand(findings=findings))
    assert "Performance gap against the budget ε" in page
    tips = re.findall(r'data-tip="(ε = [^"]*)"', page)
    assert tips[:3] == [
        f"ε = {e}: gap {g:.3f}, interval [{g - 0.01:.3f}, {g + 0.01:.3f}]"
        for e, g in ((0.01, 0.05), (0.1, 0.3), (0.5, 0.9))
    ]
    assert "Pair 1: row 3 and row 1,804" in text(page)
    assert text(page).count("Husband") == 1
    assert '<bdi class="differs">&lt;Wife&gt;</bdi>' in page


def test_marks_carry_what_hovering_shows_at_the_right_place():
    rows = [
        ForestRow(name="a", value=0.1, tip="tip a", interval=(0.0, 0.2)),
        ForestRow(name="b", value=0.3, tip="tip b", limit=0.2),
    ]
    chart = ElementTree.fromstring(draw(forest(rows, "x", narrow=False), title="t"))
    points = [mark for mark in chart.iter("path") if mark.get("data-tip") in ("tip a", "tip b")]
    assert [mark.get("data-tip") for mark in points] == ["tip a", "tip b"]
    at = [tuple(map(float, re.findall(r"[-\d.]+", mark.get("transform", "")))) for mark in points]
    assert at[1][0] == pytest.approx(3 * at[0][0], abs=0.5)
    assert at[1][1] - at[0][1] == pytest.approx(26)


def test_markup_in_text_is_escaped():
    assert (
        tag("p", "<b>", None, Markup("<i></i>"), ["&"], title='"x"')
        == '<p title="&quot;x&quot;">&lt;b&gt;<i></i>&amp;</p>'
    )
    assert label("\u202eabc\n" + "y" * 50, 12) == r"\u202eabc y…"


def test_without_the_renderer_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch, report: Report):
    monkeypatch.setitem(__import__("sys").modules, "vl_convert", None)
    with pytest.raises(fairkit.FairkitError, match=r"pip install 'fairkit\[html\]'"):
        report_page(report)


@pytest.mark.long
def test_the_browser_test_sees_requests_and_errors(browse: Callable[..., Any]):
    visit = browse("<!doctype html><img src='http://page.invalid/x.png'><script>console.error('no')</script>")
    assert visit.requests != []
    assert any("no" in line for line in visit.console)


@pytest.mark.long
def test_the_browser_test_can_be_dark(browse: Callable[..., Any]):
    probe = "<!doctype html><script>document.title = matchMedia('(prefers-color-scheme: dark)').matches</script>"
    assert "<title>false</title>" in browse(probe).dom
    assert "<title>true</title>" in browse(probe, *DARK).dom


@pytest.mark.long
def test_a_browser_opens_it_without_errors_or_requests(browse: Callable[..., Any], report: Report):
    visit = browse(report_page(report))
    assert visit.console == []
    assert visit.requests == []
    assert visit.dom.count("<svg ") == 3 * 2 + 2 + 3 + 3
    assert 'class="chart wide"' in visit.dom


@pytest.mark.long
def test_a_browser_finds_no_script_in_hostile_names(browse: Callable[..., Any]):
    visit = browse(report_page(audited(600, list(HOSTILE))))
    assert visit.console == []
    assert visit.requests == []
    assert visit.dom.count("<script") == 2
    assert "<img" not in visit.dom


@pytest.mark.long
@pytest.mark.parametrize("flags", [(), DARK], ids=["light", "dark"])
def test_axe_finds_no_serious_fault(faults: Callable[..., list[str]], report: Report, flags: tuple[str, ...]):
    assert faults(report_page(report), *flags) == []


@pytest.mark.parametrize(
    "evil", ['"><script>x</script>', "</text><script>1</script>", '\\" + alert(1) + \\"', '" + 1 + "', "a\nb\x1b", "\\"]
)
def test_a_hostile_title_is_drawn_and_never_run(evil):
    point = TradePoint(name=evil, kind=evil, x=0.1, y=0.5, front=True, picked=True)
    chart = draw(charts.tradeoff([point], evil, evil, narrow=False), title=evil)
    root = ElementTree.fromstring(chart)
    assert {element.tag for element in root.iter()} <= {"svg", "g", "path", "line", "text", "rect"}
    drawn = [element.text for element in root.iter("text")]
    assert drawn.count(visible(evil).rstrip()) == 2 or evil.strip() == "\\"
    assert any(str(element.get("data-tip")).startswith(clean(evil)) for element in root.iter())


SORT_AND_FILTER = """
const table = document.querySelector("table[data-sortable]");
const first = () => [...table.tBodies[0].rows].filter(row => !row.hidden).map(row => row.cells[2].textContent);
const button = table.tHead.rows[0].cells[2].querySelector("button");
button.click();
const up = first();
button.click();
const down = first();
const field = document.querySelector("label.filter input");
field.value = "roc_auc_diff group";
field.dispatchEvent(new Event("input"));
const told = document.createElement("pre");
told.id = "out";
told.textContent = JSON.stringify({up, down, left: first().length, sort: table.tHead.rows[0].cells[2].ariaSort});
document.body.replaceChildren(told);
"""


@pytest.mark.long
def test_the_table_of_all_findings_sorts_and_filters(browse: Callable[..., Any], report: Report):
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", report_page(report))
    dom = browse(page.replace("</body>", f"<script>{SORT_AND_FILTER}</script></body>")).dom
    told = json.loads(html.unescape(re.search(r'<pre id="out">(.*?)</pre>', dom, re.DOTALL)[1]))
    numbers = [float(text) for text in told["up"] if re.match(r"-?[\d.]", text)]
    assert len(numbers) > 50
    assert numbers == sorted(numbers)
    assert told["down"] == told["up"][::-1]
    assert told["left"] == 1
    assert told["sort"] == "descending"


@pytest.mark.long
def test_three_sensitive_columns_stay_under_400_kilobytes():
    rng = np.random.default_rng(2)
    table = people(4000, ["one", "two"]).append_column("area", pa.array(rng.choice(list("abcd"), 4000)))
    data = fairkit.load_data(table, label="outcome", favorable=1, sensitive=["group", "area", "group+area"])
    page = report_page(fairkit.audit(PredictedColumns(score="score"), data))
    assert len(page.encode()) < 400_000
    told = text(page)
    assert "At a glance" in told
    for place in range(3):
        assert f'href="#groups-{place}"' in page
        assert f'id="groups-{place}"' in page


def test_a_disparity_opens_to_its_groups_and_counts(report: Report):
    page = report_page(report)
    assert "of people, so many get a favorable decision" in text(page)
    for group in report.find("demographic_parity_difference", "group").groups:
        assert f"{round(group.value * group.rows):,} of {group.rows:,}" in text(page)
    qualified = report.find("true_positive_rate_difference", "group").groups[0]
    assert "of qualified people, so many get a favorable decision" in text(page)
    assert f"{round(qualified.value * qualified.denominator):,} of {round(qualified.denominator):,}" in text(page)


@pytest.mark.long
def test_the_data_sheet_and_what_is_not_said(report: Report):
    page = text(report_page(report))
    assert "3 columns" in page
    sizes = report.data.groups["group"]
    positives = {g.group: g.denominator for g in report.find("true_positive_rate_difference", "group").groups}
    for group, rows in sizes.items():
        assert f"{positives[group] / rows:.1%}" in page
    assert "Whether a law is kept" in page
    bare = replace(report, data=replace(report.data, label=None, missing={"group": 7}))
    assert "the table has no outcome" in text(report_page(bare))
    assert "7 without group" in text(report_page(bare))


@pytest.mark.long
def test_a_notebook_shows_the_same_page(report: Report):
    frame = report._repr_html_()
    assert html.unescape(re.search(r'srcdoc="([^"]*)"', frame)[1]) == report_page(report)
    assert 'sandbox="allow-scripts"' in frame
