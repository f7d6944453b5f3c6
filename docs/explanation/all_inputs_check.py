"""Check a proof of `fairkit audit --auditor all-inputs --set all-inputs.save_proof=proof.json` with numpy alone.

    python all_inputs_check.py proof.json

It searches nothing: for each pair of values it rebuilds the boxes of the log, checks that they cover every input, and bounds
each one anew. It exits with 1 where a bound is larger than claimed. It knows nothing of fairkit.
"""

import itertools
import json
import pathlib
import sys

import numpy as np


def leaves(told, node, cell, box):
    """Every leaf that can be reached with the changing block at a cell: its value, and the cells of each block it needs."""
    block, cells = told["tests"][node]
    if block < 0:
        return [(told["leaf"][node], box)]
    cells, found = int(cells, 16), []
    for child, side in ((told["yes"][node], cells), (told["no"][node], ~cells)):
        if block == told["changing"]:
            if side >> cell & 1:
                found += leaves(told, child, cell, box)
            continue
        left = box.get(block, (1 << told["sizes"][block]) - 1) & side
        if left:
            found += leaves(told, child, cell, {**box, block: left})
    return found


def pairs(one, other):
    """The leaves of two trees that share an input, with the difference of their values."""
    for f, first in one:
        for g, second in other:
            box = {b: first.get(b, -1) & second.get(b, -1) for b in {**first, **second}}
            if all(box.values()):
                yield f - g, box


def largest(parts, boxes, starts):
    """The largest value among (value, cells by block) that each box reaches."""
    best = np.full(len(boxes), -np.inf)
    for value, needs in sorted(parts, key=lambda part: -part[0]):
        rows = np.flatnonzero(best == -np.inf)
        for block, cells in needs.items():
            places = [starts[block] + c for c in range(starts[block + 1] - starts[block]) if cells >> c & 1]
            rows = rows[boxes[np.ix_(rows, places)].any(axis=1)]
        best[rows] = value
    return best


def boxes_of(told, log, starts):
    """The closed boxes of a log: each split is replaced by its two sides, so that they cover everything."""
    waiting, found = [np.ones(starts[-1], dtype=bool)], []
    for entry in log:
        box = waiting.pop()
        if entry == 0:
            found.append(box)
            continue
        block, key = entry
        cells = int(key, 16) if isinstance(key, str) else (1 << key) - 1
        side = np.array([cells >> c & 1 for c in range(told["sizes"][block])], dtype=bool)
        for half in (~side, side):
            child = box.copy()
            child[starts[block] : starts[block + 1]] &= half
            waiting.append(child)
    if waiting:
        raise SystemExit("the log leaves boxes open")
    return np.array([box for box in found if all(box[a:b].any() for a, b in itertools.pairwise(starts))])


def bounds(told, question, s, t, boxes, starts):
    """An upper bound of the question's objective in each box, for the changing block at s and at t."""
    at = [[leaves(told, root, cell, {}) for root in told["roots"]] for cell in (s, t)]
    touching = [(f, g) for f, g in zip(*at, strict=True) if f != g]  # other trees cancel
    differences = [list(pairs(f, g)) for f, g in touching]
    gap = sum((largest(parts, boxes, starts) for parts in differences), np.zeros(len(boxes)))
    if question == "all_inputs_score_change":
        return gap
    high, low = (
        told["base"] + sum(sign * largest([(sign * v, b) for v, b in tree], boxes, starts) for tree in trees)
        for sign, trees in ((1, at[0]), (-1, at[1]))
    )
    if question == "all_inputs_flip":
        found = np.minimum(np.minimum(high - told["threshold"], told["threshold"] - low), gap / 2)
        moving = sum(  # where no tree differs both sums are the same, and rounded alike
            (
                np.abs(largest([(sign * v, b) for v, b in parts], boxes, starts))
                for parts in differences
                for sign in (1, -1)
            ),
            np.zeros(len(boxes)),
        )
        return np.where(moving == 0, -np.inf, found)
    top = told["base"] + sum(largest(tree, boxes, starts) for tree in at[1])
    g = np.maximum(low, np.minimum(np.minimum(-gap / 2, top), high - gap))
    return 1 / (1 + np.exp(-np.minimum(high, g + gap))) - 1 / (1 + np.exp(-g))


def main(path):
    told = json.loads(pathlib.Path(path).read_text())
    sizes = [1 if block == told["changing"] else size for block, size in enumerate(told["sizes"])]
    starts, good = np.concatenate([[0], np.cumsum(sizes)]).tolist(), True
    for question, log in told["logs"].items():
        wanted = {f"{s},{t}" for s in range(told["values"]) for t in range(told["values"]) if s != t}
        if not log or set(log) != wanted:
            sys.stdout.write(f"{question}: no proof (a witness decides it, or it is not in this file)\n")
            continue
        found = -np.inf
        for pair in sorted(log):
            boxes = boxes_of(told, log[pair], starts)
            found = max(
                found, bounds(told, question, *map(int, pair.split(",")), boxes, starts).max(initial=-np.inf)
            )
        holds = found <= told["claims"][question] + 1e-9 * max(1, abs(found) if np.isfinite(found) else 1)
        good = good and holds
        verdict = "holds" if holds else "REFUTED"
        sys.stdout.write(
            f"{question}: claimed {told['claims'][question]:.9g}, proved {found:.9g}: {verdict}\n"
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
