"""`fairkit watch show --format openmetrics` as Prometheus's own tool reads it."""

from __future__ import annotations

import datetime
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from fairkit_cli.main import app

EVIL = 'a"b\\c\nd{e}'
NOON = datetime.datetime(2024, 1, 12, tzinfo=datetime.UTC).timestamp()


def invoke(*arguments: Any) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments])


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten days of a rule that is broken, and of one that is kept, with a hostile column name."""
    here = tmp_path_factory.mktemp("watched")
    done = invoke(
        "watch", "init", "--state", here / "w", "--sensitive", f"sex,{EVIL}",
        "--max", "demographic_parity_difference:sex=0.1", "--min", f"demographic_parity_ratio:{EVIL}=0.2",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    rng = np.random.default_rng(3)
    for t in range(10):
        sex = rng.choice(["f", "m"], 2000)
        yes = rng.random(2000) < 0.3 + 0.3 * (sex == "m")
        table = pa.table({"sex": sex, EVIL: rng.choice(["x", "y"], 2000), "decision": yes.astype(int)})
        path = here / f"decisions-2024-01-{t + 1:02}.parquet"
        pq.write_table(table, path)
        invoke("watch", "add", here / "w", "--data", path, "--as-of", f"2024-01-{t + 1:02}")
    return here / "w"


def shown(state: Path) -> str:
    done = invoke("watch", "show", state, "--format", "openmetrics", "--as-of", "2024-01-12")
    assert done.exit_code == 1, done.output  # the policy fails at this look
    return done.stdout


def test_the_numbers_are_those_of_the_look(state: Path):
    look = json.loads(invoke("watch", "show", state, "--format", "json", "--as-of", "2024-01-12").stdout)
    text = shown(state)
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found = {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}
    rule = look["rules"][0]
    labels = '{metric="demographic_parity_difference",groups="sex",side="max",limit="0.1"}'
    assert found[f"fairkit_watch_rule_value{labels}"] == rule["value"]
    assert found[f"fairkit_watch_rule_lower_bound{labels}"] == rule["interval"][0]
    assert found[f"fairkit_watch_rule_upper_bound{labels}"] == rule["interval"][1]
    for verdict in ("pass", "fail", "undecided"):
        name = f'fairkit_watch_rule_verdict{labels[:-1]},verdict="{verdict}"}}'
        assert found[name] == (verdict == rule["verdict"] == "fail")
    assert found["fairkit_watch_decisions"] == 20_000
    assert found["fairkit_watch_last_look_timestamp_seconds"] == NOON
    assert found["fairkit_watch_data_age_seconds"] == 86_400  # from the end of 10 January
    assert found['fairkit_watch_alarms{level="fail"}'] >= 1
    assert 'groups="a\\"b\\\\c\\nd{e}"' in text
    assert text.endswith("# EOF\n")


def test_a_watch_without_decisions_has_its_limits_and_verdicts(tmp_path: Path):
    invoke(
        "watch",
        "init",
        "--state",
        tmp_path / "w",
        "--sensitive",
        "sex",
        "--max",
        "demographic_parity_difference:sex=0.1",
    )
    done = invoke("watch", "show", tmp_path / "w", "--format", "openmetrics")
    assert done.exit_code == 3
    assert "fairkit_watch_rule_value" not in done.stdout
    assert 'verdict="undecided"} 1.0' in done.stdout
    assert "fairkit_watch_data_age_seconds" not in done.stdout


def test_promtool_reads_every_number(state: Path, tmp_path: Path):
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    text = shown(state)
    checked = subprocess.run([tool, "check", "metrics"], input=text, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    # the strict reader of OpenMetrics fills a database, which wants a time for each sample
    timed = re.sub(r"(?m)^(fairkit_.*)$", rf"\1 {NOON:.0f}", text)
    (tmp_path / "metrics.txt").write_text(timed, "utf-8")
    made = subprocess.run(
        [tool, "tsdb", "create-blocks-from", "openmetrics", tmp_path / "metrics.txt", tmp_path / "db"],
        text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    (tmp_path / "db" / "wal").mkdir()
    dumped = subprocess.run([tool, "tsdb", "dump", tmp_path / "db"], text=True, capture_output=True, check=True).stdout
    values = sorted(float(line.rsplit(" ", 2)[1]) for line in dumped.splitlines() if line.startswith("{"))
    own = sorted(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if not line.startswith("#"))
    assert values == pytest.approx(own)
    assert f"{EVIL!r}"[1:-1].replace('"', '\\"') in dumped
