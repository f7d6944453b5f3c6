"""Do 95 % intervals contain the truth, also where data are few, rare, heavy or weighted? fairkit's, or anybody's.

    nice python benchmarks/coverage_study.py --enumerate --samples 2000       # fairkit's
    nice python benchmarks/coverage_study.py --runner benchmarks/runners/scipy_bca.py --every 5 [--family rate]

A runner is a Python file with a function `answer(metric, comparison, confidence, columns)` that returns the ends of an
interval and whether it says that nothing should be decided by it (too few rows, heavy tails), ends None where there is
no interval; or None where the library has no such number. With ``--enumerate`` counts of decisions are enumerated in
place of drawn. *Holds* is the share of samples whose interval contains the truth or is noted, *passes* the share that a
rule with its limit just on the right side of the truth would pass, noted ones aside. No population should hold in less
than 93 % or pass falsely in more than 3 %, simulation error (2.6 standard errors) aside: else the exit code is 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from populations import Columns, Decided, Population, populations

from fairkit.errors import ParameterError

LEAST, MOST, ERRORS = 0.93, 0.03, 2.6
OURS = Path(__file__).parent / "runners" / "ours.py"
Answer = tuple[float | None, float | None, bool]
Runner = Callable[[str, str, float, Columns], Answer | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What the samples of one population gave: shares, and the median width."""

    population: Population
    samples: int  # 0: enumerated
    covers: float | None  # None: the runner has no such number
    noted: float = 0.0
    false_pass: float = 0.0
    width: float | None = None

    @property
    def holds(self) -> bool:
        if self.covers is None:
            return True
        slack = [ERRORS * math.sqrt(p * (1 - p) / self.samples) if self.samples else 0.0 for p in (LEAST, MOST)]
        return self.covers + slack[0] >= LEAST and self.false_pass - slack[1] <= MOST


def load(path: Path) -> Runner:
    """Return the runner in a file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.exists():
        raise ParameterError(f"there is no Python file {str(path)!r}; name one with a function `answer`")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "answer"):
        raise ParameterError(f"{path.name} has no function `answer(metric, comparison, confidence, columns)`")
    runner: Runner = module.answer
    return runner


def chosen_populations(families: Sequence[str], every: int = 1) -> list[Population]:
    """Return the populations of some families (none: all), each `every`-th of them."""
    every_one = list(populations())
    known = list(dict.fromkeys(population.family for population in every_one))
    for name in families:
        if name not in known:
            raise ParameterError(f"there is no family {name!r} of populations; there are {', '.join(known)}")
    return [population for population in every_one if not families or population.family in families][::every]


def coverage_of(
    runner: Runner,
    population: Population,
    samples: int,
    seed: int,
    *,
    enumerated: bool = False,
    confidence: float = 0.95,
) -> Coverage:
    """Return one population's coverage and width."""
    answers: list[Answer] = []
    chances: list[float] = []
    exact = enumerated and isinstance(population.draw, Decided) and len(population.draw.sizes) <= 2
    for chance, columns in population.draw.outcomes() if exact else _samples(population, samples, seed):
        answer = runner(population.metric, population.comparison, confidence, columns)
        if answer is None:
            return Coverage(population=population, samples=0, covers=None)
        answers.append(answer)
        chances.append(chance)
    share = np.array(chances) / sum(chances)
    low = np.array([-math.inf if one[0] is None else one[0] for one in answers])
    high = np.array([math.inf if one[1] is None else one[1] for one in answers])
    noted = np.array([one[2] or one[0] is one[1] is None for one in answers])
    slack = 1e-9 * max(abs(population.truth), 1e-9)
    above, below = high < population.truth - slack, low > population.truth + slack
    wrong = {"lower": [above], "higher": [below], "either": [above, below]}[population.worse]
    finite = np.flatnonzero(np.isfinite(high - low))
    order = finite[np.argsort((high - low)[finite])]
    middle = order[np.searchsorted(np.cumsum(share[order]), share[order].sum() / 2)] if len(order) else None
    return Coverage(
        population=population,
        samples=0 if exact else samples,
        covers=float(share[~(above | below) | noted].sum()),
        noted=float(share[noted].sum()),
        false_pass=max(float(share[side & ~noted].sum()) for side in wrong),
        width=None if middle is None else float(high[middle] - low[middle]),
    )


def _samples(population: Population, samples: int, seed: int) -> Iterator[tuple[float, Columns]]:
    rng = np.random.default_rng([seed, *population.family.encode(), *population.name.encode()])
    return ((1.0, population.draw(rng)) for _ in range(samples))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runner", type=Path, default=OURS)
    parser.add_argument("--family", action="append", default=[])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--enumerate", action="store_true")
    options = parser.parse_args()
    runner, found = load(options.runner), []
    print(f"{'population':<76}{'holds':>7}{'noted':>7}{'passes':>7}{'width':>10}")
    for population in chosen_populations(options.family, options.every):
        one = coverage_of(runner, population, options.samples, options.seed, enumerated=options.enumerate)
        width = "-" if one.width is None else f"{one.width:.4g}"
        shown = "no such number"
        if one.covers is not None:
            found.append(one)
            shown = f"{one.covers:7.3f}{one.noted:7.3f}{one.false_pass:7.3f}{width:>10}"
        mark = "" if one.holds else "  does not hold"
        print(f"{f'{population.family}: {population.name}':<76}{shown}{mark}", flush=True)
    for exact in (True, False):
        some = [one for one in found if (one.samples == 0) == exact]
        if some:
            worst, passes = min(one.covers or 0.0 for one in some), max(one.false_pass for one in some)
            print(
                f"{len(some)} {'enumerated' if exact else 'drawn'}: worst coverage {worst:.3f}, false pass {passes:.3f}"
            )
    return int(any(not one.holds for one in found))


if __name__ == "__main__":
    sys.exit(main())
