"""Training processes end with the command, whatever ends it, and no file holds rows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fairkit_datasets.loans import loans_table


@pytest.fixture
def command(tmp_path):
    pq.write_table(loans_table(400, 1), tmp_path / "loans.parquet")
    return [
        *(sys.executable, "-c", "from fairkit_cli.main import run; run()"),
        *(
            "frontier",
            "--plugin",
            "reweigh",
            "--plugin",
            "massaging",
            "--learner",
            "logistic",
            "--set",
            "frontier.jobs=2",
        ),
        *("--data", "loans.parquet", "--label", "decision", "--favorable", "approved", "--sensitive", "sex"),
        *("--drop", "would_repay", "--state", "state.json"),
    ]


def _children(parent: int) -> list[int]:
    """Every process below another one, that of loky which watches resources too."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        except OSError:
            continue
        if int(lines["PPid"]) == parent:
            found += [int(lines["Pid"]), *_children(int(lines["Pid"]))]
    return found


def _large(folder: Path) -> list[Path]:
    """Files that may hold rows; libraries leave empty or tiny ones."""
    return [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size > 1_000]


def _gone(processes: list[int]) -> bool:
    alive = [one for one in processes if Path(f"/proc/{one}").exists()]
    return not alive or all("Z" in Path(f"/proc/{one}/stat").read_text().split()[2] for one in alive)


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_and_no_rows_stay(command, tmp_path, number):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"},
    )
    until = time.monotonic() + 60
    while not (tmp_path / "state.json").exists() or len(_children(process.pid)) < 2:
        assert time.monotonic() < until
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    below = _children(process.pid)
    assert not _large(temporary)
    process.send_signal(number)
    assert process.wait(timeout=60) == (-number if number == signal.SIGKILL else 130)
    until = time.monotonic() + 60
    while not _gone(below):
        assert time.monotonic() < until, below
        time.sleep(0.05)
    assert not _large(temporary)
    if number != signal.SIGKILL:
        assert process.stderr.read().endswith(b"finished points are kept in state.json; run again to go on\n")
    assert [point["plugin"] for point in json.loads((tmp_path / "state.json").read_text())["points"]][:1] == [
        "baseline"
    ]
    process.stderr.close()
