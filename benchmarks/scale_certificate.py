"""A certificate on 1,000,000 support rows: one machine against two workers with half of the support each.

python benchmarks/scale_certificate.py --folder /tmp/loans-6 --rows 1000000 --queries 10000
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from scale_audit import ROLES, make, peak

import fairkit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=2)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--epsilon", type=float, default=0.02)
    chosen = parser.parse_args()
    make(chosen.folder, chosen.rows, chosen.files)
    from fairkit.engines import DaskEngine, connected

    parameters = {"epsilon": chosen.epsilon, "queries": chosen.queries}
    asked: dict[str, Any] = {"auditors": ["restricted-dro"], "parameters": {"restricted-dro": parameters}}

    def audit(engine: Any) -> tuple[Any, float]:
        data = fairkit.load_data(chosen.folder / "*.parquet", **(ROLES | {"sensitive": ["sex"]}))
        # one thread each: onnxruntime sums trees in an order that depends on its threads
        model = fairkit.OnnxModel.load(chosen.folder / "model.onnx", threads=1)
        begin = time.perf_counter()
        report = fairkit.audit(model, data, engine=engine, **asked)
        return report.findings[0], time.perf_counter() - begin

    with connected(workers=2) as client:
        there, seconds = audit(DaskEngine(client))
        memory = max(client.run(peak).values())
    print(f"two workers: {seconds:.1f} s, {memory:.0f} MB a worker, gap {there.value:.12f}, {there.interval}")
    here, seconds = audit(None)
    print(f"one machine: {seconds:.1f} s, {peak():.0f} MB, gap {here.value:.12f}, {here.interval}")
    bounds = abs(here.evidence["lower_bound"] - there.evidence["lower_bound"])
    print(f"difference of the gap {abs(here.value - there.value):.2e}, of its lower bound {bounds:.2e}")
    print(f"evaluations {here.evidence['evaluations']:.2f} and {there.evidence['evaluations']:.2f}, "
          f"looks a row {here.evidence['looks_per_row']:.0f} and {there.evidence['looks_per_row']:.0f}")  # fmt: skip


if __name__ == "__main__":
    main()
