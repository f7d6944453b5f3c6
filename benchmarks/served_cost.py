"""What the checks of the served model cost: whole audits with them and without, in turn, processor seconds.

    FAIRKIT_DATA=... python benchmarks/served_cost.py adult [PAIRS]
    FAIRKIT_DATA=... python benchmarks/served_cost.py rows [PAIRS]     # 10^6 rows of ACSIncome, each sampled

The checks: rows scored again in other batches, orders and alone, rounding, rows nearby, other values of constant
columns. Each audit is a process; `--labels` serves the label only. Writes `results/served_cost.json`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "served_cost.json"
FEATURES = {
    "adult": ["age", "education-num", "capital-gain", "capital-loss", "hours-per-week"],
    "rows": ["AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX", "RAC1P"],
}
ROLES = {
    "adult": {"label": "income", "favorable": ">50K", "sensitive": ["sex"]},
    "rows": {"label": "PINCP", "favorable": 1, "sensitive": ["SEX"]},
}
WITHOUT = """
from fairkit_onnx import nearby
from fairkit_onnx.read import alone, scorer
alone.Lone.examine = lambda self, arrays, *rest: ([], alone.Apart(proved=True, widths={}))
alone.Lone.spot = lambda *all: None
scorer.rounding_of = lambda *all: None
scorer.constant_inputs = lambda *all: []
nearby.with_nearby = lambda findings, *all: list(findings)
"""
AUDIT = """
import glob, json, os, resource, sys
import fairkit
roles = json.loads(sys.argv[3])
report = fairkit.audit(sys.argv[1], fairkit.load_data(sys.argv[2], **roles))
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
total = sum(one.ru_utime + one.ru_stime for one in used)
for path in glob.glob("/proc/[0-9]*/stat"):  # the model's process still lives: nobody has counted it
    try:
        fields = open(path).read().rpartition(")")[2].split()
    except OSError:
        continue
    if int(fields[1]) == os.getpid():
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
print(total, sum("nearby" in one.evidence for one in report.findings), "rounding" in report.model.serving)
"""


def prepare(kind: str, folder: Path, labels: bool) -> tuple[Path, Path]:
    """Write the model and the table."""
    import lightgbm
    import numpy as np
    import onnx
    import pyarrow as pa
    import pyarrow.parquet as pq
    from onnxmltools import convert_lightgbm
    from onnxmltools.convert.common.data_types import FloatTensorType

    name = "acs_income" if kind == "rows" else "adult"
    table = pq.read_table(Path(os.environ["FAIRKIT_DATA"]) / f"{name}.parquet")
    label, favorable = ROLES[kind]["label"], ROLES[kind]["favorable"]
    x = np.column_stack([table[c].to_numpy() for c in FEATURES[kind]]).astype(np.float32)[:100_000]
    y = np.array([one == favorable for one in table[label].to_pylist()[:100_000]]).astype(int)
    fitted = lightgbm.LGBMClassifier(n_estimators=100, n_jobs=1, verbose=-1).fit(x, y)
    names = [("X", FloatTensorType([None, x.shape[1]]))]
    proto = convert_lightgbm(fitted, initial_types=names, target_opset=15, zipmap=False)
    for output in proto.graph.output:
        output.type.tensor_type.shape.dim[0].Clear()
    if labels:
        proto.graph.output.pop()
    onnx.save(proto, folder / "model.onnx")
    if kind == "rows":
        rng = np.random.default_rng(0)
        table = table.take(pa.array(rng.integers(0, table.num_rows, 1_000_000)))
    pq.write_table(table, folder / "table.parquet")
    return folder / "model.onnx", folder / "table.parquet"


def spent(checked: bool, *arguments: str) -> float:
    """Return the processor seconds of an audit and its model's process, and see that the checks ran, or did not."""
    code = AUDIT if checked else WITHOUT + AUDIT
    done = subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True)
    total, nearby, rounding = done.stdout.split()
    if (int(nearby) > 0, rounding == "True") != (checked, checked):
        raise SystemExit(f"this pair measures something else: {done.stdout}")
    return float(total)


def main() -> None:
    """Print each pair, and the medians."""
    labels = "--labels" in sys.argv
    kind, *rest = [one for one in sys.argv[1:] if one != "--labels"]
    pairs = int(rest[0]) if rest else 5
    with tempfile.TemporaryDirectory() as place:
        model, table = prepare(kind, Path(place), labels)
        roles = json.dumps(ROLES[kind] | {"features": FEATURES[kind]})
        spent(True, str(model), str(table), roles)
        both = []
        for _ in range(pairs):
            order = (False, True) if len(both) % 2 else (True, False)
            took = {checked: spent(checked, str(model), str(table), roles) for checked in order}
            both.append((took[True], took[False]))
            print(f"with {both[-1][0]:.2f}, without {both[-1][1]:.2f}", flush=True)
    more = statistics.median(one - other for one, other in both)
    ratio = statistics.median(one / other for one, other in both)
    named = f"{kind}{', labels only' if labels else ''}"
    print(f"{named}: {more:+.2f} processor seconds, {ratio:.2f} times, median of {pairs} pairs")
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    known[named] = {"pairs": both, "more_seconds": round(more, 3), "ratio": round(ratio, 3)}
    RESULTS.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
