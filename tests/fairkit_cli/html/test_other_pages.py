"""Other pages than that of an audit: every number is there, names are text, and a browser has nothing to say."""

from __future__ import annotations

import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.commands import checked, invoke

import fairkit
from fairkit.models.columns import PredictedColumns
from fairkit.results.report import Report  # noqa: TC001 -- pytest reads annotations
from fairkit.support.escaping import interval, number
from fairkit_cli.formats import html as comparison_page
from fairkit_cli.formats import html as frontier_page
from fairkit_cli.formats import html as report_page
from fairkit_comparing.run import compare
from fairkit_repair.frontiers.state import Frontier, Measure, Point

DATA = ("--label", "decision", "--favorable", "approved", "--sensitive", "sex")


@pytest.mark.long
def test_audit_writes_a_page(loans_model: Any, tmp_path: Path, browse: Callable[..., Any]):
    target = tmp_path / "report.html"
    checked("audit", loans_model.path, "--data", loans_model.data, *DATA, "--format", "html", "--output", target)
    visit = browse(target.read_text("utf-8"))
    assert visit.console == []
    assert visit.requests == []
    assert "Fairness audit of" in visit.dom


@pytest.mark.long
def test_compare_on_the_command_line(loans_model: Any, tmp_path: Path, faults: Callable[..., list[str]]):
    models = [str(loans_model.path)] * 2
    told = checked("compare", *models, "--data", loans_model.data, *DATA)
    assert "not significant" in told.stdout
    assert "better" not in told.stdout
    record = json.loads(invoke("compare", *models, "--data", loans_model.data, *DATA, "--format", "json").stdout)
    assert record["schema"] == "fairkit.comparison/1"
    assert {change["outcome"] for change in record["changes"][0]} == {"same"}
    target = tmp_path / "c.html"
    invoke("compare", *models, "--data", loans_model.data, *DATA, "--format", "html", "--output", target)
    assert faults(target.read_text("utf-8")) == []
    checked("compare", models[0], "--data", loans_model.data, *DATA, code=2)


@pytest.mark.long
def test_mitigate_writes_a_page(tmp_path: Path, browse: Callable[..., Any]):
    from fairkit_datasets.loans import loans_table

    pq.write_table(loans_table(800, 3), tmp_path / "loans.parquet")
    done = checked(
        "mitigate", "--plugin", "reweigh", "--learner", "logistic", "--data", tmp_path / "loans.parquet", *DATA,
        "--output", tmp_path / "fair.onnx", "--format", "html",
    )  # fmt: skip
    page = done.stdout[done.stdout.index("<!doctype") : done.stdout.index("</html>") + 7]
    visit = browse(page)
    assert visit.console == []
    assert "Before and after" in visit.dom
    assert "(significant)" in visit.dom


def point(name: str, gap: float, accuracy: float) -> Point:
    measures = {
        "demographic_parity_difference:sex": Measure(value=gap, interval=(gap - 0.01, gap + 0.01), better="lower"),
        "accuracy": Measure(value=accuracy, interval=(accuracy - 0.01, accuracy + 0.01), better="higher"),
    }
    return Point(plugin=name, parameters={"x": gap}, status="done", measures=measures)


@pytest.mark.long
def test_the_page_of_a_frontier(faults: Callable[..., list[str]], browse: Callable[..., Any]):
    failed = Point(plugin="<b>bad</b>", parameters={}, status="failed", error="<script>no</script>")
    points = (point("baseline", 0.2, 0.9), point("one", 0.1, 0.85), point("two", 0.15, 0.8), failed)
    result = Frontier(
        performance="accuracy", disparity="demographic_parity_difference:sex", points=points, front=(1, 0),
        chosen=1, rule="best under a limit", rows=(600, 200, 200),
    )  # fmt: skip
    page = frontier_page(result)
    assert faults(page) == []
    visit = browse(page)
    assert visit.console == []
    assert visit.dom.count("<script") == 1
    assert visit.dom.count('data-tip="one (x = 0.1): accuracy 0.850 [0.840, 0.860]') == 2
    assert "&lt;script&gt;no&lt;/script&gt;" in visit.dom
    empty = Frontier(performance="accuracy", disparity="d", points=(failed,), front=(), chosen=None, rule="r")
    assert "Nothing picked" in frontier_page(empty)


@pytest.mark.long
def test_the_page_of_a_comparison_says_what_is_beyond_noise():
    rows = 600
    table = pa.table(
        {
            "y": [i % 2 for i in range(rows)],
            "good": [float(i % 2) for i in range(rows)],
            "bad": [float(i % 3 == 0) for i in range(rows)],
            "g": ["<i>a</i>" if i % 5 else "b" for i in range(rows)],
        }
    )
    data = fairkit.load_data(table, label="y", favorable=1, sensitive=["g"])
    page = comparison_page(compare([PredictedColumns(score="bad"), PredictedColumns(score="good")], data))
    assert "<strong>Better (significant)</strong>: accuracy, balanced_accuracy" in page
    assert "&lt;i&gt;a&lt;/i&gt;" in page
    assert "<i>a" not in page


@pytest.mark.long
def test_frontier_on_the_command_line(tmp_path: Path):
    from fairkit_datasets.loans import loans_table

    pq.write_table(loans_table(700, 3), tmp_path / "loans.parquet")
    common = (
        "frontier", "--plugin", "reweigh", "--vary", "strength=0,1", "--learner", "logistic",
        "--set", "frontier.jobs=1",
        "--data", str(tmp_path / "loans.parquet"), *DATA, "--state", str(tmp_path / "state.json"),
    )  # fmt: skip
    done = checked(*common, "--output", tmp_path / "best.onnx", "--limit", "0.5")
    assert "◉" in done.stdout
    assert (tmp_path / "best.onnx").stat().st_size > 0
    record = json.loads(invoke(*common, "--format", "json").stdout)
    assert [one["plugin"] for one in record["points"]] == ["baseline", "reweigh", "reweigh"]
    checked(*common, "--report", tmp_path / "f.html", "--format", "html")
    checked("frontier", "--plugin", "reweigh,fairgbm", "--vary", "strength=1", *common[10:], code=2)
    checked("frontier", "--vary", "strength=1", *common[10:], code=2)


