"""The tables of the page "Which method for which goal"."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "methods-measured.md"


@pytest.fixture(scope="module")
def page():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("quality_page")


def test_the_tables_are_what_the_results_give(page, tmp_path, monkeypatch):
    copy = tmp_path / "page.md"
    copy.write_text(PAGE.read_text("utf-8").partition(page.MARK)[0] + page.MARK, "utf-8")
    monkeypatch.setattr("sys.argv", ["quality_page.py", "--page", str(copy)])
    page.main()
    assert copy.read_text("utf-8") == PAGE.read_text("utf-8"), "run `python benchmarks/quality_page.py`"


def test_the_setting_is_chosen_on_validation_rows_and_told_on_test_rows(page):
    points = [(0.9, 0.06, 0.95, 0.01), (0.8, 0.04, 0.7, 0.08), (0.7, 0.01, 0.9, 0.0)]
    assert page.chosen(points, 0.05) == (0.7, 0.08)
    assert page.chosen(points, 0.005) is None


def test_the_volume_is_the_area_that_points_dominate(page):
    assert page.hypervolume([(0, 0, 1.0, 0.0)], 0.6) == pytest.approx(1.0)
    assert page.hypervolume([(0, 0, 0.8, 0.05)], 0.6) == pytest.approx(0.25)
    two = [(0, 0, 0.8, 0.05), (0, 0, 0.7, 0.0), (0, 0, 0.65, 0.04)]
    assert page.hypervolume(two, 0.6) == pytest.approx(0.25 + 0.5 * 0.25)
    assert page.hypervolume([(0, 0, 0.9, 0.2), (0, 0, 0.5, 0.0)], 0.6) == 0


def test_lines_are_paired_by_cell_and_refusals_are_said(page):
    def record(method, split, accuracy, **more):
        own = {"data": "adult", "column": "sex", "constraint": "demographic_parity", "majority": 0.7}
        return (
            own
            | {"split": split, "method": method, "seconds": 1.0}
            | (more or {"points": [(accuracy, 0.01, accuracy, 0.01)]})
        )

    records = [record("rto", 0, 0.84), record("rto", 1, 0.86), record("rto", 2, 0, refused="too few rows")]
    records += [record("error-parity", split, 0.85) for split in (0, 1, 2)]
    (line,) = page.paired_table(records).splitlines()[2:]
    assert line.startswith("| rto | demographic_parity | large | 2 |")
    assert "+0.0000 (se 0.0100, 2)" in line
    assert "3, 1 refused" in page.table(records, "demographic_parity")
