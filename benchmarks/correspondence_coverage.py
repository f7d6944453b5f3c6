"""Does the two-way interval of paired-name audits cover? 262 populations with known truth.

    python benchmarks/correspondence_coverage.py [--audits 400] [--settings 262] [--models 2]

Every population has a known mean difference θ of its answers, by Gauss-Hermite quadrature. Printed: the least coverage,
and the largest share of audits that pass wrongly at the limit |θ| (the whole interval inside) or fail wrongly, over the
settings with at least 30 documents and 30 names a group, with at least 50 and 36, and over all. With `--models 2` the
difference of two models' differences is measured in 60 settings: the second model's effect of the group is another one,
and its effects of names and documents are those of the first, or its own.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from fairkit_correspondence.planning import Cells, limits, parts

Array = np.ndarray
NODES, WEIGHTS = hermegauss(120)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


@dataclass(frozen=True)
class Population:
    """How answers arise, in log-odds: sd of names, documents, document x group; odd names, odd documents."""

    label: str
    kind: str = "draws"  # draws, probability, score, greedy
    base: float = 0.0
    effect: float = 0.25
    names: float = 0.2
    documents: float = 1.5
    interaction: float = 0.3
    odd_names: float = 0.0
    odd_documents: float = 0.0
    draws: int = 1
    repeats: bool = False

    def mean(self, shift: float) -> float:
        """Return E[Y] of one group by quadrature over the sum of the normal effects."""
        sd = math.sqrt(self.names**2 + self.documents**2 + self.interaction**2)
        x = self.base + shift + sd * NODES
        if self.kind == "greedy":
            from statistics import NormalDist

            return NormalDist().cdf((self.base + shift) / sd) if sd else float(self.base + shift > 0)
        return float(WEIGHTS @ (1 / (1 + np.exp(-x))))

    @property
    def truth(self) -> float:
        """θ: the first group's mean answer minus the second's."""
        total = 0.0
        for odd_name, odd_document in product((False, True), repeat=2):
            share = (0.1 if odd_name else 0.9) if self.odd_names else float(not odd_name)
            share *= (0.1 if odd_document else 0.9) if self.odd_documents else float(not odd_document)
            shift = self.effect + self.odd_names * odd_name + self.odd_documents * odd_document
            total += share * self.mean(shift) if share else 0.0
        return total - self.mean(0.0)

    def audit(self, rng: np.random.Generator, size: int, count: int, each: int) -> Cells:
        """Draw an audit: `each` of `count` names of either group on every document."""
        cells = design(rng, size, count, each)
        y = self.answers(rng, cells, self.effects(rng, cells, count))
        return replace(cells, low=y, high=y)

    def effects(self, rng: np.random.Generator, cells: Cells, count: int) -> Array:
        """Draw what names and documents do to the log-odds of each answer, without the group."""
        effect = np.zeros(2 * count)
        effect[:count] = self.odd_names * (rng.random(count) < 0.1)
        effect += rng.normal(0, self.names, 2 * count)
        wish = rng.normal(0, self.documents, cells.documents)
        odd = self.odd_documents * (rng.random(cells.documents) < 0.1)
        return wish[cells.document] + effect[cells.name] + odd[cells.document] * cells.side

    def answers(self, rng: np.random.Generator, cells: Cells, effects: Array) -> Array:
        """Draw answers, with the group's effect and the documents' own."""
        x = self.base + effects + self.effect * cells.side
        x += rng.normal(0, self.interaction, (cells.documents, 2))[cells.document, cells.side.astype(int)]
        p = 1 / (1 + np.exp(-x))
        if self.kind == "greedy":
            return (p > 0.5).astype(float)
        if self.kind == "draws":
            drawn = rng.random((self.draws, len(p))) < p
            return drawn[: max(1, self.draws // 2)].mean(0) if self.repeats else drawn.mean(0)
        if self.kind == "score":
            # a score of 0 to 10 whose expectation is 10 p: rounded at random
            return np.floor(10 * p + rng.random(len(p))) / 10
        return p


def design(rng: np.random.Generator, size: int, count: int, each: int) -> Cells:
    """Return documents and names without answers; names rotate over documents."""
    document = np.repeat(np.arange(size), 2 * each)
    side = np.tile(np.repeat([True, False], each), size)
    if each == count:
        local = np.tile(np.arange(count), 2 * size)
    else:
        turn = np.stack([rng.permutation(count) for _ in range(2)])
        steps = (np.arange(size)[:, None] * each + np.arange(each)) % count
        local = np.stack([turn[0][steps], turn[1][steps]], axis=1).reshape(-1)
    nothing = np.zeros(len(document))
    return Cells(document, np.zeros_like(document), local + count * ~side, side, nothing, nothing, size)


POPULATIONS = [
    Population("plain"),
    Population("no effect", effect=0.0, names=0.0, interaction=0.0),
    Population("names .5", names=0.5),
    Population("names .7", names=0.7, effect=0.5),
    Population("no name effect", names=0.0),
    Population("base .9", base=2.2),
    Population("base .975", base=5.0, documents=1.5, effect=0.5),
    Population("base .025", base=-5.0, documents=1.5, effect=0.5),
    Population("documents 4", documents=4.0),
    Population("documents 1", documents=1.0),
    Population("interaction 1", interaction=1.0),
    Population("interaction 1.5", interaction=1.5),
    Population("odd names against", odd_names=-3.0, effect=0.0, names=0.1),
    Population("odd names favoured", odd_names=3.0, effect=0.0, names=0.1),
    Population("odd documents", odd_documents=2.0, effect=0.0),
    Population("five draws", draws=5),
    Population("twenty draws", draws=20),
    Population("five draws, half repeats", draws=5, repeats=True),
    Population("probabilities", kind="probability"),
    Population("probabilities, odd names", kind="probability", odd_names=-3.0, effect=0.0, names=0.1),
    Population("probabilities, names .5", kind="probability", names=0.5, interaction=0.0),
    Population("scores", kind="score"),
    Population("scores, interaction", kind="score", interaction=1.0),
    Population("temperature 0", kind="greedy", interaction=0.0, names=0.0, documents=2.0),
    Population("temperature 0, names", kind="greedy", names=0.3),
    Population("temperature 0, documents 4", kind="greedy", names=0.0, interaction=0.0, documents=4.0, effect=0.3),
]
DESIGNS = [
    (10, 8, 8), (30, 12, 4), (30, 30, 2), (30, 40, 8), (50, 36, 2),
    (50, 40, 8), (100, 36, 4), (100, 40, 2), (200, 40, 4), (200, 80, 8),
]  # fmt: skip
SETTINGS = [(population, *design) for population in POPULATIONS for design in DESIGNS]
TWO = [(population, *size, alike) for population in POPULATIONS if population.label in {
    "no effect", "names .5", "no name effect", "base .9", "interaction 1", "odd names against", "odd documents",
    "probabilities", "scores", "temperature 0, names",
} for size in [(30, 40, 8), (50, 36, 2), (100, 40, 2)] for alike in (True, False)]  # fmt: skip
SETTINGS += [(POPULATIONS[12], 100, 20, 8), (POPULATIONS[13], 100, 20, 8)]


def measure(setting: tuple, audits: int, seed: int) -> tuple[float, float, float, float]:
    """Return coverage, false passes, false fails, and the median width."""
    population, size, count, each = setting
    theta, rng = population.truth, np.random.default_rng([seed, size, count, each])
    return _judged(theta, audits, lambda: limits(parts(population.audit(rng, size, count, each)), 0.95))


def measure_two(setting: tuple, audits: int, seed: int) -> tuple[float, float, float, float]:
    """Return the same of the second model's difference minus the first's."""
    population, size, count, each, alike = setting
    second = replace(population, effect=population.effect + 0.5)
    theta = second.truth - population.truth
    rng = np.random.default_rng([seed, size, count, each])

    def audit() -> tuple[float, float]:
        cells = design(rng, size, count, each)
        effects = [population.effects(rng, cells, count) for _ in range(2)]
        y, other = (
            model.answers(rng, cells, effects[0 if alike else k]) for k, model in enumerate((population, second))
        )
        scaled = (1 + other - y) / 2  # as `fairkit_correspondence.auditor` does
        low, high = limits(parts(replace(cells, low=scaled, high=scaled)), 0.95)
        return 2 * low, 2 * high

    return _judged(theta, audits, audit)


def _judged(theta: float, audits: int, audit: Callable[[], tuple[float, float]]) -> tuple[float, float, float, float]:
    held = passed = failed = 0
    widths = []
    for _ in range(audits):
        low, high = audit()
        held += low <= theta <= high
        edge = abs(theta)
        passed += edge > 0 and -edge < low and high < edge
        failed += edge > 0 and (low > edge or high < -edge)
        widths.append(high - low)
    return held / audits, passed / audits, failed / audits, float(np.median(widths))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--audits", type=int, default=400)
    options.add_argument("--settings", type=int, default=len(SETTINGS))
    options.add_argument("--all", action="store_true", help="print every setting")
    options.add_argument("--models", type=int, default=1, choices=(1, 2))
    chosen = options.parse_args()
    started, rows = time.perf_counter(), []
    settings, measured = ((SETTINGS, measure), (TWO, measure_two))[chosen.models - 1]
    for number, setting in enumerate(settings[: chosen.settings]):
        row = measured(setting, chosen.audits, number)
        rows.append((*setting[1:3], *row))
        if chosen.all:
            population, size, count, each = setting[:4]
            print(f"{population.label:28} T {size:3} J {count:2} m {each:2}  covers {row[0]:.3f}  "
                  f"false pass {row[1]:.3f}  false fail {row[2]:.3f}  width {row[3]:.3f}", flush=True)  # fmt: skip
    table = np.array(rows)
    print(f"{len(rows)} settings, {chosen.audits} audits each, {time.perf_counter() - started:.0f} s")
    for label, keep in [
        ("T, J >= 30", (table[:, 0] >= 30) & (table[:, 1] >= 30)),
        ("T >= 50, J >= 36", (table[:, 0] >= 50) & (table[:, 1] >= 36)),
        ("all", np.ones(len(table), dtype=bool)),
    ]:
        part = table[keep]
        covered, passed, failed = part[:, 2].min(), part[:, 3].max(), part[:, 4].max()
        often = int((part[:, 3] > 0.035).sum())
        print(f"{label:17} {len(part):3} settings: coverage >= {covered:.3f}, false pass <= {passed:.3f} "
              f"(> .035 in {often}), false fail <= {failed:.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
