"""Every command that a user waits for, from its first character to the prompt.

    FAIRKIT_DATA=... python benchmarks/commands.py [--cases adult-forest ...] [--only group ...] [--limit 300]
    FAIRKIT_DATA=... python benchmarks/commands.py --against v0.1.0      # in pairs with another version of fairkit

Each run is a process of its own; wall, CPU and the peak of memory are those of the process and its children, as the
system counts them. The share of each phase is that of `--timings`. Every command runs once before it is measured, so
that what it keeps for later runs (compiled kernels) is there; `--cold` leaves that out. With `--against` both versions
run in turn, and the ratio of CPU seconds says what got slower; wall times mean something on a quiet machine only.
A command that runs longer than `--limit` is ended, and named below the table; so are those on 200,000 rows or more in
which a phase besides inference, training and search takes above 20 % of the CPU time. Tables and models are made once,
in the folder FAIRKIT_BENCH. CatBoost is not among the dependencies: pip install catboost.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from commands_list import COMPLETE, Case, commands, light

CASES = ("adult-forest", "credit-catboost", "credit-network", "mortgages-forest", "acs-lightgbm", "loans-lightgbm")
ROOTS = ("core", "registry", "cli", "plugins")
HERE = Path(__file__).resolve().parent.parent
MANY_ROWS = ("mortgages-forest", "acs-lightgbm", "loans-lightgbm")
"""The tables with 200,000 rows or more."""
KERNELS = ("score", "train", "search", "learn metric")
"""The phases that may take any share of a command on many rows."""
MOST_SHARE = 0.2
"""What any other phase may take there."""
OVER = 124
"""The exit code of a command that ran out of time, as of timeout(1)."""
NEEDED = ("certify", "registry add", "registry add again", "registry alias set")
"""Other commands read what these write: they run, unmeasured, also where they are not asked for."""


@dataclass(frozen=True)
class Measured:
    """One run of a command."""

    wall: float
    cpu: float
    peak: float
    code: int
    phases: dict[str, float]
    message: str = ""


def run(arguments: list[str], roots: Path, *, timings: bool = True, limit: float | None = None) -> Measured:
    """Run a command from the sources in a folder, for at most so many seconds."""
    code = "from fairkit_cli.main import run; run()"
    path = os.pathsep.join(str(roots / root) for root in ROOTS)
    command = [sys.executable, "-c", code, *(["--timings"] if timings else []), *arguments]
    # where Python may not write bytecode, every run would compile all of fairkit: no user's installation does
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    if arguments[0] == COMPLETE:
        command = command[:3]
        # what typer's script for bash sets: the words so far, and which of them is being typed
        words = arguments[1].split(" ")
        asked = {"_COMPLETE_INSTRUCTION": "complete_bash", "COMP_WORDS": arguments[1], "COMP_CWORD": len(words) - 1}
        surroundings |= {"_FAIRKIT_COMPLETE": "complete_bash"} | {name: str(value) for name, value in asked.items()}
        code = "import sys; sys.argv[0] = 'fairkit'; " + code
        command[2] = code
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with tempfile.TemporaryFile() as shown:
        child = subprocess.Popen(
            command,
            env=surroundings | {"PYTHONPATH": path},
            stdout=subprocess.DEVNULL,
            stderr=shown,
            start_new_session=True,
        )
        timer = threading.Timer(limit or 1e6, _end, [child.pid])
        timer.start()
        _, status, used = os.wait4(child.pid, 0)
        timer.cancel()
        wall = time.perf_counter() - begun
        child.returncode = os.waitstatus_to_exitcode(status)
        shown.seek(0)
        told = shown.read().decode(errors="replace")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    ended = OVER if child.returncode < 0 and wall >= (limit or 1e6) else child.returncode
    plain = [line for line in told.splitlines() if line.startswith("fairkit:") and "timings" not in line]
    message = (plain or ["no message"])[0] if ended not in (0, 1, 3) else ""
    return Measured(wall, cpu, used.ru_maxrss / 1024, ended, phases_of(told), message)


def _end(group: int) -> None:
    """End a command with its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def phases_of(told: str) -> dict[str, float]:
    """Read the CPU seconds of each phase from what `--timings` printed."""
    found = {}
    for line in told.splitlines():
        parts = line.split()
        if len(parts) >= 4 and parts[-1].endswith("%") and not line.startswith("fairkit"):
            found[" ".join(parts[:-3])] = float(parts[-2])
    found.pop("all", None)
    return found


