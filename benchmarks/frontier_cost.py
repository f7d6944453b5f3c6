"""What a frontier costs in units of one training, and what its page and a report's page cost.

    python benchmarks/frontier_cost.py [--rows 200000] [--points 20] [--trees 100]
    python benchmarks/frontier_cost.py --page

The first: FairGBM on ACSIncome, the tolerance varied, all cores. One training is that of the frontier's own rows with
all cores, from rows in memory to the model, before and after the frontier; the ratio is of the frontier's whole time,
audits, exports and the report on test rows included. Both need FAIRKIT_DATA.
The second: the HTML page of a full audit of Adult (all 48,842 rows, sex and race), after the audit.
"""

from __future__ import annotations

import argparse
import time

from fairgbm_common import ROLES, folder

import fairkit
from fairkit.mitigators import Run, Table
from fairkit_onnx.write.export import export
from fairkit_repair.frontiers.run import frontier
from fairkit_repair.frontiers.sweeps import Sweep
from fairkit_repair.learners import fit_learner
from fairkit_repair.mitigation.choose import find_mitigator
from fairkit_repair.mitigation.split import split_dataset


def timed(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def cost(rows: int, points: int, trees: int) -> None:
    import pyarrow.parquet as pq

    table = pq.read_table(folder() / "acs_income.parquet").slice(0, rows)
    data = fairkit.load_data(table, name="acs_income", **ROLES["acs_income"])
    learning, _ = split_dataset(split_dataset(data, 0.2, 0)[0], 0.2, 1)
    train = Table.from_dataset(learning)
    method = find_mitigator("fairgbm").with_values({"n_estimators": trees, "tolerance": 0.02})
    method.fit(train.take(slice(0, 2_000)), Run(seed=0))  # compiles
    before = timed(lambda: method.fit(train, Run(seed=0)))
    values = [round(0.1 * place / (points - 1), 4) for place in range(points)]
    sweep = Sweep(plugin="fairgbm", vary={"tolerance": values}, fixed={"n_estimators": trees})
    found = []
    whole = timed(lambda: found.append(frontier([sweep], data)))
    after = timed(lambda: method.fit(train, Run(seed=0)))
    one = (before + after) / 2
    done = sum(point.status == "done" for point in found[0].points) - 1
    print(f"{rows:,} rows, {done} points of {trees} trees: {whole:.1f} s; ", end="")
    print(f"one training {before:.2f} and {after:.2f} s: {whole / one:.1f} times (<= {points})")


def page() -> None:
    from fairkit_cli.formats import html as report_page
    from fairkit_cli.render.svg import warm

    data = fairkit.load_data(
        folder() / "adult.parquet", **(ROLES["adult"] | {"sensitive": ["sex", "race", "sex+race"]})
    )
    table = Table.from_dataset(data)
    model = export(fit_learner("lightgbm", table, Run(seed=0)), table)
    with warm():  # as the command does: the renderer starts beside the audit
        report = fairkit.audit(model.SerializeToString(), data)
    first = timed(lambda: report_page(report))
    again = timed(lambda: report_page(report))
    size = len(report_page(report).encode())
    print(f"page of {len(report.findings)} findings: {first:.2f} s, again {again:.2f} s (< 1 s), {size / 1e6:.2f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--points", type=int, default=20)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--page", action="store_true")
    chosen = parser.parse_args()
    page() if chosen.page else cost(chosen.rows, chosen.points, chosen.trees)


if __name__ == "__main__":
    main()
