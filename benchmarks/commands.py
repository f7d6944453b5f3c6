"""Every command that a user waits for, from its first character to the prompt.

    FAIRKIT_DATA=... python benchmarks/commands.py [--cases adult-forest ...] [--only group ...] [--markdown FILE]
    FAIRKIT_DATA=... python benchmarks/commands.py --against v0.1.0      # in pairs with another version of fairkit

Each run is a process of its own; wall, CPU and the peak of memory are those of the process and its children, as the
system counts them. The share of each phase is that of `--timings`. Every command runs once before it is measured, so
that what it keeps for later runs (compiled kernels) is there. With `--against` both versions run in turn, and the ratio
of CPU seconds says what got slower; wall times mean something on a quiet machine only. Tables and models are made once,
in the folder FAIRKIT_BENCH. CatBoost is not among the dependencies: pip install catboost.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

CASES = (
    "adult-forest",
    "credit-catboost",
    "credit-network",
    "mortgages-forest",
    "acs-lightgbm",
    "loans-lightgbm",
)
ROOTS = ("core", "registry", "cli", "plugins")
HERE = Path(__file__).resolve().parent.parent
LARGE = ("loans-lightgbm",)
"""Too many rows for the methods that hold all pairs or train for long."""

MITIGATORS = (
    "reweigh",
    "massaging",
    "project",
    "correlation-remover",
    "disparate-impact-remover",
    "fairgbm",
    "budro",
    "sensei",
    "exponentiated-gradient",
    "rto",
    "threshold-optimizer",
    "reject-option",
    "shift-inference",
)
REPAIRS = ("rto", "threshold-optimizer", "reject-option", "shift-inference")
"""These take a model."""


@dataclass(frozen=True)
class Case:
    """A table on disk with a model, and the options that name its roles."""

    name: str
    data: Path
    model: Path
    options: tuple[str, ...]


@dataclass(frozen=True)
class Measured:
    """One run of a command."""

    wall: float
    cpu: float
    peak: float
    code: int
    phases: dict[str, float]
    message: str = ""


def commands(one: Case, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Name the commands of one case."""
    roles = ["--data", str(one.data), *one.options]
    model, out = str(one.model), str(folder / f"{one.name}-out.onnx")
    certificate, key = str(folder / f"{one.name}.cert.json"), str(folder / "key")
    audits = {
        "group": [],
        "consistency": [],
        "restricted-dro": ["--set", "restricted-dro.epsilon=0.1"],
        "dif": ["--set", "dif.epsilon=0.1"],
    }
    for auditor, told in audits.items():
        yield f"audit {auditor}", ["audit", model, *roles, "--auditor", auditor, *told]
    yield "certify", ["certify", model, *roles, "--key", key, "--output", certificate]
    yield (
        "verify --recompute",
        [
            "verify", certificate, "--model", model, "--key", f"{key}.pub",
            "--data", str(one.data), "--recompute",
        ],
    )  # fmt: skip
    yield "compare", ["compare", model, model, *roles]
    yield (
        "registry add",
        ["registry", "add", one.name, model, "--registry", str(folder / "registry")],
    )
    yield "registry list", ["registry", "list", "--registry", str(folder / "registry")]
    for name in () if one.name in LARGE else MITIGATORS:
        base = ["--model", model] if name in REPAIRS else []
        yield f"mitigate {name}", ["mitigate", "--plugin", name, *base, *roles, "--output", out]


def light() -> Iterator[tuple[str, list[str]]]:
    """Name the commands that have no data."""
    yield "--help", ["--help"]
    yield "audit --help", ["audit", "--help"]
    yield "plugins", ["plugins"]


def run(arguments: list[str], roots: Path, *, timings: bool = True) -> Measured:
    """Run a command from the sources in a folder."""
    code = "from fairkit_cli.main import run; run()"
    path = os.pathsep.join(str(roots / root) for root in ROOTS)
    command = [sys.executable, "-c", code, *arguments, *(["--timings"] if timings else [])]
    # where Python may not write bytecode, every run would compile all of fairkit: no user's installation does
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with tempfile.TemporaryFile() as shown:
        child = subprocess.Popen(
            command, env=surroundings | {"PYTHONPATH": path}, stdout=subprocess.DEVNULL, stderr=shown
        )
        _, status, used = os.wait4(child.pid, 0)
        wall = time.perf_counter() - begun
        child.returncode = os.waitstatus_to_exitcode(status)
        shown.seek(0)
        told = shown.read().decode(errors="replace")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    ended = child.returncode
    plain = [line for line in told.splitlines() if line.startswith("fairkit:") and "timings" not in line]
    message = (plain or ["no message"])[0] if ended not in (0, 1, 3) else ""
    return Measured(wall, cpu, used.ru_maxrss / 1024, ended, phases_of(told), message)


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
    return arguments[0] in ("audit", "certify", "verify", "compare", "mitigate") and "--help" not in arguments