def takes_timings(arguments: list[str]) -> bool:
    """Say whether a command has the option."""
    return "--help" not in arguments and arguments[0] not in ("plugins", "key", COMPLETE)


def row(case_name: str, name: str, found: Measured) -> str:
    """Return a row of the table."""
    whole = max(sum(found.phases.values()), 1e-9)
    leading = sorted(found.phases.items(), key=lambda each: -each[1])[:4]
    shares = ", ".join(f"{phase} {seconds / whole:.0%}" for phase, seconds in leading)
    shown = f"exit {found.code}: {found.message}" if found.message else shares
    return f"| {case_name} | `{name}` | {found.wall:.2f} | {found.cpu:.2f} | {found.peak:,.0f} | {shown[:110]} |"


def measure(chosen: list[str], only: list[str], told: argparse.Namespace, show: Callable[[str], None]) -> None:
    """Print a table of this version, and what broke a rule."""
    show("| case | command | wall s | CPU s | peak MiB | largest phases (CPU) |")
    show("| --- | --- | --- | --- | --- | --- |")
    over, wide = [], []
    with tempfile.TemporaryDirectory() as folder:
        for case_name, name, arguments, asked in work(chosen, only, Path(folder)):
            timings = takes_timings(arguments)
            if not asked or not told.cold:
                first = run(arguments, HERE, timings=timings, limit=told.limit)
                if not asked or first.code == OVER:
                    over += [f"{case_name}: {name}"] if first.code == OVER else []
                    if asked:
                        show(row(case_name, name, first))
                    continue
            found = [run(arguments, HERE, timings=timings, limit=told.limit) for _ in range(told.repeats)]
            least = min(found, key=lambda each: each.cpu)
            show(row(case_name, name, least))
            over += [f"{case_name}: {name}"] if least.code == OVER else []
            if not name.startswith("registry"):  # these read no table
                wide += [f"{case_name}: {name}: {words}" for words in too_wide(case_name, least)]
    show("")
    show(f"Over {told.limit:g} s: {'; '.join(over) or 'none'}.")
    show(f"Phases above {MOST_SHARE:.0%} on 200,000 rows or more: {'; '.join(wide) or 'none'}.")


def too_wide(case_name: str, found: Measured) -> list[str]:
    """Return the phases that take too much of a command on many rows, with their shares."""
    whole = sum(found.phases.values())
    if case_name not in MANY_ROWS or not whole:
        return []
    return [
        f"{phase} {seconds / whole:.0%}"
        for phase, seconds in found.phases.items()
        if phase not in KERNELS and seconds > MOST_SHARE * whole
    ]


def made(name: str, folder: Path) -> Case:
    """Make a table and its model unless they are there: in a process of its own, whose memory no run inherits."""
    data, model, told = (folder / f"{name}{end}" for end in (".parquet", ".onnx", ".roles"))
    if not told.exists():
        maker = Path(__file__).with_name("commands_data.py")
        subprocess.run([sys.executable, str(maker), name, str(folder)], check=True)
    return Case(name, data, model, tuple(told.read_text().split("\n")))


