"""Slow and obvious twins of the exact attribution: every coalition of every pair."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from fairkit_onnx.structure.ensemble import MODES, Ensemble


def random_ensemble(rng: np.random.Generator, features: int, trees: int, depth: int) -> Ensemble:
    """Return trees with tests of every mode, repeated columns, and NaN to either side."""
    mode: list[int] = []
    feature: list[int] = []
    threshold: list[float] = []
    missing: list[bool] = []
    yes: list[int] = []
    no: list[int] = []
    value: list[float] = []
    roots = []

    def grow(level: int) -> int:
        place = len(mode)
        leaf = level == 0 or (level < depth and rng.random() < 0.2)
        mode.append(0 if leaf else int(rng.choice([1, 1, 1, 2, 3, 4, 5, 6])))
        feature.append(int(rng.integers(features)))
        threshold.append(float(rng.integers(4)))
        missing.append(bool(rng.random() < 0.5))
        yes.append(-1)
        no.append(-1)
        value.append(float(rng.normal()) if leaf else 0.0)
        if not leaf:
            yes[place] = grow(level - 1)
            no[place] = grow(level - 1)
        return place

    for _ in range(trees):
        roots.append(grow(depth))
    assert MODES[1] == "BRANCH_LEQ"
    return Ensemble(
        mode=np.array(mode, dtype=np.int8),
        feature=np.array(feature),
        threshold=np.array(threshold, dtype=np.float32),
        missing=np.array(missing),
        yes=np.array(yes),
        no=np.array(no),
        value=np.array(value),
        roots=np.array(roots),
        base=0.3,
        uneven=0.0,
        terms=1.0,
    )


def score(ensemble: Ensemble, matrix: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the sum of the trees by walking down each."""
    found = np.full(len(matrix), ensemble.base)
    for row in range(len(matrix)):
        for root in ensemble.roots.tolist():
            node = root
            while ensemble.mode[node] > 0:
                value = matrix[row, ensemble.feature[node]][None]
                node = int((ensemble.yes if ensemble.goes_yes(node, value)[0] else ensemble.no)[node])
            found[row] += ensemble.value[node]
    return found


def shapley_of_pairs(
    f: Any, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], players: list[list[int]]
) -> np.ndarray[Any, Any]:
    """Return each pair's Shapley values, shape [n, m, P], by all coalitions; `f` takes rows of columns."""
    n, m, count = len(a), len(b), len(players)
    values = {}
    for size in range(count + 1):
        for coalition in itertools.combinations(range(count), size):
            mixed = np.repeat(b[None], n, axis=0)
            for player in coalition:
                for column in players[player]:
                    mixed[:, :, column] = a[:, None, column]
            values[coalition] = f(mixed.reshape(n * m, -1)).reshape(n, m)
    found = np.zeros((n, m, count))
    for player in range(count):
        for coalition, low in values.items():
            if player in coalition:
                continue
            size = len(coalition)
            weight = math.factorial(size) * math.factorial(count - size - 1) / math.factorial(count)
            found[:, :, player] += weight * (values[tuple(sorted((*coalition, player)))] - low)
    return found
