"""What happens on 100 workers: the cost model of docs/reference/scale.md, stragglers, and the fixed order of merging.

python benchmarks/scale_simulation.py

Parts are handed out one by one to the worker that is free first, as Dask does. The time of a part is its rows over the
rate, times a log-normal factor of its own and a factor of its worker; one worker in fifty is three times as slow.
Totals are merged eight at a time in a tree: in the order of the parts ("fixed", what fairkit does), or in the order in
which they get done ("as they come", which would make the last digits depend on timing).
"""

from __future__ import annotations

import argparse
import heapq
from dataclasses import dataclass

import numpy as np

FAN_IN = 8


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Measured by benchmarks/scale_audit.py (see docs/reference/scale.md).

    Attributes
    ----------
    rate
        Rows that one worker scores and totals in a second, first pass included.
    task
        Seconds of the scheduler for each task: handing out, reporting.
    merge
        Seconds to send and add eight totals.
    fixed
        Seconds that do not depend on the rows: findings, intervals, connecting.
    """

    rate: float
    task: float = 0.001
    merge: float = 0.02
    fixed: float = 1.4


def predicted(rows: float, workers: int, parts: int, costs: Costs) -> float:
    """The cost model: an even share of the rows, one part more, the tree's depth, the scheduler's tasks."""
    depth = int(np.ceil(np.log(max(parts, 2)) / np.log(FAN_IN)))
    part = rows / parts / costs.rate
    return costs.fixed + max(rows / workers / costs.rate + part / 2, parts * costs.task) + depth * costs.merge


def simulated(
    rows: float, workers: int, parts: int, costs: Costs, rng: np.random.Generator, *, spread: float, slow: float
) -> tuple[float, float, float]:
    """Return the seconds until all parts are done, and until they are merged in fixed order and as they come."""
    speed = np.where(rng.random(workers) < slow, 3.0, 1.0)
    work = rows / parts / costs.rate * rng.lognormal(-(spread**2) / 2, spread, parts)
    free = [(0.0, worker) for worker in range(workers)]
    heapq.heapify(free)
    done = np.empty(parts)
    for part in range(parts):
        at, worker = heapq.heappop(free)
        begin = max(at, part * costs.task)
        done[part] = begin + work[part] * speed[worker]
        heapq.heappush(free, (done[part], worker))
    return float(done.max()), _merged(done, costs), _merged(np.sort(done), costs)


def _merged(done: np.ndarray, costs: Costs) -> float:
    level = done
    while len(level) > 1:
        level = np.array([level[at : at + FAN_IN].max() + costs.merge for at in range(0, len(level), FAN_IN)])
    return float(level[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e9)
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--rate", type=float, default=139_000, help="rows a second and worker")
    parser.add_argument("--repeats", type=int, default=200)
    chosen = parser.parse_args()
    costs = Costs(rate=chosen.rate)
    rng = np.random.default_rng(0)
    ideal = chosen.rows / chosen.workers / costs.rate
    print(
        f"{chosen.rows:.0e} rows on {chosen.workers} workers of {costs.rate:,.0f} rows/s: "
        f"{ideal:.1f} s if nothing were lost"
    )
    print("parts   model   even workers: done, fixed, as they come   stragglers: done, fixed, as they come")
    for parts in (chosen.workers, 4 * chosen.workers, 10 * chosen.workers, 100 * chosen.workers):
        cells = []
        for spread, slow in ((0.1, 0.0), (0.3, 0.02)):
            runs = [
                simulated(chosen.rows, chosen.workers, parts, costs, rng, spread=spread, slow=slow)
                for _ in range(chosen.repeats)
            ]
            cells += [f"{value:8.1f}" for value in np.median(runs, axis=0)]
        model = predicted(chosen.rows, chosen.workers, parts, costs)
        print(f"{parts:6}{model:8.1f}   {''.join(cells[:3]):>38}   {''.join(cells[3:]):>36}")


if __name__ == "__main__":
    main()
