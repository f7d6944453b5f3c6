"""Training time against stock LightGBM, in turn on the same arrays.

    OMP_WAIT_POLICY=passive python benchmarks/fairgbm_speed.py [--rows 50000 1000000] [--repeats 5]

ACSIncome, ten columns with a little noise added, 100 trees of 31 leaves, FNR constraint. `wall` and `cpu` are ratios
to LightGBM's; on a busy machine trust the second. Asked for: at most 1.1 at 1,000,000 rows, 1.25 at 50,000.
"""

from __future__ import annotations

import argparse
import time

import lightgbm
import numpy as np
import pyarrow.parquet as pq
from fairgbm_common import folder, line

from fairkit_fairgbm.constraints import Constraints, make_cells
from fairkit_fairgbm.trainer import TrainerSettings, TrainingRows, train

COLUMNS = ["AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX", "RAC1P"]


def sample(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = pq.read_table(folder() / "acs_income.parquet").to_pandas()
    places = np.arange(rows) % len(table)
    noise = np.random.default_rng(0).normal(size=(rows, len(COLUMNS)))
    matrix = (table[COLUMNS].to_numpy()[places] + 0.01 * noise).astype(np.float32)
    return matrix, table["PINCP"].to_numpy(float)[places], table["SEX"].to_numpy(np.int64)[places] - 1


def timed(work) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[50_000, 1_000_000])
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    params = {"verbosity": -1, "deterministic": True, "seed": 0, "learning_rate": 0.1}
    settings = TrainerSettings(rounds=100, multiplier_rate=2.0, multiplier_cap=5.0, params=params)
    following = TrainerSettings(
        rounds=100, multiplier_rate=2.0, multiplier_cap=5.0, params=params, follow_validation=True
    )
    constraints = Constraints(("fnr",), (0.0,))
    line("rows", "LightGBM s", "FairGBM s", "wall", "cpu", "defaults wall", "defaults cpu")
    for rows in chosen.rows:
        compare(rows, chosen.repeats, params, constraints, settings, following)


def compare(rows, repeats, params, constraints, settings, following) -> None:
    matrix, labels, groups = sample(rows)
    whole = TrainingRows(matrix, make_cells(groups, labels, ("men", "women")))
    held = np.arange(rows) % 5 == 0
    rest, validation = (
        TrainingRows(matrix[mask], make_cells(groups[mask], labels[mask], ("men", "women"))) for mask in (~held, held)
    )
    few = TrainingRows(matrix[:2000], make_cells(groups[:2000], labels[:2000], ("men", "women")))
    train(few, constraints, settings)  # compiles the kernels
    found = []
    for _ in range(repeats):
        data = lightgbm.Dataset(matrix, labels)
        stock = timed(lambda data=data: lightgbm.train(params | {"objective": "binary"}, data, 100))
        ours = timed(lambda: train(whole, constraints, settings))
        default = timed(lambda: train(rest, constraints, following, validation=validation))
        ratios = [ours[0] / stock[0], ours[1] / stock[1], default[0] / stock[0], default[1] / stock[1]]
        found.append([stock[0], ours[0], *ratios])
        line(rows, *found[-1])
    line("median", *np.median(found, axis=0).tolist())


if __name__ == "__main__":
    main()
