"""How whole commands grow: CPU seconds and the peak of memory by rows, columns, groups and people, with slopes.

    python benchmarks/growth.py [--only columns groups] [--most 1000] [--against v0.1.0]

Slopes are of logarithms, between a table and the one before, of CPU seconds less the smallest table's: 1 is linear.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import tempfile
from pathlib import Path

from commands import HERE, run, version
from engines import make

SIZES = {"rows": (10**4, 10**5, 10**6, 10**7), "columns": (10, 100, 1_000), "groups": (10, 100, 1_000, 10_000)}
SIZES |= {"people": (12_500, 50_000, 200_000, 1_000_000), "groups inside 4 strata": (10, 30, 100, 300, 1_000)}
ROLES = "--label outcome --favorable 1 --sensitive group --predictions decision=decision,score=score"
PEOPLE = "--auditor dif --set dif.fair_metric=euclidean --set dif.columns=x0,x1,x2,x3,x4,x5 --set dif.output=score"


def command(kind: str, size: int, folder: Path) -> list[str]:
    """Write a table and return the command."""
    path = folder / f"{kind.replace(' ', '-')}-{size}.parquet"
    shape = {"rows": (size, 10, 0), "columns": (20_000, 2, size), "groups": (10**6, size, 0), "people": (size, 2, 6)}
    make(path, *shape.get(kind, (200_000, size, 1)))
    more = {"people": PEOPLE, "groups inside 4 strata": "--within x0:-0.7:0:0.7"}.get(kind, "")
    return ["audit", "--data", str(path), *ROLES.split(), *more.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(SIZES), choices=SIZES)
    parser.add_argument("--most", type=int, default=10**7, help="no larger size")
    parser.add_argument("--against", help="a commit or tag")
    given = parser.parse_args()
    print("| what grows | size | CPU s | peak MiB | slope | of the other's CPU s |\n" + "| --- " * 6 + "|")
    with tempfile.TemporaryDirectory() as made, contextlib.ExitStack() as stack:
        other = stack.enter_context(version(given.against, Path(made) / "other")) if given.against else None
        for kind in given.only:
            seen: list[tuple[int, float]] = []
            for size in (size for size in SIZES[kind] if size <= given.most):
                asked = command(kind, size, Path(made))
                now, then = [[run(asked, root) for _ in range(2)][1] if root else None for root in (HERE, other)]
                seen.append((size, now.cpu))
                slope, ratio = "", f"{now.cpu / then.cpu:.2f}" if then else ""
                if len(seen) > 2:
                    (_, least), (before, less), (_, most) = seen[0], seen[-2], seen[-1]
                    slope = f"{math.log((most - least) / (less - least)) / math.log(size / before):.2f}"
                print(f"| {kind} | {size:,} | {now.cpu:.2f} | {now.peak:,.0f} | {slope} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
