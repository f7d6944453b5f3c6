"""Random trees over cells, and the largest values of their objectives by enumeration."""

from __future__ import annotations

import itertools

import numpy as np

from fairkit_all_inputs.bounds.problem import CHANCE, SCORE, Problem
from fairkit_onnx.structure.cells import Block

SIZES, ORDERED = (5, 4, 7, 3, 66), (True, False, True, False, False)
CHANGING = 3


def blocks(sizes=SIZES, ordered=ORDERED):
    found = []
    for place, (size, flat) in enumerate(zip(sizes, ordered, strict=True)):
        name = f"c{place}"
        ends = np.arange(size, dtype=float) if flat else None
        members = {} if flat else {(str(cell),): cell for cell in range(size)}
        found.append(
            Block(name=name, columns=(name,), ordered=flat, values={name: np.arange(size)}, ends=ends, members=members)
        )
    return found


def grow(rng, depth, sizes, ordered, nodes):
    """Add a random tree; returns its root."""
    place = len(nodes)
    nodes.append(None)
    if depth == 0 or rng.random() < 0.1:
        nodes[place] = ((-1, 0), -1, -1, float(np.float32(rng.normal())))
        return place
    block = int(rng.choice(len(sizes), p=[0.2, 0.2, 0.2, 0.25, 0.15]))
    if ordered[block]:
        cells = (1 << int(rng.integers(1, sizes[block]))) - 1
    else:
        cells = sum(1 << int(c) for c in rng.choice(sizes[block], int(rng.integers(1, sizes[block])), replace=False))
    yes = grow(rng, depth - 1, sizes, ordered, nodes)
    no = grow(rng, depth - 1, sizes, ordered, nodes)
    nodes[place] = ((block, cells), yes, no, 0.0)
    return place


def problem(seed, trees=3, depth=3, threshold=0.0, rounding=1e-7, base=0.2):
    rng = np.random.default_rng(seed)
    nodes: list = []
    roots = [grow(rng, depth, SIZES, ORDERED, nodes) for _ in range(trees)]
    tests, yes, no, value = (list(part) for part in zip(*nodes, strict=True))
    return Problem(blocks(), CHANGING, tests, yes, no, value, roots, base, rounding, threshold, True)


def enumerated(asked):
    """The sums at all points with the changing block at each of its cells, shape [cells, points]."""
    free = [range(size) if place != CHANGING else [0] for place, size in enumerate(SIZES)]
    points = np.array(list(itertools.product(*free)))
    sums = []
    for cell in range(SIZES[CHANGING]):
        points[:, CHANGING] = cell
        sums.append(asked.sums(points))
    return np.array(sums)


def values(kind, f, g, threshold):
    if kind == SCORE:
        return f - g
    if kind == CHANCE:
        return 1 / (1 + np.exp(-f)) - 1 / (1 + np.exp(-g))
    found = np.minimum(f - threshold, threshold - g)
    return np.where(f == g, -np.inf, found)
