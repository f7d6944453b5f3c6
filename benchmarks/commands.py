"""What commands cost: wall and CPU seconds and the peak of memory, of the process and its children, and their phases.

    FAIRKIT_DATA=... python benchmarks/commands.py [--cases adult-forest ...] [--only certify ...] [--repeats 3]
    FAIRKIT_DATA=... python benchmarks/commands.py --against v0.1.0 --only audit   # in pairs with another version

Each run is a process of its own, after one that is not counted (it compiles kernels). With ``--against`` both versions
run in turn, and the ratio of CPU seconds says what got slower; wall times mean something on a quiet machine only.
Tables and models are made once, in the folder FAIRKIT_BENCH.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOTS = ("core", "registry", "cli", "plugins")
HERE = Path(__file__).resolve().parent.parent
KEEP = Path(os.environ.get("FAIRKIT_BENCH", Path(tempfile.gettempdir()) / "fairkit-bench"))
CASES = {
    "adult-forest": ("income", ">50K", "sex,race"),
    "acs-lightgbm": ("PINCP", "1", "SEX,RAC1P"),
    "loans-lightgbm": ("decision", "approved", "sex,ethnicity"),
}
"""Adult with 60 trees of scikit-learn; 200,000 rows of ACSIncome, 1,000,000 loans with LightGBM: label, columns."""
TRAINED = ("reweigh", "massaging", "project", "fairgbm", "sensei", "budro", "exponentiated-gradient")
REPAIRED = ("rto", "threshold-optimizer", "reject-option", "shift-inference")


@dataclass(frozen=True)
class Measured:
    """One run of a command."""

    wall: float
    cpu: float
    peak: float  # MiB
    code: int
    phases: dict[str, float]


def run(arguments: list[str], roots: Path, *, timings: bool = True) -> Measured:
    """Run a command from the sources in a folder."""
    code = "from fairkit_cli.main import run; run()"
    path = os.pathsep.join(str(roots / root) for root in ROOTS)
    command = [sys.executable, "-c", code, *(["--timings"] if timings else []), *arguments]
    # where Python may not write bytecode, every run would compile all of fairkit: no user's installation does
    around = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with tempfile.TemporaryFile() as shown:
        child = subprocess.Popen(command, env=around | {"PYTHONPATH": path}, stdout=subprocess.DEVNULL, stderr=shown)
        _, status, used = os.wait4(child.pid, 0)
        wall = time.perf_counter() - begun
        child.returncode = os.waitstatus_to_exitcode(status)
        shown.seek(0)
        told = shown.read().decode(errors="replace")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    phases = {}
    for parts in (line.split() for line in told.splitlines() if not line.startswith("fairkit")):
        if len(parts) >= 4 and parts[-1].endswith("%") and parts[0] != "all":
            phases[" ".join(parts[:-3])] = float(parts[-2])
    if child.returncode not in (0, 1, 3):
        raise SystemExit(f"{' '.join(arguments)} ended with {child.returncode}: {told[-500:]}")
    return Measured(wall, cpu, used.ru_maxrss / 1024, child.returncode, phases)


def write(name: str) -> None:
    """Make the table and the model of a case."""
    import pandas as pd

    folder = Path(os.environ.get("FAIRKIT_DATA", "."))
    if name == "adult-forest":
        frame = pd.read_parquet(folder / "adult.parquet").dropna().drop(columns=["fnlwgt", "split"])
    elif name == "acs-lightgbm":
        frame = pd.read_parquet(folder / "acs_income.parquet").iloc[:200_000]
        frame = frame.drop(columns=["split", "row_index"]).reset_index(drop=True)
    else:
        from fairkit_datasets.loans import loans_table

        frame = loans_table(1_000_000, 1).to_pandas()
    label, favorable, sensitive = CASES[name]
    content = forest(frame, label) if name == "adult-forest" else lightgbm(frame, label, favorable, sensitive)
    frame.to_parquet(KEEP / f"{name}.parquet")
    (KEEP / f"{name}.onnx").write_bytes(content)


def forest(frame, label: str) -> bytes:
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    X = frame.drop(columns=[label])
    texts = [column for column in X if X[column].dtype.kind not in "if"]
    numbers = [column for column in X if column not in texts]
    X = X.astype(dict.fromkeys(numbers, np.float32))
    encode = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), texts), ("passthrough", numbers))
    fitted = make_pipeline(encode, RandomForestClassifier(60, random_state=0, n_jobs=2)).fit(X, frame[label])
    types = [(column, StringTensorType([None, 1]) if column in texts else FloatTensorType([None, 1])) for column in X]
    content: bytes = to_onnx(fitted, initial_types=types, options={id(fitted): {"zipmap": False}}).SerializeToString()
    return content


def lightgbm(frame, label: str, favorable: str, sensitive: str) -> bytes:
    import fairkit
    from fairkit.fitted import Run
    from fairkit.mitigators import Table
    from fairkit_onnx.write.export import export_bytes
    from fairkit_repair.learners import fit_learner

    value = frame[label].dtype.type(favorable) if frame[label].dtype.kind in "if" else favorable
    data = fairkit.load_data(frame.iloc[:200_000], label=label, favorable=value, sensitive=sensitive.split(","))
    table = Table.from_dataset(data, None)
    return export_bytes(fit_learner("lightgbm", table, Run(seed=0)), table)


def commands(name: str, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Name the commands of one case; later ones read what `certify` and `registry add` write."""
    label, favorable, sensitive = CASES[name]
    model, data, out = str(KEEP / f"{name}.onnx"), str(KEEP / f"{name}.parquet"), str(folder / "out.onnx")
    roles = ["--data", data, "--label", label, "--favorable", favorable, "--sensitive", sensitive]
    certificate, key, where = str(folder / f"{name}.json"), str(folder / "key"), ["--registry", str(folder / "r")]
    yield "audit", ["audit", model, *roles]
    for auditor, told in (("consistency", []), ("restricted-dro", ["epsilon"]), ("dif", ["epsilon"])):
        more = [part for one in told for part in ("--set", f"{auditor}.{one}=0.1")]
        yield f"audit {auditor}", ["audit", model, *roles, "--auditor", auditor, *more]
    yield "audit page", ["audit", model, *roles, "--format", "html", "--output", str(folder / "page.html")]
    yield "certify", ["certify", model, *roles, "--key", key, "--output", certificate]
    check = ["--model", model, "--key", f"{key}.pub", "--data", data, "--recompute"]
    yield "verify of a signature", ["verify", certificate, "--key", f"{key}.pub"]
    yield "verify --recompute", ["verify", certificate, *check]
    yield "compare", ["compare", model, model, *roles]
    yield "registry add", ["registry", "add", name, model, "--certificate", certificate, *where]
    yield "registry list", ["registry", "list", *where]
    if name == "loans-lightgbm":
        return
    rule = f"demographic_parity_difference:{sensitive.split(',')[0]}=0.05"
    yield "mitigate by policy", ["mitigate", *roles, "--max", rule, "--output", out]
    for method in (*TRAINED, *REPAIRED):
        more = ["--model", model] if method in REPAIRED else []
        more += ["--set", f"sensitive={sensitive.split(',')[0]}"] if method == "fairgbm" else []
        yield f"mitigate {method}", ["mitigate", "--plugin", method, *more, *roles, "--output", out]