def work(chosen: list[str], only: list[str], folder: Path) -> Iterator[tuple[str, str, list[str], bool]]:
    """Go through cases and commands, and say of each whether it is asked for or others need what it writes."""
    run(["key", "new", str(folder / "key")], HERE, timings=False)
    lasting = Path(os.environ.get("FAIRKIT_BENCH", Path(tempfile.gettempdir()) / "fairkit-bench"))
    lasting.mkdir(parents=True, exist_ok=True)

    def asked(name: str) -> bool:
        return not only or any(word in name for word in only)

    for name, arguments in light():
        if asked(name):
            yield "none", name, arguments, True
    for case_name in chosen:
        one = made(case_name, lasting)
        found = list(commands(one, folder))
        reads = {"verify --recompute"} | {name for name, _ in found if name.startswith("registry")}
        needed = NEEDED if any(asked(name) for name in reads) else ()
        for name, arguments in found:
            if asked(name) or name in needed:
                yield case_name, name, arguments, asked(name)


def pairs(chosen: list[str], only: list[str], base: str, told: argparse.Namespace, show: Callable[[str], None]) -> None:
    """Print the ratio of this version's CPU seconds to another's, command by command."""
    show(f"| case | command | CPU s, {base} | CPU s, now | ratio | peak MiB | peak MiB, now |")
    show("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder, other_version(base, Path(folder) / "other") as other:
        for case_name, name, arguments, asked in work(chosen, only, Path(folder)):
            then, now = [], []
            for turn in range(told.repeats + 1 if asked else 1):  # the first of each is not counted
                roots = (other, HERE) if asked else (HERE,)
                found = [run(arguments, root, timings=False, limit=told.limit) for root in roots]
                if turn:
                    then.append(found[0])
                    now.append(found[1])
            if asked:
                show(pair(case_name, name, then, now))


def pair(case_name: str, name: str, then: list[Measured], now: list[Measured]) -> str:
    """Return a row of the table of two versions."""
    failed = [f"{which} exits with {one.code}: {one.message}" for which, runs in (("base", then), ("now", now))
              for one in runs[:1] if one.code not in (0, 1, 3)]  # fmt: skip
    if failed:
        return f"| {case_name} | `{name}` | {'; '.join(failed)[:160]} | | | | |"
    ratio = statistics.median(b.cpu / a.cpu for a, b in zip(then, now, strict=True))
    return (
        f"| {case_name} | `{name}` | {statistics.median(a.cpu for a in then):.2f} | "
        f"{statistics.median(b.cpu for b in now):.2f} | {ratio:.2f} | {then[0].peak:,.0f} | {now[0].peak:,.0f} |"
    )


@contextlib.contextmanager
def other_version(base: str, folder: Path) -> Iterator[Path]:
    """Check another version out."""
    git = ["git", "-C", str(HERE), "worktree"]
    done = subprocess.run(
        [*git, "add", "-q", "--detach", str(folder), base], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{base} cannot be checked out: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=False)


def last_release() -> str:
    """Return the last release's tag."""
    told = subprocess.run(
        ["git", "-C", str(HERE), "describe", "--tags", "--abbrev=0"], capture_output=True, text=True, check=False
    )
    if told.returncode == 0:
        return told.stdout.strip()
    raise SystemExit("there is no release tag: name a commit, as in make bench-compare BASE=HEAD~20")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=CASES)
    parser.add_argument("--only", nargs="*", default=[], help="commands whose name has one of these words")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds that a command may run")
    parser.add_argument("--cold", action="store_true", help="measure the first run")
    parser.add_argument("--against", nargs="?", const="", help="a commit or tag; default: the last release")
    parser.add_argument("--save", type=Path, help="also write the table there")
    told = parser.parse_args()
    lines: list[str] = []

    def shown(line: str) -> None:
        """Print a line, and keep it."""
        print(line, flush=True)
        lines.append(line)

    if told.against is None:
        measure(told.cases, told.only, told, shown)
    else:
        pairs(told.cases, told.only, told.against or last_release(), told, shown)
    if told.save:
        told.save.write_text("\n".join(lines) + "\n")
