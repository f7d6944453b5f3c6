"""What an audit of a model costs besides inference: Adult's rows again and again, and a boosted model of 300 trees.

    FAIRKIT_DATA=... python benchmarks/inference_share.py --rows 10000000 --folder /tmp/adult

Numbers get a little noise, so that no row is a copy. The phases are those of ``fairkit audit --timings``: CPU seconds
of the process and of those that it started, which run the model.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fairkit
import fairkit_datasets

TREES = 300
ROLES: dict[str, Any] = {"label": "income", "favorable": ">50K", "sensitive": ["sex", "race"]}


def make(folder: Path, rows: int) -> None:
    """Write the table and the model, where they are not there."""
    from fairkit.mitigators import Run, Table
    from fairkit_onnx.write.export import export
    from fairkit_repair.learners import fit_learner

    folder.mkdir(parents=True, exist_ok=True)
    source = fairkit_datasets.load("adult").source
    adult = pa.Table.from_batches(list(source.batches(source.columns, 1 << 20))).drop_columns(["split"])
    path = folder / f"adult-{rows}.parquet"
    if not path.exists():
        with pq.ParquetWriter(path, _noisy(adult.slice(0, 1), 0).schema) as writer:
            for number, start in enumerate(range(0, rows, adult.num_rows)):
                writer.write_table(_noisy(adult, number).slice(0, rows - start))
    model = folder / "model.onnx"
    if not model.exists():
        table = Table.from_dataset(fairkit.load_data(_noisy(adult, -1), **ROLES))
        fitted = fit_learner("lightgbm", table, Run(), settings={"n_estimators": TREES})
        model.write_bytes(export(fitted, table).SerializeToString())


def _noisy(table: pa.Table, number: int) -> pa.Table:
    rng = np.random.default_rng([3, number + 1])
    for place, field in enumerate(table.schema):
        if pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
            values = table.column(place).to_numpy().astype(float)
            noisy = values + rng.normal(0, 0.01, len(values)) * (1 + abs(values))
            table = table.set_column(place, field.name, pa.array(noisy))
    return table


def main() -> None:
    """Print the phases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, required=True)
    chosen = parser.parse_args()
    make(chosen.folder, chosen.rows)
    files = [chosen.folder / "model.onnx", "--data", chosen.folder / f"adult-{chosen.rows}.parquet"]
    roles = ["--label", "income", "--favorable", ">50K", "--sensitive", "sex", "--sensitive", "race"]
    words = ["fairkit", "--timings", "audit", *map(str, files), *roles]
    code = f"import sys; sys.argv = {words!r}\nfrom fairkit_cli.main import run; run()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    print(done.stderr)


if __name__ == "__main__":
    main()
