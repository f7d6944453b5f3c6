"""What the search over groups costs beyond scoring, in CPU seconds of one thread, and how large its totals are.

    python benchmarks/subgroups_speed.py [--rows 1000000] [--columns 12]

Synthetic rows with columns of 8 cells, and Adult where FAIRKIT_DATA has it (all columns, calibration residual).
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fairkit
from fairkit.auditing.prepare import LoadedAuditors
from fairkit.engines.local import LocalEngine
from fairkit.models.columns import PredictedColumns
from fairkit.progress import no_progress
from fairkit.settings import AuditSettings, ModelOptions


def timed(table, label, metric, columns, what):
    """Count and search with predictions that are columns of the table; print the phases."""
    data = fairkit.load_data(table, label=label, favorable=1, sensitive=[columns[0]], missing="group", name=what)
    data.learn()
    parameters = {"subgroups": {"columns": columns, "metrics": [metric]}}
    for _ in range(2):  # the second time nothing is compiled
        asked = LoadedAuditors.of(AuditSettings(auditors=("subgroups",), parameters=parameters))
        scorer = PredictedColumns(score="score", decision="decision").bind(data, ModelOptions(task="binary"))
        times = [time.process_time()]
        audit = asked.about(scorer, data, LocalEngine(), no_progress)
        times.append(time.process_time())
        reader, total, counting = audit.readers[0], None, 0.0
        for batch in data.batches([*columns, *scorer.columns], partial=True):
            said = scorer.predict(batch.columns(scorer.columns))
            start = time.process_time()
            part = reader.measure(batch, [said])
            total = part if total is None else total + part
            counting += time.process_time() - start
        times.append(time.process_time())
        report = audit.report([total])
        times.append(time.process_time())
    found = report.find("subgroup_difference")
    size = sum(one.nbytes for one in total.tables.values()) / 2**20
    begin, search = times[1] - times[0], times[3] - times[2]
    groups = found.evidence["groups_searched"]
    print(
        f"{what}: {len(data.columns)} columns read, {groups:,} groups; cells {begin:.2f} s, "
        f"count {counting:.2f} s, search and list {search:.2f} s, together {begin + counting + search:.2f} CPU s; "
        f"tables {size:.1f} MiB; "
        f"interval {found.interval}"
    )


def synthetic(rows, columns):
    rng = np.random.default_rng(0)
    cells = {f"c{i}": np.minimum(rng.geometric(0.35, rows) - 1, 7).astype(np.int16) for i in range(columns)}
    outcome = (rng.random(rows) < 0.4).astype(np.int8)
    planted = (cells["c0"] == 1) & (cells["c1"] >= 3)
    chance = np.where(planted, 0.72, 0.8)
    decision = (rng.random(rows) < np.where(outcome == 1, chance, 0.2)).astype(np.int8)
    return pa.table({**cells, "outcome": outcome, "decision": decision, "score": chance.astype(np.float32)})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=12)
    chosen = parser.parse_args()
    names = [f"c{i}" for i in range(chosen.columns)]
    table = synthetic(chosen.rows, chosen.columns)
    timed(table, "outcome", "true_positive_rate", names, f"{chosen.rows:,} synthetic rows")
    folder = Path(os.environ.get("FAIRKIT_DATA", "shared/data"))
    if (folder / "adult.parquet").is_file():
        adult = pq.read_table(folder / "adult.parquet").drop_columns(["fnlwgt", "split"])
        rng = np.random.default_rng(1)
        outcome = (np.array(adult["income"].to_pylist()) == ">50K").astype(int)
        score = np.clip(0.25 + 0.4 * outcome + rng.normal(0, 0.1, len(outcome)), 0, 1)
        adult = adult.drop_columns(["income"]).append_column("outcome", pa.array(outcome))
        adult = adult.append_column("score", pa.array(score)).append_column(
            "decision", pa.array((score > 0.5).astype(int))
        )
        columns = [name for name in adult.column_names if name not in ("outcome", "score", "decision")]
        timed(adult, "outcome", "error_rate", columns, "Adult")


if __name__ == "__main__":
    main()
