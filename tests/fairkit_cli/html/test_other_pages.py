"""Pages of comparisons, mitigations and frontiers, from the commands that write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.commands import checked, invoke

import fairkit
from fairkit.models.columns import PredictedColumns
from fairkit_cli.formats import html as comparison_page
from fairkit_cli.formats import html as frontier_page
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
