"""The page on speed has the table that the kept results give; a run of the benchmark gives such results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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
