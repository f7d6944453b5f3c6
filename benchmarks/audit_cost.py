"""What a whole `fairkit audit` costs over reading the file and running the model: ACSIncome, LightGBM, 100 trees.

    OMP_WAIT_POLICY=passive python benchmarks/audit_cost.py [--repeat 5] [--rows 665800]

A process that audits is run in turn with one that only reads the file and runs onnxruntime over it. Wall-clock and
processor seconds, ratios of medians; then the peak memory on a file ten times as long. The data set comes from the
folder FAIRKIT_DATA, the model is trained here.
"""

from __future__ import annotations

import argparse
import os
import statistics as st
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

FEATURES = ["AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX", "RAC1P"]

BARE = """
import sys
import numpy as np
import onnxruntime as ort
import pyarrow.parquet as pq
features = sys.argv[3].split(",")
options = ort.SessionOptions()
options.log_severity_level = 4
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
name = session.get_inputs()[0].name
rows = 0
for batch in pq.ParquetFile(sys.argv[2]).iter_batches(65536):
    columns = [batch.column(batch.schema.names.index(c)).to_numpy() for c in features]
    matrix = np.column_stack(columns).astype(np.float32)
    probabilities = session.run(["probabilities"], {name: matrix})[0]
    rows += len(matrix)
print(rows)
"""


@dataclass(frozen=True)
class Run:
    """One process: wall-clock seconds, processor seconds, peak memory in MB."""

    wall: float
    cpu: float
    peak: float


def train(folder: Path, table_path: Path, rows: int) -> Path:
    import lightgbm
    import numpy as np
    import onnx
    import pyarrow.parquet as pq
    from onnxmltools import convert_lightgbm
    from onnxmltools.convert.common.data_types import FloatTensorType

    table = pq.read_table(table_path).slice(0, min(rows, 200_000))
    matrix = np.column_stack([table[c].to_numpy() for c in FEATURES]).astype(np.float32)
    model = lightgbm.LGBMClassifier(n_estimators=100, num_leaves=31, n_jobs=2, verbose=-1)
    model.fit(matrix, table["PINCP"].to_numpy())
    proto = convert_lightgbm(
        model, initial_types=[("X", FloatTensorType([None, len(FEATURES)]))], target_opset=15, zipmap=False
    )
    for output in proto.graph.output:  # the converter fixes the batch at 1, which makes onnxruntime warn
        output.type.tensor_type.shape.dim[0].Clear()
    path = folder / "income.onnx"
    onnx.save(proto, path)
    return path


def run(command: list[str]) -> Run:
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    if process.returncode not in (0, 1, 3):
        raise SystemExit(errors.decode())
    return Run(time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def prepare(folder: Path, rows: int, times: int) -> None:
    """Train, and write both tables; in a process of its own, since a child's peak memory counts its parent's."""
    import pyarrow.parquet as pq

    source = Path(os.environ["FAIRKIT_DATA"]) / "acs_income.parquet"
    train(folder, source, rows)
    table = pq.read_table(source).slice(0, rows)
    pq.write_table(table, folder / "short.parquet", compression="zstd")
    with pq.ParquetWriter(folder / "long.parquet", table.schema, compression="zstd") as writer:
        for _ in range(times):
            writer.write_table(table)


def audit(folder: Path, table: str) -> list[str]:
    return [
        *(str(Path(sys.executable).with_name("fairkit")), "audit", str(folder / "income.onnx")),
        *("--data", str(folder / table), "--label", "PINCP", "--favorable", "1", "--sensitive", "SEX,RAC1P"),
        *("--features", ",".join(FEATURES), "--format", "json"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--rows", type=int, default=665_800)
    parser.add_argument("--times", type=int, default=10, help="how much longer the second file is")
    parser.add_argument("--prepare", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prepare is not None:
        prepare(options.prepare, options.rows, options.times)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sizes = ["--rows", str(options.rows), "--times", str(options.times)]
        subprocess.run([sys.executable, __file__, "--prepare", str(folder), *sizes], check=True)
        model, short = folder / "income.onnx", folder / "short.parquet"
        bare = [sys.executable, "-c", BARE, str(model), str(short), ",".join(FEATURES)]
        run(bare)
        run(audit(folder, "short.parquet"))
        audits, bares = [], []
        for _ in range(options.repeat):
            bares.append(run(bare))
            audits.append(run(audit(folder, "short.parquet")))
        print(f"{options.rows} rows, median of {options.repeat} runs in turn")
        print(f"{'':<24}{'wall s':>9}{'cpu s':>9}{'peak MB':>9}")
        for what, runs in (("read and run the model", bares), ("fairkit audit", audits)):
            wall, cpu, peak = (st.median(getattr(r, part) for r in runs) for part in ("wall", "cpu", "peak"))
            print(f"{what:<24}{wall:9.2f}{cpu:9.2f}{peak:9.0f}")
        wall, cpu = (
            st.median(getattr(a, part) for a in audits) / st.median(getattr(b, part) for b in bares)
            for part in ("wall", "cpu")
        )
        print(f"{'ratio':<24}{wall:9.2f}{cpu:9.2f}")
        longer = run(audit(folder, "long.parquet"))
        peak = st.median(r.peak for r in audits)
        print(
            f"{options.times} times longer: {longer.peak:.0f} MB, {longer.peak / peak:.2f} times; {longer.wall:.1f} s"
        )


if __name__ == "__main__":
    main()
