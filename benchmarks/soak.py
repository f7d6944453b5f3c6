"""Kill -9 over a registry and a watch; after each kill everything is read again.

    python benchmarks/soak.py registry 450       # add, promote and import, a third each, and at every step besides
    python benchmarks/soak.py watch 300          # a watch that counts batches

Prints the number of kills and of faults; the code is 1 where there was one. Fuzzed inputs are in `fuzz_input.py`.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
NEWEST = 25
"""Kills after which a watch begins anew, so that reading it stays quick."""


def forked(work: Callable[[Callable[[bytes], None]], None], delay: float | None) -> tuple[bool, bytes]:
    """Run work in a child and kill it some time after its first word: whether it was killed, and what it said.

    Work that fails ends the program.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            work(lambda text: os.write(writer, text))  # type: ignore[arg-type, return-value]
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(7)
    os.close(writer)
    said = os.read(reader, 1)
    if delay is not None and said:
        time.sleep(delay)
        os.kill(pid, signal.SIGKILL)
    while piece := os.read(reader, 1 << 16):
        said += piece
    os.close(reader)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code not in (0, -signal.SIGKILL):
        raise SystemExit(f"a child ended with {code}")
    return code != 0, said


def watch(folder: Path, wanted: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of kills so far and the faults of each round: batches that were acknowledged must be counted."""
    import pyarrow as pa

    from fairkit import Rule, Watch

    rng, kills, rounds = random.Random(36), 0, 0
    place = folder / "watch"
    acknowledged: set[int] = set()
    while kills < wanted:
        if rounds % NEWEST == 0:
            shutil.rmtree(place, ignore_errors=True)
            acknowledged = set()
            rule = Rule.parse("demographic_parity_difference=0.2", "max")
            Watch.create(place, [rule], decision="decision", sensitive=["sex"], groups={"sex": ["f", "m"]}).close()
        rounds += 1
        begun = max(acknowledged, default=0) + 2  # the one after the last may be written and not yet said

        def add(say: Callable[[bytes], None], begun: int = begun) -> None:
            with Watch.open(place) as book:
                say(b" ")
                for number in range(begun, begun + 40):
                    table = pa.table({"decision": [number % 2, 1], "sex": ["f", "m"]})
                    book.add(table, day=f"2024-{1 + number // 28 % 12:02}-{1 + number % 28:02}", batch=str(number))
                    say(f"{number} ".encode())

        killed, said = forked(add, rng.uniform(0, 0.12))
        kills += killed
        acknowledged |= {int(text) for text in said.split(b" ")[:-1] if text}
        faults = []
        with Watch.open(place) as book:
            counted = [int(one["batch"]) for one in book.book.records if "batch" in one]
            if not acknowledged <= set(counted):
                faults.append(f"lost: {sorted(acknowledged - set(counted))}")
            if len(counted) != len(set(counted)) or len(counted) > len(acknowledged) + 1:
                faults.append(f"{len(counted)} batches for {len(acknowledged)} acknowledged ones")
            if book.look().rows != 2 * len(counted):
                faults.append(f"{book.look().rows} rows of {len(counted)} batches")
        acknowledged |= set(counted)
        yield kills, faults


def registry(wanted: int) -> int:
    """Return the code of the tests that kill a registry's operations, with so many kills of each."""
    test = ROOT / "tests" / "fairkit_registry" / "test_crash.py"
    each = {**os.environ, "FAIRKIT_KILLS": str(-(-wanted // 3))}
    return subprocess.run([sys.executable, "-m", "pytest", "-q", str(test)], cwd=ROOT, env=each, check=False).returncode


def main() -> None:
    """Print kills and faults."""
    kind, wanted = sys.argv[1], int(sys.argv[2])
    if kind == "registry":
        raise SystemExit(registry(wanted))
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_STATE_HOME"] = str(Path(name) / "state")
        kills, wrong = 0, 0
        for killed, faults in watch(Path(name), wanted):
            kills, wrong = killed, wrong + bool(faults)
            for text in faults:
                print(f"  {text}", flush=True)
        print(f"{kind}: {kills} kills, {wrong} faults")
    raise SystemExit(int(wrong > 0))


if __name__ == "__main__":
    main()
