"""A distance that weighs columns together: the search against enumeration and the closed form of two numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fairkit_all_inputs.bounds import reaching
from fairkit_all_inputs.bounds.nearness import Joint, Moves, loop_costs
from fairkit_all_inputs.bounds.problem import FLIP, SCORE
from fairkit_all_inputs.bounds.questions import answer

from .random_trees import CHANGING, ORDERED, SIZES, enumerated, problem


def joint(seed, width=3):
    """Ordered blocks are intervals along an axis, of which one holds somebody; listed ones are vectors."""
    rng = np.random.default_rng(seed)
    moves = {}
    for block, size in enumerate(SIZES):
        axis, none = rng.normal(size=width), np.zeros(size)
        points = rng.normal(size=(size, width))
        if block == CHANGING or (block == 4 and seed % 2):
            continue  # a block that the distance does not look at
        if ORDERED[block]:
            ends = np.sort(rng.normal(size=size + 1))
            ends -= ends[rng.integers(size)]
            moves[block] = Moves(np.arange(size), np.zeros((size, width)), ends[:-1], ends[1:], axis)
        else:
            moves[block] = Moves(np.arange(size), points - points[rng.integers(size)], none, none, np.zeros(width))
    return Joint(moves, width)


def distances(asked, cells):
    """The least distances at cells of both ordered blocks, shape [n]: a corner, a point of an edge, or one inside."""
    rest = sum(move.points[cells[:, block]] for block, move in asked.moves.items())
    one, other = (asked.moves[block] for block in (0, 2))
    axes = np.stack([one.axis, other.axis])
    ends = [(move.low[cells[:, block]], move.high[cells[:, block]]) for block, move in ((0, one), (2, other))]
    inside = -np.linalg.solve(axes @ axes.T, axes @ rest.T)
    tried = [tuple(np.clip(t, *end) for t, end in zip(inside, ends, strict=True))]
    for fixed, free in ((0, 1), (1, 0)):
        for end in ends[fixed]:
            moved = rest + end[:, None] * axes[fixed]
            best = np.clip(-(moved @ axes[free]) / (axes[free] @ axes[free]), *ends[free])
            pair = [end, best] if fixed == 0 else [best, end]
            tried.append(tuple(pair))
    return np.min([((rest + a[:, None] * axes[0] + b[:, None] * axes[1]) ** 2).sum(axis=1) for a, b in tried], axis=0)


def points():
    free = [range(size) if place != CHANGING else [0] for place, size in enumerate(SIZES)]
    return np.array(list(itertools.product(*free)))


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1])
def test_only_inputs_within_a_joint_distance_count(seed):
    asked, metric = problem(7, trees=6, depth=4), joint(seed)
    every, sums = points(), enumerated(asked)
    far = distances(metric, every)
    for near in (0.02, 0.3, 1.5):
        inside = far <= near
        best = max((sums[a] - sums[b])[inside].max() for a, b in asked.pairs)
        found = answer(asked, SCORE, costs=metric, near=near)
        assert (found.lower, found.upper) == pytest.approx((best, best), abs=1e-8)
        threshold = float(np.quantile(sums, 0.9))
        decided = problem(7, trees=6, depth=4, threshold=threshold)
        there = any(((sums[a] >= threshold) & (sums[b] < threshold) & inside).any() for a, b in asked.pairs)
        got = answer(decided, FLIP, costs=metric, near=near)
        assert (got.lower > 0) == there
        assert there or got.upper <= -decided.rounding


def test_no_box_that_holds_a_near_point_is_called_far():
    asked, metric = problem(3), joint(2)
    layout, rng = asked.layout, np.random.default_rng(0)
    proved = 0
    for _ in range(300):
        box = []
        for block, size in enumerate(SIZES):
            if block == CHANGING:
                box.append(1)
            elif ORDERED[block]:
                low, high = np.sort(rng.integers(0, size, 2))
                box.append(sum(1 << c for c in range(low, high + 1)))
            else:
                box.append(sum(1 << int(c) for c in rng.choice(size, min(size, 2), replace=False)))
        cells = [[c for c in range(size) if bits >> c & 1] for size, bits in zip(SIZES, box, strict=True)]
        least = distances(metric, np.array(list(itertools.product(*cells)))).min()
        near = float(rng.uniform(0.3, 1.5)) * least
        out = reaching.far(layout.pack(tuple(box)), layout.grid, loop_costs(layout, metric, near))
        proved += out
        assert not out or least > near
    assert proved > 60, "most boxes that are far are found to be"
