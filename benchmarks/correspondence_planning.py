"""Does a plan keep its word? Planned power of paired-name audits against simulated audits, in 50 settings.

    python benchmarks/correspondence_planning.py [--audits 300]

For each population and size the documents that give a chance of 80 % are planned from the population's variances, which
one large pilot says, and as many audits are drawn.
"""

from __future__ import annotations

import argparse
from itertools import product

import numpy as np
from correspondence_coverage import Population

from fairkit_correspondence.interval import limits, parts
from fairkit_correspondence.planning import Size, Spread, documents_needed

POPULATIONS = [
    Population("draws", effect=0.0, names=0.0, documents=1.0, interaction=0.0),
    Population("base .1", base=-2.2, effect=0.0, names=0.0, documents=1.0, interaction=0.0),
    Population("interaction", effect=0.0, names=0.0, documents=1.0, interaction=0.7),
    Population("names .3", effect=0.0, names=0.3, documents=1.0, interaction=0.0),
    Population("five draws", effect=0.0, names=0.2, documents=1.0, interaction=0.3, draws=5),
]
SIZES = [(0.08, 2, 40), (0.08, 8, 40), (0.1, 2, 40), (0.1, 4, 60), (0.12, 4, 40),
         (0.12, 8, 80), (0.15, 2, 40), (0.15, 4, 40), (0.2, 2, 40), (0.2, 4, 60)]  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--audits", type=int, default=300)
    audits = options.parse_args().audits
    gaps = []
    pilot = np.random.default_rng(1)
    spreads = {p.label: Spread.of_pilot(p.audit(pilot, 4_000, 400, 10)) for p in POPULATIONS}
    for population, (limit, each, names) in product(POPULATIONS, SIZES):
        spread = spreads[population.label]
        size = documents_needed(spread, Size(names=names, each=each, limit=limit))
        if size is None or size > 5_000:
            print(f"{population.label:12} limit {limit} m {each} J {names}: not decidable")
            continue
        rng = np.random.default_rng([names, each])
        passed = 0
        for _ in range(audits):
            low, high = limits(parts(population.audit(rng, size, names, each)), 0.95)
            passed += -limit < low and high < limit
        least = size > 30
        gaps += [passed / audits - 0.8] if least else []
        print(
            f"{population.label:12} limit {limit} m {each} J {names}: {size} documents pass {passed / audits:.3f}"
            f"{'' if least else ' (the least number)'}",
            flush=True,
        )
    near = float(np.mean(np.abs(gaps) <= 0.04))
    print(f"{len(gaps)} settings; within .04 of .8: {near:.0%}; from {min(gaps):+.3f} to {max(gaps):+.3f}")


if __name__ == "__main__":
    main()
