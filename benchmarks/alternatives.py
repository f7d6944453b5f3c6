"""How often the four statements about alternatives are false, in made-up spaces of models whose truth is known.

    python benchmarks/alternatives.py [--searches 250] [--draws 100] [--rows 500 2000 10000]

A space is 400 models on a population of 20,000 rows; each search draws models and rows with replacement. Beside the
statements stands what people do instead: the model that is best on the test rows with its own interval, the largest
observed reduction, the observed share. A statement that is false in more than .05 + two Monte Carlo errors has a star.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np

from fairkit_alternatives.statements import (
    Aim,
    Disagreement,
    PairedCounts,
    arbitrary,
    found,
    losses,
    none_of,
    one_more,
    pick,
    reduction_ends,
    reductions,
    upper_share,
)

POPULATION, MODELS = 20_000, 400
AIM = Aim.of("demographic_parity_difference", loss=0.01, reduction=0.02, share=0.02)
STATEMENTS = ("found", "none", "one more", "arbitrary")
HABITS = ("best of test", "largest", "share")


def space(
    rng: np.random.Generator,
    less: Any = 0.0,
    noise: float = 0.1,
    small: float = 0.5,
    rate: float = 0.35,
    bias: float = 0.3,
) -> tuple[Any, ...]:
    """Return groups, outcomes, decisions of a model in use and of others, all as accurate.

    Each accepts the same share by its own noisy reading of merit; the one in use adds `bias` for group 1, model k adds
    `less[k]` less.
    """
    codes = (rng.random(POPULATION) >= small).astype(np.int64)
    merit = rng.normal(0, 1, POPULATION)
    label = (merit + rng.normal(0, 0.7, POPULATION) > np.quantile(merit, 1 - rate)).astype(float)

    def decide(bias: float) -> Any:
        score = merit + bias * codes + rng.normal(0, noise, POPULATION)
        return score > np.quantile(score, 1 - rate)

    base = decide(bias)
    return codes, label, base, np.stack([decide(bias - one) for one in np.broadcast_to(less, MODELS)])


def spaces(rng: np.random.Generator) -> dict[str, tuple[Any, ...]]:
    """Return the spaces by name."""
    few = 0.09 * (np.arange(MODELS) < 4)
    one = space(rng, 0.055 * (np.arange(MODELS) < 1))
    same = np.where(np.arange(MODELS)[:, None] < 20, one[3][0], one[3])
    return {
        "all equal, 4 % apart": space(rng),
        "all equal, .6 % apart": space(rng, noise=0.014),
        "all equal, 17 % apart": space(rng, noise=0.45),
        "1 % better": space(rng, few),
        "5 % are one better model": (*one[:3], same),
        "normal spread": space(rng, rng.normal(0, 0.035, MODELS)),
        "exponential tail": space(rng, rng.exponential(0.02, MODELS)),
        "a group of 5 %": space(rng, few, small=0.05),
        "3 % selected": space(rng, 4 * few, rate=0.03, bias=0.6),
    }


def study(one: tuple[Any, ...], rows: int, draws: int, searches: int, rng: np.random.Generator) -> dict[str, float]:
    """Return the share of false claims by statement, and by habit."""
    codes, label, base, models = one
    whole = PairedCounts.of_rows(codes, label, base, list(models), 2)
    less, (lost, _) = reductions(whole, AIM), losses(whole, AIM)
    good = (less >= AIM.reduction) & (lost <= AIM.loss)
    truth = pair_truth(models, codes)
    false = dict.fromkeys((*STATEMENTS, *HABITS), 0)
    for _ in range(searches):
        chosen = rng.integers(0, MODELS, draws)
        lots = []
        for _ in range(2):
            some = rng.integers(0, POPULATION, rows)
            decided = [models[k][some] for k in chosen]
            lots.append((some, PairedCounts.of_rows(codes[some], label[some], base[some], decided, 2)))
        (_, selection), (some, test) = lots
        place = pick([selection], AIM)
        if place is not None:
            seen = found(test, place, AIM)
            false["found"] += less[chosen[place]] < seen.at_least or lost[chosen[place]] > seen.at_most
        close = [less[k] for k in chosen if lost[k] <= AIM.loss]
        none = none_of(test, AIM)
        false["none"] += bool(close) and max(close) > none.at_most + 1e-12
        false["largest"] += bool(close) and max(close) > none.largest + 1e-12
        said = one_more(test, AIM, "law")
        false["one more"] += good.mean() > said.share
        seen, (lose, _) = reductions(test, AIM), losses(test, AIM)
        habit = np.where(lose <= AIM.loss, seen, -np.inf)
        best = int(habit.argmax())
        if np.isfinite(habit[best]):
            (low,), _ = reduction_ends(test.take([best]), AIM, 0.025)
            false["best of test"] += less[chosen[best]] < low
        false["share"] += good.mean() > upper_share(int((habit >= AIM.reduction).sum()), draws, 0.05)
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
    parser.add_argument("--searches", type=int, default=250)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--rows", type=int, nargs="+", default=[500, 2000, 10_000])
    options = parser.parse_args()
    made = spaces(np.random.default_rng(0))
    most = 0.05 + 2 * math.sqrt(0.05 * 0.95 / options.searches)
    seen: dict[str, list[float]] = {key: [] for key in (*STATEMENTS, *HABITS)}
    for name, one in made.items():
        for rows in options.rows:
            cell = study(one, rows, options.draws, options.searches, np.random.default_rng([rows, len(name)]))
            shown = [
                f"{key} {value:.3f}{'*' if key in STATEMENTS and value > most else ''}" for key, value in cell.items()
            ]
            print(f"{name:<26} {rows:>6,}  {'  '.join(shown)}", flush=True)
            for key, value in cell.items():
                seen[key].append(value)
    for name, of in (("least", min), ("largest", max), ("mean", np.mean)):
        print(f"{name:<34}  " + "  ".join(f"{key} {of(values):.3f}" for key, values in seen.items()))


if __name__ == "__main__":
    main()
