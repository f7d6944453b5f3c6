"""Pages of figures say what the kept results give; the ledger of degenerate tables can fail."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))


def test_the_page_has_the_table_of_the_results():
    pytest.importorskip("matplotlib")
    import engines_page

    runs = json.loads(engines_page.RESULTS.read_text("utf-8"))["runs"]
    assert engines_page.table(runs) in (ROOT / "docs" / "reference" / "measured.md").read_text("utf-8")
    assert engines_page.PICTURE.is_file()


@pytest.mark.long
def test_links_to_a_file_are_so_many_times_its_rows(tmp_path):
    pytest.importorskip("duckdb", reason="needs the extra fairkit[duckdb]")
    chosen = ["--rows", "2000", "--links", "3", "--repeats", "1", "--only", "DuckDB, no intervals"]
    output = ["--folder", str(tmp_path), "--output", str(tmp_path / "r.json")]
    script = ROOT / "benchmarks" / "engines.py"
    subprocess.run([sys.executable, str(script), *chosen, *output], check=True, capture_output=True)
    (run,) = json.loads((tmp_path / "r.json").read_text("utf-8"))
    assert (run["rows"], run["engine"]) == (6_000, "DuckDB, no intervals")


# The table of methods on the page of figures.
PAGE = ROOT / "docs" / "reference" / "measured.md"


@pytest.fixture(scope="module")
def page():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("quality_page")


def test_the_table_is_what_the_results_give(page, tmp_path, monkeypatch):
    copy = tmp_path / "page.md"
    before, first, rest = PAGE.read_text("utf-8").partition(page.MARKS[0])
    copy.write_text(before + first + page.MARKS[1] + rest.partition(page.MARKS[1])[2], "utf-8")
    monkeypatch.setattr("sys.argv", ["quality_page.py", "--page", str(copy)])
    page.main()
    assert copy.read_text("utf-8") == PAGE.read_text("utf-8"), "run `python benchmarks/quality_page.py`"


def test_the_setting_is_chosen_on_validation_rows_and_told_on_test_rows(page):
    points = [(0.9, 0.06, 0.95, 0.01), (0.8, 0.04, 0.7, 0.08), (0.7, 0.01, 0.9, 0.0)]
    assert page.chosen(points, 0.05) == (0.7, 0.08)
    assert page.chosen(points, 0.005) is None


def test_lines_are_paired_by_cell_and_refusals_are_cells_that_are_not_within(page):
    def record(method, split, accuracy, **more):
        own = {"data": "adult", "column": "sex", "constraint": "demographic_parity", "seconds": 1.0}
        return own | {"split": split, "method": method, "points": [(accuracy, 0.01, accuracy, 0.01)]} | more

    records = [record("rto", 0, 0.84), record("rto", 1, 0.86), record("rto", 2, 0, points=[], refused="too few rows")]
    records += [record("error-parity", split, 0.85) for split in (0, 1, 2)]
    (line,) = page.table(records).splitlines()[2:]
    assert line == "| rto | large | +0.0000 ± 0.0100, 2/3 | - | - | 1.0 |"


# The ledger of degenerate tables: a fast part of it, and that its rules can fail.
if TYPE_CHECKING:
    from types import ModuleType

    from fairkit.results.findings import Finding


@pytest.fixture(scope="module")
def ledger() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "ledger.py"
    spec = importlib.util.spec_from_file_location("ledger", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["ledger"] = module
    spec.loader.exec_module(module)
    return module


FAST = [
    "a group of one row",
    "one label for each group",
    "constant scores",
    "perfect scores",
    "all weights 0",
    "weights 0 in a group",
    "one huge weight",
    "two clusters",
    "a reference of one row",
    "strata are groups",
]


@pytest.mark.parametrize(
    "task", ["binary", *(pytest.param(t, marks=pytest.mark.long) for t in ("regression", "multiclass", "ranking"))]
)
def test_every_number_has_an_interval_or_a_sentence(ledger: ModuleType, task: str) -> None:
    tables = FAST[:5] if task == "binary" else FAST
    cells = list(ledger.run(tables, [task], ["group"], ["json", "table", "markdown", "junit"]))
    assert [f"{cell.table}: {text}" for cell in cells for text in cell.violations] == []
    assert sum(cell.numbers + cell.sentences for cell in cells) > 50


@pytest.mark.long
@pytest.mark.parametrize("auditor", ["subgroups", "why", "consistency", "correspondence"])
def test_other_auditors_keep_the_rules(ledger: ModuleType, auditor: str) -> None:
    cells = list(ledger.run(FAST, names=[auditor], formats=["json", "table", "markdown"]))
    assert [f"{cell.table}: {text}" for cell in cells for text in cell.violations] == []


def test_there_are_forty_tables_and_every_auditor(ledger: ModuleType, tmp_path: Path) -> None:
    from fairkit import plugins

    assert len(ledger.TABLES) >= 40
    names = [row.found.name for row in plugins.explain_all() if "auditor" in row.kinds]
    found = [auditor for name in names for auditor in plugins.load(name).auditors]
    auditors = {auditor.name for auditor in found if auditor.tasks != {"table"}}
    auditors.remove("alternatives")  # reads the record of a search
    assert auditors == set(ledger.auditors(tmp_path))


def test_the_rules_can_fail(ledger: ModuleType) -> None:
    table = ledger.TABLES["as it is"](ledger.base("binary"), "binary")
    report = ledger.audited("group", ledger.Asked({}, ("binary",)), "binary", table)
    assert not list(ledger.broken(report, "binary", table, "group"))
    whole = report.find("accuracy")

    def violations(**changes: object) -> list[str]:
        changed = dataclasses.replace(whole, **changes)
        return list(ledger.broken(dataclasses.replace(report, findings=(changed,)), "binary", table, "group"))

    assert violations(interval=None, notes=())
    assert violations(value=None, notes=(), inconclusive=None)
    assert violations(value=1.5, interval=(1.4, 1.6))
    assert violations(interval=(0.0, 0.1))
    assert violations(interval=(whole.value, whole.value), notes=())
    between = report.find("selection_rate_difference", "sex")
    doctored = dataclasses.replace(between, groups=(dataclasses.replace(between.groups[0], value=0.123),))
    wrong = dataclasses.replace(report, findings=(doctored,))
    assert any("counted again" in text for text in ledger.broken(wrong, "binary", table, "group"))
    silent: Finding = dataclasses.replace(whole, interval=None, notes=("Nothing is known.",))
    alone = dataclasses.replace(report, findings=(silent,), policy=(), verdict=None)
    assert not list(ledger.broken(alone, "binary", table, "group"))
    assert any(
        "allows no verdict" in text
        for text in ledger.broken(dataclasses.replace(report, findings=(silent,)), "binary", table, "group")
    )
