"""The same rates by group from one Parquet file: fairkit's command, queries of Polars and DuckDB, and MetricFrame.

    python benchmarks/engines.py --rows 100000 1000000 10000000 100000000 --folder /tmp/engines --repeats 3

Each run is a process of its own, from its start to its end, in turn; CPU seconds and the peak of memory are those of
the process and its children. The queries count rows by group, label and decision, and nothing else: they are what a
careful person would write by hand for rates. fairkit computes rates, score metrics, disparities with their intervals,
and the digest of the content; "decisions" leaves the scores out. MetricFrame has four metrics, with --bootstrap also
100 bootstrap samples: its intervals. It is left out above --most-frame rows. With --links K the table is a folder of K
hard links to the file, so that K times the rows need no further disk.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

PIECE = 1 << 20
GROUPS = 10
COUNT = "SELECT \"group\", outcome, decision, count(*) FROM '{path}' GROUP BY ALL"
AUDIT = (
    "import sys; sys.argv = ['fairkit', 'audit', '--data', '{path}', '--label', 'outcome', '--favorable', '1', "
    "'--sensitive', 'group', '--predictions', '{predictions}'{more}]; from fairkit_cli.main import run; run()"
)
FRAME = """
import pyarrow.parquet as pq, fairlearn.metrics as flm
from sklearn.metrics import accuracy_score
table = pq.read_table({path!r}).to_pandas()
metrics = dict(accuracy=accuracy_score, selection_rate=flm.selection_rate, tpr=flm.true_positive_rate,
               fpr=flm.false_positive_rate)
frame = flm.MetricFrame(metrics=metrics, y_true=table.outcome, y_pred=table.decision,
                        sensitive_features=table.group, {bootstrap})
frame.difference(), frame.ratio()
"""
ENGINES = {
    "fairkit, decisions, intervals": AUDIT.replace("{predictions}", "decision=decision").replace("{more}", ""),
    "fairkit, decisions, counted by DuckDB, intervals": AUDIT.replace("{predictions}", "decision=decision").replace(
        "{more}", ", '--engine', 'sql', '--set', 'engine.no_pull=true'"
    ),
    "fairkit, scores too, intervals": AUDIT.replace("{predictions}", "decision=decision,score=score").replace(
        "{more}", ""
    ),
    "DuckDB, no intervals": f"import duckdb; duckdb.sql({COUNT!r}.format(path='{{path}}')).fetchall()",
    "Polars, no intervals": (
        "import polars as pl; pl.scan_parquet('{path}').group_by('group', 'outcome', 'decision').len()"
        ".collect(engine='streaming')"
    ),
    "MetricFrame, no intervals": FRAME.replace("{bootstrap}", ""),
    "MetricFrame, 100 bootstrap samples": FRAME.replace("{bootstrap}", "n_boot=100, ci_quantiles=[0.025, 0.975]"),
}


def make(path: Path, rows: int, groups: int = GROUPS, unused: int = 0) -> None:
    """Write decisions and scores of people in groups, and unused columns, the same for the same numbers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = pa.array([f"group {number}" for number in range(groups)])
    types = {"group": pa.string(), "outcome": pa.int64(), "decision": pa.int64(), "score": pa.float64()}
    schema = pa.schema(types | {f"x{number}": pa.float64() for number in range(unused)})
    with pq.ParquetWriter(path, schema) as writer:
        for number, start in enumerate(range(0, rows, PIECE)):
            rng, size = np.random.default_rng([7, number]), min(PIECE, rows - start)
            group = rng.integers(0, groups, size)
            merit = rng.standard_normal(size) + group / groups
            columns = [
                names.take(pa.array(group)),
                pa.array((merit + rng.standard_normal(size) > 0.5).astype(np.int64)),
                pa.array((merit > 0).astype(np.int64)),
                pa.array(1 / (1 + np.exp(-merit))),
                *map(pa.array, rng.standard_normal((unused, size))),
            ]
            writer.write_table(pa.table(columns, schema=schema))


def linked(path: Path, links: int) -> Path:
    """Return a glob of links to a file, or the file itself where one is enough."""
    if links == 1:
        return path
    folder = path.with_name(f"{path.stem}-{links}-times")
    folder.mkdir(exist_ok=True)
    for number in range(links):
        link = folder / f"part-{number:04}.parquet"
        if not link.exists():
            link.hardlink_to(path)
    return folder / "*.parquet"


def measured(code: str) -> tuple[float, float, float]:
    """Return wall seconds, CPU seconds and the peak of memory in MiB of a program."""
    begun = time.perf_counter()
    with tempfile.TemporaryFile() as shown:
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=shown)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            shown.seek(0)
            raise SystemExit(shown.read().decode(errors="replace"))
    return time.perf_counter() - begun, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--bootstrap", action="store_true")
    parser.add_argument("--most-frame", type=int, default=10_000_000)
    parser.add_argument("--links", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=list(ENGINES), choices=list(ENGINES), metavar="ENGINE")
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    results = []
    print("| rows | engine | wall s | CPU s | MiB |\n| --- | --- | --- | --- | --- |")
    for size in chosen.rows:
        path = chosen.folder / f"rows-{size}.parquet"
        if not path.exists():
            # in a process of its own: the peak that the system counts for a child begins with its parent's
            process = multiprocessing.get_context("spawn").Process(target=make, args=(path, size))
            process.start()
            process.join()
        path, rows = linked(path, chosen.links), size * chosen.links
        runs: dict[str, list[tuple[float, float, float]]] = {}
        for _ in range(chosen.repeats):
            for name, code in ENGINES.items():
                if name not in chosen.only:
                    continue
                frame = name.startswith("MetricFrame")
                if frame and (rows > chosen.most_frame or ("bootstrap" in name and not chosen.bootstrap)):
                    continue
                program = code.replace("{path!r}", repr(str(path))).replace("{path}", str(path))
                runs.setdefault(name, []).append(measured(program))
        for name, taken in runs.items():
            wall, cpu, peak = (float(np.median(column)) for column in zip(*taken, strict=True))
            results.append({"rows": rows, "engine": name, "wall": wall, "cpu": cpu, "peak": peak})
            print(f"| {rows:,} | {name} | {wall:.2f} | {cpu:.2f} | {peak:.0f} |", flush=True)
    if chosen.output:
        chosen.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
