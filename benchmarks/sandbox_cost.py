"""What the process of a model costs: the same audits with and without it, in turn.

    OMP_WAIT_POLICY=passive python benchmarks/sandbox_cost.py MODEL.onnx DATA --label L --favorable V --sensitive S

Every audit is a process of its own, from the start of Python to the report. Pairs are run in turn, in both orders;
the medians of the pairs' differences and ratios are printed, for wall-clock and for processor seconds (children
included). On a machine with a free core the model's process starts while the data are read.
"""

from __future__ import annotations

import argparse
import resource
import statistics as st
import subprocess
import sys
import time

AUDIT = """
import sys
import fairkit
from fairkit_onnx.model import OnnxModel
model, data, label, favorable, sensitive, inside = sys.argv[1:]
loaded = OnnxModel.load(model, sandbox=inside == "inside")
rows = fairkit.load_data(data, label=label, favorable=favorable or None, sensitive=sensitive.split(","))
print(len(fairkit.audit(loaded, rows).findings))
"""


def once(arguments: list[str], inside: bool) -> tuple[float, float]:
    """Run one audit; wall-clock and processor seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    command = [sys.executable, "-c", AUDIT, *arguments, "inside" if inside else "here"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--label", required=True)
    parser.add_argument("--favorable", default="")
    parser.add_argument("--sensitive", required=True)
    parser.add_argument("--repeat", type=int, default=9)
    told = parser.parse_args()
    arguments = [told.model, told.data, told.label, told.favorable, told.sensitive]
    pairs: list[dict[bool, tuple[float, float]]] = []
    for number in range(told.repeat):
        order = (True, False) if number % 2 else (False, True)
        pairs.append({inside: once(arguments, inside) for inside in order})
    for place, what in enumerate(("wall-clock", "processor")):
        here, inside = ([pair[key][place] for pair in pairs] for key in (False, True))
        differences = [two - one for one, two in zip(here, inside, strict=True)]
        ratios = [two / one for one, two in zip(here, inside, strict=True)]
        print(
            f"{what}: {st.median(here):.2f} s without, {st.median(inside):.2f} s with; median of the pairs' "
            f"differences {st.median(differences):+.3f} s, of their ratios {st.median(ratios):.3f}"
        )


if __name__ == "__main__":
    main()
