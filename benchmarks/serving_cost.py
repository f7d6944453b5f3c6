"""What the checks of the served model cost an audit: processor time of whole commands, before and after, in pairs.

``python benchmarks/serving_cost.py --before PYTHON [--rows 1000000] [--pairs 5]``, where PYTHON is the interpreter of
an environment that has the version to compare with. Prints the seconds of both, and the median ratio of the pairs.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from skl2onnx import to_onnx
from sklearn.ensemble import GradientBoostingClassifier

COMMAND = "import sys; from fairkit_cli.main import run; sys.argv[0] = 'fairkit'; run()"


def inputs(folder: Path, rows: int) -> list[str]:
    """Write a table of ten numbers and a model of 100 trees; return the command's words."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 10)).astype(np.float32)
    y = (x[:, 0] + rng.normal(size=rows) > 0).astype(int)
    fitted = GradientBoostingClassifier(n_estimators=100).fit(x[:20_000], y[:20_000])
    (folder / "model.onnx").write_bytes(to_onnx(fitted, x[:1], target_opset=17).SerializeToString())
    table = pd.DataFrame(x, columns=[f"x{i}" for i in range(10)])
    table["y"], table["sex"] = y, rng.choice(["f", "m"], rows)
    table.to_parquet(folder / "people.parquet")
    roles = [
        "--label",
        "y",
        "--favorable",
        "1",
        "--drop",
        "sex",
        "--sensitive",
        "sex",
        "--max",
        "demographic_parity_difference:sex=0.1",
    ]
    return ["audit", str(folder / "model.onnx"), "--data", str(folder / "people.parquet"), *roles]


def seconds(python: str, words: list[str]) -> float:
    """Return the processor time of one command and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([python, "-P", "-c", COMMAND, *words], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", required=True)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--pairs", type=int, default=5)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        words = inputs(Path(folder), told.rows)
        ratios = []
        for _ in range(told.pairs):
            old, new = seconds(told.before, words), seconds(sys.executable, words)
            ratios.append(new / old)
            print(f"before {old:.2f} s, now {new:.2f} s, ratio {ratios[-1]:.3f}", flush=True)
    print(f"median ratio {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
