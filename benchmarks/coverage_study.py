"""Coverage and width of anybody's intervals on the populations: a command reads samples and answers, a line each.

    nice python benchmarks/coverage_study.py "python benchmarks/runners/scipy_bca.py" [--family rate] [--every 5]

The exit code is 1 where a population's intervals do not hold.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from populations import Population, populations

from fairkit.errors import ParameterError

if TYPE_CHECKING:
    from types import TracebackType

LEAST, MOST = 0.93, 0.035
"""No population should have fewer intervals that hold, or more false passes."""
_ERRORS = 2.6


@dataclass(frozen=True, slots=True)
class Answer:
    """A runner's interval, and whether it says that nothing should be decided by it; both ends None: no interval."""

    low: float | None
    high: float | None
    noted: bool = False
    supported: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What many samples of one population gave."""

    family: str  # of the population
    name: str  # of the population
    metric: str  # of the population
    comparison: str  # of the population
    truth: float  # of the population
    samples: int  # how many were drawn
    covers: float | None  # the share of intervals that hold the truth or are noted; None: the runner has no such number
    noted: float  # the share that said that nothing should be decided, or gave no interval
    false_pass: float  # the share that is not noted and leaves the truth out on the side that a policy wants
    width: float | None  # the median, of those that have two finite ends

    @property
    def holds(self) -> bool:
        """Whether intervals hold or are noted in 93 %, and pass falsely in 3.5 %, simulation error aside."""
        if self.covers is None:
            return True
        slack = [_ERRORS * math.sqrt(p * (1 - p) / self.samples) for p in (LEAST, MOST)]
        return self.covers + slack[0] >= LEAST and self.false_pass - slack[1] <= MOST

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self) | {"holds": self.holds}


class Runner:
    """A command that makes intervals: it reads a JSON object a line from its input, and answers with one a line.

    A request is ``{"id", "metric", "comparison", "confidence", "columns": {"outcome": [...], "decision": [...], ...}}``
    (see `populations.Population`), an answer ``{"id", "low", "high"}``; with ``"noted": true`` where
    nothing should be decided by the interval, with null ends where there is none, and ``{"id", "unsupported": true}``
    where the library has no such number.
    """

    def __init__(self, command: str) -> None:
        self.command = command
        try:
            arguments = shlex.split(command)
        except ValueError as error:
            raise ParameterError(f"the runner {command!r} is not a command: {error}") from error
        if not arguments:
            raise ParameterError("the runner is empty; name a command, such as: python my_runner.py")
        try:
            self._process = subprocess.Popen(
                arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
            )
        except OSError as error:
            raise ParameterError(f"the runner {arguments[0]!r} could not be started: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:  # it ended before it read everything
                    continue
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def ask(self, population: Population, columns: dict[str, Any], number: int, confidence: float) -> Answer:
        """Return the interval of one sample."""
        request = {
            "id": number,
            "metric": population.metric,
            "comparison": population.comparison,
            "confidence": confidence,
            "columns": {name: np.asarray(values).tolist() for name, values in columns.items()},
        }
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
            line = stdout.readline()
        except (BrokenPipeError, UnicodeDecodeError):
            line = ""
        return self._answer(line, number)

    def _answer(self, line: str, number: int) -> Answer:
        where = f"the runner {self.command!r}"
        if not line:
            code = self._process.wait()
            raise ParameterError(f"{where} ended with exit code {code} before it answered request {number}")
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise ParameterError(f"{where} answered {line[:80]!r}, which is not JSON") from error
        if not isinstance(record, dict) or record.get("id") != number:
            raise ParameterError(f"{where} answered {line[:80]!r}; an answer has the request's id, {number}")
        if record.get("unsupported"):
            return Answer(None, None, supported=False)
        ends = [record.get(name) for name in ("low", "high")]
        if any(end is not None and (isinstance(end, bool) or not isinstance(end, int | float)) for end in ends):
            raise ParameterError(f"{where} answered {line[:80]!r}; `low` and `high` are numbers or null")
        low, high = (None if end is None or math.isnan(end) else float(end) for end in ends)
        if low is not None and high is not None and low > high:
            raise ParameterError(f"{where} answered an interval whose `low` is above its `high`: {line[:80]!r}")
        return Answer(low, high, bool(record.get("noted")))


def chosen_populations(families: Sequence[str], every: int = 1) -> list[Population]:
    """Return the populations of some families (none: all), each `every`-th of them."""
    every_one = list(populations())
    known = list(dict.fromkeys(population.family for population in every_one))
    for name in families:
        if name not in known:
            raise ParameterError(f"there is no family {name!r} of populations; there are {', '.join(known)}")
    found = [population for population in every_one if not families or population.family in families]
    return found[::every]


def coverage_of(
    runner: Runner, chosen: Sequence[Population], *, samples: int, seed: int, confidence: float
) -> Iterator[Coverage]:
    """Yield each population's coverage and width."""
    number = 0
    for population in chosen:
        rng = np.random.default_rng([seed, *population.family.encode(), *population.name.encode()])
        answers = []
        for _ in range(samples):
            number += 1
            answer = runner.ask(population, population.draw(rng), number, confidence)
            answers.append(answer)
            if not answer.supported:
                break
        yield _summary(population, answers)


def _summary(population: Population, answers: Sequence[Answer]) -> Coverage:
    about = (population.family, population.name, population.metric, population.comparison, population.truth)
    names = ("family", "name", "metric", "comparison", "truth")
    common: dict[str, Any] = dict(zip(names, about, strict=True))
    if not all(answer.supported for answer in answers):
        return Coverage(**common, samples=0, covers=None, noted=0.0, false_pass=0.0, width=None)
    low = np.array([-math.inf if answer.low is None else answer.low for answer in answers])
    high = np.array([math.inf if answer.high is None else answer.high for answer in answers])
    noted = np.array([answer.noted or answer.low is answer.high is None for answer in answers])
    slack = 1e-9 * max(abs(population.truth), 1e-9)
    above, below = high < population.truth - slack, low > population.truth + slack
    wrong = {"lower": above, "higher": below}.get(population.worse)
    passes = [float((side & ~noted).mean()) for side in ((above, below) if wrong is None else (wrong,))]
    width = (high - low)[np.isfinite(high - low)]
    return Coverage(
        **common,
        samples=len(answers),
        covers=float((~(above | below) | noted).mean()),
        noted=float(noted.mean()),
        false_pass=max(passes),
        width=float(np.median(width)) if len(width) else None,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runner")
    parser.add_argument("--family", action="append", default=[])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--confidence", type=float, default=0.95)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    cells = []
    chosen = chosen_populations(options.family, options.every)
    print(f"{'population':<76}{'holds':>7}{'noted':>7}{'passes':>7}{'width':>10}")
    with Runner(options.runner) as running:
        numbers = {name: getattr(options, name) for name in ("samples", "seed", "confidence")}
        for cell in coverage_of(running, chosen, **numbers):
            cells.append(cell)
            name, width = f"{cell.family}: {cell.name}", "-" if cell.width is None else f"{cell.width:.4g}"
            numbers_of = (
                f"{cell.covers:7.3f}{cell.noted:7.3f}{cell.false_pass:7.3f}{width:>10}"
                if cell.covers is not None
                else ""
            )
            print(f"{name:<76}{numbers_of or 'no such number'}{'' if cell.holds else '  does not hold'}")
    return int(any(not cell.holds for cell in cells))


if __name__ == "__main__":
    sys.exit(main())