def small(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Name commands on 1,000 decisions, most of whose time is that of their start."""
    from fairkit_datasets.loans import loans_table

    data, certificate, key = (str(folder / name) for name in ("small.parquet", "small.json", "key"))
    loans_table(1_000, 1).to_pandas().to_parquet(data)
    roles = ["--label", "would_repay", "--favorable", "yes", "--sensitive", "sex"]
    audited = ["--data", data, *roles, "--predictions", "decision=decision,favorable=approved"]
    yield "audit of 1,000 decisions", ["audit", *audited]
    yield "data of 1,000 decisions", ["data", data, *roles]
    yield "certify 1,000 decisions", ["certify", *audited, "--key", key, "--output", certificate]
    yield "verify of a signature", ["verify", certificate, "--key", f"{key}.pub"]


def work(cases: list[str], only: list[str], folder: Path) -> Iterator[tuple[str, str, list[str], bool]]:
    """Go through cases and commands, and say of each whether it is measured or others need what it writes."""
    run(["key", "new", str(folder / "key"), "--no-passphrase"], HERE, timings=False)
    KEEP.mkdir(parents=True, exist_ok=True)
    yield "none", "--help", ["--help"], not only
    yield "none", "plugins", ["plugins"], not only or "plugins" in only
    for told, arguments in small(folder):
        yield "small", told, arguments, not only or any(word in told for word in only)
    for name in cases:
        if not (KEEP / f"{name}.onnx").exists():  # in a process of its own, whose memory no run inherits
            subprocess.run([sys.executable, __file__, "--make", name], check=True)
        for told, arguments in commands(name, folder):
            asked = not only or any(word in told for word in only)
            if asked or told in ("certify", "registry add"):
                yield name, told, arguments, asked


@contextlib.contextmanager
def version(base: str, folder: Path) -> Iterator[Path]:
    """Check another version out."""
    git = ["git", "-C", str(HERE), "worktree"]
    subprocess.run([*git, "add", "-q", "--detach", str(folder), base], check=True)
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=CASES)
    parser.add_argument("--only", nargs="*", default=[], help="commands whose name has one of these words")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--against", help="a commit or tag")
    parser.add_argument("--make", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.make:
        write(given.make)
        return
    last = "ratio to the other version" if given.against else "largest phases (CPU)"
    print(f"| case | command | wall s | CPU s | peak MiB | {last} |\n" + "| --- " * 6 + "|")
    with tempfile.TemporaryDirectory() as made, contextlib.ExitStack() as stack:
        other = stack.enter_context(version(given.against, Path(made) / "other")) if given.against else None
        for case, told, arguments, asked in work(given.cases, given.only, Path(made)):
            timings = other is None and told != "--help"
            now, then = [run(arguments, HERE, timings=timings)], []
            if not asked:
                continue
            for _ in range(given.repeats):
                now.append(run(arguments, HERE, timings=timings))
                then += [run(arguments, other, timings=False)] if other else []
            best = min(now[1:], key=lambda one: one.cpu)
            whole = sum(best.phases.values()) or 1.0
            largest = sorted(best.phases.items(), key=lambda one: -one[1])[:4]
            shown = ", ".join(f"{phase} {seconds / whole:.0%}" for phase, seconds in largest)
            if then:
                shown = f"{statistics.median(a.cpu / b.cpu for a, b in zip(now[1:], then, strict=True)):.2f}"
            print(f"| {case} | `{told}` | {best.wall:.2f} | {best.cpu:.2f} | {best.peak:,.0f} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
