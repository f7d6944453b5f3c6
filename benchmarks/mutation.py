"""Which small changes of the code that numbers and proofs hang on its own tests do not notice (mutation testing).

    nice python benchmarks/mutation.py [--target limits ...] [--sample 40] [--seed 0] [--output FILE]

A mutant is one module with one change: a comparison, an operator, a constant, a condition or a choice. Each is run
in a forked process whose import of that module gives the mutant, against the tests of its own room, until the first
fails. Mutants are drawn at random from all of a target's; survivors are printed with their lines, to be read. mutmut
and cosmic-ray copy or rewrite the tree of one package, and this one has several roots; the changes are theirs. A mutant
that takes ten times as long as the tests do is killed, too.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import importlib.abc
import importlib.util
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GROUP = "tests/fairkit_group"
TARGETS: dict[str, tuple[str, str]] = {
    "limits": ("core/fairkit/limits/*.py", f"{GROUP}/test_limits.py"),
    "intervals": ("core/fairkit/intervals.py", f"{GROUP}/test_spreads.py {GROUP}/test_limits.py"),
    "rules": ("core/fairkit/results/rules.py", "tests/fairkit/test_rules.py tests/fairkit/test_reports_and_policy.py"),
    "policy": (
        "core/fairkit/results/policy.py",
        "tests/fairkit/test_verdicts.py tests/fairkit/test_rules.py tests/fairkit/test_reports_and_policy.py",
    ),
    "trees check": (
        "docs/explanation/all_inputs_[cr]*.py",
        "tests/fairkit_all_inputs/test_checker_arithmetic.py tests/fairkit_all_inputs/test_checker.py",
    ),
}
"""By name the modules, and the tests of their room that are not long."""
CHECKERS = ("trees check",)
AHEAD = ("numpy", "pyarrow", "pytest", "scipy.integrate", "scipy.stats")
AHEAD_OF_PROOFS = (
    "pandas",
    "sklearn.ensemble",
    "skl2onnx",
    "onnxruntime",
    "fairkit_all_inputs.auditor",
    "fairkit_onnx",
)
"""What is imported before processes are forked; proofs are made once, too (`FAIRKIT_PROOFS`)."""
TURNED: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Add: ast.Sub, ast.Sub: ast.Add,
    ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
CALLS = {"minimum": "maximum", "maximum": "minimum", "min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """One change: the module's file, the line, what stands there, and what stood there."""

    target: str
    path: str
    line: int
    before: str
    after: str
    source: str


def mutants(target: str, path: Path) -> Iterator[Mutant]:
    """Return every mutant of a module; annotations, docstrings, messages and `__all__` are left alone."""
    tree = ast.parse(path.read_text())
    for place, node in enumerate(_changeable(tree)):
        for number in range(_options(node)):
            made = copy.deepcopy(tree)
            changed = list(_changeable(made))[place]
            before, line = ast.unparse(changed), getattr(node, "lineno", 0)
            _change(changed, number)
            after = ast.unparse(changed)
            if after != before:
                yield Mutant(target, str(path.relative_to(ROOT)), line, before, after, ast.unparse(made))


def _changeable(tree: ast.AST) -> Iterator[ast.AST]:
    skipped: set[int] = set()
    for node in ast.walk(tree):
        parts = [getattr(node, name, None) for name in ("annotation", "returns")]
        if isinstance(node, (ast.Raise, ast.JoinedStr)) or (isinstance(node, ast.If) and _types_only(node)):
            parts.append(node)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "refuse":
            parts += node.args[1:]
        for part in parts:
            if part is not None:
                skipped |= {id(inner) for inner in ast.walk(part)}
    yield from (node for node in ast.walk(tree) if id(node) not in skipped and _options(node))


