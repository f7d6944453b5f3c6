"""How often the four statements about alternatives are false, in made-up spaces of models whose truth is known.

    python benchmarks/alternatives.py [--searches 200] [--draws 100] [--rows 500 2000 10000]

A space is 400 models on a population of 20,000 rows; each search draws models and rows with replacement. Beside the
statements stands what people do instead: the model that is best on the test rows with its own interval, the largest
observed reduction, the observed share.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

from fairkit import plugins
from fairkit_alternatives.statements import (
    Aim,
    Disagreement,
    PairedCounts,
    arbitrary,
    disparity,
    found,
    gained,
    loss,
    none_of,
    one_more,
    pick,
    reduction,
    upper_share,
)

POPULATION, MODELS = 20_000, 400
METRIC, KIND = disparity("demographic_parity_difference", plugins.installed_metrics()[0])
AIM = Aim(metric=METRIC, kind=KIND, loss=0.01, reduction=0.02, share=0.02)


def people(rng: np.random.Generator, small: float = 0.5, rate: float = 0.35) -> tuple[Any, Any, Any]:
    """Return groups, outcomes and the decisions of a model in use that favors group 1."""
    codes = (rng.random(POPULATION) >= small).astype(np.int64)
    merit = rng.normal(0, 1, POPULATION)
    label = (merit + rng.normal(0, 0.7, POPULATION) > np.quantile(merit, 1 - rate)).astype(float)
    base = merit + 0.25 * codes > np.quantile(merit + 0.25 * codes, 1 - rate)
    return codes, label, base


def space(
    rng: np.random.Generator, better: Callable[[int], float], apart: float = 0.03, **of_people: float
) -> tuple[Any, ...]:
    """Return people and models: model k gives a yes to a share `better(k)` of the refused of group 0."""
    codes, label, base = people(rng, **of_people)
    models = np.stack([base ^ (rng.random(POPULATION) < apart / 2) for _ in range(MODELS)])
    for k in range(MODELS):
        models[k] |= (codes == 0) & (rng.random(POPULATION) < better(k))
    return codes, label, base, models


def spaces(rng: np.random.Generator) -> dict[str, tuple[Any, ...]]:
    """Return the spaces by name."""
    normal, tail = rng.normal(0, 0.012, MODELS), rng.exponential(0.006, MODELS)
    one = space(rng, lambda k: 0.03 * (k < 4))
    same = (*one[:3], np.where(np.arange(MODELS)[:, None] < 20, one[3][0], one[3]))
    return {
        "all equal, 3 % apart": space(rng, lambda _: 0.0),
        "all equal, .6 % apart": space(rng, lambda _: 0.0, apart=0.006),
        "all equal, 17 % apart": space(rng, lambda _: 0.0, apart=0.17),
        "1 % better": one,
        "5 % are one better model": same,
        "normal spread": space(rng, lambda k: max(0.0, normal[k])),
        "exponential tail": space(rng, lambda k: tail[k]),
        "a group of 5 %": space(rng, lambda k: 0.03 * (k < 4), small=0.05),
        "3 % selected": space(rng, lambda k: 0.01 * (k < 4), rate=0.03),
    }


def study(one: tuple[Any, ...], rows: int, draws: int, searches: int, rng: np.random.Generator) -> dict[str, float]:
    """Return the share of false claims by statement, and by habit."""
    codes, label, base, models = one
    whole = PairedCounts.of_rows(codes, label, base, list(models), 2)
    less = np.array([gained(reduction(whole, k, AIM, 0.1), AIM) for k in range(MODELS)])
    lost = np.array([loss(whole, k, AIM)[0] for k in range(MODELS)])
    good = (less >= AIM.reduction) & (lost <= AIM.loss)
    truth = pair_truth(models, codes)
    false = dict.fromkeys(("found", "none", "one more", "arbitrary", "best of test", "largest", "share"), 0)
    for _ in range(searches):
        chosen = rng.integers(0, MODELS, draws)
        lots = []
        for _ in range(2):
            some = rng.integers(0, POPULATION, rows)
            decided = [models[k][some] for k in chosen]
            lots.append((some, PairedCounts.of_rows(codes[some], label[some], base[some], decided, 2)))
        (_, selection), (some, test) = lots
        place = pick(selection, AIM)
        if place is not None:
            seen = found(test, place, AIM)
            false["found"] += less[chosen[place]] < seen.at_least or lost[chosen[place]] > seen.at_most
        close = [less[k] for k in chosen if lost[k] <= AIM.loss]
        none = none_of(test, AIM)
        false["none"] += bool(close) and max(close) > none.at_most + 1e-12
        false["largest"] += bool(close) and max(close) > none.largest + 1e-12
        said = one_more(test, AIM, "law")
        false["one more"] += good.mean() > said.share
        ends = [(reduction(test, k, AIM, 0.025), loss(test, k, AIM)[0]) for k in range(draws)]
        habit = [(gained(seen, AIM), seen.low, k) for k, (seen, lose) in enumerate(ends) if lose <= AIM.loss]
        if habit:
            _, low, best = max(habit)
            false["best of test"] += less[chosen[best]] < low
        hits = sum(gained(seen, AIM) >= AIM.reduction and lose <= AIM.loss for seen, lose in ends)
        false["share"] += good.mean() > upper_share(hits, draws, 0.05)
        bits = np.stack([models[k][some] for k in chosen])
        disagree = arbitrary(Disagreement.of_rows(bits, codes[some], 2), "law", ["0", "1"], AIM)
        shares = [] if disagree is None else [one for one in disagree.shares.values() if one is not None]
        if len(shares) == 2:
            false["arbitrary"] += not shares[1][1] <= truth <= shares[1][2]
    return {name: count / searches for name, count in false.items()}


def pair_truth(models: Any, codes: Any) -> float:
    """Return how often two drawn models disagree about a row of group 1."""
    share = models[:, codes == 1].mean(axis=0)
    return float((2 * share * (1 - share)).mean())


def main() -> None:
    """Print a line for each space and number of rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--searches", type=int, default=200)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--rows", type=int, nargs="+", default=[500, 2000, 10_000])
    options = parser.parse_args()
    made = spaces(np.random.default_rng(0))
    worst: dict[str, float] = {}
    for name, one in made.items():
        for rows in options.rows:
            seen = study(one, rows, options.draws, options.searches, np.random.default_rng([rows, len(name)]))
            print(
                f"{name:<26} {rows:>6,}  " + "  ".join(f"{key} {value:.3f}" for key, value in seen.items()), flush=True
            )
            worst = {key: max(value, worst.get(key, 0.0)) for key, value in seen.items()}
    print(f"{'the worst':<34}  " + "  ".join(f"{key} {value:.3f}" for key, value in worst.items()))


if __name__ == "__main__":
    main()
