"""The two-way interval: brute force, other formulas, permutation, floors, and coverage at a few hard populations."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path

import numpy as np
import pytest

from fairkit_correspondence.planning import Cells, limits, parts

ROOT = Path(__file__).parents[2]


def gapped(seed: int) -> Cells:
    """Return a random design: contexts, rotated names, gaps, and answers that are partly open."""
    rng = np.random.default_rng(seed)
    size, contexts, count = rng.integers(3, 12), rng.integers(1, 4), rng.integers(3, 8)
    rows = []
    for t, c, s in itertools.product(range(size), range(contexts), (True, False)):
        if c and rng.random() < 0.2 and not any(r[:2] == (t, c) for r in rows):
            continue
        names = rng.permutation(count)[: rng.integers(1, count + 1)]
        rows += [(t, c, int(n) + count * (not s), s) for n in names]
    kept = {(t, c) for t, c, _, s in rows if s} & {(t, c) for t, c, _, s in rows if not s}
    rows = [row for row in rows if row[:2] in kept]
    document, context, name, side = (np.array(column) for column in zip(*rows, strict=True))
    low = rng.random(len(rows))
    high = np.where(rng.random(len(rows)) < 0.1, 1.0, low)
    return Cells(document, context, name, side.astype(bool), low, high, int(size))


def brute_force(cells: Cells, towards: float) -> tuple[float, float, list[float], list[float], list[float]]:
    """Return D, v, N without and with its floor, and W, by loops over documents, names and pairs of documents."""
    y = cells.answers(towards)
    size = cells.documents
    where = [np.flatnonzero(cells.document == t) for t in range(size)]
    d = []
    for rows in where:
        gaps = []
        for c in sorted(set(cells.context[rows])):
            here = rows[cells.context[rows] == c]
            gaps.append(y[here[cells.side[here]]].mean() - y[here[~cells.side[here]]].mean())
        d.append(np.mean(gaps))
    D = float(np.mean(d))
    v = sum((one - D) ** 2 for one in d) / (size * (size - 1))
    found_n, floored, found_w = [], [], []
    for which in (True, False):
        names = sorted(set(cells.name[cells.side == which]))
        c, weights = np.zeros((size, len(names))), np.zeros(len(names))
        for t, rows in enumerate(where):
            contexts = sorted(set(cells.context[rows]))
            for context in contexts:
                here = rows[cells.context[rows] == context]
                mine, others = here[cells.side[here] == which], here[cells.side[here] != which]
                for i in mine:
                    sign = 1 if which else -1
                    weight = 1 / (len(mine) * len(contexts) * size)
                    c[t, names.index(cells.name[i])] += weight * (sign * (y[i] - y[others].mean()) - D)
                    weights[names.index(cells.name[i])] += weight
        # as many names of one size: (sum of the names' weights)^2 over the sum of their squares
        J = weights.sum() ** 2 / (weights**2).sum()
        # products of one name's contributions on different documents
        products = sum(c[t, j] * c[u, j] for j in range(len(names)) for t in range(size) for u in range(size) if t != u)
        total = sum(c[:, j].sum() ** 2 for j in range(len(names)))
        found_w.append(J / (J - 1) * total)
        found_n.append(max(0.0, products + total / (J - 1) + v / J))
        largest = max(c[:, j].sum() ** 2 for j in range(len(names)))
        pseudo = (total + 2 * largest) * J**2 / ((J + 1) * (J + 2))
        floored.append(found_n[-1] + found_n[-1] / found_w[-1] * max(0.0, pseudo - found_w[-1]))
    return D, v, found_n, floored, found_w


@pytest.mark.parametrize("first", range(0, 200, 40))
def test_the_closed_form_is_brute_force_on_200_gapped_designs(first):
    for seed in range(first, first + 40):
        cells = gapped(seed)
        towards = (0.0, 0.5, 1.0)[seed % 3]
        D, v, _, floored, w = brute_force(cells, towards)
        found = parts(cells, towards)
        assert found.value == pytest.approx(D, abs=1e-12)
        np.testing.assert_allclose(found.spread, w, rtol=0, atol=1e-12)
        np.testing.assert_allclose(found.names, floored, rtol=0, atol=1e-12)
        T, d = cells.documents, found.differences
        # max |d|, or 1 where fewer than ten documents speak
        h = 1.0 if np.abs(d).sum() ** 2 < 10 * (d**2).sum() else np.abs(d).max()
        pseudo = (((d - D) ** 2).sum() + 2 * h**2) / ((T + 1) * (T + 2))
        assert found.documents == pytest.approx(max(v, pseudo), abs=1e-12)


def full(T: int, J: int, y) -> Cells:
    t, s, j = np.meshgrid(np.arange(T), [True, False], np.arange(J), indexing="ij")
    side = s.reshape(-1)
    return Cells(
        t.reshape(-1),
        np.zeros(T * 2 * J, dtype=int),
        j.reshape(-1) + J * ~side,
        side,
        np.asarray(y, dtype=float).reshape(-1),
        np.asarray(y, dtype=float).reshape(-1),
        T,
    )


def test_on_a_full_grid_it_is_the_crossed_random_effects_variance():
    rng = np.random.default_rng(0)
    T, J, ratios = 20, 8, []
    for _ in range(30):
        y = 0.5 + 0.1 * rng.normal(size=(T, 2, 1)) + 0.1 * rng.normal(size=(1, 2, J))
        y = y + 0.1 * rng.normal(size=(T, 2, J))
        found = parts(full(T, J, y))
        # mean squares of names within a group, and of what is left
        expected = found.differences.var(ddof=1) / T
        for s in range(2):
            block = y[:, s]
            centred = block - block.mean(1, keepdims=True) - block.mean(0) + block.mean()
            noise = (centred**2).sum() / ((T - 1) * (J - 1))
            expected += max(0.0, (block.mean(0).var(ddof=1) - noise / T)) / J
        unfloored = found.differences.var(ddof=1) / T + sum(brute_force(full(T, J, y), 0.5)[2])
        ratios.append(unfloored / expected)
    assert np.mean(ratios) == pytest.approx(1, abs=0.03)


def test_the_sides_can_be_swapped_and_the_rows_shuffled():
    cells = gapped(7)
    found, rng = parts(cells, 0.0), np.random.default_rng(1)
    order = rng.permutation(len(cells.low))
    shuffled = Cells(
        *(getattr(cells, f)[order] for f in ("document", "context", "name", "side", "low", "high")),
        documents=cells.documents,
    )
    swapped = Cells(cells.document, cells.context, cells.name, ~cells.side, cells.low, cells.high, cells.documents)
    assert limits(parts(shuffled, 0.0), 0.95) == pytest.approx(limits(found, 0.95))
    low, high = limits(parts(swapped, 1.0), 0.95)
    assert limits(found, 0.95) == pytest.approx((-high, -low))


@pytest.mark.parametrize("T", [30, 50, 100, 200])
def test_no_flip_at_all_leaves_room_for_the_exact_limit(T):
    low, high = limits(parts(full(T, 40, np.ones((T, 2, 40)))), 0.95)
    assert high >= 1 - 0.025 ** (1 / T) - 1e-12
    assert low == pytest.approx(-high)
    fixed = limits(parts(full(T, 40, np.ones((T, 2, 40)))), 0.95, fixed=True)
    assert fixed[1] >= 1 - 0.025 ** (1 / T) - 1e-12


def test_one_name_says_nothing_about_a_group():
    cells = full(40, 1, np.random.default_rng(0).random((40, 2, 1)))
    assert limits(parts(cells), 0.95) == (-1.0, 1.0)
    low, high = limits(parts(cells), 0.95, fixed=True)
    assert -0.5 < low < high < 0.5


def benchmark():
    path = ROOT / "benchmarks" / "correspondence_coverage.py"
    spec = importlib.util.spec_from_file_location("correspondence_coverage", path)
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


HARD = {
    "temperature 0, documents 4": (50, 40, 8),
    "odd names against": (100, 40, 2),
    "names .5": (30, 40, 8),
    "interaction 1.5": (50, 36, 2),
}


@pytest.mark.parametrize("label", HARD)
def test_hard_populations_are_covered(label):
    module = benchmark()
    population = next(one for one in module.POPULATIONS if one.label == label)
    covered, passed, failed, _ = module.measure((population, *HARD[label]), 250, 3)
    # 250 audits: the standard error at .95 is .014
    assert covered >= 0.92
    assert passed <= 0.06
    assert failed <= 0.06
    assert len(module.SETTINGS) == 262
