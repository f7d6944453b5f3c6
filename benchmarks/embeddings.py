"""Time and memory of `mitigate --plugin sensei` on a column of embeddings, as the command line has it.

    python benchmarks/embeddings.py [--rows 20000] [--length 768] [--units 2000] [--methods sensei clp erm]

Made-up sentences: an embedding of normal numbers, in which one direction tells whether "he" or "she" is said and goes
with the outcome; the versions of a sentence differ along it. The command learns the metric by FACE, trains, trains the
plain network for comparison, measures both on held-out rows and writes the file. One thread; processor seconds, and the
most memory, of the whole command.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def sentences(rows: int, length: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return embeddings, those with the word swapped, and the outcomes."""
    rng = np.random.default_rng(seed)
    plain = rng.normal(size=(rows, length)).astype(np.float32)
    direction = rng.normal(size=length).astype(np.float32)
    direction /= np.linalg.norm(direction)
    content = rng.normal(size=length) / np.sqrt(length)
    said = rng.random(rows) < 0.5
    outcome = plain @ content + 0.8 * (said - 0.5) + rng.normal(size=rows) > 0
    away = 4 * np.where(said, 1, -1).astype(np.float32)[:, None] * direction
    return plain + away, plain - away, outcome


def written(folder: Path, rows: int, length: int, seed: int) -> None:
    """Write the table of sentences and that of their versions."""
    first, second, outcome = sentences(rows, length, seed)

    def lists(matrix: np.ndarray) -> pa.Array:
        return pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), matrix.shape[1])

    labels = pa.array(np.where(outcome, "fine", "toxic"))
    pq.write_table(pa.table({"emb": lists(first), "label": labels}), folder / "sentences.parquet")
    of = np.tile(np.arange(rows), 2)
    both = np.concatenate([first, second])
    pq.write_table(pa.table({"emb": lists(both), "of": of}), folder / "versions.parquet")


def command(folder: Path, method: str, units: int) -> list[str]:
    """Return the command of a method."""
    told = {"method": method, "hidden": str(units), "counterfactuals": "versions.parquet"}
    if method in ("sensei", "sensr"):
        told |= {"fair_metric": "face", "standardise": "false"}
    if method == "erm":
        del told["counterfactuals"]
    settings = [part for key, value in told.items() for part in ("--set", f"{key}={value}")]
    return [
        *(
            str(Path(sys.executable).with_name("fairkit")),
            "mitigate",
            "--plugin",
            "sensei",
            "--set",
            "mitigate.threads=1",
        ),
        *("--data", "sentences.parquet", "--label", "label", "--favorable", "fine"),
        *(*settings, "--output", f"{method}.onnx", "--format", "json"),
    ]


def measured(folder: Path, method: str, units: int) -> str:
    """Run the command; say what it took and what came out."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(  # noqa: PLW1510
        command(folder, method, units),
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 3):
        raise SystemExit(done.stderr)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    told = json.loads(done.stdout)
    size = (folder / f"{method}.onnx").stat().st_size
    epochs = len(told["details"]["history"])
    used, gib = f"{cpu:.0f} CPU s ({time.monotonic() - start:.0f} s)", after.ru_maxrss / 2**20
    return (
        f"{method}: {epochs} epochs, {used}, at most {gib:.1f} GiB, file {size / 2**20:.1f} MiB, exit code "
        f"{done.returncode}; {_performance(told)}"
    )


def _performance(told: dict) -> str:
    """Return accuracy and log loss before and after, on the held-out rows."""
    shown = [
        f"{one['metric']} {one['before']:.3f} to {one['after']:.3f}"
        for one in told["changes"]
        if one["metric"] in ("accuracy", "log_loss") and one["sensitive"] is None and one["group"] is None
    ]
    return ", ".join(shown)


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("rows", 20_000), ("length", 768), ("units", 2_000), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--methods", nargs="*", default=["sensei"], choices=["sensei", "sensr", "clp", "erm"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        written(Path(folder), options.rows, options.length, options.seed)
        print(f"{options.rows:,} rows x {options.length}, {options.units:,} hidden units")
        for method in options.methods:
            print(measured(Path(folder), method, options.units), flush=True)


if __name__ == "__main__":
    main()