@pytest.mark.long
def test_the_page_of_a_registry_version(
    loans_model: Any, tmp_path: Path, faults: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
):
    key, certificate, registry = (str(tmp_path / name) for name in ("key", "cert.json", "registry"))
    checked("key", "new", key)
    model, data = str(loans_model.path), str(loans_model.data)
    rule = ("--max", "demographic_parity_difference:sex=0.5")
    invoke("certify", model, "--data", data, *DATA, *rule, "--key", key, "--output", certificate)
    invoke("registry", "add", "credit", model, "--certificate", certificate, "--registry", registry)
    page = invoke("registry", "show", "credit@1", "--format", "html", "--registry", registry).stdout
    assert faults(page) == []
    assert "<h1>Fairness audit of <bdi>credit@1</bdi></h1>" in page
    assert "signature NOT verified" in page
    assert "Disparities: difference between groups" in page
    audit = invoke("audit", model, "--data", data, *DATA, *rule, "--format", "html").stdout
    for chart in ("Distribution of the score in each group", "ROC curve of each group", "Calibration of each group"):
        assert chart in audit
        assert page.count(chart) == audit.count(chart)
    assert page.count("<svg") == audit.count("<svg")
    monkeypatch.setenv("FAIRKIT_REGISTRY", registry)
    shown = invoke("compare", "credit@1", model, "--data", data, *DATA, "--format", "json")
    assert [one["name"] for one in json.loads(shown.stdout)["models"]] == ["credit@1", Path(model).name]
    invoke("registry", "add", "bare", model, "--registry", registry)
    refused = checked("registry", "show", "bare@1", "--format", "html", "--registry", registry, code=2)
    assert refused.stdout == ""


@pytest.mark.parametrize("command", ["audit", "compare", "frontier"])
def test_help_says_html(command: str):
    assert "html" in invoke(command, "--help").stdout


# Pages from certificates and packs in a browser: no fault for a screen reader, no request, no script of theirs.
EVIL = "<img src=http://page.invalid/x.png onerror=alert(1)>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two certificates of one table, whose groups have a hostile name, and a key."""
    pytest.importorskip("scipy", reason="exact tests need scipy: pip install 'fairkit[packs]'")
    here = tmp_path_factory.mktemp("pages")
    rng = np.random.default_rng(4)
    sex = rng.choice([EVIL, "m"], 400)
    pq.write_table(pa.table({"sex": sex, "chosen": rng.integers(0, 2, 400)}), here / "d.parquet")
    checked("key", "new", here / "key")
    for name in ("one", "two"):
        checked(
            "certify", "--data", here / "d.parquet", "--predictions", "decision=chosen", "--sensitive", "sex",
            "--key", here / "key", "--output", here / f"{name}.json",
            "--set", f"about.owner={EVIL}",
        )  # fmt: skip
    return here


@pytest.mark.long
@pytest.mark.parametrize("pack", [None, "ugesp"])
def test_axe_finds_no_serious_fault_and_nothing_is_asked_for(
    pack: str | None, folder: Path, browse: Callable[..., Any], faults: Callable[..., list[str]]
):
    told = [folder / "one.json", folder / "two.json"] if pack is None else [folder / "one.json", "--pack", pack]
    page = invoke("report", *told, "--key", folder / "key.pub").stdout
    assert faults(page) == []
    seen = browse(page)
    assert seen.requests == []
    assert seen.console == []
    assert "<img" not in seen.dom
    assert seen.dom.count("<script") == 1


# The section of groups that nobody named, in a real browser.
@pytest.fixture(scope="module")
def planted() -> Report:
    """Decisions that treat young people from the north worse."""
    pytest.importorskip("numba")
    rng = np.random.default_rng(0)
    rows = 8_000
    region, age = rng.choice(["north", "south", "east"], rows), rng.integers(18, 80, rows)
    worse = (region == "north") & (age < 35)
    said = rng.random(rows) < np.where(worse, 0.2, 0.6)
    data = fairkit.load_data(
        {"region": region, "age": age, "said": said.astype(int), "y": (rng.random(rows) < 0.5).astype(int)},
        label="y",
        favorable=1,
        sensitive=["region", "age:35:60"],
    )
    return fairkit.audit(fairkit.PredictedColumns(decision="said"), data, auditors=["subgroups"])


@pytest.mark.long
@pytest.mark.parametrize("flags", [(), ("--blink-settings=preferredColorScheme=0",)])
def test_axe_finds_no_serious_fault(faults: Callable[..., list[str]], planted: Report, flags: tuple[str, ...]):
    page = report_page(planted)
    assert "Groups that nobody named" in page
    assert "north" in page
    assert faults(page, *flags) == []


@pytest.mark.long
def test_a_browser_opens_it_without_errors_or_requests(browse: Callable[..., Any], planted: Report):
    visit = browse(report_page(planted))
    assert visit.console == []
    assert visit.requests == []


# The page of references and strata: every number is there, names are text, and a browser has nothing to say.
SCRIPT = "<script>alert(1)</script>"


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
    evil = [SCRIPT if value == "A" else value for value in table.column("department").to_pylist()]
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
    assert SCRIPT not in report_page(report)
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
