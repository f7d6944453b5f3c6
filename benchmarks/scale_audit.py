"""Audits of 10^5 to 10^7 rows: one machine against Dask with one and two workers, in turn.

    python benchmarks/scale_audit.py --rows 10000000 --files 20 --folder /tmp/loans-7 --repeats 3

Each run is a process of its own. "1 core" is pinned to one core. Seconds are those of `fairkit.audit` alone, without
the start of Python, the cluster and the model; CPU seconds are summed over all processes. Memory is the peak of a
process (of the largest worker, with Dask).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MODES = ("here-1", "dask-1", "here-2", "dask-2")
ROLES: dict[str, Any] = {"label": "decision", "favorable": "approved", "sensitive": ["sex", "ethnicity"]}


def make(folder: Path, rows: int, files: int) -> None:
    """Write the loans, and a model of 100 trees trained on 20,000 of them."""
    import pyarrow.parquet as pq

    import fairkit
    from fairkit.mitigators import Run, Table
    from fairkit_datasets.loans import loans_table
    from fairkit_onnx.write.export import export
    from fairkit_repair.learners import fit_learner

    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        path = folder / f"part-{number:03}.parquet"
        if not path.exists():
            pq.write_table(loans_table(rows // files, 1_000 + number), path)
    model = folder / "model.onnx"
    if not model.exists():
        table = Table.from_dataset(fairkit.load_data(loans_table(20_000, 1), **ROLES))
        fitted = fit_learner("lightgbm", table, Run())
        model.write_bytes(export(fitted, table).SerializeToString())


def peak() -> float:
    """The peak memory of this process, in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return float("nan")


def processor_time() -> float:
    """CPU seconds of this process and of those it started, which run the model."""
    import psutil

    here = psutil.Process()
    times = [process.cpu_times() for process in (here, *here.children(recursive=True))]
    return sum(one.user + one.system + one.children_user + one.children_system for one in times)


def run(mode: str, folder: Path) -> dict[str, Any]:
    """One audit."""
    import fairkit

    engine_name, cores = mode.split("-")
    if engine_name == "here":
        os.sched_setaffinity(0, set(range(int(cores))))
        model = fairkit.OnnxModel.load(folder / "model.onnx", threads=int(cores))
        data = fairkit.load_data(folder / "*.parquet", **ROLES)
        begin, used = time.perf_counter(), processor_time()
        report = fairkit.audit(model, data)
        return _result(report, time.perf_counter() - begin, peak(), processor_time() - used)
    from fairkit.engines import DaskEngine, connected

    with connected(workers=int(cores)) as client:
        engine = DaskEngine(client)
        small = fairkit.load_data(folder / "part-000.parquet", **ROLES)
        fairkit.audit(folder / "model.onnx", small, engine=engine)  # imports
        data = fairkit.load_data(folder / "*.parquet", **ROLES)
        begin = time.perf_counter()
        used = processor_time()
        report = fairkit.audit(folder / "model.onnx", data, engine=engine)
        seconds = time.perf_counter() - begin
        used = processor_time() - used
        return _result(report, seconds, max(client.run(peak).values()), used)


def _result(report: Any, seconds: float, memory: float, used: float) -> dict[str, Any]:
    numbers = {f"{f.metric}/{f.sensitive}": f.value for f in report.findings}
    return {"seconds": seconds, "cpu": used, "memory": memory, "sha256": report.data.sha256, "numbers": numbers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--modes", nargs="+", default=MODES)
    parser.add_argument("--only", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.only:
        print(json.dumps(run(chosen.only, chosen.folder)))
        return
    make(chosen.folder, chosen.rows, chosen.files)
    found: dict[str, list[dict[str, Any]]] = {mode: [] for mode in chosen.modes}
    for _ in range(chosen.repeats):
        for mode in chosen.modes:
            command = [sys.executable, __file__, "--folder", str(chosen.folder), "--only", mode]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[mode].append(json.loads(done.stdout.splitlines()[-1]))
    first = found[chosen.modes[0]][0]
    for mode, results in found.items():
        worst = max(abs(value - first["numbers"][name]) for one in results for name, value in one["numbers"].items())
        seconds = statistics.median(one["seconds"] for one in results)
        used = statistics.median(one["cpu"] for one in results)
        memory = max(one["memory"] for one in results)
        same = all(one["sha256"] == first["sha256"] for one in results)
        print(
            f"{mode}: {seconds:.2f} s, {used:.2f} s of CPU, {memory:.0f} MB at most, "
            f"digest {'equal' if same else 'DIFFERENT'}, largest difference {worst:.1e}"
        )


if __name__ == "__main__":
    main()
