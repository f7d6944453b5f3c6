"""The audit's arithmetic against that of the verifying page, in node: `second_arithmetic.py [TABLES]`.

Ends with an error where a number differs by more than 1e-9. The tests do the same on fewer tables.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "fairkit_cli" / "verifier"))

from fuzzing import differences

BATCH = 2_000


def main(count: int) -> float:
    """Print the largest difference of every number, and return the largest of all."""
    begun, worst = time.perf_counter(), {}
    for seed in range(max(1, count // BATCH)):
        for name, found in differences(min(BATCH, count), seed).items():
            worst[name] = max(worst.get(name, found), found, key=lambda one: one[0])
        apart = max(difference for difference, _ in worst.values())
        print(f"\r{min((seed + 1) * BATCH, count):,} tables, {apart:.1e} apart", end="", file=sys.stderr)
    print(file=sys.stderr)
    for name, (apart, table) in worst.items():
        print(f"{name:12} {apart:.2e}  {table}")
    print(f"{count:,} tables in {time.perf_counter() - begun:.0f} s")
    return max(apart for apart, _ in worst.values())


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000) > 1e-9)
