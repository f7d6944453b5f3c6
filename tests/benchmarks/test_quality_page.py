"""The table of methods on the page of figures."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
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
