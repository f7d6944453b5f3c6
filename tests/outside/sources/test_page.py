"""The commands of docs/how-to/sources.md run as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "sources.md"


def test_the_page_runs_as_typed(bucket, loans, loans_model, tmp_path):
    duckdb = pytest.importorskip("duckdb", reason="needs the extra fairkit[duckdb]")
    deltalake = pytest.importorskip("deltalake", reason="needs the extra fairkit[delta]")
    shutil.copy(loans_model.path, tmp_path / "model.onnx")
    bucket.write("loans.parquet", loans)
    with duckdb.connect(str(tmp_path / "loans.db")) as connection:
        connection.register("given", loans.append_column("id", pa.array(range(len(loans)))))
        connection.sql("CREATE TABLE loans AS SELECT * FROM given")
    deltalake.write_deltalake(tmp_path / "loans_delta", loans)
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 4
    done = subprocess.run(
        ["bash", "-ec", "\n".join(blocks)],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
    assert done.stdout.count("No verdict: no policy was given") >= 3
    assert "findings, computed again" in done.stdout