def row(case_name: str, name: str, found: Measured) -> str:
    """Return a row of the table."""
    whole = max(sum(found.phases.values()), 1e-9)
    leading = sorted(found.phases.items(), key=lambda each: -each[1])[:4]
    shares = ", ".join(f"{phase} {seconds / whole:.0%}" for phase, seconds in leading)
    shown = f"exit {found.code}: {found.message}" if found.message else shares
    return (
        f"| {case_name} | `{name}` | {found.wall:.2f} | {found.cpu:.2f} | {found.peak:,.0f} | {shown[:110]} |"
    )


def measure(chosen: list[str], only: list[str], repeats: int, show: Callable[[str], None]) -> None:
    """Print a table of this version."""
    show("| case | command | wall s | CPU s | peak MiB | largest phases (CPU) |")
    show("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for case_name, name, arguments in work(chosen, only, Path(folder)):
            timings = takes_timings(arguments)
            run(arguments, HERE, timings=timings)
            found = [run(arguments, HERE, timings=timings) for _ in range(repeats)]
            show(row(case_name, name, min(found, key=lambda each: each.cpu)))


def made(name: str, folder: Path) -> Case:
    """Make a table and its model unless they are there: in a process of its own, whose memory no run inherits."""
    data, model, told = (folder / f"{name}{end}" for end in (".parquet", ".onnx", ".roles"))
    if not told.exists():
        maker = Path(__file__).with_name("commands_data.py")
        subprocess.run([sys.executable, str(maker), name, str(folder)], check=True)
    return Case(name, data, model, tuple(told.read_text().split("\n")))


def work(chosen: list[str], only: list[str], folder: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Go through cases and commands."""
    run(["key", "new", str(folder / "key")], HERE, timings=False)
    lasting = Path(os.environ.get("FAIRKIT_BENCH", Path(tempfile.gettempdir()) / "fairkit-bench"))
    lasting.mkdir(parents=True, exist_ok=True)
    for name, arguments in light():
        if not only or any(word in name for word in only):
            yield "none", name, arguments
    for case_name in chosen:
        one = made(case_name, lasting)
        for name, arguments in commands(one, folder):
            if not only or name in ("certify",) or any(word in name for word in only):
                yield case_name, name, arguments


def pairs(chosen: list[str], only: list[str], base: str, repeats: int, show: Callable[[str], None]) -> None:
    """Print the ratio of this version's CPU seconds to another's, command by command."""
    show(f"| case | command | CPU s, {base} | CPU s, now | ratio | peak MiB | peak MiB, now |")
    show("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "other"
        subprocess.run(
            ["git", "-C", str(HERE), "worktree", "add", "-q", "--detach", str(other), base], check=True
        )
        try:
            for case_name, name, arguments in work(chosen, only, Path(folder)):
                then, now = [], []
                for turn in range(repeats + 1):  # the first of each is not counted
                    found = [run(arguments, root, timings=False) for root in (other, HERE)]
                    if turn:
                        then.append(found[0])
                        now.append(found[1])
                ratio = statistics.median(b.cpu / a.cpu for a, b in zip(then, now, strict=True))
                show(
                    f"| {case_name} | `{name}` | {statistics.median(a.cpu for a in then):.2f} | "
                    f"{statistics.median(b.cpu for b in now):.2f} | {ratio:.2f} | {then[0].peak:,.0f} | "
                    f"{now[0].peak:,.0f} |"
                )
        finally:
            subprocess.run(["git", "-C", str(HERE), "worktree", "remove", "--force", str(other)], check=False)


def last_release() -> str:
    """Return the last release's tag, else the first commit that is an ancestor of this one."""
    told = subprocess.run(
        ["git", "-C", str(HERE), "describe", "--tags", "--abbrev=0"],
        capture_output=True,
        text=True,
        check=False,
    )
    if told.returncode == 0:
        return told.stdout.strip()
    raise SystemExit("there is no release tag: name a commit, as in make bench-compare BASE=HEAD~20")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=CASES)
    parser.add_argument("--only", nargs="*", default=[], help="commands whose name has one of these words")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--against", nargs="?", const="", help="a commit or tag; default: the last release")
    parser.add_argument("--save", type=Path, help="also write the table there")
    told = parser.parse_args()
    lines: list[str] = []

    def shown(line: str) -> None:
        """Print a line, and keep it."""
        print(line, flush=True)
        lines.append(line)

    if told.against is None:
        measure(told.cases, told.only, told.repeats, shown)
    else:
        pairs(told.cases, told.only, told.against or last_release(), told.repeats, shown)
    if told.save:
        told.save.write_text("\n".join(lines) + "\n")