def _types_only(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _options(node: ast.AST) -> int:
    if isinstance(node, ast.Compare):
        return len(node.ops)
    if isinstance(node, (ast.BinOp, ast.AugAssign)):
        return int(type(node.op) in TURNED)
    if isinstance(node, ast.Constant):
        return int(isinstance(node.value, (bool, int, float)))
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        return int(name in CALLS)
    if isinstance(node, ast.UnaryOp):
        return int(isinstance(node.op, (ast.USub, ast.Not)))
    return int(isinstance(node, (ast.BoolOp, ast.IfExp)))


def _change(node: Any, number: int) -> None:
    if isinstance(node, ast.Compare):
        node.ops[number] = TURNED[type(node.ops[number])]()
    elif isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)):
        node.op = TURNED[type(node.op)]()
    elif isinstance(node, ast.Constant):
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1
    elif isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        setattr(node.func, "attr" if isinstance(node.func, ast.Attribute) else "id", CALLS[name])
    elif isinstance(node, ast.UnaryOp):
        node.op = ast.UAdd() if isinstance(node.op, ast.USub) else node.op
        if isinstance(node.op, ast.Not):
            node.operand = ast.UnaryOp(op=ast.Not(), operand=node.operand)
    elif isinstance(node, ast.IfExp):
        node.body, node.orelse = node.orelse, node.body


class _Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports of one module give its mutant."""

    def __init__(self, mutant: Mutant) -> None:
        self.path, self.code = (str(ROOT / mutant.path), compile(mutant.source, str(ROOT / mutant.path), "exec"))

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> Any:
        tail = fullname.replace(".", "/")
        if not self.path.endswith((f"/{tail}.py", f"/{tail}/__init__.py")):
            return None
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        exec(self.code, module.__dict__)


def tested(tests: str, mutant: Mutant | None, seconds: float) -> tuple[bool, float]:
    """Return whether the tests pass in a forked process, and how long they took."""
    started, child = time.monotonic(), os.fork()
    if not child:
        os.setsid()
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        import pytest

        if mutant is not None:
            sys.meta_path.insert(0, _Mutated(mutant))
        options = ["-x", "-q", "-m", "not long", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly"]
        try:
            os._exit(int(pytest.main([*options, *tests.split()])))
        except BaseException:
            os._exit(1)
    while time.monotonic() - started < seconds:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0, time.monotonic() - started
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False, seconds


def main() -> int:
    """Run a sample, print the survivors and the shares; 1 where a target kills less than nine in ten."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", action="append", choices=list(TARGETS))
    parser.add_argument("--sample", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    told = parser.parse_args()
    os.chdir(ROOT)
    targets = told.target or list(TARGETS)
    proofs = {*targets} <= {*CHECKERS}
    for name in (*AHEAD, *(AHEAD_OF_PROOFS if proofs else ())):
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FAIRKIT_PROOFS"] = folder
        return sampled(targets, told)


def sampled(targets: list[str], told: argparse.Namespace) -> int:
    """Run each target's sample."""
    record, least = [], 1.0
    for target in targets:
        pattern, tests = TARGETS[target]
        every = [one for path in sorted(ROOT.glob(pattern)) for one in mutants(target, path)]
        some = random.Random(told.seed).sample(every, min(told.sample, len(every)))
        tests = " ".join(name for name in tests.split() if Path(name).exists())
        passed, seconds = tested(tests, None, 3_600)
        if not passed:
            raise SystemExit(f"{target}: the tests fail without a change")
        alive = []
        for number, mutant in enumerate(some):
            if tested(tests, mutant, 10 * seconds + 30)[0]:
                alive.append(mutant)
                print(f"  {mutant.path}:{mutant.line}: {mutant.before}  ->  {mutant.after}", flush=True)
            if told.output is not None:
                run = {"target": target, "mutants": len(every), "sample": number + 1, "seed": told.seed}
                survivors = [{k: v for k, v in asdict(one).items() if k not in ("source", "target")} for one in alive]
                rows = [*record, run | {"killed": number + 1 - len(alive), "survivors": survivors}]
                told.output.write_text(json.dumps(rows, indent=1) + "\n")
        killed = 1.0 - len(alive) / max(len(some), 1)
        least = min(least, killed)
        record = json.loads(told.output.read_text()) if told.output is not None else record
        print(f"{target}: {len(some) - len(alive)} of {len(some)} killed ({len(every)} mutants)", flush=True)
    return int(least < 0.9)


if __name__ == "__main__":
    sys.exit(main())
